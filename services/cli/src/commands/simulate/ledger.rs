//! Jobs as a ledger tells of them: when they came, what they asked, and how long they ran; for another policy or cluster to be tried on what has been.

use footplate_events::facts::JobSubmitted;
use footplate_scheduler_simulate::{Arrival, Workload};
use footplate_types::{Invalid, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is read of one line of `footplate event tail -o json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    r#type: String,
    aggregate: String,
    aggregate_id: String,
    recorded_at: String,
    data: Value,
}

/// A job as far as the ledger tells of it.
struct Past {
    submitted: Timestamp,
    spec: Arc<footplate_events::facts::JobSpec>,
    launched: Option<Timestamp>,
    ran_ms: u64,
    ended: bool,
}

/// The jobs of these lines, from the first that came, and how many are left out: those that had not ended or never ran, of which nobody knows how long they
/// take. Times are the broker's. What is not about a job is passed over.
pub(super) fn arrivals(text: &str) -> Result<(Vec<Arrival>, usize), Invalid> {
    let mut jobs: BTreeMap<String, Past> = BTreeMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| Invalid::new(format!("line {} of the ledger", at + 1), line, why);
        let told: Told = serde_json::from_str(line)
            .map_err(|error| wrong(format!("one event a line, as `footplate event tail -o json` prints them ({error})")))?;
        if told.aggregate != "job" {
            continue;
        }
        let now = Timestamp::parse(&told.recorded_at).map_err(|invalid| wrong(invalid.allowed))?;
        if told.r#type.starts_with("footplate.job.submitted.") {
            if jobs.len() >= Workload::JOBS_MAX as usize {
                return Err(wrong(format!("at most {} jobs", Workload::JOBS_MAX)));
            }
            let fact: JobSubmitted = serde_json::from_value(told.data).map_err(|error| wrong(format!("a submission ({error})")))?;
            let past = Past { submitted: now, spec: Arc::new(fact.spec), launched: None, ran_ms: 0, ended: false };
            jobs.entry(told.aggregate_id).or_insert(past);
            continue;
        }
        // One that came before the first of these lines is not known.
        let Some(past) = jobs.get_mut(&told.aggregate_id) else { continue };
        let is = |verb: &str| told.r#type.starts_with(&format!("footplate.job.{verb}."));
        if is("launched") {
            past.launched = Some(now);
        } else if is("requeued") || is("ended") {
            past.ran_ms = past.ran_ms.saturating_add(past.launched.take().map_or(0, |launched| now.millis_since(launched)));
            past.ended |= is("ended");
        }
    }
    let all = jobs.len();
    let begin = jobs.values().map(|past| past.submitted).min().unwrap_or_default();
    let known = jobs.into_values().filter(|past| past.ended && past.ran_ms > 0);
    let mut arrivals: Vec<(Timestamp, Arrival)> = known
        .map(|past| {
            let arrival = Arrival { at_ms: past.submitted.millis_since(begin), takes_ms: past.ran_ms, spec: past.spec };
            (past.submitted, arrival)
        })
        .collect();
    if arrivals.is_empty() {
        return Err(Invalid::new("the ledger", format!("{all} jobs"), "at least one job that ran and ended"));
    }
    arrivals.sort_by_key(|(submitted, _)| *submitted);
    let left_out = all - arrivals.len();
    Ok((arrivals.into_iter().map(|(_, arrival)| arrival).collect(), left_out))
}
