//! A leader's appends: envelopes from decisions, every message under the term.

use super::LeaseConfig;
use crate::port::{BATCH_MAX, Broker, Expect, Message, PublishError, StreamName};
use footplate_es::Decision;
use footplate_events::{Envelope, Subject};
use footplate_types::{Invalid, PrincipalId};
use tracing::Span;

/// What was appended.
pub(super) struct Appended {
    /// The last event's sequence; `None` when nothing was left to append.
    pub(super) last: Option<u64>,
    /// How many decisions could not become events and were left out.
    pub(super) left_out: usize,
}

/// Writes the envelopes of one leader.
pub(super) struct Pen {
    config: LeaseConfig,
    source: String,
    actor: Option<PrincipalId>,
    term_subject: String,
}

impl Pen {
    pub(super) fn new(config: &LeaseConfig) -> Self {
        Self {
            config: config.clone(),
            source: format!("{}/{}", config.service, config.instance),
            actor: PrincipalId::parse(&format!("service:{}", config.service)).ok(),
            term_subject: Subject::term(&config.service).to_string(),
        }
    }

    pub(super) fn term_subject(&self) -> &str {
        &self.term_subject
    }

    /// The envelope of a decision: who began the chain, what it belongs to and its trace are carried on from the cause.
    pub(super) fn envelope(&self, decision: Decision) -> Envelope {
        let id = decision.id(self.config.service.as_str()).unwrap_or_else(footplate_clock::event_id);
        let Decision { subject, event, cause, .. } = decision;
        let time = footplate_clock::now();
        let source = self.source.clone();
        match cause {
            Some(cause) => Envelope {
                id,
                subject,
                event,
                source,
                time,
                actor: cause.actor,
                correlation: cause.correlation,
                causation: Some(cause.id),
                trace: cause.trace,
            },
            None => Envelope { id, subject, event, source, time, actor: self.own_actor(), correlation: id, causation: None, trace: None },
        }
    }

    fn own_actor(&self) -> PrincipalId {
        self.actor.clone().expect("`service:` and a slug of at most 63 characters are a principal")
    }

    /// Appends decisions under `term`, one publication in flight at a time.
    pub(super) async fn append(&self, broker: &dyn Broker, term: u64, decisions: Vec<Decision>) -> Result<Appended, PublishError> {
        let mut spans = Vec::with_capacity(decisions.len());
        let mut messages = Vec::with_capacity(decisions.len());
        let mut left_out = 0;
        for decision in decisions {
            let envelope = self.envelope(decision);
            match self.message(&envelope) {
                Ok(message) => {
                    messages.push(message);
                    spans.push(self.span(&envelope, term));
                }
                Err(error) => {
                    left_out += 1;
                    tracing::error!(%error, subject = %envelope.subject, "a decision cannot become an event and is left out");
                }
            }
        }
        let mut last = None;
        while !messages.is_empty() {
            let rest = messages.split_off(messages.len().min(BATCH_MAX));
            let chunk = std::mem::replace(&mut messages, rest);
            last = match (self.publish(broker, term, chunk).await, last) {
                (Ok(sequence), _) => Some(sequence),
                // Part of what was decided stands: as with an unknown outcome, a new term reads it before anything is decided again.
                (Err(PublishError::Full(why) | PublishError::Unavailable(why) | PublishError::Refused(why)), Some(_)) => {
                    return Err(PublishError::Unknown(format!("only a part was appended: {why}")));
                }
                (Err(error), _) => return Err(error),
            };
        }
        for span in spans {
            span.in_scope(|| tracing::info!(term, "decided"));
        }
        Ok(Appended { last, left_out })
    }

    /// What is published of an envelope; never one about another service's aggregate (rule 1).
    fn message(&self, envelope: &Envelope) -> Result<Message, Invalid> {
        let service = &self.config.service;
        if !envelope.subject.is_owned_by(service) {
            return Err(Invalid::new("subject", &envelope.subject, format!("an aggregate that the {service} owns")));
        }
        let (headers, payload) = footplate_events::encode(envelope)?;
        Ok(Message { subject: envelope.subject.to_string(), headers: headers.into(), payload: payload.into() })
    }

    async fn publish(&self, broker: &dyn Broker, term: u64, messages: Vec<Message>) -> Result<u64, PublishError> {
        let under_term = || Expect::Other { subject: self.term_subject.clone(), sequence: term };
        let mut messages: Vec<_> = messages.into_iter().map(|message| (message, under_term())).collect();
        match messages.pop() {
            Some((message, expect)) if messages.is_empty() => broker.publish(StreamName::Ledger, message, expect).await,
            Some(last) => {
                messages.push(last);
                broker.publish_batch(StreamName::Ledger, messages).await
            }
            None => Err(PublishError::Refused("nothing to append".to_owned())),
        }
    }

    fn span(&self, envelope: &Envelope, term: u64) -> Span {
        let trace = envelope.trace.as_ref().map(footplate_events::Trace::as_str).unwrap_or_default();
        tracing::info_span!(
            "decision",
            service = %self.config.service,
            term,
            event_type = %envelope.event.event_type(),
            subject = %envelope.subject,
            event_id = %envelope.id,
            traceparent = trace,
        )
    }
}
