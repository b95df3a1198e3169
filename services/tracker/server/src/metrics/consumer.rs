//! From METRICS into the series store: each message once, in the order of the stream, and readable before it is stored.
//!
//! A stream that is made anew, or that lost its end, gives sequences a second time. What comes under them is new: in the store they count on
//! from its highest floor ([`Feed`]), and what is sent twice is found by its session, as always.

use crate::figures::Figures;
use crate::view::View;
use footplate_api::metrics::Batch;
use footplate_eventlog::{Bounds, Broker, Stored, StreamName, TailItem};
use footplate_series::{Feed, IngestBatch, Live, Pending, SHARDS, SeriesSource, SeriesStore, codec};
use footplate_types::{AttemptNumber, MetricName, NodeName, ProjectName, Rank, RunId, SessionId, Timestamp};
use futures::{FutureExt, StreamExt, stream::BoxStream};
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The mark of a tracker's own source in a METRICS subject: no node's name begins with it.
pub(crate) const OWN_SOURCE_MARK: char = '_';

/// The wait between two tries of something that the store or the broker could not do now.
const AGAIN: Duration = Duration::from_millis(200);

/// How many runs' last arrivals are remembered.
const ARRIVALS_MAX: usize = 100_000;

/// How the consumer works.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerConfig {
    /// The most points of one commit.
    pub commit_points: u64,
    /// The most messages of one commit.
    pub commit_messages: usize,
    /// How long points may wait for company before they are stored.
    pub linger: Duration,
    /// How many stored messages stay in the stream.
    pub replay_messages: u64,
    /// The least time between two purges.
    pub purge_every: Duration,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            commit_points: 65_536,
            commit_messages: 512,
            linger: Duration::from_millis(20),
            replay_messages: 10_000,
            purge_every: Duration::from_secs(10),
        }
    }
}

/// How far a stream was taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// When the stream was made: sequences of different streams are not to be compared.
    pub created: Timestamp,
    /// Up to where.
    pub sequence: u64,
}

impl Reached {
    /// Whether everything is taken in that was in the stream when it was looked at; of one that is gone since, nothing is to be waited for.
    pub fn covers(&self, bounds: &Bounds) -> bool {
        self.created > bounds.created || (self.created == bounds.created && self.sequence >= bounds.last)
    }
}

/// What readers need of the consumer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Consumer {
    series: Arc<Live>,
    /// Everything in METRICS up to here is in the store or its tail.
    received: watch::Receiver<Reached>,
    /// Everything in METRICS up to here is stored (or refused).
    stored: watch::Receiver<Reached>,
    arrivals: Arc<Mutex<BTreeMap<RunId, Timestamp>>>,
}

impl Consumer {
    /// The store with its tail.
    pub(crate) fn series(&self) -> &Arc<Live> {
        &self.series
    }

    /// Up to where METRICS is readable.
    pub(crate) fn received(&self) -> watch::Receiver<Reached> {
        self.received.clone()
    }

    /// Up to where METRICS is stored.
    pub(crate) fn stored(&self) -> watch::Receiver<Reached> {
        self.stored.clone()
    }

    /// When a run's newest batch reached the broker, since this instance began.
    pub(crate) fn arrived(&self, run: RunId) -> Option<Timestamp> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).get(&run).copied()
    }

    /// A consumer, and the task that runs it until shut down.
    pub(crate) fn new(
        view: View,
        series: Arc<Live>,
        config: ConsumerConfig,
        figures: Figures,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (received_to, received) = watch::channel(Reached::default());
        let (stored_to, stored) = watch::channel(Reached::default());
        let arrivals = Arc::default();
        let consumer = Self { series: series.clone(), received, stored, arrivals };
        let task = Task {
            broker: view.ledger().broker().clone(),
            view,
            series,
            config,
            figures,
            arrivals: consumer.arrivals.clone(),
            received: received_to,
            stored: stored_to,
            shutdown,
            floors: BTreeMap::new(),
            feed: Feed { created: Timestamp::default(), base: 0 },
            last_message: None,
            reached: 0,
            held: Vec::new(),
            held_points: 0,
            purged_at: Instant::now(),
        };
        (consumer, task.run())
    }
}

struct Task {
    broker: Arc<dyn Broker>,
    view: View,
    series: Arc<Live>,
    config: ConsumerConfig,
    figures: Figures,
    arrivals: Arc<Mutex<BTreeMap<RunId, Timestamp>>>,
    received: watch::Sender<Reached>,
    stored: watch::Sender<Reached>,
    shutdown: CancellationToken,
    /// The floor of each shard when this instance or the stream began: what is at or below it is stored.
    floors: BTreeMap<u8, u64>,
    /// The stream, and how its sequences are called in the store.
    feed: Feed,
    /// The last message that came: its sequence, and when it was stored.
    last_message: Option<(u64, Timestamp)>,
    /// The highest sequence of the stream that was told.
    reached: u64,
    /// Received and not yet stored, in the order of the stream.
    held: Vec<Arc<IngestBatch>>,
    held_points: u64,
    purged_at: Instant,
}

impl Task {
    async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.consume() => {}
        }
    }

    async fn consume(&mut self) {
        self.read_floors().await;
        let bounds = self.bounds().await;
        self.join(bounds).await;
        let mut items = self.broker.tail(StreamName::Metrics, vec!["fp.metrics.>".to_owned()], bounds.first.max(1));
        loop {
            let Some(item) = items.next().await else { return };
            self.take(item).await;
            self.gather(&mut items).await;
            self.commit().await;
            self.purge().await;
        }
    }

    async fn bounds(&self) -> Bounds {
        loop {
            match self.broker.bounds(StreamName::Metrics).await {
                Ok(bounds) => return bounds,
                Err(error) => tracing::debug!(%error, "METRICS is not to be read now"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Takes up the stream where the store stands; anew, when it is another stream or does not reach as far as what is stored of it.
    async fn join(&mut self, bounds: Bounds) {
        loop {
            let noted = self.of_store(|store| store.feed()).await;
            let feed = noted.unwrap_or(Feed { created: bounds.created, base: 0 });
            if feed.created != bounds.created || feed.sequence(bounds.last) < self.highest_floor() {
                return self.count_on(noted, bounds).await;
            }
            if noted.is_some() || self.note(feed).await {
                return self.take_up(feed);
            }
        }
    }

    /// What comes next has a sequence that was given before.
    async fn begin_anew(&mut self) {
        self.commit().await;
        let bounds = self.bounds().await;
        self.count_on(Some(self.feed), bounds).await;
    }

    /// From now on the stream's sequences count on from the highest floor: nothing that comes is taken for stored. Where several trackers share
    /// a store, the one that writes to it says how they count; the others take up what it has noted in place of `before`.
    async fn count_on(&mut self, before: Option<Feed>, bounds: Bounds) {
        loop {
            let noted = self.of_store(|store| store.feed()).await;
            self.read_floors().await;
            if let Some(noted) = noted.filter(|noted| Some(*noted) != before && noted.created == bounds.created) {
                return self.take_up(noted);
            }
            let feed = Feed { created: bounds.created, base: self.highest_floor() };
            if self.note(feed).await {
                tracing::warn!(
                    created = %bounds.created,
                    last = bounds.last,
                    stored = feed.base,
                    "METRICS began anew: what it held and the store has not is lost; what comes now is stored"
                );
                return self.take_up(feed);
            }
        }
    }

    /// Notes in the store how the stream's sequences are called; `false` when it does not take that now.
    async fn note(&self, feed: Feed) -> bool {
        let noted = self.series.store().feed_from(feed).await;
        if let Err(error) = &noted {
            tracing::warn!(%error, "the series store does not note the stream that feeds it; looking again");
            tokio::time::sleep(AGAIN).await;
        }
        noted.is_ok()
    }

    fn take_up(&mut self, feed: Feed) {
        self.feed = feed;
        (self.last_message, self.reached) = (None, 0);
        // Readers compare with the stream's own end, and a purge with what is stored of this stream.
        let nothing = Reached { created: feed.created, sequence: 0 };
        self.received.send_replace(nothing);
        self.stored.send_replace(nothing);
    }

    fn highest_floor(&self) -> u64 {
        self.floors.values().copied().max().unwrap_or(0)
    }

    /// Whether the stream gives sequences again that it gave before. A message that merely comes twice is none of those.
    fn goes_back(&self, item: &TailItem) -> bool {
        match item {
            TailItem::Position(position) => *position < self.reached,
            TailItem::Message(stored) => {
                stored.sequence <= self.reached && self.last_message != Some((stored.sequence, stored.recorded_at))
            }
        }
    }

    /// Asks the store until it answers.
    async fn of_store<T>(&self, ask: impl for<'s> Fn(&'s dyn SeriesStore) -> Pending<'s, T> + Send) -> T {
        loop {
            match ask(self.series.store().as_ref()).await {
                Ok(answer) => return answer,
                Err(error) => tracing::warn!(%error, "the series store does not answer; trying again"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn read_floors(&mut self) {
        for shard in 0..SHARDS {
            let floor = self.of_store(|store| store.floor(shard)).await;
            self.floors.insert(shard, floor);
        }
    }

    /// Takes what comes within the linger time, until a commit is full.
    async fn gather(&mut self, items: &mut BoxStream<'static, TailItem>) {
        let until = Instant::now() + self.config.linger;
        while !self.held.is_empty() && self.held.len() < self.config.commit_messages && self.held_points < self.config.commit_points {
            let next = match items.next().now_or_never() {
                Some(next) => next,
                None => match tokio::time::timeout_at(until, items.next()).await {
                    Ok(next) => next,
                    Err(_) => return,
                },
            };
            match next {
                Some(item) => self.take(item).await,
                None => return,
            }
        }
    }

    async fn take(&mut self, item: TailItem) {
        if self.goes_back(&item) {
            self.begin_anew().await;
        }
        let sequence = match item {
            TailItem::Position(position) => position,
            TailItem::Message(stored) => {
                if let Some(batch) = self.read(&stored).await {
                    self.hold(batch).await;
                }
                self.last_message = Some((stored.sequence, stored.recorded_at));
                stored.sequence
            }
        };
        self.reached = sequence.max(self.reached);
        self.received.send_if_modified(|at| raise(at, sequence));
        if self.held.is_empty() {
            self.stored_up_to(sequence);
        }
    }

    /// The batch of a message; none when it is stored already, or refused.
    async fn read(&mut self, stored: &Stored) -> Option<Arc<IngestBatch>> {
        let refused = |why: String| {
            tracing::warn!(sequence = stored.sequence, subject = %stored.subject, why, "a message of METRICS is refused");
            self.figures.messages_refused.inc();
        };
        let (project, batch) = match unpack(stored, self.feed) {
            Ok(unpacked) => unpacked,
            Err(why) => {
                refused(why);
                return None;
            }
        };
        if self.floors.get(&batch.source.shard()).is_some_and(|floor| batch.sequence <= *floor) {
            return None;
        }
        if let Err(why) = self.may_speak(stored, project.as_ref(), &batch).await {
            refused(why);
            return None;
        }
        if let SeriesSource::Run(run) = batch.source {
            let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            if arrivals.len() >= ARRIVALS_MAX && !arrivals.contains_key(&run) {
                arrivals.pop_first();
            }
            arrivals.insert(run, stored.recorded_at);
        }
        Some(Arc::new(batch))
    }

    /// Whether the source of the subject may write to the batch's source: a tracker has checked it, a node may for itself and for runs
    /// placed on it. What the view does not know is looked at again at the ledger's end, for as long as the broker is away: an
    /// acknowledged batch is never dropped because something could not be asked.
    async fn may_speak(&self, stored: &Stored, project: Option<&ProjectName>, batch: &IngestBatch) -> Result<(), String> {
        let source = stored.subject.rsplit('.').next().unwrap_or_default();
        if source.starts_with(OWN_SOURCE_MARK) {
            return Ok(());
        }
        let node = NodeName::parse(source).map_err(|invalid| invalid.to_string())?;
        let run = match &batch.source {
            SeriesSource::Node(named) if *named == node => return Ok(()),
            SeriesSource::Node(named) => return Err(format!("node {node} wrote samples of node {named}")),
            SeriesSource::Run(run) => *run,
        };
        let project = project.ok_or("the batch names no project")?;
        let placed = || self.view.run(project, run).is_some_and(|run| run.is_on(batch.attempt, &node));
        if placed() {
            return Ok(());
        }
        while let Err(error) = self.view.catch_up().await {
            tracing::debug!(%error, "the view cannot be brought to the ledger's end now");
            tokio::time::sleep(AGAIN).await;
        }
        if placed() { Ok(()) } else { Err(format!("attempt {} of run {run} in project {project} is not placed on {node}", batch.attempt)) }
    }

    async fn hold(&mut self, batch: Arc<IngestBatch>) {
        while let Err(full) = self.series.push(batch.clone()) {
            if self.held.is_empty() {
                tracing::warn!(%full, "the tail is full though nothing is held");
                break;
            }
            self.commit().await;
        }
        self.held_points += batch.points();
        self.held.push(batch);
    }

    /// Stores what is held; tries again until it is stored, since it is acknowledged.
    async fn commit(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let batches: Vec<IngestBatch> = self.held.iter().map(|batch| IngestBatch::clone(batch)).collect();
        loop {
            match self.series.ingest(&batches).await {
                Ok(ingested) => {
                    self.figures.points_stored.inc_by(ingested.points);
                    self.figures.messages_stored.inc_by(batches.len() as u64);
                    for refused in ingested.refused {
                        self.figures.messages_refused.inc();
                        tracing::warn!(sequence = refused.sequence, n = refused.n, why = refused.reason, "a batch can never be stored");
                    }
                    break;
                }
                Err(error) => tracing::error!(%error, "metrics are not stored now; they wait in METRICS and are tried again"),
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.held.clear();
        self.held_points = 0;
        let received = self.received.borrow().sequence;
        self.stored_up_to(received);
    }

    fn stored_up_to(&self, sequence: u64) {
        self.stored.send_if_modified(|at| raise(at, sequence));
        self.figures.metrics_position.set(i64::try_from(sequence).unwrap_or(i64::MAX));
    }

    /// Purges METRICS up to what is stored, less the replay window.
    async fn purge(&mut self) {
        let below = self.stored.borrow().sequence.saturating_sub(self.config.replay_messages);
        if below < 2 || self.purged_at.elapsed() < self.config.purge_every {
            return;
        }
        self.purged_at = Instant::now();
        if let Err(error) = self.broker.purge(StreamName::Metrics, None, below).await {
            tracing::debug!(%error, "METRICS was not purged now");
        }
    }
}

fn raise(at: &mut Reached, to: u64) -> bool {
    let forward = to > at.sequence;
    at.sequence = to.max(at.sequence);
    forward
}

/// Reads a message: the project (none for samples of a node) and the batch.
fn unpack(stored: &Stored, feed: Feed) -> Result<(Option<ProjectName>, IngestBatch), String> {
    let batch = Batch::decode(stored.payload.as_ref()).map_err(|error| error.to_string())?;
    let source = SeriesSource::parse(&batch.run).map_err(|invalid| invalid.to_string())?;
    let shard: Option<u8> = stored.subject.split('.').nth(2).and_then(|token| token.parse().ok());
    if shard != Some(source.shard()) {
        return Err(format!("the batch of {source} belongs to shard {}", source.shard()));
    }
    let project = match &source {
        SeriesSource::Run(_) => Some(ProjectName::parse(&batch.project).map_err(|invalid| invalid.to_string())?),
        SeriesSource::Node(_) => None,
    };
    let mut series = Vec::with_capacity(batch.series.len());
    for block in &batch.series {
        let name = MetricName::parse(&block.name).map_err(|invalid| invalid.to_string())?;
        series.push((name, codec::decode(&block.points).map_err(|error| format!("{}: {error}", block.name))?));
    }
    let session = SessionId::parse(&batch.session).map_err(|invalid| invalid.to_string())?;
    let (attempt, rank) = (AttemptNumber(batch.attempt), Rank(batch.rank));
    Ok((project, IngestBatch { sequence: feed.sequence(stored.sequence), source, attempt, rank, session, n: batch.n, series }))
}
