//! Reads: one job, all jobs, why one waits.

use super::Jobs;
use super::array::array_of;
use super::history::{history, how_it_ended};
use super::show::{self, STATES, reason_words, state_of};
use footplate_api::server::named_project;
use footplate_api::v1::{ExplainJobResponse, GetJobRequest, GetJobResponse, Job, ListJobsRequest, ListJobsResponse, PoolRoom};
use footplate_api::{Refusal, reason};
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Forecast, State, explain};
use footplate_types::{ProjectName, QueueName, RunId};
use footplate_wire::job_spec_to_wire;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs of a page when the client names no number.
const PAGE_DEFAULT: u32 = 50;
/// The most jobs of a page.
const PAGE_MAX: u32 = 500;

impl Jobs {
    pub(super) async fn get(&self, request: GetJobRequest) -> Result<GetJobResponse, Refusal> {
        let project = named_project(&request.project)?;
        self.shell.at_least(request.at_least).await?;
        let run = crate::shell::run_of(&self.shell, &project, &request.run_id)?;
        let (mut job, view_sequence) = {
            let (state, view) = self.shell.live.read_at();
            (of(&state, &run), view)
        };
        if let Some(job) = job.as_mut().filter(|job| job.spec.is_none()) {
            // An ended job has left its specification in the ledger.
            let (events, _) = self.shell.aggregate(&Subject::job(&project, run)).await?;
            job.spec = events.iter().find_map(|recorded| match &recorded.envelope.event {
                Event::JobSubmitted(fact) => Some(job_spec_to_wire(&fact.spec)),
                _ => None,
            });
        }
        Ok(GetJobResponse { job, view_sequence })
    }

    pub(super) async fn list(&self, request: ListJobsRequest) -> Result<ListJobsResponse, Refusal> {
        let mut wanted = Wanted::read(&request)?;
        self.shell.at_least(request.at_least).await?;
        if !request.array.is_empty() {
            let project = wanted.project.as_ref().ok_or_else(|| {
                Refusal::new(&reason::MISSING_FIELD, "an array is of one project").field("project").next("name the project too")
            })?;
            wanted.array = Some(array_of(&self.shell, project, "array", &request.array)?);
        }
        let (state, view_sequence) = self.shell.live.read_at();
        // Newest first, by the order of submission; the token is the last one shown.
        let mut page: BTreeMap<u64, RunId> = BTreeMap::new();
        let most = wanted.most + 1;
        for (submitted, run) in wanted.matching(&state) {
            page.insert(submitted, run);
            if page.len() > most {
                page.pop_first();
            }
        }
        let mut shown: Vec<(u64, RunId)> = page.into_iter().rev().collect();
        let more = shown.len() > wanted.most;
        shown.truncate(wanted.most);
        let next_page_token = shown.last().filter(|_| more).map(|(submitted, _)| submitted.to_string()).unwrap_or_default();
        let brief = |run: &RunId| of(&state, run).map(|job| Job { spec: None, ..job });
        let jobs = shown.iter().filter_map(|(_, run)| brief(run)).collect();
        Ok(ListJobsResponse { jobs, next_page_token, view_sequence })
    }

    pub(super) async fn explain(&self, project: &ProjectName, request: &GetJobRequest) -> Result<ExplainJobResponse, Refusal> {
        self.shell.at_least(request.at_least).await?;
        let run = crate::shell::run_of(&self.shell, project, &request.run_id)?;
        let (events, _) = self.shell.aggregate(&Subject::job(project, run)).await?;
        let (state, view_sequence) = self.shell.live.read_at();
        let Some(job) = of(&state, &run) else {
            return Err(Refusal::new(&reason::JOB_NOT_FOUND, format!("no job {run} in project {project}")));
        };
        let waits = explain(&state, &run, self.shell.clock.now());
        let position = waits.as_ref().map_or(0, |waits| u32::try_from(waits.position).unwrap_or(u32::MAX));
        let reason = match &waits {
            Some(waits) => waits.reason.as_ref().map_or_else(|| "it is placed at the next look".to_owned(), reason_words),
            None => how_it_ended(&events).unwrap_or_else(|| job.reason.clone()),
        };
        let pools = waits.iter().flat_map(|waits| &waits.pools).map(|room| PoolRoom { pool: room.pool.clone(), binds: room.binds.clone() });
        let (starts_within_ms, start_unknown) = match waits.as_ref().and_then(|waits| waits.start.as_ref()) {
            Some(Forecast::Within(within)) => (Some(within.0), String::new()),
            Some(Forecast::Unknown(why)) => (None, (*why).to_owned()),
            None => (None, String::new()),
        };
        Ok(ExplainJobResponse {
            pools: pools.collect(),
            starts_within_ms,
            start_unknown,
            deadline: waits.as_ref().map(|waits| waits.deadline.clone()).unwrap_or_default(),
            run_id: job.run_id,
            state: job.state,
            reason,
            would_help: waits.map(|waits| waits.change).into_iter().collect(),
            position,
            history: history(&events),
            view_sequence,
        })
    }
}

/// A job with its specification where the view has it.
fn of(state: &State, run: &RunId) -> Option<Job> {
    let living = state.jobs().get(run).map(|job| Job { spec: Some(job_spec_to_wire(&job.spec)), ..show::living(job) });
    living.or_else(|| state.ended().get(run).map(show::ended))
}

/// Which jobs a list shows.
struct Wanted {
    project: Option<ProjectName>,
    queue: Option<QueueName>,
    /// The array; of the project that is named.
    array: Option<RunId>,
    states: BTreeSet<String>,
    before: u64,
    most: usize,
}

impl Wanted {
    fn read(request: &ListJobsRequest) -> Result<Self, Refusal> {
        let project = if request.project.is_empty() { None } else { Some(named_project(&request.project)?) };
        let queue = match request.queue.as_str() {
            "" => None,
            name => Some(QueueName::parse(name).map_err(|invalid| Refusal::from(invalid.of("queue")))?),
        };
        if let Some(unknown) = request.states.iter().find(|state| !STATES.contains(&state.as_str())) {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("no job is ever {unknown:?}")).field("states").value(unknown);
            return Err(refusal.allowed(STATES.join(", ")));
        }
        let living = || STATES.into_iter().filter(|state| *state != "ended").map(str::to_owned).collect();
        let states = if request.states.is_empty() { living() } else { request.states.iter().cloned().collect() };
        let before = match request.page_token.as_str() {
            "" => u64::MAX,
            token => token
                .parse()
                .map_err(|_| Refusal::new(&reason::INVALID_PAGE_TOKEN, "the page token is none of ours").field("page_token"))?,
        };
        let most = if request.page_size == 0 { PAGE_DEFAULT } else { request.page_size.min(PAGE_MAX) };
        Ok(Self { project, queue, array: None, states, before, most: most as usize })
    }

    fn matching<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (u64, RunId)> + 'a {
        let fits = |project: &ProjectName, queue: &QueueName, array: Option<RunId>, submitted: u64| {
            submitted < self.before
                && self.array.is_none_or(|wanted| array == Some(wanted))
                && self.project.as_ref().is_none_or(|wanted| wanted == project)
                && self.queue.as_ref().is_none_or(|wanted| wanted == queue)
        };
        let living = state.jobs().iter().filter_map(move |(run, job)| {
            let submitted = job.submitted.sequence;
            (self.states.contains(state_of(job)) && fits(&job.project, &job.spec.queue, job.spec.array.map(|array| array.id), submitted))
                .then_some((submitted, *run))
        });
        let wants_ended = self.states.contains("ended");
        let ended = state.ended().iter().filter(move |_| wants_ended).filter_map(move |(run, job)| {
            let array = job.array.map(|array| array.id);
            fits(&job.project, &job.queue, array, job.submitted.sequence).then_some((job.submitted.sequence, *run))
        });
        living.chain(ended)
    }
}
