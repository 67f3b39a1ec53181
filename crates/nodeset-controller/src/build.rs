//! What a NodeSet needs in Kubernetes. No I/O.
