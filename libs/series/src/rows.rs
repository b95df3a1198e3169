//! The rows of series and sessions, as little-endian bytes.

use crate::chunk::Damaged;
use crate::{Point, SeriesStats, SessionKey, SessionProgress};

const SERIES_ROW: u8 = 1;
const SESSION_ROW: u8 = 1;
const SERIES_ROW_BYTES: usize = 2 + 14 * 8;

/// A series: its number and its figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SeriesRow {
    pub(crate) series: u64,
    pub(crate) stats: SeriesStats,
}

impl SeriesRow {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let SeriesStats { latest, count, min, max, nan_count, inf_count, min_step, max_step, min_time_ms, max_time_ms } = self.stats;
        let mut out = Vec::with_capacity(SERIES_ROW_BYTES);
        out.push(SERIES_ROW);
        out.push(u8::from(min.is_some()));
        for number in [self.series, count, nan_count, inf_count] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [min.unwrap_or_default(), max.unwrap_or_default(), latest.value] {
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        for number in [latest.step, latest.time_ms, min_step, max_step, min_time_ms, max_time_ms, 0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Damaged> {
        if bytes.len() != SERIES_ROW_BYTES || bytes[0] != SERIES_ROW {
            return Err(Damaged("a series row is malformed".to_owned()));
        }
        let at = |index: usize| le_u64(&bytes[2 + index * 8..]);
        let float = |index: usize| f64::from_bits(at(index));
        let signed = |index: usize| at(index) as i64;
        let bound = |index: usize| (bytes[1] == 1).then(|| float(index));
        let stats = SeriesStats {
            count: at(1),
            nan_count: at(2),
            inf_count: at(3),
            min: bound(4),
            max: bound(5),
            latest: Point { step: signed(7), time_ms: signed(8), value: float(6) },
            min_step: signed(9),
            max_step: signed(10),
            min_time_ms: signed(11),
            max_time_ms: signed(12),
        };
        Ok(Self { series: at(0), stats })
    }
}

fn le_u64(bytes: &[u8]) -> u64 {
    bytes[..8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

pub(crate) fn session_bytes(progress: &SessionProgress) -> Vec<u8> {
    let mut out = vec![SESSION_ROW];
    out.extend_from_slice(&progress.contiguous.to_le_bytes());
    for (first, last) in &progress.beyond {
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&last.to_le_bytes());
    }
    out
}

pub(crate) fn read_session(key: SessionKey, bytes: &[u8]) -> Result<SessionProgress, Damaged> {
    if bytes.len() < 9 || !(bytes.len() - 9).is_multiple_of(16) || bytes[0] != SESSION_ROW {
        return Err(Damaged(format!("the row of session {} is malformed", key.session)));
    }
    let beyond = bytes[9..].chunks_exact(16).map(|range| (le_u64(range), le_u64(&range[8..]))).collect();
    Ok(SessionProgress { key, contiguous: le_u64(&bytes[1..]), beyond })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeriesSource;
    use footplate_types::{AttemptNumber, Rank, RunId, SessionId};

    #[test]
    fn a_series_row_reads_back_with_every_bit() {
        for values in [vec![1.5, -2.0, f64::NAN], vec![f64::INFINITY], vec![-0.0]] {
            let points: Vec<Point> =
                values.iter().enumerate().map(|(at, value)| Point { step: at as i64 - 1, time_ms: i64::MIN, value: *value }).collect();
            let row = SeriesRow { series: u64::MAX, stats: SeriesStats::of(&points).unwrap() };
            assert_eq!(SeriesRow::read(&row.bytes()).unwrap(), row);
        }
        assert!(SeriesRow::read(&[]).is_err());
        assert!(SeriesRow::read(&[0; SERIES_ROW_BYTES]).is_err());
    }

    #[test]
    fn a_session_row_reads_back_and_a_cut_one_is_noticed() {
        let key = SessionKey {
            source: SeriesSource::Run(RunId::from_bytes([1; 16])),
            attempt: AttemptNumber(1),
            rank: Rank(0),
            session: SessionId::from_bytes([2; 16]),
        };
        let progress = SessionProgress { key: key.clone(), contiguous: 7, beyond: vec![(9, 11), (20, u64::MAX)] };
        let bytes = session_bytes(&progress);
        assert_eq!(read_session(key.clone(), &bytes).unwrap(), progress);
        assert!(read_session(key, &bytes[..bytes.len() - 1]).is_err());
    }
}
