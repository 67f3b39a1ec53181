//! Whom the processes of a pod run as.

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};

/// A pod of this user and of the group with the same number, which may read its volumes.
pub fn pod_user(id: i64) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(id),
        run_as_group: Some(id),
        fs_group: Some(id),
        ..PodSecurityContext::default()
    }
}

/// A container of this user and of the group with the same number.
pub fn container_user(id: i64) -> SecurityContext {
    SecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(id),
        run_as_group: Some(id),
        ..SecurityContext::default()
    }
}
