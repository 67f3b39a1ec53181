//! Volumes for claims: directories of the node, made when a claim appears and removed when it is gone.
//!
//! They are `local` volumes, on which the kubelet applies a pod's `fsGroup` as it does on a cloud's disks, unlike on
//! those that Kubernetes' own provisioner for tests makes. All access modes work: there is only one node.

use super::layout::Layout;
use serde_json::{Value, json};
use std::path::Path;

const PROVISIONER: &str = "slurm-operator.test/directory";
const STORAGE_CLASS: &str = "standard";

/// Takes kubectl, a kubeconfig and the manifest of a volume, in which upper-case words stand for a claim's values. A
/// watch ends from time to time; the next one begins with all objects.
const SCRIPT: &str = r#"
kubectl() { "$kubectl" --kubeconfig="$kubeconfig" "$@"; }
watch() { while :; do kubectl get "$1" --all-namespaces --watch --no-headers --output="custom-columns=$2"; sleep 1; done; }
kubectl=$1 kubeconfig=$2 manifest=$3

watch persistentvolumeclaims 'U:.metadata.uid,P:.status.phase,C:.spec.storageClassName,S:.spec.resources.requests.storage,N:.metadata.namespace,A:.metadata.name' |
while read -r uid phase class size namespace name; do
    [ "$phase/$class" = Pending/standard ] || continue
    mkdir -p "/var/lib/volumes/$uid"
    printf %s "$manifest" |
        sed "s/UID/$uid/g; s/SIZE/$size/; s/NAMESPACE/$namespace/; s/CLAIM/$name/" |
        kubectl create --filename=-
done &

watch persistentvolumes 'U:.metadata.name,P:.status.phase,R:.spec.persistentVolumeReclaimPolicy,C:.spec.storageClassName' |
while read -r volume phase policy class; do
    [ "$phase/$policy/$class" = Released/Delete/standard ] || continue
    rm -rf "/var/lib/volumes/${volume#pvc-}"
    kubectl delete persistentvolume "$volume" --wait=false
done
"#;

/// The arguments of the shell that runs the provisioner.
pub fn arguments(layout: &Layout, kubectl: &Path) -> Vec<String> {
    let kubeconfig = layout.kubeconfig("volume-provisioner");
    [
        "-uc".to_owned(),
        SCRIPT.to_owned(),
        "volume-provisioner".to_owned(),
        kubectl.display().to_string(),
        kubeconfig.display().to_string(),
        volume().to_string(),
    ]
    .into()
}

/// The default class.
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

/// The manifest of a volume. It may be used on every node, since simulated nodes share this file system.
fn volume() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pvc-UID", "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": "SIZE"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": STORAGE_CLASS,
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "NAMESPACE", "name": "CLAIM", "uid": "UID"},
            "local": {"path": "/var/lib/volumes/UID"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]},
            ]}},
        },
    })
}
