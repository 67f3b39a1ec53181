//! The Slurm clusters that workers belong to: what is known of each, kept fresh in the background, and the writes to it.

mod view;

pub use view::{Jobs, Known, Sight, Snapshot, View};
