//! How `up` ends and begins again: a stop drains and the next one resumes; killed, the workers run on and the next one adopts them; and what
//! keeps it from starting says what to do.

use crate::up::{Up, clean, free_port};
use footplate_testkit::{Signal, repository_root};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// Submits two scripted workers that walk through `steps` steps.
fn submit(up: &Up, steps: u32, more: &[&str]) -> String {
    let worker = repository_root().join("loadtests/workers/fake_worker.py").display().to_string();
    let steps = format!("FAKE_STEPS={steps}");
    let mut args = vec![
        "submit",
        "-q",
        "--slots",
        "2",
        "--no-source",
        "--env",
        &steps,
        "--env",
        "FAKE_STEP_MS=50",
        "--env",
        "FAKE_CHECKPOINT_EVERY=5",
    ];
    args.extend(more);
    args.extend(["--", "python3", &worker]);
    up.done(&args).trim().to_owned()
}

/// Waits until a run says something.
fn until(up: &Up, run: &str, what: &str, look: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let began = Instant::now();
    loop {
        let shown = up.json(&["run", "show", run]);
        if look(&shown) {
            return shown;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}: {shown:#}\n{}", up.process.stderr());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn attempts(run: &serde_json::Value) -> usize {
    run["attempts"].as_array().map_or(0, Vec::len)
}

fn has_points(run: &serde_json::Value) -> bool {
    run["latest"].as_array().is_some_and(|latest| !latest.is_empty())
}

#[test]
fn a_stop_lets_workers_save_and_the_next_start_goes_on_from_there() {
    let mut up = Up::start(&[]);
    let run = submit(&up, 80, &["--preemptible"]);
    until(&up, &run, "some steps", has_points);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    up.process.signal(Signal::INT).unwrap();
    let status = runtime.block_on(up.process.wait(PATIENCE)).unwrap();
    assert!(status.success(), "{status}\n{}", up.process.stderr());
    assert!(footplate_testkit::processes_mentioning(&run).is_empty(), "a worker outlived the stop");
    up.restart(&[]);
    up.done(&["run", "wait", &run]);
    let shown = up.json(&["run", "show", &run]);
    assert_eq!(attempts(&shown), 2, "{shown:#}");
    assert_eq!(shown["attempts"][0]["cause"], "drained", "{shown:#}");
    let log = up.done(&["run", "logs", "--attempt", "2", "--rank", "0", &run]);
    assert!(log.contains("resum"), "attempt 2 began anew:\n{log}");
    // Each view went on from its snapshot and read only what came after; with that it is what the whole ledger says.
    for view in ["scheduler-4", "executor-2", "gpu-inventory-3", "registry-1", "sweep-1"] {
        let kept = up.folder.path().join("data/objects/snapshots").join(view);
        assert!(kept.metadata().is_ok_and(|kept| kept.len() > 0), "{} is missing", kept.display());
        let told = up.process.stderr();
        let start = told.lines().rfind(|line| line.contains("a view starts") && line.contains(view)).map(str::to_owned);
        assert!(start.as_ref().is_some_and(|line| !line.contains(" position=0 ")), "{start:?}\n{told}");
    }
    up.done(&["replay", "--verify"]);
}

#[test]
fn killed_its_workers_run_on_and_the_next_start_adopts_them() {
    let mut up = Up::start(&[]);
    let run = submit(&up, 120, &[]);
    until(&up, &run, "some steps", has_points);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(up.process.kill9()).unwrap();
    assert!(!footplate_testkit::processes_mentioning(&run).is_empty(), "the workers died with the platform");
    up.restart(&[]);
    up.done(&["run", "wait", &run]);
    let shown = up.json(&["run", "show", &run]);
    assert_eq!(attempts(&shown), 1, "{shown:#}");
    up.done(&["replay", "--verify"]);
}

fn refused(up: &Up, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
    clean(&mut command);
    let output = command.args(args).env("XDG_CONFIG_HOME", up.folder.path().join("config")).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_keeps_it_from_starting_says_what_to_do() {
    let up = Up::start(&[]);
    let data = up.folder.path().join("data").display().to_string();
    let (code, told) = refused(&up, &["up", "--data", &data]);
    assert_eq!(code, 4, "{told}");
    assert!(told.contains("in use by process") && told.contains("--data"), "{told}");

    let found = up.done(&["doctor", "--data", &data, "-o", "json"]);
    let program = footplate_testkit::nats_server_program().unwrap();
    assert!(found.contains(&*program.to_string_lossy()), "the program that it really runs, named by a setting of `up` alone: {found}");

    let other = tempfile::tempdir().unwrap();
    let other_data = other.path().display().to_string();
    let (code, told) = refused(&up, &["up", "--data", &other_data, "--listen", &up.addr]);
    assert_eq!(code, 4, "{told}");
    assert!(told.contains("listen"), "{told}");

    let listen = format!("127.0.0.1:{}", free_port());
    let (code, told) = refused(&up, &["up", "--data", &other_data, "--listen", &listen, "--set", "nats.program=/nowhere/nats-server"]);
    assert_eq!(code, 5, "{told}");
    assert!(told.contains("--nats") && told.contains("pip install"), "{told}");

    let (code, told) = refused(&up, &["up", "--data", &other_data, "--set", "lease.nod=5m"]);
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("lease.node"), "{told}");

    let (code, told) =
        refused(&up, &["serve", "scheduler", "--data", &other_data, "--listen", &listen, "--admin", &format!("127.0.0.1:{}", free_port())]);
    assert_eq!(code, 5, "{told}");
    assert!(told.contains("--nats"), "{told}");
}
