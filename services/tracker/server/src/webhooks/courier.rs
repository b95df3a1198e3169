//! One webhook's sender: reads its project's events in order and posts each until it is taken, one at a time.
//!
//! At least once: what it has delivered is written down after the delivery, so that a crash repeats and never skips.

use super::dial::{Dialer, Outcome, Parcel};
use super::journal::{Entry, Failing, Journal, Journals};
use super::sign::{Secret, WebhookKey};
use crate::figures::Figures;
use footplate_clock::{SharedClock, entropy};
use footplate_es::Decide as _;
use footplate_eventlog::{Landmark, Ledger, ReadError, Stored, StreamName, TailItem};
use footplate_events::{Subject, header};
use footplate_shell::{Shell, TRIES};
use footplate_tracker_core::{Next, RetryPolicy, Webhook, WebhookCommand, WebhookFacts, Webhooks};
use footplate_types::{EventId, Millis, PrincipalId, ProjectName, Timestamp, WebhookName};
use futures::StreamExt;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The longest time that something delivered is not written down.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// The longest time that it is not written down how much was passed over that is not wanted: after a crash it is only read once more.
const SAVE_PASSED_EVERY: Duration = Duration::from_secs(60);
/// Deliveries after which it is written down at once: what a crash repeats at most.
const SAVE_AFTER: u32 = 100;
/// The pause before what the object store or the broker did not take is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What all senders share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Office {
    pub shell: Shell<Webhooks>,
    pub ledger: Ledger,
    pub dialer: Dialer,
    pub journals: Journals,
    pub key: WebhookKey,
    pub retry: RetryPolicy,
    pub clock: SharedClock,
    pub figures: Figures,
}

impl Office {
    /// The secret that a webhook was made with; or why it cannot be had here.
    pub(super) fn secret_of(&self, project: &ProjectName, name: &WebhookName, webhook: &Webhook) -> Result<Secret, String> {
        let secret = self.key.secret(project, name, webhook.id);
        if secret.digest() == webhook.secret {
            return Ok(secret);
        }
        Err("this tracker has another webhook key (`webhooks.key`) than the one that the webhook was made under".to_owned())
    }
}

/// The sender of one webhook as it stands: whoever changes it has another sender begin.
pub(super) struct Courier {
    office: Office,
    project: ProjectName,
    name: WebhookName,
    webhook: Webhook,
    secret: Result<Secret, String>,
    journal: Journal,
    /// When the ledger was made: what tells it from another of its name.
    ledger_made: Timestamp,
    /// When what is not written down yet has to be; `None` when everything is.
    due: Option<Instant>,
    unsaved: u32,
}

/// Why a sender ends.
struct Stopped;

impl Courier {
    /// Sends until told to stop, or until the webhook is paused.
    pub(super) async fn run(office: Office, project: ProjectName, name: WebhookName, webhook: Webhook, stop: CancellationToken) {
        let secret = office.secret_of(&project, &name, &webhook);
        let Some(journal) = loaded(&office, &project, &name, &stop).await else { return };
        let mut journal = journal.fitting(&webhook);
        let Some((ledger_made, stands)) = standing(&office, &journal, &stop).await else { return };
        if !stands {
            tracing::warn!(%project, webhook = %name, from = webhook.from, "the ledger was put back from an older copy, or is another; a webhook sends again from its beginning");
            journal.begin_anew(&webhook);
        }
        let mut courier = Self { office, project, name, webhook, secret, journal, ledger_made, due: None, unsaved: 0 };
        while courier.read(&stop).await.is_ok() {}
        let stands =
            courier.office.shell.live.read().get(&courier.project, &courier.name).is_some_and(|known| known.id == courier.webhook.id);
        if !stands {
            courier.office.journals.remove(&courier.project, &courier.name).await;
        } else if courier.due.is_some() {
            courier.save().await;
        }
    }

    /// Reads and posts from where it stands until an event fails, or the reading ends. A reader that waits for a receiver would hold messages back
    /// that fill memory: it is let go, and another begins when the event is taken.
    async fn read(&mut self, stop: &CancellationToken) -> Result<(), Stopped> {
        let filter = Subject::filter(Some(&self.project), None);
        let mut items = self.office.ledger.broker().tail(StreamName::Ledger, vec![filter], self.journal.delivered + 1);
        loop {
            let due = self.due;
            let item = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Stopped),
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                    self.save().await;
                    continue;
                }
                item = items.next() => item,
            };
            match item {
                Some(TailItem::Position(sequence)) => self.passed(sequence),
                Some(TailItem::Message(stored)) if !self.webhook.wants(type_of(&stored)) => {
                    self.remember(&stored);
                    self.passed(stored.sequence);
                }
                Some(TailItem::Message(stored)) => {
                    self.remember(&stored);
                    let outcome = self.attempt(&stored, stop).await?;
                    if outcome.error.is_none() {
                        self.delivered(stored.sequence).await;
                    } else {
                        drop(items);
                        return self.insist(&stored, outcome, stop).await;
                    }
                }
                None => return pause(AGAIN, stop).await,
            }
        }
    }

    /// Tries an event that has failed again and again until it is taken, or given up: then the webhook is paused.
    async fn insist(&mut self, stored: &Stored, mut outcome: Outcome, stop: &CancellationToken) -> Result<(), Stopped> {
        // Elapsed time, with what former senders counted: a clock that is set must not give a webhook up.
        let (began, before) = (self.office.clock.elapsed(), self.journal.failing.as_ref().map_or(0, |failing| failing.for_ms));
        while outcome.error.is_some() {
            if outcome.is_gone() {
                let told = "the receiver says that it is gone (410)".to_owned();
                return self.give_up(stored.sequence, told, stop).await;
            }
            let failing_for = before + u64::try_from(self.office.clock.elapsed().saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
            let Some(failing) = self.journal.failing.as_mut() else { break };
            failing.for_ms = failing_for;
            let draw = u32::from_be_bytes(entropy());
            let wait = match self.office.retry.after(failing.failures, Millis(failing_for), draw) {
                Next::Again(wait) => wait,
                Next::GiveUp => {
                    let told = format!("not taken for {}, tried {} times: {}", Millis(failing_for), failing.failures, failing.error);
                    return self.give_up(stored.sequence, told, stop).await;
                }
            };
            failing.next_try = self.office.clock.now().plus_millis(wait.0);
            self.save().await;
            pause(Duration::from_millis(wait.0), stop).await?;
            outcome = self.attempt(stored, stop).await?;
        }
        self.delivered(stored.sequence).await;
        Ok(())
    }

    /// Posts an event once, and writes down what came of it.
    async fn attempt(&mut self, stored: &Stored, stop: &CancellationToken) -> Result<Outcome, Stopped> {
        let known = self.journal.failing.take().filter(|failing| failing.sequence == stored.sequence).unwrap_or_default();
        let attempt = known.failures.saturating_add(1);
        let delivery = self.delivery(stored.sequence);
        let at = self.office.clock.now();
        let outcome = if let Ok(secret) = &self.secret {
            let parcel = parcel(stored, secret, delivery, attempt, at.as_millis().div_euclid(1_000));
            tokio::select! {
                () = stop.cancelled() => {
                    // Whether it was taken is not known: whoever sends next does so again.
                    self.journal.failing = (known.failures > 0).then_some(known);
                    return Err(Stopped);
                }
                outcome = self.office.dialer.post(&self.webhook.url, parcel) => outcome,
            }
        } else {
            Outcome::unsent(self.secret.as_ref().err().cloned().unwrap_or_default())
        };
        let took_ms = u32::try_from(outcome.took.as_millis()).unwrap_or(u32::MAX);
        let (sequence, event_type) = (stored.sequence, type_of(stored).to_owned());
        let (status, error) = (outcome.status, outcome.error.clone());
        let figures = &self.office.figures;
        if let Some(error) = &error {
            figures.webhook_failures.inc();
            tracing::warn!(project = %self.project, webhook = %self.name, sequence, attempt, error, "an event was not taken by a webhook");
            let failing = Failing { sequence, seen: self.webhook.sequence, failures: attempt, error: error.clone(), ..known };
            self.journal.failing = Some(failing);
        } else {
            figures.webhook_deliveries.inc();
        }
        if outcome.denied {
            figures.webhook_denied.inc();
        }
        self.journal.note(Entry { sequence, event_type, attempt, at, status, took_ms, error, delivery });
        self.save_within(SAVE_EVERY);
        Ok(outcome)
    }

    /// What tells a delivery from every other, and is the same for each try of it.
    fn delivery(&self, sequence: u64) -> EventId {
        EventId::derived(&[b"delivery", self.webhook.id.as_bytes(), &self.webhook.round.to_be_bytes(), &sequence.to_be_bytes()])
    }

    /// Nothing that is wanted stands before.
    /// Keeps which event it has come to: a ledger that has another in its place is not the one that it read.
    fn remember(&mut self, stored: &Stored) {
        let (sequence, recorded) = (stored.sequence, Some(stored.recorded_at));
        self.journal.landmark = Some(Landmark { ledger: self.ledger_made, sequence, recorded });
    }

    fn passed(&mut self, sequence: u64) {
        if sequence > self.journal.delivered {
            self.journal.delivered = sequence;
            self.save_within(SAVE_PASSED_EVERY);
        }
    }

    fn save_within(&mut self, within: Duration) {
        let latest = Instant::now() + within;
        self.due = Some(self.due.map_or(latest, |due| due.min(latest)));
    }

    async fn delivered(&mut self, sequence: u64) {
        self.journal.failing = None;
        self.passed(sequence);
        self.save_within(SAVE_EVERY);
        self.unsaved += 1;
        if self.unsaved >= SAVE_AFTER {
            self.save().await;
        }
    }

    /// Writes down how far it has come. What could not be written is written later: it costs repeats after a crash.
    async fn save(&mut self) {
        match self.office.journals.save(&self.project, &self.name, &self.journal).await {
            Ok(()) => {
                self.due = None;
                self.unsaved = 0;
            }
            Err(error) => {
                tracing::warn!(project = %self.project, webhook = %self.name, error, "how far a webhook has come cannot be written down");
                self.due = Some(Instant::now() + SAVE_EVERY);
            }
        }
    }

    /// Pauses the webhook with a reason, as a fact of the ledger; asks again until the broker answers.
    async fn give_up(&mut self, sequence: u64, reason: String, stop: &CancellationToken) -> Result<(), Stopped> {
        self.save().await;
        loop {
            match paused(&self.office.shell, &self.project, &self.name, self.webhook.sequence, (sequence, &reason)).await {
                Ok(()) => {
                    tracing::error!(project = %self.project, webhook = %self.name, sequence, reason, "a webhook is paused: resume it when it is mended");
                    self.office.figures.webhooks_paused.inc();
                    return Err(Stopped);
                }
                Err(refusal) => tracing::warn!(webhook = %self.name, %refusal, "that a webhook is paused is not written yet"),
            }
            pause(AGAIN, stop).await?;
        }
    }
}

/// Appends that a webhook is paused, unless something came to it since.
async fn paused(
    shell: &Shell<Webhooks>,
    project: &ProjectName,
    name: &WebhookName,
    seen: u64,
    (sequence, reason): (u64, &str),
) -> Result<(), footplate_api::Refusal> {
    let subject = Subject::webhook(project, name);
    let who = PrincipalId::parse("service:tracker").expect("a literal that is valid");
    let id = EventId::derived(&[b"webhook paused", subject.to_string().as_bytes(), &seen.to_be_bytes()]);
    let facts = WebhookFacts { project: project.clone(), name: name.clone(), end: seen };
    for _ in 0..TRIES {
        let last = shell.each_fact(&subject, |_| {}).await?;
        shell.caught_up().await?;
        let command = WebhookCommand::Pause { seen, sequence, reason: reason.to_owned() };
        let decided = shell.live.read().decide(command, &facts).unwrap_or_default();
        let Some(event) = decided.into_iter().next() else { return Ok(()) };
        if shell.append(shell.envelope(id, subject.clone(), event, who.clone()), last).await?.is_some() {
            return Ok(());
        }
    }
    Err(footplate_api::Refusal::new(&footplate_api::reason::CHANGED_MEANWHILE, format!("{subject} was changed by others at the same time")))
}

async fn loaded(office: &Office, project: &ProjectName, name: &WebhookName, stop: &CancellationToken) -> Option<Journal> {
    loop {
        match office.journals.load(project, name).await {
            Ok(journal) => return Some(journal),
            Err(error) => tracing::warn!(%project, webhook = %name, error, "how far a webhook has come cannot be read yet"),
        }
        pause(AGAIN, stop).await.ok()?;
    }
}

/// When the ledger was made, and whether it is the one that a journal was kept of; asks again until the broker answers.
async fn standing(office: &Office, journal: &Journal, stop: &CancellationToken) -> Option<(Timestamp, bool)> {
    loop {
        let looked = async {
            let bounds = office.ledger.broker().bounds(StreamName::Ledger).await?;
            let misfit = match &journal.landmark {
                Some(landmark) => landmark.misfit(&office.ledger, &bounds).await?.is_some(),
                None => false,
            };
            // Beyond the next event there is nothing that could have been delivered.
            Ok::<_, ReadError>((bounds.created, !misfit && journal.delivered <= bounds.last))
        };
        match looked.await {
            Ok(standing) => return Some(standing),
            Err(error) => tracing::warn!(%error, "whether webhooks go on where they were is not known yet"),
        }
        pause(AGAIN, stop).await.ok()?;
    }
}

async fn pause(wait: Duration, stop: &CancellationToken) -> Result<(), Stopped> {
    tokio::select! {
        () = stop.cancelled() => Err(Stopped),
        () = sleep(wait) => Ok(()),
    }
}

fn type_of(stored: &Stored) -> &str {
    header_of(stored, header::TYPE).unwrap_or_default()
}

fn header_of<'a>(stored: &'a Stored, name: &str) -> Option<&'a str> {
    stored.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// An event as it is posted: the envelope in the headers as it stands in the ledger, the payload as the body, byte for byte.
pub(super) fn parcel(stored: &Stored, secret: &Secret, delivery: EventId, attempt: u32, seconds: i64) -> Parcel {
    // The payload's form is the content type, as CloudEvents' HTTP binding has it.
    let carried = |name: &str| (name.starts_with("ce-") && name != header::CONTENT_TYPE) || name == header::TRACE;
    let own = stored.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).filter(|(name, _)| carried(name));
    let mut headers: Vec<(String, String)> = own.collect();
    for (name, value) in [
        ("content-type", "application/json".to_owned()),
        ("footplate-ledger-subject", stored.subject.clone()),
        ("footplate-sequence", stored.sequence.to_string()),
        ("footplate-delivery", delivery.to_string()),
        ("footplate-attempt", attempt.to_string()),
        ("footplate-signature", secret.signature(seconds, &stored.payload)),
    ] {
        headers.push((name.to_owned(), value));
    }
    Parcel { headers, body: stored.payload.clone() }
}
