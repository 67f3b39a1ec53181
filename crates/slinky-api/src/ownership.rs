//! Owner references: the controller of an object, which alone may change it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

/// A reference that makes `owner` the controller of the object that carries it.
///
/// `None` if `owner` was never stored and has no UID.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    owner.controller_owner_ref(&()).map(|reference| OwnerReference {
        // Foreground deletion of the owner waits for the children.
        block_owner_deletion: Some(true),
        ..reference
    })
}

/// A reference to one of several owners, none of which controls the object.
pub fn shared_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    owner.owner_ref(&()).map(|reference| OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// A reference to an owner that only retains the object: the garbage collector does not delete it with its other owners,
/// also not in a foreground deletion of one of them. The owner's own deletion does not wait for the object.
pub fn retaining_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    owner.owner_ref(&())
}

/// The reference to the controller of an object.
pub fn controller_of(object: &ObjectMeta) -> Option<&OwnerReference> {
    object.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The relation of an object to an owner that wants to control it.
#[derive(Clone, Debug, PartialEq)]
pub enum Control<'a> {
    /// Controlled by that owner.
    Ours,
    /// No controller: it may be adopted.
    Orphan,
    /// Controlled by another owner: it must not be changed.
    Foreign(&'a OwnerReference),
}

/// Whether `owner` controls an object. Compares UIDs: an owner recreated under the same name is another owner.
pub fn control_of<'a, K: Resource>(object: &'a ObjectMeta, owner: &K) -> Control<'a> {
    match controller_of(object) {
        None => Control::Orphan,
        Some(reference) if owner.uid().is_some_and(|uid| uid == reference.uid) => Control::Ours,
        Some(reference) => Control::Foreign(reference),
    }
}

/// True if `owner` controls the object.
pub fn is_controlled_by<K: Resource>(object: &ObjectMeta, owner: &K) -> bool {
    control_of(object, owner) == Control::Ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1beta1::{RestApi, RestApiSpec};

    fn restapi(uid: &str) -> RestApi {
        let mut restapi = RestApi::new("rest", RestApiSpec::default());
        restapi.meta_mut().uid = Some(uid.to_owned());
        restapi
    }

    fn owned_by(owner: Option<OwnerReference>) -> ObjectMeta {
        ObjectMeta { owner_references: owner.map(|reference| vec![reference]), ..ObjectMeta::default() }
    }

    #[test]
    fn controller_reference_blocks_owner_deletion_and_names_the_kind() {
        let reference = controller_reference(&restapi("u1")).unwrap();
        assert_eq!(reference.api_version, "slinky.slurm.net/v1beta1");
        assert_eq!((reference.kind.as_str(), reference.name.as_str()), ("RestApi", "rest"));
        assert_eq!((reference.controller, reference.block_owner_deletion), (Some(true), Some(true)));
    }

    #[test]
    fn owner_without_uid_has_no_reference() {
        assert_eq!(controller_reference(&RestApi::new("rest", RestApiSpec::default())), None);
    }

    #[test]
    fn recreated_owner_does_not_control_the_old_children() {
        let child = owned_by(controller_reference(&restapi("old")));
        assert!(matches!(control_of(&child, &restapi("new")), Control::Foreign(owner) if owner.uid == "old"));
        assert!(is_controlled_by(&child, &restapi("old")));
    }

    #[test]
    fn retaining_owner_neither_controls_nor_waits() {
        let reference = retaining_reference(&restapi("u1")).unwrap();
        assert_eq!((reference.controller, reference.block_owner_deletion), (None, None));
        assert_eq!(control_of(&owned_by(Some(reference)), &restapi("u1")), Control::Orphan);
    }

    #[test]
    fn shared_owner_does_not_control() {
        let child = owned_by(shared_reference(&restapi("u1")));
        assert_eq!(control_of(&child, &restapi("u1")), Control::Orphan);
    }
}
