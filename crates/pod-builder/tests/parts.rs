//! The shared parts of pods, with scripts. Their JSON is part of pod templates: a change can restart pods.

use pod_builder::parts::{
    SLURM_ETC, config_map_items, config_map_source, empty_dir, exec_probe, file_mount, http_probe, initconf,
    item, logfile, memory_dir, projected, reconfigure, secret_items, tcp_probe, with_one_minute_threshold,
};

#[test]
fn side_containers() {
    insta::assert_yaml_snapshot!([initconf(), logfile("/var/log/slurm/slurmd.log"), reconfigure()]);
}

#[test]
fn volumes_and_mounts() {
    let sources = vec![
        config_map_source("c-config"),
        config_map_items("jwks", vec![item("keys", "jwks.json", None)]),
        secret_items("auth", vec![item("k", "slurm.key", Some(0o600))]),
    ];
    insta::assert_yaml_snapshot!([
        projected(SLURM_ETC, 0o610, sources),
        memory_dir("run"),
        empty_dir("statesave")
    ]);
    insta::assert_yaml_snapshot!(file_mount("ssh-config", "sshd_config", "/etc/ssh/sshd_config"));
}

#[test]
fn probes() {
    insta::assert_yaml_snapshot!([
        with_one_minute_threshold(http_probe("/livez", "slurmctld")),
        tcp_probe(6819),
        exec_probe(&["test", "-S", "/run/slurm/sack.socket"]),
    ]);
}
