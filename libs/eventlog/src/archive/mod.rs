//! The archive of the ledger (rule 13): its older part as sealed, digest-chained segments in the object store.
//!
//! [`segment`] is the form, and knows no store. [`Archive`] is the chain as a reader knows it, [`Archived`] a broker whose ledger begins in segments, and
//! [`Archiver`] writes them. Nothing here deletes an event that does not stand in a verified segment.

mod archiver;
mod broker;
mod chain;
mod ended;
mod frame;
mod gone;
pub mod segment;
mod store;
#[cfg(test)]
mod tests;

pub use archiver::{ArchiveConfig, Archiver, Progress};
pub use broker::Archived;
pub use chain::{ANNOUNCED_FOR, Archive, ArchiveError, LOOK_EVERY, STALE_AFTER};
pub use segment::{SEGMENT_BYTES, SegmentError};
pub use store::{Created, SegmentStore};
