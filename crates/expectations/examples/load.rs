//! Calls a running service as several replicas do, and prints how long Begin takes: one JSON object.
//!
//! Every NodeSet gets a batch once. Then batches begin at a fixed rate, whether or not earlier ones have ended.

use anyhow::{Context, Result, bail};
use clap::Parser;
use expectations::client::{Client, Config};
use expectations::{
    Answer, Basis, BatchId, Begin, Expectations, NodeSetName, Ops, Ownership, ReplicaId, owner_of,
};
use futures::StreamExt;
use futures::stream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tonic::transport::Uri;

/// NodeSets that get their first batch at the same time.
const CONCURRENCY: usize = 32;

/// Measures a running service.
#[derive(Parser)]
struct Args {
    /// URL of the service. Its limit `--max-begins` has to allow the rate.
    #[arg(long)]
    endpoint: Uri,
    /// File with the certificates of the authorities.
    #[arg(long)]
    ca_file: PathBuf,
    /// File with the token.
    #[arg(long)]
    token_file: PathBuf,
    /// Number of replicas.
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Number of NodeSets.
    #[arg(long, default_value_t = 1_000)]
    nodesets: usize,
    /// Batches per second.
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// For how long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// A NodeSet, and the basis of its last batch.
struct NodeSet {
    key: String,
    owner: usize,
    basis: Mutex<Option<Basis>>,
}

struct Load {
    replicas: Vec<(ReplicaId, Arc<Client>)>,
    counter: AtomicU64,
}

impl Load {
    /// Performs one batch, and returns how long its last Begin took; `None` if it was not granted.
    async fn perform(&self, nodeset: &NodeSet) -> Result<Option<Duration>> {
        let (replica, client) = self.replicas.get(nodeset.owner).context("an owner")?;
        let mut basis = nodeset.basis.lock().await;
        for _ in 0..2 {
            let batch =
                BatchId { replica: replica.clone(), counter: self.counter.fetch_add(1, Ordering::Relaxed) };
            let request = Begin {
                batch: batch.clone(),
                cluster_key: nodeset.key.clone(),
                nodeset: NodeSetName { namespace: "load".into(), name: nodeset.key.as_str().into() },
                uid: "3f1c2a9e-6f0b-4d55-9a52-0a6a4e0f7d11".into(),
                generation: 1,
                basis: basis.take(),
                ops: Ops { creates: 1, ..Ops::default() },
            };
            let started = Instant::now();
            match client.begin(request).await? {
                Answer::Granted(_) => {
                    let duration = started.elapsed();
                    *basis = client.done(batch).await?;
                    return Ok(Some(duration));
                }
                Answer::NeedFresh(fresh) => *basis = Some(fresh),
                Answer::Wait(_) => return Ok(None),
                Answer::NotOwner(membership) => bail!("the membership changed: {membership:?}"),
            }
        }
        Ok(None)
    }
}

/// Waits until the service knows as many replicas as `clients`.
async fn wait_for_members(clients: &[(ReplicaId, Arc<Client>)]) -> Vec<ReplicaId> {
    loop {
        for (_, client) in clients {
            client.joined().await;
        }
        let members = clients.iter().map(|(_, client)| match client.ownership() {
            Ownership::Shared { members, .. } => members,
            Ownership::All => Arc::default(),
        });
        let members: Vec<_> = members.collect();
        if let Some(first) = members.first()
            && members.iter().all(|other| other == first && other.len() == clients.len())
        {
            return first.to_vec();
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the purpose of the program")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    let mut replicas = Vec::new();
    for number in 0..args.replicas {
        let config = Config {
            endpoints: vec![args.endpoint.clone()],
            ca_file: args.ca_file.clone(),
            token_file: args.token_file.clone(),
        };
        let id = ReplicaId::from(format!("load-{number}-{:08x}", rand::random::<u32>()));
        let client = Arc::new(Client::new(config, id.clone(), Arc::new(move || started.elapsed())));
        let running = client.clone();
        tasks.spawn(async move { running.run(std::future::pending()).await });
        replicas.push((id, client));
    }
    let members = wait_for_members(&replicas).await;
    let nodesets = (0..args.nodesets).map(|number| {
        let key = format!("load/nodeset-{number}");
        let owner = owner_of(&key, &members);
        let owner = replicas.iter().position(|(id, _)| Some(id) == owner).context("an owner")?;
        anyhow::Ok(Arc::new(NodeSet { key, owner, basis: Mutex::default() }))
    });
    let nodesets = nodesets.collect::<Result<Vec<_>>>()?;
    let load = Arc::new(Load { replicas, counter: AtomicU64::new(1) });

    let first = stream::iter(&nodesets).map(|nodeset| load.perform(nodeset)).buffer_unordered(CONCURRENCY);
    let first: Vec<_> = first.collect().await;
    let filled = first.into_iter().filter(|outcome| matches!(outcome, Ok(Some(_)))).count();
    let mut durations = measure(&args, &load, &nodesets).await?;
    durations.sort();
    let millis = |percent: usize| {
        let index = (durations.len() * percent / 100).min(durations.len().saturating_sub(1));
        durations.get(index).map_or(0.0, |duration| duration.as_secs_f64() * 1e3)
    };
    println!(
        "{{\"nodesets\":{filled},\"rate\":{},\"batches\":{},\"begin_p50_ms\":{:.3},\"begin_p99_ms\":{:.3},\"begin_max_ms\":{:.3}}}",
        args.rate,
        durations.len(),
        millis(50),
        millis(99),
        millis(100)
    );
    Ok(())
}

/// Begins batches at a fixed rate, and returns how long each Begin took.
async fn measure(args: &Args, load: &Arc<Load>, nodesets: &[Arc<NodeSet>]) -> Result<Vec<Duration>> {
    let mut batches = JoinSet::new();
    let mut ticks = interval(Duration::from_secs(1) / args.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let total = u64::from(args.rate) * args.seconds;
    for number in 0..total {
        ticks.tick().await;
        let index = usize::try_from(number)? % nodesets.len();
        let (load, nodeset) = (load.clone(), nodesets[index].clone());
        batches.spawn(async move { load.perform(&nodeset).await });
    }
    let mut durations = Vec::new();
    while let Some(batch) = batches.join_next().await {
        durations.push(batch??.context("a batch was not granted")?);
    }
    Ok(durations)
}
