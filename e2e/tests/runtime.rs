//! The life of a binary against a real API server: what it watches, when it is ready, who leads, how it stops.

use anyhow::{Context, Result};
use e2e::process::{Process, kubeconfig_with_token};
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

const SOON: Duration = Duration::from_secs(20);
/// A Lease that is not renewed runs out after 15 s.
const TAKEOVER: Duration = Duration::from_secs(30);

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The probe that handles objects with this label; the label is a namespace's name, so that tests do not meet.
fn probe(label: &str, number: u8, args: &[&str]) -> Result<Process> {
    let log = file(&format!("{label}-{number}.log"));
    Process::start(env!("CARGO_BIN_EXE_probe-controller"), &[&["--label", label], args].concat(), &log)
}

async fn create_original(namespace: &TestNamespace, label: &str, data: Value) -> Result<ConfigMap> {
    let object = json!({"metadata": {"name": "original", "labels": {"probe": label}}, "data": data});
    Ok(namespace.api().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

async fn change_original(namespace: &TestNamespace, data: Value) -> Result<ConfigMap> {
    let patch = Patch::Merge(json!({"data": data}));
    Ok(namespace.api().patch("original", &PatchParams::default(), &patch).await?)
}

async fn copy(namespace: &TestNamespace) -> Result<Option<ConfigMap>> {
    Ok(namespace.api().get_opt("original-copy").await?)
}

async fn await_copy(namespace: &TestNamespace) -> Result<ConfigMap> {
    let found = eventually("the copy", SOON, || copy(namespace), Option::is_some).await?;
    found.context("a copy")
}

async fn await_ready(process: &Process) -> Result<()> {
    eventually("ready", SOON, async || process.fetch("/readyz"), |(status, _)| *status == 200).await?;
    Ok(())
}

async fn await_exit(process: &mut Process, limit: Duration) -> Result<i32> {
    let process = std::cell::RefCell::new(process);
    let look = async || process.borrow_mut().exit_status();
    let status = eventually("the end of the process", limit, look, Option::is_some).await?;
    status.and_then(|status| status.code()).context("an exit code")
}

#[tokio::test]
async fn namespaces_say_what_is_watched() -> Result<()> {
    let client = client().await?;
    let first = TestNamespace::create(&client, "first").await?;
    let second = TestNamespace::create(&client, "second").await?;
    let third = TestNamespace::create(&client, "third").await?;
    let label = first.name();
    for namespace in [&first, &second, &third] {
        create_original(namespace, label, json!({})).await?;
    }
    let one = probe(label, 1, &["--namespaces", first.name()])?;
    await_ready(&one).await?;
    await_copy(&first).await?;
    drop(one);
    assert!(copy(&second).await?.is_none() && copy(&third).await?.is_none(), "one namespace was asked for");

    let two = probe(label, 2, &["--namespaces", &format!(" {}, {},", first.name(), second.name())])?;
    await_ready(&two).await?;
    await_copy(&second).await?;
    drop(two);
    assert!(copy(&third).await?.is_none(), "two namespaces were asked for");

    let all = probe(label, 3, &[])?;
    await_ready(&all).await?;
    await_copy(&third).await?;
    drop(all);
    for namespace in [first, second, third] {
        namespace.delete().await?;
    }
    Ok(())
}

#[tokio::test]
async fn everything_that_waits_for_the_caches_goes_on_when_they_are_filled() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "many").await?;
    let label = namespace.name();
    for number in 0..20 {
        let name = format!("original-{number}");
        let object = json!({"metadata": {"name": name, "labels": {"probe": label}}});
        namespace.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let process = probe(label, 1, &["--namespaces", label])?;
    let copies = ListParams::default().labels(&format!("probe={label}-copy"));
    let look = async || Ok(namespace.api::<ConfigMap>().list(&copies).await?.items.len());
    eventually("copies", SOON, look, |count| *count == 20).await?;
    drop(process);
    namespace.delete().await
}

#[tokio::test]
async fn an_idle_controller_writes_nothing() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "idle").await?;
    let label = namespace.name();
    create_original(&namespace, label, json!({"a": "1", "b": "2"})).await?;
    let process = probe(label, 1, &["--namespaces", label])?;
    let first = await_copy(&namespace).await?;
    // Each change of the original is a pass; the copy says when it is done.
    change_original(&namespace, json!({"b": null, "a": "2"})).await?;
    let changed = |copy: &Option<ConfigMap>| {
        copy.as_ref().is_some_and(|copy| serde_json::to_value(&copy.data).ok() == Some(json!({"a": "2"})))
    };
    let second =
        eventually("the changed copy", SOON, || copy(&namespace), changed).await?.context("a copy")?;
    assert_ne!(first.resource_version(), second.resource_version());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    namespace.api::<ConfigMap>().patch("original", &PatchParams::default(), &patch).await?;
    let unchanged = r#"slurm_operator_writes_total{kind="ConfigMap",verb="unchanged"}"#;
    let look = async || process.fetch("/metrics");
    let (_, metrics) =
        eventually("a pass without a write", SOON, look, |(_, text)| text.contains(unchanged)).await?;
    let applied = r#"slurm_operator_writes_total{kind="ConfigMap",verb="applied"} 1"#;
    let created = r#"slurm_operator_writes_total{kind="ConfigMap",verb="created"} 1"#;
    assert!(metrics.contains(applied) && metrics.contains(created), "{metrics}");
    let last = copy(&namespace).await?.context("a copy")?;
    assert_eq!(last.resource_version(), second.resource_version());
    // A new process decides by the live object and writes nothing either.
    drop(process);
    let restarted = probe(label, 2, &["--namespaces", label])?;
    let look = async || restarted.fetch("/metrics");
    let (_, metrics) =
        eventually("a pass without a write", SOON, look, |(_, text)| text.contains(unchanged)).await?;
    assert!(!metrics.contains(r#"verb="applied""#) && !metrics.contains(r#"verb="created""#), "{metrics}");
    drop(restarted);
    namespace.delete().await
}

/// A service account of the first namespace, and a kubeconfig for it.
async fn account(client: &Client, namespace: &TestNamespace) -> Result<PathBuf> {
    let account = serde_json::from_value(json!({"metadata": {"name": "probe"}}))?;
    namespace.api::<ServiceAccount>().create(&PostParams::default(), &account).await?;
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let accounts = kube::Api::<ServiceAccount>::namespaced(client.clone(), namespace.name());
    let answer = accounts.create_token_request("probe", &PostParams::default(), &request).await?;
    let token = answer.status.and_then(|status| status.token).context("a token")?;
    kubeconfig_with_token(&token, file(namespace.name()))
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
async fn a_namespace_that_cannot_be_read_delays_readiness_and_no_other_namespace() -> Result<()> {
    let client = client().await?;
    let open = TestNamespace::create(&client, "open").await?;
    let closed = TestNamespace::create(&client, "closed").await?;
    let kubeconfig = account(&client, &open).await?;
    allow(&open, &open).await?;
    let label = open.name();
    let namespaces = format!("{},{}", open.name(), closed.name());
    let kubeconfig = kubeconfig.to_str().context("a path")?;
    let process = probe(label, 1, &["--namespaces", &namespaces, "--kubeconfig", kubeconfig])?;
    create_original(&open, label, json!({})).await?;
    create_original(&closed, label, json!({})).await?;
    await_copy(&open).await?;
    assert_eq!(process.fetch("/readyz")?, (503, "waiting for cache of ConfigMap\n".into()));
    assert_eq!(process.fetch("/livez")?.0, 200);
    allow(&open, &closed).await?;
    await_copy(&closed).await?;
    await_ready(&process).await?;
    drop(process);
    open.delete().await?;
    closed.delete().await
}

async fn holder(namespace: &TestNamespace) -> Result<Option<String>> {
    let lease: Option<Lease> = namespace.api().get_opt("probe-controller").await?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity))
}

async fn await_other_holder(namespace: &TestNamespace, than: &str, limit: Duration) -> Result<String> {
    let other = |holder: &Option<String>| holder.as_ref().is_some_and(|holder| holder != than);
    eventually("another leader", limit, || holder(namespace), other).await?.context("a holder")
}

fn is_leading(process: &Process) -> Result<bool> {
    Ok(process.fetch("/metrics")?.1.lines().any(|line| line == "slurm_operator_leading 1"))
}

#[tokio::test]
async fn one_leads_and_another_takes_over() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "leader").await?;
    let label = namespace.name();
    let flags = ["--namespaces", label, "--leader-elect", "--leader-elect-namespace", label];
    let mut first = probe(label, 1, &flags)?;
    let first_identity = await_other_holder(&namespace, "", SOON).await?;
    await_ready(&first).await?;
    let second = probe(label, 2, &flags)?;
    // A standby is ready: it can take over.
    await_ready(&second).await?;
    assert!(is_leading(&first)? && !is_leading(&second)?);
    assert_eq!(holder(&namespace).await?.as_ref(), Some(&first_identity));

    first.kill()?;
    let second_identity = await_other_holder(&namespace, &first_identity, TAKEOVER).await?;
    create_original(&namespace, label, json!({})).await?;
    await_copy(&namespace).await?;
    assert!(is_leading(&second)?);

    // A leader that is told to stop hands over at once.
    let third = probe(label, 3, &flags)?;
    await_ready(&third).await?;
    second.terminate()?;
    await_other_holder(&namespace, &second_identity, Duration::from_secs(8)).await?;
    drop((second, third));
    namespace.delete().await
}

#[tokio::test]
async fn a_leader_that_is_replaced_ends() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "replaced").await?;
    let label = namespace.name();
    let flags = ["--namespaces", label, "--leader-elect", "--leader-elect-namespace", label];
    let mut process = probe(label, 1, &flags)?;
    await_other_holder(&namespace, "", SOON).await?;
    let thief = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    namespace.api::<Lease>().patch("probe-controller", &PatchParams::default(), &thief).await?;
    assert_eq!(await_exit(&mut process, Duration::from_secs(8)).await?, 1);
    assert_eq!(holder(&namespace).await?.as_deref(), Some("thief"));
    namespace.delete().await
}

#[tokio::test]
async fn work_under_way_is_finished_before_the_end() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "drain").await?;
    let label = namespace.name();
    let flags = ["--namespaces", label, "--leader-elect", "--leader-elect-namespace", label];
    let mut process = probe(label, 1, &flags)?;
    create_original(&namespace, label, json!({"wait": "3"})).await?;
    let running = r#"slurm_operator_reconciles_running{kind="ConfigMap"} 1"#;
    let look = async || process.fetch("/metrics");
    eventually("a reconcile", SOON, look, |(_, text)| text.contains(running)).await?;
    process.terminate()?;
    assert_eq!(await_exit(&mut process, Duration::from_secs(10)).await?, 0);
    assert!(copy(&namespace).await?.is_some(), "the reconcile was cut");
    assert_eq!(holder(&namespace).await?, None, "the Lease was not released");
    namespace.delete().await
}

#[tokio::test]
async fn an_idle_process_stops_at_once() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "stop").await?;
    let label = namespace.name();
    let mut process = probe(label, 1, &["--namespaces", label])?;
    await_ready(&process).await?;
    process.terminate()?;
    assert_eq!(await_exit(&mut process, Duration::from_secs(3)).await?, 0);
    namespace.delete().await
}

async fn events(namespace: &TestNamespace, reason: &str) -> Result<Vec<(Option<String>, i32)>> {
    let list = namespace.api::<Event>().list(&ListParams::default()).await?;
    let ours = list.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    let mut notes: Vec<_> =
        ours.map(|event| (event.note, event.series.map_or(1, |series| series.count))).collect();
    notes.sort();
    Ok(notes)
}

#[tokio::test]
async fn events_are_counted_told_apart_and_cut() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "events").await?;
    let label = namespace.name();
    create_original(&namespace, label, json!({"say": "hello"})).await?;
    let process = probe(label, 1, &["--namespaces", label])?;
    let said = async |expected: &[(&str, i32)]| {
        let expected: Vec<_> =
            expected.iter().map(|(note, count)| (Some((*note).to_owned()), *count)).collect();
        eventually("Events", SOON, || events(&namespace, "ToldToSay"), |seen| *seen == expected).await
    };
    said(&[("hello", 1)]).await?;
    change_original(&namespace, json!({"touch": "1"})).await?;
    said(&[("hello", 2)]).await?;
    change_original(&namespace, json!({"touch": "2"})).await?;
    said(&[("hello", 3)]).await?;
    change_original(&namespace, json!({"say": "world"})).await?;
    said(&[("hello", 3), ("world", 1)]).await?;
    change_original(&namespace, json!({"say": "x".repeat(5000)})).await?;
    let cut = "x".repeat(1021) + "...";
    said(&[("hello", 3), ("world", 1), (&cut, 1)]).await?;
    drop(process);
    namespace.delete().await
}

#[tokio::test]
async fn a_failure_is_one_event_and_many_attempts() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "failing").await?;
    let label = namespace.name();
    create_original(&namespace, label, json!({"fail": "bad luck"})).await?;
    let process = probe(label, 1, &["--namespaces", label])?;
    let failed = r#"slurm_operator_reconcile_errors_total{kind="ConfigMap",reason="ToldToFail"} 3"#;
    let look = async || process.fetch("/metrics");
    eventually("three failures", SOON, look, |(_, text)| text.contains(failed)).await?;
    let told = vec![(Some("told to fail: bad luck".to_owned()), 1)];
    assert_eq!(events(&namespace, "ToldToFail").await?, told);
    change_original(&namespace, json!({"fail": null})).await?;
    await_copy(&namespace).await?;
    drop(process);
    namespace.delete().await
}
