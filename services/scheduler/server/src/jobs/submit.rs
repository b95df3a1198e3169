//! Submissions: one key, one run; the same key with another body is refused and told which run it made.

use super::{Jobs, refused};
use crate::jobs::show::reason_words;
use footplate_api::server::named_project;
use footplate_api::v1::{SubmitJobRequest, SubmitJobResponse};
use footplate_api::{Refusal, reason};
use footplate_eventlog::LedgerItem;
use footplate_events::facts::{JobSpec, JobSubmitted};
use footplate_events::{Aggregate, Event, Subject};
use footplate_scheduler_core::{State, admit, outlook};
use footplate_shell::away;
use footplate_types::{Digest, EventId, PrincipalId, ProjectName, RunId};
use footplate_wire::job_spec_from_wire;
use prost::Message;

/// The most characters of an idempotency key.
const KEY_MAX: usize = 256;

/// What a submission is about, before anything is looked up.
struct Submission {
    project: ProjectName,
    run: RunId,
    /// Whether someone else may have used the id: a key or an id of the client's own.
    named: bool,
    /// Whether the id itself is the client's own, so that it may stand for something else than a job.
    given: bool,
    key: String,
    spec: JobSpec,
    body: Digest,
    queue_anyway: bool,
}

/// A submission that stands in the ledger.
struct Known {
    project: ProjectName,
    name: String,
    body: Digest,
    sequence: u64,
}

impl Submission {
    fn read(request: &SubmitJobRequest) -> Result<Self, Refusal> {
        let project = named_project(&request.project)?;
        let wire = request.spec.as_ref().ok_or_else(|| Refusal::new(&reason::MISSING_FIELD, "the job asks for nothing").field("spec"))?;
        let unfit = |invalid: footplate_types::Invalid| refused(invalid.into());
        let spec = job_spec_from_wire(wire).map_err(unfit)?;
        let key = request.request_id.clone();
        if key.chars().count() > KEY_MAX {
            let refusal = Refusal::new(&reason::INVALID_FIELD, "the request id is too long").field("request_id");
            return Err(refusal.allowed(format!("at most {KEY_MAX} characters")));
        }
        let given = match request.run_id.as_str() {
            "" => None,
            text => Some(RunId::parse(text).map_err(|invalid| Refusal::from(invalid.of("run_id")))?),
        };
        let by_key = (!key.is_empty()).then(|| RunId::for_key(&project, "job", &key));
        let named = given.is_some() || by_key.is_some();
        let is_given = given.is_some();
        let run = given.or(by_key).unwrap_or_else(footplate_clock::run_id);
        let body = Digest::of(&wire.encode_to_vec());
        Ok(Self { project, run, named, given: is_given, key, spec, body, queue_anyway: request.queue_anyway })
    }

    fn subject(&self) -> Subject {
        Subject::job(&self.project, self.run)
    }

    /// The answer when the id stands already: the same submission, or a conflict.
    fn repeated(&self, known: &Known) -> Result<SubmitJobResponse, Refusal> {
        if known.project == self.project && known.body == self.body {
            return Ok(SubmitJobResponse { run_id: self.run.to_string(), sequence: known.sequence, remark: String::new() });
        }
        if known.project != self.project {
            let told = format!("run id {} is taken; choose another", self.run);
            return Err(Refusal::new(&reason::ID_TAKEN, told).field("run_id").value(self.run));
        }
        if self.key.is_empty() {
            return Err(Refusal::new(&reason::ID_TAKEN, format!("run {} exists already: {:?}", self.run, known.name)).field("run_id"));
        }
        let told = format!("request id {:?} was used for run {} ({:?}) with another body", self.key, self.run, known.name);
        Err(Refusal::new(&reason::IDEMPOTENCY_KEY_REUSED, told).field("request_id").value(self.run))
    }
}

/// A submission of this id in the view.
fn known(state: &State, run: &RunId) -> Option<Known> {
    let living = state.jobs().get(run).map(|job| Known {
        project: job.project.clone(),
        name: job.spec.name.to_string(),
        body: job.body,
        sequence: job.submitted.sequence,
    });
    living.or_else(|| {
        state.ended().get(run).map(|job| Known {
            project: job.project.clone(),
            name: job.name.to_string(),
            body: job.body,
            sequence: job.submitted.sequence,
        })
    })
}

impl Jobs {
    pub(super) async fn submit(&self, request: SubmitJobRequest, actor: PrincipalId) -> Result<SubmitJobResponse, Refusal> {
        let submission = Submission::read(&request)?;
        // An id that somebody may have used before is looked up in everything that stands in the ledger now; ids are never used twice.
        if submission.named || request.dry_run {
            self.shell.caught_up().await?;
        }
        {
            let state = self.shell.live.read();
            if let Some(known) = known(&state, &submission.run).filter(|_| submission.named) {
                return submission.repeated(&known);
            }
            admit(&state, &submission.spec, submission.queue_anyway).map_err(refused)?;
            if request.dry_run {
                let remark = outlook(&state, &submission.spec).map_or_else(|| "it could start now".to_owned(), |wait| reason_words(&wait));
                return Ok(SubmitJobResponse { run_id: String::new(), sequence: 0, remark });
            }
        }
        if submission.named {
            self.refuse_foreign(&submission).await?;
        }
        if submission.given {
            self.refuse_notebook(&submission).await?;
        }
        self.append_submission(submission, actor).await
    }

    /// An id that a client minted may stand for a run without a job already; the scheduler's view does not hold those.
    async fn refuse_notebook(&self, submission: &Submission) -> Result<(), Refusal> {
        let (events, _) = self.shell.aggregate(&Subject::run(&submission.project, submission.run)).await?;
        if events.iter().any(|recorded| matches!(recorded.envelope.event, Event::RunCreated(_))) {
            let told = format!("run {} exists already, as a run without a job", submission.run);
            return Err(Refusal::new(&reason::ID_TAKEN, told).field("run_id").value(submission.run));
        }
        Ok(())
    }

    /// Series know runs by their id alone, so an id that stands in another project is never one in this. Of what it is there nothing is told.
    async fn refuse_foreign(&self, submission: &Submission) -> Result<(), Refusal> {
        for kind in [Aggregate::Run, Aggregate::Job] {
            let filter = format!("{}.*.{}.{}", Subject::PREFIX, kind.as_str(), submission.run);
            let mut from = Some(1);
            while let Some(next) = from {
                let (items, more) = self.shell.ledger.read(&filter, next, 1).await.map_err(away)?;
                let own = format!("{}.{}.", Subject::PREFIX, submission.project);
                let is_foreign = |item: &LedgerItem| match item {
                    LedgerItem::Fact(recorded) => recorded.envelope.subject.project != submission.project,
                    LedgerItem::Unknown { subject, .. } | LedgerItem::Poison { subject, .. } => !subject.starts_with(&own),
                    LedgerItem::Position(_) => false,
                };
                if items.iter().any(is_foreign) {
                    let told = format!("run id {} is taken; choose another", submission.run);
                    return Err(Refusal::new(&reason::ID_TAKEN, told).field("run_id").value(submission.run));
                }
                // The first event of an aggregate says whose it is: what follows in this project's own is not read.
                from = if items.is_empty() { more } else { None };
            }
        }
        Ok(())
    }

    async fn append_submission(&self, submission: Submission, actor: PrincipalId) -> Result<SubmitJobResponse, Refusal> {
        // The same submission at two instances is one event: whoever comes second finds it standing and answers the same.
        let id = EventId::derived(&[b"submitted", submission.run.as_bytes(), submission.body.as_bytes()]);
        let fact = JobSubmitted { spec: submission.spec.clone(), body: submission.body };
        let envelope = self.shell.envelope(id, submission.subject(), fact, actor);
        if let Some(sequence) = self.shell.append(envelope, 0).await? {
            return Ok(SubmitJobResponse { run_id: submission.run.to_string(), sequence, remark: String::new() });
        }
        let (events, _) = self.shell.aggregate(&submission.subject()).await?;
        let first = events.into_iter().find_map(|recorded| match recorded.envelope.event {
            Event::JobSubmitted(fact) => Some((fact, recorded.sequence)),
            _ => None,
        });
        match first {
            Some((fact, sequence)) => submission.repeated(&Known {
                project: submission.project.clone(),
                name: fact.spec.name.to_string(),
                body: fact.body,
                sequence,
            }),
            None => Err(Refusal::internal(format!("{} was refused as taken and has no submission", submission.subject()))),
        }
    }
}
