//! A process under signals. The child is this very test binary, told by a variable to be the process.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use footplate_service::{Context, RunOptions, run};
use footplate_testkit::{Process, Signal, eventually};

use crate::get;

const ROLE: &str = "SIGNAL_TEST_ROLE";
const DEADLINE: Duration = Duration::from_secs(20);

/// The process under test: `polite` drains when asked, `stubborn` never does, `failing` has a task that fails.
#[test]
fn the_process_under_test() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let admin: SocketAddr = std::env::var("ADMIN").unwrap().parse().unwrap();
    let start = async |context: Context| {
        let shutdown = context.shutdown.clone();
        let task_role = role.clone();
        context.supervisor.spawn("worker", async move {
            match task_role.as_str() {
                "polite" => shutdown.requested().await,
                "failing" => return Err("the task broke"),
                _ => std::future::pending().await,
            }
            Ok(())
        });
        Ok::<(), String>(())
    };
    let options = RunOptions { grace: Duration::from_secs(600), admin: Some(admin), config: String::new(), pages: Vec::new() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(run(options, start));
    let code = match ended {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            i32::from(error.exit().code())
        }
    };
    std::process::exit(code);
}

async fn start(role: &str, admin: SocketAddr, folder: &std::path::Path) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "signals::the_process_under_test", "--nocapture"]).env(ROLE, role).env("ADMIN", admin.to_string());
    Process::start(role, command, folder).unwrap()
}

async fn ready(admin: SocketAddr) {
    eventually(DEADLINE, "it is ready", || async { get(admin, "/readyz").await.ok().filter(|(status, _)| *status == 200) }).await;
}

async fn free_address() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn the_first_signal_drains_and_ends_with_0() {
    let (admin, folder) = (free_address().await, tempfile::tempdir().unwrap());
    let process = start("polite", admin, folder.path()).await;
    ready(admin).await;
    assert_eq!(process.terminate(DEADLINE).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_stops_at_once_and_names_what_was_cut_off() {
    let (admin, folder) = (free_address().await, tempfile::tempdir().unwrap());
    let process = start("stubborn", admin, folder.path()).await;
    ready(admin).await;
    process.signal(Signal::INT).unwrap();
    eventually(DEADLINE, "it drains", || async { get(admin, "/readyz").await.ok().filter(|(_, text)| text == "stopping\n") }).await;
    assert!(process.is_running());
    process.signal(Signal::INT).unwrap();
    assert_eq!(process.wait(DEADLINE).await.unwrap().code(), Some(6));
    assert!(process.stderr().contains("cut off: worker"), "{}", process.stderr());
}

#[tokio::test]
async fn a_failed_task_ends_the_process_and_is_named() {
    let (admin, folder) = (free_address().await, tempfile::tempdir().unwrap());
    let process = start("failing", admin, folder.path()).await;
    assert_eq!(process.wait(DEADLINE).await.unwrap().code(), Some(1));
    assert!(process.stderr().contains("worker failed: the task broke"), "{}", process.stderr());
}

#[tokio::test]
async fn a_taken_admin_port_stops_the_process_before_it_starts() {
    let held = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let process = start("polite", held.local_addr().unwrap(), folder.path()).await;
    assert_eq!(process.wait(DEADLINE).await.unwrap().code(), Some(4));
    assert!(process.stderr().contains("is taken, so the admin pages cannot listen there"), "{}", process.stderr());
}
