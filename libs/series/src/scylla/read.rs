//! Reading as of one floor.

use super::{
    commit::RowKey,
    db::Db,
    layout::{ChunkRow, Place, Seen, Version, Versions, read_chunk, seen},
    progress::{Epochs, Visible},
};
use crate::{
    HistoryPage, HistoryQuery, PageToken, Point, SeriesError, SeriesKey, SeriesSource, SeriesSummary, SessionKey, SessionProgress,
    SourceState,
    chunk::{self, Damaged, Header},
    rows::read_session,
};
use footplate_types::{AttemptNumber, MetricName, Rank, SessionId};
use std::ops::ControlFlow;

/// How often a read begins anew because two commits came while it was under way.
const TRIES: usize = 64;

/// attempt, rank, name or session, and the two versions.
type Named<T> = (i64, i64, T, Option<i64>, Option<i64>, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);

/// What a store is read through.
pub(super) struct Reader<'s> {
    pub(super) db: &'s Db,
    pub(super) epochs: &'s Epochs,
}

impl Reader<'_> {
    pub(super) async fn floor(&self, shard: u8) -> Result<u64, SeriesError> {
        Ok(self.epochs.progress(self.db).await?.floors[usize::from(shard)])
    }

    pub(super) async fn history(&self, key: &SeriesKey, query: HistoryQuery) -> Result<HistoryPage, SeriesError> {
        let shard = key.source.shard();
        let row = RowKey::of(key);
        for _ in 0..TRIES {
            let visible = self.epochs.visible(self.db).await?;
            let versions: Option<Versions> =
                self.db.row(&self.db.statements.one_series, (&row.source, row.attempt, row.rank, &row.name)).await?;
            let versions = versions.unwrap_or_default();
            let mut page = HistoryPage { points: Vec::new(), next: None, floor: visible.floors[usize::from(shard)] };
            match seen(&versions, &visible, shard) {
                Seen::Passed => continue,
                Seen::Nothing => return Ok(page),
                Seen::As(bytes, _) => {
                    let version = Version::read(bytes).map_err(|Damaged(what)| self.db.damaged(what))?;
                    page.next = self.page(key, &row, &version, &visible, &query, &mut page.points).await?;
                    return Ok(page);
                }
            }
        }
        Err(self.restless())
    }

    fn restless(&self) -> SeriesError {
        let what = "it is written to faster than it can be read; ask again".to_owned();
        SeriesError::Away { address: self.db.address.clone(), what }
    }

    /// Fills `points` up to the limit; where the first wanted point stands that no longer fitted.
    async fn page(
        &self,
        key: &SeriesKey,
        row: &RowKey,
        version: &Version,
        visible: &Visible,
        query: &HistoryQuery,
        points: &mut Vec<Point>,
    ) -> Result<Option<PageToken>, SeriesError> {
        let from = query.after.map_or_else(Place::default, |after| Place { sequence: after.sequence, start: after.offset });
        let mut next = None;
        for bucket in self.bucket_of(key, row, version, visible, from).await?..version.buckets() {
            let values = (
                &row.source,
                row.attempt,
                row.rank,
                &row.name,
                version.born.cast_signed(),
                bucket.cast_signed(),
                i64::try_from(from.sequence).unwrap_or(i64::MAX),
                i64::from(from.start),
            );
            let take = |row: ChunkRow| {
                next = self.take(key, row, visible, query, points)?;
                Ok(if next.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            self.db.rows(&self.db.statements.chunks_from, values, take).await?;
            if next.is_some() {
                break;
            }
        }
        Ok(next)
    }

    /// Takes the wanted points of one chunk; where the first stands that no longer fits.
    fn take(
        &self,
        key: &SeriesKey,
        row: ChunkRow,
        visible: &Visible,
        query: &HistoryQuery,
        points: &mut Vec<Point>,
    ) -> Result<Option<PageToken>, SeriesError> {
        let Some(stored) = read_chunk(self.db, key, row, visible)? else { return Ok(None) };
        let at = stored.at;
        let damaged = |damaged: Damaged| self.db.damaged(damaged.of_chunk(key, at.sequence).0);
        let (header, blocks) = Header::read(&stored.bytes).map_err(damaged)?;
        if !header.meets(query.from_step, query.to_step) {
            return Ok(None);
        }
        let skip = query.after.filter(|after| (after.sequence, after.offset) == (at.sequence, at.start)).map_or(0, |after| after.index);
        let decoded = chunk::points(&header, blocks).map_err(damaged)?;
        let wanted = decoded.iter().take(stored.visible).enumerate().skip(skip as usize).filter(|(_, point)| query.wants(point));
        for (index, point) in wanted {
            if points.len() == query.page_points() {
                return Ok(Some(PageToken { sequence: at.sequence, offset: at.start, index: index as u32 }));
            }
            points.push(*point);
        }
        Ok(None)
    }

    /// The bucket in which a place lies.
    async fn bucket_of(
        &self,
        key: &SeriesKey,
        row: &RowKey,
        version: &Version,
        visible: &Visible,
        from: Place,
    ) -> Result<u64, SeriesError> {
        if version.buckets() <= 1 || from == Place::default() {
            return Ok(0);
        }
        let mut found = 0;
        let values = (&row.source, row.attempt, row.rank, &row.name, version.born.cast_signed());
        self.db
            .rows(&self.db.statements.buckets, values, |(bucket, epoch, sequence, start): (i64, i64, i64, i64)| {
                let begins = Place { sequence: sequence.cast_unsigned(), start: start as u32 };
                let counts = begins.sequence <= visible.limit(epoch, key.source.shard());
                if counts && begins <= from {
                    found = bucket.cast_unsigned().max(found);
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(found)
    }

    pub(super) async fn state(&self, source: &SeriesSource) -> Result<SourceState, SeriesError> {
        for _ in 0..TRIES {
            let visible = self.epochs.visible(self.db).await?;
            let Some(series) = self.figures(source, &visible).await? else { continue };
            let Some(sessions) = self.sessions(source, &visible).await? else { continue };
            return Ok(SourceState { floor: visible.floors[usize::from(source.shard())], series, sessions });
        }
        Err(self.restless())
    }

    /// None when two commits came meanwhile.
    async fn figures(&self, source: &SeriesSource, visible: &Visible) -> Result<Option<Vec<SeriesSummary>>, SeriesError> {
        let mut summaries = Some(Vec::new());
        let take = |(attempt, rank, name, epoch, as_of, figures, before_as_of, before): Named<String>| {
            match seen(&(epoch, as_of, figures, before_as_of, before), visible, source.shard()) {
                Seen::Nothing => {}
                Seen::Passed => {
                    summaries = None;
                    return Ok(ControlFlow::Break(()));
                }
                Seen::As(bytes, _) => {
                    let name = MetricName::parse(&name).map_err(|invalid| self.db.damaged(invalid.to_string()))?;
                    let stats = Version::read(bytes).map_err(|Damaged(what)| self.db.damaged(what))?.stats;
                    let key = SeriesKey { source: source.clone(), attempt: AttemptNumber(attempt as u32), rank: Rank(rank as u32), name };
                    if let Some(summaries) = &mut summaries {
                        summaries.push(SeriesSummary { key, stats });
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        self.db.rows(&self.db.statements.all_series, (source.to_string(),), take).await?;
        Ok(summaries)
    }

    /// None when two commits came meanwhile.
    async fn sessions(&self, source: &SeriesSource, visible: &Visible) -> Result<Option<Vec<SessionProgress>>, SeriesError> {
        let mut sessions = Some(Vec::new());
        let take = |(attempt, rank, session, epoch, as_of, progress, before_as_of, before): Named<Vec<u8>>| {
            match seen(&(epoch, as_of, progress, before_as_of, before), visible, source.shard()) {
                Seen::Nothing => {}
                Seen::Passed => {
                    sessions = None;
                    return Ok(ControlFlow::Break(()));
                }
                Seen::As(bytes, _) => {
                    let session = <[u8; 16]>::try_from(session).map_err(|_| self.db.damaged("the id of a session is malformed"))?;
                    let key = SessionKey {
                        source: source.clone(),
                        attempt: AttemptNumber(attempt as u32),
                        rank: Rank(rank as u32),
                        session: SessionId::from_bytes(session),
                    };
                    let progress = read_session(key, bytes).map_err(|Damaged(what)| self.db.damaged(what))?;
                    if let Some(sessions) = &mut sessions {
                        sessions.push(progress);
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        self.db.rows(&self.db.statements.all_sessions, (source.to_string(),), take).await?;
        Ok(sessions)
    }
}
