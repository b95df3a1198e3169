//! Serving one port: connections in HTTP/1.1 or HTTP/2, as the client begins.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use footplate_service::Shutdown;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tonic::transport::server::TcpConnectInfo;
use tower::ServiceExt;

use super::ServerParts;
use super::front::Front;

/// Connections served at once; further ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 4_096;
/// Calls at once on one connection.
const MAX_STREAMS_PER_CONNECTION: u32 = 1_024;
/// How long a client may take to send its headers.
const HEADER_DEADLINE: Duration = Duration::from_secs(15);
/// How often an HTTP/2 client is asked whether it lives, so that a watcher whose machine vanished is let go.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to answer that.
const KEEP_ALIVE_DEADLINE: Duration = Duration::from_secs(20);
/// How long accepting rests when the system has no handles left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Serves until a stop is asked for; then takes no new connection, lets calls end, and cuts off what is left when the grace is over.
///
/// # Errors
/// Never for a single connection's fault; only when the listener itself cannot be used.
pub async fn serve(listener: TcpListener, parts: ServerParts, shutdown: Shutdown) -> io::Result<()> {
    let (front, health) = parts.build();
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accepting = async {
        loop {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (front, watcher) = (front.clone(), graceful.watcher());
                    tokio::spawn(async move {
                        connection(stream, front, watcher).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    };
    tokio::select! {
        () = shutdown.requested() => {}
        () = health.follow() => {}
        () = accepting => {}
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = shutdown.over() => tracing::warn!("calls were cut off when the time to drain was over"),
    }
    Ok(())
}

async fn connection(stream: TcpStream, front: Front, watcher: Watcher) {
    // Small answers go out at once; a socket that refuses this still works.
    let _ = stream.set_nodelay(true);
    let info = TcpConnectInfo { local_addr: stream.local_addr().ok(), remote_addr: stream.peer_addr().ok() };
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
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(%error, "a connection ended badly");
    }
}
