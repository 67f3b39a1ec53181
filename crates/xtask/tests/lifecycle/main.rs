//! The life of local clusters: start, use, recovery and complete removal.
//!
//! Needs root. Missing programs and images are built, which takes minutes the first time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use support::{Cluster, Footprint, is_root, run, wait_for, xtask};

/// A pod without privileges that writes to a claim, and its Service.
const OBJECTS: &str = include_str!("objects.yaml");

#[test]
fn node_runs_pods_and_leaves_nothing_behind() {
    if !is_root() {
        return;
    }
    let cluster = Cluster::new("test-lifecycle");
    let before = Footprint::take(&cluster);

    kill_up_at_line(&cluster, "==> start kube-controller-manager");
    let up = cluster.up("node");
    assert!(up.contains(&cluster.file("kubeconfig/admin").display().to_string()), "{up}");
    let namespaces = cluster.namespaces();

    pods_run(&cluster);
    commands_run_inside_the_cluster(&cluster);
    volumes_are_deleted_with_their_claims(&cluster);
    requests_are_audited(&cluster);

    let second_up = cluster.up("node");
    assert!(second_up.contains("is up and healthy") && !second_up.contains("==>"), "{second_up}");
    assert_eq!(cluster.namespaces(), namespaces, "a healthy cluster was replaced");

    let mut command = long_command(&cluster);
    cluster.down();
    wait_for("a command in the cluster to end with it", || {
        command.try_wait().unwrap().map(drop).ok_or_else(|| "the command still runs".into())
    });
    for namespace in namespaces {
        let users = namespace.processes();
        assert!(users.is_empty(), "{namespace:?} is still used by {users:?}");
    }
    wait_for("nothing to be left behind", || {
        let changes = Footprint::take(&cluster).changes_since(&before);
        if changes.is_empty() { Ok(()) } else { Err(changes) }
    });
}

/// Kills `up` with SIGKILL when it prints a line.
fn kill_up_at_line(cluster: &Cluster, line: &str) {
    let mut up = xtask(&["cluster", "up", "--profile", "node", "--name", cluster.name]);
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(up.stderr.take().unwrap());
    let lines: Vec<String> = stderr
        .lines()
        .map(Result::unwrap)
        .inspect(|printed| {
            if printed.starts_with(line) {
                up.kill().unwrap();
            }
        })
        .collect();
    assert!(lines.last().unwrap().starts_with(line), "{lines:#?}");
    assert_eq!(up.wait().unwrap().code(), None, "up was not killed");
}

fn pods_run(cluster: &Cluster) {
    let mut create = cluster.exec(&["kubectl", "create", "--filename=-"]);
    let mut create = create.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    create.stdin.take().unwrap().write_all(OBJECTS.as_bytes()).unwrap();
    assert!(create.wait().unwrap().success(), "kubectl did not get its standard input");
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/server", "--timeout=180s"]);

    assert_eq!(cluster.kubectl(&["logs", "server"]), "serving");
    assert_eq!(cluster.kubectl(&["exec", "server", "--", "cat", "/data/index.html"]), "hello");
    assert_eq!(cluster.kubectl(&["get", "pvc/data", "--output=jsonpath={.status.phase}"]), "Bound");
    let fetch = ["exec", "client", "--", "wget", "-qO-", "-T5", "http://web.default.svc.cluster.local"];
    wait_for("a pod to reach another by its Service's name", || {
        run(cluster.exec(&["kubectl"]).args(fetch))
            .and_then(|body| if body == "hello" { Ok(()) } else { Err(body) })
    });
}

fn commands_run_inside_the_cluster(cluster: &Cluster) {
    let address = cluster.kubectl(&["get", "service/web", "--output=jsonpath={.spec.clusterIP}"]);
    let resolved = run(&mut cluster.exec(&["getent", "hosts", "web.default"])).unwrap();
    assert!(resolved.starts_with(&address), "{resolved} instead of {address}");
    let unknown = cluster.exec(&["getent", "hosts", "example.org"]).status().unwrap();
    assert_eq!(unknown.code(), Some(2), "a name outside the cluster resolves");
    assert_eq!(run(&mut cluster.exec(&["ip", "route", "show", "default"])).unwrap(), "");
    assert_eq!(cluster.exec(&["sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
    assert!(run(&mut cluster.exec(&["helm", "list"])).is_ok());
    let mut interrupted = long_command(cluster);
    // Not SIGINT, which processes that a shell starts in the background ignore.
    kill_process(Pid::from_child(&interrupted), Signal::TERM).unwrap();
    assert_eq!(interrupted.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

/// Starts a command inside the cluster that runs for minutes.
fn long_command(cluster: &Cluster) -> Child {
    let mut command = cluster.exec(&["sh", "-c", "echo running; exec sleep 300"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next();
    assert_eq!(line.unwrap().unwrap(), "running");
    child
}

fn volumes_are_deleted_with_their_claims(cluster: &Cluster) {
    let uid = cluster.kubectl(&["get", "pvc/data", "--output=jsonpath={.metadata.uid}"]);
    let directory = cluster.file("private/var/lib/volumes").join(uid);
    assert_eq!(std::fs::read_to_string(directory.join("index.html")).unwrap().trim(), "hello");
    cluster.kubectl(&["delete", "pod/server", "pod/client", "pvc/data", "--now"]);
    cluster.kubectl(&["wait", "--for=delete", "persistentvolume", "--all", "--timeout=180s"]);
    assert!(!directory.exists(), "{} still exists", directory.display());
}

fn requests_are_audited(cluster: &Cluster) {
    let log = std::fs::read_to_string(cluster.file("audit.log")).unwrap();
    let requests = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let is_creation = |request: &serde_json::Value| {
        request["verb"] == "create"
            && request["user"]["username"] == "admin"
            && request["objectRef"]["name"] == "server"
    };
    assert_eq!(requests.filter(is_creation).count(), 1, "{log}");
}

#[test]
fn unhealthy_cluster_is_recreated() {
    if !is_root() {
        return;
    }
    let cluster = Cluster::new("test-recovery");
    cluster.up("control-plane");
    let other_profile = run(&mut xtask(&["cluster", "up", "--name", cluster.name, "--profile", "node"]));
    assert_eq!(
        other_profile,
        Err("error: cluster test-recovery has the profile control-plane: remove it with `cargo xtask cluster down \
             --name test-recovery` first"
            .into())
    );
    let namespaces = cluster.namespaces();
    cluster.kill("kube-apiserver");
    let up = cluster.up("control-plane");
    assert!(up.contains("test-recovery is not healthy and is recreated"), "{up}");
    assert_ne!(cluster.namespaces(), namespaces);
    assert_eq!(cluster.kubectl(&["get", "--raw", "/readyz"]), "ok");
}

#[test]
fn simulated_nodes_run_simulated_pods() {
    if !is_root() {
        return;
    }
    let cluster = Cluster::new("test-scale");
    let up =
        |nodes| xtask(&["cluster", "up", "--name", cluster.name, "--profile", "scale", "--nodes", nodes]);
    run(&mut up("2")).unwrap();
    assert_eq!(cluster.kubectl(&["get", "nodes", "--output=name"]), "node/simulated-0\nnode/simulated-1");
    let more = run(&mut up("3")).unwrap();
    assert!(more.contains("simulate 1 more nodes"), "{more}");
    let fleet = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lifecycle/fleet.yaml");
    let all_run = ["rollout", "status", "statefulset/fleet", "--timeout=180s"];
    cluster.kubectl(&["create", "--filename", fleet]);
    cluster.kubectl(&all_run);
    cluster.kubectl(&["delete", "pods", "--all"]);
    cluster.kubectl(&all_run);
    assert_eq!(
        pods_deleted_by_their_nodes(&cluster),
        100,
        "each deleted pod is removed exactly once by its node"
    );
}

/// How many pods the simulated nodes have deleted.
fn pods_deleted_by_their_nodes(cluster: &Cluster) -> usize {
    let log = std::fs::read_to_string(cluster.file("audit.log")).unwrap();
    let requests = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let is_deletion = |request: &serde_json::Value| {
        request["verb"] == "delete"
            && request["userAgent"].as_str().is_some_and(|client| client.starts_with("kwok/"))
            && request["objectRef"]["resource"] == "pods"
            && request["responseStatus"]["code"] == 200
    };
    requests.filter(is_deletion).count()
}

/// Runs a command that has to fail, and returns its error, which has to be one line.
fn error_of(command: &mut Command) -> String {
    let output = command.env("RUST_BACKTRACE", "1").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let errors: Vec<&str> = stderr.lines().skip_while(|line| !line.starts_with("error: ")).collect();
    let [error] = errors[..] else { panic!("not one line: {stderr}") };
    error.to_owned()
}

#[test]
fn faults_are_reported_in_one_sentence() {
    if !is_root() {
        return;
    }
    let up = ["cluster", "up", "--name", "test-faults", "--profile", "control-plane"];
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--reuid=65534", "--clear-groups", support::XTASK]).args(up);
    assert!(error_of(&mut unprivileged).contains("needs root"));

    let empty = std::env::temp_dir().join(format!("test-faults-{}", std::process::id()));
    std::fs::create_dir(&empty).unwrap();
    let mut without_go = xtask(&up);
    without_go.env("XDG_CACHE_HOME", &empty).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let error = error_of(&mut without_go);
    assert!(error.contains("Go is not installed"), "{error}");
    assert!(!error.contains("build"), "Go was not checked first: {error}");
    std::fs::write(empty.join("go"), "#!/bin/sh\necho go version go1.19.8 linux/amd64\n").unwrap();
    std::fs::set_permissions(empty.join("go"), Permissions::from_mode(0o755)).unwrap();
    let mut with_old_go = xtask(&up);
    with_old_go.env("XDG_CACHE_HOME", &empty).env("PATH", format!("{}:/usr/bin:/bin", empty.display()));
    let error = error_of(&mut with_old_go);
    assert!(error.starts_with("error: Go 1.19.8 is too old: install Go 1."), "{error}");
    std::fs::remove_file(empty.join("go")).unwrap();

    let mount = r#"mount -t tmpfs -o size=10m small "$0" && exec "$@""#;
    let mut without_space = Command::new("unshare");
    without_space.args(["--mount", "sh", "-c", mount]).arg(&empty).arg(support::XTASK).args(up);
    let error = error_of(without_space.env("XDG_CACHE_HOME", &empty));
    assert!(error.contains("6 GiB of free disk space") && error.contains("there are 10 MiB"), "{error}");
    std::fs::remove_dir_all(&empty).unwrap();

    let error = error_of(&mut xtask(&["cluster", "exec", "--name", "test-faults", "--", "true"]));
    assert!(error.contains("cluster test-faults is not running"), "{error}");
}
