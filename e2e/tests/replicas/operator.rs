//! The processes under test: replicas and the expectations service, their faults and their logs.

use crate::cut::Forwarder;
use crate::faults::{Fault, Faults, REPLICAS, SERVICES};
use anyhow::{Context, Result};
use e2e::eventually;
use e2e::expectations::{ExpectationsEnv, Server};
use e2e::process::{Process, binary, scratch};
use e2e::test_env::SOON;
use rand::{Rng, RngExt};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// All processes of the operator.
pub struct Operator<'a> {
    env: &'a ExpectationsEnv,
    services: Vec<Service>,
    replicas: Vec<Replica>,
    /// The logs of all processes of the service, also of those that were killed.
    pub service_logs: Vec<PathBuf>,
    replica_logs: Vec<PathBuf>,
    /// The file with the authorities of the service's certificate.
    authorities: PathBuf,
}

struct Service {
    server: Option<Server>,
    address: SocketAddr,
}

struct Replica {
    process: Option<Process>,
    connections: Vec<Forwarder>,
}

impl<'a> Operator<'a> {
    /// Starts all processes and waits until the replicas have joined the service.
    pub async fn start(env: &'a ExpectationsEnv) -> Result<Self> {
        let mut operator = Self {
            env,
            services: vec![],
            replicas: vec![],
            service_logs: vec![],
            replica_logs: vec![],
            authorities: PathBuf::new(),
        };
        for _ in 0..SERVICES {
            let address = e2e::process::free_address()?;
            operator.services.push(Service { server: None, address });
        }
        for service in 0..SERVICES {
            operator.start_service(service)?;
        }
        operator.authorities = env.write_authorities().await?;
        for replica in 0..REPLICAS {
            let mut connections = vec![];
            for service in &operator.services {
                connections.push(Forwarder::start(service.address).await?);
            }
            operator.replicas.push(Replica { process: None, connections });
            operator.start_replica(replica)?;
        }
        for replica in &operator.replicas {
            let process = replica.process.as_ref().context("a process")?;
            let fetch = async || Ok(process.fetch("/readyz").unwrap_or_default());
            eventually("a replica that has joined", SOON, fetch, |(status, _)| *status == 200).await?;
        }
        Ok(operator)
    }

    fn start_service(&mut self, number: usize) -> Result<()> {
        let service = &mut self.services[number];
        let server = self.env.start_at(service.address, &format!("service-{number}"), &[])?;
        self.service_logs.push(server.process.log_path().to_owned());
        service.server = Some(server);
        Ok(())
    }

    fn start_replica(&mut self, number: usize) -> Result<()> {
        let replica = &mut self.replicas[number];
        let urls = replica.connections.iter().map(|connection| format!("https://{}", connection.address));
        let urls = urls.collect::<Vec<_>>().join(",");
        let log = scratch(&format!("{}-replica-{number}-{}.log", self.env.name(), self.replica_logs.len()))?;
        let (authorities, token) = (self.authorities.display().to_string(), self.env.token_file()?);
        let flags = [
            ["--namespaces", self.env.name()],
            ["--expectations", &urls],
            ["--expectations-ca-file", &authorities],
            ["--expectations-token-file", token.to_str().context("a path")?],
        ];
        let name = format!("replica-{number}");
        let program = binary("nodeset-controller")?;
        let process = Process::start_with_env(program, &flags.concat(), &[("POD_NAME", &name)], &log)?;
        self.replica_logs.push(log);
        replica.process = Some(process);
        Ok(())
    }

    /// Injects faults one after the other, some of them at the same time.
    pub async fn inject(&mut self, count: u32, random: &mut impl Rng) -> Result<Faults> {
        let mut counts = Faults::default();
        let mut ends = JoinSet::new();
        for _ in 0..count {
            sleep(Duration::from_millis(random.random_range(200..4_000))).await;
            let fault = Fault::random(random);
            counts.count(fault);
            self.begin(fault)?;
            let (Fault::KillReplica(_, duration)
            | Fault::PauseReplica(_, duration)
            | Fault::CutReplica(_, duration)
            | Fault::KillService(_, duration)
            | Fault::PauseService(_, duration)) = fault;
            ends.spawn(async move {
                sleep(duration).await;
                fault
            });
            while let Some(ended) = ends.try_join_next() {
                self.end(ended?)?;
            }
        }
        while let Some(ended) = ends.join_next().await {
            self.end(ended?)?;
        }
        Ok(counts)
    }

    pub fn begin(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillReplica(number, _) => drop(self.replicas[number].process.take()),
            Fault::PauseReplica(number, _) => {
                if let Some(process) = &self.replicas[number].process {
                    process.signal("STOP")?;
                }
            }
            Fault::CutReplica(number, _) => {
                self.replicas[number].connections.iter().for_each(|connection| connection.set_cut(true));
            }
            Fault::KillService(number, _) => drop(self.services[number].server.take()),
            Fault::PauseService(number, _) => {
                if let Some(server) = &self.services[number].server {
                    server.process.signal("STOP")?;
                }
            }
        }
        Ok(())
    }

    /// Ends a fault. The process may have been killed or may have ended in the meantime.
    fn end(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillReplica(number, _) | Fault::PauseReplica(number, _) => self.revive_replica(number),
            Fault::CutReplica(number, _) => {
                self.replicas[number].connections.iter().for_each(|connection| connection.set_cut(false));
                Ok(())
            }
            Fault::KillService(number, _) | Fault::PauseService(number, _) => self.revive_service(number),
        }
    }

    /// Continues a paused process, and starts one that has ended: as the kubelet does, in the same pod.
    fn revive_replica(&mut self, number: usize) -> Result<()> {
        if let Some(process) = &mut self.replicas[number].process
            && process.exit_status()?.is_none()
        {
            return process.signal("CONT");
        }
        self.start_replica(number)
    }

    fn revive_service(&mut self, number: usize) -> Result<()> {
        if let Some(server) = &mut self.services[number].server
            && server.process.exit_status()?.is_none()
        {
            return server.process.signal("CONT");
        }
        self.start_service(number)
    }

    /// Starts every process that has ended: a leader exits when its term is over.
    pub fn heal(&mut self) -> Result<()> {
        (0..REPLICAS).try_for_each(|number| self.revive_replica(number))?;
        (0..SERVICES).try_for_each(|number| self.revive_service(number))
    }

    /// The process of the service that leads.
    pub fn leader(&self) -> Result<usize> {
        let is_ready = |service: &Service| {
            let server = service.server.as_ref();
            server
                .is_some_and(|server| server.process.fetch("/readyz").is_ok_and(|(status, _)| status == 200))
        };
        self.services.iter().position(is_ready).context("no process of the service leads")
    }

    /// Stops all processes.
    pub async fn stop(&mut self) -> Result<()> {
        let processes = self.replicas.iter_mut().filter_map(|replica| replica.process.as_mut());
        for process in processes {
            process.terminate()?;
            let ended = async {
                while process.exit_status()?.is_none() {
                    sleep(Duration::from_millis(100)).await;
                }
                anyhow::Ok(())
            };
            timeout(SOON * 2, ended).await.context("a replica did not end")??;
        }
        self.replicas.clear();
        self.services.clear();
        Ok(())
    }

    /// Where to look when something went wrong.
    pub fn logs(&self) -> String {
        let logs = self.service_logs.iter().chain(&self.replica_logs).map(|log| log.display().to_string());
        format!("logs:\n{}", logs.collect::<Vec<_>>().join("\n"))
    }
}
