//! Asks the service for its state, without joining it.

use super::connect::{Channels, Targets, first_success};
use super::{Config, authorized, unavailable};
use crate::Unavailable;
use crate::proto::expectations_client::ExpectationsClient;
use crate::proto::{StatusRequest, StatusResponse};
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
    let ask = |channel: &Channel| {
        let (mut process, token_file) = (ExpectationsClient::new(channel.clone()), token_file.clone());
        async move {
            let request = authorized(&token_file, StatusRequest {})?;
            let silence = |_| Unavailable("no answer".into());
            let response = timeout(LIMIT, process.status(request)).await.map_err(silence)?;
            Ok(response.map_err(unavailable)?.into_inner())
        }
    };
    first_success(channels.values().map(ask)).await
}
