//! Asks the service for its state, without joining it.

use super::connect::{Channels, Targets};
use super::{Config, authorized, unavailable};
use crate::Unavailable;
use crate::proto::expectations_client::ExpectationsClient;
use crate::proto::{StatusRequest, StatusResponse};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::Channel;

/// Time limit of one process of the service.
const LIMIT: Duration = Duration::from_secs(5);

/// The state of the service, from whichever of its processes leads.
pub async fn status(config: Config) -> Result<StatusResponse, Unavailable> {
    let Config { endpoints, ca_file, token_file } = config;
    let mut channels = Channels::new();
    Targets::new(endpoints, ca_file).refresh(&mut channels).await?;
    let mut answers: FuturesUnordered<_> =
        channels.into_iter().map(|(address, channel)| ask(address, channel, &token_file)).collect();
    let mut errors = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(status) => return Ok(status),
            Err(error) => errors.push(error),
        }
    }
    errors.sort();
    errors.dedup();
    Err(Unavailable(errors.join("; ").into()))
}

async fn ask(address: SocketAddr, channel: Channel, token_file: &Path) -> Result<StatusResponse, String> {
    let text = |error: Unavailable| error.source().map(ToString::to_string).unwrap_or_default();
    let request = authorized(token_file, StatusRequest {}).map_err(text)?;
    let answer = timeout(LIMIT, async { ExpectationsClient::new(channel).status(request).await }).await;
    let answer = answer.map_err(|_| format!("{address}: no answer within {LIMIT:?}"))?;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| format!("{address}: {}", text(unavailable(status))))
}
