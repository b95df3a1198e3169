//! Requests about a job: recorded by any instance, answered by the leader in the job's own events.

use super::Jobs;
use super::array::array_of;
use footplate_api::server::named_project;
use footplate_api::server::{deadline, principal};
use footplate_api::v1::{CancelArrayResponse, JobRequest, JobRequestResponse};
use footplate_api::{Refusal, reason};
use footplate_events::facts::{Outcome, cut_text};
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Answer, Job};
use footplate_shell::{TRIES, repeated};
use footplate_types::{EventId, PrincipalId, ProjectName, RequestId, RunId};
use futures::{StreamExt, TryStreamExt};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// Time that is left of a call's deadline for its answer's way back.
const WAY_BACK: Duration = Duration::from_millis(50);
/// Jobs of an array about which a request is recorded at once.
const ASKED_AT_ONCE: usize = 32;

impl Jobs {
    /// Records a request and, when asked to, waits for the leader's answer.
    pub(super) async fn ask(
        &self,
        request: Request<JobRequest>,
        event: impl Fn(RequestId, String) -> Event + Send,
    ) -> Result<Response<JobRequestResponse>, Status> {
        let actor = principal(&request)?;
        let until = deadline(&request);
        let request = request.into_inner();
        let project = named_project(&request.project)?;
        self.shell.caught_up().await?;
        let run = crate::shell::run_of(&self.shell, &project, &request.run_id)?;
        let id = match request.request_id.as_str() {
            "" => footplate_clock::request_id(),
            key => RequestId::derived(&[b"job", run.as_bytes(), key.as_bytes()]),
        };
        let event = event(id, cut_text(&request.reason));
        let sequence = self.append_request(&project, run, (id, request.request_id.as_str()), event, actor).await?;
        let answer = match self.answer_of(&run, &id) {
            None if request.wait => self.wait_for_answer(&run, &id, until).await,
            known => known,
        };
        Ok(Response::new(JobRequestResponse {
            sequence: answer.as_ref().map_or(sequence, |answer| answer.sequence.max(sequence)),
            answered: answer.is_some(),
            refused: answer.and_then(|answer| answer.refused).unwrap_or_default(),
        }))
    }

    /// Records the same request about every job of an array that has not ended and, when asked to, waits for the leader's answers.
    pub(super) async fn ask_array(
        &self,
        request: Request<JobRequest>,
        event: impl Fn(RequestId, String) -> Event + Send + Sync,
    ) -> Result<Response<CancelArrayResponse>, Status> {
        let actor = principal(&request)?;
        let until = deadline(&request);
        let request = request.into_inner();
        let project = named_project(&request.project)?;
        self.shell.caught_up().await?;
        let array = array_of(&self.shell, &project, "run_id", &request.run_id)?;
        let of_array = |job: &Job| job.project == project && job.spec.array.is_some_and(|of| of.id == array);
        let mut runs: Vec<(u64, RunId)> = {
            let state = self.shell.live.read();
            state.jobs().values().filter(|job| of_array(job)).map(|job| (job.submitted.sequence, job.run)).collect()
        };
        // The last one first: or those behind would be placed as those before them leave.
        runs.sort_unstable_by(|one, other| other.cmp(one));
        let reason = cut_text(&request.reason);
        let asks = runs.into_iter().map(|(_, run)| {
            let id = match request.request_id.as_str() {
                "" => footplate_clock::request_id(),
                key => RequestId::derived(&[b"job", run.as_bytes(), key.as_bytes()]),
            };
            let (event, key, actor, project) = (event(id, reason.clone()), request.request_id.as_str(), actor.clone(), &project);
            async move {
                match self.append_request(project, run, (id, key), event, actor).await {
                    Ok(sequence) => Ok(Some((run, id, sequence))),
                    // It was quicker.
                    Err(refusal) if refusal.reason == reason::JOB_ENDED.word => Ok(None),
                    Err(refusal) => Err(refusal),
                }
            }
        });
        let asked: Vec<Option<(RunId, RequestId, u64)>> = futures::stream::iter(asks).buffered(ASKED_AT_ONCE).try_collect().await?;
        let mut answer = CancelArrayResponse { array_id: array.to_string(), ..CancelArrayResponse::default() };
        for (run, id, sequence) in asked.into_iter().flatten() {
            let told = match self.answer_of(&run, &id) {
                None if request.wait => self.wait_for_answer(&run, &id, until).await,
                known => known,
            };
            answer.asked += 1;
            answer.answered += u32::from(told.is_some());
            answer.sequence = answer.sequence.max(sequence).max(told.map_or(0, |told| told.sequence));
        }
        Ok(Response::new(answer))
    }

    fn answer_of(&self, run: &RunId, id: &RequestId) -> Option<Answer> {
        self.shell.live.read().answer(run, id).cloned()
    }

    /// Nothing is asked of a job that has ended; the leader would refuse it too.
    fn must_live(&self, run: &RunId) -> Result<(), Refusal> {
        let state = self.shell.live.read();
        let Some(ended) = state.ended().get(run) else { return Ok(()) };
        let how = match ended.fact.outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "was cancelled",
        };
        Err(Refusal::new(&reason::JOB_ENDED, format!("the job of run {run} has ended already: it {how}")))
    }

    async fn append_request(
        &self,
        project: &ProjectName,
        run: RunId,
        (request, key): (RequestId, &str),
        event: Event,
        actor: PrincipalId,
    ) -> Result<u64, Refusal> {
        let subject = Subject::job_request(project, run);
        let id = EventId::derived(&[b"requested", request.as_bytes()]);
        for _ in 0..TRIES {
            let (events, expected) = self.shell.aggregate(&subject).await?;
            if let Some(sequence) = repeated(&events, id, &event, key)? {
                return Ok(sequence);
            }
            self.must_live(&run)?;
            let envelope = self.shell.envelope(id, subject.clone(), event.clone(), actor.clone());
            if let Some(sequence) = self.shell.append(envelope, expected).await? {
                return Ok(sequence);
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, "many requests about this job came at once"))
    }

    /// The leader's answer; `None` when it did not come in time.
    async fn wait_for_answer(&self, run: &RunId, id: &RequestId, until: Option<Instant>) -> Option<Answer> {
        let longest = Instant::now() + self.shell.wait;
        let until = until.and_then(|until| until.checked_sub(WAY_BACK)).map_or(longest, |until| until.min(longest));
        let mut changes = self.shell.live.changes();
        let answered = async {
            loop {
                if let Some(answer) = self.answer_of(run, id) {
                    return Some(answer);
                }
                changes.changed().await.ok()?;
            }
        };
        tokio::time::timeout_at(until, answered).await.unwrap_or(None)
    }
}
