//! The list of images of the charts: what the command in docs/install.md prints is what their annotations say.

use super::Counts;
use crate::WORKSPACE;
use crate::cluster::Program;
use crate::commands::output;
use anyhow::{Context, Result};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const GUIDE: &str = "docs/install.md";
/// The charts, with the options of Helm that make each of them use all its images.
const CHARTS: [(&str, &str); 2] = [
    ("slurm-operator", ""),
    (
        "slurm",
        r#"--set-json '{"accounting": {"enabled": true}, "loginsets": {"a": {}}, "nodesets": {"a": {}}}'"#,
    ),
];
/// The key in Chart.yaml under which Artifact Hub looks for images.
const ANNOTATION: &str = "artifacthub.io/images";
/// How the line begins that defines the command.
const COMMAND: &str = "$ images() {";

/// Counts as tests whether the annotations name the images of the charts.
pub fn check() -> Result<Counts> {
    let mut counts = Counts::default();
    for (chart, options) in CHARTS {
        let manifest = format!("charts/{chart}/Chart.yaml");
        let printed = printed(&format!("images {chart} charts/{chart} {options}"))?;
        let annotated = annotated(&fs::read_to_string(format!("{WORKSPACE}/{manifest}"))?);
        let is_equal = printed == annotated;
        if !is_equal {
            println!(
                "{manifest}: the annotation `{ANNOTATION}` has {annotated:?}, but the command in {GUIDE} prints {printed:?}"
            );
        }
        counts.add(Counts::of(is_equal));
    }
    Ok(counts)
}

/// What a call of the command prints.
fn printed(call: &str) -> Result<Vec<String>> {
    let guide = fs::read_to_string(format!("{WORKSPACE}/{GUIDE}"))?;
    let command = command_in(&guide).with_context(|| format!("{GUIDE} has no line `{COMMAND}`"))?;
    let directories = [Program::HELM.directory()?]
        .into_iter()
        .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<PathBuf>>());
    let mut shell = Command::new("sh");
    shell.current_dir(WORKSPACE).env("PATH", env::join_paths(directories)?);
    let images = output(shell.args(["-euc", &format!("{command}\n{call}")]))?;
    Ok(images.lines().map(str::to_owned).collect())
}

/// The definition of the command, without the prompt.
fn command_in(guide: &str) -> Option<&str> {
    let line = guide.lines().find(|line| line.starts_with(COMMAND))?;
    line.strip_prefix("$ ")
}

/// The images of the annotation, sorted.
fn annotated(manifest: &str) -> Vec<String> {
    let key = format!("{ANNOTATION}: |");
    let lines = manifest.lines().skip_while(|line| line.trim() != key).skip(1);
    let entries = lines.map_while(|line| line.trim().strip_prefix("- {"));
    let image = |entry: &str| Some(entry.split_once("image: \"")?.1.split_once('"')?.0.to_owned());
    let mut images: Vec<_> = entries.filter_map(image).collect();
    images.sort();
    images
}

#[cfg(test)]
mod tests {
    use super::{annotated, command_in};

    #[test]
    fn images_of_the_annotation_are_read() {
        let manifest = "annotations:\n  license: Apache-2.0\n  artifacthub.io/images: |\n    \
                        - {name: webhook, image: \"b:1\"}\n    - {name: nodeset, image: \"a:1\"}\n  \
                        artifacthub.io/crds: |\n    - {kind: Token, image: \"c\"}\n";
        assert_eq!(annotated(manifest), ["a:1", "b:1"]);
        assert_eq!(annotated("annotations: {}\n"), Vec::<String>::new());
    }

    #[test]
    fn command_is_read_without_its_prompt() {
        let guide =
            "```console\n$ images() { helm template \"$@\" | sort; }\n$ images slurm charts/slurm\n```\n";
        assert_eq!(command_in(guide), Some("images() { helm template \"$@\" | sort; }"));
        assert_eq!(command_in("images() {}"), None);
    }
}
