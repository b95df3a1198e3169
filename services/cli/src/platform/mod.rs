//! Running the platform: the settings, the broker of its own, the local principal, and the services put together in one process.
//!
//! Services started here still learn of each other only through the broker.

pub mod agent;
mod blobs;
pub mod broker;
mod broker_door;
pub mod data;
pub mod join;
pub mod knobs;
pub mod nats_server;
mod nats_store;
pub mod objects;
mod port;
pub mod principals;
pub mod run;
mod segments;
pub mod services;
mod snapshots;
pub mod up;
mod wiring;

pub(crate) use blobs::DoorBlobs;
pub use broker::{BrokerError, connect};
pub use data::{DataFolder, DataFolderError};
pub use knobs::{SettingsError, load};
pub use nats_server::{NatsServer, NatsServerError};
pub use services::{Service, StartError, Started};
