//! Log chunks: the payload is the raw bytes, everything else stands in headers, so that `nats sub` shows the log itself.

use crate::facts::LogStream;
use footplate_types::{AttemptNumber, MemberIndex, ProjectName, Rank, RunId, SpoolId};

/// The headers of one chunk of one stream of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The agent's spool.
    pub spool: SpoolId,
    /// The chunk's offset in the spool, from 1; repeated offsets are dropped.
    pub offset: u64,
    /// The lowest offset that the agent still keeps; all below it were settled once.
    pub kept_from: u64,
    /// The tenant.
    pub project: ProjectName,
    /// The run.
    pub run: RunId,
    /// Which try.
    pub attempt: AttemptNumber,
    /// Which member.
    pub member: MemberIndex,
    /// Which worker; the member's first rank for set-up and platform.
    pub rank: Rank,
    /// Which stream.
    pub stream: LogStream,
    /// Where the chunk's first byte stands in its stream.
    pub at: u64,
}

impl LogStream {
    /// The token of headers, file names and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Setup => "setup",
            Self::Platform => "platform",
        }
    }

    /// Reads the token.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Stdout, Self::Stderr, Self::Setup, Self::Platform].into_iter().find(|stream| stream.as_str() == text)
    }
}

impl LogHeader {
    /// As header lines.
    pub fn to_headers(&self) -> Vec<(&'static str, String)> {
        vec![
            ("fp-spool", self.spool.to_string()),
            ("fp-offset", self.offset.to_string()),
            ("fp-kept-from", self.kept_from.to_string()),
            ("fp-project", self.project.to_string()),
            ("fp-run", self.run.to_string()),
            ("fp-attempt", self.attempt.to_string()),
            ("fp-member", self.member.to_string()),
            ("fp-rank", self.rank.to_string()),
            ("fp-stream", self.stream.as_str().to_owned()),
            ("fp-at", self.at.to_string()),
        ]
    }

    /// Reads header lines; `None` when one is missing or unreadable.
    pub fn from_headers<N: AsRef<str>>(headers: &[(N, String)]) -> Option<Self> {
        let get = |name: &str| headers.iter().find(|(known, _)| known.as_ref() == name).map(|(_, value)| value.as_str());
        Some(Self {
            spool: SpoolId::parse(get("fp-spool")?).ok()?,
            offset: get("fp-offset")?.parse().ok()?,
            kept_from: get("fp-kept-from")?.parse().ok()?,
            project: ProjectName::parse(get("fp-project")?).ok()?,
            run: RunId::parse(get("fp-run")?).ok()?,
            attempt: AttemptNumber(get("fp-attempt")?.parse().ok()?),
            member: MemberIndex(get("fp-member")?.parse().ok()?),
            rank: Rank(get("fp-rank")?.parse().ok()?),
            stream: LogStream::parse(get("fp-stream")?)?,
            at: get("fp-at")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_log_header_reads_back_and_a_missing_line_is_told() {
        let header = LogHeader {
            spool: SpoolId::from_bytes([1; 16]),
            offset: 9,
            kept_from: 3,
            project: ProjectName::parse("vision").unwrap(),
            run: RunId::from_bytes([2; 16]),
            attempt: AttemptNumber(1),
            member: MemberIndex(0),
            rank: Rank(3),
            stream: LogStream::Stderr,
            at: 4096,
        };
        let mut lines = header.to_headers();
        assert_eq!(LogHeader::from_headers(&lines), Some(header));
        lines.pop();
        assert_eq!(LogHeader::from_headers(&lines), None);
    }
}
