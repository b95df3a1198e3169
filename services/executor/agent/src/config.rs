//! What an agent is told at its start, and why it may refuse to start or have to end.

use crate::{aside::AsideLimits, node::ShapeSource, prepare::UnpackLimits, socket::IntakeLimits, spool::SpoolError};
use footplate_types::NodeName;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    path::PathBuf,
    time::Duration,
};

/// What to do with the members when the agent is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnShutdown {
    /// They go on under their shims; the next agent adopts them.
    LeaveMembers,
    /// Each is stopped with its own grace and reported as shut down, so that it is requeued. Waits at most this long.
    StopMembers(Duration),
}

/// Processes, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Members are processes under shims.
    Real,
    /// Members exist on paper: they are ready at once, run for this long and exit 0. For load tests with declared nodes.
    Simulated {
        /// How long a member runs.
        run_for: Duration,
    },
}

/// Bytes that each spool may hold.
#[derive(Clone, Copy, Debug)]
pub struct SpoolSizes {
    /// Reports, for each of the three services.
    pub reports: u64,
    /// Log chunks.
    pub logs: u64,
    /// Metric batches.
    pub metrics: u64,
}

impl Default for SpoolSizes {
    fn default() -> Self {
        Self { reports: 256 << 20, logs: 2 << 30, metrics: 2 << 30 }
    }
}

/// Every wait of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// How often the assignment is read besides being listened for; each time up to a fifth more, so that nodes spread.
    pub assignment_every: Duration,
    /// How often SETTLED is asked while something is unsettled.
    pub settled_every: Duration,
    /// After how long a standstill of SETTLED entries are sent again; doubles while it stands still.
    pub resend_after: Duration,
    /// How often a member's log files and its shim are looked at.
    pub look_every: Duration,
    /// How often host and GPUs are sampled; zero: never.
    pub sample_every: Duration,
    /// How long a dead member's last words may take to come out of the socket and the log files.
    pub drain_patience: Duration,
    /// How long a member's last words may wait for room in a full spool before its end is reported without them.
    pub room_patience: Duration,
    /// How long an ended member's files may take to be stored before its end is reported without them.
    pub upload_patience: Duration,
    /// How long the shims need at most to empty a tree after the lease has run out.
    pub kill: Duration,
    /// From TERM to KILL for workers whose peer has failed.
    pub peer_grace: Duration,
    /// From TERM to KILL for what outlives its worker.
    pub leftover_grace: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            assignment_every: Duration::from_secs(10),
            settled_every: Duration::from_secs(2),
            resend_after: Duration::from_secs(30),
            look_every: Duration::from_millis(50),
            sample_every: Duration::from_secs(10),
            drain_patience: Duration::from_secs(60),
            room_patience: Duration::from_secs(600),
            upload_patience: Duration::from_secs(600),
            kill: Duration::from_secs(10),
            peer_grace: Duration::from_secs(10),
            leftover_grace: Duration::from_secs(5),
        }
    }
}

/// Settings of one agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The node's name.
    pub node: NodeName,
    /// The agent's own folder: state, spools, members. One agent a folder.
    pub work: PathBuf,
    /// Where other nodes reach this one (`MASTER_ADDR` when rank 0 stands here).
    pub address: String,
    /// What the node offers.
    pub shape: ShapeSource,
    /// Length of the lease; `None` = it has no end (one machine: only a new boot loses its members).
    pub lease: Option<Duration>,
    /// How often the node beats; `None` = a tenth of the lease, or ten seconds.
    pub beat_every: Option<Duration>,
    /// Program and leading arguments that start a shim; the member's folder is added. By default this very program with `shim`.
    pub shim_command: Vec<OsString>,
    /// The platform's address, told to workers for the read side.
    pub platform_address: Option<String>,
    /// Variables that every worker gets unless its job says otherwise.
    pub worker_defaults: BTreeMap<String, String>,
    /// A folder that all agents of this machine share, for the locks of rendezvous ports.
    pub port_locks: PathBuf,
    /// What to do with members at the end.
    pub on_shutdown: OnShutdown,
    /// Processes, or none.
    pub mode: Mode,
    /// Bounds of the spools.
    pub spools: SpoolSizes,
    /// Whether appends and the state wait for the disk; `false` only for simulated nodes.
    pub sync: bool,
    /// Every wait.
    pub timings: Timings,
    /// Limits of snapshots.
    pub unpack: UnpackLimits,
    /// Limits of the local socket.
    pub intake: IntakeLimits,
    /// How much of what could not be delivered is kept.
    pub aside: AsideLimits,
}

impl AgentConfig {
    /// Settings for `node` with its files in `work`: detected shape, a lease of five minutes, members left alone at the end.
    pub fn new(node: NodeName, work: PathBuf) -> Self {
        Self {
            node,
            work,
            address: "127.0.0.1".to_owned(),
            shape: ShapeSource::Detected {
                slots: None,
                ignore_gpus: false,
                pool: None,
                rack: None,
                labels: BTreeMap::new(),
                taints: BTreeSet::new(),
                share_gpus: false,
            },
            lease: Some(Duration::from_secs(300)),
            beat_every: None,
            shim_command: vec!["/proc/self/exe".into(), "shim".into()],
            platform_address: None,
            worker_defaults: BTreeMap::new(),
            port_locks: std::env::temp_dir().join("footplate-ports"),
            on_shutdown: OnShutdown::LeaveMembers,
            mode: Mode::Real,
            spools: SpoolSizes::default(),
            sync: true,
            timings: Timings::default(),
            unpack: UnpackLimits::default(),
            intake: IntakeLimits::default(),
            aside: AsideLimits::default(),
        }
    }

    pub(crate) fn beat_every(&self) -> Duration {
        self.beat_every.unwrap_or_else(|| self.lease.map_or(Duration::from_secs(10), |lease| lease / 10))
    }
}

/// Why an agent did not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Another agent has the folder: stop it, or name another folder.
    #[error("another agent uses {}", work.display())]
    InUse {
        /// The folder.
        work: PathBuf,
    },
    /// Another living agent beats under this node's name: give one of the two another name.
    #[error("two agents share the node name {node}: another one, on the machine with boot id {boot_id}, beats under it")]
    NameTaken {
        /// The name.
        node: NodeName,
        /// The boot id that the other one tells.
        boot_id: String,
    },
    /// The folder's files cannot be read or written.
    #[error("{doing} in {}: {source}", work.display())]
    Folder {
        /// What was being done.
        doing: &'static str,
        /// The folder.
        work: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A spool cannot be opened.
    #[error("spool {name}: {source}")]
    Spool {
        /// Which.
        name: &'static str,
        /// Why.
        source: SpoolError,
    },
    /// The local socket cannot be served.
    #[error("local socket {}: {source}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
