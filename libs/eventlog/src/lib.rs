//! The ledger and its sister streams behind one port, with the protocol on top.
//!
//! Below stands [`port::Broker`]: what JetStream promises and nothing more, with two back ends (`memory`, `jetstream`) under one
//! conformance suite. Above it: [`Ledger`] (client-written appends in group commits, unknown outcomes made definite, reading),
//! [`Live`] (a view that follows the ledger and answers "at least N"), and [`lead`] (leases, terms, one append in flight).
//! Knows no service and no business rule.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod archive;
pub mod beats;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod consume;
pub mod inbox;
pub mod jetstream;
pub mod leader;
pub mod ledger;
pub mod live;
pub mod mark;
pub mod memory;
pub mod place;
pub mod port;
pub mod project;
pub mod snapshot;
mod together;
pub mod verify;

pub use archive::{Archive, Archived, Archiver, SegmentStore};
pub use consume::{Consumption, HandleError, Handler, consume};
pub use leader::{Decider, LeadError, LeaseConfig, Look, Standing, Verdict, lead, lead_watched};
pub use ledger::{APPEND_WITHIN, AppendError, Ledger, LedgerItem, NotUnderstood};
pub use live::{Counts, Live, follow};
pub use mark::{Behind, Mark};
pub use place::{FilePlace, Parked, Place, PlaceStore};
pub use port::{Bounds, Broker, Expect, Headers, Message, Page, PublishError, ReadError, Stored, StreamName, TailItem};
pub use project::{ApplyError, Projection, project};
pub use snapshot::{Keeper, Landmark, SnapshotStore, Snapshots};
