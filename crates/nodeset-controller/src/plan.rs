//! Decides what to do about a NodeSet. No I/O, no clock.

mod fit;
mod order;
mod revision;
