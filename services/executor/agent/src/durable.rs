//! Small files that are either the old ones or the new ones, whenever the power goes.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Replaces `path` with `bytes`: temporary file, fsync, rename, fsync of the folder. Readable by the owner alone. One at a time for each path.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&temporary, path)) {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// [`write`]; on a full disk, over the file's own bytes, where they are as many: that needs no room.
pub(crate) fn write_or_overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match write(path, bytes) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            let file = OpenOptions::new().write(true).open(path)?;
            if file.metadata()?.len() != bytes.len() as u64 {
                return Err(error);
            }
            file.write_all_at(bytes, 0)?;
            file.sync_data()
        }
        other => other,
    }
}

/// A value in one of two files of fixed size, written in turn: a crash leaves the other one, and a full disk does not matter, since the
/// room was taken beforehand.
#[derive(Debug)]
pub(crate) struct Twin {
    files: [File; 2],
    /// Number of the last value written; its file is `number % 2`.
    number: u64,
}

/// Bytes of a record before its value: number, length, check sum.
const TWIN_HEADER: usize = 8 + 8 + 4;

impl Twin {
    /// Opens the pair `<path>.0`, `<path>.1`, with room for `bytes` each, and reads the newest whole value.
    pub(crate) fn open(path: &Path, bytes: u64) -> io::Result<(Self, Option<Vec<u8>>)> {
        let open = |number: u32| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{number}"));
            let path = path.with_file_name(name);
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
            if file.metadata()?.len() < bytes {
                take_room(&file, bytes)?;
            }
            Ok::<_, io::Error>(file)
        };
        let files = [open(0)?, open(1)?];
        sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        let newest = files.iter().filter_map(read_record).max_by_key(|(number, _)| *number);
        let (number, value) = newest.map_or((0, None), |(number, value)| (number, Some(value)));
        Ok((Self { files, number }, value))
    }

    /// Makes `value` the newest.
    pub(crate) fn write(&mut self, value: &[u8]) -> io::Result<()> {
        let number = self.number + 1;
        let mut record = Vec::with_capacity(TWIN_HEADER + value.len());
        record.extend_from_slice(&number.to_le_bytes());
        record.extend_from_slice(&(value.len() as u64).to_le_bytes());
        record.extend_from_slice(&record_sum(number, value).to_le_bytes());
        record.extend_from_slice(value);
        let file = &self.files[(number % 2) as usize];
        file.write_all_at(&record, 0)?;
        file.sync_data()?;
        self.number = number;
        Ok(())
    }
}

/// Takes the room on the disk, by writing zeros where the file system cannot do it at a stroke. What stands in the file stays.
fn take_room(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let from = file.metadata()?.len();
            file.write_all_at(&vec![0u8; bytes.saturating_sub(from) as usize], from)?;
        }
        Err(error) => return Err(error.into()),
    }
    file.sync_all()
}

fn record_sum(number: u64, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&(value.len() as u64).to_le_bytes());
    hasher.update(value);
    hasher.finalize()
}

fn read_record(file: &File) -> Option<(u64, Vec<u8>)> {
    let mut header = [0u8; TWIN_HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    let number = u64::from_le_bytes(header[..8].try_into().ok()?);
    let length = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let sum = u32::from_le_bytes(header[16..].try_into().ok()?);
    if number == 0 || length > file.metadata().ok()?.len() {
        return None;
    }
    let mut value = vec![0u8; length as usize];
    file.read_exact_at(&mut value, TWIN_HEADER as u64).ok()?;
    (record_sum(number, &value) == sum).then_some((number, value))
}

/// Replaces `path` with the JSON of `value`.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write(path, &serde_json::to_vec(value).map_err(io::Error::other)?)
}

/// [`write_json`] for a folder that may be removed meanwhile: what it held is then of no use to anybody.
pub(crate) fn write_json_while_there(path: &Path, value: &impl Serialize) -> io::Result<()> {
    match write_json(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.parent().is_some_and(Path::exists) => Ok(()),
        other => other,
    }
}

/// Reads JSON; absent is `None`, unreadable is an error.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_value_of_a_pair_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let (mut twin, none) = Twin::open(&path, 4_096).unwrap();
        assert_eq!(none, None);
        for text in ["first", "second", "third"] {
            twin.write(text.as_bytes()).unwrap();
        }
        drop(twin);
        let (mut twin, value) = Twin::open(&path, 4_096).unwrap();
        assert_eq!(value.as_deref(), Some(b"third".as_slice()));
        twin.write(&vec![b'x'; 10_000]).unwrap();
        drop(twin);
        // Torn in the middle: the one before stands.
        let torn = dir.path().join("state.0");
        let mut bytes = fs::read(&torn).unwrap();
        bytes[5_000] ^= 1;
        fs::write(&torn, bytes).unwrap();
        let (mut twin, value) = Twin::open(&path, 4_096).unwrap();
        assert_eq!(value.as_deref(), Some(b"third".as_slice()));
        twin.write(b"fourth").unwrap();
        assert_eq!(Twin::open(&path, 4_096).unwrap().1.as_deref(), Some(b"fourth".as_slice()));
    }

    #[test]
    fn a_file_is_the_old_one_or_the_new_one_and_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, b"old").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
