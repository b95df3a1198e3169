//! Packs: pieces of one log in the object store, each named by where its first byte stands.
//!
//! `logs/packs/<run>/<attempt>-<member>/<rank>-<stream>/<at, 20 digits>-<stream sequence, 20 digits>`: the content is the raw bytes, so
//! that a pack needs no format; pieces may overlap after a crash, and readers drop what they have.

use bytes::Bytes;
use footplate_blobs::{BlobError, Blobs};
use footplate_events::facts::LogStream;
use footplate_types::{AttemptId, MemberIndex, Rank};
use futures::TryStreamExt;
use object_store::{ObjectStoreExt, path::Path};

/// One log: one stream of one worker of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogKey {
    pub(crate) attempt: AttemptId,
    pub(crate) member: MemberIndex,
    pub(crate) rank: Rank,
    pub(crate) stream: LogStream,
}

/// One pack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pack {
    /// Where its first byte stands.
    pub(crate) at: u64,
    /// Its size.
    pub(crate) bytes: u64,
    path: String,
}

/// The packs in an object store.
#[derive(Clone, Debug)]
pub(crate) struct Packs {
    blobs: Blobs,
}

fn member_prefix(attempt: AttemptId, member: MemberIndex) -> String {
    format!("logs/packs/{}/{}-{member}", attempt.run, attempt.attempt)
}

fn log_prefix(key: &LogKey) -> String {
    format!("{}/{}-{}", member_prefix(key.attempt, key.member), key.rank, key.stream.as_str())
}

/// What the object store said, in the words of blobs: who has to mend it.
fn told(error: object_store::Error) -> String {
    BlobError::from(error).to_string()
}

impl Packs {
    pub(crate) fn new(blobs: Blobs) -> Self {
        Self { blobs }
    }

    /// Stores one piece; `Ok` when it is durable.
    pub(crate) async fn put(&self, key: &LogKey, at: u64, sequence: u64, bytes: Bytes) -> Result<(), String> {
        let path = Path::from(format!("{}/{at:020}-{sequence:020}", log_prefix(key)));
        self.blobs.object_store().put(&path, bytes.into()).await.map(|_| ()).map_err(told)
    }

    /// The logs of a member that have packs.
    pub(crate) async fn logs_of(&self, attempt: AttemptId, member: MemberIndex) -> Result<Vec<LogKey>, String> {
        let prefix = Path::from(member_prefix(attempt, member));
        let listed = self.blobs.object_store().list_with_delimiter(Some(&prefix)).await.map_err(told)?;
        let mut keys = Vec::new();
        for folder in listed.common_prefixes {
            let name = folder.filename().unwrap_or_default();
            let parsed = name.split_once('-').and_then(|(rank, stream)| Some((rank.parse().ok()?, LogStream::parse(stream)?)));
            if let Some((rank, stream)) = parsed {
                keys.push(LogKey { attempt, member, rank: Rank(rank), stream });
            }
        }
        keys.sort();
        Ok(keys)
    }

    /// The pieces of one log, by where they begin.
    pub(crate) async fn list(&self, key: &LogKey) -> Result<Vec<Pack>, String> {
        let prefix = Path::from(log_prefix(key));
        let objects: Vec<_> = self.blobs.object_store().list(Some(&prefix)).try_collect().await.map_err(told)?;
        let mut packs: Vec<Pack> = objects
            .into_iter()
            .filter_map(|object| {
                let at = object.location.filename()?.split_once('-')?.0.parse().ok()?;
                Some(Pack { at, bytes: object.size, path: object.location.to_string() })
            })
            .collect();
        packs.sort();
        Ok(packs)
    }

    /// The bytes of one piece.
    pub(crate) async fn get(&self, pack: &Pack) -> Result<Bytes, String> {
        let got = self.blobs.object_store().get(&Path::from(pack.path.as_str())).await.map_err(told)?;
        got.bytes().await.map_err(told)
    }

    /// Removes one piece.
    pub(crate) async fn delete(&self, pack: &Pack) -> Result<(), String> {
        match self.blobs.object_store().delete(&Path::from(pack.path.as_str())).await {
            Ok(()) => Ok(()),
            Err(error) => match BlobError::from(error) {
                BlobError::Store(object_store::Error::NotFound { .. }) => Ok(()),
                error => Err(error.to_string()),
            },
        }
    }
}

/// The part of a piece that begins at `at` which a reader at `cursor` has not seen; `None` when it has seen all of it. The second value is the
/// size of the hole before it (0 = none).
pub(crate) fn unseen(cursor: u64, at: u64, bytes: &Bytes) -> Option<(Bytes, u64)> {
    let end = at + bytes.len() as u64;
    if end <= cursor {
        return None;
    }
    if at >= cursor {
        return Some((bytes.clone(), at - cursor));
    }
    Some((bytes.slice((cursor - at) as usize..), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_each_byte_once_and_is_told_of_holes() {
        let bytes = Bytes::from_static(b"abcdef");
        assert_eq!(unseen(0, 0, &bytes), Some((bytes.clone(), 0)));
        assert_eq!(unseen(4, 0, &bytes), Some((Bytes::from_static(b"ef"), 0)));
        assert_eq!(unseen(6, 0, &bytes), None);
        assert_eq!(unseen(2, 5, &bytes), Some((bytes.clone(), 3)));
    }
}
