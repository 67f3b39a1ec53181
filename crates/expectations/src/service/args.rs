//! The flags of the service.

use anyhow::{Context as _, ensure};
use clap::ArgAction;
use clap::builder::RangedI64ValueParser;
use expectations::{Limits, Timing};
use operator_runtime::lease::LeaseTiming;
use operator_runtime::{LeaseArgs, ListenAddr, parse_duration};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// Flags of the service.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Listen address of the gRPC server: `:PORT` or `HOST:PORT`.
    #[arg(long, env = "LISTEN_ADDR", default_value = ":8443")]
    pub listen_addr: ListenAddr,

    /// Service accounts that may call the service: `NAMESPACE/NAME`, separated by commas.
    #[arg(long, env = "SERVICE_ACCOUNTS", value_delimiter = ',', required = true)]
    pub service_accounts: Vec<ServiceAccount>,

    #[command(flatten)]
    pub certificate: CertificateArgs,

    #[command(flatten)]
    pub limits: LimitArgs,

    #[command(flatten)]
    pub timing: TimingArgs,

    #[command(flatten)]
    pub lease: LeaseArgs,

    #[command(flatten)]
    pub lease_timing: LeaseTiming,
}

impl Args {
    /// Refuses flags that contradict each other.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.listen_addr.host_and_port().is_some(), "--listen-addr needs a port");
        Timing::from(&self.timing).check().context("flags of the protocol contradict each other")?;
        self.lease_timing.check().context("flags of the leader election contradict each other")
    }
}

/// Flags of the certificate.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Certificate")]
#[group(skip)]
pub struct CertificateArgs {
    /// Secret with the certificate of the server, of type kubernetes.io/tls, in the namespace of this process.
    #[arg(long = "tls-secret", env = "TLS_SECRET", default_value = "expectations-tls")]
    pub secret: String,

    /// Make and renew the certificate; false if cert-manager or a person writes the Secret.
    #[arg(long = "tls-self-issued", env = "TLS_SELF_ISSUED", action = ArgAction::Set, default_value_t = true)]
    pub self_issued: bool,

    /// Names and addresses in a certificate that this process makes, separated by commas; the default are the names of a
    /// Service `expectations` in the namespace of this process, and localhost.
    #[arg(long = "tls-names", env = "TLS_NAMES", value_delimiter = ',')]
    pub names: Vec<String>,

    /// ConfigMap in which clients find the authorities of a certificate that this process makes.
    #[arg(long = "tls-config-map", env = "TLS_CONFIG_MAP", default_value = "expectations-ca")]
    pub config_map: String,
}

/// Limits over all replicas.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
#[group(skip)]
pub struct LimitArgs {
    /// Creates of pods in flight, over all replicas.
    #[arg(long = "max-creates", env = "MAX_CREATES", default_value_t = Limits::default().creates, value_parser = positive())]
    pub creates: u32,

    /// Deletes of pods in flight, over all replicas.
    #[arg(long = "max-deletes", env = "MAX_DELETES", default_value_t = Limits::default().deletes, value_parser = positive())]
    pub deletes: u32,

    /// Requests for batches per second and replica.
    #[arg(long = "max-begins", env = "MAX_BEGINS", default_value = "200")]
    pub begins: NonZeroU32,
}

fn positive() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// The constants of the protocol. Contradictory ones are refused.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Timing")]
#[group(skip)]
pub struct TimingArgs {
    /// How long a batch may send writes, from the first sending of its request.
    #[arg(long, default_value = "25s", value_parser = parse_duration)]
    pub batch_lease: Duration,

    /// How long after its lease an unfinished batch blocks the next one.
    #[arg(long, default_value = "35s", value_parser = parse_duration)]
    pub batch_grace: Duration,

    /// Time limit of one write of a replica.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub write_limit: Duration,

    /// Longest time from the sending of a write to its effect, whether or not the replica still waits for the answer.
    /// Raise it, and the grace with it, where slurmctld is known to hang for longer.
    #[arg(long, default_value = "40s", value_parser = parse_duration)]
    pub landing_limit: Duration,

    /// Slurm's `MessageTimeout`.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub message_timeout: Duration,

    /// Largest difference of two clocks' rates, in parts per million.
    #[arg(long, default_value_t = Timing::default().rho_ppm)]
    pub clock_drift_ppm: u32,

    /// Time limit of a replica's call to this service.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub rpc_limit: Duration,

    /// Interval of a replica's heartbeats.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub heartbeat: Duration,

    /// Time without a heartbeat after which a replica counts as dead.
    #[arg(long, default_value = "6s", value_parser = parse_duration)]
    pub dead_after: Duration,
}

impl From<&TimingArgs> for Timing {
    fn from(args: &TimingArgs) -> Self {
        Self {
            write_limit: args.write_limit,
            landing: args.landing_limit,
            rho_ppm: args.clock_drift_ppm,
            rpc_limit: args.rpc_limit,
            lease: args.batch_lease,
            grace: args.batch_grace,
            message_timeout: args.message_timeout,
            heartbeat: args.heartbeat,
            dead_after: args.dead_after,
        }
    }
}

/// A service account that may call the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

impl ServiceAccount {
    /// Its user name in the answers of the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl FromStr for ServiceAccount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("`{text}` is not NAMESPACE/NAME")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, ServiceAccount};
    use clap::Parser;
    use expectations::Timing;
    use operator_runtime::lease::LeaseTiming;
    use rstest::rstest;

    #[derive(Parser)]
    struct Binary {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn default_flags_are_the_default_constants() {
        let args = Binary::parse_from(["binary", "--service-accounts=a/b"]).args;
        assert_eq!(Timing::from(&args.timing), Timing::default());
        assert_eq!(args.lease_timing, LeaseTiming::default());
    }

    #[rstest]
    #[case("slinky/nodesets", Some("system:serviceaccount:slinky:nodesets"))]
    #[case("nodesets", None)]
    #[case("/nodesets", None)]
    #[case("slinky/", None)]
    #[case("a/b/c", None)]
    fn service_account_is_namespace_and_name(#[case] text: &str, #[case] user: Option<&str>) {
        assert_eq!(text.parse::<ServiceAccount>().ok().map(|account| account.user()).as_deref(), user);
    }
}
