//! The cluster under test, with the operations that the client lacks: other users, jobs, node records.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, Request, header};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slurm_jwt::{Claims, SigningKey, mint};
use slurm_rest::{Clock, Limits, Node, NodeUpdate, SlurmClient, TOKEN_HEADER, TokenSource, Transport};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Time for Slurm to schedule a job, to ping a slurmd, to clean up.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A Slurm cluster with two idle nodes of two CPUs each, both in the partition `all`.
pub struct TestCluster {
    /// The transport to its slurmrestd.
    pub transport: Arc<dyn Transport>,
    /// The key that its slurmctld accepts.
    pub key: Vec<u8>,
    /// Its clock.
    pub clock: Clock,
    /// The two nodes.
    pub nodes: [String; 2],
}

impl TestCluster {
    /// A client with the operator's user and key.
    pub fn client(&self) -> Result<SlurmClient> {
        self.client_as("slurm", &self.key)
    }

    /// A client with this user and key.
    pub fn client_as(&self, user: &str, key: &[u8]) -> Result<SlurmClient> {
        let limits = Limits { in_flight: 4, timeout: Duration::from_secs(15) };
        let tokens = TokenSource::new(user, SigningKey::new(key)?, self.clock.clone());
        Ok(SlurmClient::new(self.transport.clone(), tokens, limits))
    }

    /// The cluster's current time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// A node from the node list.
    pub async fn get_listed(&self, name: &str) -> Result<Node> {
        let nodes = self.client()?.list_nodes().await?.nodes;
        nodes.into_iter().find(|node| node.name == name).with_context(|| format!("{name} is not listed"))
    }

    /// Submits a job for some CPUs of one node; `minutes: None` means no limit.
    pub async fn submit(&self, node: &str, cpus: u32, minutes: Option<u32>) -> Result<i64> {
        let limit =
            minutes.map_or(json!({ "infinite": true }), |minutes| json!({ "set": true, "number": minutes }));
        let body = json!({
            "script": "#!/bin/sh\nexec sleep 300\n",
            "job": {
                "name": "suite", "partition": "all", "required_nodes": [node], "tasks": cpus, "time_limit": limit,
                "current_working_directory": "/tmp", "environment": ["PATH=/bin:/usr/bin"],
            },
        });
        let answer = self.call(Method::POST, "/job/submit", &body).await?;
        answer["job_id"].as_i64().with_context(|| format!("no job: {answer}"))
    }

    /// Cancels a job.
    pub async fn cancel(&self, id: i64) -> Result<()> {
        self.call(Method::DELETE, &format!("/job/{id}"), &Value::Null).await.map(drop)
    }

    /// Creates the record of a node without a slurmd.
    pub async fn create_record(&self, name: &str) -> Result<()> {
        let body = json!({ "node_conf": format!("NodeName={name} State=CLOUD") });
        self.call(Method::POST, "/new/node/", &body).await.map(drop)
    }

    /// Restores the initial state of every case.
    pub async fn reset(&self) -> Result<()> {
        let client = self.client()?;
        for reservation in client.list_reservations().await?.reservations {
            client.delete_reservation(&reservation.name).await?;
        }
        for job in client.list_jobs().await? {
            if job.holds_nodes() || job.is(&slurm_rest::JobState::Pending) {
                self.cancel(job.job_id).await?;
            }
        }
        let names: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        // A healthy dynamic node has its base state and one flag, DYNAMIC_NORM.
        let idle = |nodes: &[Node]| nodes.iter().all(|node| node.state.len() == 2 && !node.is_busy());
        eventually("both nodes are idle", || self.reset_nodes(&client, &names), |nodes| idle(nodes)).await?;
        Ok(())
    }

    async fn reset_nodes(&self, client: &SlurmClient, names: &[&str]) -> Result<Vec<Node>> {
        let mut nodes = client.list_nodes().await?.nodes;
        nodes.retain(|node| names.contains(&node.name.as_str()));
        ensure!(nodes.len() == names.len(), "nodes are missing: {nodes:?}");
        if nodes.iter().any(|node| !node.reason.is_empty()) && !nodes.iter().any(Node::is_busy) {
            client.update_nodes(names, &NodeUpdate::Idle).await?;
        }
        if nodes.iter().any(|node| !node.comment.is_empty()) {
            client.update_nodes(names, &NodeUpdate::Comment(String::new())).await?;
        }
        Ok(nodes)
    }

    /// Sends a request that the client does not offer.
    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let claims = Claims::new("slurm", self.now(), SignedDuration::from_mins(1));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/slurm/v0.0.44{path}"))
            .header(TOKEN_HEADER, mint(&claims, &SigningKey::new(&self.key)?));
        let mut bytes = Bytes::new();
        if !body.is_null() {
            request = request.header(header::CONTENT_TYPE, "application/json");
            bytes = body.to_string().into();
        }
        let response = self.transport.send(request.body(bytes)?).await?;
        let (status, body) = (response.status(), String::from_utf8_lossy(response.body()));
        if !status.is_success() {
            bail!("{path}: {status} {body}");
        }
        Ok(serde_json::from_str(&body)?)
    }
}

/// Polls until the observed value meets the condition and returns it; the error shows the last value.
pub async fn eventually<T, F>(what: &str, observe: impl FnMut() -> F, holds: impl Fn(&T) -> bool) -> Result<T>
where
    T: Debug,
    F: Future<Output = Result<T>>,
{
    test_support::eventually(what, TIMEOUT, observe, holds).await
}
