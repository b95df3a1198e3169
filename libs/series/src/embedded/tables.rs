//! The tables of the file and how their keys are laid out: big-endian, so that the order of bytes is the order of things.

use super::fault::Fault;
use crate::{SeriesKey, SessionKey};
use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};

/// The layout of this file; a higher one is refused.
pub(super) const FORMAT: u64 = 1;

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const FLOORS: TableDefinition<'_, u8, u64> = TableDefinition::new("floors");
/// Text of a source to its number.
pub(super) const SOURCES: TableDefinition<'_, &str, u64> = TableDefinition::new("sources");
/// source, attempt, rank, name to a series row.
pub(super) const SERIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("series");
/// series, sequence, offset to a chunk.
pub(super) const CHUNKS: TableDefinition<'_, &[u8; 20], &[u8]> = TableDefinition::new("chunks");
/// shard, cut, series of every open chunk.
pub(super) const OPEN: TableDefinition<'_, &[u8; 17], ()> = TableDefinition::new("open");
/// source, attempt, rank, session to the progress of a session.
pub(super) const SESSIONS: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new("sessions");
/// Series whose row is gone and whose chunks are still to be removed.
pub(super) const DOOMED: TableDefinition<'_, u64, ()> = TableDefinition::new("doomed");

pub(super) const META_FORMAT: &str = "format";
pub(super) const META_NEXT_SOURCE: &str = "next_source";
pub(super) const META_NEXT_SERIES: &str = "next_series";
/// When the stream was made that feeds the store, as the bits of its nanoseconds.
pub(super) const META_FEED_CREATED: &str = "feed_created";
pub(super) const META_FEED_BASE: &str = "feed_base";

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkKey {
    pub(super) series: u64,
    pub(super) sequence: u64,
    pub(super) offset: u32,
}

impl ChunkKey {
    pub(super) fn bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.series.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8; 20]) -> Self {
        Self { series: be_u64(&bytes[..8]), sequence: be_u64(&bytes[8..16]), offset: be_u32(&bytes[16..]) }
    }

    /// The first and the last key that a chunk of the series could have.
    pub(super) fn all_of(series: u64) -> ([u8; 20], [u8; 20]) {
        (Self { series, sequence: 0, offset: 0 }.bytes(), Self { series, sequence: u64::MAX, offset: u32::MAX }.bytes())
    }
}

fn be_u64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

pub(super) fn open_key(shard: u8, cut: u64, series: u64) -> [u8; 17] {
    let mut bytes = [0; 17];
    bytes[0] = shard;
    bytes[1..9].copy_from_slice(&cut.to_be_bytes());
    bytes[9..].copy_from_slice(&series.to_be_bytes());
    bytes
}

/// The series of an open key.
pub(super) fn series_of_open(bytes: &[u8; 17]) -> u64 {
    be_u64(&bytes[9..])
}

pub(super) fn series_key(source: u64, key: &SeriesKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + key.name.as_str().len());
    bytes.extend_from_slice(&source.to_be_bytes());
    bytes.extend_from_slice(&key.attempt.0.to_be_bytes());
    bytes.extend_from_slice(&key.rank.0.to_be_bytes());
    bytes.extend_from_slice(key.name.as_str().as_bytes());
    bytes
}

/// attempt, rank and name of a series key.
pub(super) fn read_series_key(bytes: &[u8]) -> Option<(u32, u32, &str)> {
    let name = std::str::from_utf8(bytes.get(16..)?).ok()?;
    Some((be_u32(&bytes[8..12]), be_u32(&bytes[12..16]), name))
}

pub(super) fn session_key(source: u64, key: &SessionKey) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&source.to_be_bytes());
    bytes[8..12].copy_from_slice(&key.attempt.0.to_be_bytes());
    bytes[12..16].copy_from_slice(&key.rank.0.to_be_bytes());
    bytes[16..].copy_from_slice(key.session.as_bytes());
    bytes
}

/// attempt, rank and session of a session key.
pub(super) fn read_session_key(bytes: &[u8; 32]) -> (u32, u32, [u8; 16]) {
    let mut session = [0; 16];
    session.copy_from_slice(&bytes[16..]);
    (be_u32(&bytes[8..12]), be_u32(&bytes[12..16]), session)
}

/// The tables as the writer holds them.
pub(super) struct Tables<'t> {
    pub(super) meta: Table<'t, &'static str, u64>,
    pub(super) floors: Table<'t, u8, u64>,
    pub(super) sources: Table<'t, &'static str, u64>,
    pub(super) series: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) chunks: Table<'t, &'static [u8; 20], &'static [u8]>,
    pub(super) open: Table<'t, &'static [u8; 17], ()>,
    pub(super) sessions: Table<'t, &'static [u8; 32], &'static [u8]>,
    pub(super) doomed: Table<'t, u64, ()>,
}

impl<'t> Tables<'t> {
    pub(super) fn of(txn: &'t WriteTransaction) -> Result<Self, Fault> {
        Ok(Self {
            meta: txn.open_table(META)?,
            floors: txn.open_table(FLOORS)?,
            sources: txn.open_table(SOURCES)?,
            series: txn.open_table(SERIES)?,
            chunks: txn.open_table(CHUNKS)?,
            open: txn.open_table(OPEN)?,
            sessions: txn.open_table(SESSIONS)?,
            doomed: txn.open_table(DOOMED)?,
        })
    }

    /// The next number of a counter.
    pub(super) fn number(&mut self, counter: &str) -> Result<u64, Fault> {
        let number = self.meta.get(counter)?.map_or(1, |next| next.value());
        self.meta.insert(counter, number + 1)?;
        Ok(number)
    }

    /// The number of a source, given to it when it has none.
    pub(super) fn source(&mut self, text: &str) -> Result<u64, Fault> {
        if let Some(known) = self.sources.get(text)? {
            return Ok(known.value());
        }
        let number = self.number(META_NEXT_SOURCE)?;
        self.sources.insert(text, number)?;
        Ok(number)
    }
}

/// Whether the file has its tables; one of a newer layout is refused.
pub(super) fn is_prepared(txn: &ReadTransaction) -> Result<bool, Fault> {
    let meta = match txn.open_table(META) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(false),
        meta => meta?,
    };
    match meta.get(META_FORMAT)?.map(|format| format.value()) {
        None => Ok(false),
        Some(found) if found > FORMAT => Err(Fault::TooNew(found)),
        Some(_) => Ok(true),
    }
}

/// Makes the tables and notes their layout.
pub(super) fn prepare(txn: &WriteTransaction) -> Result<(), Fault> {
    let mut tables = Tables::of(txn)?;
    tables.meta.insert(META_FORMAT, FORMAT)?;
    Ok(())
}

/// The number of a source in a read transaction; none when nothing of it was ever stored.
pub(super) fn source_number(txn: &ReadTransaction, text: &str) -> Result<Option<u64>, Fault> {
    Ok(txn.open_table(SOURCES)?.get(text)?.map(|number| number.value()))
}
