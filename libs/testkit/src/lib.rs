//! What tests stand on: real servers as children, waiting on conditions with a deadline, golden files.
//!
//! For tests only: no crate may have it outside `[dev-dependencies]`. It never sleeps to be safe, never reuses a port or a folder of
//! another test, and leaves no process behind: a child dies with its guard, and with the test process even when that is killed.

#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(feature = "certificates")]
mod authority;
mod cassandra;
mod eventually;
mod golden;
mod nats;
#[cfg(feature = "otlp")]
mod otlp;
mod process;
mod s3;
mod seen;
mod slept;
mod spawner;
mod tools;

#[cfg(feature = "certificates")]
pub use authority::{Authority, CertificateFiles};
pub use cassandra::{CassandraServer, Keyspace, cassandra};
pub use eventually::{Late, eventually, try_eventually};
pub use golden::golden;
pub(crate) use nats::free_port;
pub use nats::{NatsOptions, NatsServer, nats};
#[cfg(feature = "otlp")]
pub use otlp::{Collector, SeenSpan};
pub use process::Process;
pub use rustix::process::Signal;
pub use s3::{S3Server, files_below, s3};
pub use seen::{SeenProcess, kill_processes_mentioning, processes_mentioning};
pub use slept::{SLEPT, Slept, on_a_machine_that_slept};
pub use tools::{demo_python, haproxy_program, nats_server_program, repository_root, s3_server_program};
