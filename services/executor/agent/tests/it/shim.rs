//! Real trees: what escapes its group, what ignores TERM, what outlives its parent, its shim or its lease.

use footplate_executor_agent::{
    boot,
    shim::{EndedBy, Exit, Lease, MARKER_VARIABLE, MemberState, Notice, ShimError, ShimHandle, ShimSpec, Started, Stop, WorkerSpec},
};
use footplate_testkit::{SLEPT, Slept, eventually, kill_processes_mentioning, on_a_machine_that_slept, processes_mentioning};
use std::{collections::BTreeMap, ffi::OsString, fs, path::PathBuf, time::Duration};

const SOON: Duration = Duration::from_secs(10);

fn shim_command() -> Vec<OsString> {
    vec![env!("CARGO_BIN_EXE_footplate-shim").into()]
}

/// One member in a folder of its own. Whatever is left of it dies with this.
struct Member {
    root: tempfile::TempDir,
    marker: String,
    handle: ShimHandle,
}

impl Drop for Member {
    fn drop(&mut self) {
        kill_processes_mentioning(&self.marker);
    }
}

impl Member {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let marker = format!("test-1-0-{}", footplate_clock::session_id());
        Lease { boot_id: boot::id(), until_boot_ns: None }.write(&root.path().join("lease.json")).unwrap();
        let handle = ShimHandle::new(root.path().join("member"));
        Self { root, marker, handle }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn worker(&self, rank: u32, argv: &[&str]) -> WorkerSpec {
        let env = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH").unwrap()),
            (MARKER_VARIABLE.to_owned(), self.marker.clone()),
            ("RANK".to_owned(), rank.to_string()),
        ]);
        WorkerSpec {
            rank,
            argv: argv.iter().map(|one| (*one).to_owned()).collect(),
            env,
            cwd: self.root.path().to_owned(),
            stdout: self.path(&format!("{rank}.out")),
            stderr: self.path(&format!("{rank}.err")),
        }
    }

    fn spec(&self, workers: Vec<WorkerSpec>) -> ShimSpec {
        ShimSpec {
            marker: self.marker.clone(),
            lease: self.path("lease.json"),
            workers,
            peer_grace_ms: 500,
            leftover_grace_ms: 200,
            memory_bytes: None,
        }
    }

    fn start(&self, workers: Vec<WorkerSpec>) {
        self.handle.write_spec(&self.spec(workers)).unwrap();
        self.handle.start(&shim_command()).unwrap();
    }

    fn start_shell(&self, script: &str) {
        self.start(vec![self.worker(0, &["/bin/sh", "-c", script])]);
    }

    async fn exit(&self) -> Exit {
        let ended = || async {
            match self.handle.state().unwrap() {
                MemberState::Ended(exit) => Some(exit),
                MemberState::NotStarted | MemberState::Running(_) | MemberState::Orphaned(_) => None,
            }
        };
        eventually(SOON, "the member ends", ended).await
    }

    fn running(&self) -> Started {
        match self.handle.state().unwrap() {
            MemberState::Running(started) => started,
            other => panic!("{other:?}"),
        }
    }

    /// Living processes of the tree; a shim that has recorded the end may take a moment to go.
    fn living(&self) -> usize {
        let seen = processes_mentioning(&self.marker);
        seen.iter().filter(|process| !process.argv[0].ends_with("footplate-shim")).count()
    }

    async fn file(&self, name: &str) -> String {
        let path = self.path(name);
        eventually(SOON, &format!("{name} is written"), || async { fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')) })
            .await
    }
}

/// A script that leaves a child in a session of its own, one that ignores HUP and TERM, and waits itself.
fn stubborn(own: &str) -> String {
    format!(
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo s > setsid; while :; do sleep 0.2; done' & \
         nohup sh -c 'trap \"\" TERM; sh -c \"echo g > grandchild; sleep 300\"; :' >/dev/null 2>&1 & {own}"
    )
}

#[tokio::test]
async fn a_job_that_lives_50_ms_leaves_its_bytes_and_its_exit_code() {
    let member = Member::new();
    member.start_shell("printf 'last line without newline'; printf '\\377\\200raw' >&2; exit 7");
    let exit = member.exit().await;
    assert_eq!(exit.workers.len(), 1);
    assert_eq!((exit.workers[0].code, exit.workers[0].signal, exit.workers[0].ended_by), (Some(7), None, EndedBy::Itself));
    assert_eq!(exit.obeyed, None);
    assert_eq!(fs::read(member.path("0.out")).unwrap(), b"last line without newline");
    assert_eq!(fs::read(member.path("0.err")).unwrap(), b"\xff\x80raw");
    assert_eq!(member.living(), 0);
}

#[tokio::test]
async fn a_worker_inherits_no_ignored_and_no_blocked_signal() {
    let member = Member::new();
    member.handle.write_spec(&member.spec(vec![member.worker(0, &["/bin/cat", "/proc/self/status"])])).unwrap();
    // Of coreutils: as a shell without job control or `nohup` would do it, for every signal.
    let mut command: Vec<OsString> = ["env", "--ignore-signal", "--block-signal"].map(OsString::from).to_vec();
    command.extend(shim_command());
    member.handle.start(&command).unwrap();
    assert_eq!(member.exit().await.workers[0].code, Some(0));
    let status = fs::read_to_string(member.path("0.out")).unwrap();
    let set_of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // 32 and 33 are the C library's own: nobody else may set them.
    let programs = |set: u64| set & !(0b11 << 31);
    assert_eq!((programs(set_of("SigBlk:")), programs(set_of("SigIgn:"))), (0, 0), "{status}");
}

#[tokio::test]
async fn a_stop_kills_the_whole_tree_after_the_grace_and_a_neighbour_does_not_notice() {
    let (member, neighbour) = (Member::new(), Member::new());
    member.start_shell(&stubborn("while :; do sleep 0.2; done"));
    neighbour.start_shell("i=0; while [ $i -lt 15 ]; do echo $i; i=$((i+1)); sleep 0.1; done");
    member.file("setsid").await;
    member.file("grandchild").await;
    assert!(member.living() >= 3);
    member.handle.stop(&Stop::term("cancelled", 300)).unwrap();
    let exit = member.exit().await;
    assert_eq!(exit.obeyed.as_deref(), Some("cancelled"));
    assert_eq!((exit.workers[0].signal, exit.workers[0].ended_by), (Some(9), EndedBy::Stop));
    assert_eq!(member.living(), 0, "the end is recorded only when the tree is empty");
    let other = neighbour.exit().await;
    assert_eq!((other.workers[0].code, other.obeyed), (Some(0), None));
    assert_eq!(fs::read_to_string(neighbour.path("0.out")).unwrap(), (0..15).map(|i| format!("{i}\n")).collect::<String>());
}

#[tokio::test]
async fn a_worker_that_honours_term_is_not_killed_and_what_it_says_last_is_kept() {
    let member = Member::new();
    member.start_shell(
        "trap 'for i in 1 2 3 4 5; do echo bye $i; sleep 0.05; done; printf end; exit 0' TERM; echo up > up; while :; do sleep 0.05; done",
    );
    member.file("up").await;
    member.handle.stop(&Stop::term("preempted", 10_000)).unwrap();
    let exit = member.exit().await;
    assert_eq!((exit.workers[0].code, exit.workers[0].ended_by), (Some(0), EndedBy::Stop));
    assert_eq!(exit.obeyed.as_deref(), Some("preempted"), "exit 0 under a delivered stop names the stop");
    assert_eq!(fs::read_to_string(member.path("0.out")).unwrap(), "bye 1\nbye 2\nbye 3\nbye 4\nbye 5\nend");
}

#[tokio::test]
async fn a_stop_that_comes_after_exit_0_is_not_named() {
    let member = Member::new();
    member.start_shell("exit 0");
    member.exit().await;
    member.handle.stop(&Stop::term("cancelled", 0)).unwrap();
    let exit = member.exit().await;
    assert_eq!((exit.workers[0].code, exit.obeyed), (Some(0), None));
}

#[tokio::test]
async fn what_outlives_a_worker_is_ended_too() {
    let member = Member::new();
    member.start_shell(&stubborn("while [ ! -s setsid ] || [ ! -s grandchild ]; do sleep 0.02; done; exit 0"));
    let exit = member.exit().await;
    assert_eq!((exit.workers[0].code, exit.obeyed.clone()), (Some(0), None));
    assert!(exit.leftovers_killed >= 2, "{exit:?}");
    assert_eq!(member.living(), 0);
}

#[tokio::test]
async fn the_first_failure_ends_the_others_and_only_it_counts_as_a_failure() {
    let member = Member::new();
    let workers = (0..4)
        .map(|rank| {
            let script = if rank == 2 { "sleep 0.3; kill -SEGV $$" } else { "sleep 60" };
            member.worker(rank, &["/bin/sh", "-c", script])
        })
        .collect();
    member.start(workers);
    let exit = member.exit().await;
    assert_eq!((exit.workers[0].rank, exit.workers[0].signal, exit.workers[0].ended_by), (2, Some(11), EndedBy::Itself));
    assert!(exit.workers[1..].iter().all(|worker| worker.ended_by == EndedBy::Peer), "{exit:?}");
    assert_eq!(exit.workers.len(), 4);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_in_the_log_and_in_the_exit() {
    let member = Member::new();
    member.start(vec![member.worker(0, &["no-such-python", "train.py"]), member.worker(1, &["sleep", "60"])]);
    let exit = member.exit().await;
    let error = exit.workers[0].launch_error.clone().unwrap();
    assert!(error.contains("no-such-python") && error.contains("not found on this node") && error.contains("install it"), "{error}");
    assert!(fs::read_to_string(member.path("0.err")).unwrap().contains("no-such-python"));
    assert_eq!(exit.workers[1].ended_by, EndedBy::Peer);
}

#[tokio::test]
async fn an_expired_lease_kills_the_tree_and_an_extended_one_does_not() {
    let member = Member::new();
    let lease = |millis: u64| Lease { boot_id: boot::id(), until_boot_ns: Some(footplate_clock::boot_nanos() + millis * 1_000_000) };
    lease(600).write(&member.path("lease.json")).unwrap();
    member.start_shell(&stubborn("while :; do sleep 0.2; done"));
    member.file("grandchild").await;
    lease(2_000).write(&member.path("lease.json")).unwrap();
    let extended_until = footplate_clock::boot_nanos() + 1_900_000_000;
    let exit = member.exit().await;
    assert!(footplate_clock::boot_nanos() >= extended_until, "the extension was seen");
    assert!(exit.lease_expired);
    assert_eq!((exit.workers[0].signal, exit.workers[0].ended_by), (Some(9), EndedBy::Lease));
    assert_eq!(member.living(), 0);
}

#[tokio::test]
async fn a_lease_runs_out_by_the_clock_that_goes_on_while_the_machine_sleeps() {
    let slept = on_a_machine_that_slept("shim::a_lease_runs_out_by_the_clock_that_goes_on_while_the_machine_sleeps");
    let clock = |id| {
        let time = rustix::time::clock_gettime(id);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    // As the kernel tells it, not as our own clock reads it: by the clock that stops with the machine this lease would hold for an hour.
    let until = clock(rustix::time::ClockId::Boottime) + 1_000_000_000;
    if slept == Slept::Here {
        assert!(until > clock(rustix::time::ClockId::Monotonic) + SLEPT.as_nanos() as u64 / 2);
    }
    let member = Member::new();
    Lease { boot_id: boot::id(), until_boot_ns: Some(until) }.write(&member.path("lease.json")).unwrap();
    member.start_shell("while :; do sleep 0.2; done");
    let exit = member.exit().await;
    assert!(clock(rustix::time::ClockId::Boottime) >= until, "not before its end");
    assert!(exit.lease_expired);
    assert_eq!((exit.workers[0].ended_by, member.living()), (EndedBy::Lease, 0));
}

#[tokio::test]
async fn nothing_starts_under_a_lease_that_has_run_out_or_is_of_another_boot() {
    for lease in [Lease { boot_id: boot::id(), until_boot_ns: Some(1) }, Lease { boot_id: "other".to_owned(), until_boot_ns: None }] {
        let member = Member::new();
        lease.write(&member.path("lease.json")).unwrap();
        member.handle.write_spec(&member.spec(vec![member.worker(0, &["touch", "ran"])])).unwrap();
        let refused = member.handle.start(&shim_command()).unwrap_err();
        assert!(matches!(&refused, ShimError::Refused(why) if why.contains("lease")), "{refused}");
        assert!(!member.path("ran").exists());
        assert_eq!(member.handle.state().unwrap(), MemberState::NotStarted);
    }
}

#[tokio::test]
async fn a_member_starts_at_most_once_and_a_void_one_never() {
    let member = Member::new();
    member.start_shell("echo ran >> count; sleep 0.2");
    assert!(member.handle.start(&shim_command()).is_err(), "while it runs");
    member.exit().await;
    assert!(member.handle.start(&shim_command()).is_err(), "after it ended");
    assert_eq!(fs::read_to_string(member.path("count")).unwrap(), "ran\n");
    assert!(!member.handle.void().unwrap(), "what has run cannot be made never to have run");

    let late = Member::new();
    late.handle.write_spec(&late.spec(vec![late.worker(0, &["touch", "ran"])])).unwrap();
    assert!(late.handle.void().unwrap());
    assert!(late.handle.start(&shim_command()).is_err());
    assert!(!late.path("ran").exists());
}

#[tokio::test]
async fn a_shim_killed_by_9_leaves_an_orphan_that_the_agent_clears_by_its_marker() {
    let member = Member::new();
    member.start_shell(&stubborn("while :; do sleep 0.2; done"));
    member.file("setsid").await;
    member.file("grandchild").await;
    let started = member.running();
    let shim = rustix::process::Pid::from_raw(started.shim.pid).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    let orphaned = || async { matches!(member.handle.state().unwrap(), MemberState::Orphaned(_)).then_some(()) };
    eventually(SOON, "the lock is free", orphaned).await;
    let handle = member.handle.clone();
    let marker = member.marker.clone();
    let exit = tokio::task::spawn_blocking(move || handle.clear_orphans(&marker, SOON)).await.unwrap().unwrap().unwrap();
    assert!(exit.shim_lost);
    assert_eq!((exit.workers.len(), exit.workers[0].ended_by), (1, EndedBy::ShimLost));
    assert_eq!(member.living(), 0);
    assert_eq!(member.handle.state().unwrap(), MemberState::Ended(exit));
}

#[tokio::test]
async fn a_shim_lives_in_a_session_of_its_own_and_is_nobodys_child() {
    let member = Member::new();
    member.start_shell("sleep 30");
    let started = member.running();
    let stat = fs::read_to_string(format!("/proc/{}/stat", started.shim.pid)).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    assert_ne!(fields[1], std::process::id().to_string(), "not a child of the agent");
    assert_eq!(fields[3], started.shim.pid.to_string(), "its own session");
    let status = fs::read_to_string(format!("/proc/{}/status", started.shim.pid)).unwrap();
    let resident = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    let kilobytes: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 4096, "a shim is small: {resident}");
    member.handle.stop(&Stop::kill("cancelled")).unwrap();
    member.exit().await;
}

#[tokio::test]
async fn a_warning_reaches_only_who_catches_it_and_the_stop_follows() {
    let member = Member::new();
    member.start_shell("trap 'echo warned > warned' USR1; sleep 30 & echo up > up; while :; do wait; done");
    member.file("up").await;
    let notice = Some(Notice { signal: 10, before_ms: 700 });
    member.handle.stop(&Stop { notice, ..Stop::term("preempted", 5_000) }).unwrap();
    member.file("warned").await;
    assert_eq!(member.running().workers.len(), 1, "a warning ends nothing");
    let exit = member.exit().await;
    assert_eq!((exit.obeyed.as_deref(), exit.workers[0].signal), (Some("preempted"), Some(15)));
}

#[tokio::test]
async fn a_fork_bomb_is_emptied() {
    let member = Member::new();
    member.start_shell("trap '' TERM; f() { sh -c 'trap \"\" TERM; sleep 60' & sleep 0.01; f; }; echo up > up; f & f & wait");
    member.file("up").await;
    member.handle.stop(&Stop::term("cancelled", 200)).unwrap();
    member.exit().await;
    assert_eq!(member.living(), 0);
}

/// A folder so deep that `started.json` has a place in it and the file that is written before it has none.
fn too_deep_for_the_record(root: &std::path::Path) -> PathBuf {
    let length = 4_080 - std::process::id().to_string().len();
    let mut deep = root.to_owned();
    loop {
        match length - deep.as_os_str().len() {
            left if left > 300 => deep.push("d".repeat(200)),
            // A name has at most 255 bytes.
            left if left > 202 => deep.push("d".repeat(100)),
            left => {
                deep.push("d".repeat(left - 1));
                return deep;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_be_recorded_leaves_nothing_alive() {
    let member = Member::new();
    let handle = ShimHandle::new(too_deep_for_the_record(member.root.path()));
    let child = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    let leaving = member.worker(0, &["/bin/sh", "-c", &format!("setsid sh -c \"{child}\" & wait")]);
    // The second one is started when the test looks into its pipe: by then the first one has left its child.
    let waiting = member.worker(1, &["/bin/true"]);
    let made = std::process::Command::new("mkfifo").arg(&waiting.stdout).status().unwrap();
    assert!(made.success());
    let pipe = waiting.stdout.clone();
    handle.write_spec(&member.spec(vec![leaving, waiting])).unwrap();
    let starting = tokio::task::spawn_blocking({
        let handle = handle.clone();
        move || handle.start(&shim_command())
    });
    assert_eq!(member.file("0.out").await, "up\n");
    assert!(member.living() > 0);
    let _reader = fs::File::open(pipe).unwrap();
    let error = starting.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("started.json"), "{error}");
    assert_eq!(member.living(), 0, "not even what left its parent");
    assert_eq!(handle.state().unwrap(), MemberState::NotStarted);
}
