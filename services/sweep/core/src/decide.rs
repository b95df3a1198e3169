//! What the sweep's leader writes. Pure, and level-triggered: it asks what the state needs now, so a leader that has lost its memory decides
//! the same. Trials are finished from sealed runs only; a rung is entered once, by the first report at it or beyond it.

use crate::pruner::judge;
use crate::sampler::{Suggestion, suggest};
use crate::state::{Sealed, Sweep, Sweeps, Trial};
use footplate_es::Decision;
use footplate_events::Subject;
use footplate_events::facts::{
    Direction, Outcome, PruneCause, Pruner, Take, TrialFinished, TrialObserved, TrialOutcome, TrialPruned, Values, cut_text,
};
use footplate_types::{ProjectName, RunId, SweepId, TrialId, TrialNumber};
use std::collections::{BTreeMap, BTreeSet};

/// The most events of one look.
pub const DECISIONS_MAX: usize = 500;
/// The most points that are wanted at once: each of their events holds a whole job.
pub const DRAFTS_MAX: usize = 64;

/// The objective as a worker logged it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: i64,
    /// The value; may be anything.
    pub value: f64,
}

/// A point that is wanted now.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The tenant.
    pub project: ProjectName,
    /// The trial that it will be.
    pub id: TrialId,
    /// The point.
    pub values: Values,
}

/// What to write about trials that there are. A repeated call on the folded result writes nothing new.
pub fn decide(state: &Sweeps, seen: &[Seen]) -> Vec<Decision> {
    let mut pass = Pass { decisions: Vec::new(), ended: BTreeSet::new() };
    for (id, sweep) in state.open() {
        for number in &sweep.running {
            let Some(trial) = sweep.trials.get(number) else { continue };
            let of = TrialId { sweep: id, trial: *number };
            if let Some(sealed) = &trial.sealed {
                pass.say(sweep, of, finish(sweep, trial, sealed), &sealed.cause, 0);
                pass.ended.insert(of);
            } else if let Some(stop) = sweep.stop.as_ref().filter(|stop| stop.cancel && trial.pruned.is_none()) {
                let fact = TrialPruned { cause: PruneCause::SweepStopped, rung: None, message: cut_text(&stop.reason) };
                pass.say(sweep, of, fact, &stop.cause, 0);
                pass.ended.insert(of);
            }
        }
    }
    observe(state, seen, &mut pass);
    pass.decisions.truncate(DECISIONS_MAX);
    pass.decisions
}

/// The points that are wanted now, at most [`DRAFTS_MAX`]: one of each sweep in turn, so that none keeps the others waiting.
pub fn drafts(state: &Sweeps) -> Vec<Draft> {
    let mut all: Vec<Drafting<'_>> = state.open().map(|(id, sweep)| Drafting { id, sweep, points: Vec::new() }).collect();
    let mut count = 0;
    loop {
        let before = count;
        for one in &mut all {
            if count < DRAFTS_MAX && one.draft() {
                count += 1;
            }
        }
        if count == before {
            break;
        }
    }
    all.into_iter().flat_map(Drafting::into_drafts).collect()
}

/// One sweep's share of a look.
struct Drafting<'s> {
    id: SweepId,
    sweep: &'s Sweep,
    points: Vec<(TrialNumber, Values)>,
}

impl Drafting<'_> {
    /// Drafts the next point, if one is wanted and left.
    fn draft(&mut self) -> bool {
        let running = u32::try_from(self.sweep.running.len()).unwrap_or(u32::MAX);
        let wanted = self.sweep.left().min(self.sweep.fact.parallel.saturating_sub(running)) as usize;
        if self.points.len() >= wanted {
            return false;
        }
        let Suggestion::Point(values) = suggest(self.sweep, &self.points) else { return false };
        let newest = self.points.last().map(|(number, _)| *number).or_else(|| self.sweep.trials.keys().next_back().copied());
        self.points.push((newest.map_or(TrialNumber(1), TrialNumber::next), values));
        true
    }

    fn into_drafts(self) -> impl Iterator<Item = Draft> {
        let (project, sweep) = (self.sweep.project.clone(), self.id);
        self.points.into_iter().map(move |(trial, values)| Draft { project: project.clone(), id: TrialId { sweep, trial }, values })
    }
}

struct Pass {
    decisions: Vec<Decision>,
    /// Trials that this look has ended.
    ended: BTreeSet<TrialId>,
}

impl Pass {
    fn say(&mut self, sweep: &Sweep, id: TrialId, event: impl Into<footplate_events::Event>, cause: &footplate_es::Cause, ordinal: u32) {
        let mut decision = Decision::new(Subject::trial(&sweep.project, id), event, Some(cause.clone()));
        decision.ordinal = ordinal;
        self.decisions.push(decision);
    }
}

/// What came of a trial, from its run's seal.
fn finish(sweep: &Sweep, trial: &Trial, sealed: &Sealed) -> TrialFinished {
    let objective = &sweep.fact.objective;
    let value = sealed.figure.and_then(|figure| match (objective.take, objective.direction) {
        (Take::Last, _) => figure.last,
        (Take::Best, Direction::Minimize) => figure.min,
        (Take::Best, Direction::Maximize) => figure.max,
    });
    let value = value.filter(|value| value.is_finite());
    let why = |text: String| TrialFinished { outcome: TrialOutcome::Failed, value: None, message: cut_text(&text) };
    // A trial that ran its course before the rule's word reached it is still not compared with the others: the ledger's order decides.
    if let Some(pruned) = trial.pruned.as_ref().filter(|pruned| pruned.cause == PruneCause::Rule) {
        return TrialFinished { outcome: TrialOutcome::Pruned, value, message: pruned.message.clone() };
    }
    let metric = &objective.metric;
    match (sealed.outcome, value, sealed.figure) {
        (Outcome::Cancelled, ..) => {
            let message = trial.pruned.as_ref().map(|pruned| pruned.message.clone()).unwrap_or_default();
            TrialFinished { outcome: TrialOutcome::Cancelled, value, message }
        }
        (Outcome::Failed, ..) => why("its run failed".to_owned()),
        (Outcome::Succeeded, Some(_), _) => {
            let message = if sealed.missing.is_empty() { String::new() } else { format!("sealed incomplete: {}", sealed.missing) };
            TrialFinished { outcome: TrialOutcome::Complete, value, message: cut_text(&message) }
        }
        (Outcome::Succeeded, None, None) => why(format!("its run logged no {metric}")),
        (Outcome::Succeeded, None, Some(_)) => why(format!("{metric} is not a finite number")),
    }
}

/// Who has entered a rung, with which value.
type Entries = Vec<(TrialNumber, Option<f64>)>;

/// Who entered a rung before this look; nobody is asked for where no rule compares.
fn known_at(sweep: &Sweep, rung: i64) -> Entries {
    if sweep.fact.pruner == Pruner::None {
        return Entries::new();
    }
    sweep.trials.iter().filter_map(|(number, trial)| Some((*number, trial.observed.get(&rung)?.value))).collect()
}

/// Enters what was logged at the rungs, in order, and judges each trial as it enters.
fn observe(state: &Sweeps, seen: &[Seen], pass: &mut Pass) {
    // Who stands at each rung, with what this look has seen, which the state does not know yet.
    let mut entered: BTreeMap<(SweepId, i64), Entries> = BTreeMap::new();
    for report in seen {
        let Some(id) = state.trial_of(&report.run) else { continue };
        let Some(sweep) = state.sweep(&id.sweep) else { continue };
        let Some(trial) = sweep.trials.get(&id.trial).filter(|trial| trial.sealed.is_none() && trial.pruned.is_none()) else { continue };
        let value = Some(report.value).filter(|value| value.is_finite());
        for (ordinal, rung) in sweep.fact.rungs.iter().enumerate().take_while(|(_, rung)| **rung <= report.step) {
            if pass.ended.contains(&id) || trial.observed.contains_key(rung) {
                continue;
            }
            // What the trial saw and what follows from it go together, or its end would never be decided: a rung is entered once.
            if pass.decisions.len() + 2 > DECISIONS_MAX {
                return;
            }
            let here = entered.entry((id.sweep, *rung)).or_insert_with(|| known_at(sweep, *rung));
            if here.iter().any(|(known, _)| *known == id.trial) {
                continue;
            }
            let others: Vec<Option<f64>> = here.iter().map(|(_, value)| *value).collect();
            let verdict = judge(&sweep.fact.pruner, sweep.fact.objective.direction, value, &others);
            here.push((id.trial, value));
            let fact = TrialObserved { rung: *rung, step: report.step, value };
            pass.say(sweep, id, fact, &trial.cause, ordinal as u32);
            if let Some(message) = verdict {
                let fact = TrialPruned { cause: PruneCause::Rule, rung: Some(*rung), message: format!("at rung {rung}: {message}") };
                pass.say(sweep, id, fact, &trial.cause, 0);
                pass.ended.insert(id);
            }
        }
    }
}
