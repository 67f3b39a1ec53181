//! What holds for every plan with one worker on each Kubernetes node that fits.

use super::course::Course;
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

/// How many Kubernetes nodes there may be, apart from `node-a`.
const HOSTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Fits,
    Cordoned,
    Repels,
    Gone,
}

/// Kubernetes nodes, and pods that each are on one of them, or wait for it.
fn world() -> impl Strategy<Value = (Vec<Host>, Vec<(usize, Case)>)> {
    let hosts = select(vec![Host::Fits, Host::Fits, Host::Cordoned, Host::Repels, Host::Gone]);
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
            Host::Repels => json!({ "spec": { "taints": [{ "key": "mine", "effect": "NoExecute" }] } }),
            Host::Gone => continue,
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
    let news = plan.effects.iter().filter_map(|effect| {
        let Effect::CreatePod(new) = effect else { return None };
        Some(target(new))
    });
    news.collect()
}

fn worker<'a>(plan: &'a Plan, name: &str) -> &'a Worker {
    plan.workers.iter().find(|worker| worker.name() == name).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_node_gets_one_worker_and_only_if_it_fits((hosts, pods) in world()) {
        let plan = fixture(&hosts, &pods).plan();
        let created = created(&plan);
        prop_assert_eq!(created.iter().collect::<BTreeSet<_>>().len(), created.len(), "{:?}", created);
        for host in created.iter().filter(|name| *name != "node-a") {
            let number = (0..HOSTS).find(|number| host_name(*number) == *host).unwrap();
            prop_assert_eq!(hosts[number], Host::Fits);
            let there = plan.workers.iter().filter(|worker| target_of(&worker.pod) == Some(host.as_str()));
            prop_assert!(there.into_iter().all(|worker| worker.terminating && worker.is_finished()));
        }
    }

    #[test]
    fn no_worker_with_a_job_is_deleted((hosts, pods) in world()) {
        let fixture = fixture(&hosts, &pods);
        let plan = fixture.plan();
        for effect in &plan.effects {
            let Effect::DeletePod(removal) = effect else { continue };
            let worker = worker(&plan, &removal.pod.name);
            match (&removal.evidence, fixture.observed.slurm.lookup(&worker.slurm_name)) {
                (Evidence::Drained(_), NodeLookup::Present(node)) => prop_assert!(node.is_drained()),
                (Evidence::Absent(_), NodeLookup::Absent) => prop_assert!(!worker.was_busy()),
                (Evidence::NotNeeded, _) => {
                    prop_assert!(worker.is_finished() || (!worker.started && !worker.was_registered())
                        || worker.node.is_none());
                }
                (evidence, lookup) => prop_assert!(false, "{evidence:?} with {lookup:?}"),
            }
        }
    }

    #[test]
    fn without_word_from_slurm_no_worker_is_touched((hosts, pods) in world()) {
        let plan = fixture(&hosts, &pods).unknown().plan();
        for effect in &plan.effects {
            if let Effect::DeletePod(removal) = effect {
                let worker = worker(&plan, &removal.pod.name);
                prop_assert!(worker.is_finished() || !worker.started, "{removal:?}");
            } else {
                prop_assert!(effect.is_create(), "{effect:?}");
            }
        }
    }

    #[test]
    fn the_order_of_pods_decides_nothing((hosts, pods) in world(), seed in any::<u64>()) {
        let mut fixture = fixture(&hosts, &pods);
        let told = |fixture: &Fixture| {
            let plan = fixture.plan();
            format!("{:?}{:?}{:?}{:?}", plan.effects, plan.pod_mirrors, plan.node_mirrors, plan.waiting)
        };
        let before = told(&fixture);
        let count = fixture.observed.pods.len().max(1);
        fixture.observed.pods.rotate_left(usize::try_from(seed % 7).unwrap() % count);
        fixture.observed.pods.reverse();
        prop_assert_eq!(before, told(&fixture));
    }

    #[test]
    fn every_node_that_fits_has_one_worker_in_the_end((hosts, pods) in world()) {
        let mut course = Course::of(fixture(&hosts, &pods));
        let plan = course.until_rest(40).map_err(TestCaseError::fail)?;
        for (number, host) in hosts.iter().enumerate() {
            let name = host_name(number);
            let there: Vec<_> = plan.workers.iter().filter(|worker| worker.node.as_ref() == Some(&name)).collect();
            let waits = |worker: &&&Worker| plan.waiting.iter().any(|waiting| waiting.pod == worker.name());
            let staying = there.iter().filter(|worker| !waits(worker)).count();
            match host {
                Host::Fits => prop_assert!(!there.is_empty() && staying <= 1, "{name}: {there:?}"),
                Host::Cordoned => prop_assert!(staying <= 1, "{name}: {there:?}"),
                Host::Repels => prop_assert_eq!(staying, 0, "{}: {:?}", name, there),
                Host::Gone => {}
            }
        }
    }
}
