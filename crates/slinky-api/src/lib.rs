//! API types, names, labels and ownership of slinky.slurm.net/v1beta1.
