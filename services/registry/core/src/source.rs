//! What a version may be made of: an artifact of a sealed run, as it stood when the run was sealed.

use footplate_events::facts::{LoggedArtifact, ModelFile, Outcome, RunSealed};
use footplate_events::{Event, Recorded};
use footplate_types::{ArtifactPath, AttemptNumber, Digest, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// The most files of one version: its event stands alone, and is bounded.
pub const FILES_MAX: usize = 512;
/// How many names a refusal shows.
const SHOWN_MAX: usize = 10;

/// An artifact that a version may be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The run that made it.
    pub run: RunId,
    /// The attempt that made its newest file.
    pub attempt: AttemptNumber,
    /// The artifact in the run.
    pub path: ArtifactPath,
    /// What it is, in one digest.
    pub digest: Digest,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its files, in the order of their paths.
    pub files: Vec<ModelFile>,
    /// How the run ended.
    pub outcome: Outcome,
    /// Whether the run's record is complete.
    pub complete: bool,
}

/// What is let pass by an explicit word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// A run that failed or was cancelled.
    pub failed: bool,
    /// A run whose record is incomplete.
    pub incomplete: bool,
}

/// Why a version cannot be made of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceRefusal {
    /// No such run.
    #[error("there is no run {run} in this project")]
    NoSuchRun {
        /// The run.
        run: RunId,
    },
    /// The run is not sealed.
    #[error("run {run} is not sealed yet")]
    NotSealed {
        /// The run.
        run: RunId,
    },
    /// The run did not succeed.
    #[error("run {run} {}", outcome_text(*.outcome))]
    NotSucceeded {
        /// The run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Something of the run is missing.
    #[error("run {run} was sealed incomplete: {missing}")]
    Incomplete {
        /// The run.
        run: RunId,
        /// What is missing, in words.
        missing: String,
    },
    /// No such artifact.
    #[error("run {run} has no artifact {path}{}", late_text(*.late))]
    NoSuchArtifact {
        /// The run.
        run: RunId,
        /// The path.
        path: ArtifactPath,
        /// Whether one came after the seal.
        late: bool,
        /// What is there instead, in words.
        there: String,
    },
    /// Too many files.
    #[error("folder {path} of run {run} holds more than {FILES_MAX} files")]
    TooManyFiles {
        /// The run.
        run: RunId,
        /// The path.
        path: ArtifactPath,
    },
}

const fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "was cancelled",
    }
}

const fn late_text(late: bool) -> &'static str {
    if late { " in its sealed record; one was logged after the seal" } else { "" }
}

/// What the ledger says of a run, as far as a version can be made of one artifact of it: folded from the run's events and from its job's. It
/// holds no more than a version may, however much the run logged.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    path: ArtifactPath,
    began: bool,
    seal: Option<RunSealed>,
    /// What lies at the path itself.
    file: Option<LoggedArtifact>,
    /// What lies below it; one more than a version may have tells that there are too many.
    below: BTreeMap<ArtifactPath, LoggedArtifact>,
    /// Whether something came to the path after the seal.
    late: bool,
    /// The first names of what lies elsewhere; one more than are shown tells that there are others.
    elsewhere: BTreeSet<ArtifactPath>,
}

impl footplate_es::Evolve for RunRecord {
    fn evolve(&mut self, recorded: &Recorded) {
        match &recorded.envelope.event {
            Event::RunCreated(_) | Event::JobSubmitted(_) => self.began = true,
            Event::RunArtifactsLogged(fact) if self.seal.is_some() => {
                self.late |= fact.artifacts.iter().any(|artifact| is_below(&artifact.path, &self.path));
            }
            Event::RunArtifactsLogged(fact) => fact.artifacts.iter().for_each(|artifact| self.logged(artifact)),
            // The first seal stands.
            Event::RunSealed(fact) if self.seal.is_none() => self.seal = Some(fact.clone()),
            _ => {}
        }
    }
}

impl RunRecord {
    /// Of a run of which nothing is known yet, for what lies at a path: a file, or a folder.
    pub fn of(path: ArtifactPath) -> Self {
        Self { path, began: false, seal: None, file: None, below: BTreeMap::new(), late: false, elsewhere: BTreeSet::new() }
    }

    fn logged(&mut self, artifact: &LoggedArtifact) {
        if artifact.path == self.path {
            if self.file.as_ref().is_none_or(|known| follows(artifact, known)) {
                self.file = Some(artifact.clone());
            }
        } else if is_below(&artifact.path, &self.path) {
            let known = self.below.get(&artifact.path);
            if known.map_or(self.below.len() <= FILES_MAX, |known| follows(artifact, known)) {
                self.below.insert(artifact.path.clone(), artifact.clone());
            }
        } else {
            self.elsewhere.insert(artifact.path.clone());
            if self.elsewhere.len() > SHOWN_MAX + 1 {
                self.elsewhere.pop_last();
            }
        }
    }

    /// Whether the run began at all.
    pub fn began(&self) -> bool {
        self.began
    }

    /// The artifact at the path, if a version may be made of it.
    ///
    /// # Errors
    /// Why not.
    pub fn source(&self, run: RunId, allowed: Allowed) -> Result<Source, SourceRefusal> {
        if !self.began {
            return Err(SourceRefusal::NoSuchRun { run });
        }
        let seal = self.seal.as_ref().ok_or(SourceRefusal::NotSealed { run })?;
        if seal.outcome != Outcome::Succeeded && !allowed.failed {
            return Err(SourceRefusal::NotSucceeded { run, outcome: seal.outcome });
        }
        if !seal.complete && !allowed.incomplete {
            return Err(SourceRefusal::Incomplete { run, missing: seal.missing.join("; ") });
        }
        let path = &self.path;
        let found: Vec<&LoggedArtifact> = self.file.as_ref().map_or_else(|| self.below.values().collect(), |file| vec![file]);
        if found.is_empty() {
            return Err(SourceRefusal::NoSuchArtifact { run, path: path.clone(), late: self.late, there: self.there() });
        }
        if found.len() > FILES_MAX {
            return Err(SourceRefusal::TooManyFiles { run, path: path.clone() });
        }
        let file = |artifact: &&LoggedArtifact| ModelFile { path: artifact.path.clone(), digest: artifact.digest, bytes: artifact.bytes };
        Ok(Source {
            run,
            attempt: found.iter().map(|artifact| artifact.attempt).max().unwrap_or_default(),
            path: path.clone(),
            digest: digest_of(path, &found),
            bytes: found.iter().map(|artifact| artifact.bytes).fold(0, u64::saturating_add),
            files: found.iter().map(file).collect(),
            outcome: seal.outcome,
            complete: seal.complete,
        })
    }

    fn there(&self) -> String {
        if self.elsewhere.is_empty() {
            return "none: the run logged no artifact before it was sealed".to_owned();
        }
        let mut shown: Vec<&str> = self.elsewhere.iter().take(SHOWN_MAX).map(ArtifactPath::as_str).collect();
        if self.elsewhere.len() > SHOWN_MAX {
            shown.push("...");
        }
        shown.join(", ")
    }
}

/// A path logged again names the new content, unless an earlier attempt's worker is late.
fn follows(artifact: &LoggedArtifact, known: &LoggedArtifact) -> bool {
    artifact.attempt == AttemptNumber(0) || artifact.attempt >= known.attempt
}

fn is_below(path: &ArtifactPath, folder: &ArtifactPath) -> bool {
    path == folder || path.as_str().strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// Of a file its digest; of a folder that of its listing.
fn digest_of(path: &ArtifactPath, files: &[&LoggedArtifact]) -> Digest {
    match files {
        [file] if file.path == *path => file.digest,
        files => {
            let listing: String = files.iter().map(|file| format!("{}  {}\n", file.digest, file.path)).collect();
            Digest::of(listing.as_bytes())
        }
    }
}
