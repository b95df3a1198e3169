//! What survives a restart.

use footplate_events::{
    facts::{Rendezvous, StopCause},
    messages::Task,
};
use footplate_types::{AttemptNumber, Epoch, MemberIndex, RunId};
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
    /// Who holds something that `task` claims.
    pub(crate) fn overlapping(&self, task: &Task) -> Option<MemberKey> {
        let overlaps = |held: &Held| {
            held.phase != Phase::Ended
                && (held.task.gpus.iter().any(|gpu| task.gpus.contains(gpu))
                    || held.task.slots.iter().any(|slot| task.slots.contains(slot)))
        };
        self.members.iter().find(|(key, held)| **key != MemberKey::of(task) && overlaps(held)).map(|(key, _)| *key)
    }
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
