//! `expectations status`: the state of a running service, for people and scripts.

mod json;
mod table;

use clap::ValueEnum;
use expectations::client::{self, Config};
use std::path::PathBuf;
use tonic::transport::Uri;

/// Flags of the subcommand.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// URLs of the service, separated by commas. Every address of every host is asked, until one leads.
    #[arg(long, env = "EXPECTATIONS", value_delimiter = ',', default_value = "https://localhost:8443")]
    endpoint: Vec<Uri>,

    /// File with the certificates of the authorities that the service's certificate is checked against.
    #[arg(long, env = "EXPECTATIONS_CA_FILE", default_value = client::DEFAULT_CA_FILE)]
    ca_file: PathBuf,

    /// File with a ServiceAccount token of the audience `expectations.slinky.slurm.net`.
    #[arg(long, env = "EXPECTATIONS_TOKEN_FILE", default_value = client::DEFAULT_TOKEN_FILE)]
    token_file: PathBuf,

    /// Output format.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables.
    Table,
    /// One JSON object.
    Json,
}

/// Prints the state of the service.
#[expect(clippy::print_stdout, reason = "the purpose of the subcommand")]
pub async fn print(args: Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Args { endpoint, ca_file, token_file, output } = args;
    let status = client::status(Config { endpoints: endpoint, ca_file, token_file }).await?;
    match output {
        Output::Table => print!("{}", table::render(&status)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&json::Status::from(&status))?),
    }
    Ok(())
}
