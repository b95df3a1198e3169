//! The guard around a child, and waiting.

use std::process::Command;
use std::time::Duration;

use footplate_testkit::{Process, eventually, kill_processes_mentioning, processes_mentioning, try_eventually};

const DEADLINE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[tokio::test]
async fn a_child_dies_with_its_guard_and_takes_its_group_along() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().display().to_string();
    let mut command = shell("sleep 1000 & echo up; wait");
    command.env("MARK", &mark);
    let process = Process::start("sleeper", command, folder.path()).unwrap();
    eventually(DEADLINE, "both processes run", || async { (processes_mentioning(&mark).len() == 2).then_some(()) }).await;
    drop(process);
    eventually(DEADLINE, "no process is left", || async { processes_mentioning(&mark).is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn what_left_the_group_is_found_and_swept_by_its_mark() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().display().to_string();
    let mut command = shell("setsid sleep 1000 & wait");
    command.env("MARK", &mark);
    let process = Process::start("parent", command, folder.path()).unwrap();
    let found = || async { processes_mentioning(&mark).into_iter().find(|seen| seen.argv.first().is_some_and(|name| name == "sleep")) };
    let seen = eventually(DEADLINE, "the sleeper runs", found).await;
    assert_eq!(seen.variable("MARK"), Some(mark.as_str()));
    process.kill9().await.unwrap();
    assert_eq!(processes_mentioning(&mark).len(), 1, "a sleeper in its own session outlives its parent");
    assert_eq!(kill_processes_mentioning(&mark), 1);
    eventually(DEADLINE, "no process is left", || async { processes_mentioning(&mark).is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn a_child_outlives_the_thread_that_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let started = std::thread::spawn(move || Process::start("sleeper", shell("exec sleep 1000"), &path).unwrap());
    let process = started.join().unwrap();
    assert!(try_eventually(Duration::from_millis(200), "it ends", || async { (!process.is_running()).then_some(()) }).await.is_err());
    process.kill9().await.unwrap();
}

#[tokio::test]
async fn exit_status_and_output_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start("talker", shell("echo out; echo err >&2; exit 7"), folder.path()).unwrap();
    assert_eq!(process.wait(DEADLINE).await.unwrap().code(), Some(7));
    assert_eq!((process.stdout().as_str(), process.stderr().as_str()), ("out\n", "err\n"));
    assert!(process.signal(footplate_testkit::Signal::TERM).is_err(), "the dead cannot be signalled");
}

#[tokio::test]
async fn a_condition_that_never_holds_fails_by_its_name() {
    let late = try_eventually(Duration::from_millis(30), "pigs fly", || async { None::<()> }).await.unwrap_err();
    assert!(late.to_string().contains("pigs fly"), "{late}");
    let hung = try_eventually(Duration::from_millis(30), "a hung probe", std::future::pending::<Option<()>>).await.unwrap_err();
    assert_eq!(hung.looks, 0);
}

/// Plays the test process that is killed: starts a child and waits.
#[test]
fn the_process_that_is_killed() {
    let Ok(folder) = std::env::var("KILLED_TEST_FOLDER") else { return };
    let _child = Process::start("sleeper", shell("exec sleep 1000"), folder.as_ref()).unwrap();
    std::thread::sleep(Duration::from_secs(1000));
}

#[tokio::test]
async fn a_child_dies_with_a_test_process_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().display().to_string();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::the_process_that_is_killed"]).env("KILLED_TEST_FOLDER", &mark);
    let process = Process::start("parent", command, folder.path()).unwrap();
    let sleeper = || async { processes_mentioning(&mark).into_iter().find(|seen| seen.argv.first().is_some_and(|name| name == "sleep")) };
    eventually(DEADLINE, "the grandchild runs", sleeper).await;
    process.kill9().await.unwrap();
    eventually(DEADLINE, "the grandchild is gone too", || async { processes_mentioning(&mark).is_empty().then_some(()) }).await;
}
