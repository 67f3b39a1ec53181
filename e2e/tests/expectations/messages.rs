//! What callers send: invalid, oversized, malformed, random, not encrypted, too often.

use crate::fixture::{CALL_PAUSE, Caller, Env, begin, creates};
use anyhow::{Context, Result};
use bytes::{Buf, BufMut};
use e2e::test_env::SOON;
use e2e::{eventually, report};
use expectations::proto::expectations_client::ExpectationsClient;
use expectations::proto::{BatchId, BeginRequest, DoneRequest, Heartbeat, StatusRequest};
use expectations::{Answer, Expectations};
use futures::stream;
use http::uri::PathAndQuery;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use prost::Message;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

/// Messages that are not encoded.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}

/// Sends bytes as the message of a call, and returns the code of the answer.
async fn send(
    env: &Env,
    channel: &tonic::transport::Channel,
    method: &str,
    message: Vec<u8>,
) -> Result<Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await?;
    let path = PathAndQuery::try_from(format!("/slinky.expectations.v1.Expectations/{method}"))?;
    let token = std::fs::read_to_string(env.token_file()?)?;
    let answer = if method == "Join" {
        let request = crate::fixture::authorized(stream::iter([message]), &token);
        match client.streaming(request, path, Raw).await {
            Ok(response) => response.into_inner().message().await.map(drop),
            Err(status) => Err(status),
        }
    } else {
        client.unary(crate::fixture::authorized(message, &token), path, Raw).await.map(drop)
    };
    Ok(answer.err().unwrap_or_else(|| Status::ok("")))
}

/// Makes a request invalid.
type Spoil = fn(&mut BeginRequest);

async fn refusal_of_begin(caller: &mut Caller, spoil: Spoil) -> (Code, String) {
    let mut request = BeginRequest::from(begin(&"r".into(), 1, "slurm/a", None, creates(1)));
    spoil(&mut request);
    let request = caller.request(request);
    let status = caller.client.begin(request).await.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn invalid_messages_are_refused_with_the_name_of_the_field_and_counted() -> Result<()> {
    let env = Env::create("messages").await?;
    let leader = env.start_leader(&[]).await?;
    let mut caller = env.caller(&leader).await?;
    let cases: [(Spoil, &str); 5] = [
        (|request| request.creates = 1_000_001, "creates is 1000001, and must be between 0 and 1000000"),
        (|request| request.deletes = u32::MAX, "deletes is 4294967295, and must be between 0 and 1000000"),
        (|request| request.others = 1_001, "others is 1001, and must be between 0 and 1000"),
        (|request| request.batch_id = None, "batch_id is missing"),
        (|request| request.name = "n".repeat(254), "name has 254 bytes, more than 253"),
    ];
    for (spoil, message) in cases {
        assert_eq!(refusal_of_begin(&mut caller, spoil).await, (Code::InvalidArgument, message.to_owned()));
    }
    let done = caller.request(DoneRequest { batch_id: Some(BatchId::default()) });
    let refused = caller.client.done(done).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "batch_id.replica_id is missing")
    );
    let join = caller.request(stream::iter([Heartbeat::default()]));
    let refused = caller.client.join(join).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "replica_id is missing"));

    let large = refusal_of_begin(&mut caller, |request| request.name = "n".repeat(2 << 20)).await;
    assert_eq!(large.0, Code::OutOfRange, "{large:?}");
    let channel = env.connect(&leader).await?;
    let malformed = send(&env, &channel, "Begin", vec![0xff; 10]).await?;
    assert_eq!(malformed.code(), Code::Internal, "{malformed:?}");
    let unknown = send(&env, &channel, "Anything", Vec::new()).await?;
    assert_eq!(unknown.code(), Code::Unimplemented);
    for (method, code, count) in [
        ("Begin", "InvalidArgument", "5"),
        ("Done", "InvalidArgument", "1"),
        ("Join", "InvalidArgument", "1"),
        ("Begin", "OutOfRange", "1"),
        ("Begin", "Internal", "1"),
        ("unknown", "Unimplemented", "1"),
    ] {
        let metric = format!("expectations_calls_total{{method=\"{method}\",code=\"{code}\"}}");
        assert_eq!(leader.metric(&metric)?.to_string(), count, "{method} {code}");
    }
    env.tear_down().await
}

/// The message of a caller without a token is not even read.
#[tokio::test]
async fn callers_without_a_token_learn_nothing_about_their_message() -> Result<()> {
    let env = Env::create("unread").await?;
    let leader = env.start_leader(&[]).await?;
    let mut caller = env.caller(&leader).await?;
    caller.token = "garbage".to_owned();
    let large = refusal_of_begin(&mut caller, |request| request.name = "n".repeat(2 << 20)).await;
    assert_eq!(large.0, Code::Unauthenticated, "{large:?}");
    env.tear_down().await
}

/// Changed, cut and random messages of callers with a valid token, and random bytes before and after the TLS handshake.
#[tokio::test]
async fn random_bytes_harm_no_other_caller() -> Result<()> {
    let env = Env::create("fuzz").await?;
    let leader = env.start_leader(&[]).await?;
    let replica = env.join("r", &[&leader]).await?;
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut bytes = |length: usize| {
        let mut bytes = vec![0; length];
        random.fill_bytes(&mut bytes);
        bytes
    };
    let valid = BeginRequest::from(begin(&"r".into(), 1, "slurm/a", None, creates(1))).encode_to_vec();
    let channel = env.connect(&leader).await?;
    let mut codes = std::collections::BTreeMap::new();
    for number in 0..400 {
        let noise = bytes(64);
        let message = match number % 4 {
            0 => noise[..usize::from(noise[63]) % 63].to_vec(),
            1 => valid[..usize::from(noise[0]) % valid.len()].to_vec(),
            _ => {
                let mut changed = valid.clone();
                for change in noise.chunks(2).take(1 + number % 3) {
                    let at = usize::from(change[0]) % changed.len();
                    changed[at] = change[1];
                }
                changed
            }
        };
        let method = ["Begin", "Done", "Status", "Join"][number / 4 % 4];
        let answer = timeout(SOON, send(&env, &channel, method, message)).await??;
        *codes.entry(format!("{:?}", answer.code())).or_insert(0) += 1;
    }
    report(format_args!("expectations: answers to 400 fuzzed messages: {codes:?}"));
    let usual = ["Ok", "Internal", "InvalidArgument", "ResourceExhausted", "Unimplemented"];
    assert!(codes.keys().all(|code| usual.contains(&code.as_str())), "{codes:?}");

    for length in [1, 5, 100, 20_000] {
        let mut plain = TcpStream::connect(leader.address).await?;
        plain.write_all(&bytes(length)).await?;
        plain.shutdown().await?;
        let _ = timeout(SOON, plain.read_to_end(&mut Vec::new())).await.context("plaintext is not closed")?;
        let mut encrypted = tls_stream(&env, &leader).await?;
        // The server may have closed it already.
        let _ = encrypted.write_all(&bytes(length)).await;
        let _ = encrypted.shutdown().await;
        let _ = timeout(SOON, encrypted.read_to_end(&mut Vec::new())).await.context("TLS is not closed")?;
    }
    let failed = async || leader.metric(r#"expectations_connections_total{outcome="handshake_failed"}"#);
    eventually("four failed handshakes", SOON, failed, |failed| *failed >= 4.0).await?;
    let plaintext = tonic::transport::Endpoint::from_shared(format!("http://{}", leader.address))?;
    let mut plaintext = ExpectationsClient::new(plaintext.connect_lazy());
    let token = std::fs::read_to_string(env.token_file()?)?;
    let refused = plaintext.status(crate::fixture::authorized(StatusRequest {}, &token)).await.unwrap_err();
    assert!(
        matches!(refused.code(), Code::Unavailable | Code::Unknown | Code::Internal),
        "without TLS: {refused:?}"
    );

    assert!(replica.client.ownership().is_joined());
    assert!(matches!(replica.open(1_000, "slurm/z", creates(1)).await?, Answer::Granted(_)));
    assert!(!leader.process.log()?.contains("panicked"), "{}", leader.process.log()?);
    env.tear_down().await
}

pub async fn tls_stream(
    env: &Env,
    server: &crate::fixture::Server,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(env.authorities().await?.as_bytes())
    {
        roots.add(certificate?)?;
    }
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::try_from("localhost")?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// Only requests for batches are limited: what ends batches and keeps members never is.
#[tokio::test]
async fn too_many_requests_for_batches_are_refused_while_done_and_heartbeats_pass() -> Result<()> {
    let env = Env::create("rate").await?;
    let leader = env.start_leader(&["--max-begins=50"]).await?;
    let (busy, calm) = (env.join("busy", &[&leader]).await?, env.join("calm", &[&leader]).await?);
    let caller = env.caller(&leader).await?;
    let calls = (0..300).map(|counter| {
        let mut caller = caller.clone();
        let request =
            caller.request(BeginRequest::from(begin(&busy.id, counter, "slurm/a", None, creates(1))));
        async move { caller.client.begin(request).await.err().map(|status| status.code()) }
    });
    let started = tokio::time::Instant::now();
    let codes = futures::future::join_all(calls).await;
    let allowed = 50.0 + 50.0 * started.elapsed().as_secs_f64() + 1.0;
    let limited = codes.iter().filter(|code| **code == Some(Code::ResourceExhausted)).count();
    let answered = codes.iter().filter(|code| code.is_none()).count();
    assert_eq!(limited + answered, 300, "{codes:?}");
    let total = f64::from(u32::try_from(answered)?);
    assert!(limited > 0 && (50.0..=allowed).contains(&total), "{limited} limited, {answered} answered");
    let dones = (0..300).map(|counter| busy.done(counter));
    let dones = futures::future::try_join_all(dones).await?;
    assert_eq!(dones.len(), 300);
    calm.begin(1, "slurm/a", None, creates(1)).await.context("another replica is limited, too")?;
    let metric = r#"expectations_calls_total{method="Begin",code="ResourceExhausted"}"#;
    assert_eq!(leader.metric(metric)?.to_string(), limited.to_string());

    // A flood that goes on for longer than a member lives without heartbeats.
    let flood = async {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(8);
        let mut caller = caller.clone();
        let mut counter = 1_000;
        while tokio::time::Instant::now() < deadline {
            counter += 1;
            let request = begin(&busy.id, counter, "slurm/a", None, creates(1));
            let request = caller.request(BeginRequest::from(request));
            let _ = caller.client.begin(request).await;
            tokio::time::sleep(CALL_PAUSE).await;
        }
        counter - 1_000
    };
    let sent = flood.await;
    report(format_args!("expectations: {sent} Begin in 8 s from one caller, limited to 50 per second"));
    let mut caller = caller.clone();
    let status = caller.client.status(caller.request(StatusRequest {})).await?.into_inner();
    assert_eq!(status.membership.context("a membership")?.replica_ids, ["busy", "calm"]);
    assert!(busy.client.ownership().is_joined() && calm.client.ownership().is_joined());
    env.tear_down().await
}
