//! The configuration files of the components. Pure, except for `write`.

use super::layout::{DOMAIN, Layout, NODE_ADDRESS, NODE_NAME, POD_CIDR};
use crate::images::catalog::PAUSE;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;

/// Writes all of them.
pub fn write(layout: &Layout) -> Result<()> {
    let files = [
        ("audit-policy.json", format!("{:#}", audit_policy())),
        ("resolv.conf", resolv_conf()),
        ("containerd.toml", containerd(layout)),
        ("cni/pods.conflist", format!("{:#}", pod_network())),
        ("kube-scheduler.json", format!("{:#}", scheduler_on_request(layout))),
        ("kubelet.json", format!("{:#}", kubelet(layout))),
        ("kube-proxy.json", format!("{:#}", kube_proxy(layout))),
        ("Corefile", corefile(layout)),
        ("pod-delete.json", format!("{:#}", pod_delete())),
    ];
    for (file, text) in files {
        let path = layout.config(file);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Who did what to which object, once per request.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    })
}

fn resolv_conf() -> String {
    format!("nameserver {NODE_ADDRESS}\nsearch default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\noptions ndots:5\n")
}

/// A machine that is itself a container may lack the right to lower OOM scores.
fn containerd(layout: &Layout) -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{networks}"
"#,
        pause = PAUSE.reference(),
        networks = layout.config("cni").display(),
    )
}

/// Pods are connected by routes and not by a bridge: all their packets pass the node's address translation, so that
/// Services work between pods without bridge filters in the kernel.
fn pod_network() -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": POD_CIDR}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

/// Without nodes every pod would be told that it cannot be placed, and most tests play all that becomes of their pods: so
/// it goes by a name that no pod has by default.
fn scheduler_on_request(layout: &Layout) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": layout.kubeconfig("kube-scheduler")},
        "leaderElection": {"leaderElect": false},
        "profiles": [{"schedulerName": "on-request"}],
    })
}

/// Evicts nothing and keeps all images, since there is nowhere to pull one from.
fn kubelet(layout: &Layout) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {"anonymous": {"enabled": false}, "x509": {"clientCAFile": layout.pki("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.pki("kubelet-server.crt"),
        "tlsPrivateKeyFile": layout.pki("kubelet-server.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", layout.cgroup()),
        "failCgroupV1": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "clusterDNS": [NODE_ADDRESS],
        "clusterDomain": DOMAIN,
        "resolvConf": layout.resolv_conf(),
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    })
}

/// Leaves the kernel's connection tracking as it is: its limits belong to the whole machine.
fn kube_proxy(layout: &Layout) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": NODE_NAME,
        "clientConnection": {"kubeconfig": layout.kubeconfig("kube-proxy")},
        "conntrack": {"maxPerCore": 0},
    })
}

/// Knows the names of the cluster; forwards nothing, and says of all other names that they do not exist.
fn corefile(layout: &Layout) -> String {
    format!(
        "{DOMAIN} in-addr.arpa {{
    bind {NODE_ADDRESS}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
    loadbalance
}}
. {{
    bind {NODE_ADDRESS}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
",
        kubeconfig = layout.kubeconfig("coredns").display(),
    )
}

/// Simulated pods end as soon as they are asked to. One that is given no time to end is not asked but removed by the
/// API server; the rule that comes with kwok would delete it once more, by its name, and so at times its successor.
fn pod_delete() -> Value {
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "pod-delete"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [{
                "key": ".metadata | select(.deletionGracePeriodSeconds > 0)",
                "operator": "Exists",
            }]},
            "next": {"delete": true},
        },
    })
}
