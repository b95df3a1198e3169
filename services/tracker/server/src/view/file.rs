//! The view's file: SQLite, rows and position in one transaction.

use super::{Row, State, Table};
use footplate_events::messages::{Settled, SpoolPosition};
use footplate_tracker_core::{Artifact, Experiment, Run};
use footplate_types::{ArtifactPath, Digest, NodeName, ProjectName, RunId, SpoolId};
use rusqlite::{Connection, OpenFlags, Transaction, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// The shape of the rows and the meaning of their fold: raise it with either, and every file is built again.
pub const SCHEMA: u32 = 3;

/// How long a writer waits for a reader of the same file.
const BUSY: Duration = Duration::from_secs(5);

/// Rows that one thread reads at a time.
const PIECE: usize = 512;

/// The most threads that read documents at a start.
const THREADS_MAX: usize = 8;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS runs (project TEXT, id TEXT, name TEXT, document TEXT NOT NULL, PRIMARY KEY (project, id, name)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS experiments (project TEXT, id TEXT, name TEXT, document TEXT NOT NULL, PRIMARY KEY (project, id, name)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS artifacts (project TEXT, id TEXT, name TEXT, document TEXT NOT NULL, PRIMARY KEY (project, id, name)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS settled (node TEXT, spool TEXT, up_to INTEGER NOT NULL, PRIMARY KEY (node, spool)) WITHOUT ROWID;
";

/// Why the file cannot be used. The view lives on in memory; only the next start is slower.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// SQLite says no.
    #[error("the view's file {path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
    /// The folder cannot be made or the old file not be removed.
    #[error("the view's file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A row cannot be written as JSON.
    #[error("a row of the view cannot be written: {0}")]
    Row(#[from] serde_json::Error),
}

/// The opened file.
pub(crate) struct File {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Numbered pieces of a table, for the threads that read their documents.
type Pieces = Arc<Mutex<mpsc::Receiver<(usize, Vec<Row>)>>>;

/// All rows of the view's tables.
pub(crate) type Rows = BTreeMap<Table, Vec<Row>>;

impl File {
    /// Opens the file of a folder, making both when absent. A file that cannot be read, or is of another shape, is removed and begun anew.
    pub(crate) fn open(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join("tracker-view.sqlite");
        std::fs::create_dir_all(folder).map_err(|source| FileError::Io { path: path.clone(), source })?;
        match Self::open_at(&path) {
            Ok(file) => Ok(file),
            Err(error) => {
                tracing::warn!(%error, "the view's file cannot be used; it is built again from the ledger");
                Self::remove(&path)?;
                Self::open_at(&path).map_err(|source| FileError::Sqlite { path, source })
            }
        }
    }

    /// A file in memory, for tests.
    pub(crate) fn in_memory() -> Result<Self, FileError> {
        Self::open_at(Path::new(":memory:")).map_err(|source| FileError::Sqlite { path: PathBuf::from(":memory:"), source })
    }

    fn open_at(path: &Path) -> Result<Self, rusqlite::Error> {
        let connection = Connection::open_with_flags(path, OpenFlags::default())?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // The file may lose its newest transactions in a crash, never its consistency: the ledger gives them again.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(TABLES)?;
        let file = Self { path: path.to_owned(), connection: Mutex::new(connection) };
        let known = file.meta("schema")?;
        if known.as_deref() != Some(schema().as_str()) {
            file.clear()?;
        }
        Ok(file)
    }

    fn remove(path: &Path) -> Result<(), FileError> {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            match std::fs::remove_file(&name) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(FileError::Io { path: PathBuf::from(name), source });
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told<T>(&self, result: Result<T, rusqlite::Error>) -> Result<T, FileError> {
        result.map_err(|source| FileError::Sqlite { path: self.path.clone(), source })
    }

    fn meta(&self, key: &str) -> Result<Option<String>, rusqlite::Error> {
        let found = self.lock().query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0));
        match found {
            Ok(value) => Ok(Some(value)),
            Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets every row and begins at position 0.
    fn clear(&self) -> Result<(), rusqlite::Error> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        for table in Table::ALL {
            transaction.execute(&format!("DELETE FROM {}", table.as_str()), [])?;
        }
        set_meta(&transaction, "schema", &schema())?;
        set_meta(&transaction, "position", "0")?;
        set_meta(&transaction, "last_event", "")?;
        transaction.commit()
    }

    /// [`File::clear`], told of this file.
    pub(crate) fn begin_anew(&self) -> Result<(), FileError> {
        self.told(self.clear())
    }

    /// Makes the next start build the file again: a write was lost, or an event was not understood and must be met again by whoever would
    /// write on. What cannot be written even so is told.
    pub(crate) fn forget(&self) {
        let forgotten = self.lock().execute("UPDATE meta SET value = '0' WHERE key = 'schema'", []);
        if let Err(error) = forgotten {
            tracing::error!(%error, path = %self.path.display(), "the view's file can neither be written nor marked as old: remove it before the next start");
        }
    }

    /// The position that the rows stand at, and the last event folded into them: (sequence, id).
    pub(crate) fn position(&self) -> Result<(u64, Option<(u64, String)>), FileError> {
        let position = self.told(self.meta("position"))?.and_then(|text| text.parse().ok()).unwrap_or(0);
        let last = self.told(self.meta("last_event"))?.unwrap_or_default();
        let last = last.split_once(' ').and_then(|(sequence, id)| Some((sequence.parse().ok()?, id.to_owned())));
        Ok((position, last))
    }

    /// Writes rows and the position they bring the file to, in one transaction.
    pub(crate) fn write(&self, rows: &[(Table, Row)], position: u64, last: Option<&(u64, String)>) -> Result<(), FileError> {
        let written = || -> Result<(), rusqlite::Error> {
            let mut connection = self.lock();
            let transaction = connection.transaction()?;
            for (table, row) in rows {
                let sql = format!("INSERT OR REPLACE INTO {} (project, id, name, document) VALUES (?1, ?2, ?3, ?4)", table.as_str());
                transaction.prepare_cached(&sql)?.execute(params![row.project, row.id, row.name, row.document])?;
            }
            set_meta(&transaction, "position", &position.to_string())?;
            if let Some((sequence, id)) = last {
                set_meta(&transaction, "last_event", &format!("{sequence} {id}"))?;
            }
            transaction.commit()
        };
        self.told(written())
    }

    /// Every row, in order.
    pub(crate) fn rows(&self) -> Result<Rows, FileError> {
        let read = || -> Result<Rows, rusqlite::Error> {
            let connection = self.lock();
            let mut all = Rows::new();
            for table in Table::ALL {
                let mut statement = connection.prepare(&select(table))?;
                let rows = statement.query_map([], row_of)?;
                all.insert(table, rows.collect::<Result<_, _>>()?);
            }
            Ok(all)
        };
        self.told(read())
    }

    /// The state that the rows are; none when one cannot be read.
    pub(crate) fn load(&self) -> Result<Option<State>, FileError> {
        let runs = self.parsed(Table::Runs, |row| serde_json::from_str::<Run>(&row.document).ok())?;
        let experiments = self.parsed(Table::Experiments, |row| serde_json::from_str::<Experiment>(&row.document).ok())?;
        let artifacts = self.parsed(Table::Artifacts, |row| {
            let (project, id) = (ProjectName::parse(&row.project).ok()?, RunId::parse(&row.id).ok()?);
            let artifact = serde_json::from_str::<Artifact>(&row.document).ok()?;
            Some((project, id, ArtifactPath::parse(&row.name).ok()?, artifact))
        })?;
        let (Some(runs), Some(experiments), Some(artifacts)) = (runs, experiments, artifacts) else { return Ok(None) };
        Ok(State::from_parts(runs, experiments, artifacts))
    }

    /// What the rows of a table hold, in order; none when one cannot be read. Reading documents is most of a start, and is done by as many threads as
    /// there are processors, while one reads the file; there are never more than a few pieces of it in memory that are not read yet.
    fn parsed<T: Send>(&self, table: Table, parse: impl Fn(&Row) -> Option<T> + Sync) -> Result<Option<Vec<T>>, FileError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let (pieces, taken) = mpsc::sync_channel::<(usize, Vec<Row>)>(threads);
        // Held by the threads alone: when none is left, nobody waits to give them more.
        let taken = Arc::new(Mutex::new(taken));
        let work = |taken: Pieces| {
            let mut read = Vec::new();
            loop {
                let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((number, rows)) = next else { return read };
                read.push((number, rows.iter().map(&parse).collect::<Option<Vec<T>>>()));
            }
        };
        let (sent, read) = std::thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = std::iter::repeat_n(taken, threads).map(|taken| scope.spawn(move || work(taken))).collect();
            let sent = self.told(self.each_piece(table, |number, rows| pieces.send((number, rows)).is_ok()));
            drop(pieces);
            (sent, workers.into_iter().map(|worker| worker.join().ok()).collect::<Option<Vec<_>>>())
        });
        sent?;
        let Some(read) = read else { return Ok(None) };
        let mut read: Vec<_> = read.into_iter().flatten().collect();
        read.sort_unstable_by_key(|(number, _)| *number);
        Ok(read.into_iter().map(|(_, piece)| piece).collect::<Option<Vec<_>>>().map(|pieces| pieces.into_iter().flatten().collect()))
    }

    /// Gives the rows of a table away in pieces, in order, as long as they are taken.
    fn each_piece(&self, table: Table, mut give: impl FnMut(usize, Vec<Row>) -> bool) -> Result<(), rusqlite::Error> {
        let connection = self.lock();
        let mut statement = connection.prepare(&select(table))?;
        let mut rows = statement.query_map([], row_of)?;
        for number in 0.. {
            let piece = rows.by_ref().take(PIECE).collect::<Result<Vec<Row>, _>>()?;
            if piece.is_empty() || !give(number, piece) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Remembers up to which offset a spool's reports are folded: more spools than the broker's last message a node tells of.
    pub(crate) fn settle(&self, settled: &Settled) -> Result<(), FileError> {
        let sql = "INSERT INTO settled (node, spool, up_to) VALUES (?1, ?2, ?3)
                   ON CONFLICT (node, spool) DO UPDATE SET up_to = MAX(up_to, excluded.up_to)";
        let offset = i64::try_from(settled.up_to.offset).unwrap_or(i64::MAX);
        self.told(self.lock().execute(sql, params![settled.node.as_str(), settled.up_to.spool.to_string(), offset])).map(|_| ())
    }

    /// What is remembered of the spools.
    pub(crate) fn settled(&self) -> Result<Vec<Settled>, FileError> {
        let read = || -> Result<Vec<Settled>, rusqlite::Error> {
            let connection = self.lock();
            let mut statement = connection.prepare("SELECT node, spool, up_to FROM settled")?;
            let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)))?;
            let mut all = Vec::new();
            for row in rows {
                let (node, spool, offset) = row?;
                if let (Ok(node), Ok(spool), Ok(offset)) = (NodeName::parse(&node), SpoolId::parse(&spool), u64::try_from(offset)) {
                    all.push(Settled { node, up_to: SpoolPosition { spool, offset } });
                }
            }
            Ok(all)
        };
        self.told(read())
    }
}

/// What the rows stand for: their shape, and every type of event that this build folds. A build that knows another type builds anew, so
/// that what its predecessor had to skip is in the rows.
fn schema() -> String {
    let types: Vec<String> = footplate_events::known_types().iter().map(ToString::to_string).collect();
    format!("{SCHEMA} {}", Digest::of(types.join(" ").as_bytes()))
}

fn select(table: Table) -> String {
    format!("SELECT project, id, name, document FROM {} ORDER BY project, id, name", table.as_str())
}

fn row_of(row: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
    Ok(Row { project: row.get(0)?, id: row.get(1)?, name: row.get(2)?, document: row.get(3)? })
}

fn set_meta(transaction: &Transaction<'_>, key: &str, value: &str) -> Result<(), rusqlite::Error> {
    transaction.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)", params![key, value]).map(|_| ())
}
