//! The suite that every back end passes: one async function a behaviour, each on a store of its own with nothing in it.
//!
//! [`series_conformance!`](crate::series_conformance) makes a test of each. The functions panic where a store is wrong.
#![allow(clippy::unwrap_used, missing_docs)]

mod model;
mod reading;
mod writing;

pub use model::*;
pub use reading::*;
pub use writing::*;

use crate::{IngestBatch, Point, SeriesKey, SeriesSource, SeriesStore};
use footplate_types::{AttemptNumber, MetricName, NodeName, Rank, RunId, SessionId};
use std::time::Duration;

/// How long one test may take, on a machine with much else to do: seconds of work.
const TEST_WITHIN: Duration = Duration::from_secs(600);

/// The test, or its end when it hangs.
pub async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_WITHIN, test).await.unwrap()
}

/// Makes a `#[tokio::test]` of every behaviour. `$fresh` is an async function without arguments that gives `(guard, store)`: a boxed empty
/// store, and whatever must live as long as it.
#[macro_export]
macro_rules! series_conformance {
    ($fresh:path) => {
        $crate::series_conformance!(@ $fresh:
            what_was_ingested_reads_back_bit_for_bit,
            an_unknown_series_is_empty_and_not_an_error,
            names_of_any_script_and_samples_of_nodes_are_kept_apart,
            a_redelivered_message_is_dropped_by_the_floor,
            a_batch_sent_again_is_dropped_by_its_session_however_late,
            batches_out_of_turn_are_stored_and_the_session_tells_what_is_missing,
            a_batch_that_can_never_be_stored_does_not_hold_back_its_shard,
            floors_are_per_shard_and_only_rise,
            the_stream_that_feeds_it_is_noted_with_where_its_count_begins,
            a_point_exactly_repeated_costs_nothing,
            a_step_that_comes_twice_keeps_both_and_the_later_wins,
            order_is_per_series_and_no_lower_step_is_dropped,
            chunks_end_at_cuts_and_read_on_in_order,
            pages_are_complete_and_stay_valid_while_points_arrive,
            a_range_of_steps_is_all_of_it_and_nothing_else,
            a_reduced_answer_says_so_and_is_always_the_same,
            figures_count_what_is_not_finite_apart,
            a_later_attempt_shadows_what_it_repeats_and_both_can_be_asked_for,
            a_deleted_source_is_gone_and_stays_gone,
            many_writers_at_once_lose_and_double_nothing,
            any_history_of_batches_reads_as_a_plain_list_would,
        );
    };
    (@ $fresh:path: $($behaviour:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let (_guard, store) = $fresh().await;
                $crate::conformance::in_time($crate::conformance::$behaviour(store.as_ref())).await;
            }
        )*
    };
}

/// A writer of one source: counts its batches and its messages.
#[derive(Clone, Debug)]
pub struct Writer {
    pub source: SeriesSource,
    pub attempt: AttemptNumber,
    pub rank: Rank,
    pub session: SessionId,
    pub sequence: u64,
    pub n: u64,
}

impl Writer {
    /// The writer of a run that is fixed by `name`.
    pub fn of(name: &str) -> Self {
        Self {
            source: SeriesSource::Run(RunId::derived(&[name.as_bytes()])),
            attempt: AttemptNumber(1),
            rank: Rank(0),
            session: SessionId::derived(&[name.as_bytes()]),
            sequence: 0,
            n: 0,
        }
    }

    /// The writer of a node's samples.
    pub fn of_node(name: &str) -> Self {
        Self { source: SeriesSource::Node(NodeName::parse(name).unwrap()), attempt: AttemptNumber(0), ..Self::of(name) }
    }

    /// The next batch, in the next message.
    pub fn batch(&mut self, series: &[(&str, Vec<Point>)]) -> IngestBatch {
        self.sequence += 1;
        self.n += 1;
        IngestBatch {
            sequence: self.sequence,
            source: self.source.clone(),
            attempt: self.attempt,
            rank: self.rank,
            session: self.session,
            n: self.n,
            series: series.iter().map(|(name, points)| (metric(name), points.clone())).collect(),
        }
    }

    /// Stores the next batch.
    pub async fn write(&mut self, store: &dyn SeriesStore, series: &[(&str, Vec<Point>)]) -> IngestBatch {
        let batch = self.batch(series);
        let ingested = store.ingest(std::slice::from_ref(&batch)).await.unwrap();
        assert_eq!(ingested.refused, []);
        batch
    }

    /// The name of one of its series.
    pub fn key(&self, name: &str) -> SeriesKey {
        SeriesKey { source: self.source.clone(), attempt: self.attempt, rank: self.rank, name: metric(name) }
    }
}

pub fn metric(name: &str) -> MetricName {
    MetricName::parse(name).unwrap()
}

pub fn point(step: i64, value: f64) -> Point {
    Point { step, time_ms: step.wrapping_mul(1_003).wrapping_add(1_760_000_000_000), value }
}

/// Points with these steps and a value that depends on the step.
pub fn points(steps: impl IntoIterator<Item = i64>) -> Vec<Point> {
    steps.into_iter().map(|step| point(step, (step as f64).sin())).collect()
}
