//! Each input under `inputs/` renders to its snapshot, byte for byte.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde::de::DeserializeOwned;
use slurm_conf::check::{Severity, check_slurm_conf, check_slurmdbd_conf};
use slurm_conf::{ExternalSlurmConf, SlurmConf, SlurmdbdConf, is_equivalent};
use std::fs;
use std::path::Path;

fn read<T: DeserializeOwned>(path: &Path) -> T {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn slurm_conf() {
    insta::glob!("inputs/slurm/*.yaml", |path| {
        let conf: SlurmConf = read(path);
        let text = conf.render();
        insta::assert_snapshot!(text);
        let errors: Vec<_> =
            check_slurm_conf(&text, None).into_iter().filter(|f| f.severity == Severity::Error).collect();
        assert_eq!(errors, []);
    });
}

#[test]
fn slurm_conf_of_an_external_controller() {
    insta::glob!("inputs/external/*.yaml", |path| {
        let conf: ExternalSlurmConf = read(path);
        insta::assert_snapshot!(conf.render());
    });
}

#[test]
fn slurmdbd_conf() {
    insta::glob!("inputs/slurmdbd/*.yaml", |path| {
        let conf: SlurmdbdConf = read(path);
        insta::assert_snapshot!(conf.render());
    });
}

/// insta snapshots do not preserve trailing line breaks.
#[test]
fn file_ends_in_one_line_break_after_the_user_text() {
    let mut conf: SlurmConf = read(Path::new("tests/inputs/slurm/minimal.yaml"));
    assert!(conf.render().ends_with("\nAccountingStorageType=accounting_storage/none\n"));
    conf.extra_conf = "MinJobAge=2".to_owned();
    assert!(conf.render().ends_with("\n#\n### EXTRA CONFIG ###\nMinJobAge=2\n"));
    conf.extra_conf = "MinJobAge=2\n".to_owned();
    assert!(conf.render().ends_with("\n#\n### EXTRA CONFIG ###\nMinJobAge=2\n\n"));
}

#[test]
fn missing_database_user_is_reported() {
    let conf: SlurmdbdConf = read(Path::new("tests/inputs/slurmdbd/minimal.yaml"));
    let lines: Vec<_> = check_slurmdbd_conf(&conf.render()).into_iter().map(|finding| finding.line).collect();
    let user = conf.render().lines().position(|line| line == "StorageUser=").unwrap() + 1;
    assert_eq!(lines, [user]);
}

#[test]
fn files_with_another_layout_are_equivalent_and_with_another_value_are_not() {
    let conf: SlurmConf = read(Path::new("tests/inputs/slurm/everything.yaml"));
    let text = conf.render();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let bare = lines.join(" \n\n ");
    assert!(is_equivalent(&text, &bare));
    assert!(!is_equivalent(&text, &bare.replace("=6817", "=6818")));
}

#[test]
fn input_with_text_that_leaves_its_line_is_rejected() {
    let input = fs::read_to_string("tests/inputs/slurm/minimal.yaml").unwrap();
    let broken = input.replace("slurm_lab", "'slurm_lab SlurmUser=root'");
    assert!(
        serde_saphyr::from_str::<SlurmConf>(&broken)
            .unwrap_err()
            .to_string()
            .contains("must not contain ' '")
    );
}
