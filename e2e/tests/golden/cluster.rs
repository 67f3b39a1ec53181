//! The cases in a real API server: applied, and read once they have settled.

use crate::case::{Case, id};
use crate::normalise::normalise;
use anyhow::{Context, Result};
use e2e::eventually;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The compared kinds by group and version.
const KINDS: &[(&str, &str, &[&str])] = &[
    ("", "v1", &["Service", "ConfigMap", "Secret", "Pod", "PersistentVolumeClaim"]),
    ("apps", "v1", &["StatefulSet", "Deployment", "DaemonSet", "ControllerRevision"]),
    ("policy", "v1", &["PodDisruptionBudget"]),
    ("monitoring.coreos.com", "v1", &["ServiceMonitor"]),
    (
        slinky_api::GROUP,
        slinky_api::VERSION,
        &["Controller", "NodeSet", "LoginSet", "Accounting", "RestApi", "Token"],
    ),
];
const POLL: Duration = Duration::from_millis(500);
/// How long no object may have changed.
const UNCHANGED: Duration = Duration::from_secs(4);
/// Timeout; debug builds take long to generate the primes of host keys.
const SETTLED: Duration = Duration::from_mins(3);
const NAMESPACE_DELETED: Duration = Duration::from_mins(2);

/// Starts the deletion of the namespaces of all cases.
async fn delete_namespaces(client: &Client, cases: &[Case]) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for case in cases {
        match namespaces.delete(&case.namespace, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            response => drop(response?),
        }
    }
    Ok(())
}

/// Deletes the namespaces of all cases and waits until they are deleted.
pub async fn clear(client: &Client, cases: &[Case]) -> Result<()> {
    delete_namespaces(client, cases).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for case in cases {
        let get = async || Ok(namespaces.get_opt(&case.namespace).await?);
        eventually("deletion of a namespace", NAMESPACE_DELETED, get, Option::is_none).await?;
    }
    Ok(())
}

/// Applies the objects of a case as a user.
pub async fn apply(client: &Client, case: &Case) -> Result<()> {
    for document in &case.input {
        let object: DynamicObject = serde_json::from_value(document.clone())?;
        let kind = GroupVersionKind::try_from(object.types.as_ref().context("an object without kind")?)?;
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply("golden").force().validation_strict();
        let applied = api.patch(&object.name_any(), &params, &Patch::Apply(document)).await;
        applied.with_context(|| format!("{}: {}", case.name, id(document)))?;
    }
    Ok(())
}

/// Waits until all cases are complete and unchanged for a while, or until the timeout; returns the objects of each case.
pub async fn wait_until_settled(
    client: &Client,
    cases: &[Case],
    is_complete: impl Fn(&Case, &[Value]) -> bool,
) -> Result<Vec<Vec<Value>>> {
    let read = async || {
        let objects = objects_by_namespace(client).await?;
        let of = |case: &Case| objects.get(&case.namespace).map_or(&[][..], Vec::as_slice);
        anyhow::Ok(cases.iter().map(|case| normalise(of(case), case)).collect::<Vec<_>>())
    };
    let all_complete =
        |live: &[Vec<Value>]| cases.iter().zip(live).all(|(case, live)| is_complete(case, live));
    let start = Instant::now();
    let (mut live, mut since) = (read().await?, start);
    loop {
        sleep(POLL).await;
        let now = read().await?;
        if now != live {
            (live, since) = (now, Instant::now());
        }
        if (since.elapsed() >= UNCHANGED && all_complete(&live)) || start.elapsed() >= SETTLED {
            return Ok(live);
        }
    }
}

async fn objects_by_namespace(client: &Client) -> Result<BTreeMap<String, Vec<Value>>> {
    let mut objects: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (group, version, kinds) in KINDS {
        for kind in *kinds {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for mut object in api.list(&ListParams::default()).await? {
                object.types = Some(kube::core::TypeMeta {
                    api_version: resource.api_version.clone(),
                    kind: resource.kind.clone(),
                });
                let namespace = object.namespace().unwrap_or_default();
                objects.entry(namespace).or_default().push(serde_json::to_value(object)?);
            }
        }
    }
    Ok(objects)
}
