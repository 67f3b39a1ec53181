//! The shared runtime of all binaries against a real API server: watched namespaces, readiness, leader election, shutdown,
//! Events.

use anyhow::{Context, Result};
use e2e::process::{Process, kubeconfig_with_token};
use e2e::test_env::SOON;
use e2e::{TestNamespace, client, eventually};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A Lease that is not renewed expires after 15 s.
const TAKEOVER: Duration = Duration::from_secs(30);

fn test_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Starts a probe-controller for objects with this label; tests use the name of their namespace, which is unique.
fn start_probe(label: &str, number: u8, args: &[&str]) -> Result<Process> {
    let log = test_file(&format!("{label}-{number}.log"));
    Process::start(env!("CARGO_BIN_EXE_probe-controller"), &[&["--label", label], args].concat(), &log)
}

async fn create_original(namespace: &TestNamespace, label: &str, data: Value) -> Result<ConfigMap> {
    let object = json!({"metadata": {"name": "original", "labels": {"probe": label}}, "data": data});
    Ok(namespace.api().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

async fn patch_original(namespace: &TestNamespace, data: Value) -> Result<ConfigMap> {
    let patch = Patch::Merge(json!({"data": data}));
    Ok(namespace.api().patch("original", &PatchParams::default(), &patch).await?)
}

async fn get_copy(namespace: &TestNamespace) -> Result<Option<ConfigMap>> {
    Ok(namespace.api().get_opt("original-copy").await?)
}

async fn wait_for_copy(namespace: &TestNamespace) -> Result<ConfigMap> {
    let found = eventually("the copy", SOON, || get_copy(namespace), Option::is_some).await?;
    found.context("a copy")
}

async fn wait_until_ready(process: &Process) -> Result<()> {
    eventually("ready", SOON, async || process.fetch("/readyz"), |(status, _)| *status == 200).await?;
    Ok(())
}

/// Waits until the metrics contain this text, and returns them.
async fn wait_for_metric(process: &Process, text: &str) -> Result<String> {
    let fetch = async || process.fetch("/metrics");
    let (_, metrics) = eventually(text, SOON, fetch, |(_, metrics)| metrics.contains(text)).await?;
    Ok(metrics)
}

async fn wait_for_exit(process: &mut Process, timeout: Duration) -> Result<i32> {
    let process = std::cell::RefCell::new(process);
    let exit_status = async || process.borrow_mut().exit_status();
    let status = eventually("the end of the process", timeout, exit_status, Option::is_some).await?;
    status.and_then(|status| status.code()).context("an exit code")
}

#[tokio::test]
async fn only_the_given_namespaces_are_watched() -> Result<()> {
    let client = client().await?;
    let first = TestNamespace::create(&client, "first").await?;
    let second = TestNamespace::create(&client, "second").await?;
    let third = TestNamespace::create(&client, "third").await?;
    let label = first.name();
    for namespace in [&first, &second, &third] {
        create_original(namespace, label, json!({})).await?;
    }
    let one = start_probe(label, 1, &["--namespaces", first.name()])?;
    wait_until_ready(&one).await?;
    wait_for_copy(&first).await?;
    drop(one);
    assert!(
        get_copy(&second).await?.is_none() && get_copy(&third).await?.is_none(),
        "--namespaces has one namespace"
    );

    let two = start_probe(label, 2, &["--namespaces", &format!(" {}, {},", first.name(), second.name())])?;
    wait_until_ready(&two).await?;
    wait_for_copy(&second).await?;
    drop(two);
    assert!(get_copy(&third).await?.is_none(), "--namespaces has two namespaces");

    let all = start_probe(label, 3, &[])?;
    wait_until_ready(&all).await?;
    wait_for_copy(&third).await?;
    drop(all);
    for namespace in [first, second, third] {
        namespace.delete().await?;
    }
    Ok(())
}

#[tokio::test]
async fn all_objects_are_reconciled_once_the_caches_are_filled() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "many").await?;
    let label = namespace.name();
    for number in 0..20 {
        let name = format!("original-{number}");
        let object = json!({"metadata": {"name": name, "labels": {"probe": label}}});
        namespace.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let process = start_probe(label, 1, &["--namespaces", label])?;
    let copies = ListParams::default().labels(&format!("probe={label}-copy"));
    let count = async || Ok(namespace.api::<ConfigMap>().list(&copies).await?.items.len());
    eventually("20 copies", SOON, count, |count| *count == 20).await?;
    drop(process);
    namespace.delete().await
}

#[tokio::test]
async fn unchanged_object_is_not_written_even_after_a_restart() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "idle").await?;
    let label = namespace.name();
    create_original(&namespace, label, json!({"a": "1", "b": "2"})).await?;
    let process = start_probe(label, 1, &["--namespaces", label])?;
    let first = wait_for_copy(&namespace).await?;
    // Each change of the original causes one reconcile; the copy shows when it is done.
    patch_original(&namespace, json!({"b": null, "a": "2"})).await?;
    let is_changed = |copy: &Option<ConfigMap>| {
        copy.as_ref().is_some_and(|copy| serde_json::to_value(&copy.data).ok() == Some(json!({"a": "2"})))
    };
    let second =
        eventually("the changed copy", SOON, || get_copy(&namespace), is_changed).await?.context("a copy")?;
    assert_ne!(first.resource_version(), second.resource_version());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    namespace.api::<ConfigMap>().patch("original", &PatchParams::default(), &patch).await?;
    let unchanged = r#"slurm_operator_writes_total{kind="ConfigMap",verb="unchanged"}"#;
    let metrics = wait_for_metric(&process, unchanged).await?;
    let applied = r#"slurm_operator_writes_total{kind="ConfigMap",verb="applied"} 1"#;
    let created = r#"slurm_operator_writes_total{kind="ConfigMap",verb="created"} 1"#;
    assert!(metrics.contains(applied) && metrics.contains(created), "{metrics}");
    let last = get_copy(&namespace).await?.context("a copy")?;
    assert_eq!(last.resource_version(), second.resource_version());
    // A restarted process compares with the live object and writes nothing either.
    drop(process);
    let restarted = start_probe(label, 2, &["--namespaces", label])?;
    let metrics = wait_for_metric(&restarted, unchanged).await?;
    assert!(!metrics.contains(r#"verb="applied""#) && !metrics.contains(r#"verb="created""#), "{metrics}");
    drop(restarted);
    namespace.delete().await
}

/// Creates a service account, and returns a kubeconfig for it.
async fn create_service_account(client: &Client, namespace: &TestNamespace) -> Result<PathBuf> {
    let account = serde_json::from_value(json!({"metadata": {"name": "probe"}}))?;
    namespace.api::<ServiceAccount>().create(&PostParams::default(), &account).await?;
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let accounts = kube::Api::<ServiceAccount>::namespaced(client.clone(), namespace.name());
    let answer = accounts.create_token_request("probe", &PostParams::default(), &request).await?;
    let token = answer.status.and_then(|status| status.token).context("a token")?;
    kubeconfig_with_token(&token, test_file(namespace.name()))
}

/// Lets the service account of `home` read and write config maps in `namespace`.
async fn allow(home: &TestNamespace, namespace: &TestNamespace) -> Result<()> {
    let role = json!({
        "metadata": {"name": "probe"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}],
    });
    let binding = json!({
        "metadata": {"name": "probe"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "probe"},
        "subjects": [{"kind": "ServiceAccount", "name": "probe", "namespace": home.name()}],
    });
    namespace.api::<Role>().create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    namespace.api::<RoleBinding>().create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

#[tokio::test]
async fn unreadable_namespace_delays_readiness_but_not_other_namespaces() -> Result<()> {
    let client = client().await?;
    let open = TestNamespace::create(&client, "open").await?;
    let closed = TestNamespace::create(&client, "closed").await?;
    let kubeconfig = create_service_account(&client, &open).await?;
    allow(&open, &open).await?;
    let label = open.name();
    let namespaces = format!("{},{}", open.name(), closed.name());
    let kubeconfig = kubeconfig.to_str().context("a path")?;
    let process = start_probe(label, 1, &["--namespaces", &namespaces, "--kubeconfig", kubeconfig])?;
    create_original(&open, label, json!({})).await?;
    create_original(&closed, label, json!({})).await?;
    wait_for_copy(&open).await?;
    assert_eq!(process.fetch("/readyz")?, (503, "waiting for cache of ConfigMap\n".into()));
    assert_eq!(process.fetch("/livez")?.0, 200);
    allow(&open, &closed).await?;
    wait_for_copy(&closed).await?;
    wait_until_ready(&process).await?;
    drop(process);
    open.delete().await?;
    closed.delete().await
}

fn leader_flags(namespace: &str) -> [&str; 5] {
    ["--namespaces", namespace, "--leader-elect", "--leader-elect-namespace", namespace]
}

async fn holder(namespace: &TestNamespace) -> Result<Option<String>> {
    let lease: Option<Lease> = namespace.api().get_opt("probe-controller").await?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity))
}

async fn wait_for_other_holder(
    namespace: &TestNamespace,
    current: &str,
    timeout: Duration,
) -> Result<String> {
    let is_other = |holder: &Option<String>| holder.as_ref().is_some_and(|holder| holder != current);
    eventually("another leader", timeout, || holder(namespace), is_other).await?.context("a holder")
}

fn is_leading(process: &Process) -> Result<bool> {
    Ok(process.fetch("/metrics")?.1.lines().any(|line| line == "slurm_operator_leading 1"))
}

#[tokio::test]
async fn standby_takes_over_after_a_crash_and_at_once_after_a_shutdown() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "leader").await?;
    let label = namespace.name();
    let mut first = start_probe(label, 1, &leader_flags(label))?;
    let first_identity = wait_for_other_holder(&namespace, "", SOON).await?;
    wait_until_ready(&first).await?;
    let second = start_probe(label, 2, &leader_flags(label))?;
    // A standby reports ready, because it can take over.
    wait_until_ready(&second).await?;
    assert!(is_leading(&first)? && !is_leading(&second)?);
    assert_eq!(holder(&namespace).await?.as_ref(), Some(&first_identity));

    first.kill()?;
    let second_identity = wait_for_other_holder(&namespace, &first_identity, TAKEOVER).await?;
    create_original(&namespace, label, json!({})).await?;
    wait_for_copy(&namespace).await?;
    assert!(is_leading(&second)?);

    // A leader releases its Lease on SIGTERM.
    let third = start_probe(label, 3, &leader_flags(label))?;
    wait_until_ready(&third).await?;
    second.terminate()?;
    wait_for_other_holder(&namespace, &second_identity, Duration::from_secs(8)).await?;
    drop((second, third));
    namespace.delete().await
}

#[tokio::test]
async fn leader_that_loses_its_lease_exits() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "replaced").await?;
    let label = namespace.name();
    let mut process = start_probe(label, 1, &leader_flags(label))?;
    wait_for_other_holder(&namespace, "", SOON).await?;
    let thief = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    namespace.api::<Lease>().patch("probe-controller", &PatchParams::default(), &thief).await?;
    assert_eq!(wait_for_exit(&mut process, Duration::from_secs(8)).await?, 1);
    assert_eq!(holder(&namespace).await?.as_deref(), Some("thief"));
    namespace.delete().await
}

#[tokio::test]
async fn shutdown_finishes_running_reconciles_and_releases_the_lease() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "drain").await?;
    let label = namespace.name();
    let mut process = start_probe(label, 1, &leader_flags(label))?;
    create_original(&namespace, label, json!({"wait": "3"})).await?;
    let running = r#"slurm_operator_reconciles_running{kind="ConfigMap"} 1"#;
    wait_for_metric(&process, running).await?;
    process.terminate()?;
    assert_eq!(wait_for_exit(&mut process, Duration::from_secs(10)).await?, 0);
    assert!(get_copy(&namespace).await?.is_some(), "the reconcile was aborted");
    assert_eq!(holder(&namespace).await?, None, "the Lease was not released");
    namespace.delete().await
}

#[tokio::test]
async fn idle_process_exits_promptly_on_sigterm() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "stop").await?;
    let label = namespace.name();
    let mut process = start_probe(label, 1, &["--namespaces", label])?;
    wait_until_ready(&process).await?;
    process.terminate()?;
    assert_eq!(wait_for_exit(&mut process, Duration::from_secs(3)).await?, 0);
    namespace.delete().await
}

/// Notes and counts of the Events with this reason.
async fn events(namespace: &TestNamespace, reason: &str) -> Result<Vec<(Option<String>, i32)>> {
    let list = namespace.api::<Event>().list(&ListParams::default()).await?;
    let ours = list.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    let mut notes: Vec<_> =
        ours.map(|event| (event.note, event.series.map_or(1, |series| series.count))).collect();
    notes.sort();
    Ok(notes)
}

#[tokio::test]
async fn repeated_events_become_a_series_and_long_notes_are_cut() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "events").await?;
    let label = namespace.name();
    create_original(&namespace, label, json!({"event": "hello"})).await?;
    let process = start_probe(label, 1, &["--namespaces", label])?;
    let wait_for_events = async |expected: &[(&str, i32)]| {
        let expected: Vec<_> =
            expected.iter().map(|(note, count)| (Some((*note).to_owned()), *count)).collect();
        eventually(
            "Events",
            SOON,
            || events(&namespace, "EventRequested"),
            |published| *published == expected,
        )
        .await
    };
    wait_for_events(&[("hello", 1)]).await?;
    patch_original(&namespace, json!({"touch": "1"})).await?;
    wait_for_events(&[("hello", 2)]).await?;
    patch_original(&namespace, json!({"touch": "2"})).await?;
    wait_for_events(&[("hello", 3)]).await?;
    patch_original(&namespace, json!({"event": "world"})).await?;
    wait_for_events(&[("hello", 3), ("world", 1)]).await?;
    patch_original(&namespace, json!({"event": "x".repeat(5000)})).await?;
    let cut = "x".repeat(1021) + "...";
    wait_for_events(&[("hello", 3), ("world", 1), (&cut, 1)]).await?;
    drop(process);
    namespace.delete().await
}

#[tokio::test]
async fn repeated_failure_publishes_one_event() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "failing").await?;
    let label = namespace.name();
    create_original(&namespace, label, json!({"fail": "bad luck"})).await?;
    let process = start_probe(label, 1, &["--namespaces", label])?;
    let failed = r#"slurm_operator_reconcile_errors_total{kind="ConfigMap",reason="FailureRequested"} 3"#;
    wait_for_metric(&process, failed).await?;
    let published = vec![(Some("failure requested: bad luck".to_owned()), 1)];
    assert_eq!(events(&namespace, "FailureRequested").await?, published);
    patch_original(&namespace, json!({"fail": null})).await?;
    wait_for_copy(&namespace).await?;
    drop(process);
    namespace.delete().await
}
