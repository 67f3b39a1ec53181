//! Changes of the metadata of the NodeSet itself.

use super::finalizers::missing_finalizers;
use super::reservation::ReservationPlan;
use crate::observe::Observed;
use std::collections::BTreeMap;

/// A change of the metadata of the NodeSet, written in one patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// All finalizers that the NodeSet should have, if one is missing. No pod is created before they are set.
    pub finalizers: Option<Vec<String>>,
    /// Annotations to set, or to remove.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// The missing finalizers, the record of the reservation, and that of cordoned pods if it changes; `None` if nothing
/// differs, or the NodeSet is being deleted.
pub fn metadata_change(
    observed: &Observed,
    reservation: &ReservationPlan,
    cordoned_pods: Option<(String, Option<String>)>,
) -> Option<MetadataChange> {
    if observed.nodeset.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let finalizers = missing_finalizers(&observed.nodeset, reservation.needs_finalizer);
    let mut annotations = reservation.record.annotations(&observed.nodeset);
    annotations.extend(cordoned_pods);
    let differs = finalizers.is_some() || !annotations.is_empty();
    differs.then_some(MetadataChange { finalizers, annotations })
}
