//! Runs the suite that a real Slurm passes against the fake: directly and over HTTP.

use slurm_fake::suite::{TestCluster, run};
use slurm_fake::{FakeSlurm, KEY};
use slurm_rest::{HttpTransport, Transport};
use std::sync::Arc;
use tokio::net::TcpListener;

fn two_nodes() -> FakeSlurm {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    fake.start_slurmd("w1");
    fake
}

fn cluster(fake: &FakeSlurm, transport: Arc<dyn Transport>) -> TestCluster {
    TestCluster {
        transport,
        key: KEY.to_vec(),
        clock: fake.clock(),
        nodes: ["w0".to_owned(), "w1".to_owned()],
    }
}

#[tokio::test(start_paused = true)]
async fn fake_passes_the_suite() {
    let fake = two_nodes();
    run(&cluster(&fake, Arc::new(fake.clone()))).await.unwrap();
}

#[tokio::test]
async fn fake_passes_the_suite_over_http() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let fake = two_nodes();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let cluster = cluster(&fake, Arc::new(HttpTransport::new(&url, None).unwrap()));
    tokio::select! {
        result = run(&cluster) => result.unwrap(),
        result = fake.serve(listener) => panic!("the server ended: {result:?}"),
    }
}
