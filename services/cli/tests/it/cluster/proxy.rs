//! One address for clients: an HTTP/2 proxy that splits by path, by the table of a deployment's. It understands nothing of what it carries.
//!
//! In the process of the test, so that a broken connection is never its doing: the deployment's own proxy has its own tests.

use crate::compose::routes::routes;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

type Body = Either<Incoming, Full<Bytes>>;

/// A running proxy; it ends with its guard.
pub struct Proxy {
    /// Where clients reach it.
    pub addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

struct Inner {
    client: Client<HttpConnector, Incoming>,
    ports: BTreeMap<String, SocketAddr>,
    routes: BTreeMap<String, String>,
}

impl Proxy {
    /// Splits among these services.
    pub async fn start(ports: BTreeMap<String, SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let inner = Arc::new(Inner { client, ports, routes: routes() });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let inner = inner.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| forward(inner.clone(), request));
                    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { addr, task }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(inner: Arc<Inner>, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let addr = inner.ports[inner.owner(&path)];
    *request.uri_mut() = format!("http://{addr}{path}").parse::<Uri>().unwrap();
    *request.version_mut() = hyper::Version::HTTP_2;
    for hop in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host"] {
        request.headers_mut().remove(hop);
    }
    match inner.client.request(request).await {
        Ok(response) => Ok(response.map(Either::Left)),
        Err(error) => Ok(away(&error.to_string())),
    }
}

impl Inner {
    /// Who serves a path; what is no service of ours (health, reflection) is answered by the tracker.
    fn owner(&self, path: &str) -> &str {
        let named = path.strip_prefix("/footplate.api.v1.").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        self.routes.get(named).map_or("tracker", String::as_str)
    }
}

/// What a proxy says of a service that is not there, in the form that a gRPC client reads.
fn away(reason: &str) -> Response<Body> {
    let answer = Response::builder().header("content-type", "application/grpc").header("grpc-status", "14");
    answer.header("grpc-message", reason.replace(|c: char| !c.is_ascii_graphic(), " ")).body(Either::Right(Full::default())).unwrap()
}
