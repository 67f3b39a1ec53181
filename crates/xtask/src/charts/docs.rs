//! The README of each chart: a template with the table of its values, rendered by helm-docs.

use super::generated::Generated;
use super::{charts, root};
use crate::WORKSPACE;
use crate::cluster::Program;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The directory below which helm-docs looks for charts.
const ROOT: &str = "charts";
/// The template of one chart.
const TEMPLATE: &str = "README.md.gotmpl";
/// What the templates of all charts share, relative to `ROOT`.
const SHARED: &str = "./_templates.gotmpl";

/// The READMEs of all charts. A library has none: it is not installed.
pub fn files() -> Result<Vec<Generated>> {
    let mut files = Vec::new();
    for chart in charts(&root())? {
        let manifest = fs::read_to_string(chart.join("Chart.yaml"))?;
        if manifest.lines().any(|line| line == "type: library") {
            continue;
        }
        let relative = chart.strip_prefix(WORKSPACE)?.to_str().context("a chart with an unusual path")?;
        files.push(Generated { path: format!("{relative}/README.md"), content: readme(relative)? });
    }
    Ok(files)
}

/// The README of a chart, given its path relative to the root of the repository.
fn readme(chart: &str) -> Result<String> {
    // Without a template, helm-docs takes one of its own.
    ensure!(Path::new(WORKSPACE).join(chart).join(TEMPLATE).is_file(), "{chart}/{TEMPLATE} is missing");
    let mut tool = Command::new(Program::HELM_DOCS.file()?);
    tool.current_dir(WORKSPACE).args(["--dry-run", "--log-level", "warning", "--sort-values-order", "file"]);
    tool.args(["--template-files", SHARED, "--template-files", TEMPLATE]);
    tool.args(["--chart-search-root", ROOT, "--chart-to-generate", chart]);
    let output = tool.output().context("running helm-docs")?;
    // It succeeds whatever happens, but warns.
    let warnings = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && warnings.is_empty(), "helm-docs {chart}: {}", warnings.trim());
    Ok(String::from_utf8(output.stdout)?)
}
