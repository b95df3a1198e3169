//! How far the store is, and who writes: floors, epochs, and what of a row counts.
//!
//! Every writer has an epoch of its own, higher than the one before. A row says under which epoch it was written; of an earlier epoch counts
//! what lies at or below the floor at which the next writer took over, of the present one what lies at or below the floor. So what a writer
//! left behind in the middle of a commit, or goes on to write after another took over, is never read, whatever it was.

use super::db::Db;
use crate::{Feed, SHARDS, SeriesError};
use footplate_types::Timestamp;
use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, PoisonError},
};

/// The floor of every shard.
pub(super) type Floors = Vec<u64>;

/// What the one row of `progress` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// The epoch of the present writer; 0 before the first.
    pub(super) epoch: i64,
    pub(super) writer: String,
    pub(super) floors: Floors,
    /// The floors as the row holds them, none before the first: what a raise names as its condition.
    pub(super) stored: Option<Vec<i64>>,
    pub(super) feed: Option<Feed>,
}

impl Progress {
    pub(super) fn highest_floor(&self) -> u64 {
        self.floors.iter().copied().max().unwrap_or(0)
    }
}

type ProgressRow = (Option<i64>, Option<String>, Option<Vec<i64>>, Option<i64>, Option<i64>);

fn read(row: Option<ProgressRow>) -> Progress {
    let (epoch, writer, floors, created, base) = row.unwrap_or_default();
    let feed = created.map(|created| Feed { created: Timestamp::from_nanos(created), base: base.unwrap_or(0).cast_unsigned() });
    let (epoch, writer) = (epoch.unwrap_or(0), writer.unwrap_or_default());
    Progress { epoch, writer, floors: floors_of(floors.clone().unwrap_or_default()), stored: floors, feed }
}

fn floors_of(stored: Vec<i64>) -> Floors {
    let mut floors: Floors = stored.into_iter().map(|floor| u64::try_from(floor).unwrap_or(0)).collect();
    floors.resize(usize::from(SHARDS), 0);
    floors
}

/// Floors as the tables hold them.
pub(super) fn stored_floors(floors: &Floors) -> Vec<i64> {
    floors.iter().map(|floor| i64::try_from(*floor).unwrap_or(i64::MAX)).collect()
}

/// The floors at which each writer took over, as far as this instance has seen.
#[derive(Default)]
pub(super) struct Epochs {
    known: Mutex<Arc<BTreeMap<i64, Floors>>>,
}

/// What counts, at one moment.
#[derive(Clone)]
pub(super) struct Visible {
    pub(super) floors: Floors,
    epochs: Arc<BTreeMap<i64, Floors>>,
}

impl Visible {
    /// The epoch before, where it began at the same floors: none was raised under it, so that what counts of any row is the same without it.
    /// No other may be forgotten: what a writer left behind may lie there for ever, and only the floors of the next one keep it from counting.
    pub(super) fn idle_before(&self, epoch: i64) -> Option<i64> {
        let floors = self.epochs.get(&epoch)?;
        self.epochs.range(..epoch).next_back().filter(|(_, before)| *before == floors).map(|(before, _)| *before)
    }

    /// Up to which sequence a row of a shard counts that was written under `epoch`.
    pub(super) fn limit(&self, epoch: i64, shard: u8) -> u64 {
        let at = usize::from(shard);
        let next = self.epochs.range((Bound::Excluded(epoch), Bound::Unbounded)).next();
        next.map_or(self.floors[at], |(_, floors)| floors[at].min(self.floors[at]))
    }
}

impl Epochs {
    /// How far the store is now, and who writes.
    pub(super) async fn progress(&self, db: &Db) -> Result<Progress, SeriesError> {
        db.row(&db.statements.progress, ()).await.map(read)
    }

    /// The same once what is under way is settled: nothing that was sent before lands afterwards.
    pub(super) async fn settled(&self, db: &Db) -> Result<Progress, SeriesError> {
        db.row(&db.statements.settled_progress, ()).await.map(read)
    }

    /// What counts now.
    pub(super) async fn visible(&self, db: &Db) -> Result<Visible, SeriesError> {
        let progress = self.progress(db).await?;
        let known = self.known();
        // The epoch of a writer that has not noted its floors yet is asked for each time: until it has, it writes nothing.
        let epochs = if progress.epoch == 0 || known.contains_key(&progress.epoch) { known } else { self.learn(db).await? };
        Ok(Visible { floors: progress.floors, epochs })
    }

    /// What counts for a writer that has just taken over.
    pub(super) async fn of_writer(&self, db: &Db, floors: Floors) -> Result<Visible, SeriesError> {
        Ok(Visible { floors, epochs: self.learn(db).await? })
    }

    async fn learn(&self, db: &Db) -> Result<Arc<BTreeMap<i64, Floors>>, SeriesError> {
        let highest = self.known().last_key_value().map_or(0, |(epoch, _)| *epoch);
        let mut found = Vec::new();
        db.rows(&db.statements.epochs_beyond, (highest,), |(epoch, floors): (i64, Option<Vec<i64>>)| {
            found.push((epoch, floors_of(floors.unwrap_or_default())));
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !found.is_empty() {
            Arc::make_mut(&mut known).extend(found);
        }
        Ok(known.clone())
    }

    fn known(&self) -> Arc<BTreeMap<i64, Floors>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_up_to_where_the_next_writer_took_over() {
        let floors = |floor| vec![floor; usize::from(SHARDS)];
        let epochs = Arc::new(BTreeMap::from([(1, floors(0)), (2, floors(100)), (4, floors(250))]));
        let visible = Visible { floors: floors(300), epochs };
        let limits: Vec<u64> = (1..=5).map(|epoch| visible.limit(epoch, 7)).collect();
        assert_eq!(limits, [100, 250, 250, 300, 300]);
        let earlier = Visible { floors: floors(120), epochs: visible.epochs };
        assert_eq!((earlier.limit(1, 0), earlier.limit(2, 0)), (100, 120), "a read never sees beyond its own floor");
    }

    #[test]
    fn nothing_counts_differently_without_an_epoch_under_which_no_floor_was_raised() {
        let floors = |floor: u64| (0..u64::from(SHARDS)).map(|shard| floor * (shard % 3)).collect::<Floors>();
        let mut known = BTreeMap::from([(1, floors(0)), (2, floors(100)), (3, floors(100)), (4, floors(250)), (6, floors(250))]);
        let visible = |known: &BTreeMap<i64, Floors>| Visible { floors: floors(300), epochs: Arc::new(known.clone()) };
        let limits = |known: &BTreeMap<i64, Floors>| -> Vec<u64> {
            (1..=7)
                .flat_map(|epoch| (0..SHARDS).map(move |shard| (epoch, shard)))
                .map(|(epoch, shard)| visible(known).limit(epoch, shard))
                .collect()
        };
        let all = limits(&known);
        let idle: Vec<_> = (0..=7).map(|epoch| visible(&known).idle_before(epoch)).collect();
        assert_eq!(idle, [None, None, None, Some(2), None, None, Some(4), None]);
        for idle in idle.into_iter().flatten() {
            known.remove(&idle);
            assert_eq!(limits(&known), all, "without {idle}");
        }
        known.remove(&3);
        assert_ne!(limits(&known), all, "a floor was raised under it");
    }
}
