//! Releases of our charts, installed with Helm as users do.

use crate::process::scratch;
use crate::slurm_cluster::output_of;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the charts.
const CHARTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts");

/// Values of the chart `slurm` that name images of the local cluster.
pub const SLURM_VALUES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/xtask/demo/slurm.yaml");

/// Changes the version of all charts below a directory, and those of their dependencies.
const CHANGE_VERSION: &str = r#"find "$1" -name Chart.yaml -exec sed --in-place --regexp-extended "s/version: [0-9.]+/version: $2/" {} +"#;

/// A release, which need not be installed.
#[derive(Clone)]
pub struct Release {
    chart: PathBuf,
    name: String,
    namespace: String,
    values: Vec<PathBuf>,
}

/// A copy of all charts that tests may change.
fn copy_of_charts(name: &str) -> Result<PathBuf> {
    let copy = scratch(&format!("charts-{name}"))?;
    if copy.exists() {
        std::fs::remove_dir_all(&copy)?;
    }
    let mut copying = Command::new("cp");
    copying.args(["--archive", CHARTS]).arg(&copy);
    output_of(copying)?;
    Ok(copy)
}

impl Release {
    /// A release of a chart, by the path of the chart below the directory of all charts.
    pub fn new(chart: &str, name: &str, namespace: &str) -> Self {
        let chart = Path::new(CHARTS).join(chart);
        Self { chart, name: name.to_owned(), namespace: namespace.to_owned(), values: vec![] }
    }

    /// A release of the chart of one component, with the library that it depends on.
    pub fn of_component(component: &str, namespace: &str) -> Result<Self> {
        let chart = copy_of_charts(component)?.join("slurm-operator/charts").join(component);
        let mut update = Command::new("helm");
        update.args(["dependency", "update", "--skip-refresh"]).arg(&chart);
        output_of(update)?;
        Ok(Self { chart, ..Self::new("", component, namespace) })
    }

    /// With more values, which win over those before.
    pub fn with_values(mut self, values: &Value) -> Result<Self> {
        let file = scratch(&format!("{}-{}-{}.json", self.namespace, self.name, self.values.len()))?;
        std::fs::write(&file, values.to_string())?;
        self.values.push(file);
        Ok(self)
    }

    /// With the values of a file.
    #[must_use]
    pub fn with_values_file(mut self, file: &str) -> Self {
        self.values.push(file.into());
        self
    }

    /// With the values that name the images of the operator under test.
    pub fn with_tested_images(self) -> Result<Self> {
        let variable = |name: &str| {
            std::env::var(name)
                .with_context(|| format!("{name} is not set: see CONTRIBUTING.md, tests of the installation"))
        };
        let (registry, tag) =
            (variable("SLURM_OPERATOR_IMAGE_REGISTRY")?, variable("SLURM_OPERATOR_IMAGE_TAG")?);
        self.with_values(&json!({ "global": { "imageRegistry": registry, "image": { "tag": tag } } }))
    }

    /// The same release with a copy of its chart that has another version, and no other change.
    pub fn with_chart_version(&self, version: &str) -> Result<Self> {
        let charts = copy_of_charts(version)?;
        let mut edit = Command::new("sh");
        edit.args(["-euc", CHANGE_VERSION, "sh"]).arg(&charts).arg(version);
        output_of(edit)?;
        let chart = charts.join(self.chart.strip_prefix(CHARTS)?);
        Ok(Self { chart, ..self.clone() })
    }

    /// Installs or upgrades it, and waits until everything in it is ready.
    pub fn install(&self) -> Result<()> {
        let mut helm = self.helm("upgrade");
        helm.arg(&self.chart).args(["--install", "--create-namespace", "--wait", "--timeout=5m"]);
        for values in &self.values {
            helm.arg("--values").arg(values);
        }
        output_of(helm).map(drop)
    }

    /// Goes back to the revision before.
    pub fn roll_back(&self) -> Result<()> {
        let mut helm = self.helm("rollback");
        helm.args(["--wait", "--timeout=5m"]);
        output_of(helm).map(drop)
    }

    /// Runs its tests, which have to succeed.
    pub fn test(&self) -> Result<()> {
        let mut helm = self.helm("test");
        helm.arg("--timeout=5m");
        output_of(helm).map(drop)
    }

    /// Removes it.
    pub fn uninstall(&self) -> Result<()> {
        let mut helm = self.helm("uninstall");
        helm.args(["--wait", "--timeout=5m", "--ignore-not-found"]);
        output_of(helm).map(drop)
    }

    /// The version of the installed chart.
    pub fn chart_version(&self) -> Result<String> {
        let mut helm = self.helm("get metadata");
        helm.arg("--output=json");
        let metadata: Value = serde_json::from_str(&output_of(helm)?)?;
        Ok(metadata["version"].as_str().context("a chart without version")?.to_owned())
    }

    /// `helm VERBS NAME` in the namespace of the release.
    fn helm(&self, verbs: &str) -> Command {
        let mut helm = Command::new("helm");
        helm.args(verbs.split(' ')).args([&self.name, "--namespace", &self.namespace]);
        helm
    }
}
