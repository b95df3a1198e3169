//! The public API on the wire: generated gRPC code, one server for gRPC and JSON, the typed client, refusals.
//!
//! It decides nothing and knows no ledger and no store: services implement the generated traits with it, clients call through it.
//! Wire types end here; they never reach a core.
//!
//! - [`v1`], [`types`], [`metrics`]: messages, client and server code, made from `proto/` by `cargo xtask generate`;
//! - [`refusal`]: how a service says no, and how a client understands it;
//! - [`server`]: one port for gRPC, the JSON door, reflection, health and pages;
//! - [`client`]: a connection with address, token, project, deadlines and safe retries;
//! - [`json`]: any message as JSON, by the descriptors.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod client;
pub mod descriptors;
mod door;
pub mod json;
pub mod refusal;
pub mod server;

/// The made code, in modules that mirror the packages, as it refers to itself by them.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
mod proto {
    pub mod api {
        pub mod v1 {
            include!("generated/footplate.api.v1.rs");
        }
    }
    pub mod metrics {
        pub mod v1 {
            include!("generated/footplate.metrics.v1.rs");
        }
    }
    pub mod types {
        pub mod v1 {
            include!("generated/footplate.types.v1.rs");
        }
    }
}

/// `footplate.api.v1`: the services and their requests and responses.
pub use proto::api::v1;
/// `footplate.metrics.v1`: packed metric batches.
pub use proto::metrics::v1 as metrics;
/// `footplate.types.v1`: the words that requests share.
pub use proto::types::v1 as types;

pub use client::{ApiError, Client, Target};
pub use descriptors::FILE_DESCRIPTOR_SET;
pub use refusal::{Kind, Reason, Refusal, reason};
