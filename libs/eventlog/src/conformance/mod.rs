//! The suite that every back end must pass: one async function a behaviour, each on a broker of its own with nothing in it.
//!
//! [`broker_conformance!`](crate::broker_conformance) makes a test of each. The functions panic where a broker is wrong.
#![allow(clippy::unwrap_used, missing_docs)]

mod appending;
mod publishing;
mod reading;
mod tailing;

pub use appending::*;
pub use publishing::*;
pub use reading::*;
pub use tailing::*;

use crate::port::{Broker, Expect, Message, Stored, StreamName, TailItem};
use futures::{Stream, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A broker under test.
pub type Tested = Arc<dyn Broker>;

/// How long anything that must happen may take.
pub const SOON: Duration = Duration::from_secs(20);

/// Makes a `#[tokio::test]` of every behaviour. `$fresh` is an async function without arguments that gives `(guard, Arc<dyn Broker>)`: an
/// empty broker, and whatever must live as long as it.
#[macro_export]
macro_rules! broker_conformance {
    ($fresh:path) => {
        $crate::broker_conformance!(@ $fresh:
            sequences_are_consecutive_and_messages_read_back,
            an_expectation_that_does_not_hold_stores_nothing,
            an_expectation_may_look_at_another_subject,
            a_batch_is_stored_whole_with_consecutive_sequences,
            a_batch_with_one_stale_expectation_stores_nothing,
            a_batch_under_an_ended_term_stores_nothing,
            a_batch_cannot_expect_twice_on_one_subject,
            a_batch_of_the_largest_size_passes_and_a_larger_is_refused,
            concurrent_writers_of_one_aggregate_never_both_win,
            streams_do_not_share_sequences,
            a_page_holds_what_matches_and_says_where_to_read_on,
            the_last_message_of_a_subject_is_found,
            the_ends_of_a_stream_are_told,
            purging_removes_only_what_matches_below_the_bound,
            streams_of_last_messages_keep_only_those,
            accepted_assignments_are_republished_and_refused_ones_are_not,
            every_way_of_reading_gives_the_same_messages,
            a_tail_yields_everything_in_order_and_then_its_position,
            a_tail_starts_where_it_is_told,
            a_tail_of_several_filters_yields_each_message_once,
            a_tail_of_most_of_a_long_stream_yields_each_message_once,
            overlapping_filters_yield_each_message_once,
            a_position_comes_even_when_nothing_matches,
            a_position_never_comes_before_what_it_covers,
            a_tail_follows_a_busy_stream_without_gap_or_repeat,
            a_slow_reader_gets_everything,
            an_append_is_told_of_a_conflict_and_a_repeat_is_the_same_event,
            many_writers_are_each_acknowledged_exactly_once,
            replaying_one_aggregate_or_all_gives_the_same_facts,
        );
    };
    (@ $fresh:path: $($behaviour:ident,)*) => {$(
        #[tokio::test]
        async fn $behaviour() {
            let (_guard, broker) = $fresh().await;
            $crate::conformance::$behaviour(broker).await;
        }
    )*};
}

/// A message of the ledger with a header and a payload.
pub fn message(subject: &str, text: &str) -> Message {
    Message { subject: subject.to_owned(), headers: vec![("x-test", text.to_owned())].into(), payload: text.to_owned().into() }
}

/// Publishes one message with no expectation.
pub async fn put(broker: &Tested, subject: &str, text: &str) -> u64 {
    broker.publish(StreamName::Ledger, message(subject, text), Expect::Any).await.unwrap()
}

/// The texts of messages.
pub fn texts(messages: &[Stored]) -> Vec<String> {
    messages.iter().map(|stored| String::from_utf8_lossy(&stored.payload).into_owned()).collect()
}

/// Every message that matches, in as many pages as it takes.
pub async fn read_all(broker: &Tested, stream: StreamName, filter: &str, page: usize) -> Vec<Stored> {
    let mut messages = Vec::new();
    let mut from = Some(1);
    while let Some(next) = from {
        let page = broker.read(stream, filter, next, page).await.unwrap();
        messages.extend(page.messages);
        from = page.next;
    }
    messages
}

/// The next `count` messages of a tail.
pub async fn take_messages(tail: &mut (impl Stream<Item = TailItem> + Unpin), count: usize) -> Vec<Stored> {
    let mut messages = Vec::new();
    while messages.len() < count {
        match timeout(SOON, tail.next()).await.expect("a message in time").expect("a tail never ends") {
            TailItem::Message(stored) => messages.push(stored),
            TailItem::Position(_) => {}
        }
    }
    messages
}

/// What a tail yields up to a position of at least `wanted`.
pub async fn take_until(tail: &mut (impl Stream<Item = TailItem> + Unpin), wanted: u64) -> Vec<Stored> {
    let mut messages = Vec::new();
    loop {
        match timeout(SOON, tail.next()).await.expect("a position in time").expect("a tail never ends") {
            TailItem::Message(stored) => messages.push(stored),
            TailItem::Position(position) if position >= wanted => return messages,
            TailItem::Position(_) => {}
        }
    }
}
