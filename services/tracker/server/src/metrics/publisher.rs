//! Clients' batches on their way into METRICS: what waits while one commit is under way goes into the next one together.

use footplate_eventlog::port::BATCH_MAX;
use footplate_eventlog::{Broker, Expect, Message, PublishError, StreamName};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Batches that may wait; a caller beyond that waits to be let in.
const QUEUE: usize = 1_024;

/// The most bytes of one commit.
const COMMIT_BYTES: usize = 4 << 20;

/// The wait before a commit of unknown outcome is sent again: the same bytes, which the store drops when they land twice.
const AGAIN: Duration = Duration::from_millis(100);

struct Waiting {
    message: Message,
    deadline: Instant,
    answer: oneshot::Sender<Result<(), PublishError>>,
}

/// The group commit of METRICS. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Publisher {
    queue: mpsc::Sender<Waiting>,
}

impl Publisher {
    /// Starts the writer; it ends when every clone is dropped.
    pub(crate) fn start(broker: Arc<dyn Broker>) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(write(broker, waiting));
        Self { queue }
    }

    /// Publishes one message; `Ok` only when it is durable. After `deadline` the outcome may be unknown: send it again.
    pub(crate) async fn publish(&self, message: Message, deadline: Instant) -> Result<(), PublishError> {
        let (answer, answered) = oneshot::channel();
        let away = || PublishError::Unavailable("this instance is ending".to_owned());
        let late = || PublishError::Unknown("no answer in time".to_owned());
        let sent = tokio::time::timeout_at(deadline, self.queue.send(Waiting { message, deadline, answer })).await;
        sent.map_err(|_| PublishError::Unavailable("too many batches wait".to_owned()))?.map_err(|_| away())?;
        tokio::time::timeout_at(deadline, answered).await.map_err(|_| late())?.map_err(|_| away())?
    }
}

async fn write(broker: Arc<dyn Broker>, mut waiting: mpsc::Receiver<Waiting>) {
    let mut held = None;
    loop {
        let first = match held.take() {
            Some(first) => first,
            None => match waiting.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        let mut bytes = first.message.payload.len();
        let mut commit = vec![first];
        while commit.len() < BATCH_MAX
            && let Ok(next) = waiting.try_recv()
        {
            if bytes + next.message.payload.len() > COMMIT_BYTES {
                held = Some(next);
                break;
            }
            bytes += next.message.payload.len();
            commit.push(next);
        }
        settle(broker.as_ref(), commit).await;
    }
}

/// Sends one commit until its outcome is known or the last of its callers has left.
async fn settle(broker: &dyn Broker, commit: Vec<Waiting>) {
    let last = commit.iter().map(|waiting| waiting.deadline).max().unwrap_or_else(Instant::now);
    let outcome = loop {
        let sent = match commit.as_slice() {
            [one] => broker.publish(StreamName::Metrics, one.message.clone(), Expect::Any).await,
            several => {
                let messages = several.iter().map(|waiting| (waiting.message.clone(), Expect::Any)).collect();
                broker.publish_batch(StreamName::Metrics, messages).await
            }
        };
        match sent {
            Err(PublishError::Unknown(_) | PublishError::Unavailable(_)) if Instant::now() + AGAIN < last => {
                tokio::time::sleep(AGAIN).await;
            }
            sent => break sent.map(|_| ()),
        }
    };
    for waiting in commit {
        // A caller that has left learns nothing; it sends its batch again.
        let _ = waiting.answer.send(outcome.clone());
    }
}
