//! Users of pods and containers.

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};

/// A pod that runs as this user and the group of the same id, which may read its volumes.
pub fn pod_user(id: i64) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(id),
        run_as_group: Some(id),
        fs_group: Some(id),
        ..PodSecurityContext::default()
    }
}

/// A container that runs as this user and the group of the same id.
pub fn container_user(id: i64) -> SecurityContext {
    SecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(id),
        run_as_group: Some(id),
        ..SecurityContext::default()
    }
}
