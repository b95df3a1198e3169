//! Opening the agent's folder: one agent a folder, spools, state, socket.

use crate::{
    aside::Aside,
    blob::BlobAccess,
    boot,
    config::{AgentConfig, AgentError, Mode},
    core::{Core, CoreState, Fixed},
    durable::Twin,
    hands::Hands,
    members::{Members, lease_file},
    shim::Lease,
    simulated::Simulated,
    socket::{self, Intake, Spools},
    spool::{Spool, SpoolError, SpoolOptions},
};
use footplate_types::{NodeShape, SpoolId};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// Everything that is open while the agent lives.
pub(super) struct Parts {
    pub(super) core: Core,
    pub(super) hands: Arc<dyn Hands>,
    pub(super) intake: Arc<Intake>,
    pub(super) spools: Spools,
    pub(super) aside: Arc<Aside>,
    pub(super) shape: NodeShape,
    pub(super) listener: Option<UnixListener>,
    /// The persisted state.
    pub(super) twin: Arc<Mutex<Twin>>,
    /// Held: the folder is this agent's.
    _lock: File,
}

fn folder(config: &AgentConfig, doing: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    let work = config.work.clone();
    move |source| AgentError::Folder { doing, work, source }
}

/// Room that is taken beforehand for each of the two copies of the state: some hundred members.
const STATE_BYTES: u64 = 512 << 10;

pub(super) async fn open(config: &AgentConfig, blobs: Arc<dyn BlobAccess>, life: &CancellationToken) -> Result<Parts, AgentError> {
    fs::create_dir_all(&config.work).map_err(folder(config, "create folder"))?;
    // Members' folders hold what their jobs keep secret.
    fs::set_permissions(&config.work, fs::Permissions::from_mode(0o700)).map_err(folder(config, "close folder to others"))?;
    let lock = lock(config)?;
    let spools = free_spools(config).await?;
    let (twin, kept) = Twin::open(&config.work.join("state"), STATE_BYTES).map_err(folder(config, "open state"))?;
    let unreadable = |error: serde_json::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    let state = kept.map(|bytes| serde_json::from_slice::<CoreState>(&bytes)).transpose();
    let mut state = state.map_err(unreadable).map_err(folder(config, "read state"))?.unwrap_or_default();
    if state.token.is_empty() {
        state.token = u32::from_le_bytes(footplate_clock::entropy()).to_string();
    }
    let lease = Lease::read(&lease_file(config)).map_err(folder(config, "read lease"))?;
    let boot_id = boot::id();
    let lease_until = lease.filter(|lease| lease.boot_id == boot_id).map(|lease| lease.until_boot_ns.unwrap_or(u64::MAX));
    let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let fixed = Fixed {
        node: config.node.clone(),
        boot_id,
        lease_ms: config.lease.map_or(0, millis),
        beat_every_ms: millis(config.beat_every()),
        kill_ms: millis(config.timings.kill),
    };
    let intake = Intake::new(config.node.clone(), spools.clone(), blobs, config.intake, life.clone());
    let spool = spools.executor.id();
    let aside = Arc::new(Aside::new(&config.work, config.aside));
    let (hands, listener): (Arc<dyn Hands>, _) = match config.mode {
        Mode::Simulated { run_for } => (Arc::new(Simulated::new(config.node.clone(), config.address.clone(), spool, run_for)), None),
        Mode::Real => {
            let path = socket::socket_path(&config.work);
            let listener = socket::listen(&path).map_err(|source| AgentError::Socket { path: path.clone(), source })?;
            let (config, intake, aside) = (config.clone(), intake.clone(), aside.clone());
            (Arc::new(Members::new(config, intake, aside, spool, state.token.clone(), path, life.clone())), Some(listener))
        }
    };
    let shape = config.shape.shape(&config.work);
    Ok(Parts {
        core: Core::new(fixed, state, lease_until),
        hands,
        intake,
        spools,
        aside,
        shape,
        listener,
        twin: Arc::new(Mutex::new(twin)),
        _lock: lock,
    })
}

fn lock(config: &AgentConfig) -> Result<File, AgentError> {
    let path = config.work.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(folder(config, "open the lock"))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(AgentError::InUse { work: config.work.clone() }),
        Err(error) => Err(folder(config, "take the lock")(error.into())),
    }
}

/// An agent that has just ended in this process may still be at its last commit: waits a little for it.
async fn free_spools(config: &AgentConfig) -> Result<Spools, AgentError> {
    const TRIES: u32 = 200;
    const PAUSE: Duration = Duration::from_millis(25);
    for _ in 0..TRIES {
        match spools(config) {
            Err(AgentError::Spool { source: SpoolError::InUse, .. }) => tokio::time::sleep(PAUSE).await,
            opened => return opened,
        }
    }
    Err(AgentError::InUse { work: config.work.clone() })
}

const NAMES: [&str; 5] = ["executor", "tracker", "gpu-inventory", "logs", "metrics"];

/// Opens the spools, all under one id. When one of them is not of that life (its folder was removed), offsets would begin anew under an
/// old id and be taken for repeats: then all begin a new life, and the old ones are kept aside.
fn spools(config: &AgentConfig) -> Result<Spools, AgentError> {
    let root = config.work.join("spool");
    if let Err(why) = one_life(&root) {
        let aside = config.work.join(format!("spool-{}", footplate_clock::spool_id()));
        tracing::error!(why, aside = %aside.display(), "the spools are not of one life: they begin anew");
        fs::rename(&root, &aside).map_err(folder(config, "put old spools aside"))?;
    }
    let id = recorded_id(&root.join(NAMES[0])).unwrap_or_else(footplate_clock::spool_id);
    let open = |at: usize, max_bytes: u64| {
        let options = SpoolOptions { max_bytes, sync: config.sync, ..SpoolOptions::default() };
        Spool::open(&root.join(NAMES[at]), options, || id).map_err(|source| AgentError::Spool { name: NAMES[at], source })
    };
    Ok(Spools {
        executor: open(0, config.spools.reports)?,
        tracker: open(1, config.spools.reports)?,
        inventory: open(2, config.spools.reports)?,
        logs: open(3, config.spools.logs)?,
        metrics: open(4, config.spools.metrics)?,
    })
}

fn recorded_id(dir: &Path) -> Option<SpoolId> {
    SpoolId::parse(fs::read_to_string(dir.join("id")).ok()?.trim()).ok()
}

fn one_life(root: &Path) -> Result<(), &'static str> {
    if !root.exists() {
        return Ok(());
    }
    let ids: Vec<Option<SpoolId>> = NAMES.iter().map(|name| recorded_id(&root.join(name))).collect();
    // A first start that was cut off has made the first few and appended nothing.
    let made = ids.iter().take_while(|id| id.is_some()).count();
    let rest_is_new = NAMES[made..].iter().all(|name| !root.join(name).join(format!("{:020}.seg", 1)).exists());
    let same = ids[..made].windows(2).all(|pair| pair[0] == pair[1]);
    let used =
        NAMES[..made].iter().any(|name| fs::metadata(root.join(name).join(format!("{:020}.seg", 1))).is_ok_and(|file| file.len() > 0));
    match (same, made == NAMES.len(), rest_is_new && !used) {
        (false, ..) => Err("different ids"),
        (true, true, _) | (true, false, true) => Ok(()),
        (true, false, false) => Err("one is missing"),
    }
}
