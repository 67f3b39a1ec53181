//! The images in use: a Slurm cluster of plain pods on a real Kubernetes.
//!
//! Needs root. Missing programs and images are built, which takes minutes the first time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

#[path = "../lifecycle/support.rs"]
#[expect(dead_code, reason = "shared with the lifecycle tests, which use more of it")]
mod support;

use support::{Cluster, is_root, run, wait_for};

const OBJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images/slurm.yaml");

/// slurmdbd ends its threads with SIGUSR1. Now and then one of them has no handler for it, and the process ends with it.
const ENDED_BY_SIGUSR1: &str = "138";

#[test]
fn images_run_a_slurm_cluster() {
    if !is_root() {
        return;
    }
    let cluster = Cluster::new("test-images");
    cluster.up("node");
    cluster.kubectl(&["create", "--filename", OBJECTS]);
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s"]);
    let slurm = Slurm(&cluster);

    slurm.worker_registers_with_the_options_and_limits_of_its_pod();
    assert_eq!(slurm.exec("login", "srun hostname"), "worker");
    assert_eq!(
        slurm.exec("controller", "sacctmgr --noheader --parsable2 show cluster format=cluster"),
        "test"
    );
    slurm.rest_api_requires_a_token();
    slurm.users_log_in_by_ssh();
    slurm.log_goes_to_the_sidecar();
    slurm.new_configuration_is_applied_without_restarts();
    slurm.invalid_configuration_is_rejected();
    slurm.containers_end_on_sigterm();
}

/// The Slurm cluster in the pods.
struct Slurm<'a>(&'a Cluster);

impl Slurm<'_> {
    /// Output of a shell command in the main container of a pod, which must succeed.
    fn exec(&self, pod: &str, script: &str) -> String {
        self.try_exec(pod, script).unwrap_or_else(|output| panic!("{script}: {output}"))
    }

    fn try_exec(&self, pod: &str, script: &str) -> Result<String, String> {
        run(&mut self.0.exec(&["kubectl", "exec", "--quiet", pod, "--", "sh", "-c", script]))
    }

    /// Quotes and the variable in the arguments are expanded, and the limits of the pod reduce the resources of the node.
    fn worker_registers_with_the_options_and_limits_of_its_pod(&self) {
        wait_for("the worker to register", || {
            let node = self.exec("controller", "scontrol show node worker");
            let expected = [
                "State=IDLE+DYNAMIC_NORM ",
                "ActiveFeatures=cpu\n",
                "Topology=default:rack",
                "Weight=7 ",
                "CPUEfctv=1 ",
            ];
            let missing: Vec<_> =
                expected.iter().filter(|text| !format!("{node}\n").contains(*text)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("no {missing:?} in {node}")) }
        });
    }

    fn rest_api_requires_a_token(&self) {
        let token = self.exec("controller", "scontrol token username=slurm lifespan=60");
        let token = token.strip_prefix("SLURM_JWT=").unwrap();
        for (path, expected) in [
            ("slurm/v0.0.45/nodes/", r#""name": "worker""#),
            ("slurmdb/v0.0.45/clusters/", r#""name": "test""#),
        ] {
            let url = format!("http://restapi.slurm:6820/{path}");
            let response =
                self.exec("login", &format!("curl -sS --fail -H 'X-SLURM-USER-TOKEN: {token}' {url}"));
            assert!(response.contains(expected), "{response}");
        }
        let rejected =
            self.try_exec("login", "curl -sS --fail http://restapi.slurm:6820/slurm/v0.0.45/nodes/");
        assert!(rejected.is_err(), "the REST API accepts requests without token: {rejected:?}");
    }

    fn users_log_in_by_ssh(&self) {
        let ssh = "ssh -i /tmp/key -o StrictHostKeyChecking=no";
        self.exec("login", "ssh-keygen -q -t ed25519 -N '' -f /tmp/key && install -D /tmp/key.pub /root/.ssh/authorized_keys");
        assert_eq!(
            self.exec("login", &format!("{ssh} -q root@login sinfo --noheader --format=%N")),
            "worker"
        );
        assert_eq!(self.exec("login", "getent --service=sss passwd slurm | cut -d: -f3,4"), "401:401");

        let key = self.exec("login", "cat /tmp/key.pub");
        let user = "useradd --create-home alice && cd /home/alice && mkdir .ssh";
        self.exec("worker", &format!("{user} && echo '{key}' >.ssh/authorized_keys"));
        let refused = self.try_exec("login", &format!("{ssh} alice@worker.slurm true")).unwrap_err();
        assert!(refused.contains("you have no active jobs on this node"), "{refused}");
    }

    fn log_goes_to_the_sidecar(&self) {
        let log = self.0.kubectl(&["logs", "controller", "--container=logfile"]);
        assert!(log.contains("Running as primary controller"), "{log}");
    }

    /// Each daemon starts a successor and exits; its container keeps running.
    fn new_configuration_is_applied_without_restarts(&self) {
        let daemons = [("controller", "slurmctld"), ("worker", "slurmd")];
        let pid = |(pod, daemon)| self.exec(pod, &format!("pgrep --oldest ^{daemon}"));
        let before = daemons.map(pid);
        self.exec("controller", "echo MinJobAge=77 >>/etc/slurm/slurm.conf && scontrol reconfigure");
        for (daemon, before) in daemons.into_iter().zip(before) {
            wait_for(
                "a successor to run",
                || if pid(daemon) == before { Err(before.clone()) } else { Ok(()) },
            );
        }
        for pod in ["worker", "login"] {
            wait_for("the new configuration to be fetched", || {
                self.try_exec(pod, "grep -x MinJobAge=77 /run/slurm/conf/slurm.conf").map(drop)
            });
        }
        assert_eq!(self.exec("login", "srun hostname"), "worker");
        self.assert_no_container_was_restarted();
    }

    fn invalid_configuration_is_rejected(&self) {
        self.exec(
            "controller",
            "cp /etc/slurm/slurm.conf /tmp/ && echo PartitionName=bad Nodes=absent >>/etc/slurm/slurm.conf",
        );
        let refused = self.try_exec("controller", "scontrol reconfigure");
        assert!(refused.is_err(), "{refused:?}");
        assert!(self.exec("controller", "scontrol ping").contains("is UP"));
        self.exec("controller", "cp /tmp/slurm.conf /etc/slurm/ && scontrol reconfigure");
        self.assert_no_container_was_restarted();
    }

    fn assert_no_container_was_restarted(&self) {
        let field = "--output=jsonpath={.items[*].status.containerStatuses[*].restartCount}";
        assert_eq!(self.0.kubectl(&["get", "pods", field]), "0 0 0 0 0 0");
    }

    /// Exit code 0 after SIGTERM, also if a successor has replaced the first daemon.
    fn containers_end_on_sigterm(&self) {
        // The database is the last one: without it a new slurmdbd fails, whose exit code would hide that of the old one.
        for pod in ["accounting", "controller", "login", "restapi", "worker", "database"] {
            // A container that ends at once kills the shell that sent the signal.
            if let Err(output) = self.try_exec(pod, "kill -TERM 1") {
                assert!(output.ends_with("exit code 137"), "{pod}: {output}");
            }
            wait_for(&format!("{pod} to end with exit code 0"), || {
                let field = "--output=jsonpath={.status.containerStatuses[*].lastState.terminated.exitCode}";
                let code = self.0.kubectl(&["get", "pod", pod, field]);
                let is_normal = code == "0" || (pod == "accounting" && code == ENDED_BY_SIGUSR1);
                if is_normal { Ok(()) } else { Err(code) }
            });
        }
    }
}
