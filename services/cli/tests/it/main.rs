//! The command line's integration tests: snapshots of real git repositories, job files, the binary against a platform that stands in.

#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

mod archive;
mod array;
mod bucket;
mod capture;
mod ci;
mod cluster;
mod compose;
mod credentials;
mod downstream;
mod faults;
mod faults_days;
mod fleet;
mod gate;
mod guide;
mod help;
mod jobfile;
mod jobfile_hostile;
mod models;
mod permissions;
mod pipeline;
mod platform;
mod races;
mod secrets;
mod sharing;
mod simulate;
mod stops;
mod submit;
mod sweep;
mod tls;
mod trace;
mod up;
mod verbs;
mod webhooks;
