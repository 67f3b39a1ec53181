//! What a NodeSet's status says. No I/O.
