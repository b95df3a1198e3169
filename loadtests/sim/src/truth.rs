//! The ground truth: which member really trains where. Written by the machines as it happens; read by the checkers alone.

use crate::clock::Time;
use crate::node::Key;
use footplate_events::messages::Task;
use footplate_types::{Epoch, GpuUuid, NodeName, SlotIndex};

/// A tree that was started.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) gpus: Vec<GpuUuid>,
    /// Thousandths of its one GPU; 0: it has its GPUs alone.
    pub(crate) share: u32,
    pub(crate) slots: Vec<SlotIndex>,
    pub(crate) epoch: Epoch,
}

/// Something that happened on a machine.
#[derive(Clone, Debug)]
pub(crate) struct Happening {
    pub(crate) at: Time,
    pub(crate) node: NodeName,
    pub(crate) key: Key,
    /// What was started; `None`: it ended, nothing of it runs any more.
    pub(crate) started: Option<Started>,
}

/// What has happened since it was looked at last.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    news: Vec<Happening>,
}

impl Truth {
    pub(crate) fn started(&mut self, at: Time, node: &NodeName, key: &Key, task: &Task) {
        let started = Started { gpus: task.gpus.clone(), share: task.gpu_share, slots: task.slots.clone(), epoch: task.epoch };
        self.news.push(Happening { at, node: node.clone(), key: *key, started: Some(started) });
    }

    pub(crate) fn ended(&mut self, at: Time, node: &NodeName, key: &Key) {
        self.news.push(Happening { at, node: node.clone(), key: *key, started: None });
    }

    pub(crate) fn take(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.news)
    }
}
