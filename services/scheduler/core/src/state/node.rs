//! Nodes: what they have, whether they may be used, and who claims what on them.

use super::{Holding, Stamp};
use footplate_events::facts::MemberPlacement;
use footplate_types::{AttemptNumber, Epoch, Gpu, GpuMilli, GpuUuid, MemberIndex, NodeShape, RunId, SlotIndex, Taint};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Something that was said of a node and still holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where it was said.
    pub stamp: Stamp,
    /// Why, in words.
    pub reason: String,
}

/// Whose claim it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimKey {
    /// The ledger sequence of the placement: claims list in the order of placement.
    pub placed: u64,
    /// The run.
    pub run: RunId,
    /// Which try.
    pub attempt: AttemptNumber,
    /// Which member.
    pub member: MemberIndex,
}

/// What a member claims on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// GPUs by the driver's name.
    pub gpus: Vec<GpuUuid>,
    /// How much each of them counts where GPUs are counted, in thousandths of one.
    pub gpu_counts: u64,
    /// The share of its one GPU that it claims, in thousandths; 0: it has its GPUs alone.
    pub gpu_share: u32,
    /// The part of that GPU's memory that it claims, in bytes.
    pub gpu_memory_bytes: u64,
    /// CPU slots.
    pub slots: Vec<SlotIndex>,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl Claim {
    /// How much of what queues share it is.
    pub(crate) fn held(&self) -> Holding {
        Holding { gpu_milli: self.gpus.len() as u64 * self.gpu_counts, slots: self.slots.len() as u64 }
    }

    /// The claim that a placement makes.
    pub fn of(placement: &MemberPlacement) -> Self {
        Self {
            gpus: placement.gpus.clone(),
            gpu_counts: placement.gpu_counts().0,
            gpu_share: placement.gpu_share,
            gpu_memory_bytes: placement.gpu_memory_bytes,
            slots: placement.slots.clone(),
            cpus: placement.cpus,
            memory_bytes: placement.memory_bytes,
        }
    }
}

/// What is claimed on a node and what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// GPUs claimed.
    pub gpus: u32,
    /// Slots claimed.
    pub slots: u32,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// The generation under which it is given work.
    pub epoch: Epoch,
    /// The kernel's boot id.
    pub boot_id: String,
    /// What it offers, with all its taints: those that its agent declares and those that operators have set.
    pub shape: Arc<NodeShape>,
    /// The taints that its agent declares.
    pub declared_taints: BTreeSet<Taint>,
    /// The taints that operators have set.
    pub taints: BTreeMap<Taint, Mark>,
    /// Where other nodes reach it.
    pub address: String,
    /// Its newest registration.
    pub registered: Stamp,
    /// It takes no new work.
    pub cordoned: Option<Mark>,
    /// It is being emptied.
    pub drained: Option<Mark>,
    /// It is not heard of.
    pub lost: Option<Mark>,
    /// It is unhealthy as a whole.
    pub unhealthy: Option<Mark>,
    /// Runs in a row that could not be started here and were started elsewhere at once: theirs was not the fault.
    pub blamed: Vec<RunId>,
    /// There were too many of these; until it registers under another generation or is uncordoned it takes no new work.
    pub quarantined: Option<Mark>,
    /// Its unhealthy GPUs.
    pub unhealthy_gpus: BTreeMap<GpuUuid, Mark>,
    /// What is claimed on it.
    pub claims: BTreeMap<ClaimKey, Claim>,
    /// The sequence of the last event that changed what its assignment says.
    pub assigned_at: u64,
    /// The sequence of the last event that changed what it offers, what of it is to be had, or what stands on it.
    pub changed_at: u64,
    /// The sequence of the registration that began its generation.
    pub raised_at: u64,
}

impl Node {
    /// How many runs in a row it may fail.
    pub const BLAMED_MOST: usize = 3;

    /// Whether new work may be placed here.
    pub fn is_open(&self) -> bool {
        let marks = [&self.cordoned, &self.drained, &self.lost, &self.unhealthy, &self.quarantined];
        marks.into_iter().all(Option::is_none)
    }

    /// Whether a GPU of it, and the one of which it is a slice, is healthy.
    pub fn is_well(&self, gpu: &Gpu) -> bool {
        // Mostly all are.
        self.unhealthy_gpus.is_empty() || !self.unhealthy_gpus.keys().any(|uuid| gpu.is_of(uuid))
    }

    /// Why no new work may be placed here, in words; `None` when it may.
    pub fn closed_because(&self) -> Option<String> {
        let told = |word: &str, mark: &Option<Mark>| {
            mark.as_ref().map(|mark| if mark.reason.is_empty() { word.to_owned() } else { format!("{word} ({})", mark.reason) })
        };
        told("lost", &self.lost)
            .or_else(|| told("drained", &self.drained))
            .or_else(|| told("cordoned", &self.cordoned))
            .or_else(|| told("unhealthy", &self.unhealthy))
            .or_else(|| told("quarantined", &self.quarantined))
    }

    /// The agent's taints and the operators' together, after one of them has changed.
    pub(super) fn gather_taints(&mut self) {
        let all = self.declared_taints.iter().chain(self.taints.keys()).cloned().collect();
        if self.shape.taints != all {
            Arc::make_mut(&mut self.shape).taints = all;
        }
    }

    /// A run that could not be started here was started elsewhere at once. Whether the node is quarantined by that.
    pub(super) fn blame(&mut self, run: RunId, stamp: Stamp) -> bool {
        if self.quarantined.is_some() || self.blamed.contains(&run) {
            return false;
        }
        self.blamed.push(run);
        if self.blamed.len() < Self::BLAMED_MOST {
            return false;
        }
        let reason = format!("{} runs in a row could not be started here and were started elsewhere, the last {run}", self.blamed.len());
        self.quarantined = Some(Mark { stamp, reason });
        self.changed_at = stamp.sequence;
        true
    }

    /// Somebody has looked after it, or it has shown that it works.
    pub(super) fn pardon(&mut self) {
        self.blamed.clear();
        self.quarantined = None;
    }

    /// Checks that no slot is claimed twice, and of no GPU more than there is of it: whoever has it alone stands beside nobody. Told as the first fault.
    pub(super) fn check_claims(&self) -> Result<(), String> {
        let mut slots = BTreeSet::new();
        let mut gpus: BTreeMap<&GpuUuid, (u64, u64)> = BTreeMap::new();
        for (key, claim) in &self.claims {
            if let Some(slot) = claim.slots.iter().find(|slot| !slots.insert(**slot)) {
                return Err(format!("slot {} is claimed twice, again by {key:?}", slot.0));
            }
            for uuid in &claim.gpus {
                let (milli, memory) = gpus.entry(uuid).or_default();
                *milli += if claim.gpu_share > 0 { claim.gpu_share.into() } else { GpuMilli::WHOLE.0 };
                *memory = memory.saturating_add(claim.gpu_memory_bytes);
                let there = self.shape.gpus.iter().find(|gpu| gpu.uuid == *uuid).map_or(u64::MAX, |gpu| gpu.memory_bytes);
                if *milli > GpuMilli::WHOLE.0 || *memory > there {
                    return Err(format!("of {uuid} {milli} thousandths and {memory} bytes are claimed, again by {key:?}"));
                }
            }
        }
        Ok(())
    }

    /// How much of it is claimed.
    pub fn claimed(&self) -> Claimed {
        let mut sum = Claimed::default();
        for claim in self.claims.values() {
            sum.gpus += claim.gpus.len() as u32;
            sum.slots += claim.slots.len() as u32;
        }
        sum
    }
}
