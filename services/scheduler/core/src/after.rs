//! What jobs that come after others are told: whether they may be submitted so, what they wait for, and why their turn can never come.

use crate::admit::Refusal;
use crate::explain::{Explanation, deadline};
use crate::state::{EndedJob, Job, Stage, Standing, State};
use footplate_events::facts::{AfterJob, AfterWhen, JobSpec, Outcome, WaitReason};
use footplate_types::{EventId, ProjectName, RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How many runs are named where a job waits for many.
const SHOWN: usize = 3;

/// Whether every run that a job comes after is a job of its project, or of the same submission (`beside`).
///
/// # Errors
/// The first run that is neither.
pub fn can_follow(state: &State, project: &ProjectName, spec: &JobSpec, beside: &BTreeSet<RunId>) -> Result<(), Refusal> {
    let stray = spec.after.iter().find(|after| !beside.contains(&after.run) && !state.knows(project, &after.run));
    stray.map_or(Ok(()), |after| Err(Refusal::NoSuchRun { run: after.run, project: project.clone() }))
}

/// An order in which each of some jobs comes after those that it names: `after[n]` has the places of those that job `n` names. Among those that
/// could be next the first goes first.
///
/// # Errors
/// The places on a circle, each naming the one behind it.
pub fn order(after: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut open: Vec<BTreeSet<usize>> = after.iter().map(|named| named.iter().copied().collect()).collect();
    let mut followers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, named) in open.iter().enumerate() {
        named.iter().for_each(|other| followers.entry(*other).or_default().push(at));
    }
    let mut ready: BTreeSet<usize> = (0..after.len()).filter(|at| open[*at].is_empty()).collect();
    let mut ordered = Vec::with_capacity(after.len());
    while let Some(at) = ready.pop_first() {
        ordered.push(at);
        for follower in followers.get(&at).into_iter().flatten() {
            open[*follower].remove(&at);
            if open[*follower].is_empty() {
                ready.insert(*follower);
            }
        }
    }
    if ordered.len() == after.len() { Ok(ordered) } else { Err(circle(&open)) }
}

/// A circle among jobs of which each that is left waits for another one that is left.
fn circle(open: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut way: Vec<usize> = Vec::new();
    let mut next = open.iter().position(|named| !named.is_empty());
    while let Some(at) = next {
        if let Some(begun) = way.iter().position(|known| *known == at) {
            return way.split_off(begun);
        }
        way.push(at);
        next = open.get(at).and_then(|named| named.first().copied());
    }
    way
}

/// What would keep a job of the project waiting for others if it were submitted now.
pub fn outlook_after(state: &State, project: &ProjectName, spec: &JobSpec) -> Option<WaitReason> {
    let of = |wanted: Standing| spec.after.iter().filter(move |after| state.standing(project, after) == wanted);
    if let Some(after) = of(Standing::Never).next() {
        let how = state.ended().get(&after.run).map_or("is no job of this project", |ended| how(ended.fact.outcome));
        return Some(WaitReason::Dependencies { detail: format!("{}, which can never come: it {how}", named(state, after)) });
    }
    let open: Vec<&AfterJob> = of(Standing::Open).collect();
    (!open.is_empty()).then(|| WaitReason::Dependencies { detail: listed(open.iter().map(|after| named(state, after)).collect()) })
}

/// Why a job that waits for others waits, with how they stand now; `None` for any other job.
pub(crate) fn explain(state: &State, job: &Job, now: Timestamp) -> Option<Explanation> {
    if !state.waits_for_others(&job.run) {
        return None;
    }
    let (detail, mut change) = match spoilt(state, job) {
        Some(spoilt) => (spoilt.message, "nothing helps: it ends at the next look".to_owned()),
        None => (open_now(state, job), "the runs that it waits for have to end so; only then it gets in line".to_owned()),
    };
    if job.held {
        change.push_str("; and someone has to release it (job release)");
    }
    Some(Explanation {
        reason: Some(WaitReason::Dependencies { detail }),
        position: 0,
        pending: 0,
        change,
        pools: Vec::new(),
        deadline: deadline(job, now),
        start: None,
    })
}

/// A condition that can never be met.
pub(crate) struct Spoilt {
    /// Why, and what to do.
    pub(crate) message: String,
    /// The end that spoilt it.
    pub(crate) because: Option<EventId>,
}

/// The first condition of a job that can never be met.
pub(crate) fn spoilt(state: &State, job: &Job) -> Option<Spoilt> {
    let after = job.spec.after.iter().find(|after| state.stands(job, after) == Standing::Never)?;
    let told = named(state, after);
    let ended = state.ended().get(&after.run).filter(|ended| ended.project == job.project);
    let message = match ended {
        None => format!("it was to come after the {told}, and that is no other job of this project; submit it again after one that is"),
        Some(EndedJob { fact, .. }) if after.when == AfterWhen::Failure && fact.outcome == Outcome::Succeeded => {
            format!("it was to come after the {told}, which succeeded; it is not needed")
        }
        Some(EndedJob { fact, .. }) => {
            let what = how(fact.outcome);
            format!("it was to come after the {told}, which {what}; it was not started: run that again, then this one after it")
        }
    };
    Some(Spoilt { message, because: ended.map(|ended| ended.ended.id) })
}

/// What a job still waits for.
pub(crate) fn open(state: &State, job: &Job) -> String {
    listed(open_ones(state, job).map(|after| named(state, after)).collect())
}

/// What a job still waits for, and how that stands now.
fn open_now(state: &State, job: &Job) -> String {
    let told = |after: &AfterJob| format!("{}, which {}", named(state, after), stands(state, &after.run));
    let all = open_ones(state, job).map(told).collect();
    let met = job.spec.after.iter().filter(|after| state.stands(job, after) == Standing::Met).count();
    let before = if met == 0 { String::new() } else { format!("; {met} of {} have come", job.spec.after.len()) };
    format!("{}{before}", listed(all))
}

fn open_ones<'a>(state: &'a State, job: &'a Job) -> impl Iterator<Item = &'a AfterJob> {
    job.spec.after.iter().filter(|after| state.stands(job, after) == Standing::Open)
}

/// "success of run 0190... (train)".
fn named(state: &State, after: &AfterJob) -> String {
    let what = match after.when {
        AfterWhen::Success => "success",
        AfterWhen::Failure => "failure",
        AfterWhen::Any => "end",
    };
    let living = state.jobs().get(&after.run).map(|job| &job.spec.name);
    let name = living.or_else(|| state.ended().get(&after.run).map(|job| &job.name));
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    format!("{what} of run {}{name}", after.run)
}

fn listed(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(SHOWN);
    let shown = all.into_iter().take(SHOWN).collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{shown}; and {more} more") } else { shown }
}

const fn how(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "was cancelled",
    }
}

/// How a run that has not ended stands, after "which".
fn stands(state: &State, run: &RunId) -> &'static str {
    match state.jobs().get(run) {
        None => "is about to be submitted",
        Some(_) if state.waits_for_others(run) => "waits for others itself",
        Some(job) => match &job.stage {
            Stage::Pending { .. } if job.held => "is held",
            Stage::Pending { .. } => "is in line",
            Stage::Active(attempt) if attempt.stop.is_some() => "is being stopped",
            Stage::Active(attempt) if attempt.launched.is_some() => "runs",
            Stage::Active(_) => "is prepared",
        },
    }
}
