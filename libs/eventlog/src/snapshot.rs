//! Snapshots of an owner's view: a start is a snapshot plus the ledger's tail (rule 13). They are a help, never the truth: one that is of
//! another form, damaged, of another ledger or ahead of this one is left aside, and the ledger is read from its beginning.

use crate::ledger::Ledger;
use crate::live::Live;
use crate::port::{Bounds, ReadError, StreamName};
use footplate_es::Evolve;
use footplate_types::{Digest, Timestamp};
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The first line of a snapshot.
const MAGIC: &str = "footplate snapshot 3\n";
/// How often the ledger's ends are asked for at a start before the view begins without a snapshot.
const ASK_TRIES: u32 = 5;
/// The pause between two such tries.
const ASK_PAUSE: Duration = Duration::from_millis(200);

/// Keeps the newest snapshot of each name. A save is durable when it returns; a load never sees half of one.
pub trait SnapshotStore: Send + Sync + 'static {
    /// Keeps these bytes instead of the ones before.
    fn save<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, io::Result<()>>;
    /// The newest bytes, if there are any.
    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Vec<u8>>>>;
}

/// What stands before the state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// Up to which sequence the state is folded.
    sequence: u64,
    /// The form of the state.
    form: String,
    /// When the ledger that it was folded from was made: a new one counts anew.
    ledger: Timestamp,
    /// When the broker stored the event of that sequence: a ledger that was put back from an older copy and has grown on keeps its making.
    recorded: Option<Timestamp>,
    /// The state's digest.
    digest: Digest,
}

/// A place in a ledger, by which it is known again: what was read up to there is worth nothing in another ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landmark {
    /// When the ledger was made: a new one counts anew.
    pub ledger: Timestamp,
    /// The sequence of an event.
    pub sequence: u64,
    /// When the broker stored it: a ledger that was put back from an older copy and has grown on keeps its making. `None` where it was not known.
    pub recorded: Option<Timestamp>,
}

impl Landmark {
    /// Why this is not the ledger that the landmark stands in, or no longer; `None` where it is, or where the event has left the broker.
    ///
    /// # Errors
    /// A broker that does not answer.
    pub async fn misfit(&self, ledger: &Ledger, bounds: &Bounds) -> Result<Option<&'static str>, ReadError> {
        if self.ledger != bounds.created || self.sequence > bounds.last {
            return Ok(Some("not of this ledger"));
        }
        let recorded = recorded_at(ledger, bounds, self.sequence).await?;
        let is_same = recorded.is_none() || recorded == self.recorded;
        Ok((!is_same).then_some("the ledger was put back from an older copy"))
    }
}

/// The snapshots of one view.
#[derive(Clone)]
pub struct Snapshots {
    store: Arc<dyn SnapshotStore>,
    name: String,
    form: &'static str,
    every: Duration,
}

/// Where a service's views are kept and how often; what its configuration carries.
#[derive(Clone)]
pub struct Keeper {
    store: Arc<dyn SnapshotStore>,
    every: Duration,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("every", &self.every).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Keeps views in `store`, each time that one has moved and `every` has passed, and at a stop.
    pub fn new(store: Arc<dyn SnapshotStore>, every: Duration) -> Self {
        Self { store, every }
    }

    /// The snapshots of the view `name`. `form` names what its bytes mean and how they were folded: it changes whenever older bytes could no
    /// longer be read or would be folded otherwise.
    pub fn of(&self, name: &str, form: &'static str) -> Snapshots {
        Snapshots { store: self.store.clone(), name: format!("{name}-{form}"), form, every: self.every }
    }
}

impl Snapshots {
    /// A view to follow the ledger with: at its newest snapshot where that fits, at the beginning otherwise.
    pub async fn open<S: Evolve + Default + DeserializeOwned>(&self, ledger: &Ledger) -> Live<S> {
        let began = std::time::Instant::now();
        let (state, position) = self.restored(ledger).await.unwrap_or_default();
        tracing::info!(name = self.name, position, took_ms = began.elapsed().as_millis() as u64, "a view starts");
        Live::new(state, position)
    }

    async fn restored<S: DeserializeOwned>(&self, ledger: &Ledger) -> Option<(S, u64)> {
        let aside = |why: &str| {
            tracing::warn!(name = self.name, why, "a snapshot is left aside; the ledger is read from its beginning");
            None
        };
        let bytes = match self.store.load(&self.name).await {
            Ok(bytes) => bytes?,
            Err(error) => return aside(&error.to_string()),
        };
        let Some(bounds) = ends(ledger).await else { return aside("the ledger's end is not known") };
        let Some((head, state)) = read(&bytes) else { return aside("damaged") };
        if head.form != self.form {
            return aside("of another form");
        }
        let landmark = Landmark { ledger: head.ledger, sequence: head.sequence, recorded: head.recorded };
        match landmark.misfit(ledger, &bounds).await {
            Ok(None) => {}
            Ok(Some(why)) => return aside(why),
            Err(error) => return aside(&error.to_string()),
        }
        match ciborium::from_reader(state) {
            Ok(state) => Some((state, head.sequence)),
            Err(error) => aside(&error.to_string()),
        }
    }

    /// Keeps snapshots of the view until shut down, and one more then. A view with an event that is not understood is never kept: after a
    /// restart it would look sound.
    pub async fn keep<S: Evolve + Serialize + Send + Sync + 'static>(self, ledger: Ledger, live: Live<S>, shutdown: CancellationToken) {
        let mut kept = 0;
        loop {
            let last = tokio::select! {
                () = shutdown.cancelled() => true,
                () = tokio::time::sleep(self.every) => false,
            };
            if live.position() > kept && live.not_understood().is_empty() {
                match self.save(&ledger, &live).await {
                    Ok(sequence) => kept = sequence,
                    Err(error) => tracing::warn!(%error, name = self.name, "a snapshot could not be kept"),
                }
            }
            if last {
                return;
            }
        }
    }

    async fn save<S: Evolve + Serialize + Send + Sync + 'static>(&self, ledger: &Ledger, live: &Live<S>) -> io::Result<u64> {
        let before = ledger.broker().bounds(StreamName::Ledger).await.map_err(io::Error::other)?;
        let live = live.clone();
        // Writing a large state takes a while: not on the runtime's threads.
        let (sequence, state) = tokio::task::spawn_blocking(move || {
            let (state, sequence) = live.read_at();
            let mut bytes = Vec::new();
            ciborium::into_writer(&*state, &mut bytes).map(|()| (sequence, bytes)).map_err(io::Error::other)
        })
        .await
        .map_err(io::Error::other)??;
        // Asked again: events came meanwhile, and the view has folded them.
        let bounds = ledger.broker().bounds(StreamName::Ledger).await.map_err(io::Error::other)?;
        if bounds.created != before.created || sequence > bounds.last {
            return Err(io::Error::other("the view is ahead of the ledger that answers"));
        }
        let recorded = recorded_at(ledger, &bounds, sequence).await.map_err(io::Error::other)?;
        let head = Head { sequence, form: self.form.to_owned(), ledger: bounds.created, recorded, digest: Digest::of(&state) };
        self.store.save(&self.name, written(&head, &state)?).await?;
        Ok(sequence)
    }
}

/// The view of a service that may keep snapshots, and the task that keeps them.
pub async fn open<S>(snapshots: Option<Snapshots>, ledger: &Ledger) -> Live<S>
where
    S: Evolve + Default + DeserializeOwned,
{
    match snapshots {
        Some(snapshots) => snapshots.open(ledger).await,
        None => Live::new(S::default(), 0),
    }
}

async fn ends(ledger: &Ledger) -> Option<Bounds> {
    for _ in 0..ASK_TRIES {
        if let Ok(bounds) = ledger.broker().bounds(StreamName::Ledger).await {
            return Some(bounds);
        }
        tokio::time::sleep(ASK_PAUSE).await;
    }
    None
}

/// When the event of a sequence was stored; `None` where it is no longer in the stream.
async fn recorded_at(ledger: &Ledger, bounds: &Bounds, sequence: u64) -> Result<Option<Timestamp>, ReadError> {
    if sequence < bounds.first.max(1) {
        return Ok(None);
    }
    let page = ledger.broker().read(StreamName::Ledger, ">", sequence, 1).await?;
    Ok(page.messages.first().filter(|stored| stored.sequence == sequence).map(|stored| stored.recorded_at))
}

fn written(head: &Head, state: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = MAGIC.as_bytes().to_vec();
    serde_json::to_writer(&mut bytes, head)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(state);
    Ok(bytes)
}

fn read(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&rest[..end]).ok()?;
    let state = &rest[end + 1..];
    (Digest::of(state) == head.digest).then_some((head, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::follow;
    use crate::memory::MemoryBroker;
    use footplate_events::facts::TermBegan;
    use footplate_events::{Envelope, Recorded, Subject};
    use footplate_types::{EventId, PrincipalId, ServiceName};
    use futures::FutureExt;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    const WITHIN: Duration = Duration::from_secs(20);

    #[derive(Default)]
    struct InMemory(Mutex<BTreeMap<String, Vec<u8>>>);

    impl SnapshotStore for InMemory {
        fn save<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, io::Result<()>> {
            self.0.lock().unwrap().insert(name.to_owned(), bytes);
            async { Ok(()) }.boxed()
        }

        fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Vec<u8>>>> {
            let found = self.0.lock().unwrap().get(name).cloned();
            async { Ok(found) }.boxed()
        }
    }

    /// Which events a view has folded since it began, and which it took over.
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Seen {
        sequences: Vec<u64>,
        #[serde(skip)]
        folded_here: usize,
    }

    impl Evolve for Seen {
        fn evolve(&mut self, recorded: &Recorded) {
            self.sequences.push(recorded.sequence);
            self.folded_here += 1;
        }
    }

    async fn append(ledger: &Ledger, number: u8) -> u64 {
        let service = ServiceName::parse(&format!("s{number}")).unwrap();
        let id = EventId::from_bytes([number; 16]);
        let envelope = Envelope {
            id,
            subject: Subject::term(&service),
            event: TermBegan { service, instance: "i".to_owned() }.into(),
            source: "test".to_owned(),
            time: Timestamp::default(),
            actor: PrincipalId::parse("user:ada").unwrap(),
            correlation: id,
            causation: None,
            trace: None,
        };
        ledger.append(envelope, 0).await.unwrap()
    }

    /// Runs a view until it has read to the ledger's end, then stops it in order.
    async fn lived(store: &Arc<InMemory>, form: &'static str, ledger: &Ledger) -> (Vec<u64>, usize) {
        let snapshots = Keeper::new(store.clone(), Duration::from_secs(3_600)).of("view", form);
        let live: Live<Seen> = snapshots.open(ledger).await;
        let shutdown = CancellationToken::new();
        let following = tokio::spawn(follow(ledger.clone(), Vec::new(), live.clone(), shutdown.clone()));
        let keeping = tokio::spawn(snapshots.keep(ledger.clone(), live.clone(), shutdown.clone()));
        live.at_least(ledger.end().await.unwrap(), WITHIN).await.unwrap();
        shutdown.cancel();
        following.await.unwrap();
        keeping.await.unwrap();
        let state = live.read();
        (state.sequences.clone(), state.folded_here)
    }

    #[tokio::test]
    async fn a_start_is_the_snapshot_and_the_tail() {
        let (store, ledger) = (Arc::new(InMemory::default()), Ledger::new(Arc::new(MemoryBroker::new())));
        append(&ledger, 1).await;
        append(&ledger, 2).await;
        assert_eq!(lived(&store, "1", &ledger).await, (vec![1, 2], 2));
        append(&ledger, 3).await;
        assert_eq!(lived(&store, "1", &ledger).await, (vec![1, 2, 3], 1));
        assert_eq!(lived(&store, "1", &ledger).await, (vec![1, 2, 3], 0));
        // Another form begins anew, and does not stand in the way of the first.
        assert_eq!(lived(&store, "2", &ledger).await, (vec![1, 2, 3], 3));
        assert_eq!(lived(&store, "1", &ledger).await, (vec![1, 2, 3], 0));
    }

    #[tokio::test]
    async fn a_snapshot_that_is_damaged_or_of_another_ledger_is_left_aside() {
        let (store, ledger) = (Arc::new(InMemory::default()), Ledger::new(Arc::new(MemoryBroker::new())));
        append(&ledger, 1).await;
        append(&ledger, 2).await;
        lived(&store, "1", &ledger).await;
        let whole = store.0.lock().unwrap().clone();
        for cut in [0, 10, whole["view-1"].len() - 1] {
            store.0.lock().unwrap().insert("view-1".to_owned(), whole["view-1"][..cut].to_vec());
            assert_eq!(lived(&store, "1", &ledger).await, (vec![1, 2], 2), "cut at {cut}");
        }
        *store.0.lock().unwrap() = whole.clone();
        store.0.lock().unwrap().get_mut("view-1").unwrap().iter_mut().last().into_iter().for_each(|byte| *byte ^= 1);
        assert_eq!(lived(&store, "1", &ledger).await, (vec![1, 2], 2));
        // A ledger that was made later counts anew, whether it is shorter or already longer.
        *store.0.lock().unwrap() = whole;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let other = Ledger::new(Arc::new(MemoryBroker::new()));
        for number in 4..8 {
            append(&other, number).await;
        }
        assert_eq!(lived(&store, "1", &other).await, (vec![1, 2, 3, 4], 4));
    }

    #[tokio::test]
    async fn a_snapshot_is_left_aside_when_the_ledger_was_put_back_from_an_older_copy_and_has_grown_on() {
        let (store, ledger) = (Arc::new(InMemory::default()), Ledger::new(Arc::new(MemoryBroker::new())));
        append(&ledger, 1).await;
        append(&ledger, 2).await;
        lived(&store, "1", &ledger).await;
        let bytes = store.0.lock().unwrap()["view-1"].clone();
        let (head, state) = read(&bytes).unwrap();
        assert!(head.recorded.is_some());
        // The snapshot saw another event where the second stands now.
        let other = Head { recorded: Some(Timestamp::default()), ..head };
        store.0.lock().unwrap().insert("view-1".to_owned(), written(&other, state).unwrap());
        assert_eq!(lived(&store, "1", &ledger).await, (vec![1, 2], 2));
    }

    #[tokio::test]
    async fn a_view_with_an_event_that_is_not_understood_is_not_kept() {
        let (store, broker) = (Arc::new(InMemory::default()), Arc::new(MemoryBroker::new()));
        let ledger = Ledger::new(broker.clone());
        append(&ledger, 1).await;
        let poison = crate::Message { subject: "fp.ledger.p.run.x".to_owned(), headers: Default::default(), payload: "x".into() };
        crate::Broker::publish(broker.as_ref(), StreamName::Ledger, poison, crate::Expect::Any).await.unwrap();
        lived(&store, "1", &ledger).await;
        assert!(store.0.lock().unwrap().is_empty());
    }
}
