//! EventService: the ledger, decoded.

use crate::view::View;
use footplate_api::v1::{self, event_service_server::EventService};
use footplate_api::{Refusal, reason};
use footplate_eventlog::LedgerItem;
use footplate_events::{Aggregate, Subject, header};
use footplate_shell::away;
use footplate_types::{EventId, Invalid, ProjectName, RunId};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// Events of a page when nothing is asked.
const PAGE_DEFAULT: usize = 100;

/// Sequences looked at in the first step back from the end; each further step is four times as wide.
const STEP_BACK: u64 = 1_000;

/// Events read at a time while looking for an id.
const SCAN_PAGE: usize = 1_000;

/// The service.
#[derive(Clone)]
pub(crate) struct Events {
    view: View,
    shutdown: CancellationToken,
}

impl Events {
    /// The service over the ledger.
    pub(crate) fn new(view: View, shutdown: CancellationToken) -> Self {
        Self { view, shutdown }
    }
}

/// What is asked, as subjects at the broker and a check of each event.
#[derive(Clone, Debug)]
struct Wanted {
    /// Disjoint filters of subjects.
    filters: Vec<String>,
    run: Option<RunId>,
    type_prefix: String,
}

impl Wanted {
    fn read(filter: &v1::EventFilter, view: &View) -> Result<Self, Refusal> {
        let project = match filter.project.as_str() {
            "" => None,
            text => Some(ProjectName::parse(text).map_err(|invalid| invalid.of("filter.project"))?),
        };
        let aggregate = match filter.aggregate.as_str() {
            "" => None,
            text => Some(aggregate_in(text)?),
        };
        let run = match filter.run_id.as_str() {
            "" => None,
            text => Some(RunId::parse(text).map_err(|invalid| invalid.of("filter.run_id"))?),
        };
        let type_prefix = filter.type_prefix.clone();
        let Some(run) = run else {
            return Ok(Self { filters: vec![Subject::filter(project.as_ref(), aggregate)], run: None, type_prefix });
        };
        let owner = view.live().read().owner(run).cloned();
        let Some(project) = project.or(owner) else {
            let message = format!("run {run} is not known; name its project");
            return Err(Refusal::new(&reason::RUN_NOT_FOUND, message).field("filter.run_id").value(run));
        };
        let all = [
            (Aggregate::Run, Subject::run(&project, run).to_string()),
            (Aggregate::Job, Subject::job(&project, run).to_string()),
            (Aggregate::JobRequest, Subject::job_request(&project, run).to_string()),
            (Aggregate::Attempt, Subject::filter(Some(&project), Some(Aggregate::Attempt))),
        ];
        let filters = all.into_iter().filter(|(kind, _)| aggregate.is_none_or(|wanted| wanted == *kind)).map(|(_, filter)| filter);
        Ok(Self { filters: filters.collect(), run: Some(run), type_prefix })
    }

    fn takes(&self, event: &v1::Event) -> bool {
        let of_run = || {
            let subject = Subject::parse(&event.subject).ok();
            self.run.is_none_or(|run| subject.is_some_and(|subject| subject.run_id() == Some(run)))
        };
        event.r#type.starts_with(&self.type_prefix) && of_run()
    }
}

fn aggregate_in(text: &str) -> Result<Aggregate, Refusal> {
    let names: Vec<&str> = Aggregate::ALL.iter().map(|kind| kind.as_str()).collect();
    let found = Aggregate::ALL.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| Invalid::new("filter.aggregate", text, names.join(", ")).into())
}

/// An event of the ledger as a message; none for a position. What this build cannot read is shown as far as it is known.
fn event_out(item: LedgerItem) -> Option<v1::Event> {
    match item {
        LedgerItem::Fact(recorded) => {
            let (headers, payload) = footplate_events::encode(&recorded.envelope).ok()?;
            let envelope = &recorded.envelope;
            let trace = headers.iter().find(|(name, _)| *name == header::TRACE).map(|(_, value)| value.clone());
            Some(v1::Event {
                sequence: recorded.sequence,
                id: envelope.id.to_string(),
                r#type: envelope.event.event_type().to_string(),
                subject: envelope.subject.to_string(),
                project: envelope.subject.project.to_string(),
                aggregate: envelope.subject.aggregate.as_str().to_owned(),
                aggregate_id: envelope.subject.id().to_owned(),
                source: envelope.source.clone(),
                time: envelope.time.to_string(),
                recorded_at: recorded.recorded_at.to_string(),
                actor: envelope.actor.to_string(),
                correlation_id: envelope.correlation.to_string(),
                causation_id: envelope.causation.map_or_else(String::new, |id| id.to_string()),
                traceparent: trace.unwrap_or_default(),
                data: String::from_utf8_lossy(&payload).into_owned(),
            })
        }
        LedgerItem::Unknown { sequence, subject, event_type } => Some(v1::Event { r#type: event_type, ..bare(sequence, subject) }),
        LedgerItem::Poison { sequence, subject, .. } => Some(bare(sequence, subject)),
        LedgerItem::Position(_) => None,
    }
}

fn bare(sequence: u64, subject: String) -> v1::Event {
    let known = Subject::parse(&subject).ok();
    v1::Event {
        sequence,
        project: known.as_ref().map_or_else(String::new, |subject| subject.project.to_string()),
        aggregate: known.as_ref().map_or_else(String::new, |subject| subject.aggregate.as_str().to_owned()),
        aggregate_id: known.as_ref().map_or_else(String::new, |subject| subject.id().to_owned()),
        subject,
        ..v1::Event::default()
    }
}

/// A page of events and where to read on.
struct Page {
    events: Vec<v1::Event>,
    next: u64,
}

impl Events {
    /// The first `most` wanted events from `from` on.
    async fn forward(&self, wanted: &Wanted, from: u64, most: usize) -> Result<Page, Refusal> {
        let mut found = BTreeMap::new();
        let mut complete_to = u64::MAX;
        for filter in &wanted.filters {
            let (events, read_to) = self.forward_one(wanted, filter, from, most + 1).await?;
            complete_to = complete_to.min(read_to);
            found.extend(events.into_iter().map(|event| (event.sequence, event)));
        }
        // A filter that was read less far than another may have events in between.
        let mut events: Vec<v1::Event> = found.into_values().filter(|event| event.sequence <= complete_to).collect();
        let next = if events.len() > most { events[most].sequence } else { 0 };
        events.truncate(most);
        Ok(Page { events, next })
    }

    /// At least `most` wanted events of one filter, if there are so many; and up to where it was read.
    async fn forward_one(&self, wanted: &Wanted, filter: &str, from: u64, most: usize) -> Result<(Vec<v1::Event>, u64), Refusal> {
        let mut found = Vec::new();
        let mut next = Some(from.max(1));
        while let Some(at) = next {
            let (items, more) = self.view.ledger().read(filter, at, SCAN_PAGE).await.map_err(away)?;
            found.extend(items.into_iter().filter_map(event_out).filter(|event| wanted.takes(event)));
            if found.len() >= most
                && let Some(more) = more
            {
                return Ok((found, more - 1));
            }
            next = more;
        }
        Ok((found, u64::MAX))
    }

    /// The last `most` wanted events up to and including `to`, newest first.
    async fn backward(&self, wanted: &Wanted, to: u64, most: usize) -> Result<Page, Refusal> {
        let mut found = BTreeMap::new();
        let (mut high, mut width) = (to, STEP_BACK);
        while high > 0 && found.len() <= most {
            let low = high.saturating_sub(width - 1).max(1);
            for filter in &wanted.filters {
                let mut next = Some(low);
                while let Some(at) = next.filter(|at| *at <= high) {
                    let (items, more) = self.view.ledger().read(filter, at, SCAN_PAGE).await.map_err(away)?;
                    let within = items.into_iter().filter(|item| item.sequence() <= high);
                    let events = within.filter_map(event_out).filter(|event| wanted.takes(event));
                    found.extend(events.map(|event| (event.sequence, event)));
                    next = more;
                }
            }
            high = low - 1;
            width = width.saturating_mul(4);
        }
        let mut events: Vec<v1::Event> = found.into_values().rev().collect();
        let next = if events.len() > most { events[most].sequence } else { 0 };
        events.truncate(most);
        Ok(Page { events, next })
    }

    async fn by_id(&self, id: EventId, filter: &str) -> Result<v1::Event, Refusal> {
        let text = id.to_string();
        let mut next = Some(1);
        while let Some(at) = next {
            let (items, more) = self.view.ledger().read(filter, at, SCAN_PAGE).await.map_err(away)?;
            let is_it = |item: &LedgerItem| matches!(item, LedgerItem::Fact(recorded) if recorded.envelope.id == id);
            if let Some(found) = items.into_iter().find(is_it).and_then(event_out) {
                return Ok(found);
            }
            next = more;
        }
        Err(Refusal::new(&reason::EVENT_NOT_FOUND, format!("no event {text}")).field("id").value(text))
    }
}

#[tonic::async_trait]
impl EventService for Events {
    type WatchEventsStream = BoxStream<'static, Result<v1::Event, Status>>;

    /// History first, then what comes, without a gap or a repeat across the broker's restarts; ends at `until_sequence`, at the caller's
    /// deadline, when the caller leaves, or with STOPPING when this instance ends.
    async fn watch_events(&self, request: Request<v1::WatchEventsRequest>) -> Result<Response<Self::WatchEventsStream>, Status> {
        let message = request.get_ref();
        let wanted = Wanted::read(&message.filter.clone().unwrap_or_default(), &self.view)?;
        let from = match message.from_sequence {
            0 => self.view.ledger().end().await.map_err(away)? + 1,
            from => from,
        };
        let until = if message.until_sequence == 0 { u64::MAX } else { message.until_sequence };
        if until < from {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("until_sequence: {until} is below from_sequence {from}"));
            return Err(refusal.field("until_sequence").value(until).allowed("at least from_sequence, or 0").into());
        }
        let items = self.view.ledger().tail(wanted.filters.clone(), from);
        let shutdown = self.shutdown.clone();
        let events = stream::unfold((items, false), move |(mut items, over)| {
            let (wanted, shutdown) = (wanted.clone(), shutdown.clone());
            async move {
                if over {
                    return None;
                }
                loop {
                    let Some(item) = shutdown.run_until_cancelled(items.next()).await else {
                        return Some((Err(super::stopping()), (items, true)));
                    };
                    let item = item?;
                    let sequence = item.sequence();
                    if sequence > until {
                        return None;
                    }
                    let event = event_out(item).filter(|event| wanted.takes(event));
                    match event {
                        Some(event) => return Some((Ok(event), (items, sequence >= until))),
                        None if sequence >= until => return None,
                        None => {}
                    }
                }
            }
        });
        Ok(Response::new(events.boxed()))
    }

    async fn list_events(&self, request: Request<v1::ListEventsRequest>) -> Result<Response<v1::ListEventsResponse>, Status> {
        let message = request.get_ref();
        let wanted = Wanted::read(&message.filter.clone().unwrap_or_default(), &self.view)?;
        let size = super::page_size(message.page_size, PAGE_DEFAULT);
        let end_sequence = self.view.ledger().end().await.map_err(away)?;
        let page = if message.newest_first {
            let to = if message.from_sequence == 0 { end_sequence } else { message.from_sequence.min(end_sequence) };
            self.backward(&wanted, to, size).await?
        } else {
            self.forward(&wanted, message.from_sequence, size).await?
        };
        Ok(Response::new(v1::ListEventsResponse { events: page.events, next_sequence: page.next, end_sequence }))
    }

    /// By sequence at once; by id by reading the ledger, within the caller's deadline.
    async fn get_event(&self, request: Request<v1::GetEventRequest>) -> Result<Response<v1::Event>, Status> {
        let message = request.get_ref();
        let filter = match message.project.as_str() {
            "" => "fp.ledger.>".to_owned(),
            project => Subject::filter(Some(&ProjectName::parse(project).map_err(Refusal::from)?), None),
        };
        if !message.id.is_empty() {
            let id = EventId::parse(&message.id).map_err(|invalid| Refusal::from(invalid.of("id")))?;
            return Ok(Response::new(self.by_id(id, &filter).await?));
        }
        let sequence = message.sequence;
        let not_found = || Refusal::new(&reason::EVENT_NOT_FOUND, format!("no event {sequence}")).field("sequence").value(sequence);
        if sequence == 0 {
            return Err(Refusal::new(&reason::MISSING_FIELD, "sequence: a sequence or an id is needed").field("sequence").into());
        }
        let (items, _) = self.view.ledger().read(&filter, sequence, 1).await.map_err(away)?;
        let found = items.into_iter().find(|item| item.sequence() == sequence).and_then(event_out);
        Ok(Response::new(found.ok_or_else(not_found)?))
    }
}
