//! Properties of every plan in DaemonSet mode.

use super::cluster_model::ClusterModel;
use super::properties::{Case, case, pod};
use crate::plan::daemons::target_of;
use crate::plan::effect::{Effect, Evidence};
use crate::plan::fixture::Fixture;
use crate::plan::testing::merge;
use crate::plan::{NewPod, Plan};
use crate::slurm::NodeLookup;
use crate::worker::Worker;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Number of Kubernetes nodes besides `node-a`.
const HOSTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Fits,
    Cordoned,
    Tainted,
    Deleted,
}

/// Kubernetes nodes, and pods bound to one of them or created for it.
fn hosts_and_pods() -> impl Strategy<Value = (Vec<Host>, Vec<(usize, Case)>)> {
    let hosts = select(vec![Host::Fits, Host::Fits, Host::Cordoned, Host::Tainted, Host::Deleted]);
    (prop::collection::vec(hosts, HOSTS), prop::collection::vec((0..HOSTS, case()), 0..5))
}

fn host_name(host: usize) -> String {
    format!("n{host}")
}

fn on(host: usize, case: &Case) -> Value {
    let name = host_name(host);
    let mut daemon = json!({
        "metadata": { "generateName": "gpu-", "labels": { "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet",
            "nodeset.slinky.slurm.net/pod-hostname": name } },
        "spec": { "hostname": name, "nodeName": name },
    });
    if case.status == "pending" {
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [name] });
        let terms = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
        daemon["spec"]["nodeName"] = json!("");
        daemon["spec"]["affinity"] =
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
    }
    merge(&mut daemon, &pod(case));
    daemon
}

fn fixture(hosts: &[Host], pods: &[(usize, Case)]) -> Fixture {
    let mut fixture = Fixture::new(&json!({ "scalingMode": "DaemonSet" }));
    for (number, host) in hosts.iter().enumerate() {
        let change = match host {
            Host::Fits => json!({}),
            Host::Cordoned => json!({ "spec": { "unschedulable": true,
                "taints": [{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }] } }),
            Host::Tainted => json!({ "spec": { "taints": [{ "key": "mine", "effect": "NoExecute" }] } }),
            Host::Deleted => continue,
        };
        fixture = fixture.host(&host_name(number), &change);
    }
    for (number, (host, case)) in pods.iter().enumerate() {
        fixture = fixture.worker(&format!("gpu-x{number}"), &on(*host, case));
        if let Some(states) = case.slurm {
            fixture = fixture.slurm(&host_name(*host), states, case.reason);
        }
    }
    fixture
}

fn target(new: &NewPod) -> String {
    let pod: Pod = serde_json::from_value(new.pod.clone()).unwrap();
    target_of(&pod).unwrap().to_owned()
}

fn created(plan: &Plan) -> Vec<String> {
    let created = plan.effects.iter().filter_map(|effect| {
        let Effect::CreatePod(new) = effect else { return None };
        Some(target(new))
    });
    created.collect()
}

fn worker<'a>(plan: &'a Plan, name: &str) -> &'a Worker {
    plan.workers.iter().find(|worker| worker.name() == name).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn only_fitting_nodes_get_one_worker((hosts, pods) in hosts_and_pods()) {
        let plan = fixture(&hosts, &pods).plan();
        let created = created(&plan);
        prop_assert_eq!(created.iter().collect::<BTreeSet<_>>().len(), created.len(), "{:?}", created);
        for host in created.iter().filter(|name| *name != "node-a") {
            let number = (0..HOSTS).find(|number| host_name(*number) == *host).unwrap();
            prop_assert!(matches!(hosts[number], Host::Fits | Host::Cordoned), "{:?}", hosts[number]);
            let present = plan.workers.iter().filter(|worker| target_of(&worker.pod) == Some(host.as_str()));
            prop_assert!(present.into_iter().all(|worker| worker.terminating && worker.is_finished()));
        }
    }

    #[test]
    fn worker_with_job_is_never_deleted((hosts, pods) in hosts_and_pods()) {
        let fixture = fixture(&hosts, &pods);
        let plan = fixture.plan();
        for effect in &plan.effects {
            let Effect::DeletePod(deletion) = effect else { continue };
            let worker = worker(&plan, &deletion.pod.name);
            match (&deletion.evidence, fixture.observed.slurm.lookup(&worker.slurm_name)) {
                (Evidence::Drained { .. }, NodeLookup::Present(node)) => prop_assert!(node.is_drained()),
                (Evidence::Absent { .. }, NodeLookup::Absent) => prop_assert!(!worker.was_busy()),
                (Evidence::NotNeeded, _) => {
                    prop_assert!(worker.is_finished() || (!worker.started && !worker.was_registered())
                        || worker.node.is_none());
                }
                (evidence, lookup) => prop_assert!(false, "{evidence:?} with {lookup:?}"),
            }
        }
    }

    #[test]
    fn unreachable_slurm_protects_started_workers((hosts, pods) in hosts_and_pods()) {
        let plan = fixture(&hosts, &pods).unknown().plan();
        for effect in &plan.effects {
            if let Effect::DeletePod(deletion) = effect {
                let worker = worker(&plan, &deletion.pod.name);
                prop_assert!(worker.is_finished() || !worker.started, "{deletion:?}");
            } else {
                prop_assert!(effect.is_create(), "{effect:?}");
            }
        }
    }

    #[test]
    fn plan_is_independent_of_pod_order((hosts, pods) in hosts_and_pods(), seed in any::<u64>()) {
        let mut fixture = fixture(&hosts, &pods);
        let summary = |fixture: &Fixture| {
            let plan = fixture.plan();
            format!("{:?}{:?}{:?}{:?}", plan.effects, plan.pod_mirrors, plan.node_mirrors, plan.waiting)
        };
        let before = summary(&fixture);
        let count = fixture.observed.pods.len().max(1);
        fixture.observed.pods.rotate_left(usize::try_from(seed % 7).unwrap() % count);
        fixture.observed.pods.reverse();
        prop_assert_eq!(before, summary(&fixture));
    }

    #[test]
    fn every_fitting_node_ends_with_one_worker((hosts, pods) in hosts_and_pods()) {
        let mut model = ClusterModel::of(fixture(&hosts, &pods));
        let plan = model.converge(40).map_err(TestCaseError::fail)?;
        for (number, host) in hosts.iter().enumerate() {
            let name = host_name(number);
            let present: Vec<_> = plan.workers.iter().filter(|worker| worker.node.as_ref() == Some(&name)).collect();
            let waits = |worker: &&&Worker| plan.waiting.iter().any(|waiting| waiting.pod == worker.name());
            let staying = present.iter().filter(|worker| !waits(worker)).count();
            match host {
                Host::Fits => prop_assert!(!present.is_empty() && staying <= 1, "{name}: {present:?}"),
                Host::Cordoned => prop_assert!(staying <= 1, "{name}: {present:?}"),
                Host::Tainted => prop_assert_eq!(staying, 0, "{}: {:?}", name, present),
                Host::Deleted => {}
            }
        }
    }
}
