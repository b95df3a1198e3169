//! The beats of all nodes, timed on this process's own clock, with what they said last: for who fences nodes and who says that they are lost.

use crate::port::{Broker, StreamName, TailItem};
use footplate_clock::SharedClock;
use footplate_events::messages::{Beat, BeatMessage, BeatSeen, Watch};
use footplate_types::NodeName;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What is known of the nodes' beats.
#[derive(Debug, Default)]
pub struct Beats {
    /// The newest message of each node, and when it was seen.
    pub watch: Watch,
    /// The last beat of each node, which a fence does not replace.
    pub last: BTreeMap<NodeName, Beat>,
}

/// The same, shared by the reader, a leader and the API.
#[derive(Clone, Debug, Default)]
pub struct SharedBeats(Arc<Mutex<Beats>>);

impl SharedBeats {
    /// The beats now. Held briefly.
    pub fn lock(&self) -> MutexGuard<'_, Beats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the beat subjects until shut down, and wakes who decides upon them. A connection that came back begins every wait again: silence while
/// the broker was away says nothing about a node.
pub async fn watch(broker: Arc<dyn Broker>, beats: SharedBeats, clock: SharedClock, wake: Arc<Notify>, shutdown: CancellationToken) {
    let mut connections = broker.connections();
    let mut tail = broker.tail(StreamName::Beats, vec!["fp.beat.*".to_owned()], 1);
    loop {
        let item = tokio::select! {
            () = shutdown.cancelled() => return,
            changed = connections.changed() => {
                if changed.is_err() {
                    return;
                }
                beats.lock().watch.begin_again(clock.elapsed());
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
        let mut known = beats.lock();
        known.watch.saw(node.clone(), seen, clock.elapsed());
        if let BeatMessage::Beat(beat) = beat {
            known.last.insert(node, beat);
        }
        drop(known);
        wake.notify_one();
    }
}
