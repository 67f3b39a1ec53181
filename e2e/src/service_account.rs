//! Service accounts with the permissions of a binary, and their tokens.

use crate::TestNamespace;
use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

/// Creates a service account with these rules in the whole cluster, in a ClusterRole with the name of the namespace.
pub async fn create_account(
    client: &Client,
    namespace: &TestNamespace,
    account: &str,
    rules: &Value,
) -> Result<()> {
    let name = namespace.name();
    let params = PostParams::default();
    let object = json!({ "metadata": { "name": account } });
    namespace.api::<ServiceAccount>().create(&params, &serde_json::from_value(object)?).await?;
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    Api::<ClusterRole>::all(client.clone()).create(&params, &serde_json::from_value(role)?).await?;
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": role_ref("ClusterRole", name),
        "subjects": [subject(name, account)],
    });
    Api::<ClusterRoleBinding>::all(client.clone()).create(&params, &serde_json::from_value(binding)?).await?;
    Ok(())
}

/// The reference of a binding to a role.
pub fn role_ref(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

/// A service account as the subject of a binding.
pub fn subject(namespace: &str, account: &str) -> Value {
    json!({ "kind": "ServiceAccount", "name": account, "namespace": namespace })
}

/// A token for this audience, by default that of the API server.
pub async fn request_token(
    namespace: &TestNamespace,
    account: &str,
    audience: Option<&str>,
) -> Result<String> {
    let audiences: Vec<_> = audience.into_iter().collect();
    let request = json!({ "metadata": {}, "spec": { "audiences": audiences, "expirationSeconds": 7200 } });
    let request: TokenRequest = serde_json::from_value(request)?;
    let accounts = namespace.api::<ServiceAccount>();
    let request = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    request.status.and_then(|status| status.token).context("a TokenRequest without token")
}
