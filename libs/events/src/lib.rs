//! The event contract: every fact that may stand in the ledger, its envelope, its subject and its versions; and the messages of the
//! sister streams (assignments, reports, beats, ...).
//!
//! Owned by no service. Knows no transport and no domain rule: a fact is what was decided, never how. Within v1 fields are only added,
//! each with a default; a changed meaning is a new type. JSON stands behind the feature `json`, which no core enables.

mod envelope;
pub mod facts;
pub mod messages;
mod subject;
mod table;

#[cfg(feature = "json")]
mod json;

pub use envelope::{Actor, Envelope, Recorded, Trace};
#[cfg(feature = "json")]
pub use json::{Decoded, PAYLOAD_MAX, decode, encode, header};
pub use subject::{Aggregate, Subject};
#[cfg(feature = "schema")]
pub use table::{CatalogueEntry, catalogue};
pub use table::{Event, EventType, known_types};
