//! The words for what a job asks of a node, and how much of it a room has: whole GPUs, slices of a profile, slots, or a share of one GPU.

use super::room::Room;
use crate::state::Node;
use footplate_events::facts::PerNode;
use footplate_types::GpuMilli;

/// What a job asks of a node.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a>(pub(super) &'a PerNode);

impl Wanted<'_> {
    pub(super) fn is_share(self) -> bool {
        self.0.gpu_share > 0
    }

    /// What is counted.
    pub(super) fn what(self) -> String {
        match &self.0.gpu_profile {
            Some(profile) => format!("slices of {profile}"),
            None if self.0.gpus > 0 => "gpus".to_owned(),
            None => "slots".to_owned(),
        }
    }

    /// How much is asked of each node: units, or thousandths of one GPU.
    pub(super) fn each(self) -> u64 {
        if self.is_share() { self.0.gpu_share.into() } else { self.0.gpus.max(self.0.slots).into() }
    }

    /// How much of it a room has: a share must be had of one GPU, so that what is left of several is never summed.
    pub(super) fn of(self, room: &Room, node: &Node) -> u64 {
        if self.is_share() { room.most_of_one(node, self.0).0 } else { room.units(node, self.0).into() }
    }

    /// An amount of it in words.
    pub(super) fn text(self, amount: u64) -> String {
        if self.is_share() { format!("{} of one", GpuMilli(amount)) } else { amount.to_string() }
    }

    /// What else it may lack where there is enough of that.
    pub(super) fn beside(self) -> &'static str {
        if self.is_share() { "gpu memory, cpus or memory" } else { "cpus or memory" }
    }
}
