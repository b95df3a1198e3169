//! The one table of event types. A row names the variant, its payload, its aggregate, its verb and its version; everything else
//! (the type in the header, decoding, the catalogue) follows from it.

use crate::Aggregate;
use crate::facts;
use std::fmt;

/// A type of event, `footplate.<aggregate>.<verb>.v<version>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType {
    /// The aggregate it belongs to.
    pub aggregate: Aggregate,
    /// What happened, in the past tense.
    pub verb: &'static str,
    /// The version of its meaning.
    pub version: u32,
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "footplate.{}.{}.v{}", self.aggregate.as_str(), self.verb, self.version)
    }
}

/// One row of the generated catalogue.
#[cfg(feature = "schema")]
#[derive(Clone, Debug)]
pub struct CatalogueEntry {
    /// The type.
    pub event_type: EventType,
    /// When it is written, from the payload's documentation.
    pub when: String,
    /// Who reads it.
    pub readers: &'static str,
    /// The payload's JSON Schema.
    pub schema: schemars::Schema,
}

macro_rules! events {
    ($($variant:ident = $aggregate:ident, $verb:literal, $version:literal, read by $readers:literal;)*) => {
        /// Every fact that may stand in the ledger, in its newest version.
        // A submission is several times larger than the rest, and as rare as people's wishes: not worth a box in every pattern.
        #[allow(clippy::large_enum_variant)]
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event {
            $(
                #[doc = concat!("`", $verb, "` of the aggregate; read by ", $readers, ".")]
                $variant(facts::$variant),
            )*
        }

        impl Event {
            /// The type in the header.
            pub const fn event_type(&self) -> EventType {
                match self {
                    $(Self::$variant(_) => EventType { aggregate: Aggregate::$aggregate, verb: $verb, version: $version },)*
                }
            }

            #[cfg(feature = "json")]
            pub(crate) fn payload(&self) -> Result<Vec<u8>, serde_json::Error> {
                match self {
                    $(Self::$variant(fact) => serde_json::to_vec(fact),)*
                }
            }

            /// Reads a payload of a known type; `None` for an unknown type.
            #[cfg(feature = "json")]
            pub(crate) fn from_payload(event_type: &str, payload: &[u8]) -> Option<Result<Self, serde_json::Error>> {
                match event_type {
                    $(concat_type!($aggregate, $verb, $version) => Some(serde_json::from_slice(payload).map(Self::$variant)),)*
                    _ => None,
                }
            }
        }

        $(
            impl From<facts::$variant> for Event {
                fn from(fact: facts::$variant) -> Self {
                    Self::$variant(fact)
                }
            }
        )*

        /// Every type that this build can write and read.
        pub fn known_types() -> Vec<EventType> {
            vec![$(EventType { aggregate: Aggregate::$aggregate, verb: $verb, version: $version },)*]
        }

        /// The catalogue: every type with its meaning, its readers and its schema.
        #[cfg(feature = "schema")]
        pub fn catalogue() -> Vec<CatalogueEntry> {
            vec![$({
                let schema = schemars::schema_for!(facts::$variant);
                let when = schema.get("description").and_then(|text| text.as_str()).unwrap_or_default().to_owned();
                CatalogueEntry {
                    event_type: EventType { aggregate: Aggregate::$aggregate, verb: $verb, version: $version },
                    when,
                    readers: $readers,
                    schema,
                }
            },)*]
        }
    };
}

/// The type text of a row, for matching: `concat!` cannot call [`Aggregate::as_str`], so the aggregate's token is repeated here
/// and a test holds both together.
#[cfg(feature = "json")]
macro_rules! concat_type {
    (Experiment, $verb:literal, $version:literal) => {
        concat!("footplate.experiment.", $verb, ".v", $version)
    };
    (Run, $verb:literal, $version:literal) => {
        concat!("footplate.run.", $verb, ".v", $version)
    };
    (Job, $verb:literal, $version:literal) => {
        concat!("footplate.job.", $verb, ".v", $version)
    };
    (JobRequest, $verb:literal, $version:literal) => {
        concat!("footplate.job-request.", $verb, ".v", $version)
    };
    (Attempt, $verb:literal, $version:literal) => {
        concat!("footplate.attempt.", $verb, ".v", $version)
    };
    (Queue, $verb:literal, $version:literal) => {
        concat!("footplate.queue.", $verb, ".v", $version)
    };
    (Node, $verb:literal, $version:literal) => {
        concat!("footplate.node.", $verb, ".v", $version)
    };
    (NodeRequest, $verb:literal, $version:literal) => {
        concat!("footplate.node-request.", $verb, ".v", $version)
    };
    (Model, $verb:literal, $version:literal) => {
        concat!("footplate.model.", $verb, ".v", $version)
    };
    (ModelVersion, $verb:literal, $version:literal) => {
        concat!("footplate.model-version.", $verb, ".v", $version)
    };
    (Sweep, $verb:literal, $version:literal) => {
        concat!("footplate.sweep.", $verb, ".v", $version)
    };
    (Trial, $verb:literal, $version:literal) => {
        concat!("footplate.trial.", $verb, ".v", $version)
    };
    (Project, $verb:literal, $version:literal) => {
        concat!("footplate.project.", $verb, ".v", $version)
    };
    (Principal, $verb:literal, $version:literal) => {
        concat!("footplate.principal.", $verb, ".v", $version)
    };
    (Token, $verb:literal, $version:literal) => {
        concat!("footplate.token.", $verb, ".v", $version)
    };
    (Subscription, $verb:literal, $version:literal) => {
        concat!("footplate.subscription.", $verb, ".v", $version)
    };
    (Webhook, $verb:literal, $version:literal) => {
        concat!("footplate.webhook.", $verb, ".v", $version)
    };
    (Term, $verb:literal, $version:literal) => {
        concat!("footplate.term.", $verb, ".v", $version)
    };
}

events! {
    TermBegan = Term, "began", 1, read by "the service's own instances";

    ProjectCreated = Project, "created", 1, read by "every service, for its front";
    ProjectRoleGiven = Project, "role-given", 1, read by "every service, for its front";
    ProjectRoleTaken = Project, "role-taken", 1, read by "every service, for its front";

    PrincipalCreated = Principal, "created", 1, read by "every service, for its front";
    PrincipalDisabled = Principal, "disabled", 1, read by "every service, for its front";
    PrincipalEnabled = Principal, "enabled", 1, read by "every service, for its front";

    TokenCreated = Token, "created", 1, read by "every service, for its front";
    TokenRevoked = Token, "revoked", 1, read by "every service, for its front";

    SubscriptionCreated = Subscription, "created", 1, read by "registry";
    SubscriptionDeleted = Subscription, "deleted", 1, read by "registry";

    ExperimentCreated = Experiment, "created", 1, read by "tracker";
    ExperimentNoted = Experiment, "noted", 1, read by "tracker";

    RunCreated = Run, "created", 1, read by "tracker, registry";
    RunParamsLogged = Run, "params-logged", 1, read by "tracker";
    RunTagsSet = Run, "tags-set", 1, read by "tracker";
    RunNoted = Run, "noted", 1, read by "tracker";
    RunInputsLogged = Run, "inputs-logged", 1, read by "tracker";
    RunArtifactsLogged = Run, "artifacts-logged", 1, read by "tracker, registry";
    RunFinished = Run, "finished", 1, read by "tracker";
    RunSealed = Run, "sealed", 1, read by "tracker, sweep, registry, gates and whoever waits";

    WebhookCreated = Webhook, "created", 1, read by "tracker";
    WebhookReplayed = Webhook, "replayed", 1, read by "tracker";
    WebhookPaused = Webhook, "paused", 1, read by "tracker, whoever sees to the webhook";
    WebhookResumed = Webhook, "resumed", 1, read by "tracker";
    WebhookDeleted = Webhook, "deleted", 1, read by "tracker";

    QueueConfigured = Queue, "configured", 1, read by "scheduler";

    JobSubmitted = Job, "submitted", 1, read by "scheduler, tracker, executor, registry";
    JobRefused = Job, "request-refused", 1, read by "scheduler, clients that wait for an answer";
    JobWaiting = Job, "waiting", 1, read by "scheduler, tracker";
    JobDeadlineNeared = Job, "deadline-neared", 1, read by "scheduler";
    JobDeadlineMissed = Job, "deadline-missed", 1, read by "scheduler";
    JobHeld = Job, "held", 1, read by "scheduler, tracker";
    JobReleased = Job, "released", 1, read by "scheduler, tracker";
    JobReprioritized = Job, "reprioritized", 1, read by "scheduler";
    JobPlaced = Job, "placed", 1, read by "scheduler, executor, tracker";
    JobLaunched = Job, "launched", 1, read by "scheduler, executor, tracker";
    JobStopRequested = Job, "stop-requested", 1, read by "scheduler, executor, tracker";
    JobRequeued = Job, "requeued", 1, read by "scheduler, executor, tracker";
    JobEnded = Job, "ended", 1, read by "scheduler, executor, tracker";

    JobCancelRequested = JobRequest, "cancel-requested", 1, read by "scheduler";
    JobHoldRequested = JobRequest, "hold-requested", 1, read by "scheduler";
    JobReleaseRequested = JobRequest, "release-requested", 1, read by "scheduler";
    JobReprioritizeRequested = JobRequest, "reprioritize-requested", 1, read by "scheduler";

    AttemptReady = Attempt, "ready", 1, read by "scheduler, tracker";
    AttemptStarted = Attempt, "started", 1, read by "scheduler, tracker";
    AttemptCheckpointed = Attempt, "checkpointed", 1, read by "scheduler, tracker, executor";
    AttemptExited = Attempt, "exited", 1, read by "scheduler, tracker, executor";
    AttemptLost = Attempt, "lost", 1, read by "scheduler, tracker, executor";
    AttemptLogsArchived = Attempt, "logs-archived", 1, read by "executor, tracker";

    NodeRegistered = Node, "registered", 1, read by "scheduler, executor, gpu-inventory";
    NodeHealthChanged = Node, "health-changed", 1, read by "scheduler, gpu-inventory";
    NodeCordoned = Node, "cordoned", 1, read by "scheduler, gpu-inventory";
    NodeUncordoned = Node, "uncordoned", 1, read by "scheduler, gpu-inventory";
    NodeDrained = Node, "drained", 1, read by "scheduler, gpu-inventory";
    NodeTainted = Node, "tainted", 1, read by "scheduler, gpu-inventory";
    NodeUntainted = Node, "untainted", 1, read by "scheduler, gpu-inventory";
    NodeLost = Node, "lost", 1, read by "scheduler, executor, gpu-inventory";
    NodeRefused = Node, "request-refused", 1, read by "gpu-inventory, clients that wait for an answer";

    NodeCordonRequested = NodeRequest, "cordon-requested", 1, read by "gpu-inventory";
    NodeUncordonRequested = NodeRequest, "uncordon-requested", 1, read by "gpu-inventory";
    NodeDrainRequested = NodeRequest, "drain-requested", 1, read by "gpu-inventory";
    NodeTaintRequested = NodeRequest, "taint-requested", 1, read by "gpu-inventory";
    NodeUntaintRequested = NodeRequest, "untaint-requested", 1, read by "gpu-inventory";
    NodeLossDeclared = NodeRequest, "loss-declared", 1, read by "gpu-inventory, executor";

    ModelCreated = Model, "created", 1, read by "registry";
    ModelPromoted = Model, "promoted", 1, read by "registry, whoever serves models";
    ModelRolledBack = Model, "rolled-back", 1, read by "registry, whoever serves models";
    ModelStaged = Model, "staged", 1, read by "registry, whoever serves models";
    ModelArchived = Model, "archived", 1, read by "registry, whoever serves models";
    ModelAliasSet = Model, "alias-set", 1, read by "registry, whoever serves models";
    ModelAliasRemoved = Model, "alias-removed", 1, read by "registry, whoever serves models";

    ModelVersionRegistered = ModelVersion, "registered", 1, read by "registry";
    ModelVersionEvaluated = ModelVersion, "evaluated", 1, read by "registry, gates";
    ModelVersionProposed = ModelVersion, "proposed", 1, read by "registry, whoever approves";
    ModelVersionApproved = ModelVersion, "approved", 1, read by "registry";
    ModelVersionRejected = ModelVersion, "rejected", 1, read by "registry";

    SweepCreated = Sweep, "created", 1, read by "sweep";
    SweepStopRequested = Sweep, "stop-requested", 1, read by "sweep";
    SweepResumed = Sweep, "resumed", 1, read by "sweep";

    TrialSuggested = Trial, "suggested", 1, read by "sweep, scheduler";
    TrialObserved = Trial, "observed", 1, read by "sweep";
    TrialPruned = Trial, "pruned", 1, read by "sweep, scheduler";
    TrialFinished = Trial, "finished", 1, read by "sweep, clients that wait for a sweep";
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    #[test]
    fn every_type_text_is_unique_and_is_matched_by_the_decoder() {
        let texts: std::collections::BTreeSet<String> = known_types().iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), known_types().len());
        for text in texts {
            assert!(Event::from_payload(&text, b"not json").is_some_and(|read| read.is_err()), "{text} is not matched");
        }
        assert!(Event::from_payload("footplate.job.flown.v1", b"{}").is_none());
    }
}
