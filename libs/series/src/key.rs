//! What a series is: whose, which try, which worker, which metric; and its points.

use footplate_types::{AttemptNumber, Digest, Invalid, MetricName, NodeName, Rank, RunId};
use std::fmt;

/// How many shards the METRICS stream has.
pub const SHARDS: u8 = 64;

const NODE_PREFIX: &str = "node:";

/// Whose series: a run's, or a node's (samples of its GPUs and its host).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SeriesSource {
    /// A run.
    Run(RunId),
    /// A node, `node:<name>` as text.
    Node(NodeName),
}

impl SeriesSource {
    /// The shard of METRICS that carries this source: the first 8 bytes, big-endian, of SHA-256 of its text, mod [`SHARDS`].
    pub fn shard(&self) -> u8 {
        match self {
            Self::Run(run) => run.shard(),
            Self::Node(_) => {
                let hash = Digest::of(self.to_string().as_bytes());
                let mut head = [0u8; 8];
                head.copy_from_slice(&hash.as_bytes()[..8]);
                (u64::from_be_bytes(head) % u64::from(SHARDS)) as u8
            }
        }
    }

    /// Reads the text form: 32 hex digits for a run, `node:<name>` for a node.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        match text.strip_prefix(NODE_PREFIX) {
            Some(node) => NodeName::parse(node).map(Self::Node),
            None => RunId::parse(text).map(Self::Run),
        }
    }
}

impl fmt::Display for SeriesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => run.fmt(f),
            Self::Node(node) => write!(f, "{NODE_PREFIX}{node}"),
        }
    }
}

impl From<RunId> for SeriesSource {
    fn from(run: RunId) -> Self {
        Self::Run(run)
    }
}

/// The name of one series. Order is per series: no counter is shared between metrics, ranks or attempts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// Whose.
    pub source: SeriesSource,
    /// Which try of the run; 0 for a run without a job and for a node.
    pub attempt: AttemptNumber,
    /// Which worker; 0 for a node.
    pub rank: Rank,
    /// Which metric.
    pub name: MetricName,
}

/// One measured value.
///
/// Two points are the same (`==`) when all three fields are equal bit for bit: a NaN equals the same NaN, 0.0 does not equal -0.0.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The step that the program gave, any 64-bit number.
    pub step: i64,
    /// When the program measured, in milliseconds since the epoch, on its own clock; only ever shown, never used to decide.
    pub time_ms: i64,
    /// The value; NaN and the infinities are kept bit for bit.
    pub value: f64,
}

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        self.step == other.step && self.time_ms == other.time_ms && self.value.to_bits() == other.value.to_bits()
    }
}

impl Eq for Point {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_reads_back_from_its_text() {
        for source in [SeriesSource::Run(RunId::from_bytes([9; 16])), SeriesSource::Node(NodeName::parse("gpu-01").unwrap())] {
            assert_eq!(SeriesSource::parse(&source.to_string()), Ok(source.clone()));
            assert!(source.shard() < SHARDS);
        }
        assert!(SeriesSource::parse("node:Not A Node").is_err());
        assert!(SeriesSource::parse("").is_err());
    }

    #[test]
    fn points_are_compared_bit_for_bit() {
        let point = |value| Point { step: 1, time_ms: 2, value };
        assert_eq!(point(f64::NAN), point(f64::NAN));
        assert_ne!(point(0.0), point(-0.0));
    }
}
