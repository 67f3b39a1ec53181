//! Puts a plan into effect.

use crate::build::{AUTHORIZED_KEYS, Hashes, SSHD_CONFIG, build_deployment, build_host_keys, hash_host_keys};
use crate::controller::Context;
use crate::host_keys::generate;
use crate::observe::Children;
use crate::plan::{HostKeys, Obstacle, Plan};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use operator_runtime::events::{EventType, NewEvent};
use operator_runtime::{ChildWriter, RawObject, StepErrors};
use pod_builder::hash_bytes;
use slinky_api::v1beta1::LoginSet;
use std::convert::Infallible;

/// Makes the children what they should be. Gives the Deployment as it is now, if it is there to stay.
pub async fn execute(
    plan: Plan,
    loginset: &LoginSet,
    children: &Children,
    context: &Context,
) -> Result<Option<RawObject<Deployment>>, StepErrors> {
    let mut pass = ChildWriter::new(&context.scope, loginset);
    let config = Ok::<_, Infallible>(plan.config);
    let config = pass.apply("SSH Config", config, children.config.as_deref()).await;
    pass.apply("Service", plan.service, children.service.as_deref()).await;
    // Keys cost work, which is wasted where they could not be written either.
    let host_keys = match config {
        Some(_) => make_host_keys(&mut pass, plan.host_keys, loginset, children, context).await,
        None => None,
    };
    let surroundings = pass.record("Deployment", plan.surroundings);
    let deployment = match (surroundings, host_keys, config) {
        (Some(surroundings), Some(host_keys), Some(config)) => {
            let sshd_conf = hash_file(&config, SSHD_CONFIG);
            let keys = hash_file(&config, AUTHORIZED_KEYS) + &surroundings.slurm_key;
            let hashes = Hashes {
                host_keys,
                sshd_conf,
                sssd_conf: surroundings.sssd_conf,
                content: hash_bytes(keys.as_bytes()),
            };
            let live = children.deployment.as_deref();
            let (controller, domain) = (&surroundings.controller, &context.cluster_domain);
            let desired = build_deployment(loginset, controller, hashes, domain, live);
            pass.apply("Deployment", desired.map_err(Obstacle::from), live).await
        }
        // Pods that were started now would not come up, or with the keys of somebody else.
        _ => None,
    };
    pass.finish().map(|()| deployment)
}

/// Makes host keys where there are none. Gives the hash of those that there are now.
async fn make_host_keys(
    pass: &mut ChildWriter<'_, LoginSet>,
    planned: Result<HostKeys, Obstacle>,
    loginset: &LoginSet,
    children: &Children,
    context: &Context,
) -> Option<String> {
    const STEP: &str = "SSH Host Keys";
    match pass.record(STEP, planned)? {
        HostKeys::Keep(hash) => Some(hash),
        HostKeys::Await => None,
        HostKeys::Make => {
            let files = generate().await.map_err(Obstacle::Generate);
            // Should another process have been faster, its keys are those that count.
            let made = pass.create(STEP, files.map(|files| build_host_keys(loginset, files))).await;
            if made.is_some() && children.deployment.is_some() {
                context.scope.events().publish(loginset, notice_of_old_keys());
            }
            made.map(hash_host_keys)
        }
    }
}

/// What to know when pods run with other keys than those that were just made. The kubelet reads an immutable Secret once,
/// and again only when no pod of its node refers to that name any more: one that starts earlier gets the old keys.
fn notice_of_old_keys() -> NewEvent {
    NewEvent {
        type_: EventType::Warning,
        reason: "HostKeysReplaced".to_owned(),
        action: "Create".to_owned(),
        note: "New ssh host keys were made, but nodes give pods the old ones as long as any pod there has them: scale \
               to 0, and back when all pods are gone"
            .to_owned(),
        related: None,
    }
}

/// The hash of a file that sshd will find.
fn hash_file(config: &ConfigMap, name: &str) -> String {
    let text = config.data.as_ref().and_then(|data| data.get(name));
    hash_bytes(text.map(String::as_bytes).unwrap_or_default())
}
