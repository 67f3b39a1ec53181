//! Tests of deploy/kind.sh: it can be run, and installs the components of the chart. kind itself needs a Docker engine.

use super::{charts, root};
use crate::WORKSPACE;
use std::fs;
use std::process::Command;

fn script() -> String {
    format!("{WORKSPACE}/deploy/kind.sh")
}

/// What bash prints, given these arguments.
fn bash(arguments: &[&str]) -> String {
    let output = Command::new("bash").args(arguments).output().unwrap();
    assert!(output.status.success(), "bash {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The components that the script builds images of, sorted.
fn built() -> Vec<String> {
    let text = fs::read_to_string(script()).unwrap();
    let list = text.lines().find_map(|line| line.strip_prefix("components=(")?.strip_suffix(')')).unwrap();
    let mut components: Vec<_> = list.split(' ').map(str::to_owned).collect();
    components.sort();
    components
}

/// The components of the chart slurm-operator, sorted: all charts in it but the library and the definitions.
fn installed() -> Vec<String> {
    let inner = charts(&root().join("slurm-operator/charts")).unwrap();
    let names = inner.iter().map(|chart| chart.file_name().unwrap().to_str().unwrap().to_owned());
    names.filter(|name| !["common", "slurm-operator-crds"].contains(&name.as_str())).collect()
}

#[test]
fn script_is_valid_and_explains_itself() {
    bash(&["-n", &script()]);
    assert!(bash(&[&script(), "--help"]).starts_with("Usage: deploy/kind.sh"));
}

#[test]
fn script_builds_the_components_of_the_chart() {
    assert_eq!(built(), installed());
}

#[test]
fn binaries_have_the_names_that_the_script_builds() {
    for component in built() {
        let binary = match component.as_str() {
            "webhook" => continue,
            "expectations" => component,
            _ => format!("{component}-controller"),
        };
        assert!(fs::exists(format!("{WORKSPACE}/crates/{binary}/src/main.rs")).unwrap(), "{binary}");
    }
}
