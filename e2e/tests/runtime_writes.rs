//! Server-side apply against a real API server: what the runtime assumes of it, and what follows for our objects.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use anyhow::Result;
use e2e::stage::SOON;
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

struct Stage {
    client: Client,
    namespace: TestNamespace,
    owner: ConfigMap,
}

impl Stage {
    /// A namespace with an object that owns what the test makes.
    async fn set(name: &str) -> Result<Self> {
        let client = client().await?;
        let namespace = TestNamespace::create(&client, name).await?;
        let owner = json!({"metadata": {"name": "owner"}});
        let owner = namespace.api().create(&PostParams::default(), &serde_json::from_value(owner)?).await?;
        Ok(Self { client, namespace, owner })
    }

    /// An applier that remembers nothing, as after a restart.
    fn applier(&self) -> Applier {
        Applier::new(self.client.clone(), MANAGER)
    }

    /// The object with name, namespace and owner.
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

    /// Writes as somebody else does.
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

async fn applying_twice_is_one_write<K: Object>(content: Value) -> Result<()> {
    let stage = Stage::set("twice").await?;
    let desired: K = stage.object(content);
    let Applied::Created(created) = stage.applier().apply(&desired, None).await? else {
        panic!("not created")
    };
    // A fresh applier decides by the live object alone, read or from a cache.
    for live in [None, Some(&created)] {
        let again = stage.applier().apply(&desired, live).await?;
        assert!(matches!(again, Applied::Unchanged), "{again:#?}");
    }
    // The version itself moves where a controller of Kubernetes writes a status.
    assert_eq!(stage.live::<K>().await?.meta().generation, created.meta().generation);
    stage.namespace.delete().await
}

#[tokio::test]
async fn applying_a_config_map_twice_is_one_write() -> Result<()> {
    applying_twice_is_one_write::<ConfigMap>(json!({"data": {"a": "1"}, "metadata": {"labels": {"l": "v"}}}))
        .await
}

#[tokio::test]
async fn applying_a_secret_twice_is_one_write() -> Result<()> {
    applying_twice_is_one_write::<Secret>(json!({"data": {"a": "MQ=="}, "type": "Opaque"})).await
}

#[tokio::test]
async fn applying_a_service_twice_is_one_write() -> Result<()> {
    applying_twice_is_one_write::<Service>(json!({"spec": {
        "clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "x"},
        "ports": [{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 53, "protocol": "UDP"}],
    }}))
    .await
}

#[tokio::test]
async fn applying_a_stateful_set_twice_is_one_write() -> Result<()> {
    applying_twice_is_one_write::<StatefulSet>(stateful_set()).await
}

#[tokio::test]
async fn applying_a_deployment_twice_is_one_write() -> Result<()> {
    applying_twice_is_one_write::<Deployment>(json!({"spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": pod_template(),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
    }}))
    .await
}

#[tokio::test]
async fn applying_a_disruption_budget_twice_is_one_write() -> Result<()> {
    applying_twice_is_one_write::<PodDisruptionBudget>(
        json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}}),
    )
    .await
}

#[tokio::test]
async fn values_that_the_server_rewrites_are_applied_once_per_process() -> Result<()> {
    let stage = Stage::set("rewritten").await?;
    let content = json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1000m"}}]}});
    let desired: LimitRange = stage.object(content);
    let applier = stage.applier();
    applier.apply(&desired, None).await?;
    let again = applier.apply(&desired, None).await?;
    assert!(matches!(again, Applied::Unchanged), "{again:#?}");
    let version = stage.live::<LimitRange>().await?.resource_version();
    let after_restart = stage.applier().apply(&desired, None).await?;
    assert!(matches!(after_restart, Applied::Changed(_)), "{after_restart:#?}");
    assert_eq!(stage.live::<LimitRange>().await?.resource_version(), version, "the apply had an effect");
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_cache_without_managed_fields_costs_one_apply_without_effect() -> Result<()> {
    let stage = Stage::set("pruned").await?;
    let desired: ConfigMap = stage.object(json!({"data": {"a": "1"}}));
    stage.applier().apply(&desired, None).await?;
    let mut cached = stage.live::<ConfigMap>().await?;
    cached.metadata.managed_fields = None;
    let applier = stage.applier();
    assert!(matches!(applier.apply(&desired, Some(&cached)).await?, Applied::Changed(_)));
    assert!(matches!(applier.apply(&desired, Some(&cached)).await?, Applied::Unchanged));
    assert_eq!(stage.live::<ConfigMap>().await?.resource_version(), cached.resource_version());
    stage.namespace.delete().await
}

#[tokio::test]
async fn our_removed_keys_go_and_foreign_keys_stay() -> Result<()> {
    let stage = Stage::set("keys").await?;
    let before: ConfigMap =
        stage.object(json!({"data": {"a": "1", "b": "2"}, "metadata": {"labels": {"ours": "x"}}}));
    stage.applier().apply(&before, None).await?;
    let foreign = json!({"data": {"c": "3"}, "metadata": {"labels": {"theirs": "y"}}});
    stage.merge::<ConfigMap>("somebody", foreign).await?;
    let after: ConfigMap = stage.object(json!({"data": {"a": "1"}}));
    assert!(matches!(stage.applier().apply(&after, None).await?, Applied::Changed(_)));
    let live = stage.live::<ConfigMap>().await?;
    assert_eq!(serde_json::to_value(&live.data)?, json!({"a": "1", "c": "3"}));
    assert_eq!(serde_json::to_value(live.labels())?, json!({"theirs": "y"}));
    assert!(matches!(stage.applier().apply(&after, None).await?, Applied::Unchanged));
    stage.namespace.delete().await
}

#[rstest]
#[case::value("replicas", json!({"spec": {"replicas": 3}}))]
#[case::value_owned_as_a_whole("addition to nodeSelector", json!({"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}))]
#[case::list_owned_as_a_whole("tolerations", json!({"spec": {"template": {"spec": {"tolerations": []}}}}))]
#[tokio::test]
async fn what_somebody_else_changed_is_put_right(#[case] what: &str, #[case] change: Value) -> Result<()> {
    let stage = Stage::set("drift").await?;
    let desired: StatefulSet = stage.object(stateful_set());
    let Applied::Created(created) = stage.applier().apply(&desired, None).await? else {
        panic!("not created")
    };
    let drifted = stage.merge::<StatefulSet>("somebody", change).await?;
    assert_ne!(drifted.spec, created.spec, "{what}: no drift");
    let repaired = stage.applier().apply(&desired, Some(&drifted)).await?;
    let Applied::Changed(repaired) = repaired else { panic!("{what}: {repaired:?}") };
    assert_eq!(repaired.spec, created.spec, "{what}");
    stage.namespace.delete().await
}

#[tokio::test]
async fn an_object_of_another_controller_is_refused_by_us_and_by_the_server() -> Result<()> {
    let stage = Stage::set("foreign").await?;
    let mut theirs: ConfigMap = stage.object(json!({"data": {"a": "theirs"}}));
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}}))?;
    let other: ConfigMap = stage.namespace.api().create(&PostParams::default(), &other).await?;
    theirs.metadata.owner_references = other.controller_owner_ref(&()).map(|owner| vec![owner]);
    let theirs: ConfigMap = stage.namespace.api().create(&PostParams::default(), &theirs).await?;
    let ours: ConfigMap = stage.object(json!({"data": {"a": "ours"}}));
    let refused = stage.applier().apply(&ours, None).await;
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    // Should it appear between our look and our write, the server says no.
    let api: Api<ConfigMap> = stage.namespace.api();
    let forced = api.patch("child", &PatchParams::apply(MANAGER).force(), &Patch::Apply(&ours)).await;
    assert!(matches!(&forced, Err(kube::Error::Api(status)) if status.is_invalid()), "{forced:?}");
    assert_eq!(stage.live::<ConfigMap>().await?.resource_version(), theirs.resource_version());
    stage.namespace.delete().await
}

#[rstest]
#[case::deleted(false)]
#[case::made_anew(true)]
#[tokio::test]
async fn a_cache_that_is_behind_does_not_matter(#[case] made_anew: bool) -> Result<()> {
    let stage = Stage::set("behind").await?;
    let before: ConfigMap = stage.object(json!({"data": {"a": "1"}}));
    let Applied::Created(cached) = stage.applier().apply(&before, None).await? else { panic!("not created") };
    stage.namespace.api::<ConfigMap>().delete("child", &DeleteParams::default()).await?;
    if made_anew {
        stage.applier().apply(&before, None).await?;
    }
    let after: ConfigMap = stage.object(json!({"data": {"a": "2"}}));
    let outcome = stage.applier().apply(&after, Some(&cached)).await?;
    assert_eq!(matches!(outcome, Applied::Created(_)), !made_anew, "{outcome:?}");
    assert_eq!(stage.live::<ConfigMap>().await?.data, after.data);
    stage.namespace.delete().await
}

/// Makes `child` as our predecessor does, by a create and updates of a manager called "manager".
async fn made_by_predecessor<K: Object>(stage: &Stage, content: Value) -> Result<K> {
    let object: K = stage.object(content);
    let params = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    Ok(stage.namespace.api().create(&params, &object).await?)
}

#[tokio::test]
async fn an_object_of_our_predecessor_is_taken_over_with_its_keys() -> Result<()> {
    let stage = Stage::set("takeover").await?;
    let content = json!({"data": {"kept": "1", "dropped": "2"}, "metadata": {"annotations": {"old": "x"}}});
    let made = made_by_predecessor::<ConfigMap>(&stage, content).await?;
    stage.merge::<ConfigMap>("kubectl-edit", json!({"metadata": {"labels": {"person": "y"}}})).await?;
    let desired: ConfigMap = stage.object(json!({"data": {"kept": "1"}}));
    assert!(matches!(stage.applier().apply(&desired, None).await?, Applied::Changed(_)));
    let live = stage.live::<ConfigMap>().await?;
    assert_eq!(live.uid(), made.uid());
    assert_eq!(serde_json::to_value(&live.data)?, json!({"kept": "1"}));
    assert_eq!(serde_json::to_value(live.annotations())?, json!({}));
    assert_eq!(serde_json::to_value(live.labels())?, json!({"person": "y"}));
    assert!(matches!(stage.applier().apply(&desired, None).await?, Applied::Unchanged));
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_workload_of_our_predecessor_that_means_the_same_is_not_restarted() -> Result<()> {
    let stage = Stage::set("same").await?;
    let made = made_by_predecessor::<StatefulSet>(&stage, stateful_set()).await?;
    let desired: StatefulSet = stage.object(stateful_set());
    assert!(matches!(stage.applier().apply(&desired, None).await?, Applied::Changed(_)));
    let live = stage.live::<StatefulSet>().await?;
    assert_eq!((live.metadata.generation, live.spec), (made.metadata.generation, made.spec));
    assert!(matches!(stage.applier().apply(&desired, None).await?, Applied::Unchanged));
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_service_of_our_predecessor_keeps_its_address() -> Result<()> {
    let stage = Stage::set("address").await?;
    let content = json!({"spec": {"selector": {"app": "x"}, "ports": [{"name": "a", "port": 80}]}});
    let made = made_by_predecessor::<Service>(&stage, content.clone()).await?;
    stage.applier().apply(&stage.object::<Service>(content), None).await?;
    assert_eq!(stage.live::<Service>().await?.spec, made.spec);
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_list_that_names_an_item_twice_is_written_once_per_change_and_process() -> Result<()> {
    let stage = Stage::set("twice").await?;
    let workload = |value: &str| {
        let env = json!([{ "name": "A", "value": "1" }, { "name": "A", "value": value }]);
        let container = json!({ "name": "c", "image": "i", "env": env });
        stage.object::<Deployment>(json!({ "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [container] } },
        } }))
    };
    let applier = stage.applier();
    assert!(matches!(applier.apply(&workload("2"), None).await?, Applied::Created(_)));
    let second = |deployment: &Deployment| {
        let pod = deployment.spec.clone().unwrap().template.spec.unwrap();
        pod.containers[0].env.clone().unwrap()[1].value.clone().unwrap()
    };
    // Kubernetes numbers the revisions of a Deployment: a change that may cost a write, like every other.
    let look = async || stage.live::<Deployment>().await;
    let numbered = |live: &Deployment| live.annotations().contains_key("deployment.kubernetes.io/revision");
    let live = eventually("a revision", SOON, look, numbered).await?;
    assert_eq!(second(&live), "2");
    applier.apply(&workload("2"), Some(&live)).await?;
    let live = stage.live().await?;
    assert!(matches!(applier.apply(&workload("2"), Some(&live)).await?, Applied::Unchanged));
    assert!(matches!(applier.apply(&workload("3"), Some(&live)).await?, Applied::Changed(_)));
    let live: Deployment = stage.live().await?;
    assert_eq!(second(&live), "3");
    stage.applier().apply(&workload("3"), Some(&live)).await?;
    let generation = stage.live::<Deployment>().await?.metadata.generation;
    assert_eq!(generation, live.metadata.generation, "the spec changed after a restart");
    stage.namespace.delete().await
}

async fn pod(stage: &Stage) -> Result<Pod> {
    let content = json!({"spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    Ok(stage.namespace.api().create(&PostParams::default(), &stage.object(content)).await?)
}

#[tokio::test]
async fn a_status_is_written_once_and_only_for_its_own_spec() -> Result<()> {
    let stage = Stage::set("status").await?;
    let first = pod(&stage).await?;
    let status =
        |message: &str| json!({"message": message, "conditions": [{"type": "Ours", "status": "True"}]});
    let write =
        async |object: &Pod, message: &str| stage.applier().apply_status(object, &status(message)).await;
    assert_eq!(write(&first, "a").await?, StatusWrite::Written);
    let second: Pod = stage.live().await?;
    assert_eq!(write(&second, "a").await?, StatusWrite::Unchanged);
    assert_eq!(stage.live::<Pod>().await?.resource_version(), second.resource_version());
    // The cache lags: the version is old, the spec is not.
    assert_eq!(write(&first, "b").await?, StatusWrite::Written);
    assert_eq!(write(&first, "b").await?, StatusWrite::Unchanged);
    let newer: Pod = stage.merge("somebody", json!({"spec": {"activeDeadlineSeconds": 9999}})).await?;
    assert_ne!(newer.metadata.generation, first.metadata.generation, "no new generation");
    assert_eq!(write(&second, "c").await?, StatusWrite::Outdated);
    let live: Pod = stage.live().await?;
    assert_eq!(live.status.unwrap().message.as_deref(), Some("b"));
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_delete_takes_the_version_that_was_decided_on() -> Result<()> {
    let stage = Stage::set("delete").await?;
    let desired: ConfigMap = stage.object(json!({"data": {"a": "1"}}));
    let Applied::Created(old) = stage.applier().apply(&desired, None).await? else { panic!("not created") };
    let new = stage.merge::<ConfigMap>("somebody", json!({"data": {"b": "2"}})).await?;
    let applier = stage.applier();
    assert_eq!(applier.delete_if_owned(&old, &stage.owner).await?, Deleted::Changed);
    assert_eq!(stage.live::<ConfigMap>().await?.resource_version(), new.resource_version());
    assert_eq!(applier.delete_if_owned(&new, &stage.owner).await?, Deleted::Requested);
    assert_eq!(applier.delete_if_owned(&new, &stage.owner).await?, Deleted::Gone);
    stage.namespace.delete().await
}

#[tokio::test]
async fn of_several_writers_none_loses_a_change() -> Result<()> {
    let stage = Stage::set("conflict").await?;
    let api: &Api<ConfigMap> = &stage.namespace.api();
    let counter: ConfigMap = stage.object(json!({"data": {"count": "0"}}));
    api.create(&PostParams::default(), &counter).await?;
    let increment = || {
        retry_on_conflict(DEFAULT_RETRY, || async {
            let mut latest = api.get("child").await?;
            let count: u32 = latest.data.as_ref().unwrap()["count"].parse().unwrap();
            latest.data = Some([("count".to_owned(), (count + 1).to_string())].into());
            api.replace("child", &PostParams::default(), &latest).await
        })
    };
    // Each round has a winner, so the last of four needs four of its five attempts.
    let (a, b, c, d) = tokio::join!(increment(), increment(), increment(), increment());
    for result in [a, b, c, d] {
        assert!(result?.is_some());
    }
    assert_eq!(stage.live::<ConfigMap>().await?.data.unwrap()["count"], "4");
    stage.namespace.delete().await
}
