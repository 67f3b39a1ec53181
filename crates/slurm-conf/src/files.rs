//! The names of configuration files beside slurm.conf.

/// Files that the operator writes.
const RESERVED: [&str; 2] = ["slurm.conf", "slurmdbd.conf"];

/// Files that Slurm reads by itself.
const KNOWN: [&str; 14] = [
    "acct_gather.conf",
    "burst_buffer.conf",
    "cgroup.conf",
    "cli_filter.lua",
    "gres.conf",
    "helpers.conf",
    "job_container.conf",
    "job_submit.lua",
    "mpi.conf",
    "namespace.yaml",
    "oci.conf",
    "plugstack.conf",
    "topology.conf",
    "topology.yaml",
];

/// Whether the operator writes this file.
pub fn is_reserved(file: &str) -> bool {
    RESERVED.contains(&file)
}

/// Whether Slurm reads this file by itself. It ignores any other, unless a file that it reads includes it.
pub fn is_known(file: &str) -> bool {
    KNOWN.contains(&file)
}
