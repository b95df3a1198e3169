//! Where an event stands: `fp.ledger.<project>.<aggregate>.<id>`.

use footplate_types::{
    AttemptId, ExperimentId, Invalid, ModelId, ModelVersionId, NodeName, PRINCIPAL_FORMS, PrincipalId, ProjectName, QueueName, RunId,
    ServiceName, SubscriptionName, SweepId, TokenId, TrialId, WebhookName,
};
use std::fmt;

/// The kinds of aggregate of the ledger, each written by one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aggregate {
    /// A named group of runs; client-written, tracker.
    Experiment,
    /// One recorded training; client-written, tracker.
    Run,
    /// A run's claim on compute; its submission client-written, the rest leader-written, scheduler.
    Job,
    /// What clients ask of a job; client-written, scheduler.
    JobRequest,
    /// One try of a job; leader-written, executor.
    Attempt,
    /// A queue of jobs; client-written, scheduler.
    Queue,
    /// A machine; leader-written, gpu-inventory.
    Node,
    /// What operators ask of a node; client-written, gpu-inventory.
    NodeRequest,
    /// A model: which of its versions stands where, and its aliases; client-written, registry.
    Model,
    /// One version of a model: what it is, its evaluations and its approval; client-written, registry.
    ModelVersion,
    /// A search over a space of params; client-written, sweep.
    Sweep,
    /// One point of a sweep and what came of it; leader-written, sweep.
    Trial,
    /// A tenant, and the roles in it; client-written, registry.
    Project,
    /// A person or a program; client-written, registry.
    Principal,
    /// What a principal shows; client-written, registry.
    Token,
    /// Who subscribes to a project's events at the broker; client-written, registry.
    Subscription,
    /// Where a project's events are posted to; client-written, tracker.
    Webhook,
    /// The terms of a service's leaders; written by whoever takes over.
    Term,
}

impl Aggregate {
    /// All kinds, in the order of this table.
    pub const ALL: [Self; 18] = [
        Self::Experiment,
        Self::Run,
        Self::Job,
        Self::JobRequest,
        Self::Attempt,
        Self::Queue,
        Self::Node,
        Self::NodeRequest,
        Self::Model,
        Self::ModelVersion,
        Self::Sweep,
        Self::Trial,
        Self::Project,
        Self::Principal,
        Self::Token,
        Self::Subscription,
        Self::Webhook,
        Self::Term,
    ];

    /// The token in the subject and in the event type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Experiment => "experiment",
            Self::Run => "run",
            Self::Job => "job",
            Self::JobRequest => "job-request",
            Self::Attempt => "attempt",
            Self::Queue => "queue",
            Self::Node => "node",
            Self::NodeRequest => "node-request",
            Self::Model => "model",
            Self::ModelVersion => "model-version",
            Self::Sweep => "sweep",
            Self::Trial => "trial",
            Self::Project => "project",
            Self::Principal => "principal",
            Self::Token => "token",
            Self::Subscription => "subscription",
            Self::Webhook => "webhook",
            Self::Term => "term",
        }
    }

    /// The service that owns the aggregate's facts; for a term, any service its own.
    pub const fn owner(self) -> &'static str {
        match self {
            Self::Experiment | Self::Run | Self::Webhook => "tracker",
            Self::Job | Self::JobRequest | Self::Queue => "scheduler",
            Self::Attempt => "executor",
            Self::Node | Self::NodeRequest => "gpu-inventory",
            Self::Model | Self::ModelVersion | Self::Project | Self::Principal | Self::Token | Self::Subscription => "registry",
            Self::Sweep | Self::Trial => "sweep",
            Self::Term => "each service",
        }
    }

    /// Whether any instance may append (expecting the last sequence of the subject), rather than the leader under its term alone.
    /// A job is both: its first event is client-written.
    pub const fn client_written(self) -> bool {
        match self {
            Self::Experiment
            | Self::Run
            | Self::JobRequest
            | Self::Queue
            | Self::NodeRequest
            | Self::Model
            | Self::ModelVersion
            | Self::Sweep
            | Self::Project
            | Self::Principal
            | Self::Token
            | Self::Subscription
            | Self::Webhook => true,
            Self::Job | Self::Attempt | Self::Node | Self::Trial | Self::Term => false,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The address of one aggregate in the ledger. Made only by the constructors below, so that it is always a valid subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The tenant, or the platform's own token.
    pub project: ProjectName,
    /// The kind of aggregate.
    pub aggregate: Aggregate,
    id: String,
}

impl Subject {
    /// The stream prefix of all ledger subjects.
    pub const PREFIX: &'static str = "fp.ledger";

    fn new(project: &ProjectName, aggregate: Aggregate, id: impl fmt::Display) -> Self {
        Self { project: project.clone(), aggregate, id: id.to_string() }
    }

    fn platform(aggregate: Aggregate, id: impl fmt::Display) -> Self {
        Self { project: ProjectName::platform(), aggregate, id: id.to_string() }
    }

    /// An experiment of a project.
    pub fn experiment(project: &ProjectName, id: ExperimentId) -> Self {
        Self::new(project, Aggregate::Experiment, id)
    }

    /// A run of a project.
    pub fn run(project: &ProjectName, id: RunId) -> Self {
        Self::new(project, Aggregate::Run, id)
    }

    /// The job of a run.
    pub fn job(project: &ProjectName, id: RunId) -> Self {
        Self::new(project, Aggregate::Job, id)
    }

    /// The requests about a run's job.
    pub fn job_request(project: &ProjectName, id: RunId) -> Self {
        Self::new(project, Aggregate::JobRequest, id)
    }

    /// One try of a job.
    pub fn attempt(project: &ProjectName, id: AttemptId) -> Self {
        Self::new(project, Aggregate::Attempt, id)
    }

    /// A queue.
    pub fn queue(name: &QueueName) -> Self {
        Self::platform(Aggregate::Queue, name)
    }

    /// A node.
    pub fn node(name: &NodeName) -> Self {
        Self::platform(Aggregate::Node, name)
    }

    /// The requests about a node.
    pub fn node_request(name: &NodeName) -> Self {
        Self::platform(Aggregate::NodeRequest, name)
    }

    /// A model of a project.
    pub fn model(project: &ProjectName, id: ModelId) -> Self {
        Self::new(project, Aggregate::Model, id)
    }

    /// One version of a model.
    pub fn model_version(project: &ProjectName, id: ModelVersionId) -> Self {
        Self::new(project, Aggregate::ModelVersion, id)
    }

    /// A sweep of a project.
    pub fn sweep(project: &ProjectName, id: SweepId) -> Self {
        Self::new(project, Aggregate::Sweep, id)
    }

    /// A trial of a sweep.
    pub fn trial(project: &ProjectName, id: TrialId) -> Self {
        Self::new(project, Aggregate::Trial, id)
    }

    /// A project itself, with the roles in it; `_` for those that hold everywhere.
    pub fn project(name: &ProjectName) -> Self {
        Self::new(name, Aggregate::Project, name)
    }

    /// A principal.
    ///
    /// # Errors
    /// One whose form is none of those that can hold a role: its id could be no token of a subject.
    pub fn principal(id: &PrincipalId) -> Result<Self, Invalid> {
        match id.kind() {
            Some(_) => Ok(Self::platform(Aggregate::Principal, id)),
            None => Err(Invalid::new("principal", id.as_str(), PRINCIPAL_FORMS)),
        }
    }

    /// A token.
    pub fn token(id: TokenId) -> Self {
        Self::platform(Aggregate::Token, id)
    }

    /// A subscription to a project's events.
    pub fn subscription(project: &ProjectName, name: &SubscriptionName) -> Self {
        Self::new(project, Aggregate::Subscription, name)
    }

    /// A webhook of a project.
    pub fn webhook(project: &ProjectName, name: &WebhookName) -> Self {
        Self::new(project, Aggregate::Webhook, name)
    }

    /// The terms of a service.
    pub fn term(service: &ServiceName) -> Self {
        Self::platform(Aggregate::Term, service)
    }

    /// The last token: the aggregate's own id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether facts about this aggregate come from `service`, and from no other (rule 1).
    pub fn is_owned_by(&self, service: &ServiceName) -> bool {
        match self.aggregate {
            Aggregate::Term => self.id == service.as_str(),
            kind => kind.owner() == service.as_str(),
        }
    }

    /// The run this is about, for runs, jobs, job requests, attempts and trials.
    pub fn run_id(&self) -> Option<RunId> {
        match self.aggregate {
            Aggregate::Run | Aggregate::Job | Aggregate::JobRequest => RunId::parse(&self.id).ok(),
            Aggregate::Attempt => self.attempt_id().map(|id| id.run),
            Aggregate::Trial => self.trial_id().map(|id| id.run()),
            Aggregate::Experiment
            | Aggregate::Queue
            | Aggregate::Node
            | Aggregate::NodeRequest
            | Aggregate::Model
            | Aggregate::ModelVersion
            | Aggregate::Sweep
            | Aggregate::Project
            | Aggregate::Principal
            | Aggregate::Token
            | Aggregate::Subscription
            | Aggregate::Webhook
            | Aggregate::Term => None,
        }
    }

    /// The sweep this is about, for sweeps and trials.
    pub fn sweep_id(&self) -> Option<SweepId> {
        match self.aggregate {
            Aggregate::Sweep => SweepId::parse(&self.id).ok(),
            Aggregate::Trial => self.trial_id().map(|id| id.sweep),
            _ => None,
        }
    }

    /// The trial this is about.
    pub fn trial_id(&self) -> Option<TrialId> {
        if self.aggregate == Aggregate::Trial { TrialId::parse(&self.id).ok() } else { None }
    }

    /// The attempt this is about.
    pub fn attempt_id(&self) -> Option<AttemptId> {
        if self.aggregate == Aggregate::Attempt { AttemptId::parse(&self.id).ok() } else { None }
    }

    /// The node this is about, for nodes and node requests.
    pub fn node_name(&self) -> Option<NodeName> {
        match self.aggregate {
            Aggregate::Node | Aggregate::NodeRequest => NodeName::parse(&self.id).ok(),
            _ => None,
        }
    }

    /// The queue this is about.
    pub fn queue_name(&self) -> Option<QueueName> {
        if self.aggregate == Aggregate::Queue { QueueName::parse(&self.id).ok() } else { None }
    }

    /// The principal this is about.
    pub fn principal_id(&self) -> Option<PrincipalId> {
        if self.aggregate == Aggregate::Principal { PrincipalId::parse(&self.id).ok() } else { None }
    }

    /// The token this is about.
    pub fn token_id(&self) -> Option<TokenId> {
        if self.aggregate == Aggregate::Token { TokenId::parse(&self.id).ok() } else { None }
    }

    /// The webhook this is about.
    pub fn webhook_name(&self) -> Option<WebhookName> {
        if self.aggregate == Aggregate::Webhook { WebhookName::parse(&self.id).ok() } else { None }
    }

    /// The model this is about, for models and their versions.
    pub fn model_id(&self) -> Option<ModelId> {
        match self.aggregate {
            Aggregate::Model => ModelId::parse(&self.id).ok(),
            Aggregate::ModelVersion => ModelVersionId::parse(&self.id).ok().map(|id| id.model),
            _ => None,
        }
    }

    /// The filter that matches every aggregate of a kind, of one project or of all.
    pub fn filter(project: Option<&ProjectName>, aggregate: Option<Aggregate>) -> String {
        let project = project.map_or("*", ProjectName::as_str);
        match aggregate {
            Some(kind) => format!("{}.{project}.{}.>", Self::PREFIX, kind.as_str()),
            None => format!("{}.{project}.>", Self::PREFIX),
        }
    }

    /// Reads a NATS subject of the ledger.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("subject", text, "fp.ledger.<project>.<aggregate>.<id>");
        let rest = text.strip_prefix(Self::PREFIX).and_then(|rest| rest.strip_prefix('.')).ok_or_else(refused)?;
        let mut tokens = rest.split('.');
        let (Some(project), Some(kind), Some(id), None) = (tokens.next(), tokens.next(), tokens.next(), tokens.next()) else {
            return Err(refused());
        };
        let aggregate = Aggregate::parse(kind).ok_or_else(refused)?;
        let subject = Self { project: ProjectName::parse(project)?, aggregate, id: id.to_owned() };
        if subject.id_is_valid() { Ok(subject) } else { Err(refused()) }
    }

    fn id_is_valid(&self) -> bool {
        match self.aggregate {
            Aggregate::Experiment => ExperimentId::parse(&self.id).is_ok(),
            Aggregate::Run | Aggregate::Job | Aggregate::JobRequest => RunId::parse(&self.id).is_ok(),
            Aggregate::Attempt => AttemptId::parse(&self.id).is_ok(),
            Aggregate::Queue => QueueName::parse(&self.id).is_ok(),
            Aggregate::Webhook => WebhookName::parse(&self.id).is_ok(),
            Aggregate::Node | Aggregate::NodeRequest => NodeName::parse(&self.id).is_ok(),
            Aggregate::Model => ModelId::parse(&self.id).is_ok(),
            Aggregate::ModelVersion => ModelVersionId::parse(&self.id).is_ok(),
            Aggregate::Sweep => SweepId::parse(&self.id).is_ok(),
            Aggregate::Trial => TrialId::parse(&self.id).is_ok(),
            Aggregate::Project => self.id == self.project.as_str(),
            Aggregate::Principal => PrincipalId::parse(&self.id).is_ok_and(|id| id.kind().is_some()),
            Aggregate::Token => TokenId::parse(&self.id).is_ok(),
            Aggregate::Subscription => SubscriptionName::parse(&self.id).is_ok(),
            Aggregate::Term => ServiceName::parse(&self.id).is_ok(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [Self::PREFIX, ".", self.project.as_str(), ".", self.aggregate.as_str(), ".", &self.id] {
            f.write_str(part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_subject_reads_back() {
        let project = ProjectName::parse("vision").unwrap();
        let run = RunId::from_bytes([3; 16]);
        for subject in [Subject::run(&project, run), Subject::job(&project, run), Subject::node(&NodeName::parse("n1").unwrap())] {
            assert_eq!(Subject::parse(&subject.to_string()), Ok(subject));
        }
    }

    #[test]
    fn every_aggregate_has_exactly_one_owner() {
        let services =
            ["tracker", "scheduler", "executor", "sweep", "gpu-inventory", "registry"].map(|name| ServiceName::parse(name).unwrap());
        let (project, run, node) = (ProjectName::parse("vision").unwrap(), RunId::from_bytes([3; 16]), NodeName::parse("n1").unwrap());
        let attempt = AttemptId { run, attempt: footplate_types::AttemptNumber(1) };
        let name = footplate_types::DisplayName::parse("x").unwrap();
        let sweep = SweepId::from_bytes([4; 16]);
        let mut subjects = vec![
            Subject::experiment(&project, ExperimentId::of(&project, &name)),
            Subject::run(&project, run),
            Subject::job(&project, run),
            Subject::job_request(&project, run),
            Subject::attempt(&project, attempt),
            Subject::queue(&QueueName::parse("q").unwrap()),
            Subject::node(&node),
            Subject::node_request(&node),
            Subject::model(&project, ModelId::from_bytes([4; 16])),
            Subject::model_version(&project, ModelVersionId::parse(&format!("{}-3", ModelId::from_bytes([4; 16]))).unwrap()),
            Subject::sweep(&project, sweep),
            Subject::trial(&project, TrialId { sweep, trial: footplate_types::TrialNumber(1) }),
        ];
        subjects.push(Subject::webhook(&project, &WebhookName::parse("ci").unwrap()));
        subjects.extend([Subject::project(&project), Subject::token(TokenId::from_bytes([5; 16]))]);
        subjects.push(Subject::subscription(&project, &SubscriptionName::parse("serving").unwrap()));
        subjects.push(Subject::principal(&PrincipalId::parse("user:ada").unwrap()).unwrap());
        subjects.extend(services.iter().map(Subject::term));
        let kinds: std::collections::BTreeSet<Aggregate> = subjects.iter().map(|subject| subject.aggregate).collect();
        assert_eq!(kinds.len(), Aggregate::ALL.len(), "one of every kind");
        for subject in subjects {
            let owners = services.iter().filter(|service| subject.is_owned_by(service)).count();
            assert_eq!(owners, 1, "{subject}");
        }
    }

    #[test]
    fn foreign_and_broken_subjects_are_refused() {
        for text in
            ["fp.ledger", "fp.ledger.vision.run.x", "fp.ledger.vision.unknown.n1", "fp.report.n1.executor", "fp.ledger.a.node.n1.n2"]
        {
            assert!(Subject::parse(text).is_err(), "{text}");
        }
    }
}
