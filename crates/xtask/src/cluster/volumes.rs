//! A volume provisioner: directories of the node, created for claims and deleted with them.
//!
//! They are `local` volumes, on which the kubelet applies a pod's `fsGroup` as on disks of a cloud, unlike on `hostPath`
//! volumes. All access modes work, since there is only one node.

use super::layout::Layout;
use serde_json::{Value, json};
use std::path::Path;

const PROVISIONER: &str = "slurm-operator.test/directory";
const STORAGE_CLASS: &str = "standard";

/// Arguments: kubectl, a kubeconfig, the storage class and the manifest of a volume with upper-case placeholders for the
/// values of a claim. The API server ends a watch from time to time; the next one starts with all objects.
const SCRIPT: &str = r#"
kubectl=$1 kubeconfig=$2 our_class=$3 manifest=$4
kubectl() { "$kubectl" --kubeconfig="$kubeconfig" "$@"; }
watch() {
    columns=$(echo $2 | sed 's/ /,X:/g')
    while :; do
        kubectl get "$1" --all-namespaces --watch --no-headers --output="custom-columns=X:$columns"
        sleep 1
    done
}

watch persistentvolumeclaims '.status.phase .spec.storageClassName .metadata.uid .metadata.namespace .metadata.name
    .spec.resources.requests.storage .spec.accessModes' |
while read -r phase class uid namespace name size modes; do
    [ "$phase $class" = "Pending $our_class" ] || continue
    mkdir -p "/var/lib/volumes/$uid"
    modes=$(echo "$modes" | sed 's/[A-Za-z][A-Za-z]*/"&"/g; s/ /, /g')
    echo "$manifest" |
        sed "s/UID/$uid/g; s/SIZE/$size/; s/NAMESPACE/$namespace/; s/CLAIM/$name/; s/\"MODES\"/$modes/" |
        kubectl create --filename=-
done &

watch persistentvolumes '.status.phase .spec.storageClassName .spec.persistentVolumeReclaimPolicy .metadata.name' |
while read -r phase class policy volume; do
    [ "$phase $class $policy" = "Released $our_class Delete" ] || continue
    rm -rf "/var/lib/volumes/${volume#pvc-}"
    kubectl delete persistentvolume "$volume" --wait=false
done
"#;

/// The arguments of the shell that runs the provisioner.
pub fn arguments(layout: &Layout, kubectl: &Path) -> Vec<String> {
    let kubeconfig = layout.kubeconfig("volume-provisioner");
    vec![
        "-uc".into(),
        SCRIPT.into(),
        "volume-provisioner".into(),
        kubectl.display().to_string(),
        kubeconfig.display().to_string(),
        STORAGE_CLASS.into(),
        volume().to_string(),
    ]
}

/// The default storage class.
pub fn storage_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}

/// The manifest of a volume, usable on every node, since simulated nodes share this file system.
fn volume() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pvc-UID", "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": "SIZE"},
            "accessModes": "MODES",
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": STORAGE_CLASS,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "NAMESPACE",
                "name": "CLAIM",
                "uid": "UID",
            },
            "local": {"path": "/var/lib/volumes/UID"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]},
            ]}},
        },
    })
}
