//! Starts children so that they die with the test process, whatever ends it.
//!
//! The kernel's parent-death signal fires when the *thread* that forked ends. Tests run on short-lived threads, so all children are forked
//! by one thread that lives as long as the process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, mpsc};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

type Request = (Command, mpsc::Sender<io::Result<Child>>);

static SPAWNER: OnceLock<Mutex<mpsc::Sender<Request>>> = OnceLock::new();

/// Starts `command` as a child in a process group of its own that is killed when this process ends.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    command.process_group(0);
    // SAFETY: the closure runs in the child between fork and exec and makes only two system calls (prctl, getppid); it allocates nothing
    // and takes no lock.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have gone before the signal was set: then nobody would send it.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
    let (answer, answered) = mpsc::channel();
    let requests = SPAWNER.get_or_init(|| Mutex::new(start_thread()));
    let sent = requests.lock().map_err(|_| lost())?.send((command, answer));
    sent.map_err(|_| lost())?;
    answered.recv().map_err(|_| lost())?
}

fn start_thread() -> mpsc::Sender<Request> {
    let (sender, requests) = mpsc::channel::<Request>();
    let body = move || {
        for (mut command, answer) in requests {
            // A caller that went away drops its receiver; its child is then dropped too, and dies with the process.
            let _ = answer.send(command.spawn());
        }
    };
    std::thread::Builder::new().name("testkit-spawner".to_owned()).spawn(body).expect("a test process can start one thread");
    sender
}

fn lost() -> io::Error {
    io::Error::other("the thread that starts children is gone")
}
