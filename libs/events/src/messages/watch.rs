//! The reader's side of beats: what was last seen of each node, timed on the reader's own clock.

use super::BeatMessage;
use footplate_types::{Epoch, NodeName};
use std::collections::BTreeMap;
use std::time::Duration;

/// What was last seen on a node's beat subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeatSeen {
    /// The message's sequence in its stream.
    pub sequence: u64,
    /// The generation it shows: the beat's own, or the one that a fence opens.
    pub epoch: Epoch,
    /// The boot id; absent on a fence.
    pub boot_id: Option<String>,
    /// The lease; zero = without end.
    pub lease: Duration,
    /// How long shims need at most to kill after the lease has run out.
    pub kill: Duration,
    /// Whether this is a fence.
    pub is_fence: bool,
}

/// A node's beats as this watcher has seen them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWatch {
    /// The newest message.
    pub seen: BeatSeen,
    /// When this watcher saw it, on its own clock: a watcher that has just begun has seen everything just now.
    pub seen_at: Duration,
}

/// All nodes' beats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// By node.
    pub nodes: BTreeMap<NodeName, NodeWatch>,
}

impl Watch {
    /// Takes in a message of a beat subject.
    pub fn saw(&mut self, node: NodeName, seen: BeatSeen, now: Duration) {
        match self.nodes.get_mut(&node) {
            Some(watch) if watch.seen.sequence >= seen.sequence => {}
            Some(watch) => *watch = NodeWatch { seen, seen_at: now },
            None => {
                self.nodes.insert(node, NodeWatch { seen, seen_at: now });
            }
        }
    }

    /// A new term, or a connection that came back: nothing seen so far may count as silence.
    pub fn begin_again(&mut self, now: Duration) {
        for watch in self.nodes.values_mut() {
            watch.seen_at = now;
        }
    }
}

impl BeatSeen {
    /// What a message of a beat subject shows.
    pub fn of(sequence: u64, message: &BeatMessage) -> Self {
        match message {
            BeatMessage::Beat(beat) => Self {
                sequence,
                epoch: beat.epoch,
                boot_id: Some(beat.boot_id.clone()),
                lease: Duration::from_millis(beat.lease_ms),
                kill: Duration::from_millis(beat.kill_ms),
                is_fence: false,
            },
            BeatMessage::Fence(fence) => Self {
                sequence,
                epoch: fence.epoch,
                boot_id: None,
                lease: Duration::from_millis(fence.lease_ms),
                kill: Duration::ZERO,
                is_fence: true,
            },
        }
    }
}
