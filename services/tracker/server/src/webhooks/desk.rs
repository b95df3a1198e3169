//! `WebhookService`: webhooks are made, shown, tried and taken away. Any instance answers; the leader sends.

use super::courier::{Office, parcel};
use super::dial::{Outcome, Unfit};
use super::journal::{ENTRIES_MAX, Entry, Journal};
use crate::grpc::{actor_of, project_of};
use footplate_api::v1::{self, webhook_service_server::WebhookService};
use footplate_api::{Refusal, reason};
use footplate_es::Decide as _;
use footplate_eventlog::Stored;
use footplate_events::facts::{WebhookCreated, cut_text};
use footplate_events::{Event, Subject, header};
use footplate_shell::{TRIES, away, repeated};
use footplate_tracker_core::{Webhook, WebhookCommand, WebhookFacts, WebhookRefusal};
use footplate_types::{EventId, PrincipalId, ProjectName, WebhookName};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// Deliveries that are shown when nothing is asked.
const DELIVERIES_DEFAULT: usize = 100;
/// Tests that run at once in one process.
const TESTS_MAX: usize = 8;
/// The type of a test event. It stands in no ledger, so it is in no table of events.
const TEST_TYPE: &str = "footplate.webhook.tested.v1";

/// The desk.
#[derive(Clone)]
pub(crate) struct Desk {
    office: Office,
    tests: Arc<Semaphore>,
}

/// A change that someone asks for.
struct Asked<'a> {
    actor: PrincipalId,
    facts: WebhookFacts,
    /// The client's idempotency key; empty for none.
    request_id: &'a str,
}

impl Asked<'_> {
    fn subject(&self) -> Subject {
        Subject::webhook(&self.facts.project, &self.facts.name)
    }

    /// The event's id; fixed by the key, if there is one.
    fn id(&self, what: &str) -> EventId {
        match self.request_id {
            "" => footplate_clock::event_id(),
            key => EventId::derived(&[b"webhook", what.as_bytes(), self.subject().to_string().as_bytes(), key.as_bytes()]),
        }
    }
}

impl Desk {
    pub(super) fn new(office: Office) -> Self {
        Self { office, tests: Arc::new(Semaphore::new(TESTS_MAX)) }
    }

    fn asked<'a, T>(request: &Request<T>, project: &str, name: &str, request_id: &'a str) -> Result<Asked<'a>, Refusal> {
        let facts = WebhookFacts { project: project_of(request, project)?, name: name_of(name)?, end: 0 };
        Ok(Asked { actor: actor_of(request), facts, request_id })
    }

    /// Decides on what stands and appends; the sequence at which it stands.
    async fn change(&self, asked: &Asked<'_>, what: &str, command: WebhookCommand) -> Result<u64, Refusal> {
        let shell = &self.office.shell;
        let (id, subject) = (asked.id(what), asked.subject());
        for _ in 0..TRIES {
            let (facts, last) = shell.aggregate(&subject).await?;
            // The repeat of a request is looked for first: what it asked for once may be refused the second time.
            if let Some(wanted) = facts.iter().find(|recorded| recorded.envelope.id == id).map(|known| known.envelope.event.clone()) {
                let again = same(&command, wanted);
                return repeated(&facts, id, &again, asked.request_id).map(|sequence| sequence.unwrap_or(last));
            }
            shell.caught_up().await?;
            let facts = WebhookFacts { end: shell.live.position(), ..asked.facts.clone() };
            let decided = shell.live.read().decide(command.clone(), &facts).map_err(refused)?;
            let Some(event) = decided.into_iter().next() else { return Ok(last) };
            if let Some(sequence) = shell.append(shell.envelope(id, subject.clone(), event, asked.actor.clone()), last).await? {
                if let Err(refusal) = shell.at_least(sequence).await {
                    tracing::warn!(%refusal, "a change of a webhook is written and not seen yet");
                }
                return Ok(sequence);
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, format!("{subject} was changed by others at the same time")))
    }

    /// Makes a webhook; its secret, and from where on it sends.
    async fn create(&self, asked: &Asked<'_>, message: &v1::CreateWebhookRequest) -> Result<v1::CreateWebhookResponse, Refusal> {
        let (shell, WebhookFacts { project, name, .. }) = (&self.office.shell, &asked.facts);
        let url = self.office.dialer.check(&message.url).await.map_err(|unfit| unfit_url(&unfit, &message.url))?;
        let from = match message.from_sequence {
            0 => self.office.ledger.end().await.map_err(away)? + 1,
            from => from,
        };
        let (id, subject) = (asked.id("create"), asked.subject());
        let secret = self.office.key.secret(project, name, id);
        let answer = |sequence, from_sequence| v1::CreateWebhookResponse { secret: secret.tell(), sequence, from_sequence };
        for _ in 0..TRIES {
            let (facts, last) = shell.aggregate(&subject).await?;
            let mut fact = WebhookCreated { url: url.to_string(), types: message.types.clone(), from, secret: secret.digest() };
            if let Some(known) = facts.iter().find(|recorded| recorded.envelope.id == id) {
                // Where it begins is not compared when it was not asked for: it was counted from the moment of the first call.
                if let (Event::WebhookCreated(made), 0) = (&known.envelope.event, message.from_sequence) {
                    fact.from = made.from;
                }
                let from = fact.from;
                return repeated(&facts, id, &fact.into(), asked.request_id).map(|sequence| answer(sequence.unwrap_or(last), from));
            }
            shell.caught_up().await?;
            let facts = WebhookFacts { end: shell.live.position(), ..asked.facts.clone() };
            let decided = shell.live.read().decide(WebhookCommand::Create(fact), &facts).map_err(refused)?;
            let Some(event) = decided.into_iter().next() else { return Err(Refusal::internal("a new webhook is always decided upon")) };
            if let Some(sequence) = shell.append(shell.envelope(id, subject.clone(), event, asked.actor.clone()), last).await? {
                if let Err(refusal) = shell.at_least(sequence).await {
                    tracing::warn!(%refusal, "a webhook is made and not seen yet");
                }
                return Ok(answer(sequence, from));
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, format!("{subject} was changed by others at the same time")))
    }

    /// A webhook as it stands now; one that is not there is looked for once more at the ledger's end.
    async fn find(&self, facts: &WebhookFacts) -> Result<Webhook, Refusal> {
        let known = || self.office.shell.live.read().get(&facts.project, &facts.name).cloned();
        if let Some(webhook) = known() {
            return Ok(webhook);
        }
        self.office.shell.caught_up().await?;
        let missing = || refused(WebhookRefusal::NotFound { project: facts.project.clone(), name: facts.name.clone() });
        known().ok_or_else(missing)
    }

    async fn journal(&self, project: &ProjectName, name: &WebhookName, webhook: &Webhook) -> Result<Journal, Refusal> {
        let kept = self.office.journals.load(project, name).await;
        kept.map(|journal| journal.fitting(webhook)).map_err(|error| Refusal::new(&reason::STORE_AWAY, error))
    }

    /// Posts a test event once.
    async fn test(&self, asked: &Asked<'_>) -> Result<v1::TestWebhookResponse, Refusal> {
        let busy = || Refusal::new(&reason::TOO_MANY_REQUESTS, format!("{TESTS_MAX} webhooks are tested already"));
        let _running = self.tests.try_acquire().map_err(|_| busy())?;
        let webhook = self.find(&asked.facts).await?;
        let WebhookFacts { project, name, .. } = &asked.facts;
        let now = self.office.clock.now();
        let id = footplate_clock::event_id();
        let payload = serde_json::json!({"project": project, "webhook": name, "text": "a test: nothing happened"});
        let headers = [
            (header::SPEC_VERSION, "1.0".to_owned()),
            (header::ID, id.to_string()),
            (header::TYPE, TEST_TYPE.to_owned()),
            (header::SOURCE, "tracker".to_owned()),
            (header::SUBJECT, format!("webhook/{name}")),
            (header::TIME, now.to_string()),
            (header::ACTOR, asked.actor.to_string()),
        ];
        let stored = Stored {
            // It has no place in the ledger.
            sequence: 0,
            subject: asked.subject().to_string(),
            headers: headers.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            payload: payload.to_string().into(),
            recorded_at: now,
        };
        let outcome = match self.office.secret_of(project, name, &webhook) {
            Ok(secret) => {
                let parcel = parcel(&stored, &secret, id, 1, now.as_millis().div_euclid(1_000));
                self.office.dialer.post(&webhook.url, parcel).await
            }
            Err(why) => Outcome::unsent(why),
        };
        Ok(v1::TestWebhookResponse {
            delivered: outcome.error.is_none(),
            status: outcome.status.into(),
            took_ms: u32::try_from(outcome.took.as_millis()).unwrap_or(u32::MAX),
            error: outcome.error.unwrap_or_default(),
            body: outcome.body,
            id: id.to_string(),
        })
    }
}

/// The event that a repeated request would bring: the one that is there, where the command says the same.
fn same(command: &WebhookCommand, known: Event) -> Event {
    match (command, known) {
        (WebhookCommand::Replay(from), Event::WebhookReplayed(mut fact)) => {
            fact.from = *from;
            fact.into()
        }
        (WebhookCommand::Resume(reason), Event::WebhookResumed(mut fact)) => {
            fact.reason.clone_from(reason);
            fact.into()
        }
        (WebhookCommand::Delete(reason), Event::WebhookDeleted(mut fact)) => {
            fact.reason.clone_from(reason);
            fact.into()
        }
        (_, known) => known,
    }
}

fn name_of(text: &str) -> Result<WebhookName, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no webhook is named").field("name"));
    }
    Ok(WebhookName::parse(text).map_err(|invalid| invalid.of("name"))?)
}

fn unfit_url(unfit: &Unfit, url: &str) -> Refusal {
    let told = unfit.to_string();
    match unfit {
        Unfit::Form(_) => Refusal::new(&reason::INVALID_FIELD, format!("url: {told}"))
            .field("url")
            .value(url)
            .allowed("http://host/path or https://host/path, without a user and a fragment"),
        Unfit::Unknown(_) => {
            Refusal::new(&reason::INVALID_FIELD, format!("url: {told}")).field("url").value(url).allowed("a host with an address")
        }
        Unfit::Denied(_) => Refusal::new(&reason::WEBHOOK_ADDRESS_DENIED, told).field("url").value(url),
    }
}

fn refused(refusal: WebhookRefusal) -> Refusal {
    let told = refusal.to_string();
    match refusal {
        WebhookRefusal::NotFound { name, .. } => Refusal::new(&reason::WEBHOOK_NOT_FOUND, told).field("name").value(name),
        WebhookRefusal::Exists { name, .. } => Refusal::new(&reason::ID_TAKEN, told).field("name").value(name),
        WebhookRefusal::TooMany { .. } => Refusal::new(&reason::LIMIT_REACHED, told),
        WebhookRefusal::Invalid(invalid) => invalid.into(),
    }
}

fn shown(project: &ProjectName, name: &WebhookName, webhook: &Webhook, journal: &Journal) -> v1::Webhook {
    let failing = journal.failing.as_ref();
    let (state, reason, at) = match (&webhook.paused, failing) {
        (Some(pause), _) => ("paused", pause.reason.clone(), pause.sequence),
        (None, Some(failing)) => ("failing", failing.error.clone(), failing.sequence),
        (None, None) => ("sending", String::new(), 0),
    };
    v1::Webhook {
        project: project.to_string(),
        name: name.to_string(),
        url: webhook.url.clone(),
        types: webhook.types.clone(),
        state: state.to_owned(),
        reason,
        from_sequence: webhook.from,
        delivered_sequence: journal.delivered,
        failing_sequence: at,
        failures: failing.map_or(0, |failing| failing.failures),
        next_try_at: failing.filter(|_| webhook.paused.is_none()).map(|failing| failing.next_try.to_string()).unwrap_or_default(),
        created_at: webhook.created_at.to_string(),
        created_by: webhook.created_by.to_string(),
    }
}

fn delivery(entry: &Entry) -> v1::Delivery {
    v1::Delivery {
        sequence: entry.sequence,
        r#type: entry.event_type.clone(),
        attempt: entry.attempt,
        at: entry.at.to_string(),
        status: entry.status.into(),
        took_ms: entry.took_ms,
        error: entry.error.clone().unwrap_or_default(),
        id: entry.delivery.to_string(),
    }
}

fn written(sequence: u64) -> Answer<v1::WriteResponse> {
    Ok(Response::new(v1::WriteResponse { sequence }))
}

#[tonic::async_trait]
impl WebhookService for Desk {
    async fn create_webhook(&self, request: Request<v1::CreateWebhookRequest>) -> Answer<v1::CreateWebhookResponse> {
        let message = request.get_ref();
        let asked = Self::asked(&request, &message.project, &message.name, &message.request_id)?;
        Ok(Response::new(self.create(&asked, message).await?))
    }

    async fn list_webhooks(&self, request: Request<v1::ListWebhooksRequest>) -> Answer<v1::ListWebhooksResponse> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        self.office.shell.at_least(message.at_least).await?;
        let known: Vec<(WebhookName, Webhook)> =
            self.office.shell.live.read().of(&project).map(|(name, webhook)| (name.clone(), webhook.clone())).collect();
        let mut webhooks = Vec::with_capacity(known.len());
        for (name, webhook) in known {
            let journal = self.journal(&project, &name, &webhook).await?;
            webhooks.push(shown(&project, &name, &webhook, &journal));
        }
        Ok(Response::new(v1::ListWebhooksResponse { webhooks }))
    }

    async fn get_webhook(&self, request: Request<v1::GetWebhookRequest>) -> Answer<v1::GetWebhookResponse> {
        let message = request.get_ref();
        let asked = Self::asked(&request, &message.project, &message.name, "")?;
        self.office.shell.at_least(message.at_least).await?;
        let webhook = self.find(&asked.facts).await?;
        let WebhookFacts { project, name, .. } = &asked.facts;
        let journal = self.journal(project, name, &webhook).await?;
        let most = if message.deliveries == 0 { DELIVERIES_DEFAULT } else { (message.deliveries as usize).min(ENTRIES_MAX) };
        let deliveries = journal.entries.iter().rev().take(most).map(delivery).collect();
        Ok(Response::new(v1::GetWebhookResponse { webhook: Some(shown(project, name, &webhook, &journal)), deliveries }))
    }

    async fn delete_webhook(&self, request: Request<v1::DeleteWebhookRequest>) -> Answer<v1::WriteResponse> {
        let message = request.get_ref();
        let asked = Self::asked(&request, &message.project, &message.name, &message.request_id)?;
        let sequence = self.change(&asked, "delete", WebhookCommand::Delete(cut_text(&message.reason))).await?;
        // Who sends for it does the same at its end; one that was paused has no sender.
        if self.office.shell.live.read().get(&asked.facts.project, &asked.facts.name).is_none() {
            self.office.journals.remove(&asked.facts.project, &asked.facts.name).await;
        }
        written(sequence)
    }

    async fn test_webhook(&self, request: Request<v1::TestWebhookRequest>) -> Answer<v1::TestWebhookResponse> {
        let message = request.get_ref();
        let asked = Self::asked(&request, &message.project, &message.name, "")?;
        Ok(Response::new(self.test(&asked).await?))
    }

    async fn replay_webhook(&self, request: Request<v1::ReplayWebhookRequest>) -> Answer<v1::WriteResponse> {
        let message = request.get_ref();
        let asked = Self::asked(&request, &message.project, &message.name, &message.request_id)?;
        written(self.change(&asked, "replay", WebhookCommand::Replay(message.from_sequence)).await?)
    }

    async fn resume_webhook(&self, request: Request<v1::ResumeWebhookRequest>) -> Answer<v1::WriteResponse> {
        let message = request.get_ref();
        let asked = Self::asked(&request, &message.project, &message.name, &message.request_id)?;
        written(self.change(&asked, "resume", WebhookCommand::Resume(cut_text(&message.reason))).await?)
    }
}
