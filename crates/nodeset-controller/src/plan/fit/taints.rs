//! For how long a pod may be on a tainted node.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Keeps pods from coming.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Keeps pods from coming, and makes those go that are there.
pub const NO_EXECUTE: &str = "NoExecute";

/// What Kubernetes says of a node that its kubelet does not report well, or at all. Every pod gets time to wait for
/// better news, and Kubernetes itself ends those whose time is over.
const HICCUPS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// For how long a taint is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tolerance {
    /// Not at all.
    None,
    /// For a time that Kubernetes counts.
    ForAWhile,
    /// As long as it lasts.
    Forever,
}

/// For how long a taint is tolerated.
pub fn tolerance(taint: &Taint, tolerations: &[Toleration]) -> Tolerance {
    let granted = tolerations.iter().filter(|toleration| covers(toleration, taint)).map(|toleration| {
        if toleration.toleration_seconds.is_some() { Tolerance::ForAWhile } else { Tolerance::Forever }
    });
    let is_hiccup = taint.effect == NO_EXECUTE && HICCUPS.contains(&taint.key.as_str());
    let given = if is_hiccup { Tolerance::ForAWhile } else { Tolerance::None };
    granted.fold(given, Tolerance::max)
}

/// Whether a toleration is about this taint. One that Kubernetes would not accept is about none.
fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let is_about_effect = effect.is_empty() || effect == taint.effect;
    is_about_effect
        && match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => key.is_empty() || key == taint.key,
            "" | "Equal" => {
                key == taint.key
                    && toleration.value.as_deref().unwrap_or_default()
                        == taint.value.as_deref().unwrap_or_default()
            }
            _ => false,
        }
}
