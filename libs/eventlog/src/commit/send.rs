//! Sending appends and finding out what became of them.

use super::{Append, Fate};
use crate::ledger::AppendError;
use crate::port::{Broker, Expect, PublishError, ReadError, StreamName};
use footplate_events::header;
use futures::{StreamExt, stream};

/// How often a refused batch is sent again without its stale members before they go singly.
const BATCH_TRIES: u32 = 3;
/// Reads of last sequences under way at once, after a batch was refused.
const READS_MAX: usize = 32;
/// Events that one look for an id reads at a time.
const LOOK_PAGE: usize = 200;

/// Appends with what became of them, and whether all were stored at the first try.
type Outcome = (Vec<(Append, Fate)>, bool);

/// Sends appends one by one (the writer gives one).
pub(super) async fn single(broker: &dyn Broker, appends: Vec<Append>) -> Outcome {
    let mut fates = Vec::with_capacity(appends.len());
    let mut clean = true;
    for append in appends {
        let published = broker.publish(StreamName::Ledger, append.message.clone(), Expect::Subject(append.expected)).await;
        clean &= published.is_ok();
        let fate = match published {
            Ok(sequence) => Fate::Answer(Ok(sequence)),
            Err(PublishError::Conflict) => look_for(broker, &append).await,
            Err(error) => failed(&append, error, true),
        };
        fates.push((append, fate));
    }
    (fates, clean)
}

/// Sends appends of different aggregates as one atomic batch. A refusal names no member: the last sequences are read again, the stale
/// ones dropped, the rest sent again.
pub(super) async fn batch(broker: &dyn Broker, appends: Vec<Append>) -> Outcome {
    let mut fates = Vec::with_capacity(appends.len());
    let mut appends = appends;
    for attempt in 0..BATCH_TRIES {
        let messages = appends.iter().map(|append| (append.message.clone(), Expect::Subject(append.expected))).collect();
        match broker.publish_batch(StreamName::Ledger, messages).await {
            Ok(last) => {
                let first = last + 1 - appends.len() as u64;
                fates.extend((first..).zip(appends).map(|(sequence, append)| (append, Fate::Answer(Ok(sequence)))));
                return (fates, attempt == 0);
            }
            Err(PublishError::Conflict) => {
                let (fresh, told) = drop_stale(broker, appends).await;
                fates.extend(told);
                appends = fresh;
                if appends.is_empty() {
                    return (fates, false);
                }
            }
            Err(error) => {
                fates.extend(appends.into_iter().map(|append| {
                    let fate = failed(&append, error.clone(), false);
                    (append, fate)
                }));
                return (fates, false);
            }
        }
    }
    let singly = |append| (append, Fate::Again { unknown: false, alone: true, why: "spoiled a batch".to_owned() });
    fates.extend(appends.into_iter().map(singly));
    (fates, false)
}

/// Looks up what is known to be stale.
pub(super) async fn look_up(broker: &dyn Broker, appends: Vec<Append>) -> Vec<(Append, Fate)> {
    let mut fates = Vec::with_capacity(appends.len());
    for append in appends {
        let fate = look_for(broker, &append).await;
        fates.push((append, fate));
    }
    fates
}

/// Parts appends whose expectation still holds from those that are answered (or asked again, when nobody could be asked).
async fn drop_stale(broker: &dyn Broker, appends: Vec<Append>) -> (Vec<Append>, Vec<(Append, Fate)>) {
    let checked = stream::iter(appends).map(|append| check(broker, append)).buffered(READS_MAX).collect::<Vec<_>>().await;
    let mut fresh = Vec::new();
    let mut told = Vec::new();
    for (append, fate) in checked {
        match fate {
            None => fresh.push(append),
            Some(fate) => told.push((append, fate)),
        }
    }
    (fresh, told)
}

async fn check(broker: &dyn Broker, append: Append) -> (Append, Option<Fate>) {
    match broker.last(StreamName::Ledger, &append.message.subject).await {
        Ok(last) if last.as_ref().map_or(0, |stored| stored.sequence) == append.expected => (append, None),
        Ok(_) => {
            let fate = look_for(broker, &append).await;
            (append, Some(fate))
        }
        Err(error) => (append, Some(Fate::Again { unknown: false, alone: false, why: error.to_string() })),
    }
}

/// The expectation does not hold: looks through every later event of the aggregate for this one's id (rule 4).
async fn look_for(broker: &dyn Broker, append: &Append) -> Fate {
    let id = append.id.to_string();
    let mut from = append.expected + 1;
    loop {
        match broker.read(StreamName::Ledger, &append.message.subject, from, LOOK_PAGE).await {
            Ok(page) => {
                if let Some(stored) = page.messages.iter().find(|stored| id_of(&stored.headers) == Some(&id)) {
                    return Fate::Answer(Ok(stored.sequence));
                }
                match page.next {
                    Some(next) => from = next,
                    None => return Fate::Answer(Err(AppendError::Conflict { expected: append.expected })),
                }
            }
            Err(error @ (ReadError::Unavailable(_) | ReadError::Refused(_))) => {
                return Fate::Again { unknown: append.unknown, alone: false, why: error.to_string() };
            }
        }
    }
}

fn id_of(headers: &[(String, String)]) -> Option<&str> {
    headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(header::ID)).map(|(_, id)| id.as_str())
}

/// What a failure that is no conflict means. While an earlier copy may be stored, only "again" is true.
fn failed(append: &Append, error: PublishError, singly: bool) -> Fate {
    let again = |unknown, alone| Fate::Again { unknown, alone, why: error.to_string() };
    match &error {
        PublishError::Unknown(_) => again(true, false),
        PublishError::Unavailable(_) | PublishError::Conflict => again(false, false),
        // Sent again it would wait for an operator: the caller is told now, and asks again with the same id.
        PublishError::Stuck(why) => Fate::Answer(Err(AppendError::Full(format!("{why}; it may be stored once there is room")))),
        // One member may have spoiled the batch (a copy of a stored one does): singly, each gets its own answer.
        PublishError::Refused(_) if !singly => again(false, true),
        PublishError::Full(_) | PublishError::Refused(_) if append.unknown => again(false, false),
        PublishError::Full(why) => Fate::Answer(Err(AppendError::Full(why.clone()))),
        PublishError::Refused(why) => Fate::Answer(Err(AppendError::Unavailable(format!("refused: {why}; nothing was stored")))),
    }
}
