//! What has happened to a job, told from its own events.

use super::show::reason_words;
use crate::measures::{cause_word, stop_word};
use footplate_events::facts::{MemberPlacement, Outcome, RootCause};
use footplate_events::{Event, Recorded};

/// How the job ended, in one sentence: its message where there is one, else its cause. `None` when it has not.
pub(super) fn how_it_ended(events: &[Recorded]) -> Option<String> {
    events.iter().find_map(|recorded| match &recorded.envelope.event {
        Event::JobEnded(fact) => Some(match (outcome_word(fact.outcome), cause_word(fact.cause)) {
            (how, _) if !fact.message.is_empty() => format!("{how}: {}", fact.message),
            ("succeeded", _) => "succeeded".to_owned(),
            (how, cause) if how == cause => format!("{how}{}", root(fact.root.as_ref())),
            (how, cause) => format!("{how}: {}{}", cause.replace('_', " "), root(fact.root.as_ref())),
        }),
        _ => None,
    })
}

const fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
    }
}

/// One line an event, oldest first.
pub(super) fn history(events: &[Recorded]) -> Vec<String> {
    events.iter().map(|recorded| format!("{} {}", recorded.recorded_at, line(&recorded.envelope.event))).collect()
}

fn nodes(members: &[MemberPlacement]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<&str> = members.iter().take(SHOWN).map(|member| member.node.as_str()).collect();
    let more = members.len().saturating_sub(SHOWN);
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

fn root(root: Option<&RootCause>) -> String {
    root.map_or_else(String::new, |root| match root.rank {
        Some(rank) => format!(": rank {rank} on {}: {}", root.node, root.what),
        None => format!(": {}: {}", root.node, root.what),
    })
}

/// An event of a job, in words.
pub(super) fn line(event: &Event) -> String {
    match event {
        Event::JobSubmitted(fact) => format!("submitted to queue {} with priority {}", fact.spec.queue, fact.spec.priority),
        Event::JobWaiting(fact) => reason_words(&fact.reason),
        Event::JobDeadlineNeared(fact) => format!("has to start by {}: goes before others of its priority", fact.latest_start),
        Event::JobDeadlineMissed(fact) => format!("its deadline, {}, has passed", fact.deadline),
        Event::JobHeld(_) => "held".to_owned(),
        Event::JobReleased(_) => "released".to_owned(),
        Event::JobReprioritized(fact) => format!("priority set to {}", fact.priority),
        Event::JobRefused(fact) => format!("a request was refused: {}", fact.reason),
        Event::JobPlaced(fact) => format!("attempt {} placed on {}", fact.attempt, nodes(&fact.members)),
        Event::JobLaunched(fact) => format!("attempt {} launched", fact.attempt),
        Event::JobStopRequested(fact) => {
            let message = if fact.message.is_empty() { String::new() } else { format!(" ({})", fact.message) };
            format!("attempt {} is stopped: {}{message}", fact.attempt, stop_word(fact.cause))
        }
        Event::JobRequeued(fact) => {
            format!("attempt {} ended as {}{}; requeued", fact.attempt, cause_word(fact.cause), root(fact.root.as_ref()))
        }
        Event::JobEnded(fact) => {
            let how = outcome_word(fact.outcome);
            let message = if fact.message.is_empty() { String::new() } else { format!(" ({})", fact.message) };
            format!("{how}: {}{}{message}", cause_word(fact.cause), root(fact.root.as_ref()))
        }
        other => other.event_type().to_string(),
    }
}
