//! Derived names and addresses.
//!
//! Names are part of the API: PersistentVolumeClaims, DNS records and Slurm nodes outlive the operator's process.

use crate::v1beta1::{Controller, NodeSet, NodeSetSpec, Token, TokenSpec};
use kube::ResourceExt;

/// The user that Slurm daemons run as.
pub const SLURM_USER: &str = "slurm";
/// Its uid and gid.
pub const SLURM_ID: i64 = 401;
/// uid and gid of slurmrestd, which does not start as root or as the Slurm user.
pub const SLURMRESTD_ID: i64 = 65_534;

/// Port of slurmctld.
pub const SLURMCTLD_PORT: i32 = 6817;
/// Port of slurmd.
pub const SLURMD_PORT: i32 = 6818;
/// Port of slurmdbd.
pub const SLURMDBD_PORT: i32 = 6819;
/// Port of slurmrestd.
pub const SLURMRESTD_PORT: i32 = 6820;
/// Port of sshd.
pub const SSH_PORT: i32 = 22;

/// The default key of a token in its Secret.
const DEFAULT_TOKEN_KEY: &str = "SLURM_JWT";
/// The default domain of a Kubernetes cluster.
pub const DEFAULT_CLUSTER_DOMAIN: &str = "cluster.local";

/// Names of the children of a Controller.
pub mod controller {
    /// StatefulSet, client Service and ServiceMonitor.
    pub fn workload(controller: &str) -> String {
        format!("{controller}-controller")
    }

    /// The headless Service of the StatefulSet.
    pub fn internal_service(controller: &str) -> String {
        format!("{controller}-controller-internal")
    }

    /// The ConfigMap with slurm.conf.
    pub fn config(controller: &str) -> String {
        format!("{controller}-config")
    }

    /// One slurmctld pod.
    pub fn pod(controller: &str, ordinal: i32) -> String {
        format!("{controller}-controller-{ordinal}")
    }

    /// The headless Service shared by the workers of all NodeSets of the cluster.
    pub fn workers_service(controller: &str) -> String {
        format!("slurm-workers-{controller}")
    }

    /// The PodDisruptionBudget shared by the workers of all NodeSets of the cluster.
    pub fn workers_budget(controller: &str) -> String {
        format!("slurm-workers-pdb-{controller}")
    }
}

/// Names of the children of an Accounting.
pub mod accounting {
    /// StatefulSet, Service and configuration Secret.
    pub fn workload(accounting: &str) -> String {
        format!("{accounting}-accounting")
    }

    /// The slurmdbd pod.
    pub fn pod(accounting: &str) -> String {
        format!("{accounting}-accounting-0")
    }
}

/// Deployment and Service of a RestApi.
pub fn restapi_workload(restapi: &str) -> String {
    format!("{restapi}-restapi")
}

/// The ConfigMap with `sshd_config` of a LoginSet or NodeSet.
pub fn ssh_config(owner: &str) -> String {
    format!("{owner}-ssh-config")
}

/// The Secret with the ssh host keys of a LoginSet.
pub fn ssh_host_keys(loginset: &str) -> String {
    format!("{loginset}-ssh-host-keys")
}

/// `<service>.<namespace>`: resolves in every pod of the Kubernetes cluster.
pub fn service_host(service: &str, namespace: &str) -> String {
    format!("{service}.{namespace}")
}

/// `<service>.<namespace>.svc.<domain>`.
pub fn service_fqdn(service: &str, namespace: &str, cluster_domain: &str) -> String {
    format!("{service}.{namespace}.svc.{cluster_domain}")
}

/// The cluster's domain from a pod's resolv.conf: the kubelet puts `svc.<domain>` into its search path.
pub fn cluster_domain(resolv_conf: &str) -> &str {
    resolv_conf
        .lines()
        .filter_map(|line| line.strip_prefix("search").filter(|rest| rest.starts_with([' ', '\t'])))
        .flat_map(str::split_whitespace)
        .find_map(|domain| domain.strip_prefix("svc."))
        .unwrap_or(DEFAULT_CLUSTER_DOMAIN)
}

/// Longest name of an object (a DNS subdomain).
const LONGEST_OBJECT_NAME: usize = 253;
/// Longest name of a StatefulSet: its pods have a label of at most 63 characters with the name, a dash and a hash of ten
/// characters.
const LONGEST_STATEFUL_SET_NAME: usize = 52;
/// Longest key in a ConfigMap or Secret.
const LONGEST_DATA_KEY: usize = 253;

/// Checks the name of a Secret, ConfigMap or pod; the error says what is wrong.
pub fn check_object_name(name: &str) -> Result<(), &'static str> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() > LONGEST_OBJECT_NAME {
        return Err("longer than 253 characters");
    }
    if name.split('.').any(|part| part.is_empty() || part.starts_with('-') || part.ends_with('-')) {
        return Err("each part between dots must start and end with a letter or digit");
    }
    if name.chars().any(|c| !inner(c) && c != '.') {
        return Err("only lower-case letters, digits, '-' and '.' are allowed");
    }
    Ok(())
}

/// Longest part of a DNS name between dots, and longest value of a Kubernetes label.
pub const LONGEST_LABEL: usize = 63;

/// Checks the hostname of a pod; the error says what is wrong.
pub fn check_hostname(name: &str) -> Result<(), &'static str> {
    if name.contains('.') { Err("it must not contain dots") } else { check_label_value(name) }
}

/// Checks an object name that is also the value of a label; the error says what is wrong.
pub fn check_label_value(name: &str) -> Result<(), &'static str> {
    if name.len() > LONGEST_LABEL { Err("longer than 63 characters") } else { check_object_name(name) }
}

/// Checks the name of a StatefulSet and its Service; the error says what is wrong.
pub fn check_stateful_set_name(name: &str) -> Result<(), &'static str> {
    if name.len() > LONGEST_STATEFUL_SET_NAME {
        return Err("longer than 52 characters: pods have it in a label, followed by a hash");
    }
    if name.contains('.') {
        return Err("the name of a Service has no dots");
    }
    check_object_name(name)
}

/// True if the text is a valid key in a ConfigMap or Secret.
pub fn is_data_key(key: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !key.is_empty() && key.len() <= LONGEST_DATA_KEY && key != "." && key != ".." && key.chars().all(allowed)
}

/// The address of an external daemon is neither a host name nor an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHost(String);

impl std::error::Error for InvalidHost {}

impl std::fmt::Display for InvalidHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "externalConfig.host must be a host name or an IP address, which {:?} is not", self.0)
    }
}

/// Checks the address of an external daemon.
pub fn check_host(host: &str) -> Result<(), InvalidHost> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = bare.unwrap_or(host).parse::<std::net::Ipv6Addr>().is_ok();
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        !part.is_empty() && !part.starts_with('-') && part.chars().all(allowed)
    };
    // A name may end in a dot, which makes it absolute.
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_name = name.len() <= LONGEST_OBJECT_NAME && name.split('.').all(is_part);
    if is_address || is_name { Ok(()) } else { Err(InvalidHost(host.to_owned())) }
}

impl Controller {
    /// Name of the Slurm cluster.
    pub fn cluster_name(&self) -> String {
        match &self.spec.cluster_name {
            Some(name) if !name.is_empty() => name.clone(),
            _ => format!("{}_{}", self.namespace().unwrap_or_default(), self.name_any()),
        }
    }

    /// `host:port` where configless daemons fetch their configuration. The images of daemons evaluate it in a shell.
    pub fn config_server(&self) -> Result<String, InvalidHost> {
        match &self.spec.external_config {
            Some(external) if self.spec.external => {
                check_host(&external.host)?;
                Ok(format!("{}:{}", external.host, external.port))
            }
            // The Service has this port besides the one of `service.port`.
            _ => {
                let service = controller::workload(&self.name_any());
                let host = service_host(&service, &self.namespace().unwrap_or_default());
                Ok(format!("{host}:{SLURMCTLD_PORT}"))
            }
        }
    }
}

impl NodeSetSpec {
    /// The hostname in the pod template, as the user wrote it.
    pub fn template_hostname(&self) -> Option<&str> {
        self.template.as_ref()?.spec.as_value().get("hostname")?.as_str()
    }

    /// The user's prefix of host names, without blanks.
    fn hostname_prefix(&self) -> Option<&str> {
        self.template_hostname()?.split_whitespace().next()
    }
}

impl NodeSet {
    /// The name of this NodeSet's node set, partition and feature in Slurm.
    pub fn slurm_name(&self) -> String {
        let name = self.spec.hostname_prefix().map_or("", |prefix| prefix.trim_matches('-'));
        if name.is_empty() { self.name_any() } else { name.to_owned() }
    }

    /// An ordinal as it is written in names.
    pub fn padded_ordinal(&self, ordinal: i32) -> String {
        format!("{ordinal:0width$}", width = self.spec.padding())
    }

    /// Name of a numbered pod.
    pub fn pod_name(&self, ordinal: i32) -> String {
        format!("{}-{}", self.name_any(), self.padded_ordinal(ordinal))
    }

    /// Hostname of a numbered pod, hence of the Slurm node.
    pub fn pod_hostname(&self, ordinal: i32) -> String {
        match self.spec.hostname_prefix() {
            Some(prefix) => format!("{prefix}{}", self.padded_ordinal(ordinal)),
            None => self.pod_name(ordinal),
        }
    }

    /// Name of a pod's PersistentVolumeClaim; `pod` is the padded ordinal, or the hostname with scaling mode DaemonSet.
    pub fn claim_name(&self, template: &str, pod: &str) -> String {
        format!("{template}-{}-{pod}", self.name_any())
    }
}

impl TokenSpec {
    /// The key in the Secret that holds the token.
    pub fn secret_key(&self) -> &str {
        match &self.secret_ref {
            Some(secret) if !secret.key.is_empty() => &secret.key,
            _ => DEFAULT_TOKEN_KEY,
        }
    }
}

impl Token {
    /// Name of the Secret that holds the token.
    pub fn secret_name(&self) -> String {
        match &self.spec.secret_ref {
            Some(secret) if !secret.name.is_empty() => secret.name.clone(),
            _ => format!("{}-jwt-{}", self.name_any(), self.spec.username),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn nodeset(hostname: &str, padding: i64) -> NodeSet {
        serde_json::from_value(json!({
            "metadata": { "name": "gpu" },
            "spec": {
                "controllerRef": {},
                "ordinalPadding": padding,
                "template": { "spec": { "hostname": hostname } },
            },
        }))
        .unwrap()
    }

    #[rstest]
    #[case::not_set("", 0, "gpu", "gpu-7", "gpu-7")]
    #[case::dash_only_in_host_names("foo-", 0, "foo", "gpu-7", "foo-7")]
    #[case::padding("foo-", 3, "foo", "gpu-007", "foo-007")]
    #[case::first_word_is_used(" a b ", 0, "a", "gpu-7", "a7")]
    #[case::only_blanks("  ", 0, "gpu", "gpu-7", "gpu-7")]
    #[case::only_dashes("--", 0, "gpu", "gpu-7", "--7")]
    #[case::negative_padding("", -5, "gpu", "gpu-7", "gpu-7")]
    fn nodeset_names_follow_hostname_prefix_and_padding(
        #[case] hostname: &str,
        #[case] padding: i64,
        #[case] slurm_name: &str,
        #[case] pod: &str,
        #[case] host: &str,
    ) {
        let nodeset = nodeset(hostname, padding);
        assert_eq!(nodeset.slurm_name(), slurm_name);
        assert_eq!((nodeset.pod_name(7).as_str(), nodeset.pod_hostname(7).as_str()), (pod, host));
    }

    #[test]
    fn padding_is_limited_to_63_digits() {
        assert_eq!(nodeset("", i64::MAX).padded_ordinal(1).len(), 63);
    }

    #[rstest]
    #[case::pod("nameserver 10.0.0.10\nsearch ns.svc.foo.local svc.foo.local foo.local\n", "foo.local")]
    #[case::no_search_path("nameserver 1.1.1.1\n", DEFAULT_CLUSTER_DOMAIN)]
    #[case::empty_search("search\n", DEFAULT_CLUSTER_DOMAIN)]
    #[case::other_keyword("searchsvc.bar svc.bar\n", DEFAULT_CLUSTER_DOMAIN)]
    #[case::tabs("search\tsvc.tab.local", "tab.local")]
    fn cluster_domain_comes_from_the_search_path(#[case] resolv_conf: &str, #[case] domain: &str) {
        assert_eq!(cluster_domain(resolv_conf), domain);
    }

    #[rstest]
    #[case::plain("t-jwt-alice", true)]
    #[case::dots("a.b-c", true)]
    #[case::empty("", false)]
    #[case::capital("Alice", false)]
    #[case::underscore("a_b", false)]
    #[case::trailing_dash("t-jwt-", false)]
    #[case::empty_part("a..b", false)]
    #[case::longest(&"a".repeat(253), true)]
    #[case::too_long(&"a".repeat(254), false)]
    fn object_names_are_checked(#[case] name: &str, #[case] valid: bool) {
        assert_eq!(check_object_name(name).is_ok(), valid);
    }

    #[rstest]
    #[case::plain("a-accounting", true)]
    #[case::longest(&"a".repeat(52), true)]
    #[case::too_long(&"a".repeat(53), false)]
    #[case::dots("a.b-accounting", false)]
    #[case::invalid_character("A", false)]
    fn stateful_set_names_are_checked(#[case] name: &str, #[case] valid: bool) {
        assert_eq!(check_stateful_set_name(name).is_ok(), valid);
    }

    #[rstest]
    #[case::usual("SLURM_JWT", true)]
    #[case::dotfile(".key", true)]
    #[case::directory("..", false)]
    #[case::slash("a/b", false)]
    #[case::empty("", false)]
    fn data_keys_are_checked(#[case] key: &str, #[case] valid: bool) {
        assert_eq!(is_data_key(key), valid);
    }

    #[rstest]
    #[case::name("ctl-0.example.com", true)]
    #[case::absolute_name("ctl.example.com.", true)]
    #[case::underscore("slurm_ctl", true)]
    #[case::ipv4("10.1.2.3", true)]
    #[case::ipv6("fd00::1", true)]
    #[case::ipv6_in_brackets("[fd00::1]", true)]
    #[case::empty("", false)]
    #[case::command("h;reboot", false)]
    #[case::substitution("$(id)", false)]
    #[case::blank("h -x", false)]
    #[case::option("-x", false)]
    #[case::pattern("[a-z]", false)]
    #[case::port("h:6817", false)]
    #[case::list("a,b", false)]
    #[case::line_break("h\n", false)]
    fn hosts_are_names_or_addresses(#[case] host: &str, #[case] valid: bool) {
        assert_eq!(check_host(host).is_ok(), valid);
    }

    #[test]
    fn external_controller_uses_its_configured_address() {
        let mut controller: Controller = serde_json::from_value(json!({
            "metadata": { "name": "a", "namespace": "ns" },
            "spec": { "externalConfig": { "host": "ctl.example", "port": 7000 } },
        }))
        .unwrap();
        assert_eq!(controller.config_server().unwrap(), "a-controller.ns:6817");
        controller.spec.external = true;
        assert_eq!(controller.config_server().unwrap(), "ctl.example:7000");
        assert_eq!(controller.cluster_name(), "ns_a");
    }
}
