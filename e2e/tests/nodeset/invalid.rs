//! Missing references, invalid specs and unusable node names.

use crate::fixture::{FIRST_WRITE, NAME, apply_nodeset, list, start, tear_down, uids, wait_for_pods};
use anyhow::Result;
use e2e::eventually;
use e2e::fixtures::{CONTROLLER, apply_controller};
use e2e::node::{TestNode, test_labels};
use e2e::test_env::condition;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use slinky_api::conditions::DEGRADED;
use slinky_api::labels::annotations::HOSTNAME_OVERRIDE;
use slinky_api::v1beta1::{Controller, NodeSet};

#[tokio::test]
async fn missing_controller_is_reported_and_freezes_the_workers() -> Result<()> {
    let env = start("missing").await?;
    apply_nodeset(&env, NAME, json!({ "replicas": 1 })).await?;
    let missing = env.wait_for_degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    assert_eq!(missing, "Controller slurm does not exist");
    let note = env.wait_for_event_note(NAME, "ControllerMissing").await?;
    assert_eq!(note, "Controller slurm does not exist");

    apply_controller(&env).await?;
    let created = wait_for_pods(&env, NAME, &["gpu-0"]).await?;
    let is_recovered = |nodeset: &NodeSet| condition(nodeset, DEGRADED).is_ok_and(|it| it.status == "False");
    env.wait_until::<NodeSet>(NAME, is_recovered).await?;

    env.delete::<Controller>(CONTROLLER).await?;
    env.wait_for_degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    apply_nodeset(&env, NAME, json!({ "replicas": 0, "slurmd": { "image": "slurmd:26.11" } })).await?;
    env.wait_for_degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    env.ensure_idle().await?;
    assert_eq!(uids(&wait_for_pods(&env, NAME, &["gpu-0"]).await?), uids(&created), "a worker was replaced");

    apply_controller(&env).await?;
    wait_for_pods(&env, NAME, &[]).await?;
    tear_down(env).await
}

#[tokio::test]
async fn invalid_nodeset_is_reported_and_does_not_affect_others() -> Result<()> {
    let env = start("invalid").await?;
    apply_controller(&env).await?;
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": "ReadWriteOnce" } });
    let cases = [
        ("items", json!({ "extraConf": "Weight10" }), "extraConf cannot be read: "),
        (
            "number",
            json!({ "replicas": 2_000_000_000 }),
            "spec.replicas: 2000000000 is not a number from 0 to 65536, the most nodes of a Slurm cluster",
        ),
        (
            "template",
            json!({ "template": { "spec": { "terminationGracePeriodSeconds": "soon" } } }),
            "template.spec.terminationGracePeriodSeconds cannot be read: ",
        ),
        (
            "claims",
            json!({ "volumeClaimTemplates": [claim] }),
            "volumeClaimTemplates[0].spec.accessModes cannot be read: ",
        ),
        (
            "hostname",
            json!({ "template": { "spec": { "hostname": "GPU-" } } }),
            r#"the hostname of a pod cannot be "GPU-0": "#,
        ),
        (
            "hostlist",
            json!({ "template": { "spec": { "hostname": "gpu[0-" } } }),
            "template.spec.hostname must not contain '['",
        ),
        (
            "dots.in.it",
            json!({}),
            r#"the hostname of a pod cannot be "dots.in.it-0": it must not contain dots"#,
        ),
    ];
    for (name, change, _) in &cases {
        let mut change = change.clone();
        change.as_object_mut().unwrap().entry("replicas").or_insert(json!(1));
        apply_nodeset(&env, name, change).await?;
    }
    apply_nodeset(&env, "good", json!({ "replicas": 2 })).await?;
    for (name, _, message) in &cases {
        let reported = env.wait_for_degraded::<NodeSet>(name, "InvalidSpec").await?;
        assert!(reported.starts_with(message), "{name}: {reported}");
        assert_eq!(env.wait_for_event_note(name, "InvalidSpec").await?, reported);
    }
    apply_nodeset(&env, "image", json!({ "replicas": 1, "logfile": {} })).await?;
    let reported = env.wait_for_degraded::<NodeSet>("image", "Rejected").await?;
    assert!(
        reported.starts_with(r#"Pod image-0: Pod "image-0" is invalid: spec.initContainers[0].image: "#),
        "{reported}"
    );
    wait_for_pods(&env, "good", &["good-0", "good-1"]).await?;
    for (name, ..) in &cases {
        assert_eq!(list::<Pod>(&env, name).await?.len(), 0, "{name}");
    }

    apply_nodeset(&env, "items", json!({ "replicas": 1, "extraConf": "Weight=10" })).await?;
    wait_for_pods(&env, "items", &["items-0"]).await?;
    tear_down(env).await
}

#[tokio::test]
async fn node_whose_name_slurm_cannot_use_gets_no_worker() -> Result<()> {
    let env = start("node-names").await?;
    apply_controller(&env).await?;
    let _dotted = TestNode::create(&env, "a", json!({})).await?;
    let unusable = TestNode::create(&env, "b", json!({ HOSTNAME_OVERRIDE: "gpu[0-" })).await?;
    let spec = json!({ "nodeSelector": test_labels(&env), "tolerations": [{ "operator": "Exists" }] });
    apply_nodeset(&env, NAME, json!({ "scalingMode": "DaemonSet", "template": { "spec": spec } })).await?;
    apply_nodeset(&env, "good", json!({ "replicas": 1 })).await?;
    let message = env.wait_for_degraded::<NodeSet>(NAME, "InvalidHostname").await?;
    let node = unusable.name();
    let expected = format!(r#"Kubernetes node {node}: hostname "gpu[0-" cannot be used: "#);
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(env.wait_for_event_note(NAME, "InvalidHostname").await?, message);
    let has_one_worker = |pods: &Vec<Pod>| {
        let specs = pods.iter().filter_map(|pod| pod.spec.as_ref()?.hostname.as_deref());
        specs.collect::<Vec<_>>() == ["a"]
    };
    let list_pods = async || list::<Pod>(&env, NAME).await;
    eventually("a worker on the node with dots in its name", FIRST_WRITE, list_pods, has_one_worker).await?;
    wait_for_pods(&env, "good", &["good-0"]).await?;
    tear_down(env).await
}
