//! From what redb says to what a caller can do; and the slot that holds the database, closes it after a fault and opens it again.

use super::{read::Reader, tables};
use crate::{SeriesError, chunk::Damaged};
use redb::{Database, DatabaseError, ReadableDatabase};
use std::{
    io::ErrorKind,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

/// What went wrong inside, before the file's name is known.
#[derive(Debug)]
pub(super) enum Fault {
    Redb(Box<redb::Error>),
    Damaged(String),
    TooNew(u64),
    Panicked,
}

impl<E: Into<redb::Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}

impl From<Damaged> for Fault {
    fn from(Damaged(what): Damaged) -> Self {
        Self::Damaged(what)
    }
}

pub(super) fn io(path: &Path, error: std::io::Error) -> SeriesError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => SeriesError::DiskFull { path },
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => SeriesError::Corrupted { path, what: error.to_string() },
        _ => SeriesError::Io { path, source: Arc::new(error) },
    }
}

impl Fault {
    pub(super) fn told(self, path: &Path) -> SeriesError {
        let corrupted = |what: String| SeriesError::Corrupted { path: path.to_owned(), what };
        match self {
            Self::Redb(error) => match *error {
                redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => SeriesError::InUse { path: path.to_owned() },
                redb::Error::Io(error) => io(path, error),
                redb::Error::UpgradeRequired(found) => corrupted(format!("its file format {found} is not one this program can read")),
                redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
                    io(path, std::io::Error::other("an earlier fault of the disk; the file is being opened again"))
                }
                other => corrupted(other.to_string()),
            },
            Self::Damaged(what) => corrupted(what),
            Self::TooNew(found) => SeriesError::TooNew { path: path.to_owned(), found, known: tables::FORMAT },
            Self::Panicked => corrupted("its pages contradict each other".to_owned()),
        }
    }

    /// Whether the database must be opened again before it can be used.
    fn breaks_database(&self) -> bool {
        match self {
            Self::Redb(error) => !matches!(**error, redb::Error::ValueTooLarge(_)),
            Self::Panicked => true,
            Self::Damaged(_) | Self::TooNew(_) => false,
        }
    }
}

/// Runs `work`; a panic inside (redb's answer to some damaged files) is a fault like any other.
fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Fault::Panicked))
}

type Open = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// The database, or why it is not open.
pub(super) struct Slot {
    pub(super) path: PathBuf,
    open: Open,
    database: RwLock<Result<Database, SeriesError>>,
}

impl Slot {
    pub(super) fn open(path: PathBuf, open: Open) -> Result<Self, SeriesError> {
        let database = open_checked(&open).map_err(|fault| fault.told(&path))?;
        Ok(Self { path, open, database: RwLock::new(Ok(database)) })
    }

    /// Runs `work` on the database. After a fault of the disk it is closed and opened again: at once, so that what is stored stays readable on
    /// a full disk, or by the next write.
    pub(super) fn write<T>(&self, work: impl FnOnce(&Database) -> Result<T, Fault>) -> Result<T, SeriesError> {
        self.reopen_if_broken()?;
        let outcome = {
            let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
            let database = database.as_ref().map_err(Clone::clone)?;
            guarded(|| work(database))
        };
        outcome.map_err(|fault| {
            let breaks = fault.breaks_database();
            let told = fault.told(&self.path);
            if breaks {
                tracing::error!(path = %self.path.display(), error = %told, "writing to the series store failed");
                *self.database.write().unwrap_or_else(PoisonError::into_inner) = Err(told.clone());
                drop(self.reopen_if_broken());
            }
            told
        })
    }

    fn reopen_if_broken(&self) -> Result<(), SeriesError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if database.is_err() {
            *database = open_checked(&self.open).map_err(|fault| fault.told(&self.path));
            if let Err(error) = &*database {
                return Err(error.clone());
            }
            tracing::info!(path = %self.path.display(), "the series store is open again");
        }
        Ok(())
    }

    /// Runs `work` on one consistent state.
    pub(super) fn read<T>(&self, work: impl FnOnce(&Reader<'_>) -> Result<T, Fault>) -> Result<T, SeriesError> {
        let begun = {
            let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
            let database = database.as_ref().map_err(Clone::clone)?;
            guarded(|| Ok(database.begin_read()?))
        };
        let outcome = begun.and_then(|txn| guarded(|| work(&Reader::new(&txn))));
        outcome.map_err(|fault| fault.told(&self.path))
    }
}

fn open_checked(open: &Open) -> Result<Database, Fault> {
    guarded(|| {
        let database = open()?;
        if !tables::is_prepared(&database.begin_read()?)? {
            let txn = database.begin_write()?;
            tables::prepare(&txn)?;
            txn.commit()?;
        }
        Ok(database)
    })
}
