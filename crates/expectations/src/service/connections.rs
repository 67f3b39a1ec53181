//! Accepts connections: TLS handshake, and no more than a moment and a few places for callers that have not proved who
//! they are.
//!
//! A connection that says nothing costs a file descriptor and a few kilobytes. So those without an accepted token are
//! closed after [`SILENCE_LIMIT`], and if there are too many, the oldest makes room for the next: callers that speak
//! need milliseconds, and get through.

use super::metrics::CONNECTIONS;
use parking_lot::Mutex;
use rustls::ServerConfig;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;
use tracing::{debug, warn};

/// How long a connection may exist without an accepted token.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// How many connections may exist without an accepted token.
const PLACES: usize = 256;
/// Pause after an accept that failed, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the receiver is dropped.
pub async fn accept(listener: TcpListener, tls: Arc<ServerConfig>, sender: mpsc::Sender<Connection>) {
    let acceptor = TlsAcceptor::from(tls);
    let waiting = Arc::new(Waiting::default());
    let sweep = waiting.clone();
    let sweeping = async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            sweep.close_silent(Instant::now());
        }
    };
    let accepting = async {
        let mut handshakes = JoinSet::new();
        while !sender.is_closed() {
            while handshakes.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let handle = waiting.add(peer.ip().to_canonical(), Instant::now());
                    handshakes.spawn(handshake(stream, acceptor.clone(), handle, sender.clone()));
                }
                Err(error) => {
                    warn!(%error, "Accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = sweeping => {}
    }
}

async fn handshake(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handle: ConnectionHandle,
    sender: mpsc::Sender<Connection>,
) {
    let _ = stream.set_nodelay(true);
    let stream = tokio::select! {
        stream = acceptor.accept(stream) => stream,
        () = handle.closed.cancelled() => return,
    };
    match stream {
        Ok(stream) => {
            CONNECTIONS.count("accepted");
            // Fails when the server has stopped.
            let _ = sender.send(Connection::new(stream, handle)).await;
        }
        Err(error) => {
            CONNECTIONS.count("handshake_failed");
            debug!(%error, "TLS handshake failed");
        }
    }
}

/// Connections without an accepted token, the oldest first.
#[derive(Debug, Default)]
struct Waiting(Mutex<VecDeque<(Instant, ConnectionHandle)>>);

impl Waiting {
    fn add(&self, peer: IpAddr, now: Instant) -> ConnectionHandle {
        let handle =
            ConnectionHandle { peer, authenticated: Arc::default(), closed: CancellationToken::new() };
        let mut waiting = self.0.lock();
        if waiting.len() >= PLACES {
            waiting.retain(|(_, handle)| handle.is_waiting());
        }
        while waiting.len() >= PLACES
            && let Some((_, oldest)) = waiting.pop_front()
        {
            oldest.close("displaced");
        }
        waiting.push_back((now, handle.clone()));
        handle
    }

    fn close_silent(&self, now: Instant) {
        let mut waiting = self.0.lock();
        while let Some((since, handle)) = waiting.front()
            && (!handle.is_waiting() || now - *since >= SILENCE_LIMIT)
        {
            handle.close("silent");
            waiting.pop_front();
        }
    }
}

/// Whether the caller of a connection has proved who it is. Clones share it.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    peer: IpAddr,
    authenticated: Arc<AtomicBool>,
    closed: CancellationToken,
}

impl ConnectionHandle {
    /// The address of the caller.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Lets the connection live.
    pub fn set_authenticated(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Whether it needs a place: it is open, and its caller has not proved who it is.
    fn is_waiting(&self) -> bool {
        !self.is_authenticated() && !self.closed.is_cancelled()
    }

    /// Closes the connection, unless its caller has proved who it is.
    fn close(&self, why: &'static str) {
        if self.is_waiting() {
            CONNECTIONS.count(why);
            self.closed.cancel();
        }
    }
}

/// A connection after its TLS handshake. Reads fail when it is closed.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    handle: ConnectionHandle,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(stream: TlsStream<TcpStream>, handle: ConnectionHandle) -> Self {
        let closed = Box::pin(handle.closed.clone().cancelled_owned());
        Self { stream, handle, closed }
    }
}

/// Frees the place.
impl Drop for Connection {
    fn drop(&mut self) {
        self.handle.closed.cancel();
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionHandle;

    fn connect_info(&self) -> ConnectionHandle {
        self.handle.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::{PLACES, SILENCE_LIMIT, Waiting};
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;
    use tokio::time::Instant;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn silent_connection_is_closed_after_its_time_and_others_are_not() {
        let (waiting, now) = (Waiting::default(), Instant::now());
        let (silent, known, later) =
            (waiting.add(PEER, now), waiting.add(PEER, now), waiting.add(PEER, now + SILENCE_LIMIT));
        known.set_authenticated();
        waiting.close_silent(now + SILENCE_LIMIT - Duration::from_millis(1));
        assert!(!silent.closed.is_cancelled());
        waiting.close_silent(now + SILENCE_LIMIT);
        assert!(silent.closed.is_cancelled());
        assert!(!known.closed.is_cancelled());
        assert!(!later.closed.is_cancelled());
    }

    #[test]
    fn oldest_silent_connection_makes_room_for_the_next() {
        let (waiting, now) = (Waiting::default(), Instant::now());
        let known = waiting.add(PEER, now);
        known.set_authenticated();
        let silent: Vec<_> = (0..PLACES * 2).map(|_| waiting.add(PEER, now)).collect();
        assert!(!known.closed.is_cancelled());
        let open: Vec<_> = silent.iter().map(|handle| !handle.closed.is_cancelled()).collect();
        assert_eq!(open, [vec![false; PLACES], vec![true; PLACES]].concat());
    }
}
