//! Following a stream.

use super::{SOON, Tested, message, put, read_all, take_messages, take_until, texts};
use crate::port::{Expect, StreamName, TailItem};
use futures::StreamExt;
use tokio::time::timeout;

pub async fn a_tail_yields_everything_in_order_and_then_its_position(broker: Tested) {
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    assert_eq!(timeout(SOON, tail.next()).await.unwrap(), Some(TailItem::Position(0)));
    for n in 1..=5 {
        put(&broker, &format!("fp.ledger.p.run.{n}"), &n.to_string()).await;
    }
    assert_eq!(texts(&take_until(&mut tail, 5).await), ["1", "2", "3", "4", "5"]);
    put(&broker, "fp.ledger.p.run.1", "6").await;
    assert_eq!(texts(&take_until(&mut tail, 6).await), ["6"]);
}

pub async fn a_tail_starts_where_it_is_told(broker: Tested) {
    for n in 1..=6 {
        put(&broker, "fp.ledger.p.run.1", &n.to_string()).await;
    }
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 4);
    assert_eq!(texts(&take_until(&mut tail, 6).await), ["4", "5", "6"]);
    let mut ahead = broker.tail(StreamName::Ledger, Vec::new(), 7);
    assert!(take_until(&mut ahead, 6).await.is_empty());
    put(&broker, "fp.ledger.p.run.1", "7").await;
    assert_eq!(texts(&take_messages(&mut ahead, 1).await), ["7"]);
}

pub async fn a_tail_of_several_filters_yields_each_message_once(broker: Tested) {
    let filters = vec!["fp.ledger.*.job.>".to_owned(), "fp.ledger.*.node.>".to_owned()];
    for (kind, text) in [("job", "1"), ("run", "2"), ("node", "3"), ("run", "4"), ("job", "5")] {
        put(&broker, &format!("fp.ledger.p.{kind}.1"), text).await;
    }
    let mut tail = broker.tail(StreamName::Ledger, filters, 1);
    assert_eq!(texts(&take_until(&mut tail, 5).await), ["1", "3", "5"]);
}

/// Enough that whoever follows most of a stream may go about it in another way.
pub async fn a_tail_of_most_of_a_long_stream_yields_each_message_once(broker: Tested) {
    const MESSAGES: u64 = 2_600;
    let kind = |n: u64| ["job", "run", "node"][(n % 3) as usize];
    for n in 1..=MESSAGES {
        put(&broker, &format!("fp.ledger.p.{}.{}", kind(n), n % 700), &n.to_string()).await;
    }
    let filters = vec!["fp.ledger.*.job.>".to_owned(), "fp.ledger.*.run.>".to_owned()];
    let mut tail = broker.tail(StreamName::Ledger, filters, 1);
    let wanted: Vec<String> = (1..=MESSAGES).filter(|n| kind(*n) != "node").map(|n| n.to_string()).collect();
    assert_eq!(texts(&take_until(&mut tail, MESSAGES).await), wanted);
    put(&broker, "fp.ledger.p.node.1", "not wanted").await;
    let last = put(&broker, "fp.ledger.p.run.1", "last").await;
    assert_eq!(texts(&take_until(&mut tail, last).await), ["last"]);
    let last = put(&broker, "fp.ledger.p.node.1", "not wanted").await;
    broker.nudge(StreamName::Ledger);
    assert!(take_until(&mut tail, last).await.is_empty());
}

pub async fn overlapping_filters_yield_each_message_once(broker: Tested) {
    let filters = vec!["fp.ledger.*.job.>".to_owned(), "fp.ledger.p.>".to_owned()];
    for (project, kind, text) in [("p", "job", "1"), ("q", "run", "2"), ("q", "job", "3"), ("p", "run", "4")] {
        put(&broker, &format!("fp.ledger.{project}.{kind}.1"), text).await;
    }
    let mut tail = broker.tail(StreamName::Ledger, filters, 1);
    assert_eq!(texts(&take_until(&mut tail, 4).await), ["1", "3", "4"]);
}

/// Rule 10: "at least N" always ends, also for a reader that no event concerns.
pub async fn a_position_comes_even_when_nothing_matches(broker: Tested) {
    let mut tail = broker.tail(StreamName::Ledger, vec!["fp.ledger.*.node.>".to_owned()], 1);
    take_until(&mut tail, 0).await;
    for n in 1..=3 {
        let sequence = put(&broker, "fp.ledger.p.run.1", &n.to_string()).await;
        broker.nudge(StreamName::Ledger);
        assert!(take_until(&mut tail, sequence).await.is_empty());
    }
}

/// Rule 10: a position is the end as it was read *before* nothing was seen pending; it never covers what is still to come.
pub async fn a_position_never_comes_before_what_it_covers(broker: Tested) {
    const MESSAGES: usize = 1_500;
    let writing = tokio::spawn({
        let broker = broker.clone();
        async move {
            let publish = |n: usize| {
                let broker = broker.clone();
                async move {
                    broker.nudge(StreamName::Ledger);
                    let kind = if n.is_multiple_of(2) { "job" } else { "run" };
                    put(&broker, &format!("fp.ledger.p.{kind}.{n}"), "x").await
                }
            };
            futures::stream::iter(0..MESSAGES).map(publish).buffer_unordered(16).collect::<Vec<_>>().await
        }
    });
    let mut tail = broker.tail(StreamName::Ledger, vec!["fp.ledger.*.job.>".to_owned()], 1);
    let (mut told, mut seen) = (0, 0);
    while seen < MESSAGES / 2 {
        match timeout(SOON, tail.next()).await.unwrap().unwrap() {
            TailItem::Message(stored) => {
                assert!(stored.sequence > told, "message {} after position {told}", stored.sequence);
                seen += 1;
            }
            TailItem::Position(position) => told = position,
        }
    }
    writing.await.unwrap();
}

pub async fn a_tail_follows_a_busy_stream_without_gap_or_repeat(broker: Tested) {
    const WRITERS: usize = 4;
    const EACH: usize = 300;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let broker = broker.clone();
            tokio::spawn(async move {
                for round in 0..EACH / 100 {
                    let batch = (0..100).map(|n| (message(&format!("fp.ledger.p.run.{writer}-{round}-{n}"), "x"), Expect::Any)).collect();
                    broker.publish_batch(StreamName::Ledger, batch).await.unwrap();
                }
            })
        })
        .collect();
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    let seen = take_messages(&mut tail, WRITERS * EACH).await;
    let sequences: Vec<u64> = seen.iter().map(|stored| stored.sequence).collect();
    assert_eq!(sequences, (1..=(WRITERS * EACH) as u64).collect::<Vec<_>>());
    for writer in writers {
        writer.await.unwrap();
    }
}

pub async fn a_slow_reader_gets_everything(broker: Tested) {
    let large = "x".repeat(64 << 10);
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    for round in 0..6 {
        let batch = (0..50).map(|n| (message(&format!("fp.ledger.p.run.{round}-{n}"), "h"), Expect::Any));
        let batch = batch.map(|(mut message, expect)| {
            message.payload = large.clone().into();
            (message, expect)
        });
        broker.publish_batch(StreamName::Ledger, batch.collect()).await.unwrap();
    }
    // 19 MB stand behind a reader that has not read yet: more than one pull may bring.
    let seen = take_messages(&mut tail, 300).await;
    assert_eq!(seen.iter().map(|stored| stored.sequence).collect::<Vec<_>>(), (1..=300).collect::<Vec<u64>>());
    let paged = read_all(&broker, StreamName::Ledger, "fp.ledger.>", 1_000).await;
    assert_eq!(paged.len(), 300);
}
