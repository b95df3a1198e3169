//! Submissions: one key, one run; the same key with another body is refused and told which run it made.

use super::{Jobs, refused};
use crate::jobs::show::reason_words;
use footplate_api::server::named_project;
use footplate_api::v1::{SubmitJobRequest, SubmitJobResponse};
use footplate_api::{Refusal, reason};
use footplate_eventlog::LedgerItem;
use footplate_events::facts::{JobSpec, JobSubmitted};
use footplate_events::{Aggregate, Event, Subject};
use footplate_scheduler_core::{State, admit, can_follow, outlook, outlook_after};
use footplate_shell::away;
use footplate_types::{Digest, EventId, PrincipalId, ProjectName, RunId};
use footplate_wire::job_spec_from_wire;
use prost::Message;
use std::collections::BTreeSet;

/// The most characters of an idempotency key.
const KEY_MAX: usize = 256;

/// What a submission is about, before anything is looked up.
pub(super) struct Submission {
    pub(super) project: ProjectName,
    pub(super) run: RunId,
    /// Whether someone else may have used the id: a key or an id of the client's own.
    pub(super) named: bool,
    /// Whether the id itself is the client's own, so that it may stand for something else than a job.
    pub(super) given: bool,
    pub(super) key: String,
    pub(super) spec: JobSpec,
    pub(super) body: Digest,
    pub(super) queue_anyway: bool,
}

/// A submission that stands in the ledger.
pub(super) struct Known {
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
        let key = checked_key(&request.request_id)?;
        let given = given_id(&request.run_id)?;
        let by_key = (!key.is_empty()).then(|| RunId::for_key(&project, "job", &key));
        let named = given.is_some() || by_key.is_some();
        let is_given = given.is_some();
        let run = given.or(by_key).unwrap_or_else(footplate_clock::run_id);
        let body = Digest::of(&wire.encode_to_vec());
        Ok(Self { project, run, named, given: is_given, key, spec, body, queue_anyway: request.queue_anyway })
    }

    pub(super) fn subject(&self) -> Subject {
        Subject::job(&self.project, self.run)
    }

    /// Whether it is let in, beside the runs that are submitted with it.
    pub(super) fn admit(&self, state: &State, beside: &BTreeSet<RunId>) -> Result<(), Refusal> {
        admit(state, &self.spec, self.queue_anyway).map_err(refused)?;
        can_follow(state, &self.project, &self.spec, beside).map_err(refused)
    }

    /// Whether it could start now, and why not.
    pub(super) fn outlook(&self, state: &State) -> String {
        let waits = outlook_after(state, &self.project, &self.spec).or_else(|| outlook(state, &self.spec));
        waits.map_or_else(|| "it could start now".to_owned(), |wait| reason_words(&wait))
    }

    /// Its event: the same at two instances.
    pub(super) fn event(&self) -> (EventId, JobSubmitted) {
        let id = EventId::derived(&[b"submitted", self.run.as_bytes(), self.body.as_bytes()]);
        (id, JobSubmitted { spec: self.spec.clone(), body: self.body })
    }

    /// The answer when the id stands already: the same submission, or a conflict.
    pub(super) fn repeated(&self, known: &Known) -> Result<SubmitJobResponse, Refusal> {
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

/// An idempotency key, when it is not too long.
pub(super) fn checked_key(key: &str) -> Result<String, Refusal> {
    if key.chars().count() > KEY_MAX {
        let refusal = Refusal::new(&reason::INVALID_FIELD, "the request id is too long").field("request_id");
        return Err(refusal.allowed(format!("at most {KEY_MAX} characters")));
    }
    Ok(key.to_owned())
}

/// The id that a client minted, if it did.
pub(super) fn given_id(text: &str) -> Result<Option<RunId>, Refusal> {
    let parsed = (!text.is_empty()).then(|| RunId::parse(text));
    parsed.transpose().map_err(|invalid| Refusal::from(invalid.of("run_id")))
}

/// A submission of this id in the view.
pub(super) fn known(state: &State, run: &RunId) -> Option<Known> {
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
        // So is a run that was submitted just now, perhaps through another instance, and that this one comes after.
        if submission.named || request.dry_run || !submission.spec.after.is_empty() {
            self.shell.caught_up().await?;
        }
        {
            let state = self.shell.live.read();
            if let Some(known) = known(&state, &submission.run).filter(|_| submission.named) {
                return submission.repeated(&known);
            }
            submission.admit(&state, &BTreeSet::new())?;
            if request.dry_run {
                return Ok(SubmitJobResponse { run_id: String::new(), sequence: 0, remark: submission.outlook(&state) });
            }
        }
        self.refuse_taken(&submission).await?;
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
        let (id, fact) = submission.event();
        let envelope = self.shell.envelope(id, submission.subject(), fact, actor);
        if let Some(sequence) = self.shell.append(envelope, 0).await? {
            return Ok(SubmitJobResponse { run_id: submission.run.to_string(), sequence, remark: String::new() });
        }
        match self.standing(&submission).await? {
            Some(known) => submission.repeated(&known),
            None => Err(Refusal::internal(format!("{} was refused as taken and has no submission", submission.subject()))),
        }
    }

    /// What stands in the ledger under a submission's id.
    pub(super) async fn standing(&self, submission: &Submission) -> Result<Option<Known>, Refusal> {
        let (events, _) = self.shell.aggregate(&submission.subject()).await?;
        Ok(events.into_iter().find_map(|recorded| match recorded.envelope.event {
            Event::JobSubmitted(fact) => Some(Known {
                project: submission.project.clone(),
                name: fact.spec.name.to_string(),
                body: fact.body,
                sequence: recorded.sequence,
            }),
            _ => None,
        }))
    }

    /// Whether the ids that clients named stand for nothing else.
    pub(super) async fn refuse_taken(&self, submission: &Submission) -> Result<(), Refusal> {
        if submission.named {
            self.refuse_foreign(submission).await?;
        }
        if submission.given {
            self.refuse_notebook(submission).await?;
        }
        Ok(())
    }
}
