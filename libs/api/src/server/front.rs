//! The front that every request passes: pages here, gRPC there, JSON through the door.

use std::collections::{BTreeMap, BTreeSet};
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

use super::caller::{CallDeadline, Caller, token};
use super::deadline::{self, Until};
use super::gate::Gate;
use super::guard::{Check, Guarded};
use super::measure::Measure;
use super::need::Need;
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
    grpc: Guarded,
    pages: Router,
    served: BTreeSet<&'static str>,
    gate: Option<Arc<dyn Gate>>,
    /// What each method takes of its caller; nobody may call one that is not here.
    needs: BTreeMap<String, Arc<Need>>,
    pool: DescriptorPool,
    measure: Measure,
}

impl Front {
    pub(crate) fn new(
        grpc: Router,
        pages: Router,
        served: BTreeSet<&'static str>,
        gate: Option<Arc<dyn Gate>>,
        pool: DescriptorPool,
        measure: Measure,
    ) -> Self {
        let need = |path: String| method_in(&pool, &path).and_then(|method| Need::of(&pool, &method)).map(|need| (path, Arc::new(need)));
        let needs = paths_in(&pool).filter_map(need).collect();
        Self { shared: Arc::new(Shared { grpc: Guarded(grpc), pages, served, gate, needs, pool, measure }) }
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
        let mut methods = self.grpc.clone();
        let Some(at) = at else { return sure(methods.call(request).await) };
        match timeout_at(at, methods.call(request)).await {
            Ok(response) => sure(response).map(|body| Body::new(Until::deadline(body, at))),
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

    /// Lets in whoever may call the method; where that hangs on the request's project, the guard is left to look.
    fn admit(&self, request: &mut Request<Body>) -> Result<(), Refusal> {
        let path = request.uri().path();
        if OPEN_PACKAGES.iter().any(|package| path.trim_start_matches('/').starts_with(package)) {
            return Ok(());
        }
        let Some(gate) = self.gate.clone() else {
            return Err(Refusal::new(&reason::PLATFORM_DENIED, "this server knows nobody, and so lets nobody in"));
        };
        let bearer = gate.bearer(token(request.headers()))?;
        let Some(need) = self.needs.get(path).cloned() else {
            return Err(Refusal::new(&reason::PLATFORM_DENIED, format!("nothing says who may call {path}, so nobody may")));
        };
        if !need.looks_into_the_request() {
            need.admit(gate.as_ref(), &bearer, None)?;
        }
        request.extensions_mut().insert(Caller(bearer.clone()));
        request.extensions_mut().insert(Check { gate, bearer, need });
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

pub(crate) fn grpc_refusal(refusal: Refusal) -> Response<Body> {
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
