//! The runtime's writes against a real API server: server-side apply, status, deletes, conflicts.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use anyhow::Result;
use e2e::test_env::SOON;
use e2e::{TestNamespace, client, eventually};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use operator_runtime::apply::{Applied, Applier, Deleted, Error, Object, StatusWrite};
use operator_runtime::retry::{DEFAULT_RETRY, retry_on_conflict};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const MANAGER: &str = "runtime-test";

struct Fixture {
    client: Client,
    namespace: TestNamespace,
    owner: ConfigMap,
}

impl Fixture {
    /// Creates a namespace with an object that owns the objects of the test.
    async fn create(name: &str) -> Result<Self> {
        let client = client().await?;
        let namespace = TestNamespace::create(&client, name).await?;
        let owner = json!({"metadata": {"name": "owner"}});
        let owner = namespace.api().create(&PostParams::default(), &serde_json::from_value(owner)?).await?;
        Ok(Self { client, namespace, owner })
    }

    /// An applier without history, as after a restart.
    fn applier(&self) -> Applier {
        Applier::new(self.client.clone(), MANAGER)
    }

    /// An object with this content, and with name, namespace and owner.
    fn object<K: DeserializeOwned + Resource<DynamicType = ()>>(&self, content: Value) -> K {
        let mut object: K = serde_json::from_value(content).unwrap();
        let owner = self.owner.controller_owner_ref(&()).unwrap();
        let metadata = object.meta_mut();
        metadata.name.get_or_insert_with(|| "child".into());
        metadata.namespace = Some(self.namespace.name().into());
        metadata.owner_references = Some(vec![owner]);
        object
    }

    async fn live<K: Object>(&self) -> Result<K> {
        Ok(self.namespace.api().get("child").await?)
    }

    /// Merges a change as another field manager.
    async fn merge<K: Object>(&self, manager: &str, change: Value) -> Result<K> {
        let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        Ok(self.namespace.api().patch("child", &params, &Patch::Merge(change)).await?)
    }
}

fn pod_template() -> Value {
    json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "containers": [
                {
                    "name": "main",
                    "image": "main:1",
                    "env": [
                        {"name": "B", "value": "2"},
                        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    ],
                    "ports": [{"name": "http", "containerPort": 80}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}],
                    "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
                    "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
                    "securityContext": {"capabilities": {"add": ["SYS_NICE"]}},
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                },
                {"name": "side", "image": "side:1"},
            ],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "x"}},
            }],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "config", "projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}}]}},
            ],
        },
    })
}

fn stateful_set() -> Value {
    json!({"spec": {
        "serviceName": "x",
        "replicas": 0,
        "selector": {"matchLabels": {"app": "x"}},
        "template": pod_template(),
        "volumeClaimTemplates": [{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }],
    }})
}

async fn ensure_second_apply_writes_nothing<K: Object>(content: Value) -> Result<()> {
    let fixture = Fixture::create("twice").await?;
    let desired: K = fixture.object(content);
    let Applied::Created(created) = fixture.applier().apply(&desired, None).await? else {
        panic!("not created")
    };
    // A new applier compares with the live object only, read or cached.
    for live in [None, Some(&created)] {
        let again = fixture.applier().apply(&desired, live).await?;
        assert!(matches!(again, Applied::Unchanged), "{again:#?}");
    }
    // Not the resource version: Kubernetes controllers write the status.
    assert_eq!(fixture.live::<K>().await?.meta().generation, created.meta().generation);
    fixture.namespace.delete().await
}

#[tokio::test]
async fn second_apply_of_a_config_map_writes_nothing() -> Result<()> {
    ensure_second_apply_writes_nothing::<ConfigMap>(
        json!({"data": {"a": "1"}, "metadata": {"labels": {"l": "v"}}}),
    )
    .await
}

#[tokio::test]
async fn second_apply_of_a_secret_writes_nothing() -> Result<()> {
    ensure_second_apply_writes_nothing::<Secret>(json!({"data": {"a": "MQ=="}, "type": "Opaque"})).await
}

#[tokio::test]
async fn second_apply_of_a_service_writes_nothing() -> Result<()> {
    ensure_second_apply_writes_nothing::<Service>(json!({"spec": {
        "clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "x"},
        "ports": [{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 53, "protocol": "UDP"}],
    }}))
    .await
}

#[tokio::test]
async fn second_apply_of_a_stateful_set_writes_nothing() -> Result<()> {
    ensure_second_apply_writes_nothing::<StatefulSet>(stateful_set()).await
}

#[tokio::test]
async fn second_apply_of_a_deployment_writes_nothing() -> Result<()> {
    ensure_second_apply_writes_nothing::<Deployment>(json!({"spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": pod_template(),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
    }}))
    .await
}

#[tokio::test]
async fn second_apply_of_a_disruption_budget_writes_nothing() -> Result<()> {
    ensure_second_apply_writes_nothing::<PodDisruptionBudget>(
        json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}}),
    )
    .await
}

#[tokio::test]
async fn value_that_the_server_normalizes_is_applied_once_per_process() -> Result<()> {
    let fixture = Fixture::create("rewritten").await?;
    let content = json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1000m"}}]}});
    let desired: LimitRange = fixture.object(content);
    let applier = fixture.applier();
    applier.apply(&desired, None).await?;
    let again = applier.apply(&desired, None).await?;
    assert!(matches!(again, Applied::Unchanged), "{again:#?}");
    let version = fixture.live::<LimitRange>().await?.resource_version();
    let after_restart = fixture.applier().apply(&desired, None).await?;
    assert!(matches!(after_restart, Applied::Changed(_)), "{after_restart:#?}");
    assert_eq!(fixture.live::<LimitRange>().await?.resource_version(), version, "the apply had an effect");
    fixture.namespace.delete().await
}

#[tokio::test]
async fn cached_object_without_managed_fields_costs_one_apply_without_effect() -> Result<()> {
    let fixture = Fixture::create("pruned").await?;
    let desired: ConfigMap = fixture.object(json!({"data": {"a": "1"}}));
    fixture.applier().apply(&desired, None).await?;
    let mut cached = fixture.live::<ConfigMap>().await?;
    cached.metadata.managed_fields = None;
    let applier = fixture.applier();
    assert!(matches!(applier.apply(&desired, Some(&cached)).await?, Applied::Changed(_)));
    assert!(matches!(applier.apply(&desired, Some(&cached)).await?, Applied::Unchanged));
    assert_eq!(fixture.live::<ConfigMap>().await?.resource_version(), cached.resource_version());
    fixture.namespace.delete().await
}

#[tokio::test]
async fn apply_removes_our_keys_and_keeps_keys_of_other_managers() -> Result<()> {
    let fixture = Fixture::create("keys").await?;
    let before: ConfigMap =
        fixture.object(json!({"data": {"a": "1", "b": "2"}, "metadata": {"labels": {"ours": "x"}}}));
    fixture.applier().apply(&before, None).await?;
    let foreign = json!({"data": {"c": "3"}, "metadata": {"labels": {"theirs": "y"}}});
    fixture.merge::<ConfigMap>("another-manager", foreign).await?;
    let after: ConfigMap = fixture.object(json!({"data": {"a": "1"}}));
    assert!(matches!(fixture.applier().apply(&after, None).await?, Applied::Changed(_)));
    let live = fixture.live::<ConfigMap>().await?;
    assert_eq!(serde_json::to_value(&live.data)?, json!({"a": "1", "c": "3"}));
    assert_eq!(serde_json::to_value(live.labels())?, json!({"theirs": "y"}));
    assert!(matches!(fixture.applier().apply(&after, None).await?, Applied::Unchanged));
    fixture.namespace.delete().await
}

#[rstest]
#[case::value("replicas", json!({"spec": {"replicas": 3}}))]
#[case::atomic_map("addition to nodeSelector", json!({"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}))]
#[case::atomic_list("tolerations", json!({"spec": {"template": {"spec": {"tolerations": []}}}}))]
#[tokio::test]
async fn drift_in_our_fields_is_reverted(#[case] what: &str, #[case] change: Value) -> Result<()> {
    let fixture = Fixture::create("drift").await?;
    let desired: StatefulSet = fixture.object(stateful_set());
    let Applied::Created(created) = fixture.applier().apply(&desired, None).await? else {
        panic!("not created")
    };
    let drifted = fixture.merge::<StatefulSet>("another-manager", change).await?;
    assert_ne!(drifted.spec, created.spec, "{what}: no drift");
    let repaired = fixture.applier().apply(&desired, Some(&drifted)).await?;
    let Applied::Changed(repaired) = repaired else { panic!("{what}: {repaired:?}") };
    assert_eq!(repaired.spec, created.spec, "{what}");
    fixture.namespace.delete().await
}

#[tokio::test]
async fn object_of_another_controller_is_rejected_by_the_applier_and_by_the_server() -> Result<()> {
    let fixture = Fixture::create("foreign").await?;
    let mut theirs: ConfigMap = fixture.object(json!({"data": {"a": "theirs"}}));
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}}))?;
    let other: ConfigMap = fixture.namespace.api().create(&PostParams::default(), &other).await?;
    theirs.metadata.owner_references = other.controller_owner_ref(&()).map(|owner| vec![owner]);
    let theirs: ConfigMap = fixture.namespace.api().create(&PostParams::default(), &theirs).await?;
    let ours: ConfigMap = fixture.object(json!({"data": {"a": "ours"}}));
    let refused = fixture.applier().apply(&ours, None).await;
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    // If it is created between our read and our write, the server rejects a second controller.
    let api: Api<ConfigMap> = fixture.namespace.api();
    let forced = api.patch("child", &PatchParams::apply(MANAGER).force(), &Patch::Apply(&ours)).await;
    assert!(matches!(&forced, Err(kube::Error::Api(status)) if status.is_invalid()), "{forced:?}");
    assert_eq!(fixture.live::<ConfigMap>().await?.resource_version(), theirs.resource_version());
    fixture.namespace.delete().await
}

#[rstest]
#[case::deleted(false)]
#[case::recreated(true)]
#[tokio::test]
async fn apply_with_a_stale_cached_object_succeeds(#[case] recreated: bool) -> Result<()> {
    let fixture = Fixture::create("behind").await?;
    let before: ConfigMap = fixture.object(json!({"data": {"a": "1"}}));
    let Applied::Created(cached) = fixture.applier().apply(&before, None).await? else {
        panic!("not created")
    };
    fixture.namespace.api::<ConfigMap>().delete("child", &DeleteParams::default()).await?;
    if recreated {
        fixture.applier().apply(&before, None).await?;
    }
    let after: ConfigMap = fixture.object(json!({"data": {"a": "2"}}));
    let outcome = fixture.applier().apply(&after, Some(&cached)).await?;
    assert_eq!(matches!(outcome, Applied::Created(_)), !recreated, "{outcome:?}");
    assert_eq!(fixture.live::<ConfigMap>().await?.data, after.data);
    fixture.namespace.delete().await
}

/// As after `kubectl delete --cascade=orphan`, before the cache has the change of the child.
#[tokio::test]
async fn owner_that_is_only_in_the_cache_is_not_restored() -> Result<()> {
    let fixture = Fixture::create("orphaned").await?;
    let labels = json!({
        "app.kubernetes.io/name": "child", "app.kubernetes.io/instance": "owner", "app.kubernetes.io/component": "child",
    });
    let with_data = |value: &str| json!({ "metadata": { "labels": labels }, "data": { "a": value } });
    let before: ConfigMap = fixture.object(with_data("1"));
    let Applied::Created(cached) = fixture.applier().apply(&before, None).await? else {
        panic!("not created")
    };
    let orphan: ConfigMap =
        fixture.merge("garbage-collector", json!({ "metadata": { "ownerReferences": null } })).await?;
    fixture.namespace.api::<ConfigMap>().delete("owner", &DeleteParams::default()).await?;
    let after: ConfigMap = fixture.object(with_data("2"));
    let outcome = fixture.applier().apply(&after, Some(&cached)).await?;
    assert!(matches!(outcome, Applied::Terminating), "{outcome:?}");
    assert_eq!(fixture.live::<ConfigMap>().await?.resource_version(), orphan.resource_version());
    fixture.namespace.delete().await
}

/// Creates `child` as another operator does, with the field manager "manager".
async fn create_by_other_operator<K: Object>(fixture: &Fixture, content: Value) -> Result<K> {
    let object: K = fixture.object(content);
    let params = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    Ok(fixture.namespace.api().create(&params, &object).await?)
}

#[tokio::test]
async fn adopted_object_loses_the_keys_that_are_not_desired() -> Result<()> {
    let fixture = Fixture::create("adopt").await?;
    let content = json!({"data": {"kept": "1", "dropped": "2"}, "metadata": {"annotations": {"old": "x"}}});
    let created = create_by_other_operator::<ConfigMap>(&fixture, content).await?;
    fixture.merge::<ConfigMap>("kubectl-edit", json!({"metadata": {"labels": {"person": "y"}}})).await?;
    let desired: ConfigMap = fixture.object(json!({"data": {"kept": "1"}}));
    assert!(matches!(fixture.applier().apply(&desired, None).await?, Applied::Changed(_)));
    let live = fixture.live::<ConfigMap>().await?;
    assert_eq!(live.uid(), created.uid());
    assert_eq!(serde_json::to_value(&live.data)?, json!({"kept": "1"}));
    assert_eq!(serde_json::to_value(live.annotations())?, json!({}));
    assert_eq!(serde_json::to_value(live.labels())?, json!({"person": "y"}));
    assert!(matches!(fixture.applier().apply(&desired, None).await?, Applied::Unchanged));
    fixture.namespace.delete().await
}

#[tokio::test]
async fn adopted_workload_with_an_equal_spec_is_not_restarted() -> Result<()> {
    let fixture = Fixture::create("same").await?;
    let created = create_by_other_operator::<StatefulSet>(&fixture, stateful_set()).await?;
    let desired: StatefulSet = fixture.object(stateful_set());
    assert!(matches!(fixture.applier().apply(&desired, None).await?, Applied::Changed(_)));
    let live = fixture.live::<StatefulSet>().await?;
    assert_eq!((live.metadata.generation, live.spec), (created.metadata.generation, created.spec));
    assert!(matches!(fixture.applier().apply(&desired, None).await?, Applied::Unchanged));
    fixture.namespace.delete().await
}

#[tokio::test]
async fn adopted_service_keeps_its_cluster_ip() -> Result<()> {
    let fixture = Fixture::create("address").await?;
    let content = json!({"spec": {"selector": {"app": "x"}, "ports": [{"name": "a", "port": 80}]}});
    let created = create_by_other_operator::<Service>(&fixture, content.clone()).await?;
    fixture.applier().apply(&fixture.object::<Service>(content), None).await?;
    assert_eq!(fixture.live::<Service>().await?.spec, created.spec);
    fixture.namespace.delete().await
}

#[tokio::test]
async fn list_with_a_duplicate_key_is_written_once_per_change_and_process() -> Result<()> {
    let fixture = Fixture::create("twice").await?;
    let workload = |value: &str| {
        let env = json!([{ "name": "A", "value": "1" }, { "name": "A", "value": value }]);
        let container = json!({ "name": "c", "image": "i", "env": env });
        fixture.object::<Deployment>(json!({ "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [container] } },
        } }))
    };
    let applier = fixture.applier();
    assert!(matches!(applier.apply(&workload("2"), None).await?, Applied::Created(_)));
    let second = |deployment: &Deployment| {
        let pod = deployment.spec.clone().unwrap().template.spec.unwrap();
        pod.containers[0].env.clone().unwrap()[1].value.clone().unwrap()
    };
    // Kubernetes annotates a Deployment with its revision, a change after which one more apply is allowed.
    let get = async || fixture.live::<Deployment>().await;
    let has_revision =
        |live: &Deployment| live.annotations().contains_key("deployment.kubernetes.io/revision");
    let live = eventually("a revision", SOON, get, has_revision).await?;
    assert_eq!(second(&live), "2");
    applier.apply(&workload("2"), Some(&live)).await?;
    let live = fixture.live().await?;
    assert!(matches!(applier.apply(&workload("2"), Some(&live)).await?, Applied::Unchanged));
    assert!(matches!(applier.apply(&workload("3"), Some(&live)).await?, Applied::Changed(_)));
    let live: Deployment = fixture.live().await?;
    assert_eq!(second(&live), "3");
    fixture.applier().apply(&workload("3"), Some(&live)).await?;
    let generation = fixture.live::<Deployment>().await?.metadata.generation;
    assert_eq!(generation, live.metadata.generation, "the spec changed after a restart");
    fixture.namespace.delete().await
}

async fn create_pod(fixture: &Fixture) -> Result<Pod> {
    let content = json!({"spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    Ok(fixture.namespace.api().create(&PostParams::default(), &fixture.object(content)).await?)
}

#[tokio::test]
async fn status_is_written_once_and_not_for_an_outdated_generation() -> Result<()> {
    let fixture = Fixture::create("status").await?;
    let first = create_pod(&fixture).await?;
    let status =
        |message: &str| json!({"message": message, "conditions": [{"type": "Ours", "status": "True"}]});
    let write =
        async |object: &Pod, message: &str| fixture.applier().apply_status(object, &status(message)).await;
    assert_eq!(write(&first, "a").await?, StatusWrite::Written);
    let second: Pod = fixture.live().await?;
    assert_eq!(write(&second, "a").await?, StatusWrite::Unchanged);
    assert_eq!(fixture.live::<Pod>().await?.resource_version(), second.resource_version());
    // A stale cache with an old resource version but the current generation.
    assert_eq!(write(&first, "b").await?, StatusWrite::Written);
    assert_eq!(write(&first, "b").await?, StatusWrite::Unchanged);
    let newer: Pod =
        fixture.merge("another-manager", json!({"spec": {"activeDeadlineSeconds": 9999}})).await?;
    assert_ne!(newer.metadata.generation, first.metadata.generation, "no new generation");
    assert_eq!(write(&second, "c").await?, StatusWrite::Outdated);
    let live: Pod = fixture.live().await?;
    assert_eq!(live.status.unwrap().message.as_deref(), Some("b"));
    fixture.namespace.delete().await
}

#[tokio::test]
async fn delete_has_the_observed_version_as_precondition() -> Result<()> {
    let fixture = Fixture::create("delete").await?;
    let desired: ConfigMap = fixture.object(json!({"data": {"a": "1"}}));
    let Applied::Created(old) = fixture.applier().apply(&desired, None).await? else { panic!("not created") };
    let new = fixture.merge::<ConfigMap>("another-manager", json!({"data": {"b": "2"}})).await?;
    let applier = fixture.applier();
    assert_eq!(applier.delete_if_owned(&old, &fixture.owner).await?, Deleted::Changed);
    assert_eq!(fixture.live::<ConfigMap>().await?.resource_version(), new.resource_version());
    assert_eq!(applier.delete_if_owned(&new, &fixture.owner).await?, Deleted::Requested);
    assert_eq!(applier.delete_if_owned(&new, &fixture.owner).await?, Deleted::Gone);
    fixture.namespace.delete().await
}

#[tokio::test]
async fn concurrent_writers_with_retry_on_conflict_lose_no_change() -> Result<()> {
    let fixture = Fixture::create("conflict").await?;
    let api: &Api<ConfigMap> = &fixture.namespace.api();
    let counter: ConfigMap = fixture.object(json!({"data": {"count": "0"}}));
    api.create(&PostParams::default(), &counter).await?;
    let increment = || {
        retry_on_conflict(DEFAULT_RETRY, || async {
            let mut latest = api.get("child").await?;
            let count: u32 = latest.data.as_ref().unwrap()["count"].parse().unwrap();
            latest.data = Some([("count".to_owned(), (count + 1).to_string())].into());
            api.replace("child", &PostParams::default(), &latest).await
        })
    };
    // One writer succeeds per round, so the last of four needs four of its five attempts.
    let (a, b, c, d) = tokio::join!(increment(), increment(), increment(), increment());
    for result in [a, b, c, d] {
        assert!(result?.is_some());
    }
    assert_eq!(fixture.live::<ConfigMap>().await?.data.unwrap()["count"], "4");
    fixture.namespace.delete().await
}
