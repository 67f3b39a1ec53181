//! The connection of one replica to the slurmrestd of one cluster.

use super::ledger::Ledger;
use super::world::World;
use crate::slurm::{ClientFactory, KeyError};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use serde_json::Value;
use slinky_api::v1beta1::Controller;
use slurm_fake::{FakeSlurm, KEY};
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, SlurmClient, TokenSource, Transport, TransportError};
use std::sync::Arc;

/// Connects a replica to the slurmrestd of each cluster.
pub struct Endpoints {
    pub replica: String,
    pub world: World,
}

impl ClientFactory for Endpoints {
    fn signing_key<'a>(&'a self, _: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>> {
        async { Ok(SigningKey::new(KEY)?) }.boxed()
    }

    fn client(
        &self,
        url: &str,
        key: SigningKey,
        limits: slurm_rest::Limits,
    ) -> Result<SlurmClient, EndpointError> {
        let cluster = self.world.clusters.iter().find(|cluster| url.contains(&cluster.restapi())).unwrap();
        let connection = Connection {
            replica: self.replica.clone(),
            nodeset: cluster.nodeset,
            slurm: cluster.slurm.clone(),
            ledger: self.world.ledger.clone(),
            world: self.world.clone(),
        };
        let tokens = TokenSource::new("slurm", key, self.world.clock());
        Ok(SlurmClient::new(connection, tokens, limits))
    }
}

struct Connection {
    replica: String,
    nodeset: &'static str,
    slurm: FakeSlurm,
    ledger: Arc<Ledger>,
    world: World,
}

impl Transport for Connection {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        if let Some(effect) = effect(&request) {
            self.ledger.slurm_effect_sent(&self.replica, self.nodeset, &effect);
        }
        async move {
            self.world.latency().await;
            self.slurm.send(request).await
        }
        .boxed()
    }
}

/// Describes a request that is an effect. Other fields of nodes than their state mirror facts of pods.
fn effect(request: &Request<Bytes>) -> Option<String> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let is_mirror = request.uri().path().contains("/nodes/") && body["state"].is_null();
    let is_read = request.method() == Method::GET;
    (!is_read && !is_mirror).then(|| format!("{} {} {body}", request.method(), request.uri().path()))
}
