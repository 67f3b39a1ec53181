//! Everything there, something missing, something changed: what is planned.

use super::pods::POD_REVISION;
use super::*;
use crate::build::ConfigError;
use crate::fixture::{
    config_map, controller, high_availability, node_set, observed, pod, running, second, secret,
    stateful_set, told,
};
use crate::observe::Report;
use operator_runtime::{Class, Classify};
use rstest::rstest;
use serde_json::json;
use slinky_api::labels::{CONTROLLER_ACTIVE, annotations};

const DELAY: Duration = Duration::from_secs(5);

fn plan_at(controller: &Controller, observed: &Observed, now: i64) -> Plan {
    plan(controller, observed, DELAY, second(now)).unwrap()
}

fn plan_for(change: &Value, observed: &Observed) -> Plan {
    plan_at(&controller(change), observed, 0)
}

fn daemons(change: &Value, observed: &Observed) -> Daemons {
    plan_for(change, observed).daemons.unwrap()
}

fn marks_of(change: &Value, observed: &Observed) -> Vec<(String, bool)> {
    daemons(change, observed).marks
}

/// The files that a Controller comes to.
fn files(change: &Value) -> Files {
    plan_for(change, &observed()).config.unwrap().rendered.files
}

fn missing() -> Arc<ReferenceError> {
    Arc::new(MissingReference::Secret("gone".to_owned()).into())
}

fn active(value: &str) -> Value {
    json!({ "labels": { CONTROLLER_ACTIVE: value } })
}

#[test]
fn with_everything_there_everything_is_made_at_once() {
    let plan = plan_for(&json!({}), &observed());
    let config = plan.config.unwrap();
    assert_eq!(config.step, Step::Write(None));
    assert_eq!(config.in_force.data, Some(config.rendered.files));
    let daemons = plan.daemons.unwrap();
    assert!(daemons.service.is_ok() && daemons.internal_service.is_ok());
    assert!(matches!(daemons.stateful_set, Workload::Apply(_)));
    assert_eq!(plan.pending, None);
}

#[rstest]
#[case::new(None, false, &[("slurm-controller-0", true)])]
#[case::marked(Some("true"), false, &[])]
#[case::marked_wrongly(Some("false"), false, &[("slurm-controller-0", true)])]
#[case::one_too_many(Some("true"), true, &[("slurm-controller-1", false)])]
fn a_single_daemon_is_the_active_one(
    #[case] mark: Option<&str>,
    #[case] another: bool,
    #[case] expected: &[(&str, bool)],
) {
    let mut pods = vec![pod(0, true, &mark.map_or_else(|| json!({}), active))];
    pods.extend(another.then(|| pod(1, true, &active("true"))));
    let marks = marks_of(&json!({}), &Observed { pods, active: Some(1), ..observed() });
    assert_eq!(marks, expected.iter().map(|(pod, is)| ((*pod).to_owned(), *is)).collect::<Vec<_>>());
}

#[rstest]
#[case::nobody_knows_yet([false, false], None, &[(0, true)])]
#[case::no_news_changes_nothing([false, true], None, &[])]
#[case::news([true, false], Some(1), &[(0, false), (1, true)])]
#[case::no_news_and_two_marks([true, true], None, &[(1, false)])]
fn the_mark_follows_the_news(
    #[case] marked: [bool; 2],
    #[case] news: Option<i32>,
    #[case] expected: &[(i32, bool)],
) {
    let metadata = |is_marked| if is_marked { active("true") } else { json!({}) };
    let pods = vec![pod(0, true, &metadata(marked[0])), pod(1, true, &metadata(marked[1]))];
    let marks = marks_of(&high_availability(), &Observed { pods, active: news, ..observed() });
    assert_eq!(marks, expected.iter().map(|(pod, is)| (names::pod("slurm", *pod), *is)).collect::<Vec<_>>());
}

#[test]
fn a_change_of_what_runs_waits_and_is_then_checked_while_all_goes_on() {
    let old = files(&json!({}));
    let controller = controller(&json!({ "extraConf": "MinJobAge=2" }));
    let first = plan_at(&controller, &running(&old), 0);
    let config = first.config.unwrap();
    assert_eq!((config.step, config.in_force.data), (Step::Settle(DELAY), Some(old.clone())));
    assert!(matches!(first.daemons.unwrap().stateful_set, Workload::Leave));

    let calm = Observed { pending: first.pending, ..running(&old) };
    let second = plan_at(&controller, &calm, 5);
    let config = second.config.unwrap();
    assert_eq!((config.step, config.in_force.data), (Step::Check, Some(old)));
    let (candidate, pod) = config.check.unwrap();
    assert!(candidate.data.unwrap()["slurm.conf"].contains("MinJobAge=2"));
    let image = pod.as_json().pointer("/spec/containers/0/image");
    assert_eq!(image, Some(&json!("slurmctld:26.05")));
    assert!(matches!(second.daemons.unwrap().stateful_set, Workload::Leave));

    let mut succeeded: Pod = serde_json::from_value(pod.as_json().clone()).unwrap();
    succeeded.status = serde_json::from_value(json!({ "phase": "Succeeded" })).unwrap();
    let checked = Observed { check: Some(Arc::new(succeeded)), ..calm };
    let third = plan_at(&controller, &checked, 6);
    let config = third.config.unwrap();
    assert_eq!((config.step, config.in_force.data), (Step::Write(None), Some(config.rendered.files)));
    assert!(matches!(third.daemons.unwrap().stateful_set, Workload::Apply(_)));
}

#[rstest]
#[case::never_ran(None, Step::Write(None))]
#[case::is_started_for_the_first_time(Some("Starting"), Step::Write(None))]
#[case::is_restarted(Some("Applied"), Step::Settle(DELAY))]
#[case::is_restarted_while_a_change_is_checked(Some("Checking"), Step::Settle(DELAY))]
fn a_slurmctld_that_is_down_for_a_moment_takes_no_unchecked_change(
    #[case] said: Option<&str>,
    #[case] step: Step,
) {
    let mut controller = controller(&json!({ "extraConf": "MinJobAge=2" }));
    if let Some(reason) = said {
        controller = told(controller, reason, "", second(-60));
    }
    let observed = Observed { pods: vec![pod(0, false, &json!({}))], ..running(&files(&json!({}))) };
    assert_eq!(plan_at(&controller, &observed, 0).config.unwrap().step, step);
}

#[test]
fn another_key_makes_other_pods() {
    let template = |key: &str| {
        let observed = Observed { slurm_key: Ok(secret("slurm.key", key)), ..observed() };
        let Workload::Apply(set) = daemons(&json!({}), &observed).stateful_set else {
            panic!("nothing is in the way")
        };
        set.as_json()["spec"]["template"].clone()
    };
    assert_eq!(template("a"), template("a"));
    assert_ne!(template("a"), template("b"));
}

#[rstest]
#[case::ours(json!({ "serviceName": "slurm-controller" }), true, "Recreate")]
#[case::of_the_right_form(json!({}), true, "Apply")]
#[case::of_somebody_else(json!({ "serviceName": "slurm-controller" }), false, "Apply")]
fn only_our_own_stateful_set_is_made_anew(
    #[case] spec: Value,
    #[case] is_ours: bool,
    #[case] expected: &str,
) {
    let mut live = stateful_set(&spec, true).as_json().clone();
    if !is_ours {
        live["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    }
    let live = Some(Arc::new(RawObject::new(live).unwrap()));
    let workload = daemons(&json!({}), &Observed { stateful_set: live, ..observed() }).stateful_set;
    let seen = match workload {
        Workload::Recreate => "Recreate",
        // Which the one who applies refuses if it is somebody else's.
        Workload::Apply(_) => "Apply",
        Workload::Leave | Workload::Blocked(_) => "something else",
    };
    assert_eq!(seen, expected);
}

#[rstest]
#[case::slurm_key(Observed { slurm_key: Err(missing()), ..observed() }, json!({}), "SecretMissing")]
#[case::jwt_key(Observed { jwt_key: Err(missing()), ..observed() }, json!({}), "SecretMissing")]
#[case::jwks(Observed { jwks: Err(missing()), ..observed() }, json!({}), "SecretMissing")]
#[case::nothing_shared(observed(), json!({ "ha": { "enabled": true } }), "InvalidSpec")]
#[case::not_shared(
    Observed { shared_claim: Ok(Some(claim("ReadWriteOnce"))), ..observed() },
    high_availability(),
    "ClaimNotShared"
)]
#[case::claim_unreadable(Observed { shared_claim: Err(missing()), ..observed() }, high_availability(), "SecretMissing")]
#[case::a_volume_of_its_own(
    Observed {
        stateful_set: Some(Arc::new(stateful_set(&json!({ "volumeClaimTemplates": [{}] }), true))),
        ..observed()
    },
    high_availability(),
    "InvalidSpec"
)]
#[case::ill_typed(observed(), json!({ "slurmctld": { "image": 5 } }), "InvalidSpec")]
fn what_is_in_the_way_of_the_daemons_alone_stops_nothing_else(
    #[case] observed: Observed,
    #[case] change: Value,
    #[case] category: &str,
) {
    let plan = plan_for(&change, &observed);
    assert!(plan.config.is_ok());
    let daemons = plan.daemons.unwrap();
    assert!(daemons.service.is_ok() && daemons.internal_service.is_ok());
    match daemons.stateful_set {
        Workload::Blocked(obstacle) => assert_eq!(obstacle.category(), category, "{obstacle}"),
        Workload::Apply(_) | Workload::Recreate | Workload::Leave => panic!("nothing is in the way"),
    }
}

fn claim(mode: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({ "spec": { "accessModes": [mode] } })).unwrap()
}

#[rstest]
#[case::absent(None)]
#[case::shared(Some("ReadWriteMany"))]
fn a_claim_that_all_can_mount_or_that_is_to_come_will_do(#[case] mode: Option<&str>) {
    let observed = Observed { shared_claim: Ok(mode.map(claim)), ..observed() };
    assert!(matches!(daemons(&high_availability(), &observed).stateful_set, Workload::Apply(_)));
}

#[rstest]
#[case::accounting(json!({ "accountingRef": { "name": "books" } }), "AccountingMissing", "Accounting books")]
#[case::config_map(json!({ "prologScriptRefs": [{ "name": "gone" }] }), "ConfigMapMissing", "ConfigMap gone")]
#[case::misnamed(json!({ "configFileRefs": [{ "name": "../x" }] }), "InvalidSpec", "\"../x\" cannot be the name")]
#[case::value(json!({ "clusterName": "a\nb" }), "InvalidSpec", "clusterName")]
#[case::refused(json!({ "extraConf": "words" }), "ConfigRefused", "slurm.conf")]
fn without_a_configuration_what_runs_goes_on_and_what_does_not_starts_with_the_old_one(
    #[case] change: Value,
    #[case] category: &str,
    #[case] text: &str,
) {
    let old = files(&json!({}));
    let new = plan_for(&change, &observed());
    let obstacle = new.config.err().unwrap();
    assert_eq!(obstacle.category(), category);
    assert!(obstacle.to_string().contains(text), "{obstacle}");
    let blocked = new.daemons.unwrap().stateful_set;
    assert!(matches!(blocked, Workload::Blocked(Obstacle::NoConfig)));

    let live = plan_for(&change, &running(&old));
    assert!(live.config.is_err());
    assert!(matches!(live.daemons.unwrap().stateful_set, Workload::Leave));

    let lost = Observed { stateful_set: None, ..running(&old) };
    assert!(matches!(daemons(&change, &lost).stateful_set, Workload::Apply(_)));
}

#[test]
fn config_maps_that_cannot_be_read_are_not_taken_for_missing() {
    let unread = Observed { config_maps: Err(missing()), ..running(&files(&json!({}))) };
    let plan = plan_for(&json!({ "configFileRefs": [{ "name": "files" }] }), &unread);
    assert!(matches!(plan.config, Err(Obstacle::Reference(_))));
    assert!(matches!(plan.daemons.unwrap().stateful_set, Workload::Leave));
}

#[test]
fn a_bad_node_set_is_no_obstacle() {
    let bad = node_set("bad", 1, &json!({ "partition": { "enabled": true, "config": "A=1\nB=2" } }));
    let config = plan_for(&json!({}), &Observed { node_sets: vec![bad], ..observed() }).config.unwrap();
    assert_eq!((config.step, config.rendered.refused_node_sets.len()), (Step::Write(None), 1));
}

#[rstest]
#[case(MissingReference::ConfigMap(String::new()).into(), Class::Waiting(Duration::from_mins(5)))]
#[case(Obstacle::NotShared("claim".to_owned()), Class::Waiting(Duration::from_mins(1)))]
#[case(Obstacle::NothingShared, Class::Invalid)]
#[case(Obstacle::OwnVolume, Class::Invalid)]
#[case(Obstacle::NoConfig, Class::Invalid)]
#[case(ConfigError::Refused(String::new()).into(), Class::Invalid)]
fn only_what_may_come_by_itself_is_looked_for_again(#[case] obstacle: Obstacle, #[case] class: Class) {
    assert_eq!(obstacle.class(), class);
}

#[rstest]
#[case::longest("c".repeat(41), None)]
#[case::too_long("c".repeat(42), Some("longer than 52 characters"))]
#[case::dots("a.b".to_owned(), Some("no dots"))]
fn a_name_that_no_stateful_set_can_have_makes_nothing(#[case] name: String, #[case] problem: Option<&str>) {
    let mut controller = controller(&json!({}));
    controller.metadata.name = Some(name);
    let refused = plan(&controller, &observed(), DELAY, second(0)).err();
    assert_eq!(refused.as_ref().map(Classify::category), problem.map(|_| "InvalidName"));
    let told = refused.map(|obstacle| obstacle.to_string()).unwrap_or_default();
    assert!(told.contains(problem.unwrap_or_default()), "{told}");
    controller.spec.external = true;
    controller.spec.external_config = serde_json::from_value(json!({ "host": "h", "port": 1 })).unwrap();
    assert!(plan(&controller, &observed(), DELAY, second(0)).unwrap().config.is_ok());
}

#[test]
fn a_cluster_elsewhere_needs_its_configuration_alone() {
    let change = json!({ "external": true, "externalConfig": { "host": "h", "port": 1 },
        "slurmKeyRef": null, "jwtKeyRef": null, "configFileRefs": [{ "name": "gone" }] });
    let absent = Observed { slurm_key: Err(missing()), jwt_key: Err(missing()), ..observed() };
    let first = plan_for(&change, &absent);
    assert!(first.daemons.is_none());
    let config = first.config.unwrap();
    assert_eq!(config.step, Step::Write(None));
    let made = Observed { config: Some(Arc::new(config.in_force)), ..absent };
    assert_eq!(plan_for(&change, &made).config.unwrap().step, Step::Keep);
}

#[rstest]
#[case::as_it_was(json!({}), json!([{ "spec": { "storageClassName": "slow", "accessModes": ["ReadWriteOnce"] } }]), false)]
#[case::nothing_said(json!({ "persistence": { "resources": {} } }), json!([{ "spec": { "storageClassName": "slow" } }]), false)]
#[case::another_class(json!({ "persistence": { "storageClassName": "fast" } }),
    json!([{ "spec": { "storageClassName": "slow" } }]), true)]
#[case::other_modes(json!({ "persistence": { "accessModes": ["ReadWriteMany"] } }),
    json!([{ "spec": { "accessModes": ["ReadWriteOnce"] } }]), true)]
#[case::no_longer_wanted(json!({ "persistence": { "enabled": false } }), json!([{}]), true)]
#[case::elsewhere(json!({ "persistence": { "existingClaim": "mine" } }), json!([{}]), true)]
#[case::wanted_too_late(json!({}), json!(null), true)]
#[case::never_wanted(json!({ "persistence": { "enabled": false } }), json!(null), false)]
fn a_volume_that_cannot_change_is_told(
    #[case] change: Value,
    #[case] templates: Value,
    #[case] is_told: bool,
) {
    let live = stateful_set(&json!({ "volumeClaimTemplates": templates }), true);
    let observed = Observed { stateful_set: Some(Arc::new(live)), ..observed() };
    assert_eq!(daemons(&change, &observed).ignored.is_some(), is_told);
}

#[test]
fn without_a_stateful_set_every_volume_can_be_had() {
    assert_eq!(daemons(&json!({ "persistence": { "enabled": false } }), &observed()).ignored, None);
}

/// Pods whose kubelets were told of a configuration.
fn pods_told(config: &str, at: i64) -> Vec<Arc<Pod>> {
    let annotations = json!({ annotations::CONFIG: format!("{config} {}", second(at)) });
    vec![pod(0, true, &json!({ "annotations": annotations }))]
}

#[rstest]
#[case::never(vec![pod(0, true, &json!({}))], "Reconfiguring", true)]
#[case::of_another(pods_told("other", 99), "Reconfiguring", true)]
#[case::just_now(pods_told("", 90), "Reconfiguring", false)]
#[case::a_while_ago(pods_told("", 84), "Reconfiguring", true)]
#[case::in_vain(pods_told("", 84), "Unconfirmed", false)]
#[case::in_vain_of_another(pods_told("other", 0), "Unconfirmed", true)]
#[case::it_was_taken(vec![pod(0, true, &json!({}))], "Applied", false)]
fn kubelets_are_told_and_reminded_until_somebody_gives_up(
    #[case] mut pods: Vec<Arc<Pod>>,
    #[case] said: &str,
    #[case] is_told: bool,
) {
    let controller = controller(&json!({ "inplaceReconfigure": true }));
    let observed = running(&files(&json!({})));
    let name = hash_files(&observed.etc(&controller, observed.files().unwrap()));
    for pod in &mut pods {
        if let Some(text) = Arc::make_mut(pod).annotations_mut().get_mut(annotations::CONFIG)
            && text.starts_with(' ')
        {
            text.insert_str(0, &name);
        }
    }
    let controller = told(controller, said, &name, second(0));
    let plan = plan_at(&controller, &Observed { pods, ..observed }, 100);
    let expected = is_told.then(|| ("slurm-controller-0".to_owned(), format!("{name} {}", second(100))));
    assert_eq!(plan.daemons.unwrap().announcements, expected.into_iter().collect::<Vec<_>>());
}

#[rstest]
#[case::in_place(json!({ "inplaceReconfigure": true }), true)]
#[case::by_a_restart(json!({}), false)]
#[case::while_undecided(json!({ "inplaceReconfigure": true, "extraConf": "MinJobAge=2" }), false)]
fn kubelets_are_told_of_what_is_in_force_only(#[case] change: Value, #[case] is_told: bool) {
    let announcements = daemons(&change, &running(&files(&json!({})))).announcements;
    assert_eq!(announcements.len(), usize::from(is_told));
}

#[test]
fn a_report_ends_the_telling() {
    let change = json!({ "inplaceReconfigure": true });
    let observed = running(&files(&json!({})));
    let name = hash_files(&observed.etc(&controller(&change), observed.files().unwrap()));
    let with = |report| Observed { report: Some(report), ..running(&files(&json!({}))) };
    assert_eq!(daemons(&change, &with(Report::Took(name))).announcements, []);
    let of_another = with(Report::Took("other".to_owned()));
    assert_eq!(daemons(&change, &of_another).announcements.len(), 1);
}

#[test]
fn files_of_the_user_are_part_of_the_configurations_name() {
    let change = json!({ "configFileRefs": [{ "name": "files" }] });
    let name = |text: &str| {
        let config_maps = Ok([("files".to_owned(), config_map(&[("gres.conf", text)]))].into());
        plan_for(&change, &Observed { config_maps, ..observed() }).config.unwrap().name
    };
    assert_eq!(name("a"), name("a"));
    assert_ne!(name("a"), name("b"));
}

#[rstest]
#[case::it_does_not_start("a", json!({ "waiting": {} }), true)]
#[case::it_is_not_placed("a", json!(null), true)]
#[case::it_starts("a", json!({ "running": {} }), false)]
#[case::it_is_of_the_wanted_revision("b", json!({ "waiting": {} }), false)]
fn a_pod_of_an_old_revision_that_does_not_start_makes_room(
    #[case] revision: &str,
    #[case] state: Value,
    #[case] goes: bool,
) {
    let mut pod =
        serde_json::to_value(pod(0, false, &json!({ "labels": { POD_REVISION: revision } })).as_ref())
            .unwrap();
    if !state.is_null() {
        pod["status"]["containerStatuses"] = json!([{ "name": "slurmctld", "image": "", "imageID": "",
            "ready": false, "restartCount": 0, "state": state }]);
    }
    let mut set = stateful_set(&json!({}), false).as_json().clone();
    set["status"]["updateRevision"] = json!("b");
    let observed = Observed {
        stateful_set: Some(Arc::new(RawObject::new(set.clone()).unwrap())),
        pods: vec![Arc::new(serde_json::from_value(pod).unwrap())],
        ..observed()
    };
    assert_eq!(stuck(&observed).len() == 1, goes);
    set["metadata"]["generation"] = json!(2);
    let behind = Observed { stateful_set: Some(Arc::new(RawObject::new(set).unwrap())), ..observed };
    assert!(stuck(&behind).is_empty(), "Kubernetes has not seen the latest change");
}
