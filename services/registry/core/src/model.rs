//! A model with its versions, as folded from the ledger.

use crate::Refusal;
use crate::reference::Pick;
use footplate_events::facts::{EvaluationData, ModelFile, Outcome, Stage, VersionRef};
use footplate_events::{Event, Recorded, Subject};
use footplate_types::{
    AliasName, ArtifactPath, AttemptNumber, Digest, EventId, MetricName, ModelId, ModelName, ModelVersionId, PrincipalId, ProjectName,
    RunId, Timestamp, VersionNumber,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How many of a model's newest event ids are remembered, so that a request sent again is recognised. A registration is recognised for ever.
pub const RECENT_MAX: usize = 512;
/// How many of a version's newest evaluations are shown, as long as they hold no more than [`crate::FIGURES_SHOWN_MAX`] figures together; all
/// stand in the ledger.
pub const EVALUATIONS_MAX: usize = 100;
/// How many changes of what serves are remembered for a roll-back without a number.
pub const HISTORY_MAX: usize = 256;
/// The most aliases that a refusal lists.
const LISTED_MAX: usize = 10;

/// Aliases in words, some of them by name where they are many.
pub(crate) fn listed<'a>(aliases: impl ExactSizeIterator<Item = &'a AliasName>) -> String {
    let more = aliases.len().saturating_sub(LISTED_MAX);
    let named = aliases.take(LISTED_MAX).map(AliasName::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// Who said something, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The event.
    pub event: EventId,
    /// Its place in the ledger.
    pub sequence: u64,
    /// When, by the broker's clock.
    pub at: Timestamp,
    /// Who.
    pub by: PrincipalId,
    /// Why; may be empty.
    pub reason: String,
}

impl Mark {
    pub(crate) fn of(recorded: &Recorded, reason: &str) -> Self {
        Self {
            event: recorded.envelope.id,
            sequence: recorded.sequence,
            at: recorded.recorded_at,
            by: recorded.envelope.actor.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// An event that a request made, remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Its id.
    pub event: EventId,
    /// Its place in the ledger.
    pub sequence: u64,
    /// Digest of the request's body, under an idempotency key.
    pub body: Option<Digest>,
    /// The version that it is about.
    pub version: Option<VersionNumber>,
}

/// What an alias names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The version.
    pub version: VersionNumber,
    /// Who set it.
    pub mark: Mark,
}

/// Figures that were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Name to figure.
    pub figures: BTreeMap<MetricName, f64>,
    /// On what.
    pub data: Option<EvaluationData>,
    /// Anything else.
    pub note: String,
    /// Who measured.
    pub mark: Mark,
}

/// How a proposal was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Yes.
    Approved(Mark),
    /// No.
    Rejected(Mark),
}

/// A proposal that a version may serve; the newest stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Who proposed.
    pub mark: Mark,
    /// The answer.
    pub answer: Option<Answer>,
}

/// An approval: it stands for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who approved.
    pub mark: Mark,
    /// Whether the proposer did, as the project's only member.
    pub as_only_member: bool,
}

/// One version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// Its number.
    pub number: VersionNumber,
    /// The run that made it.
    pub run: RunId,
    /// The attempt that made its newest file; 0 for clients.
    pub attempt: AttemptNumber,
    /// The artifact in the run.
    pub path: ArtifactPath,
    /// What it is, in one digest.
    pub digest: Digest,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its files.
    pub files: Vec<ModelFile>,
    /// How the run ended.
    pub outcome: Outcome,
    /// Whether the run's record is complete.
    pub complete: bool,
    /// What it is about.
    pub note: String,
    /// Who registered it.
    pub registered: Mark,
    /// Digest of the registration's body, under an idempotency key.
    pub body: Option<Digest>,
    /// Where it stands.
    pub stage: Stage,
    /// Since when it stands there, and who said so; absent for where it began.
    pub staged: Option<Mark>,
    /// Whether it has ever served.
    pub has_served: bool,
    /// Its newest evaluations, oldest first.
    pub evaluations: VecDeque<Evaluation>,
    /// The newest figure of each name, of every evaluation that there was.
    pub figures: BTreeMap<MetricName, f64>,
    /// The newest proposal.
    pub proposal: Option<Proposal>,
    /// The approval.
    pub approval: Option<Approval>,
    /// The last sequence of its aggregate: what an append expects.
    pub sequence: u64,
}

impl Version {
    /// As events name it.
    pub fn to_ref(&self) -> VersionRef {
        VersionRef { version: self.number, run: self.run, path: self.path.clone(), digest: self.digest }
    }
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The tenant.
    pub project: ProjectName,
    /// Its id, derived from its name.
    pub id: ModelId,
    /// Its name.
    pub name: ModelName,
    /// What it is about.
    pub note: String,
    /// Who created it; absent before.
    pub created: Option<Mark>,
    /// Its versions.
    pub versions: BTreeMap<VersionNumber, Version>,
    /// Its aliases.
    pub aliases: BTreeMap<AliasName, Alias>,
    /// The version that serves (stage Production).
    pub serving: Option<VersionNumber>,
    /// The last change of what serves (to nothing, too).
    pub serving_changed: Option<Mark>,
    /// The version that is being tried (stage Staging).
    pub staging: Option<VersionNumber>,
    /// What has served, oldest first, at most [`HISTORY_MAX`].
    pub history: VecDeque<VersionNumber>,
    /// The last sequence of its own aggregate: what an append expects.
    pub sequence: u64,
    /// The last sequence of anything about it, its versions included.
    pub changed: u64,
    pub(crate) recent: VecDeque<Remembered>,
}

impl Model {
    /// A model of which nothing is known yet.
    pub fn new(project: ProjectName, name: ModelName) -> Self {
        Self {
            id: ModelId::of(&project, &name),
            project,
            name,
            note: String::new(),
            created: None,
            versions: BTreeMap::new(),
            aliases: BTreeMap::new(),
            serving: None,
            serving_changed: None,
            staging: None,
            history: VecDeque::new(),
            sequence: 0,
            changed: 0,
            recent: VecDeque::new(),
        }
    }

    /// The event of this id about the model or one of its versions, if it is remembered.
    pub fn remembered(&self, event: &EventId) -> Option<Remembered> {
        let recent = self.recent.iter().rev().find(|known| known.event == *event).cloned();
        recent.or_else(|| {
            let version = self.versions.values().find(|version| version.registered.event == *event)?;
            let (sequence, body) = (version.registered.sequence, version.body);
            Some(Remembered { event: *event, sequence, body, version: Some(version.number) })
        })
    }

    /// On which aggregate an event belongs, and the last sequence of it.
    pub fn place_of(&self, event: &Event) -> (Subject, u64) {
        match crate::evolve::version_of(event) {
            Some(version) => {
                let last = self.versions.get(&version).map_or(0, |known| known.sequence);
                (Subject::model_version(&self.project, ModelVersionId { model: self.id, version }), last)
            }
            None => (Subject::model(&self.project, self.id), self.sequence),
        }
    }

    /// The aliases of a version.
    pub fn aliases_of(&self, version: VersionNumber) -> impl Iterator<Item = &AliasName> {
        self.aliases.iter().filter(move |(_, alias)| alias.version == version).map(|(name, _)| name)
    }

    /// What served before what serves now (or last, when nothing does).
    pub fn served_before(&self) -> Option<VersionNumber> {
        self.history.iter().rev().find(|version| Some(**version) != self.serving).copied()
    }

    /// A version by its number.
    ///
    /// # Errors
    /// There is none.
    pub fn version(&self, number: VersionNumber) -> Result<&Version, Refusal> {
        self.exists()?;
        let newest = self.versions.keys().next_back().copied();
        self.versions.get(&number).ok_or_else(|| Refusal::NoSuchVersion { model: self.name.clone(), version: number, newest })
    }

    /// What a reference picks.
    ///
    /// # Errors
    /// It picks nothing.
    pub fn pick(&self, pick: &Pick) -> Result<&Version, Refusal> {
        self.exists()?;
        match pick {
            Pick::Version(number) => self.version(*number),
            Pick::Alias(alias) => {
                let known = self.aliases.get(alias);
                let there = || listed(self.aliases.keys());
                let known = known.ok_or_else(|| Refusal::NoSuchAlias { model: self.name.clone(), alias: alias.clone(), there: there() })?;
                self.version(known.version)
            }
            Pick::Stage(stage) => {
                let newest = self.versions.values().rev().find(|version| version.stage == *stage);
                newest.ok_or_else(|| Refusal::NothingInStage { model: self.name.clone(), stage: *stage })
            }
            Pick::Latest => self.versions.values().next_back().ok_or_else(|| Refusal::NoVersions { model: self.name.clone() }),
        }
    }

    pub(crate) fn exists(&self) -> Result<(), Refusal> {
        if self.created.is_some() { Ok(()) } else { Err(Refusal::NoSuchModel { model: self.name.clone() }) }
    }
}
