//! When a run is complete.

use crate::run::{Member, MemberState, Run, param_text};
use footplate_events::facts::{Cause, RunSealed, SealedFigure, SessionEnd};
use footplate_types::{AttemptNumber, Digest, MemberIndex, MetricName, NodeName, Rank, SessionId, SpoolId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// How long a seal is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealPolicy {
    /// After this long since the run ended it is sealed as it is.
    pub deadline: Duration,
}

impl Default for SealPolicy {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60) }
    }
}

/// How many lines of what is missing a seal names.
pub const MISSING_MAX: usize = 32;

/// What is stored of one logging session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStored {
    /// The attempt.
    pub attempt: AttemptNumber,
    /// The worker.
    pub rank: Rank,
    /// The process.
    pub session: SessionId,
    /// Every batch from 1 to this one is stored.
    pub contiguous: u64,
}

/// The newest value of one series, for the record.
#[derive(Clone, Debug, PartialEq)]
pub struct LatestFigure {
    /// The attempt.
    pub attempt: AttemptNumber,
    /// The worker.
    pub rank: Rank,
    /// The metric.
    pub name: MetricName,
    /// The highest step.
    pub step: i64,
    /// Its value.
    pub value: f64,
    /// The lowest finite value of the series.
    pub min: Option<f64>,
    /// The highest finite value of the series.
    pub max: Option<f64>,
    /// How many points the series has.
    pub count: u64,
}

/// What the stores hold of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// Its logging sessions.
    pub sessions: Vec<SessionStored>,
    /// Its series.
    pub latest: Vec<LatestFigure>,
    /// Up to which offset reports of each spool are folded into the ledger (or refused).
    pub settled: BTreeMap<(NodeName, SpoolId), u64>,
}

/// What a look at an ended run led to.
#[derive(Clone, Debug, PartialEq)]
pub enum Sealing {
    /// It is not ended, or it is sealed.
    Nothing,
    /// Something is not stored yet.
    Waits(Vec<String>),
    /// It is to be sealed.
    Seal(Box<RunSealed>),
}

/// Decides whether a run is sealed: complete when everything up to its workers' final offsets is stored, incomplete at the deadline.
///
/// A member that was lost never said where its spools end: of it counts what is there, and nothing is waited for. `since_ended` is
/// measured on the decider's own clock, so a restart only makes it wait longer.
pub fn decide_seal(run: &Run, stored: &Stored, since_ended: Duration, policy: &SealPolicy) -> Sealing {
    let Some(ended) = run.ended.as_ref().filter(|_| run.seal.is_none()) else { return Sealing::Nothing };
    let mut missing = missing(run, stored);
    if !missing.is_empty() && since_ended < policy.deadline {
        return Sealing::Waits(missing);
    }
    let complete = missing.is_empty();
    if missing.len() > MISSING_MAX {
        let more = missing.len() - (MISSING_MAX - 1);
        missing.truncate(MISSING_MAX - 1);
        missing.push(format!("and {more} more"));
    }
    Sealing::Seal(Box::new(RunSealed {
        outcome: ended.outcome,
        attempt: ended.attempt,
        complete,
        missing,
        points: stored.latest.iter().map(|figure| figure.count).sum(),
        artifacts: run.artifacts.len() as u64,
        log_bytes: log_bytes(run),
        record: record(run, stored),
        objectives: objectives(run, stored),
    }))
}

/// What became of the metrics that the job named, at the lowest rank that logged them: the last value of the newest attempt that has them, the least
/// and the greatest of all attempts. A retry that resumed at the very end logs nothing more, and its run is none the worse.
fn objectives(run: &Run, stored: &Stored) -> BTreeMap<MetricName, SealedFigure> {
    let figure_of = |name: &MetricName| {
        let of_it = || stored.latest.iter().filter(|figure| figure.name == *name);
        let rank = of_it().map(|figure| figure.rank).min()?;
        let of_rank = || of_it().filter(|figure| figure.rank == rank);
        let newest = of_rank().max_by_key(|figure| figure.attempt)?;
        let last = newest.value.is_finite().then_some(newest.value);
        let min = of_rank().filter_map(|figure| figure.min).reduce(f64::min);
        let max = of_rank().filter_map(|figure| figure.max).reduce(f64::max);
        Some((name.clone(), SealedFigure { step: newest.step, last, min, max }))
    };
    run.objectives.iter().filter_map(figure_of).collect()
}

fn log_bytes(run: &Run) -> u64 {
    let members = run.attempts.values().flat_map(|attempt| attempt.members.values());
    members.filter_map(|member| member.logs).map(|logs| logs.bytes).sum()
}

/// What is not stored yet, in words.
fn missing(run: &Run, stored: &Stored) -> Vec<String> {
    let mut missing = Vec::new();
    if run.config_wanted.is_some() {
        missing.push("the params of its config".to_owned());
    }
    // A void placement was never told to a node: nobody will say where its spools end.
    for (number, attempt) in run.attempts.iter().filter(|(_, attempt)| attempt.cause != Some(Cause::Void)) {
        for (index, member) in &attempt.members {
            missing_of_member(*number, *index, member, stored, &mut missing);
        }
    }
    if let Some(ended) = &run.ended {
        missing_sessions("", AttemptNumber(0), &ended.sessions, stored, &mut missing);
    }
    missing
}

fn missing_of_member(attempt: AttemptNumber, index: MemberIndex, member: &Member, stored: &Stored, missing: &mut Vec<String>) {
    let whose = format!("of member {index} of attempt {attempt} on {}", member.node);
    let Some(offsets) = &member.offsets else {
        if member.state != MemberState::Lost {
            missing.push(format!("the end {whose}"));
        }
        return;
    };
    missing.extend(offsets.incomplete.iter().map(|what| format!("{what} {whose}")));
    missing_sessions(&whose, attempt, &offsets.sessions, stored, missing);
    if let Some(spool) = offsets.spool {
        let settled = stored.settled.get(&(member.node.clone(), spool)).copied().unwrap_or(0);
        if settled < offsets.tracker {
            missing.push(format!("reports {whose}: {settled} of {} folded", offsets.tracker));
        }
        match member.logs {
            _ if offsets.logs == 0 => {}
            None => missing.push(format!("logs {whose}: not archived")),
            Some(logs) if !logs.complete => missing.push(format!("logs {whose}: archived in part")),
            Some(_) => {}
        }
    }
}

fn missing_sessions(whose: &str, attempt: AttemptNumber, sessions: &[SessionEnd], stored: &Stored, missing: &mut Vec<String>) {
    for end in sessions {
        let is_it = |known: &&SessionStored| {
            known.session == end.session && known.attempt == attempt && (attempt == AttemptNumber(0) || known.rank == end.rank)
        };
        let contiguous = stored.sessions.iter().filter(is_it).map(|known| known.contiguous).max().unwrap_or(0);
        if contiguous < end.batches {
            let whose = if whose.is_empty() { String::new() } else { format!(" {whose}") };
            missing
                .push(format!("metrics of rank {}{whose}: {contiguous} of {} batches of session {}", end.rank, end.batches, end.session));
        }
    }
}

/// The digest over what is sealed: params, the newest value of each series, artifacts, each in the order of their names.
fn record(run: &Run, stored: &Stored) -> Digest {
    let mut text = String::new();
    for (key, param) in &run.params {
        let _ = writeln!(text, "param {:?} {}", key.as_str(), param_text(&param.value));
    }
    let mut latest: Vec<&LatestFigure> = stored.latest.iter().collect();
    latest.sort_by(|a, b| (&a.name, a.attempt, a.rank).cmp(&(&b.name, b.attempt, b.rank)));
    for figure in latest {
        let (name, bits) = (figure.name.as_str(), figure.value.to_bits());
        let _ = writeln!(text, "metric {name:?} {} {} {} {bits:016x} {}", figure.attempt, figure.rank, figure.step, figure.count);
    }
    for (path, artifact) in &run.artifacts {
        let _ = writeln!(text, "artifact {:?} {} {}", path.as_str(), artifact.digest, artifact.bytes);
    }
    Digest::of(text.as_bytes())
}
