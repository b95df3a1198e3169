//! Looking whether the broker is set as the protocol demands (for `doctor` and for readiness).

use super::Core;
use super::api::{self, ApiError};
use super::streams;
use crate::port::{ReadError, StreamName};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long the monitoring listener may take.
const MONITOR_WITHIN: Duration = Duration::from_secs(2);
/// What the system calls a disk that takes no more, as nats-server repeats it.
const NO_ROOM: [&str; 2] = ["no space left on device", "disk quota exceeded"];
/// The most bytes that are read from the monitoring listener.
const MONITOR_BYTES: u64 = 4 << 20;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The server's version.
    pub server_version: String,
    /// Every stream.
    pub streams: Vec<StreamProbe>,
    /// Whether an acknowledged message is on the disk.
    pub sync: SyncProbe,
    /// Bytes that the streams use.
    pub used_bytes: u64,
    /// Bytes that the streams may use together, where the broker tells.
    pub limit_bytes: Option<u64>,
}

/// What was found of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamProbe {
    /// Which.
    pub stream: StreamName,
    /// Where it differs from what it must be; a stream that is missing says so.
    pub differences: Vec<String>,
    /// Bytes that it uses.
    pub bytes: u64,
    /// Bytes that it may use.
    pub bytes_max: u64,
}

/// Whether the broker syncs before it acknowledges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncProbe {
    /// It is set to sync always.
    Always,
    /// It is set otherwise: what it acknowledged in this many seconds may be lost with the power.
    Interval {
        /// The interval.
        seconds: u64,
    },
    /// It does not tell (no monitoring listener is named, or it does not answer).
    Untold {
        /// Why.
        reason: String,
    },
}

impl Probe {
    /// Whether everything that could be looked at is as it must be.
    pub fn is_sound(&self) -> bool {
        !matches!(self.sync, SyncProbe::Interval { .. }) && self.streams.iter().all(|stream| stream.differences.is_empty())
    }
}

pub(super) async fn probe(core: &Core) -> Result<Probe, ReadError> {
    let mut found = Vec::new();
    for stream in StreamName::ALL {
        found.push(of_stream(core, stream).await?);
    }
    let account = api::ask(&core.client, "INFO", &Value::Null).await?;
    let limit = account["limits"]["max_storage"].as_i64().and_then(|limit| u64::try_from(limit).ok());
    let (sync, server_limit) = match monitored(core, "varz").await {
        Ok(varz) => (sync_of(&varz), varz["jetstream"]["config"]["max_storage"].as_u64()),
        Err(reason) => (SyncProbe::Untold { reason }, None),
    };
    Ok(Probe {
        server_version: core.client.server_info().version,
        streams: found,
        sync,
        used_bytes: account["storage"].as_u64().unwrap_or(0),
        limit_bytes: limit.or(server_limit),
    })
}

async fn of_stream(core: &Core, stream: StreamName) -> Result<StreamProbe, ReadError> {
    let bytes_max = core.config.bytes.of(stream);
    match streams::info(&core.client, stream).await {
        Ok(info) => {
            let differences = streams::differences(&streams::wanted(stream, &core.config), &info["config"]);
            let bytes = info["state"]["bytes"].as_u64().unwrap_or(0);
            Ok(StreamProbe { stream, differences, bytes, bytes_max: info["config"]["max_bytes"].as_u64().unwrap_or(bytes_max) })
        }
        Err(ApiError::Refused(refusal)) => Ok(StreamProbe { stream, differences: vec![refusal.description], bytes: 0, bytes_max }),
        Err(away @ ApiError::Away(_)) => Err(away.into()),
    }
}

fn sync_of(varz: &Value) -> SyncProbe {
    let config = &varz["jetstream"]["config"];
    if config["sync_always"].as_bool() == Some(true) {
        return SyncProbe::Always;
    }
    match config["sync_interval"].as_u64() {
        Some(nanos) => SyncProbe::Interval { seconds: nanos / 1_000_000_000 },
        None => SyncProbe::Untold { reason: "the monitoring listener does not tell".to_owned() },
    }
}

/// Why the server cannot write, when it says that its disk is full. After a failed write nats-server answers no publication of the stream, and
/// tells why on its monitoring listener alone.
pub(super) async fn no_room(core: &Core) -> Option<String> {
    let health = monitored(core, "healthz").await.ok()?;
    health["error"].as_str().filter(|error| NO_ROOM.iter().any(|words| error.contains(words))).map(str::to_owned)
}

async fn monitored(core: &Core, page: &str) -> Result<Value, String> {
    let Some(address) = &core.config.monitor else { return Err("no monitoring listener is named".to_owned()) };
    let asked = async {
        let mut connection = tokio::net::TcpStream::connect(address).await?;
        connection.write_all(format!("GET /{page} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        connection.take(MONITOR_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = match tokio::time::timeout(MONITOR_WITHIN, asked).await {
        Ok(answer) => answer.map_err(|error| format!("monitoring listener {address}: {error}"))?,
        Err(_) => return Err(format!("monitoring listener {address} does not answer")),
    };
    let at = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or("an unreadable answer")?;
    serde_json::from_slice(&answer[at + 4..]).map_err(|error| error.to_string())
}
