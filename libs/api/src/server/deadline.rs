//! Deadlines of calls: read from either protocol's header, and enforced on the answer and on its stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use crate::refusal::{Refusal, reason};

/// gRPC's header.
pub(crate) const GRPC_TIMEOUT: &str = "grpc-timeout";
/// The Connect protocol's header.
pub(crate) const CONNECT_TIMEOUT: &str = "connect-timeout-ms";

/// How long the caller waits, as the headers say; `None` when they do not, or cannot be understood.
pub(crate) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let connect = || text(CONNECT_TIMEOUT).filter(|text| text.len() <= 10)?.parse().ok().map(Duration::from_millis);
    text(GRPC_TIMEOUT).and_then(grpc_timeout).or_else(connect)
}

/// At most eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

pub(crate) fn passed() -> Refusal {
    Refusal::new(&reason::DEADLINE_PASSED, "the call's deadline passed before it was done")
}

/// A gRPC answer whose stream ends with a refusal when `end` gives one.
pub(crate) struct Until<B> {
    inner: B,
    end: Pin<Box<dyn Future<Output = Refusal> + Send>>,
    over: bool,
}

impl<B> Until<B> {
    pub(crate) fn new(inner: B, end: Pin<Box<dyn Future<Output = Refusal> + Send>>) -> Self {
        Self { inner, end, over: false }
    }

    /// Until a time.
    pub(crate) fn deadline(inner: B, at: Instant) -> Self {
        let end = async move {
            sleep_until(at).await;
            passed()
        };
        Self::new(inner, Box::pin(end))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Until<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        // The end first: a stream that always has a frame would never end.
        if let Poll::Ready(refusal) = self.end.as_mut().poll(context) {
            self.over = true;
            let mut trailers = HeaderMap::new();
            // Fails only for messages that no header can carry, and a refusal's is made for headers.
            let _ = Status::from(refusal).add_header(&mut trailers);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_are_read_and_nonsense_is_passed_over() {
        let of = |name: &'static str, text: &'static str| timeout(&HeaderMap::from_iter([(name.parse().unwrap(), text.parse().unwrap())]));
        assert_eq!(of(GRPC_TIMEOUT, "250m"), Some(Duration::from_millis(250)));
        assert_eq!(of(GRPC_TIMEOUT, "2H"), Some(Duration::from_secs(7_200)));
        assert_eq!(of(CONNECT_TIMEOUT, "1500"), Some(Duration::from_millis(1_500)));
        for nonsense in ["", "m", "123456789m", "-1S", "1x", "1é"] {
            assert_eq!(grpc_timeout(nonsense), None, "{nonsense}");
        }
        assert_eq!(of(CONNECT_TIMEOUT, "12345678901"), None);
    }
}
