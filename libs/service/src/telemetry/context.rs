//! W3C trace context by hand: one header in, one header out.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The `traceparent` of the current span; `None` outside any span or when tracing is off.
pub fn current_traceparent() -> Option<String> {
    let context = Span::current().context();
    let span = context.span();
    let span = span.span_context();
    span.is_valid().then(|| format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8()))
}

/// Makes `span` a child of the remote span that `traceparent` names. Call it before the span is entered; a header that is not one is
/// passed over, as the specification asks.
pub fn continue_trace(span: &Span, traceparent: &str) {
    if let Some(parent) = parse(traceparent) {
        // Fails only where no tracing is set up, or too late: a trace cut in two is no reason to fail the work.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Links `span` to the remote span that `traceparent` names, without becoming its child: for work that many causes share, and for replays.
pub fn link_trace(span: &Span, traceparent: &str) {
    if let Some(cause) = parse(traceparent) {
        span.add_link(cause);
    }
}

/// `version-trace-span-flags`, all lower-case hex; a later version may carry more.
fn parse(header: &str) -> Option<SpanContext> {
    let mut parts = header.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let sizes = (version.len(), trace.len(), span.len(), flags.len());
    let lower_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if sizes != (2, 32, 16, 2) || ![version, trace, span, flags].into_iter().all(lower_hex) || version == "ff" {
        return None;
    }
    if version == "00" && parts.next().is_some() {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & TraceFlags::SAMPLED.to_u8());
    let context = SpanContext::new(TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_header_is_read_and_a_bad_one_is_passed_over() {
        let context = parse(GOOD).unwrap();
        assert_eq!(context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(context.is_sampled() && context.is_remote());
        assert!(parse("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more").is_some(), "a later version may carry more");
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-é-b7ad6b7169203331-01",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn without_tracing_there_is_no_trace_and_no_failure() {
        assert_eq!(current_traceparent(), None);
        continue_trace(&Span::current(), GOOD);
    }
}
