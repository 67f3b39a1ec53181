//! The plan for complete, incomplete and changed inputs.

mod confirmation;
mod messages;
mod pods;
mod refusals;
mod user_files;

use super::*;
use crate::build::{ConfigError, Files};
use crate::fixture::{
    DELAY, config_map, controller, high_availability, node_set, observed, running, second, secret,
    stateful_set, with_configured,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, MissingReference};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::v1beta1::Controller;
use std::time::Duration;

fn plan_now(observed: &Observed) -> Plan {
    plan(observed, second(0))
}

/// The files that are rendered for a Controller.
fn files(change: &Value) -> Files {
    config_of(&plan_now(&observed(change))).data.clone().unwrap()
}

/// The ConfigMap that a plan applies.
fn config_of(plan: &Plan) -> &ConfigMap {
    let mut configs = plan
        .steps
        .iter()
        .filter_map(|step| if let Step::ApplyConfig(config) = step { Some(config.as_ref()) } else { None });
    configs.next().expect("the configuration is always applied")
}

fn decision(plan: &Plan) -> &Decision {
    &plan.config.as_ref().unwrap().decision
}

/// The obstacle of a step.
fn obstacle<'a>(plan: &'a Plan, step: &str) -> Option<&'a Obstacle> {
    plan.obstacles.iter().find(|(name, _)| *name == step).map(|(_, obstacle)| obstacle)
}

/// The StatefulSet that a plan applies.
fn applied_set(plan: &Plan) -> Option<&RawObject<StatefulSet>> {
    plan.steps
        .iter()
        .find_map(|step| if let Step::ApplyStatefulSet(set) = step { Some(set.as_ref()) } else { None })
}

/// True if a plan leaves the StatefulSet as it is, without an obstacle.
fn leaves_stateful_set(plan: &Plan) -> bool {
    let is_written = |step: &Step| matches!(step, Step::ApplyStatefulSet(_) | Step::OrphanPods(_));
    !plan.steps.iter().any(is_written) && obstacle(plan, "StatefulSet").is_none()
}

fn applies_services(plan: &Plan) -> bool {
    let has = |is_step: fn(&Step) -> bool| plan.steps.iter().any(is_step);
    has(|step| matches!(step, Step::ApplyService(_)))
        && has(|step| matches!(step, Step::ApplyInternalService(_)))
}

fn missing() -> Arc<ReferenceError> {
    Arc::new(MissingReference::Secret("missing".to_owned()).into())
}

#[test]
fn all_children_of_a_complete_controller_are_applied_at_once() {
    let plan = plan_now(&observed(&json!({})));
    assert_eq!(*decision(&plan), Decision::Write(None));
    assert!(config_of(&plan).data.as_ref().unwrap().contains_key("slurm.conf"));
    assert!(applies_services(&plan) && applied_set(&plan).is_some());
    assert_eq!((plan.pending, plan.obstacles.len()), (None, 0));
}

#[test]
fn change_waits_and_is_checked_while_slurmctld_runs_on() {
    let old = files(&json!({}));
    let change = json!({ "extraConf": "MinJobAge=2" });
    let first = plan_now(&running(&change, &old));
    assert_eq!((decision(&first), &config_of(&first).data), (&Decision::Settle(DELAY), &Some(old.clone())));
    assert!(leaves_stateful_set(&first));

    let waited = Observed { pending: first.pending, ..running(&change, &old) };
    let second_plan = plan(&waited, second(5));
    assert_eq!((decision(&second_plan), &config_of(&second_plan).data), (&Decision::Check, &Some(old)));
    assert!(leaves_stateful_set(&second_plan));
    let created = second_plan.steps.iter().find_map(|step| {
        if let Step::CreateCheck { candidate, pod } = step { Some((candidate, pod)) } else { None }
    });
    let (candidate, pod) = created.unwrap();
    assert!(candidate.data.as_ref().unwrap()["slurm.conf"].contains("MinJobAge=2"));
    let image = pod.as_json().pointer("/spec/containers/0/image");
    assert_eq!(image, Some(&json!("slurmctld:26.05")));

    let mut succeeded: Pod = serde_json::from_value(pod.as_json().clone()).unwrap();
    succeeded.status = serde_json::from_value(json!({ "phase": "Succeeded" })).unwrap();
    let checked = Observed { check: Some(Arc::new(succeeded)), ..waited };
    let third = plan(&checked, second(6));
    assert_eq!((decision(&third), &config_of(&third).data), (&Decision::Write(None), &candidate.data));
    assert!(applied_set(&third).is_some());
    assert!(third.steps.iter().any(|step| matches!(step, Step::DeleteCheckPod(_))));
}

/// A check pod of an earlier change, controlled by the object with this UID.
fn check_pod(owner: &str) -> Arc<Pod> {
    let owner = json!({ "apiVersion": "slinky.slurm.net/v1beta1", "kind": "Controller", "name": "slurm",
        "uid": owner, "controller": true });
    Arc::new(serde_json::from_value(json!({ "metadata": { "ownerReferences": [owner] } })).unwrap())
}

#[test]
fn check_pod_of_an_earlier_change_is_deleted_before_a_new_one_is_created() {
    let change = json!({ "extraConf": "MinJobAge=2" });
    let first = plan_now(&running(&change, &files(&json!({}))));
    let outdated = Observed {
        pending: first.pending,
        check: Some(check_pod("u")),
        ..running(&change, &files(&json!({})))
    };
    let plan = plan(&outdated, second(5));
    assert_eq!(*decision(&plan), Decision::Check);
    assert!(plan.steps.iter().any(|step| matches!(step, Step::DeleteCheckPod(_))));
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::CreateCheck { .. })));

    let foreign = Observed { check: Some(check_pod("another")), ..outdated };
    let plan = super::plan(&foreign, second(5));
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::DeleteCheckPod(_))));
    assert!(plan.steps.iter().any(|step| matches!(step, Step::CreateCheck { .. })), "which is rejected");
}

#[rstest]
#[case::never_ran(None, Decision::Write(None))]
#[case::first_start(Some("Starting"), Decision::Write(None))]
#[case::restart(Some("Applied"), Decision::Settle(DELAY))]
#[case::restart_during_a_check(Some("Checking"), Decision::Settle(DELAY))]
fn change_during_a_restart_of_slurmctld_is_checked(#[case] reason: Option<&str>, #[case] expected: Decision) {
    let mut controller = controller(&json!({ "extraConf": "MinJobAge=2" }));
    if let Some(reason) = reason {
        controller = with_configured(controller, reason, "", second(-60));
    }
    let observed = Observed {
        controller: Arc::new(controller),
        pods: vec![crate::fixture::pod(0, false, &json!({}))],
        ..running(&json!({}), &files(&json!({})))
    };
    assert_eq!(*decision(&plan_now(&observed)), expected);
}

#[test]
fn changed_key_changes_the_pod_template() {
    let template = |key: &str| {
        let observed = Observed { slurm_key: Ok(secret("slurm.key", key)), ..observed(&json!({})) };
        applied_set(&plan_now(&observed)).unwrap().as_json()["spec"]["template"].clone()
    };
    assert_eq!(template("a"), template("a"));
    assert_ne!(template("a"), template("b"));
}

#[rstest]
#[case::ours(json!({ "serviceName": "slurm-controller" }), true, true)]
#[case::current_form(json!({}), true, false)]
#[case::foreign_owner(json!({ "serviceName": "slurm-controller" }), false, false)]
fn only_an_owned_stateful_set_of_an_older_form_is_recreated(
    #[case] spec: Value,
    #[case] is_ours: bool,
    #[case] is_recreated: bool,
) {
    let mut live = stateful_set(&spec, true).as_json().clone();
    if !is_ours {
        live["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    }
    let plan_over = |live: &Value| {
        let live = Some(Arc::new(RawObject::new(live.clone()).unwrap()));
        plan_now(&Observed { stateful_set: live, ..observed(&json!({})) })
    };
    let plan = plan_over(&live);
    let is_orphaned = plan.steps.iter().any(|step| matches!(step, Step::OrphanPods(_)));
    // The API server refuses a second controller, so a foreign StatefulSet is never changed.
    assert_eq!((is_orphaned, applied_set(&plan).is_some()), (is_recreated, !is_recreated));
    live["metadata"]["deletionTimestamp"] = json!(second(0).to_string());
    assert_eq!(leaves_stateful_set(&plan_over(&live)), is_recreated, "its deletion is awaited");
}

#[rstest]
#[case::slurm_key(Observed { slurm_key: Err(missing()), ..observed(&json!({})) }, "SecretMissing")]
#[case::jwt_key(Observed { jwt_key: Err(missing()), ..observed(&json!({})) }, "SecretMissing")]
#[case::no_shared_claim(observed(&json!({ "ha": { "enabled": true } })), "InvalidSpec")]
#[case::claim_of_one_pod(
    Observed { shared_claim: Ok(Some(claim("ReadWriteOnce"))), ..observed(&high_availability()) },
    "ClaimNotShared"
)]
#[case::unreadable_claim(
    Observed { shared_claim: Err(missing()), ..observed(&high_availability()) },
    "SecretMissing"
)]
#[case::claim_template(
    Observed {
        stateful_set: Some(Arc::new(stateful_set(&json!({ "volumeClaimTemplates": [{}] }), true))),
        ..observed(&high_availability())
    },
    "InvalidSpec"
)]
#[case::ill_typed(observed(&json!({ "slurmctld": { "image": 5 } })), "InvalidSpec")]
fn obstacle_of_the_stateful_set_stops_no_other_child(#[case] observed: Observed, #[case] category: &str) {
    let plan = plan_now(&observed);
    assert!(plan.config.is_some() && applies_services(&plan) && applied_set(&plan).is_none());
    assert_eq!(plan.obstacles.len(), 1, "{:?}", plan.obstacles);
    assert_eq!(obstacle(&plan, "StatefulSet").map(Classify::category), Some(category));
}

fn claim(mode: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({ "spec": { "accessModes": [mode] } })).unwrap()
}

#[test]
fn changed_cluster_name_reaches_neither_configuration_nor_pods_of_a_running_cluster() {
    let change =
        json!({ "clusterName": "other", "extraConf": "MinJobAge=2", "slurmctld": { "image": "new" } });
    let old = files(&json!({}));
    let plan = plan_now(&running(&change, &old));
    let config = plan.config.as_ref().unwrap();
    assert_eq!(config.decision, Decision::Settle(DELAY), "other changes go on");
    assert!(config.ignored_name.as_ref().unwrap().contains("\"ns_slurm\" to \"other\""));

    let same = running(&json!({ "clusterName": "other", "slurmctld": { "image": "new" } }), &old);
    let set = applied_set(&plan_now(&same)).unwrap().as_json().clone();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "new");
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/var/spool/slurmctld/ns_slurm"), "{mounts:?}");
}

#[rstest]
#[case::without_size(json!({}), json!([{}]), Some("ClaimWithoutSize"), false)]
#[case::gets_size(json!({ "persistence": { "resources": { "requests": { "storage": "1Gi" } } } }), json!([{}]),
    Some("ClaimWithoutSize"), true)]
#[case::with_size(json!({}), json!([{ "spec": { "resources": { "requests": { "storage": "1Gi" } } } }]), None, false)]
fn claim_without_size_is_named_and_its_stateful_set_recreated_with_one(
    #[case] change: Value,
    #[case] templates: Value,
    #[case] reason: Option<&str>,
    #[case] is_recreated: bool,
) {
    let live = stateful_set(&json!({ "volumeClaimTemplates": templates }), false);
    let without_pods = Observed { stateful_set: Some(Arc::new(live)), ..observed(&change) };
    let plan = plan_now(&without_pods);
    assert_eq!(plan.persistence.map(|problem| problem.reason), reason);
    assert_eq!(plan.steps.iter().any(|step| matches!(step, Step::OrphanPods(_))), is_recreated);
    let with_pod = Observed { pods: vec![crate::fixture::pod(0, false, &json!({}))], ..without_pods };
    let plan = plan_now(&with_pod);
    assert_eq!(plan.persistence, None, "an existing claim of that name needs no size");
    assert!(applied_set(&plan).is_some());
}

#[rstest]
#[case::absent(None)]
#[case::shared(Some("ReadWriteMany"))]
fn shared_claim_may_be_created_later(#[case] mode: Option<&str>) {
    let observed = Observed { shared_claim: Ok(mode.map(claim)), ..observed(&high_availability()) };
    assert!(applied_set(&plan_now(&observed)).is_some());
}

#[rstest]
#[case::accounting(json!({ "accountingRef": { "name": "books" } }), "AccountingMissing", "Accounting books")]
#[case::config_map(json!({ "prologScriptRefs": [{ "name": "missing" }] }), "ConfigMapMissing", "ConfigMap missing")]
#[case::misnamed(json!({ "configFileRefs": [{ "name": "../x" }] }), "InvalidSpec", "\"../x\" cannot be the name")]
#[case::size(json!({ "extraConf": "#".repeat(1_100_000) }), "ConfigTooLarge", "1000000")]
#[case::refused(json!({ "extraConf": "words" }), "ConfigRefused", "slurm.conf")]
fn without_a_renderable_configuration_the_one_in_force_stays(
    #[case] change: Value,
    #[case] category: &str,
    #[case] text: &str,
) {
    let old = files(&json!({}));
    let new = plan_now(&observed(&change));
    let found = obstacle(&new, "Config").unwrap();
    assert_eq!(found.category(), category);
    assert!(found.to_string().contains(text), "{found}");
    assert!(matches!(obstacle(&new, "StatefulSet"), Some(Obstacle::Specific(ControllerObstacle::NoConfig))));

    let live = plan_now(&running(&change, &old));
    assert!(live.config.is_none() && leaves_stateful_set(&live));

    let deleted = Observed { stateful_set: None, ..running(&change, &old) };
    assert!(applied_set(&plan_now(&deleted)).is_some(), "slurmctld starts with the configuration in force");
}

#[rstest]
#[case::config_maps(|observed| Observed { config_maps: Err(missing()), ..observed })]
#[case::jwks(|observed| Observed { jwks: Err(missing()), ..observed })]
fn unreadable_files_of_the_user_do_not_count_as_missing(#[case] unreadable: fn(Observed) -> Observed) {
    let change = json!({ "configFileRefs": [{ "name": "files" }] });
    let unread = Observed {
        config_maps: Ok([("files".to_owned(), config_map(&[]))].into()),
        ..running(&change, &files(&json!({})))
    };
    let plan = plan_now(&unreadable(unread));
    assert!(matches!(obstacle(&plan, "Config"), Some(Obstacle::Reference(_))));
    assert!(leaves_stateful_set(&plan));
}

#[test]
fn refused_node_set_is_no_obstacle() {
    let bad = node_set("bad", 1, &json!({ "partition": { "enabled": true, "config": "A=1\nB=2" } }));
    let config = plan_now(&Observed { node_sets: vec![bad], ..observed(&json!({})) }).config.unwrap();
    assert_eq!((config.decision, config.refused_node_sets.len()), (Decision::Write(None), 1));
}

#[rstest]
#[case(MissingReference::ConfigMap(String::new()).into(), Class::Waiting(Duration::from_mins(5)))]
#[case(ControllerObstacle::NotShared("claim".to_owned()).into(), Class::Waiting(Duration::from_mins(1)))]
#[case(ControllerObstacle::NothingShared.into(), Class::Invalid)]
#[case(ControllerObstacle::OwnVolume.into(), Class::Invalid)]
#[case(ControllerObstacle::NoConfig.into(), Class::Invalid)]
#[case(ControllerObstacle::from(ConfigError::Refused(String::new())).into(), Class::Invalid)]
fn obstacle_is_retried_only_if_it_can_pass_without_an_edit(#[case] obstacle: Obstacle, #[case] class: Class) {
    assert_eq!(obstacle.class(), class);
}

#[rstest]
#[case::longest("c".repeat(41), None)]
#[case::too_long("c".repeat(42), Some("longer than 52 characters"))]
#[case::dots("a.b".to_owned(), Some("no dots"))]
fn name_that_no_stateful_set_can_have_blocks_every_child(
    #[case] name: String,
    #[case] problem: Option<&str>,
) {
    let mut controller = controller(&json!({}));
    controller.metadata.name = Some(name);
    let plan_of = |controller: &Controller| {
        plan_now(&Observed { controller: Arc::new(controller.clone()), ..observed(&json!({})) })
    };
    let plan = plan_of(&controller);
    assert_eq!(plan.steps.is_empty(), problem.is_some());
    let found = obstacle(&plan, "Plan");
    assert_eq!(found.map(Classify::category), problem.map(|_| "InvalidName"));
    let text = found.map(ToString::to_string).unwrap_or_default();
    assert!(text.contains(problem.unwrap_or_default()), "{text}");
    controller.spec.external = true;
    controller.spec.external_config = serde_json::from_value(json!({ "host": "h", "port": 1 })).unwrap();
    assert!(plan_of(&controller).config.is_some());
}

fn external() -> Value {
    json!({ "external": true, "externalConfig": { "host": "h", "port": 1 },
        "slurmKeyRef": null, "jwtKeyRef": null, "configFileRefs": [{ "name": "missing" }] })
}

#[test]
fn external_cluster_needs_only_its_configuration() {
    let absent = || Observed { slurm_key: Err(missing()), jwt_key: Err(missing()), ..observed(&external()) };
    let first = plan_now(&absent());
    assert!(matches!(first.steps.as_slice(), [Step::ApplyConfig(_)]) && first.obstacles.is_empty());
    assert_eq!(*decision(&first), Decision::Write(None));
    let written = Observed { config: Some(Arc::new(config_of(&first).clone())), ..absent() };
    assert_eq!(*decision(&plan_now(&written)), Decision::Keep);
}

#[test]
fn only_owned_daemons_of_a_cluster_that_became_external_are_deleted() {
    let is_deleted = |live: Value| {
        let stateful_set = Some(Arc::new(RawObject::new(live).unwrap()));
        let plan = plan_now(&Observed { stateful_set, ..observed(&external()) });
        plan.steps.iter().any(|step| matches!(step, Step::DeleteStatefulSet(_)))
    };
    let mut live = stateful_set(&json!({}), true).as_json().clone();
    assert!(is_deleted(live.clone()));
    live["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    assert!(!is_deleted(live));
}

#[test]
fn only_an_owned_service_monitor_is_deleted_when_it_is_disabled() {
    let monitor = |uid: &str| -> ServiceMonitor {
        let owner = json!({ "apiVersion": "slinky.slurm.net/v1beta1", "kind": "Controller", "name": "slurm",
            "uid": uid, "controller": true });
        let metadata = json!({ "name": "slurm-controller", "namespace": "ns", "ownerReferences": [owner] });
        serde_json::from_value(json!({ "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
            "metadata": metadata, "spec": {} }))
        .unwrap()
    };
    let plan_with = |monitor| plan_now(&Observed { service_monitor: monitor, ..observed(&json!({})) });
    let is_deleted = |uid: &str| {
        let plan = plan_with(Ok(Some(monitor(uid))));
        plan.steps.iter().any(|step| matches!(step, Step::DeleteServiceMonitor(_)))
    };
    assert!(is_deleted("u") && !is_deleted("another"));
    assert!(obstacle(&plan_with(Err(missing())), "ServiceMonitor").is_some());
}

#[rstest]
#[case::unchanged(json!({}), json!([{ "spec": { "storageClassName": "slow", "accessModes": ["ReadWriteOnce"] } }]), false)]
#[case::unset(json!({ "persistence": { "resources": {} } }), json!([{ "spec": { "storageClassName": "slow" } }]), false)]
#[case::other_class(json!({ "persistence": { "storageClassName": "fast" } }),
    json!([{ "spec": { "storageClassName": "slow" } }]), true)]
#[case::other_modes(json!({ "persistence": { "accessModes": ["ReadWriteMany"] } }),
    json!([{ "spec": { "accessModes": ["ReadWriteOnce"] } }]), true)]
#[case::disabled_later(json!({ "persistence": { "enabled": false } }), json!([{}]), true)]
#[case::existing_claim_later(json!({ "persistence": { "existingClaim": "mine" } }), json!([{}]), true)]
#[case::enabled_later(json!({}), json!(null), true)]
#[case::never_enabled(json!({ "persistence": { "enabled": false } }), json!(null), false)]
fn change_of_immutable_persistence_is_reported(
    #[case] change: Value,
    #[case] templates: Value,
    #[case] is_reported: bool,
) {
    let live = stateful_set(&json!({ "volumeClaimTemplates": templates }), true);
    let pods = vec![crate::fixture::pod(0, true, &json!({}))];
    let observed = Observed { stateful_set: Some(Arc::new(live)), pods, ..observed(&change) };
    assert_eq!(plan_now(&observed).persistence.is_some(), is_reported);
}

#[test]
fn persistence_can_change_while_there_is_no_stateful_set() {
    assert_eq!(plan_now(&observed(&json!({ "persistence": { "enabled": false } }))).persistence, None);
}

#[test]
fn config_hash_includes_the_files_of_the_user() {
    let hash = |text: &str| {
        let config_maps = Ok([("files".to_owned(), config_map(&[("gres.conf", text)]))].into());
        let change = json!({ "configFileRefs": [{ "name": "files" }] });
        plan_now(&Observed { config_maps, ..observed(&change) }).config.unwrap().hash
    };
    assert_eq!(hash("a"), hash("a"));
    assert_ne!(hash("a"), hash("b"));
}
