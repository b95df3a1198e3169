//! Calls counted and timed, by method and outcome, until their last byte.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use footplate_service::Metrics;
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame, SizeHint};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::refusal::code_name;

/// Buckets of a call's time: from 1 ms, doubled, to about half a minute.
const BUCKETS: u16 = 16;

/// The metrics of all calls; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    calls: Family<Outcome, Counter>,
    seconds: Family<Method, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    service: String,
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    service: String,
    method: String,
    code: &'static str,
}

impl Default for Measure {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, BUCKETS));
        Self { calls: Family::default(), seconds: Family::new_with_constructor(histogram) }
    }
}

impl Measure {
    /// Shows the metrics among those of the process.
    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.register(|registry| {
            registry.register("api_calls", "Calls that ended, by method and code", self.calls.clone());
            registry.register("api_call_seconds", "Time of calls to their last byte", self.seconds.clone());
        });
    }

    /// A call begins; it ends when the value is dropped. The names must be those of a known method: each makes a series.
    pub(crate) fn begin(&self, service: &str, method: &str) -> RunningCall {
        let method = Method { service: service.to_owned(), method: method.to_owned() };
        RunningCall { measure: self.clone(), method, start: Instant::now(), code: None }
    }
}

/// A call that has not ended.
pub(crate) struct RunningCall {
    measure: Measure,
    method: Method,
    start: Instant,
    code: Option<Code>,
}

impl RunningCall {
    /// Follows the answer to its end. The door puts its answer's code beside it; a gRPC answer's is in its headers or trailers.
    pub(crate) fn follow<B>(mut self, response: Response<B>) -> Response<FollowedBody<B>> {
        self.code = response.extensions().get::<Code>().copied().or_else(|| code_in(response.headers()));
        response.map(|inner| FollowedBody { inner, call: self })
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // Without a code the caller went away before the end.
        let code = self.code.unwrap_or(Code::Cancelled);
        let Method { service, method } = self.method.clone();
        self.measure.calls.get_or_create(&Outcome { service, method, code: code_name(code) }).inc();
        self.measure.seconds.get_or_create(&self.method).observe(self.start.elapsed().as_secs_f64());
    }
}

/// A body that ends its call when it is dropped.
pub(crate) struct FollowedBody<B> {
    inner: B,
    call: RunningCall,
}

impl<B: Body<Data = Bytes> + Unpin> Body for FollowedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(trailers) = frame.trailers_ref()
        {
            self.call.code = code_in(trailers).or(self.call.code);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn code_in(headers: &HeaderMap) -> Option<Code> {
    Status::from_header_map(headers).map(|status| status.code())
}
