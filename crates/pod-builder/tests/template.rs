//! Pods of the operator, merged with overrides of the user.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_builder::{Containers, DNS_SEARCHES, REQUIRED_ANTI_AFFINITY, TOLERATIONS, Template};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::Raw;

fn base() -> Value {
    json!({
        "automountServiceAccountToken": false,
        "containers": [],
        "securityContext": { "runAsNonRoot": true, "runAsUser": 401, "fsGroup": 401 },
        "tolerations": [{ "key": "worker", "operator": "Exists" }],
        "dnsConfig": { "searches": ["workers.ns"] },
        "volumes": [
            { "name": "slurm-etc", "projected": { "defaultMode": 384, "sources": [{ "secret": { "name": "key" } }] } },
            { "name": "run", "emptyDir": { "medium": "Memory" } },
        ],
    })
}

fn build(user: Value) -> Template {
    let base: PodSpec = serde_json::from_value(base()).unwrap();
    let containers =
        Containers { init: vec![json!({ "name": "logfile" })], main: vec![json!({ "name": "slurmd" })] };
    Template::build(ObjectMeta::default(), &base, containers, "template.spec", &Raw::new(user)).unwrap()
}

#[rstest]
#[case::absent(Value::Null)]
#[case::zero_values_of_go_clients(json!({ "containers": null, "securityContext": {}, "affinity": null, "tolerations": [] }))]
fn null_and_empty_values_change_nothing(#[case] user: Value) {
    let mut expected = base();
    expected["containers"] = json!([{ "name": "slurmd" }]);
    expected["initContainers"] = json!([{ "name": "logfile" }]);
    assert_eq!(build(user).spec, expected);
}

#[rstest]
#[case::containers_are_appended("containers", json!([{ "name": "slurmd" }, { "name": "a", "tty": false, "image": null }]),
    json!([{ "name": "slurmd" }, { "name": "slurmd" }, { "name": "a", "tty": false }]))]
#[case::init_containers_are_appended("initContainers", json!([{ "name": "b" }, { "name": "a" }]),
    json!([{ "name": "logfile" }, { "name": "b" }, { "name": "a" }]))]
#[case::explicit_zeros("securityContext", json!({ "runAsNonRoot": false, "runAsUser": 0, "fsGroup": 0 }),
    json!({ "runAsNonRoot": false, "runAsUser": 0, "fsGroup": 0 }))]
#[case::grace_period_of_zero("terminationGracePeriodSeconds", json!(0), json!(0))]
#[case::tolerations_are_replaced("tolerations", json!([{ "operator": "Exists" }]), json!([{ "operator": "Exists" }]))]
#[case::searches_are_replaced("dnsConfig", json!({ "searches": ["a"], "nameservers": ["192.0.2.1"] }),
    json!({ "searches": ["a"], "nameservers": ["192.0.2.1"] }))]
#[case::another_volume_source("volumes", json!([{ "name": "slurm-etc", "emptyDir": {} }]),
    json!([{ "name": "slurm-etc", "emptyDir": {} }, { "name": "run", "emptyDir": { "medium": "Memory" } }]))]
#[case::the_same_volume_source("volumes", json!([{ "name": "slurm-etc", "projected": { "defaultMode": 420 } }]),
    json!([
        { "name": "slurm-etc", "projected": { "defaultMode": 420, "sources": [{ "secret": { "name": "key" } }] } },
        { "name": "run", "emptyDir": { "medium": "Memory" } }]))]
#[case::more_volumes("volumes", json!([{ "name": "z", "emptyDir": {} }]),
    json!([
        { "name": "z", "emptyDir": {} },
        { "name": "slurm-etc", "projected": { "defaultMode": 384, "sources": [{ "secret": { "name": "key" } }] } },
        { "name": "run", "emptyDir": { "medium": "Memory" } }]))]
#[case::unknown_field("futureField", json!([{ "x": {} }]), json!([{ "x": {} }]))]
fn value_of_the_user_is_merged(#[case] field: &str, #[case] user: Value, #[case] expected: Value) {
    let template = build(json!({ field: user }));
    assert_eq!(template.spec[field], expected);
    let mut rest = template.spec.clone();
    rest[field] = build(Value::Null).spec[field].clone();
    rest.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    assert_eq!(rest, build(Value::Null).spec, "nothing else changes");
}

#[test]
fn required_item_is_added_once_to_the_list_of_the_user() {
    let term = json!({ "topologyKey": "kubernetes.io/hostname" });
    let mut template = build(json!({
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone" }] } },
        "tolerations": [{ "operator": "Exists" }],
    }));
    for _ in 0..2 {
        template.require(REQUIRED_ANTI_AFFINITY, &term);
        template.require(TOLERATIONS, &json!({ "key": "worker" }));
        template.require(DNS_SEARCHES, &"workers.ns");
    }
    assert_eq!(
        template.spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
        json!([{ "topologyKey": "zone" }, term])
    );
    assert_eq!(template.spec["tolerations"], json!([{ "operator": "Exists" }, { "key": "worker" }]));
    assert_eq!(template.spec["dnsConfig"]["searches"], json!(["workers.ns"]));

    let mut without_user_list = build(Value::Null);
    without_user_list.require(REQUIRED_ANTI_AFFINITY, &term);
    assert_eq!(
        without_user_list.spec["affinity"],
        json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } })
    );
}

#[test]
fn typed_spec_is_that_of_the_merged_pod() {
    let spec = build(json!({ "hostname": "n-", "futureField": 1 })).pod_spec().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("n-"));
    assert_eq!(spec.containers.len(), 1);
}

#[rstest]
#[case(json!({ "containers": [{ "name": "a" }, { "image": 5 }] }), "template.spec.containers[1].image cannot be read")]
#[case(json!({ "hostNetwork": "yes" }), "template.spec.hostNetwork cannot be read")]
#[case(json!(["x"]), "template.spec cannot be read")]
fn error_names_the_mistyped_field(#[case] user: Value, #[case] message: &str) {
    let base = PodSpec::default();
    let built = Template::build(
        ObjectMeta::default(),
        &base,
        Containers::default(),
        "template.spec",
        &Raw::new(user),
    );
    assert_eq!(built.unwrap_err().to_string(), message);
}
