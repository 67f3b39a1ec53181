//! Allowed dependencies between our crates, and banned external ones.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The allowed dependencies of each of our crates on others; dev-dependencies are not restricted.
const ALLOWED: &[(&str, &[&str])] = &[
    ("slinky-api", &[]),
    ("slurm-conf", &[]),
    ("slurm-jwt", &[]),
    ("slurm-rest", &["slurm-conf", "slurm-jwt"]),
    ("slurm-fake", &["slurm-conf", "slurm-jwt", "slurm-rest", "test-support"]),
    ("test-support", &[]),
    ("xtask", &[]),
    ("pod-builder", &["slinky-api"]),
    ("operator-runtime", &["slinky-api"]),
    ("expectations", &["operator-runtime"]),
    ("expectations-model", &["expectations"]),
    ("e2e", &["operator-runtime", "slinky-api", "test-support"]),
];

/// Crates that no binary may depend on.
const TEST_ONLY: &[&str] = &["expectations-model", "slurm-fake", "test-support"];

/// Pure crates without async runtime and I/O.
const WITHOUT_TOKIO: &[&str] = &["slinky-api", "slurm-conf", "slurm-jwt", "pod-builder"];

/// A second TLS provider makes rustls panic at run time; the others are not needed.
const BANNED: &[&str] = &["aws-lc-rs", "native-tls", "openssl-sys", "serde_yaml"];

/// Crates with a single version, since types of two versions are incompatible.
const SINGLE: &[&str] = &["k8s-openapi", "kube-core", "rustls", "schemars", "tonic"];

fn metadata() -> Value {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    serde_json::from_slice(&cargo.stdout).unwrap()
}

fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
}

/// The packages of the workspace with the names of their direct dependencies, without dev-dependencies.
fn workspace_packages(metadata: &Value) -> Vec<(&str, BTreeSet<&str>)> {
    let packages =
        metadata["packages"].as_array().unwrap().iter().filter(|package| package["source"].is_null());
    packages
        .map(|package| {
            let direct =
                package["dependencies"].as_array().unwrap().iter().filter(|one| one["kind"].is_null());
            (package["name"].as_str().unwrap(), direct.map(|one| one["name"].as_str().unwrap()).collect())
        })
        .collect()
}

#[test]
fn crates_depend_in_one_direction() {
    let metadata = metadata();
    let packages = workspace_packages(&metadata);
    let names: BTreeSet<&str> = packages.iter().map(|(name, _)| *name).collect();
    for (name, dependencies) in &packages {
        let binary = name.ends_with("-controller") || *name == "admission-webhook";
        let allowed = ALLOWED.iter().find(|(crate_name, _)| crate_name == name).map(|(_, allowed)| *allowed);
        for dependency in dependencies.intersection(&names) {
            let permitted = match allowed {
                Some(allowed) => allowed.contains(dependency),
                None => binary && !dependency.ends_with("-controller") && !TEST_ONLY.contains(dependency),
            };
            assert!(permitted, "{name} may not depend on {dependency}");
        }
        assert!(binary || allowed.is_some(), "{name} is missing in ALLOWED");
    }
    for name in WITHOUT_TOKIO {
        let (_, dependencies) = packages.iter().find(|(crate_name, _)| crate_name == name).unwrap();
        assert!(!dependencies.contains("tokio"), "{name} is pure and may not depend on tokio");
    }
}

#[test]
fn external_dependencies_have_one_tls_provider_one_kubernetes_version_and_one_registry() {
    let metadata = metadata();
    let names = texts(&metadata["packages"], "name");
    for banned in BANNED {
        assert!(!names.contains(banned), "{banned} is banned: see `cargo tree --invert {banned}`");
    }
    for single in SINGLE {
        let count = names.iter().filter(|name| *name == single).count();
        assert!(count <= 1, "there are {count} versions of {single}: see `cargo tree --duplicates`");
    }
    for package in metadata["packages"].as_array().unwrap() {
        let Some(source) = package["source"].as_str() else { continue };
        assert!(source.starts_with("registry+"), "{} comes from {source}", package["name"]);
    }
}
