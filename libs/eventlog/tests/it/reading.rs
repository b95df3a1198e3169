//! Views, projections and durable consumers: nothing lost, nothing doubled, what cannot be taken in put aside.

use crate::appending::raw;
use crate::facts::{Seen, experiment, note};
use crate::servers;
use footplate_clock::event_id;
use footplate_eventlog::conformance::message;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::place::MemoryPlace;
use footplate_eventlog::{
    ApplyError, Broker, Consumption, Expect, FilePlace, HandleError, Handler, Ledger, LedgerItem, Live, Mark, Parked, Projection, Stored,
    StreamName, TailItem, consume, follow, project,
};
use footplate_events::Event;
use footplate_testkit::eventually;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);

fn ledger() -> (MemoryBroker, Ledger) {
    let broker = MemoryBroker::new();
    (broker.clone(), Ledger::new(Arc::new(broker)))
}

async fn write(ledger: &Ledger, name: &str, text: &str) -> u64 {
    let subject = experiment(name);
    let last = ledger.broker().last(StreamName::Ledger, &subject.to_string()).await.unwrap();
    ledger.append(note(&subject, event_id(), text), last.map_or(0, |stored| stored.sequence)).await.unwrap()
}

fn followed(ledger: &Ledger, live: &Live<Seen>) -> CancellationToken {
    let shutdown = CancellationToken::new();
    tokio::spawn(follow(ledger.clone(), Vec::new(), live.clone(), shutdown.clone()));
    shutdown
}

#[tokio::test]
async fn a_view_folds_each_event_once_though_it_is_delivered_twice() {
    let (broker, ledger) = ledger();
    broker.faults().redeliver(true);
    let live = Live::new(Seen::default(), 0);
    let _shutdown = followed(&ledger, &live).drop_guard();
    let mut last = 0;
    for n in 0..20 {
        last = write(&ledger, "a", &n.to_string()).await;
    }
    live.at_least(last, SOON).await.unwrap();
    assert_eq!(live.read().texts(), (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(live.counts().facts, 20);
}

#[tokio::test]
async fn an_event_that_breaks_the_view_is_counted_and_the_rest_is_folded() {
    let (broker, ledger) = ledger();
    let live = Live::new(Seen::default(), 0);
    let _shutdown = followed(&ledger, &live).drop_guard();
    write(&ledger, "a", "before").await;
    write(&ledger, "b", "break the view").await;
    raw(&broker, &experiment("c").to_string(), "footplate.experiment.flown.v9", "{}").await;
    raw(&broker, &experiment("d").to_string(), "footplate.experiment.noted.v1", "{").await;
    let last = write(&ledger, "a", "after").await;
    live.at_least(last, SOON).await.unwrap();
    assert_eq!(live.read().texts(), ["before", "after"]);
    let counts = live.counts();
    assert_eq!((counts.facts, counts.panicked, counts.unknown, counts.poison), (2, 1, 1, 1));
    let reasons: Vec<String> = live.not_understood().into_iter().map(|trouble| trouble.reason).collect();
    assert!(reasons[0].contains("cannot bear") && reasons[1].contains("flown.v9") && reasons[2].contains("payload"), "{reasons:?}");
}

#[tokio::test]
async fn a_tail_goes_back_when_the_broker_lost_the_end_of_a_stream() {
    let broker = MemoryBroker::new();
    let report = |text: &str| broker.publish(StreamName::Reports, message("fp.report.n1.executor", text), Expect::Any);
    let mut tail = broker.tail(StreamName::Reports, Vec::new(), 1);
    for n in 1..=5 {
        report(&n.to_string()).await.unwrap();
    }
    let seen = footplate_eventlog::conformance::take_messages(&mut tail, 5).await;
    assert_eq!(seen[4].sequence, 5);
    broker.lose_last(StreamName::Reports, 2);
    report("4 again").await.unwrap();
    report("5 again").await.unwrap();
    let again = footplate_eventlog::conformance::take_messages(&mut tail, 2).await;
    assert_eq!(footplate_eventlog::conformance::texts(&again), ["4 again", "5 again"]);
}

/// A handler that notes what it gets, and fails on what its test names.
#[derive(Clone, Default)]
struct Noting {
    seen: Arc<Mutex<Vec<String>>>,
    fails_on: Arc<Mutex<Option<(String, HandleError)>>>,
    asked: Arc<Mutex<u32>>,
}

impl Noting {
    fn fail_on(&self, text: &str, error: HandleError) {
        *self.fails_on.lock().unwrap() = Some((text.to_owned(), error));
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    async fn sees(&self, count: usize) -> Vec<String> {
        let seen = || async { (self.seen().len() >= count).then(|| self.seen()) };
        eventually(SOON, "the messages are handled", seen).await
    }
}

impl Handler for Noting {
    fn handle<'a>(&'a mut self, message: &'a Stored) -> BoxFuture<'a, Result<(), HandleError>> {
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        *self.asked.lock().unwrap() += 1;
        let failing = self.fails_on.lock().unwrap().clone().filter(|(on, _)| *on == text);
        if failing.is_none() {
            self.seen.lock().unwrap().push(text);
        }
        async move { failing.map_or(Ok(()), |(_, error)| Err(error)) }.boxed()
    }
}

struct Running {
    mark: Mark,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn start(broker: Arc<dyn Broker>, handler: Noting, place: impl footplate_eventlog::PlaceStore, build: &str) -> Self {
        let (mark, shutdown) = (Mark::new(0), CancellationToken::new());
        let consumption = Consumption {
            name: "test".to_owned(),
            stream: StreamName::Ledger,
            filters: vec!["fp.ledger.*.run.>".to_owned()],
            build: build.to_owned(),
        };
        let task = tokio::spawn(consume(broker, consumption, handler, place, mark.clone(), shutdown.clone()));
        Self { mark, shutdown, task }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn put(broker: &dyn Broker, text: &str) -> u64 {
    let publish = || async { broker.publish(StreamName::Ledger, message("fp.ledger.p.run.1", text), Expect::Any).await.ok() };
    eventually(SOON, "the broker takes a message", publish).await
}

#[tokio::test]
async fn a_consumer_resumes_where_it_was_also_after_the_broker_was_killed() {
    let (server, broker) = servers::jetstream().await;
    let broker: Arc<dyn Broker> = Arc::new(broker);
    let folder = tempfile::tempdir().unwrap();
    let place = || FilePlace::new(folder.path(), "test").unwrap();
    let handler = Noting::default();
    let running = Running::start(broker.clone(), handler.clone(), place(), "1");
    put(broker.as_ref(), "1").await;
    let second = put(broker.as_ref(), "2").await;
    running.mark.at_least(second, SOON).await.unwrap();
    running.stop().await;
    put(broker.as_ref(), "3").await;
    let running = Running::start(broker.clone(), handler.clone(), place(), "1");
    handler.sees(3).await;
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let fourth = put(broker.as_ref(), "4").await;
    running.mark.at_least(fourth, SOON).await.unwrap();
    running.stop().await;
    assert_eq!(handler.seen(), ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_message_that_always_fails_is_parked_and_the_rest_flows_until_an_upgrade_takes_it_in() {
    let broker = Arc::new(MemoryBroker::new());
    let place = MemoryPlace::default();
    let handler = Noting::default();
    handler.fail_on("2", HandleError::Failed("cannot be read".to_owned()));
    let running = Running::start(broker.clone(), handler.clone(), place.clone(), "1");
    for text in ["1", "2", "3"] {
        put(broker.as_ref(), text).await;
    }
    running.mark.at_least(3, SOON).await.unwrap();
    running.stop().await;
    assert_eq!(handler.seen(), ["1", "3"]);
    assert_eq!(*handler.asked.lock().unwrap(), 2 + footplate_eventlog::consume::TRIES);
    let parked = place.saved().parked;
    assert_eq!((parked.len(), parked[0].sequence, parked[0].reason.as_str()), (1, 2, "cannot be read"));
    // The same build leaves it where it is; another one drives it again.
    *handler.fails_on.lock().unwrap() = None;
    for (build, left, seen) in [("1", 1, 2), ("2", 0, 3)] {
        let running = Running::start(broker.clone(), handler.clone(), place.clone(), build);
        running.mark.at_least(3, SOON).await.unwrap();
        running.stop().await;
        assert_eq!((place.saved().parked.len(), handler.seen().len()), (left, seen), "build {build}");
    }
    assert_eq!(handler.seen(), ["1", "3", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_world_is_away_is_waited_for_and_nothing_is_parked() {
    let broker = Arc::new(MemoryBroker::new());
    let place = MemoryPlace::default();
    let handler = Noting::default();
    handler.fail_on("1", HandleError::Away("no object store".to_owned()));
    let running = Running::start(broker.clone(), handler.clone(), place.clone(), "1");
    put(broker.as_ref(), "1").await;
    let asked = || async { (*handler.asked.lock().unwrap() > 3 * footplate_eventlog::consume::TRIES).then_some(()) };
    eventually(SOON * 60, "it is asked again and again", asked).await;
    assert!(place.saved().parked.is_empty());
    *handler.fails_on.lock().unwrap() = None;
    running.mark.at_least(1, SOON).await.unwrap();
    assert_eq!(handler.seen(), ["1"]);
    running.stop().await;
}

#[tokio::test]
async fn a_consumer_of_a_wiped_stream_reads_it_anew() {
    let broker = Arc::new(MemoryBroker::new());
    let place = MemoryPlace::default();
    let handler = Noting::default();
    let running = Running::start(broker.clone(), handler.clone(), place.clone(), "1");
    for text in ["1", "2", "3"] {
        put(broker.as_ref(), text).await;
    }
    running.mark.at_least(3, SOON).await.unwrap();
    running.stop().await;
    broker.wipe(StreamName::Ledger);
    put(broker.as_ref(), "after the wipe").await;
    let running = Running::start(broker.clone(), handler.clone(), place.clone(), "1");
    assert_eq!(handler.sees(4).await[3], "after the wipe");
    running.stop().await;
}

/// Rows and position as one transactional store would keep them; outlives the projection.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rows {
    position: u64,
    texts: Vec<String>,
    parked: Vec<Parked>,
}

struct Table {
    rows: Arc<Mutex<Rows>>,
    /// Fails on, or is away at, this text.
    trouble: Arc<Mutex<Option<(String, ApplyError)>>>,
    refusals: Arc<Mutex<u32>>,
}

impl Table {
    fn take(&self, rows: &mut Rows, item: &LedgerItem) -> Result<(), ApplyError> {
        let LedgerItem::Fact(recorded) = item else { return Ok(()) };
        let Event::ExperimentNoted(fact) = &recorded.envelope.event else { return Ok(()) };
        assert!(fact.note != "panic", "a row that cannot be");
        if let Some((_, error)) = self.trouble.lock().unwrap().as_ref().filter(|(on, _)| *on == fact.note) {
            *self.refusals.lock().unwrap() += 1;
            return Err(error.clone());
        }
        rows.texts.push(fact.note.clone());
        Ok(())
    }
}

impl Projection for Table {
    fn position(&self) -> u64 {
        self.rows.lock().unwrap().position
    }

    fn apply(&mut self, items: &[LedgerItem], position: u64) -> Result<(), ApplyError> {
        let mut rows = self.rows.lock().unwrap().clone();
        for item in items {
            self.take(&mut rows, item)?;
        }
        rows.position = position;
        *self.rows.lock().unwrap() = rows;
        Ok(())
    }

    fn park(&mut self, parked: &Parked) -> Result<(), ApplyError> {
        let mut rows = self.rows.lock().unwrap();
        rows.parked.retain(|known| known.sequence != parked.sequence);
        rows.parked.push(parked.clone());
        rows.position = rows.position.max(parked.sequence);
        Ok(())
    }

    fn parked(&self) -> Result<Vec<Parked>, ApplyError> {
        Ok(self.rows.lock().unwrap().parked.clone())
    }

    fn unpark(&mut self, item: &LedgerItem) -> Result<(), ApplyError> {
        let mut rows = self.rows.lock().unwrap().clone();
        self.take(&mut rows, item)?;
        rows.parked.retain(|known| known.sequence != item.sequence());
        *self.rows.lock().unwrap() = rows;
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Store {
    rows: Arc<Mutex<Rows>>,
    trouble: Arc<Mutex<Option<(String, ApplyError)>>>,
    refusals: Arc<Mutex<u32>>,
}

impl Store {
    async fn project_to(&self, ledger: &Ledger, build: &str, wanted: u64) -> Rows {
        let (mark, shutdown) = (Mark::new(0), CancellationToken::new());
        let table = Table { rows: self.rows.clone(), trouble: self.trouble.clone(), refusals: self.refusals.clone() };
        let task = tokio::spawn(project(ledger.clone(), Vec::new(), table, build.to_owned(), mark.clone(), shutdown.clone()));
        mark.at_least(wanted, SOON).await.unwrap();
        shutdown.cancel();
        task.await.unwrap();
        self.rows.lock().unwrap().clone()
    }
}

/// Rule 10: a projection's position stands in the transaction of its rows, so that a restart neither loses nor doubles.
#[tokio::test]
async fn a_projection_resumes_at_the_position_of_its_rows() {
    let (broker, ledger) = ledger();
    broker.faults().redeliver(true);
    let store = Store::default();
    let mut wanted = Vec::new();
    for round in 0..4 {
        let mut last = 0;
        for n in 0..10 {
            last = write(&ledger, "a", &format!("{round}/{n}")).await;
            wanted.push(format!("{round}/{n}"));
        }
        let rows = store.project_to(&ledger, "1", last).await;
        assert_eq!((rows.position, &rows.texts), (last, &wanted));
    }
}

#[tokio::test]
async fn a_projection_parks_what_it_cannot_take_in_and_takes_it_in_after_an_upgrade() {
    let (broker, ledger) = ledger();
    let store = Store::default();
    *store.trouble.lock().unwrap() = Some(("bad".to_owned(), ApplyError::Failed("no such column".to_owned())));
    for text in ["1", "bad", "2", "panic", "3"] {
        write(&ledger, text, text).await;
    }
    raw(&broker, &experiment("x").to_string(), "footplate.experiment.flown.v9", "{}").await;
    let last = write(&ledger, "4", "4").await;
    let rows = store.project_to(&ledger, "1", last).await;
    assert_eq!((rows.position, rows.texts.join(" ").as_str()), (last, "1 2 3 4"));
    let parked: Vec<u64> = rows.parked.iter().map(|parked| parked.sequence).collect();
    assert_eq!(parked, [2, 4, 6]);
    *store.trouble.lock().unwrap() = None;
    let same = store.project_to(&ledger, "1", last).await;
    assert_eq!(same.parked.len(), 3);
    let upgraded = store.project_to(&ledger, "2", last).await;
    assert_eq!(upgraded.texts.join(" "), "1 2 3 4 bad");
    assert!(upgraded.parked.iter().all(|parked| parked.build == "2" && [4, 6].contains(&parked.sequence)), "{:?}", upgraded.parked);
}

#[tokio::test]
async fn a_projection_waits_for_its_store() {
    let (_broker, ledger) = ledger();
    let store = Store::default();
    *store.trouble.lock().unwrap() = Some(("1".to_owned(), ApplyError::Away("disk full".to_owned())));
    let last = write(&ledger, "1", "1").await;
    let waiting = tokio::spawn({
        let (store, ledger) = (store.clone(), ledger.clone());
        async move { store.project_to(&ledger, "1", last).await }
    });
    let asked = || async { (*store.refusals.lock().unwrap() > 2).then_some(()) };
    eventually(SOON, "the store is asked again and again", asked).await;
    assert_eq!(*store.rows.lock().unwrap(), Rows::default());
    *store.trouble.lock().unwrap() = None;
    let rows = waiting.await.unwrap();
    assert_eq!((rows.texts.len(), rows.parked.len()), (1, 0));
}

#[tokio::test]
async fn a_tail_that_nobody_reads_any_more_leaves_no_consumer_behind() {
    let (_server, broker) = servers::jetstream().await;
    let consumers = || async {
        let answer = broker.client().request("$JS.API.CONSUMER.NAMES.LEDGER", "".into()).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
        answer["total"].as_u64().unwrap()
    };
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    assert_eq!(tail.next().await, Some(TailItem::Position(0)));
    assert_eq!(consumers().await, 1);
    drop(tail);
    eventually(SOON, "the consumer is gone", || async { (consumers().await == 0).then_some(()) }).await;
}
