//! Segments in memory, with the bad days of an object store. Every call waits, so that whoever makes it can be cut off there.

use crate::archive::{Created, SegmentStore};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A store of segments that forgets everything with the process.
#[derive(Debug, Default)]
pub struct MemorySegments {
    objects: Mutex<BTreeMap<String, Bytes>>,
    away: AtomicBool,
    silent: AtomicBool,
    lost_answers: AtomicU32,
    loads: AtomicU32,
    asked: AtomicU32,
}

impl MemorySegments {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it plays dead from here on.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// Whether it gives no answer at all from here on.
    pub fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }

    /// The next objects are made, and yet whoever made them is told of an error.
    pub fn lose_answers(&self, count: u32) {
        self.lost_answers.store(count, Ordering::SeqCst);
    }

    /// What there is, by name.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        self.all().clone()
    }

    /// Changes what there is, as no one should.
    pub fn tamper(&self, change: impl FnOnce(&mut BTreeMap<String, Bytes>)) {
        change(&mut self.all());
    }

    /// How often an object was asked for.
    pub fn loads(&self) -> u32 {
        self.loads.load(Ordering::SeqCst)
    }

    /// How often it was asked for anything, whether it answered or not.
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answers(&self) -> io::Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.away.load(Ordering::SeqCst) { Err(io::Error::other("the store in memory plays dead")) } else { Ok(()) }
    }
}

impl SegmentStore for MemorySegments {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, io::Result<Created>> {
        async move {
            self.answers().await?;
            let made = match self.all().entry(name.to_owned()) {
                std::collections::btree_map::Entry::Occupied(_) => Created::Exists,
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(bytes);
                    Created::New
                }
            };
            tokio::task::yield_now().await;
            let lost = self.lost_answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if lost.is_ok() { Err(io::Error::other("the answer was lost")) } else { Ok(made) }
        }
        .boxed()
    }

    fn replace<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, io::Result<()>> {
        async move {
            self.answers().await?;
            self.all().insert(name.to_owned(), bytes);
            Ok(())
        }
        .boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Bytes>>> {
        async move {
            self.answers().await?;
            self.loads.fetch_add(1, Ordering::SeqCst);
            Ok(self.all().get(name).cloned())
        }
        .boxed()
    }
}
