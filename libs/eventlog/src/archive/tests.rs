//! The form under every kind of damage, the chain under crashes and rivals, and a ledger that reads the same before and after its events left.

use super::segment::{Builder, Entry, Segment};
use super::*;
use crate::memory::{MemoryBroker, MemorySegments};
use crate::port::{Broker, Expect, Message, PublishError, Stored, StreamName, TailItem};
use footplate_types::Timestamp;
use futures::StreamExt;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const LEDGER: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_007);
const SOON: Duration = Duration::from_secs(20);

fn stored() -> impl Strategy<Value = Stored> {
    let text = "[ -~äß漢]{0,40}";
    let headers = proptest::collection::vec((text, text), 0..5);
    let payload = proptest::collection::vec(any::<u8>(), 0..200);
    (1..50u64, "[a-z.]{1,30}", headers, payload, any::<i64>()).prop_map(|(sequence, subject, headers, payload, nanos)| Stored {
        sequence,
        subject,
        headers,
        payload: payload.into(),
        recorded_at: Timestamp::from_nanos(nanos),
    })
}

/// Messages in order, with gaps.
fn messages() -> impl Strategy<Value = Vec<Stored>> {
    proptest::collection::vec(stored(), 1..30).prop_map(|mut all| {
        let mut last = 0;
        for stored in &mut all {
            last += stored.sequence;
            stored.sequence = last;
        }
        all
    })
}

fn sealed(before: Option<&Entry>, messages: &[Stored]) -> (Entry, Vec<u8>) {
    let mut builder = Builder::after(LEDGER, before, SEGMENT_BYTES);
    for stored in messages {
        builder.push(stored);
    }
    let (entry, bytes) = builder.seal().unwrap();
    (entry, bytes.to_vec())
}

proptest! {
    #[test]
    fn what_was_sealed_reads_back(messages in messages(), from in 0..200u64) {
        let (entry, bytes) = sealed(None, &messages);
        let segment = Segment::open(LEDGER, None, &bytes).unwrap();
        prop_assert_eq!(segment.entry(), &entry);
        prop_assert_eq!(segment.messages(0).collect::<Vec<_>>(), messages.clone());
        let later: Vec<Stored> = messages.into_iter().filter(|stored| stored.sequence >= from).collect();
        prop_assert_eq!(segment.messages(from).collect::<Vec<_>>(), later);
    }

    #[test]
    fn bytes_that_were_changed_cut_or_added_are_never_read(messages in messages(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let (_, bytes) = sealed(None, &messages);
        let mut flipped = bytes.clone();
        let at = at.index(bytes.len());
        flipped[at] ^= 1 << bit;
        prop_assert!(Segment::open(LEDGER, None, &flipped).is_err());
        prop_assert!(Segment::open(LEDGER, None, &bytes[..at]).is_err());
        let mut longer = bytes.clone();
        longer.insert(at, bytes[at]);
        prop_assert!(Segment::open(LEDGER, None, &longer).is_err());
    }
}

#[test]
fn every_flipped_byte_of_a_segment_is_noticed_and_the_segment_named() {
    let message = Stored {
        sequence: 1,
        subject: "fp.ledger.p.run.x".to_owned(),
        headers: vec![("ce-type".to_owned(), "t".to_owned())],
        payload: "{}".into(),
        recorded_at: LEDGER,
    };
    let (_, bytes) = sealed(None, &[message]);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xff;
        let error = Segment::open(LEDGER, None, &flipped).unwrap_err().to_string();
        assert!(error.contains("1700000000000000007/00000000000000000001"), "byte {at}: {error}");
    }
}

#[test]
fn a_segment_of_another_place_ledger_or_chain_is_refused() {
    let of = |sequence: u64| Stored {
        sequence,
        subject: "s".to_owned(),
        headers: Vec::new(),
        payload: sequence.to_string().into(),
        recorded_at: LEDGER,
    };
    let (first, first_bytes) = sealed(None, &[of(1), of(2)]);
    let (second, second_bytes) = sealed(Some(&first), &[of(3)]);
    let (_, third_bytes) = sealed(Some(&second), &[of(4)]);
    let (other, _) = sealed(None, &[of(1)]);
    Segment::open(LEDGER, Some(&first), &second_bytes).unwrap();
    Segment::open(LEDGER, Some(&second), &third_bytes).unwrap();
    for (before, bytes) in
        [(None, &second_bytes), (Some(&first), &third_bytes), (Some(&other), &second_bytes), (Some(&first), &first_bytes)]
    {
        let error = Segment::open(LEDGER, before, bytes).unwrap_err();
        assert!(matches!(error, SegmentError::Unchained { .. }), "{error}");
    }
    let error = Segment::open(Timestamp::from_nanos(1), None, &first_bytes).unwrap_err();
    assert!(matches!(error, SegmentError::Unchained { field: "ledger", .. }), "{error}");
}

// --- a ledger in memory -------------------------------------------------------------------------------------------------------------------

const RUNS: u8 = 12;

struct World {
    broker: Arc<MemoryBroker>,
    store: Arc<MemorySegments>,
    /// What the ledger was before anything left.
    before: Vec<Stored>,
}

fn run_id(number: u8) -> String {
    format!("{number:032x}")
}

fn event(subject: &str, kind: &str) -> Message {
    let id = footplate_types::EventId::from_bytes(footplate_clock::entropy());
    Message {
        subject: subject.to_owned(),
        headers: vec![("ce-type", kind.to_owned()), ("ce-id", id.to_string())].into(),
        payload: kind.to_owned().into(),
    }
}

impl World {
    /// A term, then runs with a job each, interleaved by threes; the last two are not sealed.
    async fn new() -> Self {
        Self::on(MemoryBroker::new()).await
    }

    async fn on(broker: MemoryBroker) -> Self {
        let world = Self { broker: Arc::new(broker), store: Arc::new(MemorySegments::new()), before: Vec::new() };
        world.put("fp.ledger._.term.tracker", "footplate.term.began.v1").await;
        for three in 0..RUNS / 3 {
            for verb in ["submitted", "placed", "launched", "ended"] {
                for number in three * 3..three * 3 + 3 {
                    world.put(&format!("fp.ledger.p.job.{}", run_id(number)), &format!("footplate.job.{verb}.v1")).await;
                    if verb == "launched" {
                        world.put(&format!("fp.ledger.p.attempt.{}-1", run_id(number)), "footplate.attempt.started.v1").await;
                    }
                }
            }
            for number in three * 3..three * 3 + 3 {
                let last = if number < RUNS - 2 { "sealed" } else { "noted" };
                world.put(&format!("fp.ledger.p.run.{}", run_id(number)), &format!("footplate.run.{last}.v1")).await;
            }
        }
        for number in 0..40 {
            world.put(&format!("fp.ledger._.node.n{number}"), "footplate.node.registered.v1").await;
        }
        let before = all(world.broker.as_ref(), ">").await;
        Self { before, ..world }
    }

    async fn put(&self, subject: &str, kind: &str) -> u64 {
        self.broker.publish(StreamName::Ledger, event(subject, kind), Expect::Any).await.unwrap()
    }

    fn archive(&self) -> Archive {
        Archive::new(self.broker.clone(), self.store.clone())
    }

    fn archiver(&self, archive: &Archive, keep_ended: Option<Duration>) -> Archiver {
        let config =
            ArchiveConfig { keep_events: 20, segment_bytes: 600, keep_ended, announced_for: Duration::ZERO, ..ArchiveConfig::default() };
        Archiver::new(archive.clone(), config)
    }

    async fn count(&self) -> u64 {
        self.broker.bounds(StreamName::Ledger).await.unwrap().messages
    }
}

/// Everything that matches, in pages of an odd size.
async fn all(broker: &dyn Broker, filter: &str) -> Vec<Stored> {
    let mut messages = Vec::new();
    let mut from = Some(1);
    while let Some(next) = from {
        let page = broker.read(StreamName::Ledger, filter, next, 7).await.unwrap();
        messages.extend(page.messages);
        from = page.next;
    }
    messages
}

async fn tailed(broker: &dyn Broker, filters: &[&str], from: u64, end: u64) -> Vec<Stored> {
    let mut tail = broker.tail(StreamName::Ledger, filters.iter().map(|filter| (*filter).to_owned()).collect(), from);
    let mut messages = Vec::new();
    loop {
        match tokio::time::timeout(SOON, tail.next()).await.unwrap().unwrap() {
            TailItem::Message(stored) => messages.push(stored),
            TailItem::Position(position) if position >= end => return messages,
            TailItem::Position(_) => {}
        }
    }
}

fn on(messages: &[Stored], filter: &str) -> Vec<Stored> {
    messages.iter().filter(|stored| crate::port::subject_matches(filter, &stored.subject)).cloned().collect()
}

/// A broker with the archive reads exactly what stood in the ledger before anything left.
async fn reads_the_same(archived: &dyn Broker, before: &[Stored]) {
    let end = before.len() as u64;
    assert_eq!(all(archived, ">").await, before);
    let job = format!("fp.ledger.p.job.{}", run_id(1));
    for filter in ["fp.ledger.*.job.>", "fp.ledger.p.>", "fp.ledger._.term.*", job.as_str(), "fp.ledger.p.run.none"] {
        assert_eq!(all(archived, filter).await, on(before, filter), "{filter}");
        assert_eq!(tailed(archived, &[filter], 1, end).await, on(before, filter), "{filter}");
    }
    for from in [1, 9, end / 2, end] {
        let rest: Vec<Stored> = before.iter().filter(|stored| stored.sequence >= from).cloned().collect();
        assert_eq!(tailed(archived, &[], from, end).await, rest, "from {from}");
        let page = archived.read(StreamName::Ledger, ">", from, 3).await.unwrap();
        assert_eq!(page.messages, rest[..rest.len().min(3)], "from {from}");
    }
    for stored in before {
        let last = on(before, &stored.subject).pop();
        assert_eq!(archived.last(StreamName::Ledger, &stored.subject).await.unwrap(), last);
    }
}

#[tokio::test]
async fn a_ledger_reads_the_same_after_its_ended_runs_have_left_the_broker() {
    let world = World::new().await;
    let archive = world.archive();
    let archived = Archived::new(archive.clone());
    reads_the_same(&archived, &world.before).await;
    let written = world.archiver(&archive, None).step().await.unwrap();
    assert!(written.segments > 3 && written.archived <= world.before.len() as u64 - 20, "{written:?}");
    assert_eq!(world.count().await, world.before.len() as u64, "nothing leaves unless it is asked for");
    reads_the_same(&archived, &world.before).await;

    let progress = world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    assert!(progress.gone_events > 30, "{progress:?}");
    assert_eq!(world.count().await + progress.gone_events, world.before.len() as u64);
    reads_the_same(&archived, &world.before).await;
    // Who starts now knows it from the store alone, with or without the index, and finds the chain whole.
    reads_the_same(&Archived::new(world.archive()), &world.before).await;
    world.store.tamper(|objects| objects.retain(|name, _| !name.ends_with("index")));
    reads_the_same(&Archived::new(world.archive()), &world.before).await;
    assert!(world.archive().verify().await.unwrap() >= progress.archived - 1);
    // Again there is nothing to do.
    assert_eq!(world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap(), progress);
}

#[tokio::test]
async fn only_what_has_ended_leaves_and_terms_stay() {
    let world = World::new().await;
    let archive = world.archive();
    world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    let left = all(world.broker.as_ref(), ">").await;
    assert!(left.iter().any(|stored| stored.subject == "fp.ledger._.term.tracker"));
    assert_eq!(on(&left, "fp.ledger._.node.*"), on(&world.before, "fp.ledger._.node.*"));
    for number in [RUNS - 2, RUNS - 1] {
        for kind in ["job", "run"] {
            let subject = format!("fp.ledger.p.{kind}.{}", run_id(number));
            assert!(!on(&left, &subject).is_empty());
            assert_eq!(on(&left, &subject), on(&world.before, &subject), "a run that is not sealed stays whole");
        }
    }
    assert!(on(&left, &format!("fp.ledger.p.*.{}", run_id(0))).is_empty());
    assert!(on(&left, &format!("fp.ledger.p.attempt.{}-1", run_id(0))).is_empty());
    // A run whose last event is young stays, with everything of it.
    let young = World::new().await;
    let archive = young.archive();
    young.archiver(&archive, Some(Duration::from_secs(3_600))).step().await.unwrap();
    assert_eq!(young.count().await, young.before.len() as u64);
}

#[tokio::test]
async fn a_trials_run_leaves_with_its_trial_and_not_before_that_is_finished() {
    let world = World::new().await;
    let sweep = footplate_types::SweepId::from_bytes([5; 16]);
    for number in 1..=2 {
        let id = footplate_types::TrialId { sweep, trial: footplate_types::TrialNumber(number) };
        let (trial, run) = (format!("fp.ledger.p.trial.{id}"), id.run());
        world.put(&trial, "footplate.trial.suggested.v1").await;
        world.put(&format!("fp.ledger.p.job.{run}"), "footplate.job.ended.v1").await;
        world.put(&format!("fp.ledger.p.run.{run}"), "footplate.run.sealed.v1").await;
        if number == 2 {
            world.put(&trial, "footplate.trial.finished.v1").await;
        }
    }
    for _ in 0..40 {
        world.put("fp.ledger._.node.n1", "footplate.node.cordoned.v1").await;
    }
    let archive = world.archive();
    world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    let left = all(world.broker.as_ref(), "fp.ledger.p.*.*").await;
    let kinds: Vec<&str> = left.iter().filter_map(|stored| stored.subject.split('.').nth(3)).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "trial").count(), 1, "{kinds:?}");
    // Three of the trial that is not finished; of the two runs that are not sealed everything.
    assert_eq!(left.len(), 3 + 2 * 6, "{kinds:?}");
}

#[tokio::test]
async fn a_run_that_was_touched_lately_stays_with_everything_of_it() {
    let age = Arc::new(std::sync::atomic::AtomicU64::new(7_200_000));
    let shared = age.clone();
    let stamped =
        move || Timestamp::from_millis(footplate_clock::now().as_millis() - shared.load(std::sync::atomic::Ordering::SeqCst) as i64);
    let world = World::on(MemoryBroker::with_clock(stamped)).await;
    age.store(0, std::sync::atomic::Ordering::SeqCst);
    world.put(&format!("fp.ledger.p.run.{}", run_id(0)), "footplate.run.noted.v1").await;
    age.store(7_200_000, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..40 {
        world.put("fp.ledger._.node.n1", "footplate.node.cordoned.v1").await;
    }
    let archive = world.archive();
    let progress = world.archiver(&archive, Some(Duration::from_secs(3_600))).step().await.unwrap();
    assert!(progress.gone_aggregates > 6 && progress.archived > world.before.len() as u64, "{progress:?}");
    let left = all(world.broker.as_ref(), ">").await;
    assert_eq!(on(&left, &format!("fp.ledger.p.job.{}", run_id(0))).len(), 4);
    assert_eq!(on(&left, &format!("fp.ledger.p.run.{}", run_id(0))).len(), 2);
    assert!(on(&left, &format!("fp.ledger.p.job.{}", run_id(1))).is_empty());
}

#[tokio::test]
async fn what_differs_from_its_copy_in_the_archive_stays() {
    let clock = || Timestamp::from_nanos(1_700_000_000_000_000_007);
    let one = World::on(MemoryBroker::with_clock(clock)).await;
    one.archiver(&one.archive(), None).step().await.unwrap();
    // The same ledger to the eye, with other ids in its events, over the archive of the first.
    let other = World { store: one.store.clone(), ..World::on(MemoryBroker::with_clock(clock)).await };
    let progress = other.archiver(&other.archive(), Some(Duration::ZERO)).step().await.unwrap();
    assert!(progress.segments > 3 && progress.gone_events == 0, "{progress:?}");
    assert_eq!(other.count().await, other.before.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn what_leaves_is_written_down_long_before() {
    let world = World::new().await;
    let archive = world.archive();
    let config = ArchiveConfig { keep_events: 20, segment_bytes: 600, keep_ended: Some(Duration::ZERO), ..ArchiveConfig::default() };
    let mut archiver = Archiver::new(archive, config);
    let watching = async {
        while !world.store.objects().keys().any(|name| name.contains("/gone/")) {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(ANNOUNCED_FOR - Duration::from_secs(1)).await;
        world.count().await
    };
    let (done, before_it_is_over) = tokio::join!(archiver.step(), watching);
    assert_eq!(before_it_is_over, world.before.len() as u64);
    assert!(done.unwrap().gone_events > 0 && world.count().await < before_it_is_over);
    const { assert!(STALE_AFTER.as_secs() * 2 <= ANNOUNCED_FOR.as_secs()) };
}

#[tokio::test]
async fn an_id_whose_events_have_left_is_not_new_and_takes_writes_at_its_last_sequence() {
    let world = World::new().await;
    let archive = world.archive();
    world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    let archived = Archived::new(archive);
    let run = format!("fp.ledger.p.run.{}", run_id(0));
    let job = format!("fp.ledger.p.job.{}", run_id(0));
    let last = on(&world.before, &run).pop().unwrap().sequence;
    assert!(world.broker.last(StreamName::Ledger, &run).await.unwrap().is_none());
    let put = |expected| archived.publish(StreamName::Ledger, event(&run, "tagged"), Expect::Subject(expected));
    assert_eq!(put(0).await, Err(PublishError::Conflict));
    assert_eq!(put(last - 1).await, Err(PublishError::Conflict));
    let batch =
        |expected| vec![(event("fp.ledger.p.run.new", "created"), Expect::Subject(0)), (event(&job, "x"), Expect::Subject(expected))];
    assert_eq!(archived.publish_batch(StreamName::Ledger, batch(0)).await, Err(PublishError::Conflict));
    let tagged = put(last).await.unwrap();
    assert_eq!(put(last).await, Err(PublishError::Conflict), "only one of two writers");
    let history: Vec<u64> = all(&archived, &run).await.iter().map(|stored| stored.sequence).collect();
    assert_eq!(history, [last, tagged]);
    let again = put(tagged).await.unwrap();
    assert_eq!(archived.last(StreamName::Ledger, &run).await.unwrap().unwrap().sequence, again);
    let ended = on(&world.before, &job).pop().unwrap().sequence;
    archived.publish_batch(StreamName::Ledger, batch(ended)).await.unwrap();
    // Who has not looked for a while asks the broker before it takes an id for new.
    let lagging = Archived::new(world.archive());
    assert_eq!(
        lagging.publish(StreamName::Ledger, event(&format!("fp.ledger.p.run.{}", run_id(1)), "x"), Expect::Subject(0)).await,
        Err(PublishError::Conflict)
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_knew_nothing_of_it_notices_that_events_have_left() {
    let world = World::new().await;
    let mine = world.archive();
    mine.refresh().await.unwrap();
    let archived = Archived::new(mine);
    assert_eq!(all(&archived, ">").await, world.before);
    let job = format!("fp.ledger.p.job.{}", run_id(0));
    let mut tail = archived.tail(StreamName::Ledger, vec!["fp.ledger.p.job.*".to_owned()], 1);
    let first = tail.next().await;
    // Another process archives and removes; this one hears nothing of it until what it knows is too old to be believed.
    tokio::time::advance(STALE_AFTER).await;
    world.archiver(&world.archive(), Some(Duration::ZERO)).step().await.unwrap();
    assert_eq!(all(&archived, &job).await, on(&world.before, &job));
    assert_eq!(all(&archived, ">").await, world.before);
    let mut seen: Vec<TailItem> = first.into_iter().collect();
    let jobs = on(&world.before, "fp.ledger.p.job.*");
    while seen.len() < jobs.len() {
        seen.extend(tail.next().await);
    }
    assert_eq!(seen, jobs.into_iter().map(TailItem::Message).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_tail_goes_back_to_segments_for_what_left_before_it_came_there() {
    let world = World::new().await;
    let archive = world.archive();
    archive.refresh().await.unwrap();
    let archived = Archived::new(archive);
    let end = world.before.len() as u64;
    let mut tail = archived.tail(StreamName::Ledger, Vec::new(), end + 1);
    assert_eq!(tail.next().await, Some(TailItem::Position(end)));
    // It stands at the end and sleeps while a run comes, ends, and is gone.
    let run = run_id(100);
    world.put(&format!("fp.ledger.p.run.{run}"), "footplate.run.created.v1").await;
    world.put(&format!("fp.ledger.p.run.{run}"), "footplate.run.sealed.v1").await;
    for _ in 0..40 {
        world.put("fp.ledger._.node.n1", "footplate.node.cordoned.v1").await;
    }
    let later = all(world.broker.as_ref(), ">").await.split_off(world.before.len());
    world.archiver(&world.archive(), Some(Duration::ZERO)).step().await.unwrap();
    assert!(all(world.broker.as_ref(), &format!("fp.ledger.p.run.{run}")).await.is_empty());
    tokio::time::advance(STALE_AFTER).await;
    let mut seen = Vec::new();
    while seen.len() < later.len() {
        match tail.next().await.unwrap() {
            TailItem::Message(stored) => seen.push(stored),
            TailItem::Position(position) => panic!("a position of {position} before all of it was seen"),
        }
    }
    assert_eq!(seen, later);
    assert_eq!(tail.next().await, Some(TailItem::Position(end + later.len() as u64)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_keeps_nobody_from_what_the_broker_has_whole() {
    let world = World::new().await;
    world.store.set_away(true);
    // Nothing has left: a start needs no store.
    assert_eq!(all(&Archived::new(world.archive()), ">").await, world.before);
    world.store.set_away(false);
    let archive = world.archive();
    let progress = world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    let archived = Archived::new(archive);
    let node = "fp.ledger._.node.n39";
    world.store.set_away(true);
    tokio::time::advance(STALE_AFTER * 2).await;
    assert_eq!(all(&archived, node).await.len(), 1);
    let rest = world.before.len() as u64 - progress.archived;
    assert_eq!(tailed(&archived, &[], progress.archived + 1, world.before.len() as u64).await.len() as u64, rest);
    // What cannot be known is not told as if it were.
    let stranger = Archived::new(world.archive());
    assert!(stranger.read(StreamName::Ledger, node, 1, 1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_store_that_gives_no_answer_to_read_what_the_broker_has() {
    let world = World::new().await;
    world.store.set_silent(true);
    let archived = Archived::new(world.archive());
    let end = world.before.len() as u64;
    let read = async {
        assert_eq!(all(&archived, ">").await, world.before);
        assert_eq!(tailed(&archived, &[], 1, end).await, world.before);
        archived.publish(StreamName::Ledger, event("fp.ledger.p.run.new", "created"), Expect::Subject(0)).await.unwrap();
    };
    tokio::time::timeout(Duration::from_millis(1), read).await.unwrap();
    // The same for who had looked before.
    world.store.set_silent(false);
    let archive = world.archive();
    world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    let archived = Archived::new(archive);
    world.store.set_silent(true);
    tokio::time::advance(STALE_AFTER * 2).await;
    let read = async { archived.read(StreamName::Ledger, "fp.ledger._.node.n39", 1, 5).await.unwrap().messages.len() };
    assert_eq!(tokio::time::timeout(Duration::from_millis(1), read).await.unwrap(), 1);
}

#[tokio::test]
async fn what_a_hand_removed_is_found_in_the_segments_too() {
    let world = World::new().await;
    let archive = world.archive();
    let progress = world.archiver(&archive, None).step().await.unwrap();
    world.broker.purge(StreamName::Ledger, None, progress.archived + 1).await.unwrap();
    reads_the_same(&Archived::new(world.archive()), &world.before).await;
}

#[tokio::test]
async fn what_a_hand_removed_is_named_once_and_only_its_own_aggregate_is_looked_for_in_segments() {
    let world = World::new().await;
    let archive = world.archive();
    world.archiver(&archive, None).step().await.unwrap();
    // The last of one job's events, and the first of another's.
    let jobs = |number| on(&world.before, &format!("fp.ledger.p.job.{}", run_id(number)));
    let (last, first) = (jobs(1).pop().unwrap(), jobs(2).remove(0));
    world.broker.remove(StreamName::Ledger, last.sequence);
    world.broker.remove(StreamName::Ledger, first.sequence);
    let archive = world.archive();
    world.archiver(&archive, None).step().await.unwrap();
    let known = archive.known();
    assert!(!known.unlisted && known.gone.aggregates() == 2 && known.gone.events() == 2, "{known:?}");
    let archived = Archived::new(archive.clone());
    reads_the_same(&archived, &world.before).await;
    let loads = world.store.loads();
    assert_eq!(all(&archived, &jobs(3)[0].subject).await, jobs(3));
    archived.publish(StreamName::Ledger, event("fp.ledger.p.run.new", "created"), Expect::Subject(0)).await.unwrap();
    assert_eq!(world.store.loads(), loads, "who has lost nothing needs no segment");
    // Writes go on where the aggregate truly stands.
    let put = |expected| archived.publish(StreamName::Ledger, event(&last.subject, "more"), Expect::Subject(expected));
    assert_eq!(put(jobs(1)[2].sequence).await, Err(PublishError::Conflict));
    assert_eq!(put(last.sequence + 1).await, Err(PublishError::Conflict));
    put(last.sequence).await.unwrap();
    // Again there is nothing to name.
    world.archiver(&archive, None).step().await.unwrap();
    assert_eq!(archive.known().lists, 1);
    // Of a run that goes on, what a hand left in the broker stays there when ended runs leave; and one more that is removed is named too.
    let living = on(&world.before, &format!("fp.ledger.p.job.{}", run_id(RUNS - 4))).to_vec();
    world.put(&format!("fp.ledger.p.run.{}", run_id(RUNS - 4)), "footplate.run.noted.v1").await;
    for _ in 0..40 {
        world.put("fp.ledger._.node.n1", "footplate.node.cordoned.v1").await;
    }
    world.broker.remove(StreamName::Ledger, living[2].sequence);
    let archive = world.archive();
    let mut keeping = world.archiver(&archive, Some(Duration::from_secs(3_600)));
    for _ in 0..3 {
        keeping.step().await.unwrap();
    }
    let held = on(&all(world.broker.as_ref(), ">").await, &living[0].subject);
    assert_eq!(held.len(), living.len() - 1, "nothing young leaves because something of it was lost");
    world.broker.remove(StreamName::Ledger, living[0].sequence);
    let archive = world.archive();
    let mut naming = world.archiver(&archive, None);
    naming.step().await.unwrap();
    naming.step().await.unwrap();
    assert!(!archive.known().unlisted);
    assert_eq!(all(&Archived::new(archive), &living[0].subject).await, living);
}

#[tokio::test]
async fn over_another_store_nothing_is_archived_while_the_ledger_lacks_events() {
    let world = World::new().await;
    world.archiver(&world.archive(), Some(Duration::ZERO)).step().await.unwrap();
    let wrong = World { store: Arc::default(), broker: world.broker.clone(), before: Vec::new() };
    let error = wrong.archiver(&wrong.archive(), None).step().await.unwrap_err();
    assert!(matches!(error, ArchiveError::OtherStore { lacks } if lacks > 30), "{error}");
    assert!(wrong.store.objects().is_empty());
}

#[tokio::test]
async fn to_append_to_a_run_that_left_reads_no_segment() {
    let world = World::new().await;
    world.archiver(&world.archive(), Some(Duration::ZERO)).step().await.unwrap();
    let archived = Archived::new(world.archive());
    let run = on(&world.before, &format!("fp.ledger.p.run.{}", run_id(0))).pop().unwrap();
    archived.read(StreamName::Ledger, "fp.ledger._.node.n39", 1, 1).await.unwrap();
    let loads = world.store.loads();
    archived.publish(StreamName::Ledger, event(&run.subject, "tagged"), Expect::Subject(run.sequence)).await.unwrap();
    assert_eq!(world.store.loads(), loads);
    // The broker has an event of it again: an id is not new for that, whatever leaves meanwhile.
    let again = archived.publish(StreamName::Ledger, event(&run.subject, "tagged"), Expect::Subject(0)).await;
    assert_eq!(again, Err(PublishError::Conflict));
}

#[tokio::test]
async fn an_append_over_a_damaged_segment_is_refused_and_not_tried_for_ever() {
    let world = World::new().await;
    world.archiver(&world.archive(), Some(Duration::ZERO)).step().await.unwrap();
    let archived = Archived::new(world.archive());
    let run = on(&world.before, &format!("fp.ledger.p.run.{}", run_id(0))).pop().unwrap();
    archived.read(StreamName::Ledger, "fp.ledger._.node.n39", 1, 1).await.unwrap();
    world.store.tamper(|objects| objects.retain(|name, _| name.contains("/gone/")));
    let put = archived.publish(StreamName::Ledger, event(&run.subject, "x"), Expect::Subject(run.sequence - 1)).await;
    assert!(matches!(&put, Err(PublishError::Refused(why)) if why.contains("missing")), "{put:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_now_and_then_however_many_read() {
    let world = World::new().await;
    world.store.set_silent(true);
    let archived = Archived::new(world.archive());
    for _ in 0..100 {
        all(&archived, "fp.ledger._.node.n39").await;
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(world.store.asked(), 1);
    world.store.set_silent(false);
    let archived = Archived::new(world.archive());
    world.store.set_away(true);
    for _ in 0..100 {
        all(&archived, "fp.ledger._.node.n39").await;
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(world.store.asked(), 2);
}

#[tokio::test]
async fn a_run_that_was_too_young_leaves_once_it_is_old_though_the_archiver_never_restarts() {
    let world = World::new().await;
    let archive = world.archive();
    // As if one run had been touched after the rest had come of age.
    let keep = Duration::from_millis(1_500);
    tokio::time::sleep(keep).await;
    world.put(&format!("fp.ledger.p.run.{}", run_id(0)), "footplate.run.noted.v1").await;
    for _ in 0..40 {
        world.put("fp.ledger._.node.n1", "footplate.node.cordoned.v1").await;
    }
    let mut archiver = world.archiver(&archive, Some(keep));
    let first = archiver.step().await.unwrap();
    let of_it = format!("fp.ledger.p.*.{}", run_id(0));
    assert!(first.gone_events > 0 && !all(world.broker.as_ref(), &of_it).await.is_empty(), "{first:?}");
    tokio::time::sleep(keep + Duration::from_millis(100)).await;
    archiver.step().await.unwrap();
    assert!(all(world.broker.as_ref(), &of_it).await.is_empty());
}

#[tokio::test]
async fn a_list_whose_answer_was_lost_is_gone_by() {
    let world = World::new().await;
    let archive = world.archive();
    world.archiver(&archive, None).step().await.unwrap();
    let mut archiver = world.archiver(&archive, Some(Duration::ZERO));
    // The list is there, and whoever wrote it is told of an error.
    world.store.lose_answers(1);
    assert!(archiver.step().await.is_err());
    let before = world.count().await;
    archiver.step().await.unwrap();
    assert!(world.count().await < before);
    reads_the_same(&Archived::new(world.archive()), &world.before).await;
}

#[tokio::test]
async fn two_archivers_at_once_end_up_with_one_chain() {
    let world = World::new().await;
    let (one, other) = (world.archive(), world.archive());
    let (mut first, mut second) = (world.archiver(&one, Some(Duration::ZERO)), world.archiver(&other, Some(Duration::ZERO)));
    let (left, right) = tokio::join!(first.step(), second.step());
    let ahead = left.unwrap().archived.max(right.unwrap().archived);
    assert_eq!(first.step().await.unwrap(), second.step().await.unwrap());
    assert_eq!(first.step().await.unwrap().archived, ahead);
    assert_eq!(one.entries(), other.entries());
    one.verify().await.unwrap();
    reads_the_same(&Archived::new(world.archive()), &world.before).await;
}

#[tokio::test]
async fn an_archiver_killed_at_any_step_leaves_whole_segments_and_the_next_goes_on() {
    let world = World::new().await;
    // Cut off wherever it waits, more of it done each time.
    for steps in 0..400 {
        let archive = world.archive();
        let mut archiver = world.archiver(&archive, Some(Duration::ZERO));
        let mut step = Box::pin(archiver.step());
        let mut left = steps;
        let cut = std::future::poll_fn(|context| {
            if left == 0 {
                return std::task::Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        });
        tokio::select! {
            biased;
            done = &mut step => { done.unwrap(); }
            () = cut => {}
        }
        drop(step);
        world.archive().verify().await.unwrap();
        reads_the_same_briefly(&Archived::new(world.archive()), &world.before).await;
    }
    let archive = world.archive();
    world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    reads_the_same(&Archived::new(archive), &world.before).await;
}

async fn reads_the_same_briefly(archived: &dyn Broker, before: &[Stored]) {
    assert_eq!(all(archived, ">").await, before);
}

#[tokio::test]
async fn a_segment_whose_answer_was_lost_is_there_once() {
    let world = World::new().await;
    let archive = world.archive();
    let mut archiver = world.archiver(&archive, None);
    world.store.lose_answers(2);
    assert!(archiver.step().await.is_err());
    assert!(archiver.step().await.is_err());
    archiver.step().await.unwrap();
    archive.verify().await.unwrap();
    reads_the_same(&Archived::new(archive), &world.before).await;
}

#[tokio::test]
async fn a_damaged_or_missing_segment_is_named_and_never_passed_over() {
    let world = World::new().await;
    let archive = world.archive();
    world.archiver(&archive, Some(Duration::ZERO)).step().await.unwrap();
    let name = format!("{}/{:020}", archive.known().ledger.as_nanos(), archive.entries()[1].head.first);
    let whole = world.store.objects();
    let read = || async { Archived::new(world.archive()).read(StreamName::Ledger, ">", 1, 1_000).await.map(|page| page.messages.len()) };
    assert!(read().await.is_ok());
    world.store.tamper(|objects| {
        let mut bytes = objects[&name].to_vec();
        bytes[100] ^= 1;
        objects.insert(name.clone(), bytes.into());
    });
    let error = read().await.unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("damaged"), "{error}");
    world.store.tamper(|objects| {
        objects.remove(&name);
    });
    let error = read().await.unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("missing"), "{error}");
    // Another whole segment in its place.
    let third = format!("{}/{:020}", archive.known().ledger.as_nanos(), archive.entries()[2].head.first);
    world.store.tamper(|objects| {
        objects.insert(name.clone(), whole[&third].clone());
    });
    let error = read().await.unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("does not follow"), "{error}");
    // One that was made anew in its place, whole and rightly chained, with another word in it.
    let entries = archive.entries();
    let segment = Segment::open(archive.known().ledger, entries.first(), &whole[&name]).unwrap();
    let mut forged = Builder::after(archive.known().ledger, entries.first(), SEGMENT_BYTES);
    segment.messages(1).for_each(|stored| forged.push(&Stored { payload: "forged".into(), ..stored }));
    let (_, bytes) = forged.seal().unwrap();
    world.store.tamper(|objects| {
        objects.insert(name.clone(), bytes);
    });
    let error = read().await.unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("its digest is"), "{error}");
    // An index that lies is no help, and no harm.
    world.store.tamper(|objects| {
        *objects = whole.clone();
        let index = objects.keys().find(|name| name.ends_with("index")).unwrap().clone();
        let lie = String::from_utf8(objects[&index].to_vec()).unwrap().replacen("\"count\":", "\"count\":9", 1);
        objects.insert(index, lie.into());
    });
    assert!(read().await.is_ok());
}

#[tokio::test]
async fn a_ledger_that_was_put_back_from_an_older_copy_is_not_archived_on() {
    let world = World::new().await;
    let archive = world.archive();
    let mut archiver = world.archiver(&archive, None);
    let progress = archiver.step().await.unwrap();
    let lost = world.before.len() as u64 - progress.archived + 3;
    world.broker.lose_last(StreamName::Ledger, lost);
    let error = archiver.step().await.unwrap_err();
    assert!(matches!(error, ArchiveError::Diverged { .. }), "{error}");
    for _ in 0..lost + 30 {
        world.put("fp.ledger._.node.n1", "another").await;
    }
    let error = archiver.step().await.unwrap_err();
    assert!(matches!(error, ArchiveError::Diverged { .. }), "{error}");
}
