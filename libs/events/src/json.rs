//! Events as JSON payloads with CloudEvents headers, and back.

use crate::{Envelope, Event, Recorded, Subject, Trace};
use footplate_types::{EventId, Invalid, PrincipalId, Timestamp};

/// The header names of an event.
pub mod header {
    /// CloudEvents version, always `1.0`.
    pub const SPEC_VERSION: &str = "ce-specversion";
    /// The event's id.
    pub const ID: &str = "ce-id";
    /// The same id, for the broker's de-duplication (a help, never the guard).
    pub const MESSAGE_ID: &str = "Nats-Msg-Id";
    /// The type.
    pub const TYPE: &str = "ce-type";
    /// Service and instance.
    pub const SOURCE: &str = "ce-source";
    /// Aggregate and id.
    pub const SUBJECT: &str = "ce-subject";
    /// The writer's clock.
    pub const TIME: &str = "ce-time";
    /// The principal.
    pub const ACTOR: &str = "ce-actor";
    /// The first event of the chain.
    pub const CORRELATION: &str = "ce-correlationid";
    /// The event that this one answers.
    pub const CAUSATION: &str = "ce-causationid";
    /// The trace.
    pub const TRACE: &str = "traceparent";
    /// The payload's form.
    pub const CONTENT_TYPE: &str = "ce-datacontenttype";
}

/// What a message of the ledger turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A fact of a known type.
    Known(Box<Recorded>),
    /// A type that this build does not know: readers of others' events skip and count it, an owner stops.
    Unknown {
        /// The type text.
        event_type: String,
    },
    /// Not readable at all: parked with its reason.
    Poison {
        /// Why.
        reason: String,
    },
}

/// The most bytes of an event's payload.
pub const PAYLOAD_MAX: usize = 256 * 1024;

/// Percent-encodes what CloudEvents' NATS binding demands of header values: blank, `"`, `%` and everything outside printable ASCII.
fn encode_value(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'%';
    if text.bytes().all(plain) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if plain(byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn decode_value(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: u8| (byte as char).to_digit(16);
            let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// The headers and the payload of an event. Refused when the payload is over [`PAYLOAD_MAX`].
#[allow(clippy::type_complexity)]
pub fn encode(envelope: &Envelope) -> Result<(Vec<(&'static str, String)>, Vec<u8>), Invalid> {
    let event_type = envelope.event.event_type();
    let payload = envelope.event.payload().map_err(|error| Invalid::new(event_type.to_string(), error, "a payload that is valid JSON"))?;
    if payload.len() > PAYLOAD_MAX {
        let size = format!("{} bytes", payload.len());
        return Err(Invalid::new(
            event_type.to_string(),
            size,
            format!("an event of at most {PAYLOAD_MAX} bytes; longer texts are documents"),
        ));
    }
    let aggregate = [envelope.subject.aggregate.as_str(), "/", envelope.subject.id()].concat();
    let id = envelope.id.to_string();
    let mut headers = Vec::with_capacity(12);
    headers.extend([
        (header::SPEC_VERSION, "1.0".to_owned()),
        (header::ID, id.clone()),
        (header::MESSAGE_ID, id),
        (header::TYPE, event_type.to_string()),
        (header::SOURCE, encode_value(&envelope.source)),
        (header::SUBJECT, encode_value(&aggregate)),
        (header::TIME, envelope.time.to_string()),
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::ACTOR, encode_value(envelope.actor.as_str())),
        (header::CORRELATION, envelope.correlation.to_string()),
    ]);
    if let Some(cause) = &envelope.causation {
        headers.push((header::CAUSATION, cause.to_string()));
    }
    if let Some(trace) = &envelope.trace {
        headers.push((header::TRACE, trace.as_str().to_owned()));
    }
    Ok((headers, payload))
}

/// Reads a message of the ledger. Never fails: what cannot be read is told as such.
pub fn decode<N: AsRef<str>>(sequence: u64, recorded_at: Timestamp, subject: &str, headers: &[(N, String)], payload: &[u8]) -> Decoded {
    match read(sequence, recorded_at, subject, headers, payload) {
        Ok(decoded) => decoded,
        Err(reason) => Decoded::Poison { reason },
    }
}

fn read<N: AsRef<str>>(
    sequence: u64,
    recorded_at: Timestamp,
    subject: &str,
    headers: &[(N, String)],
    payload: &[u8],
) -> Result<Decoded, String> {
    let get = |name: &str| headers.iter().find(|(known, _)| known.as_ref().eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
    let need = |name: &str| get(name).ok_or_else(|| format!("header {name} is missing"));
    let text = |name: &str| need(name).and_then(|value| decode_value(value).ok_or_else(|| format!("header {name} is not readable")));
    let event_type = need(header::TYPE)?;
    let event = match Event::from_payload(event_type, payload) {
        None => return Ok(Decoded::Unknown { event_type: event_type.to_owned() }),
        Some(event) => event.map_err(|error| format!("payload of {event_type}: {error}"))?,
    };
    let subject = Subject::parse(subject).map_err(|error| error.to_string())?;
    if subject.aggregate != event.event_type().aggregate {
        return Err(format!("type {event_type} does not belong on {subject}"));
    }
    let id = |name: &str| need(name).and_then(|value| EventId::parse(value).map_err(|error| format!("header {name}: {error}")));
    let envelope = Envelope {
        id: id(header::ID)?,
        subject,
        event,
        source: text(header::SOURCE)?,
        time: Timestamp::parse(need(header::TIME)?).map_err(|error| error.to_string())?,
        actor: PrincipalId::parse(&text(header::ACTOR)?).map_err(|error| error.to_string())?,
        correlation: id(header::CORRELATION)?,
        causation: if get(header::CAUSATION).is_some() { Some(id(header::CAUSATION)?) } else { None },
        trace: get(header::TRACE).and_then(Trace::parse),
    };
    Ok(Decoded::Known(Box::new(Recorded { sequence, recorded_at, envelope })))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::facts::TermBegan;
    use footplate_types::ServiceName;

    fn sample() -> Envelope {
        let service = ServiceName::parse("scheduler").unwrap();
        Envelope {
            id: EventId::from_bytes([1; 16]),
            subject: Subject::term(&service),
            event: TermBegan { service, instance: "host 1/é".to_owned() }.into(),
            source: "scheduler/host 1".to_owned(),
            time: Timestamp::from_millis(1_700_000_000_123),
            actor: PrincipalId::parse("service:scheduler").unwrap(),
            correlation: EventId::from_bytes([1; 16]),
            causation: Some(EventId::from_bytes([2; 16])),
            trace: Trace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        }
    }

    #[test]
    fn an_event_reads_back_from_headers_and_payload() {
        let envelope = sample();
        let (headers, payload) = encode(&envelope).unwrap();
        let at = Timestamp::from_millis(5);
        let read = decode(7, at, &envelope.subject.to_string(), &headers, &payload);
        assert_eq!(read, Decoded::Known(Box::new(Recorded { sequence: 7, recorded_at: at, envelope })));
    }

    #[test]
    fn an_unknown_type_is_told_apart_from_a_poison_message() {
        let envelope = sample();
        let (mut headers, payload) = encode(&envelope).unwrap();
        let subject = envelope.subject.to_string();
        let poison = decode(7, Timestamp::default(), &subject, &headers, b"{");
        assert!(matches!(poison, Decoded::Poison { .. }));
        let foreign = decode(7, Timestamp::default(), "fp.ledger._.node.n1", &headers, &payload);
        assert!(matches!(foreign, Decoded::Poison { .. }));
        headers.iter_mut().find(|(name, _)| *name == header::TYPE).unwrap().1 = "footplate.term.flown.v1".to_owned();
        let unknown = decode(7, Timestamp::default(), &subject, &headers, &payload);
        assert_eq!(unknown, Decoded::Unknown { event_type: "footplate.term.flown.v1".to_owned() });
    }

    #[test]
    fn an_event_over_the_limit_is_refused() {
        let mut envelope = sample();
        let service = ServiceName::parse("scheduler").unwrap();
        envelope.event = TermBegan { service, instance: "x".repeat(PAYLOAD_MAX) }.into();
        assert!(encode(&envelope).is_err());
    }
}
