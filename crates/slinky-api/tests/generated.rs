//! The definitions in the repository match the types: they are the snapshot of the API.

use std::path::Path;

#[test]
fn files_in_the_repository_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, content) in slinky_api::crd::files().unwrap() {
        let on_disk = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        assert!(on_disk == content, "{path} is not current: run `cargo run -p slinky-api --bin crdgen`");
    }
}

/// Helm would evaluate `{{` in a description.
#[test]
fn definitions_contain_no_template_syntax() {
    for definition in slinky_api::crd::all().unwrap() {
        assert!(
            !serde_json::to_string(&definition).unwrap().contains("{{"),
            "{:?}",
            definition.metadata.name
        );
    }
}

/// Else `helm uninstall` would delete all Slurm clusters.
#[test]
fn charts_keep_every_definition() {
    for (path, content) in slinky_api::crd::files().unwrap() {
        let keeps = content.matches("helm.sh/resource-policy: keep").count();
        assert_eq!(keeps, usize::from(path.starts_with("charts/")), "{path}");
    }
}
