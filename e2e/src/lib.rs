//! Black-box tests against a real Kubernetes API server.
