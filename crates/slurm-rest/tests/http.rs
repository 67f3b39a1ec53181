//! The client on a real socket: refused and broken connections, redirects, TLS.

#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use slurm_fake::{FakeSlurm, Fault, KEY};
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, Error, HttpTransport, Limits, NodeUpdate, SlurmClient, TokenSource};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

fn client(fake: &FakeSlurm, url: &str, certificates: Option<&str>) -> SlurmClient {
    // All tests of this file share a process; the first one installs the provider.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let transport = HttpTransport::new(url, certificates.map(str::as_bytes)).unwrap();
    let tokens = TokenSource::new("slurm", SigningKey::new(KEY).unwrap(), fake.clock());
    SlurmClient::new(transport, tokens, Limits { in_flight: 4, timeout: Duration::from_secs(5) })
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address.to_string())
}

/// Answers each request with these bytes and closes the connection.
async fn serve_bytes(listener: TcpListener, answer: &[u8]) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(answer).await;
    }
}

/// The error of a client whose server answers every request with these bytes.
async fn error_for_answer(answer: &[u8]) -> Error {
    let fake = FakeSlurm::new();
    let (listener, address) = listen().await;
    let client = client(&fake, &format!("http://{address}"), None);
    tokio::select! {
        result = client.list_nodes() => result.unwrap_err(),
        () = serve_bytes(listener, answer) => unreachable!("the server never ends"),
    }
}

#[tokio::test]
async fn refused_connection_means_that_nothing_was_sent() {
    let (listener, address) = listen().await;
    drop(listener);
    let client = client(&FakeSlurm::new(), &format!("http://{address}"), None);
    let error = client.update_nodes(&["w0"], &NodeUpdate::Undrain).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)) && !error.maybe_applied(), "{error:?}");
}

#[tokio::test]
async fn write_may_be_applied_when_the_connection_closes_without_an_answer() {
    let error = error_for_answer(b"").await;
    assert!(matches!(error, Error::Interrupted(_)) && error.maybe_applied(), "{error:?}");
}

#[tokio::test]
async fn truncated_answer_is_an_error() {
    let head =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"nodes\":[]";
    let error = error_for_answer(head).await;
    assert!(matches!(error, Error::Interrupted(_)), "{error:?}");
}

#[tokio::test]
async fn redirect_is_not_followed_with_the_token() {
    let (redirect_target, address) = listen().await;
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{address}/slurm/v0.0.44/nodes/\r\nContent-Length: 0\r\n\r\n"
    );
    tokio::select! {
        error = error_for_answer(redirect.as_bytes()) => {
            assert!(matches!(&error, Error::Rejected { status, .. } if status.as_u16() == 307), "{error:?}");
        }
        _ = redirect_target.accept() => panic!("the redirect was followed"),
    }
}

#[tokio::test]
async fn lost_connection_of_the_fake_is_lost_on_the_socket_too() {
    let fake = FakeSlurm::new();
    fake.inject(Fault::Lost { applied: true });
    let (listener, address) = listen().await;
    let client = client(&fake, &format!("http://{address}"), None);
    tokio::select! {
        result = client.list_nodes() => assert_eq!(result.unwrap_err().category(), "interrupted"),
        result = fake.serve(listener) => panic!("the server ended: {result:?}"),
    }
}

/// The fake behind TLS, one connection at a time.
async fn serve_tls(fake: FakeSlurm, listener: TcpListener, certified: CertifiedKey<rcgen::KeyPair>) {
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (plain, address) = listen().await;
    let forward = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut outside) = acceptor.accept(stream).await else { continue };
            let mut inside = tokio::net::TcpStream::connect(&address).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
        }
    };
    tokio::select! {
        () = forward => {}
        result = fake.serve(plain) => panic!("the server ended: {result:?}"),
    }
}

#[tokio::test]
async fn tls_trusts_only_the_given_certificates() {
    let fake = FakeSlurm::new();
    let names = || vec!["127.0.0.1".to_owned()];
    let certified = generate_simple_self_signed(names()).unwrap();
    let certificate = certified.cert.pem();
    let (listener, address) = listen().await;
    let url = format!("https://{address}");
    let trusting = client(&fake, &url, Some(&certificate));
    let other_certificate = generate_simple_self_signed(names()).unwrap().cert.pem();
    let distrusting = [client(&fake, &url, Some(&other_certificate)), client(&fake, &url, None)];
    let requests = async {
        assert!(trusting.ping().await.unwrap()[0].responding);
        drop(trusting);
        for client in distrusting {
            let error = client.ping().await.unwrap_err();
            assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        }
    };
    tokio::select! {
        () = requests => {}
        () = serve_tls(fake.clone(), listener, certified) => panic!("the server ended"),
    }
}

#[test]
fn invalid_url_and_invalid_certificate_are_rejected() {
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let error = |url: &str, certificates: Option<&str>| {
        HttpTransport::new(url, certificates.map(str::as_bytes)).unwrap_err()
    };
    assert!(matches!(error("slurm-restapi:6820", None), EndpointError::Url(_)));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let invalid = error("https://slurm-restapi:6820", Some(broken));
    assert!(matches!(invalid, EndpointError::Certificates(_) | EndpointError::Client(_)), "{invalid:?}");
}
