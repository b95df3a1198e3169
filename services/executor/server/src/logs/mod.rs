//! Logs: from the stream into packs, from packs into archives, and back to whoever reads.
//!
//! Bytes in, bytes out: nothing here looks inside a line. A chunk is settled with its agent only when its pack is durable; a pack goes only
//! when the archive that replaces it stands in the ledger.

mod archive;
mod collect;
mod packs;
mod read;

pub(crate) use archive::Archive;
pub(crate) use collect::collect;
pub(crate) use read::Logs;
