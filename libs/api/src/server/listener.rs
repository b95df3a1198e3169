//! Serving one port: connections in HTTP/1.1 or HTTP/2, as the client begins.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use footplate_service::Shutdown;
use futures::future::join_all;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::TcpConnectInfo;
use tower::ServiceExt;

use super::front::Front;
use super::{ServerParts, ServerTls};

/// Connections served at once; further ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 4_096;
/// Calls at once on one connection.
const MAX_STREAMS_PER_CONNECTION: u32 = 1_024;
/// How long a client may take to send its headers.
const HEADER_DEADLINE: Duration = Duration::from_secs(15);
/// What a connection must have said by then: as much as HTTP/2 begins with, by which the protocol is known.
const PREFACE_BYTES: usize = 24;
/// How often an HTTP/2 client is asked whether it lives, so that a watcher whose machine vanished is let go.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to answer that.
const KEEP_ALIVE_DEADLINE: Duration = Duration::from_secs(20);
/// TLS handshakes under way at once; further ones wait for their turn.
const MAX_HANDSHAKES: usize = 512;
/// How long a TLS handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long accepting rests when the system has no handles left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A port to serve on.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    tls: Option<(ServerTls, Duration)>,
}

impl Port {
    /// A port that speaks HTTP in the clear.
    pub fn plain(listener: TcpListener) -> Self {
        Self { listener, tls: None }
    }

    /// A port that speaks HTTP within TLS alone, and looks at the certificate's files again every so often.
    pub fn tls(listener: TcpListener, tls: ServerTls, reread_every: Duration) -> Self {
        Self { listener, tls: Some((tls, reread_every)) }
    }
}

/// [`serve_ports`] on one port in the clear.
///
/// # Errors
/// As there.
pub async fn serve(listener: TcpListener, parts: ServerParts, shutdown: Shutdown) -> io::Result<()> {
    serve_ports(vec![Port::plain(listener)], parts, shutdown).await
}

/// Serves until a stop is asked for; then takes no new connection, lets calls end, and cuts off what is left when the grace is over.
///
/// # Errors
/// Never for a single connection's fault; only when a listener itself cannot be used.
pub async fn serve_ports(ports: Vec<Port>, parts: ServerParts, shutdown: Shutdown) -> io::Result<()> {
    let (front, health) = parts.build();
    let graceful = GracefulShutdown::new();
    let doorway = Doorway { front, shutdown: shutdown.clone(), handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)) };
    let rereading = join_all(ports.iter().filter_map(|port| port.tls.clone()).map(|(tls, every)| tls.follow(every)));
    // Without a certificate there is none to read again, and that is no end.
    let rereading = async {
        rereading.await;
        std::future::pending::<()>().await;
    };
    let accepting = join_all(ports.into_iter().map(|port| doorway.accept(port, &graceful)));
    tokio::select! {
        () = shutdown.requested() => {}
        () = health.follow() => {}
        () = rereading => {}
        _ = accepting => {}
    }
    tokio::select! {
        () = graceful.shutdown() => {}
        () = shutdown.over() => tracing::warn!("calls were cut off when the time to drain was over"),
    }
    Ok(())
}

/// What every connection is let in by.
#[derive(Clone)]
struct Doorway {
    front: Front,
    shutdown: Shutdown,
    handshakes: Arc<Semaphore>,
}

impl Doorway {
    /// Takes connections of a port; never returns. The port is closed when it is dropped.
    async fn accept(&self, port: Port, graceful: &GracefulShutdown) {
        let acceptor = port.tls.as_ref().map(|(tls, _)| tls.acceptor());
        // Each port its own: whoever fills the one that others reach does not lock out this machine's own.
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            match port.listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(self.clone().connection(stream, acceptor.clone(), graceful.watcher(), place));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream, acceptor: Option<TlsAcceptor>, watcher: Watcher, place: OwnedSemaphorePermit) {
        // Small answers go out at once; a socket that refuses this still works.
        let _ = stream.set_nodelay(true);
        let info = TcpConnectInfo { local_addr: stream.local_addr().ok(), remote_addr: stream.peer_addr().ok() };
        match acceptor {
            None => converse(stream, info, self.front, watcher).await,
            Some(acceptor) => {
                // A handshake is no call that a stop would wait for.
                let shaken = self.shutdown.or(async {
                    // Waiting for its turn is not counted: else those who never say hello would run out the time of those who do.
                    let _turn = self.handshakes.acquire().await.expect("the semaphore is never closed");
                    tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream)).await
                });
                match shaken.await {
                    Some(Ok(Ok(stream))) => converse(stream, info, self.front, watcher).await,
                    Some(Ok(Err(error))) => tracing::debug!(%error, peer = ?info.remote_addr, "a TLS handshake failed"),
                    Some(Err(_)) => tracing::debug!(peer = ?info.remote_addr, "a TLS handshake took too long"),
                    None => {}
                }
            }
        }
        drop(place);
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, info: TcpConnectInfo, front: Front, watcher: Watcher) {
    let info_of_peer = info.remote_addr;
    let service = front.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(info.clone());
        request
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_DEADLINE);
    let heard = Arc::new(AtomicUsize::new(0));
    let serving = builder.serve_connection(TokioIo::new(Heard { stream, heard: heard.clone() }), TowerToHyperService::new(service));
    tokio::select! {
        served = watcher.watch(serving.into_owned()) => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended badly");
            }
        }
        () = silence(&heard) => tracing::debug!(peer = ?info_of_peer, "a connection said too little to be understood"),
    }
}

/// Ends when a connection has not even said which protocol it speaks in time. Beyond that each protocol sees to it: HTTP/1.1 by a deadline for its
/// headers, HTTP/2 by asking whether the other side lives.
async fn silence(heard: &AtomicUsize) {
    tokio::time::sleep(HEADER_DEADLINE).await;
    if heard.load(Ordering::Relaxed) >= PREFACE_BYTES {
        std::future::pending::<()>().await;
    }
}

/// A connection of which it is counted how much was read.
struct Heard<S> {
    stream: S,
    heard: Arc<AtomicUsize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.heard.fetch_add(buffer.filled().len() - before, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
