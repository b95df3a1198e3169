//! Pipelines: jobs that come after each other, submitted together.

use super::submit::{Submission, checked_key, given_id};
use super::together::{Part, of_part};
use super::{Jobs, refused};
use footplate_api::server::named_project;
use footplate_api::v1::{PipelineJob, SubmitPipelineRequest, SubmitPipelineResponse, SubmittedJob};
use footplate_api::{Refusal, reason};
use footplate_events::facts::AfterJob;
use footplate_scheduler_core::{State, order};
use footplate_types::{Digest, PrincipalId, ProjectName, RunId};
use footplate_wire::{after_when, job_spec_from_wire};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

/// The most jobs of a pipeline.
const JOBS_MAX: usize = 256;
/// The most characters of a job's name in its pipeline.
const NAME_MAX: usize = 63;

/// Where a job stands in the request.
fn place(name: &str) -> String {
    format!("jobs.{name}")
}

/// The same no, told of one job of a pipeline.
fn of_job(name: &str, refusal: Refusal) -> Refusal {
    of_part(name, Some(&place(name)), refusal)
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(fits) {
        return Ok(());
    }
    let refusal = Refusal::new(&reason::INVALID_FIELD, format!("{name:?} cannot name a job of a pipeline")).field("jobs.name").value(name);
    Err(refusal.allowed(format!("1 to {NAME_MAX} letters, digits, `-`, `_` and `.`")))
}

/// The jobs of a pipeline by their names: where each stands in the request.
fn places(jobs: &[PipelineJob]) -> Result<BTreeMap<&str, usize>, Refusal> {
    if jobs.is_empty() || jobs.len() > JOBS_MAX {
        let refusal = Refusal::new(&reason::INVALID_FIELD, format!("{} jobs are no pipeline", jobs.len())).field("jobs");
        return Err(refusal.value(jobs.len()).allowed(format!("1 to {JOBS_MAX} jobs")));
    }
    let mut places = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        check_name(&job.name)?;
        if places.insert(job.name.as_str(), at).is_some() {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("two jobs are called {}", job.name)).field("jobs.name");
            return Err(refusal.value(&job.name).allowed("each name once"));
        }
    }
    Ok(places)
}

/// In which order the jobs come.
fn ordered(jobs: &[PipelineJob], places: &BTreeMap<&str, usize>) -> Result<Vec<usize>, Refusal> {
    let mut after = Vec::with_capacity(jobs.len());
    for job in jobs {
        let place = |named: &str| {
            places.get(named).copied().ok_or_else(|| {
                let told = format!("job {} comes after {named}, which is no job of this pipeline", job.name);
                let there = places.keys().copied().filter(|other| *other != job.name).collect::<Vec<_>>().join(", ");
                Refusal::new(&reason::INVALID_SPEC, told).field(format!("jobs.{}.after", job.name)).value(named).allowed(there)
            })
        };
        after.push(job.after.iter().map(|after| place(&after.name)).collect::<Result<Vec<usize>, Refusal>>()?);
    }
    order(&after).map_err(|circle| {
        let names: Vec<&str> = circle.iter().chain(circle.first()).filter_map(|at| Some(jobs.get(*at)?.name.as_str())).collect();
        let told = format!("jobs wait for each other in a circle: {}", names.join(" after "));
        Refusal::new(&reason::INVALID_SPEC, told).field("jobs.after").value(names.join(" after ")).allowed("no circle")
    })
}

/// The jobs of a request, in the order in which they come.
fn parts(request: &SubmitPipelineRequest) -> Result<Vec<Part>, Refusal> {
    let project = named_project(&request.project)?;
    let key = checked_key(&request.request_id)?;
    let places = places(&request.jobs)?;
    let order = ordered(&request.jobs, &places)?;
    let mut runs = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for job in &request.jobs {
        let given = given_id(&job.run_id).map_err(|refusal| of_job(&job.name, refusal))?;
        let by_key = (!key.is_empty()).then(|| RunId::for_key(&project, "pipeline", &format!("{key}/{}", job.name)));
        let run = given.or(by_key).unwrap_or_else(footplate_clock::run_id);
        if !taken.insert(run) {
            let refusal = Refusal::new(&reason::ID_TAKEN, format!("two jobs have the run id {run}")).field("run_id").value(run);
            return Err(of_job(&job.name, refusal));
        }
        runs.insert(job.name.as_str(), run);
    }
    // Under one key it is the same pipeline or another one: what any of its jobs says is part of every one's body.
    let whole = SubmitPipelineRequest { jobs: request.jobs.clone(), ..SubmitPipelineRequest::default() }.encode_to_vec();
    let read = |at: usize| {
        let job = &request.jobs[at];
        part(request, job, &project, &key, &runs, &whole).map_err(|refusal| of_job(&job.name, refusal))
    };
    order.into_iter().map(read).collect()
}

fn part(
    request: &SubmitPipelineRequest,
    job: &PipelineJob,
    project: &ProjectName,
    key: &str,
    runs: &BTreeMap<&str, RunId>,
    whole: &[u8],
) -> Result<Part, Refusal> {
    let wire = job.spec.as_ref().ok_or_else(|| Refusal::new(&reason::MISSING_FIELD, "the job asks for nothing").field("spec"))?;
    let unfit = |invalid: footplate_types::Invalid| refused(invalid.into());
    let mut spec = job_spec_from_wire(wire).map_err(unfit)?;
    for after in &job.after {
        if let Some(run) = runs.get(after.name.as_str()) {
            spec.after.push(AfterJob { run: *run, when: after_when(after.when).map_err(unfit)? });
        }
    }
    let run = runs.get(job.name.as_str()).copied().unwrap_or_else(footplate_clock::run_id);
    let submission = Submission {
        project: project.clone(),
        run,
        named: !key.is_empty() || !job.run_id.is_empty(),
        given: !job.run_id.is_empty(),
        key: key.to_owned(),
        spec,
        body: Digest::of(&[whole, job.name.as_bytes()].concat()),
        queue_anyway: request.queue_anyway,
    };
    Ok(Part { name: job.name.clone(), place: Some(place(&job.name)), submission })
}

fn answer(parts: &[Part], sequences: Vec<u64>) -> SubmitPipelineResponse {
    let submitted = |(part, sequence): (&Part, &u64)| SubmittedJob {
        name: part.name.clone(),
        run_id: part.submission.run.to_string(),
        sequence: *sequence,
        remark: String::new(),
    };
    SubmitPipelineResponse {
        sequence: sequences.iter().copied().max().unwrap_or(0),
        jobs: parts.iter().zip(&sequences).map(submitted).collect(),
    }
}

impl Jobs {
    pub(super) async fn pipeline(&self, request: SubmitPipelineRequest, actor: PrincipalId) -> Result<SubmitPipelineResponse, Refusal> {
        let parts = parts(&request)?;
        self.shell.caught_up().await?;
        if let Some(sequences) = self.together_standing(&parts).await? {
            return Ok(answer(&parts, sequences));
        }
        {
            let state = self.shell.live.read();
            admit_all(&state, &parts)?;
            if request.dry_run {
                let told = |part: &Part| SubmittedJob {
                    name: part.name.clone(),
                    remark: part.submission.outlook(&state),
                    ..SubmittedJob::default()
                };
                return Ok(SubmitPipelineResponse { jobs: parts.iter().map(told).collect(), sequence: 0 });
            }
        }
        let sequences = self.append_together(&parts, &actor).await?;
        Ok(answer(&parts, sequences))
    }
}

fn admit_all(state: &State, parts: &[Part]) -> Result<(), Refusal> {
    let beside: BTreeSet<RunId> = parts.iter().map(|part| part.submission.run).collect();
    parts.iter().try_for_each(|part| part.submission.admit(state, &beside).map_err(|refusal| part.told(refusal)))
}
