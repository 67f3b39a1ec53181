//! The configuration files of the components. Pure, except for `write`.

use super::layout::{DOMAIN, Layout, NODE_ADDRESS, NODE_NAME, POD_CIDR};
use crate::images::catalog::PAUSE;
use anyhow::Result;
use serde_json::{Value, json};
use xshell::Shell;

/// Writes all configuration files.
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
    let sh = Shell::new()?;
    for (file, text) in files {
        sh.write_file(layout.config(file), text)?;
    }
    Ok(())
}

/// Logs the metadata of each request once.
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

/// `restrict_oom_score_adj`, since a machine that is itself a container may not be allowed to lower OOM scores;
/// `disable_apparmor`, since containerd would load a profile into the machine's kernel and leave it there.
fn containerd(layout: &Layout) -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{networks}"
"#,
        pause = PAUSE.reference(),
        networks = layout.config("cni").display(),
    )
}

/// Connects pods by routes instead of a bridge: all their packets pass the node's address translation, so that Services
/// work between pods without bridge filters in the kernel.
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

/// A scheduler that pods have to name. Without nodes the default scheduler would report every pod as unschedulable, but
/// most tests set the status of their pods themselves.
fn scheduler_on_request(layout: &Layout) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": layout.kubeconfig("kube-scheduler")},
        "leaderElection": {"leaderElect": false},
        "profiles": [{"schedulerName": "on-request"}],
    })
}

/// Evicts no pods, and keeps all images, since none can be pulled.
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

/// Does not change the limits of the kernel's connection tracking, which apply to the whole machine.
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

/// Resolves the names of the cluster; all other names do not exist, nothing is forwarded.
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

/// Ends simulated pods as soon as they are deleted. The API server itself removes a pod with a grace period of 0; the
/// default rule of kwok would delete it a second time, by name, and so sometimes its successor.
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
