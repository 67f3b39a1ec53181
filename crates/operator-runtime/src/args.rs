//! Flags of every binary. A binary flattens [`Args`] into its own:
//!
//! ```
//! #[derive(clap::Parser)]
//! #[command(version)]
//! struct Args {
//!     #[command(flatten)]
//!     runtime: operator_runtime::Args,
//! }
//! ```

use clap::{ArgAction, ValueEnum};
use jiff::SignedDuration;
use slinky_api::names::check_object_name;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Flags of every binary that has controllers: those of its process, namespaces, concurrency, leader election. Most have
/// an environment variable.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Process")]
// The struct of most binaries is called Args, too, and clap requires unique group names.
#[group(skip)]
pub struct Args {
    /// Logging, listen addresses, credentials.
    #[command(flatten)]
    pub process: ProcessArgs,

    /// Comma-separated namespaces to watch; empty means all.
    #[arg(long, env = "NAMESPACES", default_value = "", hide_default_value = true)]
    pub namespaces: Namespaces,

    /// Maximum number of concurrent reconciles per controller; with --namespaces, in each of the namespaces.
    #[arg(long, env = "WORKERS", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,

    /// Elect one active process among the replicas by a Lease. The default is false, unless the binary needs an election.
    #[arg(
        long,
        env = "LEADER_ELECT",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub leader_elect: Option<bool>,

    /// The Lease.
    #[command(flatten)]
    pub lease: LeaseArgs,
}

/// Flags of every binary: logging, listen addresses, credentials.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Process")]
#[group(skip)]
pub struct ProcessArgs {
    /// Log level: error, warn, info, debug, trace, or directives such as `info,kube=debug`; 0 means info, a greater
    /// number debug.
    #[arg(long, env = "LOG_LEVEL", default_value = "info", value_parser = log_filter)]
    pub log_level: String,

    /// Log format.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Listen address of /livez and /readyz: `:PORT` or `HOST:PORT`; `0` disables them.
    #[arg(long, env = "HEALTH_ADDR", default_value = ":8081")]
    pub health_addr: ListenAddr,

    /// Listen address of /metrics: `:PORT` or `HOST:PORT`; `0` disables it.
    #[arg(long, env = "METRICS_ADDR", default_value = ":8080")]
    pub metrics_addr: ListenAddr,

    /// Kubeconfig file; the default is the first of `KUBECONFIG`, ~/.kube/config and the service account of the pod.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// Flags of every binary that elects one active process.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Process")]
#[group(skip)]
pub struct LeaseArgs {
    /// Namespace of the Lease; empty means the namespace of this process.
    #[arg(
        long = "leader-elect-namespace",
        env = "LEADER_ELECT_NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    pub namespace: String,

    /// Name of the Lease; empty means the name of the binary.
    #[arg(
        long = "leader-elect-lease",
        env = "LEADER_ELECT_LEASE",
        default_value = "",
        hide_default_value = true
    )]
    pub name: String,
}

/// A process without controllers.
impl From<ProcessArgs> for Args {
    fn from(process: ProcessArgs) -> Self {
        Self {
            process,
            namespaces: Namespaces::default(),
            workers: 1,
            leader_elect: Some(false),
            lease: LeaseArgs::default(),
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// A listen address; `None` disables the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddr(Option<(String, u16)>);

impl ListenAddr {
    /// Host (empty for all addresses) and port; `None` if disabled.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        self.0.as_ref().map(|(host, port)| (host.as_str(), *port))
    }
}

impl FromStr for ListenAddr {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected `:PORT`, `HOST:PORT`, or `0` to disable it";
        if text == "0" {
            return Ok(Self(None));
        }
        let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
        let port = port.parse().map_err(|_| EXPECTED)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self(Some((host.to_owned(), port))))
    }
}

/// The namespaces to watch; empty means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(BTreeSet<String>);

impl Namespaces {
    /// One scope per namespace; `[None]` stands for all namespaces.
    pub fn scopes(&self) -> Vec<Option<String>> {
        if self.0.is_empty() { vec![None] } else { self.0.iter().cloned().map(Some).collect() }
    }

    /// Whether a namespace is one of them.
    pub fn contain(&self, namespace: &str) -> bool {
        self.0.is_empty() || self.0.contains(namespace)
    }
}

/// Rejects invalid names, so that a typo does not result in an empty watch.
impl FromStr for Namespaces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: BTreeSet<_> = names.map(str::to_owned).collect();
        match names.iter().find(|name| !is_dns_label(name)) {
            Some(name) => Err(format!("`{name}` is not a valid namespace name")),
            None => Ok(Self(names)),
        }
    }
}

fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && check_object_name(name).is_ok()
}

/// Parses a duration such as `1m30s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(duration).map_err(|_| "must not be negative".to_owned())
}

/// Converts `--log-level` to a filter. Numbers are verbosities: 0 is info, any other is debug.
fn log_filter(text: &str) -> Result<String, String> {
    let filter = match text.parse::<u8>() {
        Ok(0) => "info",
        Ok(_) => "debug",
        Err(_) => text,
    };
    tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    Ok(filter.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use rstest::rstest;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        runtime: super::Args,
    }

    fn parse(args: &[&str]) -> Result<super::Args, clap::Error> {
        Args::try_parse_from([&["binary"], args].concat()).map(|args| args.runtime)
    }

    #[test]
    fn flags_can_be_flattened_into_those_of_a_binary() {
        Args::command().debug_assert();
    }

    #[rstest]
    #[case::all("", &[None])]
    #[case::only_separators(" , ,", &[None])]
    #[case::one("slurm", &[Some("slurm")])]
    #[case::trimmed_sorted_and_deduplicated(" b, a ,,b", &[Some("a"), Some("b")])]
    fn namespaces_flag_is_a_comma_separated_list(#[case] flag: &str, #[case] expected: &[Option<&str>]) {
        let scopes = parse(&["--namespaces", flag]).unwrap().namespaces.scopes();
        assert_eq!(scopes.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    }

    #[rstest]
    #[case::all_addresses(":8080", Some(("", 8080)))]
    #[case::host("localhost:6060", Some(("localhost", 6060)))]
    #[case::ipv6("[::1]:80", Some(("::1", 80)))]
    #[case::disabled("0", None)]
    fn listen_address_has_an_optional_host_and_a_port(
        #[case] flag: &str,
        #[case] expected: Option<(&str, u16)>,
    ) {
        let args = parse(&["--metrics-addr", flag]).unwrap();
        assert_eq!(args.process.metrics_addr.host_and_port(), expected);
    }

    #[rstest]
    #[case::port_alone("--metrics-addr", "8080")]
    #[case::port_too_large("--health-addr", ":70000")]
    #[case::not_a_namespace("--namespaces", "ok,Not_OK")]
    #[case::no_workers("--workers", "0")]
    #[case::unknown_level("--log-level", "info,=x=")]
    #[case::unknown_format("--log-format", "xml")]
    fn error_names_the_flag_with_an_invalid_value(#[case] flag: &str, #[case] value: &str) {
        let message = parse(&[flag, value]).expect_err("an invalid value").to_string();
        assert!(message.contains(flag), "{message}");
    }

    #[rstest]
    #[case::absent(&[], None)]
    #[case::bare(&["--leader-elect"], Some(true))]
    #[case::with_value(&["--leader-elect=true"], Some(true))]
    #[case::disabled_by_value(&["--leader-elect=false"], Some(false))]
    #[case::bare_before_another_flag(&["--leader-elect", "--workers", "2"], Some(true))]
    fn leader_elect_takes_an_optional_value(#[case] args: &[&str], #[case] expected: Option<bool>) {
        assert_eq!(parse(args).unwrap().leader_elect, expected);
    }

    #[rstest]
    #[case("0", "info")]
    #[case("4", "debug")]
    #[case("error", "error")]
    #[case("info,kube=debug", "info,kube=debug")]
    fn log_level_is_a_number_or_a_filter(#[case] flag: &str, #[case] expected: &str) {
        assert_eq!(parse(&["--log-level", flag]).unwrap().process.log_level, expected);
    }
}
