//! A server whose methods answer by what they are asked, and a bare HTTP/1.1 client.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use footplate_api::refusal::{Refusal, reason};
use footplate_api::server::{Port, ServerParts, ServerTls, deadline, principal, project, serve_ports};
use footplate_api::v1::event_service_server::{EventService, EventServiceServer};
use footplate_api::v1::metric_service_server::{MetricService, MetricServiceServer};
use footplate_api::v1::queue_service_server::{QueueService, QueueServiceServer};
use footplate_api::v1::{
    Event, GetCapacityRequest, GetCapacityResponse, GetEventRequest, GetHistoryRequest, GetHistoryResponse, IngestRequest, IngestResponse,
    ListEventsRequest, ListEventsResponse, ListLatestRequest, ListLatestResponse, ListQueuesRequest, ListQueuesResponse, Point, Queue,
    SetQueueRequest, WatchEventsRequest, WriteResponse,
};
use footplate_service::{Metrics, Readiness, Shutdown};
use footplate_types::PrincipalId;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

pub(crate) const TOKEN: &str = "letmein";

/// A running server; it stops when dropped.
pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
    pub(crate) serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.request_immediate();
    }
}

pub(crate) async fn start() -> Fixture {
    let authenticator = |token: Option<&str>| match token {
        Some(TOKEN) => Ok("ada".parse::<PrincipalId>()?),
        Some(_) => Err(Refusal::new(&reason::TOKEN_UNKNOWN, "the token is not known")),
        None => Err(Refusal::new(&reason::TOKEN_MISSING, "the call carries no token")),
    };
    start_behind(|parts| parts.authenticator(authenticator)).await
}

/// A server behind some gate.
pub(crate) async fn start_behind(gate: impl FnOnce(ServerParts) -> ServerParts) -> Fixture {
    start_on(Port::plain, gate).await
}

/// A server within TLS, which looks at its certificate's files this often.
pub(crate) async fn start_within(tls: ServerTls, reread_every: Duration) -> Fixture {
    start_on(|listener| Port::tls(listener, tls, reread_every), |parts| parts.authenticator(|_| Ok("ada".parse::<PrincipalId>()?))).await
}

async fn start_on(port: impl FnOnce(TcpListener) -> Port, gate: impl FnOnce(ServerParts) -> ServerParts) -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, readiness, metrics) = (Shutdown::new(Duration::from_secs(30)), Readiness::default(), Metrics::default());
    let pages = axum::Router::new().route("/", axum::routing::get(|| async { "the page" }));
    let parts = ServerParts::new()
        .service(QueueServiceServer::new(Desk))
        .service(EventServiceServer::new(Desk))
        .service(MetricServiceServer::new(Desk))
        .pages(pages)
        .readiness(readiness.clone())
        .metrics(&metrics);
    let parts = gate(parts);
    let serving = tokio::spawn(serve_ports(vec![port(listener)], parts, shutdown.clone()));
    Fixture { address, shutdown, readiness, metrics, serving }
}

struct Desk;

#[tonic::async_trait]
impl QueueService for Desk {
    async fn set_queue(&self, request: Request<SetQueueRequest>) -> Result<Response<WriteResponse>, Status> {
        match request.get_ref().name.as_str() {
            "closed" => Err(Refusal::new(&reason::QUEUE_CLOSED, "the queue closed takes no jobs").field("name").value("closed").into()),
            "panic" => panic!("the method broke"),
            "slow" => std::future::pending().await,
            _ => Ok(Response::new(WriteResponse { sequence: u64::MAX })),
        }
    }

    /// Tells who calls, for which project, and whether a deadline is known.
    async fn list_queues(&self, request: Request<ListQueuesRequest>) -> Result<Response<ListQueuesResponse>, Status> {
        let who = principal(&request)?;
        let told = format!("{who}/{}/{}", project(&request).unwrap_or("-"), deadline(&request).is_some());
        let trace = request.metadata().get("traceparent").map(|value| value.to_str().unwrap_or_default().to_owned());
        let queues = [Some(told), trace].into_iter().flatten().map(|name| Queue { name, ..Queue::default() }).collect();
        let mut response = Response::new(ListQueuesResponse { queues });
        response.metadata_mut().insert("x-own", "kept".parse().unwrap());
        Ok(response)
    }

    async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
        Ok(Response::new(GetCapacityResponse::default()))
    }
}

#[tonic::async_trait]
impl EventService for Desk {
    type WatchEventsStream = Pin<Box<dyn Stream<Item = Result<Event, Status>> + Send>>;

    /// Two events, then nothing for ever.
    async fn watch_events(&self, _: Request<WatchEventsRequest>) -> Result<Response<Self::WatchEventsStream>, Status> {
        let first = tokio_stream::iter([1, 2]).map(|sequence| Ok(Event { sequence, ..Event::default() }));
        Ok(Response::new(Box::pin(first.chain(tokio_stream::pending()))))
    }

    async fn list_events(&self, _: Request<ListEventsRequest>) -> Result<Response<ListEventsResponse>, Status> {
        Ok(Response::new(ListEventsResponse::default()))
    }

    async fn get_event(&self, request: Request<GetEventRequest>) -> Result<Response<Event>, Status> {
        Ok(Response::new(Event { id: "x".repeat(usize::try_from(request.get_ref().sequence).unwrap()), ..Event::default() }))
    }
}

#[tonic::async_trait]
impl MetricService for Desk {
    type IngestStream = Pin<Box<dyn Stream<Item = Result<IngestResponse, Status>> + Send>>;

    async fn ingest(&self, request: Request<Streaming<IngestRequest>>) -> Result<Response<Self::IngestStream>, Status> {
        let acks = request
            .into_inner()
            .map(|batch| batch.map(|batch| IngestResponse { session: batch.session, acked: batch.n, ..IngestResponse::default() }));
        Ok(Response::new(Box::pin(acks)))
    }

    async fn log_batch(&self, request: Request<IngestRequest>) -> Result<Response<IngestResponse>, Status> {
        let points = request.get_ref().series.iter().flat_map(|series| &series.points);
        let odd = points.filter(|point| !point.value.is_finite()).count();
        Ok(Response::new(IngestResponse { session: request.get_ref().session.clone(), acked: odd as u64, implausible_times: 0 }))
    }

    async fn list_latest(&self, _: Request<ListLatestRequest>) -> Result<Response<ListLatestResponse>, Status> {
        Ok(Response::new(ListLatestResponse::default()))
    }

    async fn get_history(&self, _: Request<GetHistoryRequest>) -> Result<Response<GetHistoryResponse>, Status> {
        let points = [f64::NAN, f64::NEG_INFINITY, 0.5].map(|value| Point { value, ..Point::default() });
        Ok(Response::new(GetHistoryResponse { points: points.to_vec(), ..GetHistoryResponse::default() }))
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The word of the error info in a Connect error.
    pub(crate) fn reason(&self) -> String {
        self.json()["details"][0]["debug"]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

/// One HTTP/1.1 request over a fresh connection, byte for byte as given.
pub(crate) async fn http(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    http_over(tokio::net::TcpStream::connect(address).await.unwrap(), method, path, headers, body).await
}

/// The same over a connection that is there.
pub(crate) async fn http_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    // A server that refuses early may close before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// A JSON call as a script makes it, with the token.
pub(crate) async fn call(address: SocketAddr, method: &str, body: &str) -> Answer {
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("content-type", "application/json"), ("authorization", authorization.as_str())];
    http(address, "POST", &format!("/footplate.api.v1.{method}"), &headers, body).await
}
