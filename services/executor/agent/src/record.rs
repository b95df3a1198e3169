//! What stands in the spools: one entry's bytes, written by the agent for itself alone.
//!
//! A metric or log entry is `header length u32 LE, header JSON, body`; a report is JSON. The header carries whatever the agent needs to know
//! after a restart (which session was answered how far, which bytes of a stream were taken).

use bytes::{BufMut as _, Bytes, BytesMut};
pub(crate) use footplate_api::metrics::{Batch, Block};
use footplate_events::{
    facts::LogStream,
    messages::{MemberRef, ReportBody},
};
use footplate_series::{Point, codec};
use footplate_types::{Epoch, MetricName, Rank, SessionId};
use prost::Message as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

/// A report before it has its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredReport {
    pub(crate) epoch: Epoch,
    pub(crate) body: ReportBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    /// Where at the local socket it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
}

/// The op that a report came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) of: MemberRef,
    pub(crate) rank: Rank,
    pub(crate) session: SessionId,
    pub(crate) n: u64,
}

impl StoredReport {
    pub(crate) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Header of a metric batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MetricHeader {
    /// The subject it goes to.
    pub(crate) subject: String,
    /// The member it came from; absent for samples of the node.
    pub(crate) of: Option<MemberRef>,
    pub(crate) rank: Rank,
    pub(crate) session: SessionId,
    /// The batch's number in its session.
    pub(crate) batch: u64,
    /// The highest op that it covers.
    pub(crate) op: u64,
}

/// Header of a piece of log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogRecord {
    pub(crate) of: MemberRef,
    pub(crate) rank: Rank,
    pub(crate) stream: LogStream,
    /// Where its first byte stands in the stream.
    pub(crate) at: u64,
}

/// An entry with a header.
pub(crate) fn pack(header: &impl Serialize, body: &[u8]) -> Bytes {
    let header = serde_json::to_vec(header).unwrap_or_default();
    let mut out = BytesMut::with_capacity(4 + header.len() + body.len());
    out.put_u32_le(header.len() as u32);
    out.put_slice(&header);
    out.put_slice(body);
    out.freeze()
}

/// Header and body of an entry.
pub(crate) fn unpack<H: DeserializeOwned>(entry: &Bytes) -> Option<(H, Bytes)> {
    let length = u32::from_le_bytes(entry.get(..4)?.try_into().ok()?) as usize;
    let header = serde_json::from_slice(entry.get(4..4 + length)?).ok()?;
    Some((header, entry.slice(4 + length..)))
}

/// Packs points by series, each series in the order in which it was logged.
pub(crate) fn encode_batch(mut batch: Batch, points: &[(MetricName, Point)]) -> Vec<u8> {
    let mut by_name: BTreeMap<&MetricName, Vec<Point>> = BTreeMap::new();
    for (name, point) in points {
        by_name.entry(name).or_default().push(*point);
    }
    batch.series = by_name.into_iter().map(|(name, points)| Block { name: name.to_string(), points: codec::encode(&points) }).collect();
    batch.encode_to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_batch_holds_every_point_of_every_series_in_order() {
        let name = |text: &str| MetricName::parse(text).unwrap();
        let point = |step| Point { step, time_ms: 7, value: f64::from(step as i32) / 3.0 };
        let points: Vec<_> = (0..10).map(|step| (name(if step % 3 == 0 { "b" } else { "a" }), point(step))).collect();
        let header = Batch { project: "p".to_owned(), n: 4, ..Batch::default() };
        let back = Batch::decode(encode_batch(header, &points).as_slice()).unwrap();
        assert_eq!((back.n, back.series.len()), (4, 2));
        for block in back.series {
            let expected: Vec<Point> = points.iter().filter(|(known, _)| known.as_str() == block.name).map(|(_, point)| *point).collect();
            assert_eq!(codec::decode(&block.points).unwrap(), expected);
        }
    }

    #[test]
    fn an_entry_reads_back_and_a_cut_one_is_told() {
        let entry = pack(&vec![1, 2], b"body");
        assert_eq!(unpack::<Vec<i32>>(&entry), Some((vec![1, 2], Bytes::from_static(b"body"))));
        assert_eq!(unpack::<Vec<i32>>(&entry.slice(..6)), None);
    }
}
