//! The operator as plain manifests for `kubectl apply`, rendered from its chart.

use super::generated::Generated;
use crate::WORKSPACE;
use crate::cluster::Program;
use crate::commands::output;
use anyhow::Result;
use std::process::Command;

const CHART: &str = "charts/slurm-operator";
const RELEASE: &str = "slurm-operator";
const NAMESPACE: &str = "slinky";

/// The manifests and the values that differ from the defaults.
const MANIFESTS: [(&str, &str, &[&str]); 2] = [
    ("deploy/operator.yaml", "The Slurm operator", &[]),
    ("deploy/operator-small.yaml", "A small installation of the Slurm operator", &["--set", "small=true"]),
];

/// Beginnings of lines that are true of a release of Helm only: labels by which Helm and other tools take the objects for
/// those of a release, and the file of a chart that an object is from.
const OF_A_RELEASE: [&str; 3] = ["app.kubernetes.io/managed-by:", "helm.sh/chart:", "# Source:"];

/// The manifests.
pub fn files() -> Result<Vec<Generated>> {
    let manifest = |(path, title, values): &(&str, &str, &[&str])| {
        let content = format!("{}{}", head(title), without_release(&render(values)?));
        Ok(Generated { path: (*path).to_owned(), content })
    };
    MANIFESTS.iter().map(manifest).collect()
}

/// What helm renders, without hooks: nothing but Helm would run and delete them.
fn render(values: &[&str]) -> Result<String> {
    let mut helm = Command::new(Program::HELM.file()?);
    helm.current_dir(WORKSPACE).args(["template", RELEASE, CHART, "--namespace", NAMESPACE, "--no-hooks"]);
    output(helm.args(values))
}

/// The beginning of a manifest, with the namespace.
fn head(title: &str) -> String {
    format!(
        "# {title}, rendered from {CHART} by `cargo xtask charts render`.
#
#   kubectl apply -f deploy/crds.yaml -f THIS_FILE
---
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"
    )
}

/// The objects without the lines that are true of a release only, and without empty lines between them.
fn without_release(rendered: &str) -> String {
    let is_kept = |line: &&str| !OF_A_RELEASE.iter().any(|start| line.trim_start().starts_with(start));
    let mut lines: Vec<&str> = Vec::new();
    for line in rendered.lines().filter(is_kept) {
        while line == "---" && lines.last().is_some_and(|last| last.trim().is_empty()) {
            lines.pop();
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::without_release;

    #[test]
    fn labels_of_a_release_are_left_out() {
        let rendered = "---\n# Source: slurm-operator/templates/token.yaml\nkind: Service\nmetadata:\n  labels:\n    \
                        helm.sh/chart: slurm-operator-0.1.0\n    app.kubernetes.io/managed-by: Helm\n    \
                        app.kubernetes.io/name: token\n\n\n---\nkind: Role\n\nrules: []";
        let expected = "---\nkind: Service\nmetadata:\n  labels:\n    app.kubernetes.io/name: token\n---\n\
                        kind: Role\n\nrules: []\n";
        assert_eq!(without_release(rendered), expected);
    }
}
