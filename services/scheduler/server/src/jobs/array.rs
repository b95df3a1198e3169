//! Arrays: many jobs of one specification, submitted together, that differ in one number; and what is asked of all of them.

use super::submit::{Submission, checked_key, given_id};
use super::together::Part;
use super::{Jobs, refused};
use crate::shell::{Shell, run_of};
use footplate_api::server::named_project;
use footplate_api::v1::{SubmitArrayRequest, SubmitArrayResponse, SubmittedArrayJob};
use footplate_api::{Refusal, reason};
use footplate_events::facts::{ArrayMember, JobSpec, array_indices};
use footplate_scheduler_core::State;
use footplate_types::{Digest, DisplayName, Invalid, PrincipalId, ProjectName, RunId};
use footplate_wire::job_spec_from_wire;
use prost::Message;
use std::collections::BTreeSet;

/// The most bytes of an array's specifications together: they are one append.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The labels (and so the run's tags) that name a run's array and its index, unless the client sets them.
const LABELS: [&str; 2] = ["array", "array_index"];

fn unfit(invalid: Invalid) -> Refusal {
    refused(invalid.into())
}

/// The jobs of a request, in the order of their indices.
fn parts(request: &SubmitArrayRequest) -> Result<Vec<Part>, Refusal> {
    let project = named_project(&request.project)?;
    let key = checked_key(&request.request_id)?;
    let wire = request.spec.as_ref().ok_or_else(|| Refusal::new(&reason::MISSING_FIELD, "the jobs ask for nothing").field("spec"))?;
    if wire.array.is_some() {
        let told = "the jobs of an array are told which they are by their array";
        return Err(Refusal::new(&reason::INVALID_SPEC, told).field("spec.array").allowed("nothing: indices and at_once say it"));
    }
    let spec = job_spec_from_wire(wire).map_err(unfit)?;
    let indices = array_indices(&request.indices).map_err(unfit)?;
    let bytes = wire.encoded_len().saturating_mul(indices.len());
    if bytes > BYTES_MAX {
        let told = format!("{} jobs of {} bytes each are too much for one append", indices.len(), wire.encoded_len());
        let refusal = Refusal::new(&reason::INVALID_FIELD, told).field("indices").value(indices.len());
        return Err(refusal.allowed(format!("at most {BYTES_MAX} bytes of all specifications together")));
    }
    let given = given_id(&request.array_id).map_err(|refusal| refusal.field("array_id"))?;
    let by_key = (!key.is_empty()).then(|| RunId::for_key(&project, "array", &key));
    let id = given.or(by_key).unwrap_or_else(footplate_clock::run_id);
    // Under one key it is the same array or another one: what is asked is part of every one's body.
    let whole = SubmitArrayRequest {
        spec: request.spec.clone(),
        indices: request.indices.clone(),
        at_once: request.at_once,
        ..SubmitArrayRequest::default()
    };
    let whole = whole.encode_to_vec();
    let count = indices.len() as u32;
    let part = |(at, index): (usize, &u32)| {
        let array = ArrayMember { id, index: *index, count, at_once: request.at_once };
        let spec = member(&spec, array).map_err(unfit)?;
        let submission = Submission {
            project: project.clone(),
            // The first one names the array; the others follow from it, so that who asks again asks for the same.
            run: if at == 0 { id } else { run_in(&project, id, *index) },
            named: given.is_some() || by_key.is_some(),
            given: at == 0 && given.is_some(),
            key: key.clone(),
            spec,
            body: Digest::of(&[&whole[..], &index.to_be_bytes()].concat()),
            queue_anyway: request.queue_anyway,
        };
        Ok(Part { name: submission.spec.name.to_string(), place: None, submission })
    };
    indices.iter().enumerate().map(part).collect()
}

/// The run of a job of an array that is not its first.
fn run_in(project: &ProjectName, id: RunId, index: u32) -> RunId {
    RunId::for_key(project, "array member", &format!("{id}/{index}"))
}

/// One of an array, of the specification that all of them have.
fn member(spec: &JobSpec, array: ArrayMember) -> Result<JobSpec, Invalid> {
    let mut spec = JobSpec { array: Some(array), ..spec.clone() };
    spec.name = DisplayName::parse(&format!("{}-{}", spec.name, array.index)).map_err(|invalid| invalid.of("name"))?;
    for (label, value) in LABELS.into_iter().zip([array.id.to_string(), array.index.to_string()]) {
        spec.labels.entry(label.to_owned()).or_insert(value);
    }
    spec.validate()?;
    Ok(spec)
}

fn answer(parts: &[Part], sequences: &[u64]) -> SubmitArrayResponse {
    let index = |part: &Part| part.submission.spec.array.map_or(0, |array| array.index);
    let job = |(part, sequence): (&Part, &u64)| SubmittedArrayJob {
        index: index(part),
        run_id: part.submission.run.to_string(),
        sequence: *sequence,
    };
    SubmitArrayResponse {
        array_id: parts.first().map(|part| part.submission.run.to_string()).unwrap_or_default(),
        jobs: parts.iter().zip(sequences).map(job).collect(),
        sequence: sequences.iter().copied().max().unwrap_or(0),
        remark: String::new(),
    }
}

impl Jobs {
    pub(super) async fn array(&self, request: SubmitArrayRequest, actor: PrincipalId) -> Result<SubmitArrayResponse, Refusal> {
        let parts = parts(&request)?;
        self.shell.caught_up().await?;
        if let Some(sequences) = self.together_standing(&parts).await? {
            return Ok(answer(&parts, &sequences));
        }
        if let Some(first) = parts.first() {
            // They ask the same: what lets one in lets all in.
            let state = self.shell.live.read();
            first.submission.admit(&state, &BTreeSet::new())?;
            if request.dry_run {
                let jobs =
                    answer(&parts, &vec![0; parts.len()]).jobs.into_iter().map(|job| SubmittedArrayJob { run_id: String::new(), ..job });
                return Ok(SubmitArrayResponse {
                    jobs: jobs.collect(),
                    remark: first.submission.outlook(&state),
                    ..SubmitArrayResponse::default()
                });
            }
        }
        let sequences = self.append_together(&parts, &actor).await?;
        Ok(answer(&parts, &sequences))
    }
}

/// The array that its id names, or any job of it.
pub(super) fn array_of(shell: &Shell, project: &ProjectName, field: &'static str, text: &str) -> Result<RunId, Refusal> {
    let run = run_of(shell, project, text).map_err(|refusal| refusal.field(field))?;
    let array = array_in(&shell.live.read(), &run);
    array.map(|array| array.id).ok_or_else(|| {
        Refusal::new(&reason::JOB_NOT_FOUND, format!("run {run} is no job of an array")).field(field).value(run).next("name any job of one")
    })
}

/// Which one of an array a job is, living or ended.
fn array_in(state: &State, run: &RunId) -> Option<ArrayMember> {
    let living = state.jobs().get(run).and_then(|job| job.spec.array);
    living.or_else(|| state.ended().get(run)?.array)
}
