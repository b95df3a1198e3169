//! The pure domain of the tracker: what a run is, how it is written, when it is sealed, how runs are searched, what a lineage holds,
//! which webhooks there are.
//!
//! No async, no I/O, no clock: states follow from events, decisions from states and facts. It never talks to a broker or a store, and it
//! never decides anything about compute: how a run with a job ended is what the job's events say.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod claim;
pub mod experiment;
pub mod lineage;
pub mod run;
pub mod seal;
pub mod search;
pub mod webhook;

pub use claim::{Asked, ClaimRefused, asked, member_of, report_event_id};
pub use experiment::{Experiment, ExperimentCommand, ExperimentRefusal};
pub use lineage::{Lineage, LineageEdge, LineageNode};
pub use run::{Artifact, Attempt, Chain, Ended, Member, MemberState, Origin, Param, Run, RunCommand, RunFacts, RunRefusal, Status};
pub use seal::{LatestFigure, SealPolicy, Sealing, SessionStored, Stored, decide_seal};
pub use webhook::{Next, RetryPolicy, Webhook, WebhookCommand, WebhookFacts, WebhookRefusal, Webhooks};
