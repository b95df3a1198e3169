//! What every process of the platform needs around its work: configuration, telemetry, readiness, shutdown, the admin listener.
//!
//! It knows no word of the domain, no broker, no store and no gRPC: whatever is about runs or jobs belongs elsewhere. That one rule keeps
//! it from becoming the crate where everything ends up. It never reads the wall clock; waits are on the runtime's own clock and bounded.
//!
//! The parts, from the outside in:
//! - [`config`]: typed knobs, layered from defaults, a file, the environment and flags, with all errors told at once;
//! - [`Telemetry`]: logs for people or machines, spans to an OTLP endpoint when one is set, W3C trace context always;
//! - [`Context`]: what a component is handed: [`Shutdown`], [`Supervisor`], [`Readiness`], [`Metrics`];
//! - [`run`]: signals, the admin listener, the component's start, and the drain, ending in an [`Exit`] code.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
pub mod config;
mod exit;
mod listen;
mod metrics;
mod readiness;
mod run;
mod shutdown;
mod supervisor;
pub mod telemetry;

pub use admin::{Admin, AdminPage};
pub use exit::Exit;
pub use listen::{ListenError, listen};
pub use metrics::Metrics;
pub use readiness::{Latch, PendingLatch, Readiness};
pub use run::{Context, RunError, RunOptions, run};
pub use shutdown::Shutdown;
pub use supervisor::{StopError, Supervisor};
pub use telemetry::{LogFormat, Telemetry, TelemetryError, TelemetryOptions, continue_trace, current_traceparent, link_trace};
