//! Reading one consistent state of the file.

use super::{
    fault::Fault,
    tables::{self, CHUNKS, ChunkKey, FLOORS, META, META_FEED_BASE, META_FEED_CREATED, SERIES, SESSIONS, series_key, source_number},
};
use crate::{
    Feed, HistoryPage, HistoryQuery, PageToken, Point, SeriesKey, SeriesSource, SeriesSummary, SessionKey, SessionProgress, SourceState,
    chunk::{self, Header},
    rows::{SeriesRow, read_session},
};
use footplate_types::{AttemptNumber, MetricName, Rank, SessionId, Timestamp};
use redb::ReadTransaction;

/// A read transaction and what can be asked of it.
pub(super) struct Reader<'t> {
    txn: &'t ReadTransaction,
}

impl<'t> Reader<'t> {
    pub(super) fn new(txn: &'t ReadTransaction) -> Self {
        Self { txn }
    }

    #[cfg(test)]
    pub(super) fn transaction(&self) -> &ReadTransaction {
        self.txn
    }

    pub(super) fn floor(&self, shard: u8) -> Result<u64, Fault> {
        Ok(self.txn.open_table(FLOORS)?.get(shard)?.map_or(0, |floor| floor.value()))
    }

    pub(super) fn feed(&self) -> Result<Option<Feed>, Fault> {
        let meta = self.txn.open_table(META)?;
        let created = meta.get(META_FEED_CREATED)?.map(|bits| Timestamp::from_nanos(bits.value().cast_signed()));
        let base = meta.get(META_FEED_BASE)?.map_or(0, |base| base.value());
        Ok(created.map(|created| Feed { created, base }))
    }

    fn series(&self, key: &SeriesKey) -> Result<Option<u64>, Fault> {
        let Some(source) = source_number(self.txn, &key.source.to_string())? else { return Ok(None) };
        let row = self.txn.open_table(SERIES)?.get(series_key(source, key).as_slice())?;
        Ok(row.map(|row| SeriesRow::read(row.value()).map(|row| row.series)).transpose()?)
    }

    pub(super) fn history(&self, key: &SeriesKey, query: HistoryQuery) -> Result<HistoryPage, Fault> {
        let mut page = HistoryPage { points: Vec::new(), next: None, floor: self.floor(key.source.shard())? };
        if let Some(series) = self.series(key)? {
            page.next = self.page(key, series, &query, &mut page.points)?;
        }
        Ok(page)
    }

    /// Fills `points` up to the limit; where the first wanted point stands that no longer fitted.
    fn page(&self, key: &SeriesKey, series: u64, query: &HistoryQuery, points: &mut Vec<Point>) -> Result<Option<PageToken>, Fault> {
        let (mut first, last) = ChunkKey::all_of(series);
        if let Some(after) = query.after {
            first = ChunkKey { series, sequence: after.sequence, offset: after.offset }.bytes();
        }
        for entry in self.txn.open_table(CHUNKS)?.range::<&[u8; 20]>(&first..=&last)? {
            let (at, bytes) = entry?;
            let at = ChunkKey::read(at.value());
            let (header, blocks) = Header::read(bytes.value()).map_err(|damaged| damaged.of_chunk(key, at.sequence))?;
            if !header.meets(query.from_step, query.to_step) {
                continue;
            }
            let skip =
                query.after.filter(|after| (after.sequence, after.offset) == (at.sequence, at.offset)).map_or(0, |after| after.index);
            let decoded = chunk::points(&header, blocks).map_err(|damaged| damaged.of_chunk(key, at.sequence))?;
            for (index, point) in decoded.iter().enumerate().skip(skip as usize).filter(|(_, point)| query.wants(point)) {
                if points.len() == query.page_points() {
                    return Ok(Some(PageToken { sequence: at.sequence, offset: at.offset, index: index as u32 }));
                }
                points.push(*point);
            }
        }
        Ok(None)
    }

    pub(super) fn points(&self, key: &SeriesKey) -> Result<Vec<Point>, Fault> {
        let mut points = Vec::new();
        if let Some(series) = self.series(key)? {
            let mut query = HistoryQuery::default();
            loop {
                let mut page = Vec::new();
                query.after = self.page(key, series, &query, &mut page)?;
                points.append(&mut page);
                if query.after.is_none() {
                    break;
                }
            }
        }
        Ok(points)
    }

    pub(super) fn state(&self, source: &SeriesSource) -> Result<SourceState, Fault> {
        Ok(SourceState { floor: self.floor(source.shard())?, series: self.latest(source)?, sessions: self.sessions(source)? })
    }

    fn latest(&self, source: &SeriesSource) -> Result<Vec<SeriesSummary>, Fault> {
        let mut summaries = Vec::new();
        let Some(number) = source_number(self.txn, &source.to_string())? else { return Ok(summaries) };
        let (from, to) = (number.to_be_bytes(), (number + 1).to_be_bytes());
        for entry in self.txn.open_table(SERIES)?.range::<&[u8]>(from.as_slice()..to.as_slice())? {
            let (key, row) = entry?;
            let (attempt, rank, name) =
                tables::read_series_key(key.value()).ok_or_else(|| Fault::Damaged("a series key is malformed".to_owned()))?;
            let name = MetricName::parse(name).map_err(|invalid| Fault::Damaged(invalid.to_string()))?;
            let key = SeriesKey { source: source.clone(), attempt: AttemptNumber(attempt), rank: Rank(rank), name };
            summaries.push(SeriesSummary { key, stats: SeriesRow::read(row.value())?.stats });
        }
        Ok(summaries)
    }

    fn sessions(&self, source: &SeriesSource) -> Result<Vec<SessionProgress>, Fault> {
        let mut sessions = Vec::new();
        let Some(number) = source_number(self.txn, &source.to_string())? else { return Ok(sessions) };
        let (mut from, mut to) = ([0; 32], [0xff; 32]);
        from[..8].copy_from_slice(&number.to_be_bytes());
        to[..8].copy_from_slice(&number.to_be_bytes());
        for entry in self.txn.open_table(SESSIONS)?.range::<&[u8; 32]>(&from..=&to)? {
            let (key, row) = entry?;
            let (attempt, rank, session) = tables::read_session_key(key.value());
            let key = SessionKey {
                source: source.clone(),
                attempt: AttemptNumber(attempt),
                rank: Rank(rank),
                session: SessionId::from_bytes(session),
            };
            sessions.push(read_session(key, row.value())?);
        }
        Ok(sessions)
    }
}
