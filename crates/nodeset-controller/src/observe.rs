//! What decisions about a NodeSet depend on.
