//! Webhooks: which there are, where each begins, whether it sends; and when a delivery that failed is tried again.
//!
//! How far each has come is none of this: that is kept by who sends.

use footplate_es::{Decide, Evolve, Project};
use footplate_events::facts::{WebhookCreated, WebhookDeleted, WebhookPaused, WebhookReplayed, WebhookResumed};
use footplate_events::{Event, Recorded, Subject};
use footplate_types::{Digest, EventId, Invalid, Millis, PrincipalId, ProjectName, Timestamp, WebhookName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Webhooks of one project.
pub const OF_PROJECT_MAX: usize = 20;
/// Webhooks of the whole platform: each that sends is a reader of the ledger, of which the broker bears about a thousand in all.
pub const OF_PLATFORM_MAX: usize = 200;
/// Beginnings of types that one webhook may name.
pub const TYPES_MAX: usize = 20;
/// Characters of such a beginning.
pub const TYPE_LENGTH_MAX: usize = 100;
/// Characters of a URL.
pub const URL_LENGTH_MAX: usize = 2_000;
/// What every type of event begins with.
const TYPE_ROOT: &str = "footplate.";

/// One webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// The event that made it: what its secret is derived from.
    pub id: EventId,
    /// Where to.
    pub url: String,
    /// What the types of the wanted events begin with; every event when empty.
    pub types: Vec<String>,
    /// SHA-256 of the secret.
    pub secret: Digest,
    /// When it was made, by the broker's clock.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: PrincipalId,
    /// The first ledger sequence that is wanted since it was made, or replayed.
    pub from: u64,
    /// The sequence of the event that said so: what was kept of another round says nothing about this one.
    pub round: u64,
    /// Set while it sends nothing.
    pub paused: Option<Pause>,
    /// The ledger sequence of its last event.
    pub sequence: u64,
}

/// Why a webhook sends nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The event that was not taken.
    pub sequence: u64,
    /// Why.
    pub reason: String,
    /// Since when.
    pub at: Timestamp,
}

impl Webhook {
    /// Whether events of this type are wanted.
    pub fn wants(&self, event_type: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|prefix| event_type.starts_with(prefix))
    }
}

/// All webhooks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhooks {
    known: BTreeMap<ProjectName, BTreeMap<WebhookName, Webhook>>,
}

/// What is asked of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookCommand {
    /// Make it.
    Create(WebhookCreated),
    /// Send again from there on.
    Replay(u64),
    /// Send nothing more; what its sender says of the webhook as it was at this sequence.
    Pause {
        /// The webhook's last event when the sender decided so.
        seen: u64,
        /// The event that was not taken.
        sequence: u64,
        /// Why.
        reason: String,
    },
    /// Send again.
    Resume(String),
    /// Take it away.
    Delete(String),
}

/// A "no".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookRefusal {
    /// There is none of this name.
    #[error("project {project} has no webhook {name}")]
    NotFound {
        /// Where.
        project: ProjectName,
        /// Which.
        name: WebhookName,
    },
    /// There is one already.
    #[error("project {project} has a webhook {name} already")]
    Exists {
        /// Where.
        project: ProjectName,
        /// Which.
        name: WebhookName,
    },
    /// As many as there may be.
    #[error("there are {most} webhooks {of} already, the most there may be")]
    TooMany {
        /// Of what.
        of: String,
        /// How many.
        most: usize,
    },
    /// A field is not allowed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Webhooks {
    /// A webhook.
    pub fn get(&self, project: &ProjectName, name: &WebhookName) -> Option<&Webhook> {
        self.known.get(project)?.get(name)
    }

    /// Those of a project, by name.
    pub fn of(&self, project: &ProjectName) -> impl Iterator<Item = (&WebhookName, &Webhook)> {
        self.known.get(project).into_iter().flatten()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&ProjectName, &WebhookName, &Webhook)> {
        self.known.iter().flat_map(|(project, of)| of.iter().map(move |(name, webhook)| (project, name, webhook)))
    }

    fn create(&self, project: &ProjectName, name: &WebhookName, fact: WebhookCreated) -> Result<Event, WebhookRefusal> {
        if self.get(project, name).is_some() {
            return Err(WebhookRefusal::Exists { project: project.clone(), name: name.clone() });
        }
        check_types(&fact.types)?;
        if fact.url.chars().count() > URL_LENGTH_MAX {
            let long = format!("{} characters", fact.url.chars().count());
            return Err(Invalid::new("url", long, format!("at most {URL_LENGTH_MAX} characters")).into());
        }
        bounded(self.of(project).count(), || format!("of project {project}"), OF_PROJECT_MAX)?;
        bounded(self.all().count(), || "of the platform".to_owned(), OF_PLATFORM_MAX)?;
        Ok(fact.into())
    }
}

fn bounded(count: usize, of: impl Fn() -> String, most: usize) -> Result<(), WebhookRefusal> {
    if count < most { Ok(()) } else { Err(WebhookRefusal::TooMany { of: of(), most }) }
}

fn check_types(types: &[String]) -> Result<(), Invalid> {
    if types.len() > TYPES_MAX {
        return Err(Invalid::new("types", format!("{} of them", types.len()), format!("at most {TYPES_MAX}")));
    }
    let allowed =
        || format!("the beginning of a type, such as footplate.model. or footplate.run.sealed, of at most {TYPE_LENGTH_MAX} characters");
    let is_one = |text: &str| {
        let written = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
        text.starts_with(TYPE_ROOT) && text.len() <= TYPE_LENGTH_MAX && written
    };
    types.iter().find(|text| !is_one(text)).map_or(Ok(()), |text| Err(Invalid::new("types", text.as_str(), allowed())))
}

/// Which webhook a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookFacts {
    /// Its project.
    pub project: ProjectName,
    /// Its name.
    pub name: WebhookName,
    /// The last sequence of the ledger that the view has read.
    pub end: u64,
}

impl WebhookFacts {
    /// Whether a webhook may begin there: what is beyond the next event would be passed over unsent when it comes.
    fn check_from(&self, from: u64) -> Result<(), Invalid> {
        let most = self.end.saturating_add(1);
        if (1..=most).contains(&from) {
            Ok(())
        } else {
            Err(Invalid::new("from_sequence", from.to_string(), format!("a ledger sequence, 1 to {most}")))
        }
    }
}

impl Decide for Webhooks {
    type Command = WebhookCommand;
    type Facts = WebhookFacts;
    type Refusal = WebhookRefusal;

    fn decide(&self, command: WebhookCommand, facts: &WebhookFacts) -> Result<Vec<Event>, WebhookRefusal> {
        let WebhookFacts { project, name, .. } = facts;
        let known = || self.get(project, name).ok_or_else(|| WebhookRefusal::NotFound { project: project.clone(), name: name.clone() });
        let event = match command {
            WebhookCommand::Create(fact) => {
                facts.check_from(fact.from)?;
                Some(self.create(project, name, fact)?)
            }
            WebhookCommand::Replay(from) => {
                facts.check_from(from)?;
                known().map(|_| Some(WebhookReplayed { from }.into()))?
            }
            // Whoever was told otherwise meanwhile (resumed, replayed, deleted) is not paused for what was before.
            WebhookCommand::Pause { seen, sequence, reason } => self
                .get(project, name)
                .filter(|webhook| webhook.paused.is_none() && webhook.sequence == seen)
                .map(|_| WebhookPaused { sequence, reason }.into()),
            WebhookCommand::Resume(reason) => known()?.paused.as_ref().map(|_| WebhookResumed { reason }.into()),
            WebhookCommand::Delete(reason) => known().map(|_| Some(WebhookDeleted { reason }.into()))?,
        };
        Ok(event.into_iter().collect())
    }
}

impl Evolve for Webhooks {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject: &Subject = &recorded.envelope.subject;
        let Some(name) = subject.webhook_name() else { return };
        let sequence = recorded.sequence;
        let of = self.known.entry(subject.project.clone()).or_default();
        match &recorded.envelope.event {
            Event::WebhookCreated(fact) => {
                let webhook = Webhook {
                    id: recorded.envelope.id,
                    url: fact.url.clone(),
                    types: fact.types.clone(),
                    secret: fact.secret,
                    created_at: recorded.recorded_at,
                    created_by: recorded.envelope.actor.clone(),
                    from: fact.from,
                    round: sequence,
                    paused: None,
                    sequence,
                };
                of.insert(name, webhook);
            }
            Event::WebhookDeleted(_) => {
                of.remove(&name);
            }
            event => {
                if let Some(webhook) = of.get_mut(&name) {
                    webhook.changed(event, recorded);
                }
            }
        }
        if of.is_empty() {
            self.known.remove(&subject.project);
        }
    }
}

impl Webhook {
    fn changed(&mut self, event: &Event, recorded: &Recorded) {
        match event {
            Event::WebhookReplayed(fact) => {
                self.from = fact.from;
                self.round = recorded.sequence;
                // Whoever says from where on it is to send wants it to.
                self.paused = None;
            }
            Event::WebhookPaused(fact) => {
                self.paused = Some(Pause { sequence: fact.sequence, reason: fact.reason.clone(), at: recorded.recorded_at });
            }
            Event::WebhookResumed(_) => self.paused = None,
            _ => return,
        }
        self.sequence = recorded.sequence;
    }
}

impl Project for Webhooks {
    fn fingerprint(&self) -> String {
        let mut text = String::new();
        for (project, name, webhook) in self.all() {
            // Writing into a text cannot fail.
            let _ = writeln!(text, "{project}/{name} {webhook:?}");
        }
        text
    }
}

/// When a delivery that failed is tried again, and when no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The pause after the first failure; doubled after each.
    pub first: Millis,
    /// The longest pause.
    pub most: Millis,
    /// How long one event is tried.
    pub give_up: Millis,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another try, after this long.
    Again(Millis),
    /// None.
    GiveUp,
}

impl RetryPolicy {
    /// What follows the failure number `failures` (from 1) of an event that fails since `failing`; `draw` is any number, drawn anew each time.
    /// The pause is from half to the whole of what the doubling gives, so that many that failed together do not come back together.
    pub fn after(&self, failures: u32, failing: Millis, draw: u32) -> Next {
        if failing.0 >= self.give_up.0 {
            return Next::GiveUp;
        }
        let doubled = self.first.0.saturating_mul(1 << failures.saturating_sub(1).min(32)).min(self.most.0);
        let half = doubled / 2;
        let pause = half + (doubled - half) * u64::from(draw) / u64::from(u32::MAX);
        // The last try stands at the end of the time, not beyond it.
        Next::Again(Millis(pause.min(self.give_up.0 - failing.0).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_es::harness::Story;

    fn facts(name: &str) -> WebhookFacts {
        WebhookFacts { project: ProjectName::parse("vision").unwrap(), name: WebhookName::parse(name).unwrap(), end: 1_000 }
    }

    fn made(types: &[&str]) -> WebhookCreated {
        let types = types.iter().map(|text| (*text).to_owned()).collect();
        WebhookCreated { url: "https://example.org/".to_owned(), types, from: 5, secret: Digest::of(b"s") }
    }

    /// Decides on what the story tells, and tells on.
    fn ask(story: &mut Story, name: &str, command: WebhookCommand) -> Result<usize, WebhookRefusal> {
        let facts = facts(name);
        let events = story.folded::<Webhooks>().decide(command, &facts)?;
        let count = events.len();
        for event in events {
            story.record(Subject::webhook(&facts.project, &facts.name), event);
        }
        Ok(count)
    }

    fn now(story: &Story, name: &str) -> Webhook {
        let facts = facts(name);
        story.folded::<Webhooks>().get(&facts.project, &facts.name).unwrap().clone()
    }

    #[test]
    fn a_webhook_is_made_once_paused_resumed_replayed_deleted_and_made_anew() {
        let mut story = Story::new();
        let pause = |seen| WebhookCommand::Pause { seen, sequence: 7, reason: "500".to_owned() };
        assert_eq!(ask(&mut story, "ci", WebhookCommand::Create(made(&[]))), Ok(1));
        assert!(matches!(ask(&mut story, "ci", WebhookCommand::Create(made(&[]))), Err(WebhookRefusal::Exists { .. })));
        assert_eq!(ask(&mut story, "ci", WebhookCommand::Resume(String::new())), Ok(0), "it sends already");
        assert_eq!(ask(&mut story, "ci", pause(1)), Ok(1));
        assert_eq!(ask(&mut story, "ci", pause(1)), Ok(0), "it is paused already");
        assert_eq!(now(&story, "ci").paused.map(|pause| pause.sequence), Some(7));
        assert_eq!(ask(&mut story, "ci", WebhookCommand::Resume(String::new())), Ok(1));
        assert_eq!(ask(&mut story, "ci", pause(1)), Ok(0), "what a sender saw before the resume pauses nothing");
        assert!(matches!(ask(&mut story, "ci", WebhookCommand::Replay(0)), Err(WebhookRefusal::Invalid(_))));
        assert_eq!(ask(&mut story, "ci", WebhookCommand::Replay(2)), Ok(1));
        let replayed = now(&story, "ci");
        assert_eq!((replayed.from, replayed.round, replayed.sequence), (2, 4, 4));
        let first = replayed.id;
        assert_eq!(ask(&mut story, "ci", WebhookCommand::Delete(String::new())), Ok(1));
        assert!(matches!(ask(&mut story, "ci", WebhookCommand::Delete(String::new())), Err(WebhookRefusal::NotFound { .. })));
        assert_eq!(story.folded::<Webhooks>(), Webhooks::default());
        assert_eq!(ask(&mut story, "ci", WebhookCommand::Create(made(&[]))), Ok(1));
        assert_ne!(now(&story, "ci").id, first, "another webhook, with another secret");
    }

    #[test]
    fn there_are_only_so_many_of_a_project_and_only_of_types_that_can_be() {
        let mut story = Story::new();
        for n in 0..OF_PROJECT_MAX {
            ask(&mut story, &format!("hook-{n}"), WebhookCommand::Create(made(&["footplate.run."]))).unwrap();
        }
        let refused = ask(&mut story, "one-more", WebhookCommand::Create(made(&[]))).unwrap_err();
        assert_eq!(refused.to_string(), "there are 20 webhooks of project vision already, the most there may be");
        let mut story = Story::new();
        let long = format!("footplate.{}", "x".repeat(TYPE_LENGTH_MAX));
        for wrong in ["run.", "footplate", "footplate.Run", "footplate.run *", &long] {
            let refused = ask(&mut story, "ci", WebhookCommand::Create(made(&[wrong]))).unwrap_err();
            assert!(matches!(&refused, WebhookRefusal::Invalid(invalid) if invalid.field == "types"), "{wrong}: {refused}");
        }
        let many = vec!["footplate.run."; TYPES_MAX + 1];
        assert!(ask(&mut story, "ci", WebhookCommand::Create(made(&many))).is_err());
    }

    #[test]
    fn types_are_wanted_by_their_beginning() {
        let mut story = Story::new();
        ask(&mut story, "ci", WebhookCommand::Create(made(&["footplate.model.", "footplate.run.sealed"]))).unwrap();
        let webhook = now(&story, "ci");
        let wanted =
            ["footplate.model.promoted.v1", "footplate.run.sealed.v1", "footplate.model-version.approved.v1", "footplate.run.created.v1"];
        assert_eq!(wanted.map(|text| webhook.wants(text)), [true, true, false, false]);
    }

    #[test]
    fn pauses_double_up_to_the_longest_are_spread_and_end() {
        let policy = RetryPolicy { first: Millis(1_000), most: Millis(60_000), give_up: Millis(3_600_000) };
        let whole = |failures| policy.after(failures, Millis(0), u32::MAX);
        let seconds = [1, 2, 4, 8, 16, 32, 60, 60];
        assert_eq!((1..=8).map(whole).collect::<Vec<_>>(), seconds.map(|s| Next::Again(Millis(s * 1_000))));
        assert_eq!(whole(u32::MAX), Next::Again(Millis(60_000)));
        assert_eq!(policy.after(3, Millis(0), 0), Next::Again(Millis(2_000)));
        assert_eq!(policy.after(9, Millis(3_599_000), u32::MAX), Next::Again(Millis(1_000)));
        assert_eq!(policy.after(9, Millis(3_600_000), 0), Next::GiveUp);
    }
}
