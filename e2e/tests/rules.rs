//! The validation rules of the CRDs in a real API server.

use anyhow::Result;
use e2e::client;
use e2e::crds::{api_resource, dynamic_api, install_crds};
use kube::api::{DynamicObject, PostParams};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slinky_api::v1beta1::{Accounting, Controller, LoginSet, NodeSet, RestApi, Token};

/// A spec of each kind that all rules accept.
fn minimal(kind: &str) -> Value {
    match kind {
        "Accounting" | "Controller" => json!({
            "slurmKeyRef": { "name": "a", "key": "k" },
            "jwtKeyRef": { "name": "a", "key": "k" },
        }),
        "Token" => json!({ "jwtKeyRef": { "name": "a", "key": "k" }, "username": "u" }),
        "LoginSet" => json!({ "controllerRef": { "name": "c" }, "sssdConfRef": { "name": "s", "key": "k" } }),
        _ => json!({ "controllerRef": { "name": "c" } }),
    }
}

/// A name, a change to the minimal spec (a JSON merge patch), and the expected error; `None` if it is accepted.
type Rule = (&'static str, Value, Option<&'static str>);

fn key_rules() -> Vec<Rule> {
    vec![
        ("minimal spec", json!({}), None),
        (
            "no slurm key",
            json!({ "slurmKeyRef": null }),
            Some("slurmKeyRef must be set when external is false"),
        ),
        ("no signing key", json!({ "jwtKeyRef": null }), Some("jwtKeyRef or jwtHs256KeyRef must be set")),
        (
            "deprecated signing key",
            json!({ "jwtKeyRef": null, "jwtHs256KeyRef": { "name": "a", "key": "k" } }),
            None,
        ),
        ("external without address", json!({ "external": true }), Some("externalConfig must be set")),
        (
            "external without keys",
            json!({
                "external": true,
                "externalConfig": { "host": "h", "port": 1 },
                "slurmKeyRef": null,
                "jwtKeyRef": null,
            }),
            None,
        ),
        (
            "external address without port",
            json!({ "external": true, "externalConfig": { "host": "h" } }),
            Some("externalConfig.port: Required value"),
        ),
        (
            "reference without key",
            json!({ "slurmKeyRef": { "key": null } }),
            Some("slurmKeyRef.key: Required value"),
        ),
        ("a number for a flag", json!({ "external": 1 }), Some("spec.external: Invalid value")),
        (
            "a list for a container",
            json!({ "slurmdbd": [], "slurmctld": [] }),
            Some("must be of type object"),
        ),
    ]
}

fn accounting_rules() -> Vec<Rule> {
    let storage = |change: Value| {
        let mut storage = json!({ "host": "h", "passwordKeyRef": { "key": "k" } });
        json_merge(&mut storage, &change);
        json!({ "storageConfig": storage })
    };
    let mut rules = key_rules();
    rules.extend([
        ("storage", storage(json!({})), None),
        (
            "storage without host",
            storage(json!({ "host": null })),
            Some("storageConfig.host: Required value"),
        ),
        (
            "storage without password",
            storage(json!({ "passwordKeyRef": null })),
            Some("storageConfig.passwordKeyRef: Required value"),
        ),
    ]);
    rules
}

fn controller_rules() -> Vec<Rule> {
    let mut rules = key_rules();
    rules.extend([
        ("ha off", json!({ "ha": { "enabled": false } }), None),
        ("ha without volume", json!({ "ha": { "enabled": true } }), Some("Slurm HA requires")),
        (
            "ha with an empty claim name",
            json!({ "ha": { "enabled": true }, "persistence": { "existingClaim": "" } }),
            Some("Slurm HA requires"),
        ),
        (
            "ha without claim name",
            json!({ "ha": { "enabled": true }, "persistence": { "enabled": true } }),
            Some("no such key: existingClaim"),
        ),
        (
            "ha without persistence",
            json!({ "ha": { "enabled": true }, "persistence": { "enabled": false, "existingClaim": "c" } }),
            Some("Slurm HA requires"),
        ),
        ("ha", json!({ "ha": { "enabled": true }, "persistence": { "existingClaim": "c" } }), None),
        (
            "no backups",
            json!({ "ha": { "enabled": false, "backups": 0 } }),
            Some("greater than or equal to 1"),
        ),
        (
            "more backups than pods that a cluster can run",
            json!({ "ha": { "enabled": false, "backups": i32::MAX } }),
            Some("less than or equal to 9"),
        ),
        ("no list of files", json!({ "configFileRefs": null }), None),
        ("interval", json!({ "metrics": { "serviceMonitor": { "interval": "1h30m" } } }), None),
        (
            "invalid interval",
            json!({ "metrics": { "serviceMonitor": { "interval": "soon" } } }),
            Some("serviceMonitor.interval: Invalid value"),
        ),
        (
            "endpoint without path",
            json!({ "metrics": { "serviceMonitor": { "endpoints": [{}] } } }),
            Some("endpoints[0].path: Required value"),
        ),
        (
            "invalid storage",
            json!({ "persistence": { "resources": { "requests": { "storage": "much" } } } }),
            Some("resources.requests.storage: Invalid value"),
        ),
        (
            "selector without operator",
            json!({ "persistence": { "selector": { "matchExpressions": [{ "key": "k" }] } } }),
            Some("matchExpressions[0].operator: Required value"),
        ),
    ]);
    rules
}

fn nodeset_rules() -> Vec<Rule> {
    vec![
        ("minimal spec", json!({}), None),
        ("no controller", json!({ "controllerRef": null }), Some("controllerRef: Required value")),
        (
            "unknown scaling mode",
            json!({ "scalingMode": "ReplicaSet" }),
            Some("Unsupported value: \"ReplicaSet\""),
        ),
        ("negative replicas", json!({ "replicas": -1 }), Some("should be a non-negative integer")),
        ("replicas beyond 32 bits", json!({ "replicas": 3_000_000_000_i64 }), Some("spec.replicas")),
        ("negative padding", json!({ "ordinalPadding": -1 }), None),
        (
            "ssh off without sssd",
            json!({ "ssh": { "enabled": false } }),
            Some("ssh.sssdConfRef: Required value"),
        ),
        ("partition", json!({ "partition": { "enabled": true, "config": "State=UP" } }), None),
        (
            "a partition of two lines",
            json!({ "partition": { "enabled": true, "config": "State=UP\nNodeName=x" } }),
            Some("partition.config: Invalid value"),
        ),
        (
            "an empty partition",
            json!({ "partition": { "enabled": true, "config": "" } }),
            Some("partition.config: Invalid value"),
        ),
        ("claims that are no list", json!({ "volumeClaimTemplates": { "a": 1 } }), None),
        ("on delete", json!({ "updateStrategy": { "type": "OnDelete" } }), None),
        (
            "unknown strategy",
            json!({ "updateStrategy": { "type": "Recreate" } }),
            Some("Unsupported value: \"Recreate\""),
        ),
        (
            "schedule without time",
            json!({ "updateStrategy": { "type": "ScheduledUpdate", "scheduledUpdate": {} } }),
            Some("startTime and scheduledUpdate.duration must be set"),
        ),
        (
            "no schedule",
            json!({ "updateStrategy": { "type": "ScheduledUpdate" } }),
            Some("no such key: scheduledUpdate"),
        ),
        (
            "schedule",
            json!({ "updateStrategy": {
                "type": "ScheduledUpdate",
                "scheduledUpdate": { "startTime": "2030-01-01T00:00:00Z" },
            } }),
            None,
        ),
        (
            "schedule with an invalid time",
            json!({ "updateStrategy": { "scheduledUpdate": { "startTime": "tomorrow" } } }),
            Some("startTime: Invalid value"),
        ),
        ("percentage", json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": "10%" } } }), None),
        (
            "fractional maxUnavailable",
            json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": 0.5 } } }),
            Some("maxUnavailable: Invalid value"),
        ),
        (
            "unknown retention policy",
            json!({ "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Keep" } }),
            Some("Unsupported value: \"Keep\""),
        ),
        (
            "unknown pruning mode",
            json!({ "pruneSlurmNodeRecords": "Always" }),
            Some("Unsupported value: \"Always\""),
        ),
    ]
}

fn loginset_rules() -> Vec<Rule> {
    vec![
        ("minimal spec", json!({}), None),
        ("no controller", json!({ "controllerRef": null }), Some("controllerRef: Required value")),
        ("no sssd", json!({ "sssdConfRef": null }), Some("sssdConfRef: Required value")),
        ("surge", json!({ "strategy": { "rollingUpdate": { "maxSurge": "25%" } } }), None),
        (
            "boolean surge",
            json!({ "strategy": { "rollingUpdate": { "maxSurge": true } } }),
            Some("maxSurge: Invalid value"),
        ),
    ]
}

fn restapi_rules() -> Vec<Rule> {
    vec![
        ("minimal spec", json!({}), None),
        ("no controller", json!({ "controllerRef": null }), Some("controllerRef: Required value")),
        ("negative replicas", json!({ "replicas": -1 }), Some("should be greater than or equal to 0")),
        (
            "a string for a port",
            json!({ "service": { "port": "http" } }),
            Some("service.port: Invalid value"),
        ),
    ]
}

fn token_rules() -> Vec<Rule> {
    vec![
        ("minimal spec", json!({}), None),
        ("no key", json!({ "jwtKeyRef": null }), Some("jwtKeyRef or jwtHs256KeyRef must be set")),
        ("no user", json!({ "username": null }), Some("username: Required value")),
        ("a user without name", json!({ "username": "" }), None),
        (
            "a secret without key",
            json!({ "secretRef": { "name": "s" } }),
            Some("secretRef.key: Required value"),
        ),
        ("a lifetime that is no duration", json!({ "lifetime": "for ever" }), None),
    ]
}

fn json_merge(target: &mut Value, patch: &Value) {
    match (target.as_object_mut(), patch.as_object()) {
        (Some(target), Some(patch)) => {
            for (key, value) in patch {
                if value.is_null() && target.contains_key(key) {
                    target.remove(key);
                } else {
                    json_merge(target.entry(key).or_insert(json!({})), value);
                }
            }
        }
        _ => *target = patch.clone(),
    }
}

#[rstest]
#[case::accounting("Accounting", accounting_rules(), deserialize::<Accounting>)]
#[case::controller("Controller", controller_rules(), deserialize::<Controller>)]
#[case::loginset("LoginSet", loginset_rules(), deserialize::<LoginSet>)]
#[case::nodeset("NodeSet", nodeset_rules(), deserialize::<NodeSet>)]
#[case::restapi("RestApi", restapi_rules(), deserialize::<RestApi>)]
#[case::token("Token", token_rules(), deserialize::<Token>)]
#[tokio::test]
async fn rules_accept_valid_and_reject_invalid_specs_and_accepted_objects_deserialize(
    #[case] kind: &str,
    #[case] rules: Vec<Rule>,
    #[case] deserialize: fn(&Value) -> Result<(), String>,
) -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    let api = dynamic_api(&client, "default", kind);
    let mut wrong = Vec::new();
    for (name, change, expected_error) in rules {
        let mut spec = minimal(kind);
        json_merge(&mut spec, &change);
        let mut object = DynamicObject::new("rules", &api_resource(kind));
        object.data = json!({ "spec": spec });
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        match (api.create(&dry_run, &object).await, expected_error) {
            (Ok(stored), None) => {
                if let Err(error) = deserialize(&serde_json::to_value(&stored)?) {
                    wrong.push(format!("{name}: accepted, but does not deserialize: {error}"));
                }
            }
            (Err(error), Some(expected_error)) if error.to_string().contains(expected_error) => {}
            (Ok(_), Some(_)) => wrong.push(format!("{name}: accepted")),
            (Err(error), _) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{kind}:\n{}", wrong.join("\n"));
    Ok(())
}

fn deserialize<K: DeserializeOwned>(object: &Value) -> Result<(), String> {
    serde_json::from_value::<K>(object.clone()).map(|_| ()).map_err(|error| error.to_string())
}
