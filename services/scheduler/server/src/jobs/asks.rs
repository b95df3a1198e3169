//! Requests about a job: recorded by any instance, answered by the leader in the job's own events.

use super::Jobs;
use footplate_api::server::named_project;
use footplate_api::server::{deadline, principal};
use footplate_api::v1::{JobRequest, JobRequestResponse};
use footplate_api::{Refusal, reason};
use footplate_events::facts::{Outcome, cut_text};
use footplate_events::{Event, Subject};
use footplate_scheduler_core::Answer;
use footplate_shell::{TRIES, repeated};
use footplate_types::{EventId, PrincipalId, ProjectName, RequestId, RunId};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// Time that is left of a call's deadline for its answer's way back.
const WAY_BACK: Duration = Duration::from_millis(50);

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
