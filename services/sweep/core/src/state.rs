//! What the ledger says of sweeps and their trials: a fold, rebuilt by replay alone.

use crate::pruner::is_better;
use crate::sampler::{Suggestion, suggest};
use footplate_es::{Cause, Evolve, Project};
use footplate_events::facts::{
    Outcome, RunSealed, SealedFigure, SweepCreated, SweepResumed, SweepStopRequested, TrialFinished, TrialObserved, TrialOutcome,
    TrialPruned, TrialSuggested, Values,
};
use footplate_events::{Event, Recorded};
use footplate_types::{ProjectName, RunId, SweepId, Timestamp, TrialId, TrialNumber};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// That a trial's run is sealed, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sealed {
    /// What the trial's end follows from.
    pub cause: Cause,
    /// How the run ended.
    pub outcome: Outcome,
    /// What was missing when it was sealed incomplete, in words; empty when it was complete.
    pub missing: String,
    /// The objective as the seal holds it; absent when it was never logged.
    pub figure: Option<SealedFigure>,
}

/// Where a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialState {
    /// Its run is not sealed yet.
    Running,
    /// What came of it.
    Finished(TrialOutcome),
}

impl TrialState {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished(TrialOutcome::Complete) => "complete",
            Self::Finished(TrialOutcome::Pruned) => "pruned",
            Self::Finished(TrialOutcome::Failed) => "failed",
            Self::Finished(TrialOutcome::Cancelled) => "cancelled",
        }
    }
}

/// One point and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The run that it is.
    pub run: RunId,
    /// The point.
    pub values: Values,
    /// What its events follow from, when nothing nearer is known.
    pub cause: Cause,
    /// What was seen at its rungs.
    pub observed: BTreeMap<i64, TrialObserved>,
    /// That it is ended before its time.
    pub pruned: Option<TrialPruned>,
    /// That its run is sealed.
    pub sealed: Option<Sealed>,
    /// What came of it.
    pub finished: Option<TrialFinished>,
    /// The ledger sequence of the last event about it.
    pub sequence: u64,
}

impl Trial {
    /// Where it stands.
    pub fn state(&self) -> TrialState {
        self.finished.as_ref().map_or(TrialState::Running, |finished| TrialState::Finished(finished.outcome))
    }
}

/// That a sweep is stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// What the end of its trials follows from.
    pub cause: Cause,
    /// Whether trials that are under way are cancelled.
    pub cancel: bool,
    /// Why; may be empty.
    pub reason: String,
}

/// Where a sweep stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Trials are under way, or more are to come.
    Running,
    /// No more are to come; some are under way.
    Stopping,
    /// It was stopped, and nothing is under way.
    Stopped,
    /// Its budget or its points are used up, and nothing is under way.
    Finished,
}

impl Standing {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        }
    }
}

/// Trials by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub suggested: u32,
    /// Not sealed yet.
    pub running: u32,
    /// With a value.
    pub complete: u32,
    /// Ended for want of hope.
    pub pruned: u32,
    /// Failed, or without a finite value.
    pub failed: u32,
    /// Cancelled.
    pub cancelled: u32,
}

/// One sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The tenant.
    pub project: ProjectName,
    /// What was asked.
    pub fact: Arc<SweepCreated>,
    /// What its trials follow from.
    pub created: Cause,
    /// When it was created, by the broker's clock.
    pub created_at: Timestamp,
    /// Who created it.
    pub created_by: String,
    /// How many trials there may be; absent = as many as there are points.
    pub budget: Option<u32>,
    /// That it is stopped.
    pub stop: Option<Stop>,
    /// Its trials.
    pub trials: BTreeMap<TrialNumber, Trial>,
    /// Trials under way.
    pub running: BTreeSet<TrialNumber>,
    /// Whether its sampler has no point left.
    pub exhausted: bool,
    /// The best complete trial; of equal ones the first.
    pub best: Option<TrialNumber>,
    /// The ledger sequence of the last event about it or a trial of it.
    pub sequence: u64,
    /// The ledger sequence of its creation.
    pub created_sequence: u64,
}

impl Sweep {
    /// How many trials may still be suggested, whatever is under way.
    pub fn left(&self) -> u32 {
        if self.stop.is_some() || self.exhausted {
            return 0;
        }
        let suggested = u32::try_from(self.trials.len()).unwrap_or(u32::MAX);
        self.budget.map_or(u32::MAX, |budget| budget.saturating_sub(suggested))
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        match (self.stop.is_some(), self.running.is_empty()) {
            (true, true) => Standing::Stopped,
            (true, false) => Standing::Stopping,
            (false, true) if self.left() == 0 => Standing::Finished,
            (false, _) => Standing::Running,
        }
    }

    /// Trials by what came of them.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { suggested: u32::try_from(self.trials.len()).unwrap_or(u32::MAX), ..Counts::default() };
        for trial in self.trials.values() {
            match trial.state() {
                TrialState::Running => counts.running += 1,
                TrialState::Finished(TrialOutcome::Complete) => counts.complete += 1,
                TrialState::Finished(TrialOutcome::Pruned) => counts.pruned += 1,
                TrialState::Finished(TrialOutcome::Failed) => counts.failed += 1,
                TrialState::Finished(TrialOutcome::Cancelled) => counts.cancelled += 1,
            }
        }
        counts
    }

    /// Takes in that a trial is finished.
    fn finished(&mut self, number: TrialNumber, fact: &TrialFinished) {
        self.running.remove(&number);
        let Some(value) = fact.value.filter(|value| fact.outcome == TrialOutcome::Complete && value.is_finite()) else { return };
        let best = self.best.and_then(|best| Some((best, self.trials.get(&best)?.finished.as_ref()?.value?)));
        let wins = match best {
            None => true,
            Some((known, best)) => is_better(self.fact.objective.direction, value, best) || (value == best && number < known),
        };
        if wins {
            self.best = Some(number);
        }
    }
}

/// The view of the sweep service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sweeps {
    sweeps: BTreeMap<SweepId, Sweep>,
    runs: BTreeMap<RunId, TrialId>,
    /// Sweeps in which something may be left to decide.
    open: BTreeSet<SweepId>,
}

impl Sweeps {
    /// One sweep.
    pub fn sweep(&self, id: &SweepId) -> Option<&Sweep> {
        self.sweeps.get(id)
    }

    /// All sweeps, by id.
    pub fn sweeps(&self) -> &BTreeMap<SweepId, Sweep> {
        &self.sweeps
    }

    /// The trial that a run is.
    pub fn trial_of(&self, run: &RunId) -> Option<TrialId> {
        self.runs.get(run).copied()
    }

    /// Sweeps in which something may be left to decide, by id.
    pub fn open(&self) -> impl Iterator<Item = (SweepId, &Sweep)> {
        self.open.iter().filter_map(|id| Some((*id, self.sweeps.get(id)?)))
    }

    fn created(&mut self, recorded: &Recorded, id: SweepId, fact: &SweepCreated) {
        let envelope = &recorded.envelope;
        self.sweeps.entry(id).or_insert_with(|| Sweep {
            project: envelope.subject.project.clone(),
            fact: Arc::new(fact.clone()),
            created: Cause::of(envelope),
            created_at: recorded.recorded_at,
            created_by: envelope.actor.to_string(),
            budget: fact.trials,
            stop: None,
            trials: BTreeMap::new(),
            running: BTreeSet::new(),
            exhausted: false,
            best: None,
            sequence: recorded.sequence,
            created_sequence: recorded.sequence,
        });
    }

    /// The sweep that an event is about.
    fn about(&mut self, recorded: &Recorded, id: &SweepId) -> Option<&mut Sweep> {
        let sweep = self.sweeps.get_mut(id).filter(|sweep| sweep.project == recorded.envelope.subject.project)?;
        sweep.sequence = recorded.sequence;
        Some(sweep)
    }

    fn stopped(&mut self, recorded: &Recorded, id: &SweepId, fact: &SweepStopRequested) {
        let Some(sweep) = self.about(recorded, id) else { return };
        sweep.stop = Some(Stop { cause: Cause::of(&recorded.envelope), cancel: fact.cancel, reason: fact.reason.clone() });
    }

    fn resumed(&mut self, recorded: &Recorded, id: &SweepId, fact: &SweepResumed) {
        let Some(sweep) = self.about(recorded, id) else { return };
        sweep.stop = None;
        sweep.budget = fact.trials.or(sweep.budget);
    }

    fn suggested(&mut self, recorded: &Recorded, id: TrialId, fact: &TrialSuggested) {
        let Some(sweep) = self.about(recorded, &id.sweep).filter(|sweep| !sweep.trials.contains_key(&id.trial)) else { return };
        let trial = Trial {
            run: fact.run,
            values: fact.values.clone(),
            cause: Cause::of(&recorded.envelope),
            observed: BTreeMap::new(),
            pruned: None,
            sealed: None,
            finished: None,
            sequence: recorded.sequence,
        };
        sweep.trials.insert(id.trial, trial);
        sweep.running.insert(id.trial);
        sweep.exhausted = suggest(sweep, &[]) == Suggestion::Exhausted;
        self.runs.insert(fact.run, id);
    }

    fn on_trial(&mut self, recorded: &Recorded, id: TrialId, change: impl FnOnce(&mut Sweep, TrialNumber)) {
        let Some(sweep) = self.about(recorded, &id.sweep) else { return };
        let Some(trial) = sweep.trials.get_mut(&id.trial) else { return };
        trial.sequence = recorded.sequence;
        change(sweep, id.trial);
    }

    fn sealed(&mut self, recorded: &Recorded, fact: &RunSealed) {
        let Some(id) = recorded.envelope.subject.run_id().and_then(|run| self.trial_of(&run)) else { return };
        self.on_trial(recorded, id, |sweep, number| {
            let figure = fact.objectives.get(&sweep.fact.objective.metric).copied();
            let sealed = Sealed { cause: Cause::of(&recorded.envelope), outcome: fact.outcome, missing: fact.missing.join("; "), figure };
            if let Some(trial) = sweep.trials.get_mut(&number) {
                trial.sealed.get_or_insert(sealed);
            }
        });
        self.look_again(&id.sweep);
    }

    /// Whether something may be left to decide about a sweep.
    fn look_again(&mut self, id: &SweepId) {
        let open = self.sweeps.get(id).is_some_and(|sweep| matches!(sweep.standing(), Standing::Running | Standing::Stopping));
        if open {
            self.open.insert(*id);
        } else {
            self.open.remove(id);
        }
    }
}

impl Evolve for Sweeps {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        if let Event::RunSealed(fact) = &recorded.envelope.event {
            return self.sealed(recorded, fact);
        }
        let Some(id) = subject.sweep_id() else { return };
        match (&recorded.envelope.event, subject.trial_id()) {
            (Event::SweepCreated(fact), _) => self.created(recorded, id, fact),
            (Event::SweepStopRequested(fact), _) => self.stopped(recorded, &id, fact),
            (Event::SweepResumed(fact), _) => self.resumed(recorded, &id, fact),
            (Event::TrialSuggested(fact), Some(trial)) => self.suggested(recorded, trial, fact),
            (Event::TrialObserved(fact), Some(trial)) => self.on_trial(recorded, trial, |sweep, number| {
                if let Some(trial) = sweep.trials.get_mut(&number) {
                    trial.observed.entry(fact.rung).or_insert_with(|| fact.clone());
                }
            }),
            (Event::TrialPruned(fact), Some(trial)) => self.on_trial(recorded, trial, |sweep, number| {
                if let Some(trial) = sweep.trials.get_mut(&number) {
                    trial.pruned.get_or_insert_with(|| fact.clone());
                }
            }),
            (Event::TrialFinished(fact), Some(trial)) => self.on_trial(recorded, trial, |sweep, number| {
                let Some(trial) = sweep.trials.get_mut(&number).filter(|trial| trial.finished.is_none()) else { return };
                trial.finished = Some(fact.clone());
                sweep.finished(number, fact);
            }),
            _ => return,
        }
        self.look_again(&id);
    }
}

impl Project for Sweeps {
    fn fingerprint(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for (id, sweep) in &self.sweeps {
            let _ = writeln!(text, "sweep {id} {sweep:?}");
        }
        let _ = writeln!(text, "runs {:?}\nopen {:?}", self.runs, self.open);
        text
    }
}
