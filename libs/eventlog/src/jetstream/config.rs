//! How a NATS JetStream is reached, and how much of its disk each stream may take.

use crate::port::StreamName;
use std::path::PathBuf;
use std::time::Duration;

/// How the broker is reached and what its streams are to be.
#[derive(Clone, Debug)]
pub struct JetStreamConfig {
    /// The servers, `nats://host:port` or `tls://host:port`.
    pub servers: Vec<String>,
    /// The connection's name, as the broker shows it.
    pub name: String,
    /// Who we are to the broker.
    pub credentials: Credentials,
    /// A certificate authority besides the system's, for TLS.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and key, for TLS with client certificates.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The prefix of reply subjects, where the broker's permissions demand an own one.
    pub inbox_prefix: Option<String>,
    /// Replicas of every stream: 1 on one server, 3 on a cluster.
    pub replicas: usize,
    /// The most bytes of each stream.
    pub bytes: StreamBytes,
    /// Whether the streams are made and mended at the start (services), or taken as they are (agents).
    pub manage_streams: bool,
    /// Whether the last message of a subject is read from any replica instead of the leader: where credentials may read single subjects
    /// only (agents, [`super::Permissions::of_node`]). It may be stale on a cluster, which costs such a reader a try, never a wrong act.
    pub direct_reads: bool,
    /// `host:port` of the broker's monitoring listener: for [`super::JetStreamBroker::probe`], and to learn that a silent one has no room.
    pub monitor: Option<String>,
    /// How long the first connection may take.
    pub connect_within: Duration,
}

/// Who we are to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody in particular.
    #[default]
    None,
    /// A credentials file (JWT and seed).
    File(PathBuf),
    /// A user and a password.
    User {
        /// The user.
        name: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

/// The most bytes of each stream. Their sum must stay below what the broker may use: a full disk refuses even a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBytes {
    /// LEDGER.
    pub ledger: u64,
    /// METRICS.
    pub metrics: u64,
    /// REPORTS.
    pub reports: u64,
    /// LOGS.
    pub logs: u64,
    /// SETTLED, ASSIGNMENTS and BEATS, each.
    pub small: u64,
}

impl StreamBytes {
    /// A division of `total` bytes of disk: a tenth stays free, LEDGER gets the largest share, so that metrics and logs can never take its
    /// room.
    pub const fn of_disk(total: u64) -> Self {
        let part = total / 100;
        Self { ledger: part * 35, metrics: part * 25, reports: part * 8, logs: part * 19, small: part }
    }

    /// What a stream may take.
    pub const fn of(&self, stream: StreamName) -> u64 {
        match stream {
            StreamName::Ledger => self.ledger,
            StreamName::Metrics => self.metrics,
            StreamName::Reports => self.reports,
            StreamName::Logs => self.logs,
            StreamName::Settled | StreamName::Assignments | StreamName::Beats => self.small,
        }
    }

    /// Their sum.
    pub const fn sum(&self) -> u64 {
        self.ledger + self.metrics + self.reports + self.logs + 3 * self.small
    }
}

/// The disk that is divided when nothing is said.
const DISK_DEFAULT: u64 = 8 << 30;

impl JetStreamConfig {
    /// One server without credentials; a division of 8 GiB.
    pub fn single(server: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            servers: vec![server.into()],
            name: name.into(),
            credentials: Credentials::None,
            ca_file: None,
            client_certificate: None,
            inbox_prefix: None,
            replicas: 1,
            bytes: StreamBytes::of_disk(DISK_DEFAULT),
            manage_streams: true,
            direct_reads: false,
            monitor: None,
            connect_within: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_leave_a_reserve_and_the_ledger_has_the_largest() {
        let bytes = StreamBytes::of_disk(10 << 30);
        assert!(bytes.sum() <= (10u64 << 30) * 9 / 10);
        assert!(StreamName::ALL.into_iter().all(|stream| bytes.of(stream) <= bytes.ledger));
    }
}
