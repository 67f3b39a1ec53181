//! Connections that the test can cut: a TCP forwarder between a replica and a process of the expectations service.

use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections to a fixed address.
pub struct Forwarder {
    /// Where it listens.
    pub address: SocketAddr,
    is_cut: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Forwarder {
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let is_cut = watch::Sender::new(false);
        let mut task = JoinSet::new();
        task.spawn(accept(listener, target, is_cut.subscribe()));
        Ok(Self { address, is_cut, _task: task })
    }

    /// Ends all connections and accepts no others, or accepts them again.
    pub fn set_cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, is_cut: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(forward(stream, target, is_cut.clone()));
    }
}

async fn forward(mut stream: TcpStream, target: SocketAddr, mut is_cut: watch::Receiver<bool>) {
    let exchange = async {
        if let Ok(mut server) = TcpStream::connect(target).await {
            let _ = copy_bidirectional(&mut stream, &mut server).await;
        }
    };
    tokio::select! {
        _ = is_cut.wait_for(|is_cut| *is_cut) => {}
        () = exchange => {}
    }
}
