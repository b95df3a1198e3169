//! The beats of all nodes, timed on this process's own clock.

use footplate_clock::SharedClock;
use footplate_eventlog::{Broker, StreamName, TailItem};
use footplate_events::messages::{BeatMessage, BeatSeen, Watch};
use footplate_types::NodeName;
use futures::StreamExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What is known of the nodes' beats, shared by the reader and the leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedWatch(Arc<Mutex<Watch>>);

impl SharedWatch {
    /// The beats now. Held briefly.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the beat subjects until shut down. A connection that came back begins every wait again: silence while the broker was away
/// says nothing about a node.
pub(crate) async fn watch(broker: Arc<dyn Broker>, watch: SharedWatch, clock: SharedClock, wake: Arc<Notify>, shutdown: CancellationToken) {
    let mut connections = broker.connections();
    let mut tail = broker.tail(StreamName::Beats, vec!["fp.beat.*".to_owned()], 1);
    loop {
        let item = tokio::select! {
            () = shutdown.cancelled() => return,
            changed = connections.changed() => {
                if changed.is_err() {
                    return;
                }
                watch.lock().begin_again(clock.elapsed());
                continue;
            }
            item = tail.next() => item,
        };
        let Some(item) = item else { return };
        let TailItem::Message(message) = item else { continue };
        let node = message.subject.strip_prefix("fp.beat.").and_then(|name| NodeName::parse(name).ok());
        let beat: Option<BeatMessage> = serde_json::from_slice(&message.payload).ok();
        let (Some(node), Some(beat)) = (node, beat) else {
            tracing::warn!(subject = %message.subject, "a beat that is none was skipped");
            continue;
        };
        let seen = BeatSeen::of(message.sequence, &beat);
        let is_news = {
            let mut watch = watch.lock();
            let before = watch.nodes.get(&node).map(|known| (known.seen.epoch, known.seen.boot_id.clone()));
            let now = (seen.epoch, seen.boot_id.clone());
            watch.saw(node, seen, clock.elapsed());
            before != Some(now)
        };
        if is_news {
            wake.notify_one();
        }
    }
}
