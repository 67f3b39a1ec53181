//! Slurm configuration files and hostlists, rendered and parsed by pure functions.
