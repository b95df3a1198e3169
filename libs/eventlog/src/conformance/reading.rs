//! Reading without following.

use super::{SOON, Tested, message, put, read_all, take_messages, texts};
use crate::port::{Bounds, Expect, PublishError, StreamName};
use futures::StreamExt;
use tokio::time::timeout;

pub async fn a_page_holds_what_matches_and_says_where_to_read_on(broker: Tested) {
    let empty = broker.read(StreamName::Ledger, "fp.ledger.>", 1, 10).await.unwrap();
    assert_eq!((empty.messages.len(), empty.next), (0, None));
    for n in 1..=10 {
        put(&broker, &format!("fp.ledger.p.{}.{n}", if n % 2 == 0 { "job" } else { "run" }), &n.to_string()).await;
    }
    let page = broker.read(StreamName::Ledger, "fp.ledger.*.job.>", 1, 2).await.unwrap();
    assert_eq!(texts(&page.messages), ["2", "4"]);
    let next = page.next.expect("more to read");
    let rest = broker.read(StreamName::Ledger, "fp.ledger.*.job.>", next, 100).await.unwrap();
    assert_eq!((texts(&rest.messages), rest.next), (vec!["6".to_owned(), "8".to_owned(), "10".to_owned()], None));
    let exact = broker.read(StreamName::Ledger, "fp.ledger.*.job.>", 1, 5).await.unwrap();
    assert_eq!((exact.messages.len(), exact.next), (5, None));
    let none = broker.read(StreamName::Ledger, "fp.ledger.q.>", 1, 5).await.unwrap();
    assert_eq!((none.messages.len(), none.next), (0, None));
    let past = broker.read(StreamName::Ledger, "fp.ledger.>", 11, 5).await.unwrap();
    assert_eq!((past.messages.len(), past.next), (0, None));
}

pub async fn the_last_message_of_a_subject_is_found(broker: Tested) {
    assert_eq!(broker.last(StreamName::Ledger, "fp.ledger.p.run.1").await, Ok(None));
    put(&broker, "fp.ledger.p.run.1", "old").await;
    put(&broker, "fp.ledger.p.run.1", "new").await;
    put(&broker, "fp.ledger.p.run.2", "other").await;
    let last = broker.last(StreamName::Ledger, "fp.ledger.p.run.1").await.unwrap().unwrap();
    assert_eq!((last.sequence, texts(std::slice::from_ref(&last))), (2, vec!["new".to_owned()]));
    assert_eq!(last.headers, [("x-test".to_owned(), "new".to_owned())]);
}

pub async fn the_ends_of_a_stream_are_told(broker: Tested) {
    let fresh = broker.bounds(StreamName::Ledger).await.unwrap();
    assert_eq!(fresh, Bounds { first: 1, last: 0, messages: 0, bytes: 0, created: fresh.created });
    for n in 1..=4 {
        put(&broker, "fp.ledger.p.run.1", &n.to_string()).await;
    }
    let bounds = broker.bounds(StreamName::Ledger).await.unwrap();
    assert_eq!((bounds.first, bounds.last, bounds.messages), (1, 4, 4));
    assert_eq!(bounds.created, fresh.created, "it is the same stream");
    assert!(bounds.bytes > 0);
}

pub async fn purging_removes_only_what_matches_below_the_bound(broker: Tested) {
    for n in 1..=6 {
        put(&broker, &format!("fp.ledger.p.run.{}", n % 2), &n.to_string()).await;
    }
    broker.purge(StreamName::Ledger, None, 0).await.unwrap();
    broker.purge(StreamName::Ledger, None, 1).await.unwrap();
    assert_eq!(broker.bounds(StreamName::Ledger).await.unwrap().messages, 6);
    broker.purge(StreamName::Ledger, Some("fp.ledger.p.run.1".to_owned()), 4).await.unwrap();
    assert_eq!(texts(&read_all(&broker, StreamName::Ledger, "fp.ledger.>", 10).await), ["2", "4", "5", "6"]);
    broker.purge(StreamName::Ledger, None, 5).await.unwrap();
    assert_eq!(texts(&read_all(&broker, StreamName::Ledger, "fp.ledger.>", 10).await), ["5", "6"]);
    broker.purge(StreamName::Ledger, None, 7).await.unwrap();
    let bounds = broker.bounds(StreamName::Ledger).await.unwrap();
    assert_eq!((bounds.first, bounds.last, bounds.messages), (7, 6, 0));
    // Sequences go on, and an aggregate that was purged is new again to the broker.
    let subject = message("fp.ledger.p.run.1", "again");
    assert_eq!(broker.publish(StreamName::Ledger, subject, Expect::Subject(0)).await, Ok(7));
}

pub async fn streams_of_last_messages_keep_only_those(broker: Tested) {
    let beat = |node: &str, text: &str, expect| broker.publish(StreamName::Beats, message(&format!("fp.beat.{node}"), text), expect);
    let first = beat("n1", "1", Expect::Subject(0)).await.unwrap();
    beat("n2", "1", Expect::Subject(0)).await.unwrap();
    let second = beat("n1", "2", Expect::Subject(first)).await.unwrap();
    assert_eq!(beat("n1", "late", Expect::Subject(first)).await, Err(PublishError::Conflict));
    let kept = read_all(&broker, StreamName::Beats, "fp.beat.*", 10).await;
    assert_eq!(kept.iter().map(|stored| stored.sequence).collect::<Vec<_>>(), [2, second]);
}

pub async fn accepted_assignments_are_republished_and_refused_ones_are_not(broker: Tested) {
    let mut listening = broker.listen("fp.assigned.n1").await.unwrap();
    let assign = |node: &str, text: &str, expected| {
        broker.publish(StreamName::Assignments, message(&format!("fp.assign.{node}"), text), Expect::Subject(expected))
    };
    let first = assign("n1", "one", 0).await.unwrap();
    assert_eq!(assign("n1", "refused", 0).await, Err(PublishError::Conflict));
    assign("n2", "for another", 0).await.unwrap();
    assign("n1", "two", first).await.unwrap();
    let mut heard = Vec::new();
    for _ in 0..2 {
        heard.push(timeout(SOON, listening.next()).await.expect("republished in time").unwrap());
    }
    assert_eq!(texts(&heard), ["one", "two"]);
    assert_eq!((heard[0].sequence, heard[0].subject.as_str()), (first, "fp.assigned.n1"));
}

pub async fn every_way_of_reading_gives_the_same_messages(broker: Tested) {
    for n in 1..=30 {
        put(&broker, &format!("fp.ledger.p.run.{}", n % 3), &n.to_string()).await;
    }
    let paged = read_all(&broker, StreamName::Ledger, "fp.ledger.>", 7).await;
    let at_once = read_all(&broker, StreamName::Ledger, "fp.ledger.>", 100).await;
    let followed = take_messages(&mut broker.tail(StreamName::Ledger, Vec::new(), 1), 30).await;
    assert_eq!(paged, at_once);
    assert_eq!(paged, followed);
    let one: Vec<_> = paged.iter().filter(|stored| stored.subject == "fp.ledger.p.run.1").cloned().collect();
    assert_eq!(read_all(&broker, StreamName::Ledger, "fp.ledger.p.run.1", 4).await, one);
    assert_eq!(broker.last(StreamName::Ledger, "fp.ledger.p.run.1").await.unwrap(), one.last().cloned());
}
