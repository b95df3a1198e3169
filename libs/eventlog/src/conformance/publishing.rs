//! Publishing: sequences, expectations, batches.

use super::{Tested, message, put, read_all, texts};
use crate::port::{BATCH_MAX, Expect, PublishError, StreamName};
use futures::future::join_all;

const TERM: &str = "fp.ledger._.term.x";

fn other(sequence: u64) -> Expect {
    Expect::Other { subject: TERM.to_owned(), sequence }
}

pub async fn sequences_are_consecutive_and_messages_read_back(broker: Tested) {
    for (number, text) in (1..).zip(["a", "b", "c"]) {
        assert_eq!(put(&broker, "fp.ledger.p.run.1", text).await, number);
    }
    let read = read_all(&broker, StreamName::Ledger, "fp.ledger.>", 10).await;
    assert_eq!(texts(&read), ["a", "b", "c"]);
    assert_eq!(read[1].headers, [("x-test".to_owned(), "b".to_owned())]);
    assert_eq!((read[1].sequence, read[1].subject.as_str()), (2, "fp.ledger.p.run.1"));
    assert!(read[0].recorded_at <= read[2].recorded_at && read[0].recorded_at.as_nanos() > 0);
}

pub async fn an_expectation_that_does_not_hold_stores_nothing(broker: Tested) {
    let subject = "fp.ledger.p.run.1";
    let publish = |text, expected| broker.publish(StreamName::Ledger, message(subject, text), Expect::Subject(expected));
    let first = publish("first", 0).await.unwrap();
    assert_eq!(publish("new again", 0).await, Err(PublishError::Conflict));
    assert_eq!(publish("ahead", first + 1).await, Err(PublishError::Conflict));
    // What others write does not matter to the aggregate.
    put(&broker, "fp.ledger.p.run.2", "other").await;
    let second = publish("second", first).await.unwrap();
    assert_eq!(publish("late", first).await, Err(PublishError::Conflict));
    assert_eq!(second, 3);
    assert_eq!(texts(&read_all(&broker, StreamName::Ledger, subject, 10).await), ["first", "second"]);
}

pub async fn an_expectation_may_look_at_another_subject(broker: Tested) {
    let publish = |text, expected| broker.publish(StreamName::Ledger, message("fp.ledger.p.job.1", text), other(expected));
    publish("before any term", 0).await.unwrap();
    let term = put(&broker, TERM, "term").await;
    assert_eq!(publish("no term", 0).await, Err(PublishError::Conflict));
    publish("under the term", term).await.unwrap();
    let next = put(&broker, TERM, "next term").await;
    assert_eq!(publish("deposed", term).await, Err(PublishError::Conflict));
    publish("under the next", next).await.unwrap();
    let read = read_all(&broker, StreamName::Ledger, "fp.ledger.p.job.1", 10).await;
    assert_eq!(texts(&read), ["before any term", "under the term", "under the next"]);
}

pub async fn a_batch_is_stored_whole_with_consecutive_sequences(broker: Tested) {
    put(&broker, "fp.ledger.p.run.0", "before").await;
    let term = put(&broker, TERM, "term").await;
    let batch = (0..5).map(|n| (message(&format!("fp.ledger.p.job.{n}"), &format!("m{n}")), other(term))).collect();
    assert_eq!(broker.publish_batch(StreamName::Ledger, batch).await, Ok(7));
    let read = read_all(&broker, StreamName::Ledger, "fp.ledger.p.job.*", 10).await;
    assert_eq!(read.iter().map(|stored| stored.sequence).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    assert_eq!(texts(&read), ["m0", "m1", "m2", "m3", "m4"]);
    assert_eq!(read[0].headers, [("x-test".to_owned(), "m0".to_owned())]);
}

pub async fn a_batch_with_one_stale_expectation_stores_nothing(broker: Tested) {
    put(&broker, "fp.ledger.p.run.2", "in the way").await;
    let batch = || (0..4).map(|n| (message(&format!("fp.ledger.p.run.{n}"), "x"), Expect::Subject(0))).collect::<Vec<_>>();
    assert_eq!(broker.publish_batch(StreamName::Ledger, batch()).await, Err(PublishError::Conflict));
    assert_eq!(broker.bounds(StreamName::Ledger).await.unwrap().last, 1);
    let mut mended = batch();
    mended[2].1 = Expect::Subject(1);
    assert_eq!(broker.publish_batch(StreamName::Ledger, mended).await, Ok(5));
}

pub async fn a_batch_under_an_ended_term_stores_nothing(broker: Tested) {
    let term = put(&broker, TERM, "term").await;
    put(&broker, TERM, "next term").await;
    let batch = (0..3).map(|n| (message(&format!("fp.ledger.p.job.{n}"), "x"), other(term))).collect();
    assert_eq!(broker.publish_batch(StreamName::Ledger, batch).await, Err(PublishError::Conflict));
    assert_eq!(broker.bounds(StreamName::Ledger).await.unwrap().last, 2);
}

pub async fn a_batch_cannot_expect_twice_on_one_subject(broker: Tested) {
    let subject = "fp.ledger.p.run.1";
    let batch = vec![(message(subject, "a"), Expect::Subject(0)), (message(subject, "b"), Expect::Subject(1))];
    assert_eq!(broker.publish_batch(StreamName::Ledger, batch).await, Err(PublishError::Conflict));
    assert_eq!(broker.bounds(StreamName::Ledger).await.unwrap().messages, 0);
}

pub async fn a_batch_of_the_largest_size_passes_and_a_larger_is_refused(broker: Tested) {
    let batch = |size: usize| (0..size).map(|n| (message(&format!("fp.ledger.p.run.{n}"), "x"), Expect::Subject(0))).collect::<Vec<_>>();
    assert_eq!(broker.publish_batch(StreamName::Ledger, batch(BATCH_MAX)).await, Ok(BATCH_MAX as u64));
    assert!(matches!(broker.publish_batch(StreamName::Ledger, batch(BATCH_MAX + 1)).await, Err(PublishError::Refused(_))));
    assert!(matches!(broker.publish_batch(StreamName::Ledger, Vec::new()).await, Err(PublishError::Refused(_))));
}

pub async fn concurrent_writers_of_one_aggregate_never_both_win(broker: Tested) {
    let subject = "fp.ledger.p.run.1";
    let mut last = 0;
    for round in 0..5 {
        let writers =
            (0..8).map(|writer| broker.publish(StreamName::Ledger, message(subject, &format!("{round}/{writer}")), Expect::Subject(last)));
        let outcomes = join_all(writers).await;
        let won: Vec<u64> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok().copied()).collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        last = won[0];
    }
    assert_eq!(read_all(&broker, StreamName::Ledger, subject, 10).await.len(), 5);
}

pub async fn streams_do_not_share_sequences(broker: Tested) {
    put(&broker, "fp.ledger.p.run.1", "x").await;
    let subjects = ["fp.metrics.3.n1", "fp.report.n1.executor", "fp.logs.n1.r", "fp.settled.n1.executor", "fp.assign.n1", "fp.beat.n1"];
    for (stream, subject) in StreamName::ALL.into_iter().skip(1).zip(subjects) {
        let sequence = broker.publish(stream, message(subject, "y"), Expect::Any).await.unwrap();
        assert_eq!(sequence, 1, "{stream:?}");
        assert_eq!(broker.last(stream, subject).await.unwrap().unwrap().sequence, 1);
    }
    let lease = broker.publish(StreamName::Beats, message("fp.lease.scheduler", "z"), Expect::Subject(0)).await;
    assert_eq!(lease, Ok(2));
}
