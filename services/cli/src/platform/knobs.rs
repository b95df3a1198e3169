//! Every setting of a service, an agent and `up`: one table, from which the documented list of defaults is made.

use crate::args::ServiceArgs;
use footplate_service::config::{AnyKnob, ByteCount, Config, ConfigErrors, Knob, Sources};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The folder for everything that is stored.
pub const DATA: Knob<String> = Knob::new("data", "", "where everything is stored; empty: footplate in the user's data folder");
/// The public port.
pub const LISTEN: Knob<SocketAddr> = Knob::new("listen", "127.0.0.1:7450", "the one port for gRPC, JSON and pages");
/// Whether others may be served in the clear.
pub const LISTEN_INSECURE: Knob<bool> = Knob::new(
    "listen.insecure",
    "false",
    "whether `listen` may be an address that other machines reach without TLS: for a port behind a proxy, or in a private network",
);
/// The port of this machine's own.
pub const LISTEN_LOCAL: Knob<SocketAddr> = Knob::new(
    "listen.local",
    "127.0.0.1:7454",
    "where `up` with TLS serves this machine's own agent, workers and command line, in the clear",
)
.only(|address| address.ip().is_loopback(), "an address of this machine alone, such as 127.0.0.1:7454");
/// The certificate of the public port.
pub const TLS_CERTIFICATE: Knob<String> = Knob::new(
    "tls.certificate",
    "",
    "file of the certificate for `listen` in PEM, first its own, then those that lead to its authority; empty: no TLS",
);
/// Its key.
pub const TLS_KEY: Knob<String> = Knob::new("tls.key", "", "file of that certificate's key in PEM, not encrypted");
/// How often both are looked at.
pub const TLS_REREAD: Knob<Duration> =
    Knob::new("tls.reread", "1m", "how often both files are read again, so that a renewal needs no restart")
        .only(|every| !every.is_zero(), "longer than 0s");
/// The admin port.
pub const ADMIN: Knob<SocketAddr> = Knob::new("admin.listen", "127.0.0.1:7451", "health, readiness, metrics and the effective settings");
/// The name of this instance.
pub const INSTANCE: Knob<String> = Knob::new("instance", "", "tells instances of a service apart; empty: host name and process id");
/// How long a drain may take.
pub const GRACE: Knob<Duration> = Knob::new("grace", "30s", "how long a stop may take before what still runs is left");

/// The broker's address.
pub const NATS_URL: Knob<String> = Knob::new("nats", "", "nats://host:port of the broker; empty: `up` starts one of its own");
/// The broker's user.
pub const NATS_USER: Knob<String> = Knob::new("nats.user", "", "user at the broker; empty: none");
/// The broker's password.
pub const NATS_PASSWORD: Knob<String> = Knob::new("nats.password", "", "password at the broker").secret();
/// A credentials file.
pub const NATS_CREDENTIALS: Knob<String> = Knob::new("nats.credentials", "", "credentials file (JWT and seed) for the broker; empty: none");
/// The operator's keys.
pub const NATS_OPERATOR: Knob<String> = Knob::new(
    "nats.operator",
    "",
    "folder of the operator's keys, for the registry: it then issues credentials of the broker; empty: it issues none",
);
/// A project's mirror.
pub const MIRROR_BYTES: Knob<ByteCount> = Knob::new(
    "subscriptions.bytes",
    "64MiB",
    "what the copy of one project's events may take at the broker, for those who subscribe to them",
);
/// Whom the broker's certificate leads to.
pub const NATS_CA: Knob<String> = Knob::new(
    "nats.ca",
    "",
    "file of the authorities in PEM that the broker's certificate may lead to, besides this machine's; empty: these alone",
);
/// Our certificate.
pub const NATS_CERTIFICATE: Knob<String> =
    Knob::new("nats.certificate", "", "file of our own certificate in PEM, for a broker that asks for one; empty: none");
/// Its key.
pub const NATS_KEY: Knob<String> = Knob::new("nats.key", "", "file of that certificate's key in PEM");
/// Replicas of each stream.
pub const NATS_REPLICAS: Knob<usize> =
    Knob::new("nats.replicas", "1", "1 on one server, 3 on a cluster").only(|replicas| matches!(replicas, 1 | 3 | 5), "1, 3 or 5");
/// The disk that the streams share.
pub const NATS_DISK: Knob<ByteCount> =
    Knob::new("nats.disk", "8GiB", "what all streams together may take; it must be free on the broker's disk");
/// The monitoring address of the broker.
pub const NATS_MONITOR: Knob<String> = Knob::new(
    "nats.monitor",
    "",
    "host:port of the broker's monitoring, for `doctor` and to learn that its disk is full; empty: not asked",
);
/// The port of the own broker.
pub const NATS_PORT: Knob<u16> = Knob::new("nats.port", "7452", "loopback port of the broker that `up` starts");
/// The monitoring port of the own broker.
pub const NATS_MONITOR_PORT: Knob<u16> = Knob::new("nats.monitor-port", "7453", "loopback port of that broker's monitoring");
/// The program of the own broker.
pub const NATS_PROGRAM: Knob<String> =
    Knob::new("nats.program", "", "nats-server to start; empty: beside this program, on the path, in the data folder's tools");

/// The lease of a service's leader.
pub const LEADER_LEASE: Knob<Duration> =
    Knob::new("lease.leader", "10s", "after how long without a sign of life another instance leads; `up` uses 2s unless set");
/// The lease of a node.
pub const NODE_LEASE: Knob<Duration> =
    Knob::new("lease.node", "5m", "how long work goes on without the broker before the node itself ends it; 0s: without end");
/// What is waited beyond it.
pub const NODE_MARGIN: Knob<Duration> =
    Knob::new("lease.margin", "15s", "what is waited beyond a node's lease and kill time before it is fenced");

/// How long a read waits for the view.
pub const READ_WAIT: Knob<Duration> =
    Knob::new("read.wait", "10s", "the longest a read waits for the sequence it asks for, and a write for its answer");
/// How long a gang may take to be ready.
pub const READY_WITHIN: Knob<Duration> =
    Knob::new("scheduler.ready-within", "10m", "how long after its placement a whole gang must be ready");
/// How long a seal waits.
pub const SEAL_WITHIN: Knob<Duration> =
    Knob::new("tracker.seal-within", "60s", "how long after its end a run's seal waits for what is missing");

/// The node's name.
pub const NODE_NAME: Knob<String> = Knob::new("agent.node", "", "name of this node; empty: its host name as a slug");
/// The node's slots.
pub const NODE_SLOTS: Knob<u32> = Knob::new("agent.slots", "0", "CPU slots of a node without GPUs; 0: one a logical CPU");
/// The address other nodes reach it by.
pub const NODE_ADDRESS: Knob<String> = Knob::new("agent.address", "127.0.0.1", "host name or address by which other nodes reach this one");
/// A declared inventory.
pub const NODE_INVENTORY: Knob<String> =
    Knob::new("agent.inventory", "", "TOML file that declares what this node has, instead of looking; empty: look");
/// The agent's beat.
pub const AGENT_BEAT: Knob<Duration> =
    Knob::new("agent.beat", "10s", "how often a node shows that it lives; at most a third of its lease is used");
/// How long shims take to kill.
pub const AGENT_KILL: Knob<Duration> =
    Knob::new("agent.kill", "10s", "how long ending a process tree takes at most once its lease has run out");
/// When spooled entries are sent again.
pub const AGENT_RESEND: Knob<Duration> =
    Knob::new("agent.resend", "30s", "after how long without news of what was stored an agent sends again");
/// The bound of a spool.
pub const AGENT_SPOOL: Knob<ByteCount> =
    Knob::new("agent.spool", "4GiB", "the most that each of the agent's spools may take while the platform is away");
/// The pool.
pub const AGENT_POOL: Knob<String> = Knob::new("agent.pool", "", "pool this node belongs to; empty: none");
/// The rack.
pub const AGENT_RACK: Knob<String> =
    Knob::new("agent.rack", "", "rack this node stands in, for gangs whose nodes are to be near each other; empty: not known");
/// Shares.
pub const AGENT_SHARE_GPUS: Knob<bool> = Knob::new(
    "agent.share_gpus",
    "false",
    "let jobs that ask a share of a GPU stand together on one whole GPU of this node (an inventory says it itself: share_gpus); nothing but an MPS daemon keeps them to their shares",
);
/// Labels.
pub const AGENT_LABELS: Knob<String> = Knob::new(
    "agent.labels",
    "",
    "labels of this node, as key=value with commas between them, for placement.labels of a job; empty: those that are found alone",
);
/// Taints.
pub const AGENT_TAINTS: Knob<String> = Knob::new(
    "agent.taints",
    "",
    "what keeps off this node jobs that do not tolerate it (placement.tolerations), as key=value or key with commas between them; empty: nothing",
);
/// Where the agent reaches the platform's API.
pub const AGENT_API: Knob<String> =
    Knob::new("agent.api", "127.0.0.1:7450", "address of the platform, host:port or a URL, where the agent gets and puts bytes");
/// Whom the platform's certificate leads to.
pub const AGENT_CA: Knob<String> = Knob::new(
    "agent.ca",
    "",
    "file of the authorities in PEM that alone are trusted where `agent.api` is https://, by workers as well; empty: this machine's",
);
/// The agent's token.
pub const AGENT_TOKEN: Knob<String> = Knob::new("agent.token", "", "token with which the agent gets and puts bytes").secret();
/// The folder of objects.
pub const OBJECTS: Knob<String> =
    Knob::new("objects", "", "folder of artifacts, checkpoints, snapshots and logs where no bucket is named; empty: in the data folder");
/// How often views are kept.
pub const SNAPSHOTS_EVERY: Knob<Duration> = Knob::new(
    "snapshots.every",
    "1m",
    "how often a service keeps its view in the object store, so that a start reads only what came after",
);
/// How many events stay out of the archive.
pub const ARCHIVE_KEEP_EVENTS: Knob<u64> = Knob::new(
    "archive.keep-events",
    "1000000",
    "how many of the ledger's newest events stand in the broker alone; what is older is written into segments in the object store",
);
/// The size of a segment.
pub const ARCHIVE_SEGMENT: Knob<ByteCount> =
    Knob::new("archive.segment", "16MiB", "how much of the ledger one segment holds, before it is compressed")
        .only(|size| (1 << 10..=16 << 20).contains(&size.0), "1KiB to 16MiB");
/// How often the ledger is archived.
pub const ARCHIVE_EVERY: Knob<Duration> = Knob::new("archive.every", "1m", "how often it is looked whether a segment can be written");
/// How long ended aggregates stay.
pub const LEDGER_KEEP: Knob<Duration> = Knob::new(
    "ledger.keep",
    "0s",
    "how long after its last event a sealed run leaves the broker, with its job, attempts and trial, once all of it stands in segments; 0s: never",
);
/// How long it is announced.
pub const ARCHIVE_ANNOUNCE: Knob<Duration> = Knob::new(
    "archive.announce",
    "5m",
    "how long it is written down what is about to leave the broker before it does; on less than 3m another process may miss it",
);
/// The series store.
pub const SERIES: Knob<String> = Knob::new(
    "series",
    "",
    "scylla://host:port/keyspace of the series store in ScyllaDB or Apache Cassandra; empty: in the data folder, for one tracker",
);
/// The bucket of objects.
pub const BLOBS: Knob<String> = Knob::new(
    "blobs",
    "",
    "s3://bucket/prefix of artifacts, checkpoints, snapshots and logs, for services and agents alike; empty: the folder `objects`, which agents \
     reach through the tracker",
);
/// Where the bucket's store is.
pub const BLOBS_ENDPOINT: Knob<String> =
    Knob::new("blobs.endpoint", "", "https://host:port of the object store; empty: what AWS_ENDPOINT_URL says, else AWS itself");
/// The bucket's region.
pub const BLOBS_REGION: Knob<String> = Knob::new("blobs.region", "", "region of the bucket; empty: what AWS_REGION says, else us-east-1");
/// Whether the object store may be spoken to without TLS.
pub const BLOBS_ALLOW_HTTP: Knob<bool> =
    Knob::new("blobs.allow-http", "false", "whether the endpoint may be http://: keys are safe on it, content is not");
/// The key of the bucket.
pub const BLOBS_ACCESS_KEY: Knob<String> = Knob::new(
    "blobs.access-key",
    "",
    "access key of the bucket; empty: what AWS_ACCESS_KEY_ID says, a web identity or the role of the machine",
)
.secret();
/// The secret of that key.
pub const BLOBS_SECRET_KEY: Knob<String> = Knob::new("blobs.secret-key", "", "the secret of that key").secret();
/// How long a request to the object store is tried again.
pub const BLOBS_RETRY: Knob<Duration> =
    Knob::new("blobs.retry", "20s", "how long one request to the object store is tried again while it is away or overloaded");
/// The token of the first admin.
pub const BOOTSTRAP: Knob<String> = Knob::new(
    "bootstrap",
    "",
    "file that vouches for the first admin, service:bootstrap, and for nodes: a line each, a token and whose it is; read when the registry starts",
);

/// What the secrets of webhooks are derived from.
pub const WEBHOOKS_KEY: Knob<String> = Knob::new(
    "webhooks.key",
    "",
    "what the secrets of webhooks are derived from, the same for all trackers; empty: the file webhook-key in the data folder, made at the first start",
)
.secret()
.only(|key| key.is_empty() || key.len() >= 32, "32 or more characters, as `openssl rand -hex 32` gives");
/// What webhooks may reach although it is inside.
pub const WEBHOOKS_ALLOW_INSIDE: Knob<String> = Knob::new(
    "webhooks.allow-inside",
    "",
    "blocks of addresses inside that webhooks may reach all the same, such as 10.1.0.0/16,fd00::/8; empty: none",
);
/// How long webhooks try.
pub const WEBHOOKS_GIVE_UP: Knob<Duration> =
    Knob::new("webhooks.give-up", "24h", "how long a webhook tries to deliver one event before it is paused");

/// All of them.
pub const ALL: &[&dyn AnyKnob] = &[
    &DATA,
    &LISTEN,
    &LISTEN_INSECURE,
    &LISTEN_LOCAL,
    &TLS_CERTIFICATE,
    &TLS_KEY,
    &TLS_REREAD,
    &ADMIN,
    &INSTANCE,
    &GRACE,
    &NATS_URL,
    &NATS_USER,
    &NATS_PASSWORD,
    &NATS_CREDENTIALS,
    &NATS_OPERATOR,
    &MIRROR_BYTES,
    &NATS_CA,
    &NATS_CERTIFICATE,
    &NATS_KEY,
    &NATS_REPLICAS,
    &NATS_DISK,
    &NATS_MONITOR,
    &NATS_PORT,
    &NATS_MONITOR_PORT,
    &NATS_PROGRAM,
    &LEADER_LEASE,
    &NODE_LEASE,
    &NODE_MARGIN,
    &READ_WAIT,
    &READY_WITHIN,
    &SEAL_WITHIN,
    &NODE_NAME,
    &NODE_SLOTS,
    &NODE_ADDRESS,
    &NODE_INVENTORY,
    &AGENT_BEAT,
    &AGENT_KILL,
    &AGENT_RESEND,
    &AGENT_SPOOL,
    &AGENT_POOL,
    &AGENT_RACK,
    &AGENT_SHARE_GPUS,
    &AGENT_LABELS,
    &AGENT_TAINTS,
    &AGENT_API,
    &AGENT_CA,
    &AGENT_TOKEN,
    &OBJECTS,
    &SNAPSHOTS_EVERY,
    &ARCHIVE_KEEP_EVENTS,
    &ARCHIVE_SEGMENT,
    &ARCHIVE_EVERY,
    &LEDGER_KEEP,
    &ARCHIVE_ANNOUNCE,
    &SERIES,
    &BLOBS,
    &BLOBS_ENDPOINT,
    &BLOBS_REGION,
    &BLOBS_ALLOW_HTTP,
    &BLOBS_ACCESS_KEY,
    &BLOBS_SECRET_KEY,
    &BLOBS_RETRY,
    &BOOTSTRAP,
    &WEBHOOKS_KEY,
    &WEBHOOKS_ALLOW_INSIDE,
    &WEBHOOKS_GIVE_UP,
];

/// What a shell has for its own calls: whose they are, and where to. They are no settings of a service, and no slips of any.
const OF_CALLS: &[&str] = &["FOOTPLATE_ADDR", "FOOTPLATE_PROJECT", "FOOTPLATE_TOKEN", "FOOTPLATE_CONTEXT", "FOOTPLATE_CA"];

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// One or more are wrong.
    #[error("{0}")]
    Wrong(#[from] ConfigErrors),
    /// A `--set` that is no pair.
    #[error("--set {0:?} is not allowed; allowed: KEY=VALUE")]
    NoPair(String),
    /// There is no home to store in.
    #[error("no folder to store in: neither --data nor HOME is set; give --data FOLDER")]
    NoHome,
}

/// Puts defaults, file, environment and flags together.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load(args: &ServiceArgs, more: &[(&str, String)]) -> Result<Config, SettingsError> {
    let mut sources = Sources::default();
    if let Some(file) = &args.config {
        sources = sources.file(file);
    }
    sources = sources.environment().not_ours(OF_CALLS);
    for setting in &args.settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| SettingsError::NoPair(setting.clone()))?;
        sources = sources.flag(key, value);
    }
    if let Some(nats) = &args.nats {
        sources = sources.flag(footplate_service::config::AnyKnob::key(&NATS_URL), nats);
    }
    if let Some(blobs) = &args.blobs {
        sources = sources.flag(footplate_service::config::AnyKnob::key(&BLOBS), blobs);
    }
    if let Some(data) = &args.data {
        sources = sources.flag(footplate_service::config::AnyKnob::key(&DATA), data.display().to_string());
    }
    for (key, value) in more {
        sources = sources.flag(*key, value);
    }
    Ok(sources.load(ALL)?)
}

/// The data folder that the settings name, or the user's own.
///
/// # Errors
/// When neither is known.
pub fn data_folder(config: &Config) -> Result<PathBuf, SettingsError> {
    let set = config.get(&DATA);
    if !set.is_empty() {
        return Ok(PathBuf::from(set));
    }
    let base = std::env::var_os("XDG_DATA_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    base.map(|base| base.join("footplate")).ok_or(SettingsError::NoHome)
}

/// The name of this instance.
pub fn instance(config: &Config) -> String {
    let set = config.get(&INSTANCE);
    if set.is_empty() { format!("{}/{}", host_name(), std::process::id()) } else { set }
}

/// The machine's host name.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_events::facts::{JobSpec, RetryPolicy, StopPolicy, TEXT_MAX};
    use footplate_service::config::knob_table;
    use footplate_types::{ByteSize, Millis};

    fn defaults() -> String {
        let retry = RetryPolicy::default();
        let rows = [
            ("project, queue, experiment of a job", "`default`".to_owned(), "where a job file names none"),
            ("`stop.grace`", StopPolicy::default().grace.to_string(), "from the stop signal to KILL"),
            ("`stop.signal`", "TERM".to_owned(), "the signal that asks a program to end"),
            ("retries: user code", retry.user_code.to_string(), "after the program failed"),
            ("retries: infrastructure", retry.infrastructure.to_string(), "after it could not be prepared or started"),
            ("retries: lost", retry.lost.to_string(), "after a node was lost"),
            ("retries: preempted", retry.preempted.to_string(), "after a preemption or a drain"),
            ("retries: out of memory", retry.out_of_memory.to_string(), "it would only run out again; `oom` in retry.on grants some"),
            ("retries: retryable exit codes and 75", retry.retryable.to_string(), "75 says: checkpointed, requeue me"),
            ("back-off", format!("{}, doubling up to {}", retry.backoff, retry.backoff_max), "the wait before a retry"),
            ("priority", "0".to_owned(), "inside its queue a larger one goes first; from -1,000,000 to 1,000,000"),
            ("nodes of a gang", format!("at most {}", JobSpec::NODES_MAX), "limit"),
            ("workers of a node", format!("at most {}", JobSpec::WORKERS_PER_NODE_MAX), "limit"),
            ("workers of a gang", format!("at most {}", JobSpec::WORKERS_MAX), "limit"),
            ("memory or disk of a node, memory of a GPU", format!("at most {} asked", ByteSize(JobSpec::BYTES_MAX)), "no machine has it"),
            ("grace, warning ahead of a stop, back-off", format!("at most {}", Millis(JobSpec::STOP_MAX_MS)), "who must leave, leaves"),
            ("all texts of a job together", format!("at most {}", ByteSize(JobSpec::TEXT_BYTES_MAX)), "they stand in one event"),
            ("an event", format!("at most {}", ByteSize(footplate_events::PAYLOAD_MAX as u64)), "longer things are documents"),
            ("a human text in an event", format!("at most {TEXT_MAX} characters"), "longer ones are documents"),
            ("an atomic batch", format!("at most {} messages", footplate_eventlog::port::BATCH_MAX), "what one fsync carries"),
            ("reports that wait in a service", format!("at most {}", footplate_eventlog::inbox::INBOX_MAX), "then the stream waits"),
        ];
        let mut text = String::from(
            "# Defaults and limits\n\nMade from the code by a test (`UPDATE_GOLDEN=1 cargo test -p footplate-cli knobs`).\n\n\
             ## Ports\n\n| port | for | setting |\n|---|---|---|\n| 7450 | gRPC, JSON and pages | `listen` |\n| 7451 | admin: health, metrics, settings | \
             `admin.listen` |\n| 7452 | the broker that `up` starts | `nats.port` |\n| 7453 | its monitoring | `nats.monitor-port` |\n| 7454 | `up` with TLS: \
             this machine's own | `listen.local` |\n\n\
             ## Jobs and limits\n\n| what | value | why |\n|---|---|---|\n",
        );
        for (what, value, why) in rows {
            text.push_str(&format!("| {what} | {value} | {why} |\n"));
        }
        text.push_str(
            "\n## Settings\n\nOf `up`, `serve` and `agent`: a TOML file (`--config`), then the environment, then `--set KEY=VALUE`; the later wins. \
             An unknown key is refused.\n\n",
        );
        text.push_str(&knob_table(ALL));
        text
    }

    #[test]
    fn the_documented_defaults_are_those_of_the_code() {
        footplate_testkit::golden(footplate_testkit::repository_root().join("docs/reference/defaults.md"), &defaults());
    }

    #[test]
    fn a_shell_that_has_a_token_may_ask_the_doctor() {
        use clap::CommandFactory as _;
        let of_calls = crate::args::Cli::command();
        let of_calls: Vec<String> =
            of_calls.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned())).collect();
        assert_eq!(of_calls, OF_CALLS);
        let given = OF_CALLS.iter().map(|name| ((*name).to_owned(), "x".to_owned()));
        Sources::default().variables(given).not_ours(OF_CALLS).load(ALL).unwrap();
    }

    #[test]
    fn an_unknown_setting_is_refused_with_the_nearest_one() {
        let sources = Sources::default().flag("lease.nodes", "5m");
        let refused = sources.load(ALL).unwrap_err().to_string();
        assert!(refused.contains("lease.node"), "{refused}");
    }
}
