//! The messages of the sister streams: what agents and services tell each other beside the ledger, and the launch document.
//!
//! They carry no decision of their own: an assignment is a function of the ledger, a report becomes a fact only when its service
//! folds it into the ledger.

mod assignment;
mod beat;
mod launch;
mod log;
mod report;
mod watch;

pub use assignment::{Assignment, Order, RoleSize, Task, TaskRole};
pub use beat::{Beat, BeatMessage, Fence, LeaseBeat};
pub use launch::{LaunchDocument, RoleLaunch, RunCommand, SEALED_PREFIX, SealedDocument};
pub use log::LogHeader;
pub use report::{
    ExecutorReport, InventoryReport, MemberRef, Report, ReportBody, Settled, SpoolPosition, TrackerReport, report_subject, settled_subject,
};

pub use watch::{BeatSeen, NodeWatch, Watch};

/// The subject of a node's assignment in the stream.
pub fn assign_subject(node: &footplate_types::NodeName) -> String {
    format!("fp.assign.{node}")
}

/// Where the stream republishes accepted assignments; agents listen here alone.
pub fn assigned_subject(node: &footplate_types::NodeName) -> String {
    format!("fp.assigned.{node}")
}

/// The subject of a node's beats.
pub fn beat_subject(node: &footplate_types::NodeName) -> String {
    format!("fp.beat.{node}")
}

/// The subject of a service's leader lease.
pub fn lease_subject(service: &footplate_types::ServiceName) -> String {
    format!("fp.lease.{service}")
}

/// The subject of a run's log chunks from a node.
pub fn log_subject(node: &footplate_types::NodeName, run: footplate_types::RunId) -> String {
    format!("fp.logs.{node}.{run}")
}

/// The subject of a metric batch: the run's shard and the source (a node, or a tracker instance's slug).
pub fn metrics_subject(run: footplate_types::RunId, source: &str) -> String {
    format!("fp.metrics.{}.{source}", run.shard())
}
