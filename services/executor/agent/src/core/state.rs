//! What survives a restart.

use footplate_events::{
    facts::{Rendezvous, StopCause},
    messages::Task,
};
use footplate_types::{AttemptNumber, Epoch, GpuMilli, GpuUuid, MemberIndex, RunId};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Which member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct MemberKey {
    pub(crate) run: RunId,
    pub(crate) attempt: AttemptNumber,
    pub(crate) member: MemberIndex,
}

impl MemberKey {
    pub(crate) fn of(task: &Task) -> Self {
        Self { run: task.run, attempt: task.attempt, member: task.member }
    }
}

/// `<run>-<n>-<member>`: the name of its folder, and the head of its marker.
impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.run, self.attempt, self.member)
    }
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Being prepared.
    Preparing,
    /// Prepared and reported.
    Ready,
    /// The intent to start it stands; whether it runs is for its folder to say.
    Launching,
    /// Its workers run.
    Running,
    /// Nothing of it runs; its last words are being gathered.
    Finishing,
    /// `exited` is in the spool.
    Ended,
}

/// One member that the node holds, or has held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) task: Task,
    pub(crate) phase: Phase,
    /// Member 0's reserved rendezvous.
    pub(crate) rendezvous: Option<Rendezvous>,
    /// The stop that it was given.
    pub(crate) stop: Option<StopCause>,
}

/// The persisted part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CoreState {
    /// The generation; absent until the first look at the beat subject.
    pub(crate) epoch: Option<Epoch>,
    /// The boot under which this was written.
    pub(crate) boot_id: String,
    /// The highest assignment seen.
    pub(crate) as_of: u64,
    /// Minted once a folder: tells its agent apart from others, of the machine in markers and of the name in beats.
    pub(crate) token: String,
    /// As a list: JSON keys are texts.
    #[serde(with = "as_list")]
    pub(crate) members: BTreeMap<MemberKey, Held>,
}

impl CoreState {
    /// Who holds something that `task` claims. Shares of one GPU stand beside each other as long as they are no more than all of it.
    pub(crate) fn overlapping(&self, task: &Task) -> Option<MemberKey> {
        let others = || self.members.iter().filter(|(key, held)| **key != MemberKey::of(task) && held.phase != Phase::Ended);
        let on = |gpu: &GpuUuid| {
            others().filter(|(_, held)| held.task.gpus.contains(gpu)).map(|(key, held)| (*key, &held.task)).collect::<Vec<_>>()
        };
        let too_full = |gpu: &GpuUuid| {
            let holders = on(gpu);
            let all: u64 = holders.iter().map(|(_, holder)| *holder).chain([task]).map(part_of_one).sum();
            holders.last().map(|(key, _)| *key).filter(|_| all > GpuMilli::WHOLE.0)
        };
        let slot = others().find(|(_, held)| held.task.slots.iter().any(|slot| task.slots.contains(slot)));
        slot.map(|(key, _)| *key).or_else(|| task.gpus.iter().find_map(too_full))
    }
}

/// How much of each of its GPUs a task has, in thousandths: all of it where it has no share.
fn part_of_one(task: &Task) -> u64 {
    if task.gpu_share > 0 { task.gpu_share.into() } else { GpuMilli::WHOLE.0 }
}

mod as_list {
    use super::{Held, MemberKey};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(members: &BTreeMap<MemberKey, Held>, serializer: S) -> Result<S::Ok, S::Error> {
        members.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<MemberKey, Held>, D::Error> {
        Ok(Vec::<(MemberKey, Held)>::deserialize(deserializer)?.into_iter().collect())
    }
}
