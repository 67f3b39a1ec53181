//! Removes defaults of the API server and the text of scripts from pods and pod templates.

use crate::json::{at, each, remove_defaults};
use crate::texts::script;
use serde_json::{Value, json};

/// Trims the spec of a pod template.
pub fn trim_spec(spec: &mut Value) {
    remove_defaults(
        spec,
        &json!({
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "affinity": {},
        }),
    );
    let account = spec.get("serviceAccountName").cloned();
    remove_defaults(spec, &json!({ "serviceAccount": account }));
    for list in ["containers", "initContainers"] {
        each(spec, list).for_each(trim_container);
    }
    each(spec, "volumes").for_each(trim_volume);
}

/// Trims the spec of a pod, which also has additions of admission.
pub fn trim_pod(spec: &mut Value) {
    trim_spec(spec);
    let added_tolerations = ["not-ready", "unreachable"].map(|state| {
        json!({
            "effect": "NoExecute", "key": format!("node.kubernetes.io/{state}"), "operator": "Exists",
            "tolerationSeconds": 300,
        })
    });
    retain(spec, "tolerations", |toleration| !added_tolerations.contains(toleration));
    let is_kept =
        |item: &Value| !item["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    retain(spec, "volumes", is_kept);
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            retain(container, "volumeMounts", is_kept);
            remove_defaults(container, &json!({ "volumeMounts": [] }));
        }
    }
    remove_defaults(
        spec,
        &json!({
            "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "serviceAccountName": "default", "tolerations": [],
        }),
    );
}

fn retain(object: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) {
        items.retain(keep);
    }
}

fn trim_container(container: &mut Value) {
    remove_defaults(
        container,
        &json!({ "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": {} }),
    );
    each(container, "ports").for_each(|port| remove_defaults(port, &json!({ "protocol": "TCP" })));
    for variable in each(container, "env") {
        at(variable, "/valueFrom/fieldRef", |source| remove_defaults(source, &json!({ "apiVersion": "v1" })));
        at(variable, "/valueFrom/resourceFieldRef", |source| {
            remove_defaults(source, &json!({ "divisor": "0" }));
        });
    }
    for probe in ["/startupProbe", "/livenessProbe", "/readinessProbe"] {
        at(container, probe, trim_probe);
    }
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    for list in ["command", "args"] {
        each(container, list).for_each(|word| hide_script(word, &name));
    }
    for hook in ["preStop", "postStart"] {
        at(container, &format!("/lifecycle/{hook}/exec"), |exec| {
            each(exec, "command").for_each(|word| hide_script(word, &format!("{name}-lifecycle")));
        });
    }
}

fn trim_probe(probe: &mut Value) {
    let numbers =
        json!({ "successThreshold": 1, "timeoutSeconds": 1, "periodSeconds": 10, "failureThreshold": 3 });
    remove_defaults(probe, &numbers);
    at(probe, "/httpGet", |handler| remove_defaults(handler, &json!({ "scheme": "HTTP" })));
    at(probe, "/grpc", |handler| remove_defaults(handler, &json!({ "service": "" })));
}

fn hide_script(word: &mut Value, name: &str) {
    if word.as_str().is_some_and(|text| text.contains('\n')) {
        *word = script(name).into();
    }
}

fn trim_volume(volume: &mut Value) {
    for source in ["/projected", "/secret", "/configMap", "/downwardAPI"] {
        at(volume, source, |source| remove_defaults(source, &json!({ "defaultMode": 0o644 })));
    }
    at(volume, "/hostPath", |source| remove_defaults(source, &json!({ "type": "" })));
    at(volume, "/projected", |projected| {
        for source in each(projected, "sources") {
            let default = json!({ "expirationSeconds": 3600 });
            at(source, "/serviceAccountToken", |token| remove_defaults(token, &default));
        }
    });
    at(volume, "/ephemeral/volumeClaimTemplate", trim_claim_template);
}

/// Trims the template of a claim, in a volume or in a StatefulSet.
pub fn trim_claim_template(template: &mut Value) {
    at(template, "/spec", |spec| remove_defaults(spec, &json!({ "volumeMode": "Filesystem" })));
    at(template, "/metadata", |metadata| remove_defaults(metadata, &json!({ "creationTimestamp": null })));
}

#[test]
fn defaults_are_removed_and_other_values_kept() {
    let mut spec = json!({
        "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 0, "serviceAccount": "a", "serviceAccountName": "a",
        "containers": [{
            "name": "c", "resources": {}, "args": ["one", "two\nlines"],
            "lifecycle": { "preStop": { "exec": { "command": ["a\nb"] } } },
            "ports": [{ "containerPort": 1, "protocol": "TCP" }, { "containerPort": 1, "protocol": "UDP" }],
            "readinessProbe": { "httpGet": { "path": "/", "scheme": "HTTP" }, "periodSeconds": 10, "timeoutSeconds": 2 },
        }],
        "volumes": [{ "name": "v", "secret": { "defaultMode": 420 } }, { "name": "w", "secret": { "defaultMode": 384 } }],
    });
    trim_spec(&mut spec);
    let expected = json!({
        "terminationGracePeriodSeconds": 0, "serviceAccountName": "a",
        "containers": [{
            "name": "c", "args": ["one", "<script: c>"],
            "lifecycle": { "preStop": { "exec": { "command": ["<script: c-lifecycle>"] } } },
            "ports": [{ "containerPort": 1 }, { "containerPort": 1, "protocol": "UDP" }],
            "readinessProbe": { "httpGet": { "path": "/" }, "timeoutSeconds": 2 },
        }],
        "volumes": [{ "name": "v", "secret": {} }, { "name": "w", "secret": { "defaultMode": 384 } }],
    });
    assert_eq!(spec, expected);
}

#[test]
fn additions_of_admission_are_removed() {
    let mut spec = json!({
        "priority": 0, "serviceAccountName": "default", "serviceAccount": "default",
        "tolerations": [
            { "effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300 },
        ],
        "volumes": [{ "name": "mine" }, { "name": "kube-api-access-x" }],
        "containers": [{ "name": "c", "volumeMounts": [{ "name": "kube-api-access-x" }] }],
    });
    trim_pod(&mut spec);
    let expected = json!({ "volumes": [{ "name": "mine" }], "containers": [{ "name": "c" }] });
    assert_eq!(spec, expected);
}
