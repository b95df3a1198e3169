//! Where a reader of a stream keeps its place: how far it has come, and what it has parked.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A message that could not be taken in, put aside with its reason until an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// Where it stands.
    pub sequence: u64,
    /// On which subject.
    pub subject: String,
    /// Why it could not be taken in.
    pub reason: String,
    /// The build that could not.
    pub build: String,
}

/// A reader's place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Everything up to here has been handled or parked.
    pub position: u64,
    /// When the broker stored the message at `position`, in nanoseconds since the epoch, where it was a message: a stream that was wiped
    /// or cut gives the sequence to another message.
    #[serde(default)]
    pub recorded_nanos: Option<i64>,
    /// What is parked, by sequence.
    #[serde(default)]
    pub parked: Vec<Parked>,
}

/// Keeps a place. A save is durable when it returns.
pub trait PlaceStore: Send + 'static {
    /// The kept place; the beginning when there is none.
    fn load(&mut self) -> io::Result<Place>;
    /// Keeps a place instead of the one before.
    fn save(&mut self, place: &Place) -> io::Result<()>;
}

/// A place in a file of its own, replaced as a whole.
#[derive(Debug)]
pub struct FilePlace {
    path: PathBuf,
}

impl FilePlace {
    /// The place of the reader called `name` in `folder`, which is made when it is missing.
    pub fn new(folder: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { path: folder.join(format!("{name}.place.json")) })
    }
}

impl PlaceStore for FilePlace {
    fn load(&mut self) -> io::Result<Place> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Place::default()),
            Err(error) => Err(error),
        }
    }

    fn save(&mut self, place: &Place) -> io::Result<()> {
        let bytes = serde_json::to_vec(place).map_err(io::Error::other)?;
        replace_file(&self.path, &[&bytes])
    }
}

/// Writes a file whole or not at all: beside it, synced, renamed over it, and the folder synced.
pub(crate) fn replace_file(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::File::create(&beside)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// A place in memory, for tests: what was saved outlives the reader, not the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlace {
    place: std::sync::Arc<std::sync::Mutex<Place>>,
}

impl MemoryPlace {
    /// What was saved last.
    pub fn saved(&self) -> Place {
        self.place.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl PlaceStore for MemoryPlace {
    fn load(&mut self) -> io::Result<Place> {
        Ok(self.saved())
    }

    fn save(&mut self, place: &Place) -> io::Result<()> {
        *self.place.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = place.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_outlives_its_reader() {
        let folder = tempfile::tempdir().unwrap();
        let parked = Parked { sequence: 4, subject: "a".to_owned(), reason: "b".to_owned(), build: "1".to_owned() };
        let place = Place { position: 9, recorded_nanos: Some(5), parked: vec![parked] };
        let mut store = FilePlace::new(folder.path(), "x").unwrap();
        assert_eq!(store.load().unwrap(), Place::default());
        store.save(&place).unwrap();
        assert_eq!(FilePlace::new(folder.path(), "x").unwrap().load().unwrap(), place);
        assert_eq!(FilePlace::new(folder.path(), "y").unwrap().load().unwrap(), Place::default());
    }
}
