//! Between the words of the core and the messages of the API.

use crate::metrics::newest;
use footplate_api::types as wire;
use footplate_api::v1;
use footplate_events::facts::{InputRef, Outcome, ParamValue, RootCause, StopCause};
use footplate_series::{SeriesKey, SeriesStats, SeriesSummary};
use footplate_tracker_core::run::{Attempt, Member, Run, Status, param_text};
use footplate_tracker_core::search::cause_text;
use footplate_tracker_core::{Experiment, Param};
use footplate_types::{AttemptNumber, Digest, Invalid, MemberIndex, ParamKey, Timestamp};
use std::collections::BTreeMap;

pub(super) fn outcome_out(outcome: Outcome) -> wire::Outcome {
    match outcome {
        Outcome::Succeeded => wire::Outcome::Succeeded,
        Outcome::Failed => wire::Outcome::Failed,
        Outcome::Cancelled => wire::Outcome::Cancelled,
    }
}

pub(super) fn outcome_in(outcome: i32) -> Result<Outcome, Invalid> {
    match wire::Outcome::try_from(outcome) {
        Ok(wire::Outcome::Succeeded) => Ok(Outcome::Succeeded),
        Ok(wire::Outcome::Failed) => Ok(Outcome::Failed),
        Ok(wire::Outcome::Cancelled) => Ok(Outcome::Cancelled),
        Ok(wire::Outcome::Unspecified) | Err(_) => {
            Err(Invalid::new("outcome", outcome, "OUTCOME_SUCCEEDED, OUTCOME_FAILED, OUTCOME_CANCELLED"))
        }
    }
}

fn state_out(status: Status) -> wire::RunState {
    match status {
        Status::Pending => wire::RunState::Pending,
        Status::Preparing => wire::RunState::Preparing,
        Status::Running => wire::RunState::Running,
        Status::Stopping => wire::RunState::Stopping,
        Status::Ending => wire::RunState::Ending,
        Status::Sealed => wire::RunState::Sealed,
    }
}

const fn stop_text(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Cancelled => "cancelled",
        StopCause::Preempted => "preempted",
        StopCause::Drained => "drained",
        StopCause::NodeLost => "node_lost",
        StopCause::NotReady => "not_ready",
        StopCause::TimedOut => "timed_out",
        StopCause::MemberFailed => "member_failed",
        StopCause::Shutdown => "shutdown",
        StopCause::Fenced => "fenced",
    }
}

/// An empty text for an instant that has not come.
fn time_out(time: Option<Timestamp>) -> String {
    time.map_or_else(String::new, |time| time.to_string())
}

fn root_out(root: &RootCause) -> wire::RootCause {
    wire::RootCause { member: root.member.0, node: root.node.to_string(), rank: root.rank.map(|rank| rank.0), what: root.what.clone() }
}

fn member_out(index: MemberIndex, member: &Member) -> wire::MemberSummary {
    let (gpu_share, gpu_memory_bytes) = member.gpu_share.unwrap_or_default();
    wire::MemberSummary {
        member: index.0,
        node: member.node.to_string(),
        gpus: member.gpus.iter().map(ToString::to_string).collect(),
        gpu_profile: member.gpu_profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        gpu_share,
        gpu_memory_bytes,
        slots: member.slots.iter().map(|slot| slot.0).collect(),
        first_rank: member.first_rank.0,
        workers: member.workers,
        state: member.state.as_str().to_owned(),
        exits: member.exits.clone(),
        ..wire::MemberSummary::default()
    }
}

fn attempt_out(number: AttemptNumber, attempt: &Attempt) -> wire::AttemptSummary {
    wire::AttemptSummary {
        attempt: number.0,
        members: attempt.members.iter().map(|(index, member)| member_out(*index, member)).collect(),
        placed_at: attempt.placed_at.to_string(),
        launched_at: time_out(attempt.launched_at),
        ended_at: time_out(attempt.ended_at),
        stop_cause: attempt.stop.map_or_else(String::new, |cause| stop_text(cause).to_owned()),
        cause: attempt.cause.map_or_else(String::new, |cause| cause_text(cause).to_owned()),
        root: attempt.root.as_ref().map(root_out),
        checkpoint_step: attempt.checkpoint,
    }
}

fn param_out(param: &Param) -> wire::ParamValue {
    wire::ParamValue {
        json: param_text(&param.value),
        attempt: param.attempt.0,
        earlier: param.earlier.iter().map(|(_, value)| param_text(value)).collect(),
    }
}

/// The newest value of one series; a bound that does not exist (no finite value) is NaN.
pub(super) fn latest_out(key: &SeriesKey, stats: &SeriesStats) -> wire::LatestValue {
    wire::LatestValue {
        name: key.name.to_string(),
        step: stats.latest.step,
        time_ms: stats.latest.time_ms,
        value: stats.latest.value,
        count: stats.count,
        min: stats.min.unwrap_or(f64::NAN),
        max: stats.max.unwrap_or(f64::NAN),
        nan_count: stats.nan_count,
        infinite_count: stats.inf_count,
        attempt: key.attempt.0,
        rank: key.rank.0,
    }
}

pub(super) fn run_out(run: &Run, latest: &[SeriesSummary], now: Timestamp) -> wire::Run {
    let points: u64 = latest.iter().map(|summary| summary.stats.count).sum();
    let late_points = run.seal.as_ref().map_or(0, |seal| points.saturating_sub(seal.fact.points));
    let ended = run.ended.as_ref();
    let source = run.source.as_ref();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    wire::Run {
        run_id: run.id.to_string(),
        project: run.project.to_string(),
        name: text(run.name.as_ref().map(|name| name.as_str())),
        experiment: text(run.experiment_name.as_ref().map(|name| name.as_str())),
        experiment_id: run.experiment.map_or_else(String::new, |id| id.to_string()),
        state: state_out(run.status).into(),
        outcome: ended.map_or(wire::Outcome::Unspecified, |ended| outcome_out(ended.outcome)).into(),
        cause: text(ended.and_then(|ended| ended.cause).map(cause_text)),
        root: ended.and_then(|ended| ended.root.as_ref()).map(root_out),
        message: text(ended.map(|ended| ended.message.as_str())),
        has_job: run.has_job(),
        created_at: run.created_at.to_string(),
        started_at: time_out(run.started_at),
        ended_at: time_out(ended.map(|ended| ended.at)),
        sealed_at: time_out(run.seal.as_ref().map(|seal| seal.at)),
        seal_complete: run.seal.as_ref().is_some_and(|seal| seal.fact.complete),
        seal_missing: run.seal.as_ref().map(|seal| seal.fact.missing.clone()).unwrap_or_default(),
        params: run.params.iter().map(|(key, param)| (key.to_string(), param_out(param))).collect(),
        tags: run.tags.iter().map(|(key, value)| (key.to_string(), value.clone())).collect(),
        hypothesis: run.hypothesis.clone(),
        conclusion: run.conclusion.clone(),
        note: run.note.clone(),
        attempts: run.attempts.iter().map(|(number, attempt)| attempt_out(*number, attempt)).collect(),
        latest: newest(latest, false).iter().map(|(key, stats)| latest_out(key, stats)).collect(),
        waiting: run.waiting.clone(),
        created_by: run.created_by.clone(),
        sequence: run.sequence,
        duration_ms: run.duration_ms(now),
        late: run.late + late_points,
        rerun_of: run.rerun_of.map_or_else(String::new, |run| run.to_string()),
        artifact_count: u32::try_from(run.artifacts.len()).unwrap_or(u32::MAX),
        queue: text(run.queue.as_ref().map(|queue| queue.as_str())),
        priority: run.priority,
        source_commit: text(source.map(|source| source.commit.as_str())),
        source_branch: text(source.map(|source| source.branch.as_str())),
        source_dirty: source.is_some_and(|source| source.dirty),
        source_tree: source.map_or_else(String::new, |source| source.tree.to_string()),
        points,
    }
}

pub(super) fn experiment_out(experiment: &Experiment, runs: u64) -> v1::Experiment {
    v1::Experiment {
        experiment_id: experiment.id.to_string(),
        project: experiment.project.to_string(),
        name: experiment.name.as_ref().map_or_else(String::new, |name| name.to_string()),
        note: experiment.note.clone(),
        created_at: experiment.created_at.to_string(),
        runs,
        sequence: experiment.sequence,
    }
}

/// Params as JSON texts, their types kept.
pub(super) fn params_in(params: &BTreeMap<String, String>) -> Result<BTreeMap<ParamKey, ParamValue>, Invalid> {
    let read = |(key, json): (&String, &String)| {
        let field = format!("params.{key}");
        let name = ParamKey::parse(key).map_err(|invalid| invalid.of(&field))?;
        let allowed = "JSON text: a number, \"a text\" in quotes, true, null, a list or an object";
        let value: serde_json::Value = serde_json::from_str(json).map_err(|_| Invalid::new(&field, json, allowed))?;
        check_numbers(&field, &value)?;
        let value: ParamValue = serde_json::from_value(value).map_err(|_| Invalid::new(&field, json, allowed))?;
        Ok((name, value))
    };
    params.iter().map(read).collect()
}

/// A whole number is stored exactly or refused.
fn check_numbers(field: &str, value: &serde_json::Value) -> Result<(), Invalid> {
    match value {
        serde_json::Value::Number(number) if number.is_u64() && number.as_i64().is_none() => {
            Err(Invalid::new(field, number, "whole numbers from -2^63 to 2^63-1; write a larger one as text"))
        }
        serde_json::Value::Array(values) => values.iter().try_for_each(|value| check_numbers(field, value)),
        serde_json::Value::Object(values) => values.values().try_for_each(|value| check_numbers(field, value)),
        serde_json::Value::Number(_) | serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::String(_) => Ok(()),
    }
}

pub(super) fn tags_in(tags: &BTreeMap<String, String>) -> Result<BTreeMap<ParamKey, String>, Invalid> {
    let read = |(key, value): (&String, &String)| {
        let key = ParamKey::parse(key).map_err(|invalid| invalid.of(format!("tags.{key}")))?;
        Ok((key, value.clone()))
    };
    tags.iter().map(read).collect()
}

pub(super) fn inputs_in(inputs: &[wire::InputRef]) -> Result<Vec<InputRef>, Invalid> {
    let read = |input: &wire::InputRef| {
        let digest = match input.digest.as_str() {
            "" => None,
            text => Some(Digest::parse(text).map_err(|invalid| invalid.of("inputs.digest"))?),
        };
        Ok(InputRef { name: input.name.clone(), snapshot: input.snapshot.clone(), digest })
    };
    inputs.iter().map(read).collect()
}
