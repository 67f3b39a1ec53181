//! What every binary of the operator shares: flags, client, apply, events, metrics, leadership, shutdown.
