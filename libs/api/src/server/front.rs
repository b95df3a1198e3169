//! The front that every request passes: pages here, gRPC there, JSON through the door.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use footplate_service::continue_trace;
use futures::FutureExt;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};
use prost_reflect::DescriptorPool;
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tower::Service;
use tracing::{Instrument, Span};

use super::Authenticator;
use super::caller::{CallDeadline, Caller, token};
use super::deadline::{self, UntilDeadline};
use super::measure::Measure;
use crate::descriptors::{method_in, paths_in};
use crate::door;
use crate::json::nearest;
use crate::refusal::{Refusal, reason};

/// Packages of the services that answer everyone.
const OPEN_PACKAGES: [&str; 2] = ["grpc.health.", "grpc.reflection."];

/// A server's one handler; cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    shared: Arc<Shared>,
}

struct Shared {
    grpc: Router,
    pages: Router,
    served: BTreeSet<&'static str>,
    authenticator: Option<Authenticator>,
    pool: DescriptorPool,
    measure: Measure,
}

impl Front {
    pub(crate) fn new(
        grpc: Router,
        pages: Router,
        served: BTreeSet<&'static str>,
        authenticator: Option<Authenticator>,
        pool: DescriptorPool,
        measure: Measure,
    ) -> Self {
        Self { shared: Arc::new(Shared { grpc, pages, served, authenticator, pool, measure }) }
    }
}

impl<B> Service<Request<B>> for Front
where
    B: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move { Ok(shared.answer(request.map(Body::new)).await) })
    }
}

impl Shared {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let Some((service, method)) = service_and_method(request.uri().path()) else {
            return sure(self.pages.clone().call(request).await);
        };
        let span = tracing::info_span!("call", otel.name = %format_args!("{service}/{method}"), otel.kind = "server", rpc.service = service, rpc.method = method);
        if let Some(traceparent) = request.headers().get("traceparent").and_then(|value| value.to_str().ok()) {
            continue_trace(&span, traceparent);
        }
        self.call(request, span.clone()).instrument(span).await
    }

    async fn call(&self, mut request: Request<Body>, span: Span) -> Response<Body> {
        let is_grpc = is_grpc(request.headers());
        let in_its_form = |refusal| if is_grpc { grpc_refusal(refusal) } else { door::refusal(refusal) };
        if let Err(refusal) = self.known(request.uri().path()) {
            return in_its_form(refusal);
        }
        // Only names that exist become labels.
        let named = method_in(&self.pool, request.uri().path()).and_then(|_| service_and_method(request.uri().path()));
        let (service, method) = named.unwrap_or(("other", "other"));
        let running = self.measure.begin(service, method);
        if let Err(refusal) = self.admit(&mut request) {
            return running.follow(in_its_form(refusal)).map(Body::new);
        }
        let at = deadline::timeout(request.headers()).and_then(|timeout| Instant::now().checked_add(timeout));
        if let Some(at) = at {
            request.extensions_mut().insert(CallDeadline(at));
        }
        // A method that panics fails its own call, not the connection with every other call on it.
        let answered = AssertUnwindSafe(async {
            if is_grpc { self.grpc(request, at).await } else { door::answer(&self.pool, self.grpc.clone(), request, at).await }
        });
        let response = answered.catch_unwind().instrument(span).await;
        let response = response.unwrap_or_else(|_| in_its_form(Refusal::internal("a method panicked")));
        running.follow(response).map(Body::new)
    }

    async fn grpc(&self, request: Request<Body>, at: Option<Instant>) -> Response<Body> {
        let mut router = self.grpc.clone();
        let Some(at) = at else { return sure(router.call(request).await) };
        match timeout_at(at, router.call(request)).await {
            Ok(response) => sure(response).map(|body| Body::new(UntilDeadline::new(body, at))),
            Err(_) => grpc_refusal(deadline::passed()),
        }
    }

    /// Refuses what no one serves, and what another service serves.
    fn known(&self, path: &str) -> Result<(), Refusal> {
        let Some((service, method)) = service_and_method(path) else { return Ok(()) };
        if OPEN_PACKAGES.iter().any(|package| service.starts_with(package)) {
            return Ok(());
        }
        if method_in(&self.pool, path).is_none() {
            let paths: Vec<String> = paths_in(&self.pool).collect();
            let hint = nearest(path, paths.iter().map(String::as_str)).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(Refusal::new(&reason::METHOD_NOT_FOUND, format!("there is no method {service}/{method}{hint}")));
        }
        if self.served.contains(service) {
            return Ok(());
        }
        let served: Vec<&str> = self.served.iter().copied().collect();
        let refusal = Refusal::new(&reason::METHOD_NOT_FOUND, format!("{service} is not served at this address"));
        Err(refusal.allowed(served.join(", ")))
    }

    fn admit(&self, request: &mut Request<Body>) -> Result<(), Refusal> {
        let path = request.uri().path().trim_start_matches('/');
        if OPEN_PACKAGES.iter().any(|package| path.starts_with(package)) {
            return Ok(());
        }
        if let Some(authenticator) = &self.authenticator {
            let principal = authenticator(token(request.headers()))?;
            request.extensions_mut().insert(Caller { principal });
        }
        Ok(())
    }
}

/// `/package.Service/Method`: a first part with a dot tells a call from a page.
fn service_and_method(path: &str) -> Option<(&str, &str)> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    let looks_so = service.contains('.') && !service.starts_with('.') && !method.is_empty() && !method.contains('/');
    looks_so.then_some((service, method))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn grpc_refusal(refusal: Refusal) -> Response<Body> {
    Status::from(refusal).into_http()
}

fn sure<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_from_a_page_by_its_path() {
        assert_eq!(service_and_method("/footplate.api.v1.RunService/GetRun"), Some(("footplate.api.v1.RunService", "GetRun")));
        for page in ["/", "/runs/1", "/.well-known/x", "/a.b", "/a.b/", "/static/app.js", "/a.b/c/d"] {
            assert_eq!(service_and_method(page), None, "{page}");
        }
    }
}
