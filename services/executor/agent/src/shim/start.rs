//! From the agent's `spec.json` to running workers.
//!
//! The program is started twice. The first process only starts the second, waits for its word and goes: so the second is nobody's child,
//! in a session of its own, and no signal to the agent's group or session reaches it.

use super::{
    ShimError,
    enclosure::Enclosure,
    files::{EndedBy, Lease, MARKER_VARIABLE, MemberDir, ProcessId, ShimSpec, Started, StartedWorker, WorkerExit, WorkerSpec},
    supervise, tree,
};
use crate::{boot, durable};
use rustix::process::Signal;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
};

/// Set for the second of the two processes.
const SECOND: &str = "FOOTPLATE_SHIM_SECOND";
/// The one line that the second process says once the workers run; any other line is why they don't.
const STARTED: &str = "started\n";

/// The hidden subcommand `footplate shim <dir>`: exits 0 once the workers in `dir`'s spec run under a supervisor of their own.
pub fn shim_main(dir: &Path) -> ExitCode {
    let dir = MemberDir(dir.to_owned());
    let result = if std::env::var_os(SECOND).is_some() { second(&dir) } else { first(&dir) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "shim {}: {error}", dir.0.display());
            ExitCode::FAILURE
        }
    }
}

fn first(dir: &MemberDir) -> Result<(), ShimError> {
    let spec = read_spec(dir)?;
    let log = OpenOptions::new().append(true).create(true).open(dir.log()).map_err(ShimError::file("open", dir.log()))?;
    let mut child = Command::new("/proc/self/exe")
        // As people know it, in `ps`.
        .arg0(std::env::args_os().next().unwrap_or_else(|| "footplate".into()))
        .args(std::env::args_os().skip(1))
        .env(SECOND, "1")
        .env(MARKER_VARIABLE, &spec.marker)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(ShimError::system("start the supervisor"))?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut said).map_err(ShimError::system("listen to the supervisor"))?;
    }
    if said == STARTED {
        return Ok(());
    }
    Err(ShimError::Refused(if said.is_empty() { "the supervisor died".to_owned() } else { said.trim_end().to_owned() }))
}

fn second(dir: &MemberDir) -> Result<(), ShimError> {
    // A parent that ignores its children's ends is not told their exit codes.
    // SAFETY: the default is no handler of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let prepared = prepare(dir);
    let (world, lock) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            say(&format!("{}\n", error.to_string().replace('\n', " ")));
            return Err(error);
        }
    };
    say(STARTED);
    let result = supervise::run(dir, world);
    drop(lock);
    result
}

fn say(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn read_spec(dir: &MemberDir) -> Result<ShimSpec, ShimError> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    durable::read_json(&dir.spec()).and_then(|spec| spec.ok_or_else(missing)).map_err(ShimError::file("read", dir.spec()))
}

/// Takes the member's lock, checks that it may start at all, starts the workers. On any refusal nothing runs.
fn prepare(dir: &MemberDir) -> Result<(supervise::World, File), ShimError> {
    rustix::process::setsid().map_err(ShimError::system("begin a session"))?;
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).map_err(ShimError::system("become subreaper"))?;
    let lock = lock(dir)?.ok_or_else(|| ShimError::Refused("another supervisor has this member".to_owned()))?;
    for (path, why) in
        [(dir.void(), "the agent has given this member up"), (dir.started(), "it was started before"), (dir.exit(), "it has ended")]
    {
        if path.exists() {
            return Err(ShimError::Refused(why.to_owned()));
        }
    }
    let spec = read_spec(dir)?;
    let boot_id = boot::id();
    let lease = Lease::read(&spec.lease).map_err(ShimError::file("read", &spec.lease))?;
    let lease = lease.filter(|lease| lease.holds(&boot_id, boot::now_ns()));
    let lease = lease.ok_or_else(|| ShimError::Refused("the node's lease has run out".to_owned()))?;
    let control = open_bell(dir)?;
    let enclosure = Enclosure::create(&format!("footplate-{}", spec.marker), spec.memory_bytes);
    let mut world = supervise::World::new(spec, lease, boot_id, control, enclosure);
    start_workers(dir, &mut world)?;
    Ok((world, lock))
}

/// The lock that says that a shim lives; `None` when somebody has it. Closed by the kernel when its holder dies.
pub(super) fn lock(dir: &MemberDir) -> Result<Option<File>, ShimError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(dir.lock()).map_err(ShimError::file("open", dir.lock()))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(ShimError::file("lock", dir.lock())(error.into())),
    }
}

fn open_bell(dir: &MemberDir) -> Result<File, ShimError> {
    let path = dir.control();
    match rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(ShimError::file("make", &path)(error.into())),
    }
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).map_err(|error| ShimError::file("open", &path)(error.into()))?;
    Ok(File::from(fd))
}

/// Starts every worker. One that cannot start is a worker that ended: the others are told by the supervisor as by any failure.
fn start_workers(dir: &MemberDir, world: &mut supervise::World) -> Result<(), ShimError> {
    for worker in world.spec.workers.clone() {
        match start_worker(&worker, world.enclosure.as_ref()) {
            Ok(child) => {
                let pid = child.id() as i32;
                world.running.insert(pid, worker.rank);
            }
            Err(error) => {
                let told = why_not_started(&worker, &error);
                note_launch_error(&worker, &told);
                world.ended.push(WorkerExit {
                    rank: worker.rank,
                    code: code_of(&error),
                    signal: None,
                    launch_error: Some(told),
                    at_ns: supervise::wall_ns(),
                    ended_by: EndedBy::Itself,
                });
            }
        }
    }
    let started = Started {
        shim: tree::identify(std::process::id() as i32).unwrap_or(ProcessId { pid: std::process::id() as i32, start_ticks: 0 }),
        boot_id: world.boot_id.clone(),
        at_ns: supervise::wall_ns(),
        workers: started_workers(world),
        enclosure: world.enclosure.as_ref().map(|enclosure| enclosure.path().to_owned()),
    };
    let written = durable::write_json(&dir.started(), &started).map_err(ShimError::file("write", dir.started()));
    if written.is_err() {
        // Without the record nobody would look for them: this must then be a start that never was.
        world.abandon();
    }
    written
}

/// One that has ended already is a zombie until it is reaped: its number is its own until then.
fn started_workers(world: &supervise::World) -> Vec<StartedWorker> {
    let process = |pid: i32| tree::identify(pid).unwrap_or(ProcessId { pid, start_ticks: 0 });
    let mut workers: Vec<_> = world.running.iter().map(|(pid, rank)| StartedWorker { rank: *rank, process: process(*pid) }).collect();
    workers.sort_by_key(|worker| worker.rank);
    workers
}

/// The shells' codes for a program that is not there (127) or is none (126): these are the job's own fault, and another try finds the same.
/// What the machine could not do (no memory, no process left) has no code.
fn code_of(error: &io::Error) -> Option<i32> {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Some(127),
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::NOEXEC | rustix::io::Errno::ISDIR) => Some(126),
        _ => None,
    }
}

/// Why a worker could not be started, with what to do where that is known: the system has one word for a program, a folder and an
/// interpreter that are missing.
fn why_not_started(worker: &WorkerSpec, error: &io::Error) -> String {
    let program = worker.argv.first().map_or("", String::as_str);
    if error.kind() != io::ErrorKind::NotFound {
        return format!("cannot start {program:?} in {}: {error}", worker.cwd.display());
    }
    if !worker.cwd.is_dir() {
        return format!("cannot start {program:?}: the folder {} is not there; it was not captured", worker.cwd.display());
    }
    if !program.contains('/') {
        let path = worker.env.get("PATH").map_or("", String::as_str);
        return format!(
            "cannot start {program:?}: not found on this node (PATH is {path:?}); install it there, or name it by its full path"
        );
    }
    if worker.cwd.join(program).exists() {
        return format!("cannot start {program:?}: the interpreter that its first line names is not on this node; install it there");
    }
    format!("cannot start {program:?}: not found on this node, seen from {}; install it there, or capture it", worker.cwd.display())
}

/// The launch error belongs into the attempt's log, where a person looks.
fn note_launch_error(worker: &WorkerSpec, told: &str) {
    if let Ok(mut stderr) = OpenOptions::new().append(true).create(true).open(&worker.stderr) {
        let _ = writeln!(stderr, "footplate: {told}");
    }
}

fn start_worker(worker: &WorkerSpec, enclosure: Option<&Enclosure>) -> io::Result<Child> {
    let (program, arguments) = worker.argv.split_first().ok_or_else(|| io::Error::other("empty command"))?;
    let append = |path: &Path| OpenOptions::new().append(true).create(true).open(path);
    let doors = enclosure.map(Enclosure::doors).transpose()?.unwrap_or_default();
    let signals = FreshSignals::new()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&worker.env)
        .current_dir(&worker.cwd)
        .stdin(Stdio::null())
        .stdout(append(&worker.stdout)?)
        .stderr(append(&worker.stderr)?)
        .process_group(0);
    // SAFETY: between fork and exec only system calls are made, on values made before the fork: no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            for door in &doors {
                rustix::io::write(door, b"0")?;
            }
            // Should the shim be killed, nobody watches the lease any more: the workers go with it.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            signals.set()
        });
    }
    command.spawn()
}

/// The signals of a process that nobody has told anything: every one does what it does by default, none is held back. What the platform's
/// own starter ignored (a shell without job control ignores INT for what it starts with `&`, `nohup` ignores HUP) would otherwise reach a
/// training, whose Ctrl-C handlers and whose children's ends then never come.
struct FreshSignals {
    last: i32,
    none: libc::sigset_t,
}

impl FreshSignals {
    fn new() -> io::Result<Self> {
        let mut none = std::mem::MaybeUninit::uninit();
        // SAFETY: `sigemptyset` writes a whole set to the place that it is given.
        let none = unsafe {
            if libc::sigemptyset(none.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            none.assume_init()
        };
        Ok(Self { last: libc::SIGRTMAX(), none })
    }

    /// Makes it so for the calling process: two kinds of system calls, nothing else.
    fn set(&self) -> io::Result<()> {
        for signal in 1..=self.last {
            // SAFETY: the default is no handler of ours. KILL, STOP and the C library's own refuse it, and are what they always are.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: the set is a whole one, and the old one is not asked for.
        match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.none, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
