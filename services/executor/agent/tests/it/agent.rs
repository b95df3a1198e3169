//! The agent with real processes: from assignment to `exited`, through restarts, fences and outages.

use crate::node::{Node, SOON, launch};
use footplate_eventlog::StreamName;
use footplate_events::{
    facts::{Exit, LogStream, MemoryKind, StopCause},
    messages::{BeatMessage, ExecutorReport, InventoryReport, Report, ReportBody, RunCommand, SpoolPosition, Task, TrackerReport},
};
use footplate_executor_agent::{AgentError, OnShutdown};
use footplate_testkit::{eventually, repository_root};
use footplate_types::{AttemptNumber, Epoch, RunId};
use std::{fs, time::Duration};

fn run(number: u8) -> RunId {
    RunId::from_bytes([number; 16])
}

/// A worker that says `up`, leaves a stubborn child, and counts until it is stopped.
const COUNTING: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & \
                        echo up; i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_goes_from_assignment_to_exited_with_every_byte() {
    let mut node = Node::started().await;
    let mut task = node.shell(1, "cat $FOOTPLATE_CONFIG data.txt; echo \"$RANK/$LOCAL_RANK of $WORLD_SIZE\"; printf '\\377end' >&2");
    (task.workers, task.world_size) = (2, 2);
    let mut source = node.snapshot(&[("sub/data.txt", "from the snapshot\n"), ("x", "")]);
    source.folder = "sub".to_owned();
    task.source = Some(source);
    task.config = Some(node.store.add(b"{\"lr\": 0.1}\n"));
    let pids = node.run_member(&task).await;
    assert_eq!(pids.len(), 2);
    let exited = node.exited(run(1)).await;
    assert!(exited.is_success(), "{exited:?}");
    assert!(exited.offsets.logs >= 4, "two workers, two streams each: {exited:?}");
    for rank in 0..2 {
        node.log_says(run(1), rank, LogStream::Stderr, "end").await;
        node.log_says(run(1), rank, LogStream::Stdout, " of 2").await;
        let said = String::from_utf8(node.log(run(1), rank, LogStream::Stdout).await).unwrap();
        assert_eq!(said, format!("{{\"lr\": 0.1}}\nfrom the snapshot\n{rank}/{rank} of 2\n"));
        assert_eq!(node.log(run(1), rank, LogStream::Stderr).await, b"\xffend");
    }
    node.assign(vec![]).await;
    let members = node.config.work.join("members");
    eventually(SOON, "its folder is gone", || async { fs::read_dir(&members).unwrap().next().is_none().then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_adopts_its_members_and_no_byte_is_lost_or_doubled() {
    let mut node = Node::started().await;
    let task = node.shell(1, "i=0; while [ $i -lt 60 ]; do echo $i; i=$((i+1)); sleep 0.05; done");
    let pids = node.run_member(&task).await;
    node.log_says(run(1), 0, LogStream::Stdout, "\n5\n").await;
    node.kill().await;
    assert!(node.living() > 0, "it goes on");
    node.start();
    let again = || async {
        let started = node.executor_reports().await.into_iter().filter_map(|report| match report {
            ExecutorReport::Started { started, .. } => Some(started.workers[0].pid),
            _ => None,
        });
        let pids: Vec<u32> = started.collect();
        (pids.len() == 2).then_some(pids)
    };
    assert_eq!(eventually(SOON, "adopted", again).await, [pids[0], pids[0]], "the same process");
    node.kill().await;
    node.start();
    let exited = node.exited(run(1)).await;
    assert!(exited.is_success(), "{exited:?}");
    node.log_says(run(1), 0, LogStream::Stdout, "\n59\n").await;
    let said = String::from_utf8(node.log(run(1), 0, LogStream::Stdout).await).unwrap();
    assert_eq!(said, (0..60).map(|i| format!("{i}\n")).collect::<String>());
    let ends = node.executor_reports().await.iter().filter(|report| matches!(report, ExecutorReport::Exited { .. })).count();
    assert_eq!(ends, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_does_not_go_back_to_an_older_assignment() {
    let mut node = Node::started().await;
    let kept = node.shell(1, COUNTING);
    let before = node.run_member(&kept).await;
    let outdated = node.shell(2, "touch $TMPDIR/ran");
    node.kill().await;
    // Where it looks first, and where it listens: the member that runs is absent from it, another one stands in it.
    node.assign_as_of(50, vec![outdated.clone()]).await;
    node.start();
    let adopted = || async {
        let started = |report: &ExecutorReport| matches!(report, ExecutorReport::Started { of, .. } if of.run == run(1));
        (node.executor_reports().await.iter().filter(|report| started(report)).count() == 2).then_some(())
    };
    eventually(SOON, "adopted", adopted).await;
    node.assign_as_of(50, vec![outdated]).await;
    // What is followed after it shows that it was passed over.
    let rendezvous = node.ready(run(1)).await;
    let next = node.shell(3, "exit 0");
    let order = node.run_order(&kept, rendezvous);
    node.assign(vec![order.clone(), next.clone()]).await;
    let bound = node.ready(run(3)).await;
    node.assign(vec![order, node.run_order(&next, bound)]).await;
    assert!(node.exited(run(3)).await.is_success());
    let reports = node.executor_reports().await;
    let about = |report: &ExecutorReport| match report {
        ExecutorReport::Ready { of, .. } | ExecutorReport::Started { of, .. } | ExecutorReport::Exited { of, .. } => Some(of.run),
        _ => None,
    };
    assert!(reports.iter().filter_map(about).all(|of| of != run(2)), "{reports:?}");
    let ended = |report: &&ExecutorReport| matches!(report, ExecutorReport::Exited { of, .. } if of.run == run(1));
    assert_eq!(reports.iter().find(ended), None, "what runs goes on");
    assert!(fs::exists(format!("/proc/{}", before[0])).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_found_no_room_are_waited_for_and_at_last_named_as_lacking() {
    let mut node = Node::new();
    node.config.spools.logs = 1 << 20;
    node.config.timings.drain_patience = Duration::from_millis(50);
    node.config.timings.room_patience = Duration::from_millis(1_500);
    node.start();
    node.registered(1).await;
    let task = node.shell(1, "head -c 3000000 /dev/zero");
    let begun = std::time::Instant::now();
    node.run_member(&task).await;
    let exited = node.exited(run(1)).await;
    assert!(begun.elapsed() >= node.config.timings.room_patience, "it was waited for room");
    assert_eq!(exited.offsets.incomplete, ["the end of the logs (not taken in)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_ends_while_no_agent_lives_is_reported_by_the_next_one() {
    let mut node = Node::started().await;
    let task = node.shell(1, "sleep 0.5; printf 'said while nobody listened'; exit 3");
    node.run_member(&task).await;
    node.kill().await;
    eventually(SOON, "it ends", || async { (node.living() == 0).then_some(()) }).await;
    node.start();
    let exited = node.exited(run(1)).await;
    assert_eq!(exited.workers[0].exit, Exit::Code(3));
    node.log_says(run(1), 0, LogStream::Stdout, "said while nobody listened").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_empties_the_tree_and_is_named_and_exit_0_without_one_is_not() {
    let mut node = Node::started().await;
    let task = node.shell(1, COUNTING);
    node.run_member(&task).await;
    node.log_says(run(1), 0, LogStream::Stdout, "up").await;
    node.assign(vec![Node::stop_order(&task, StopCause::Preempted, 300)]).await;
    let exited = node.exited(run(1)).await;
    assert_eq!(exited.obeyed, Some(StopCause::Preempted));
    assert_eq!((node.living(), exited.workers[0].exit.clone()), (0, Exit::Signal(9)));
    node.log_says(run(1), 0, LogStream::Platform, "stopped: preempted").await;

    let quick = node.shell(2, "exit 0");
    node.run_member(&quick).await;
    node.assign(vec![Node::stop_order(&quick, StopCause::Cancelled, 300)]).await;
    assert!(node.exited(run(2)).await.is_success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_prepared_or_started_says_why() {
    let mut node = Node::started().await;
    let mut document = launch("exit 0");
    document.setup = "echo installing; echo broken >&2; exit 9".to_owned();
    let failing = node.task(1, &document);
    let mut missing = launch("");
    missing.run = RunCommand::Argv(vec!["no-such-python".to_owned(), "train.py".to_owned()]);
    let missing = node.task(2, &missing);
    let mut lost = node.shell(3, "exit 0");
    lost.launch = node.store.add(b"to be removed");
    fs::remove_file(node.root.path().join("store").join(lost.launch.digest.to_string())).unwrap();
    node.assign(vec![failing.clone(), lost.clone()]).await;
    let why = node.exited(run(1)).await.not_started.unwrap();
    assert!(why.contains("n1") && why.contains("code 9"), "{why}");
    node.log_says(run(1), 0, LogStream::Setup, "installing\nbroken\n").await;
    node.log_says(run(1), 0, LogStream::Platform, "code 9").await;
    let why = node.exited(run(3)).await.not_started.unwrap();
    assert!(why.contains("launch document"), "{why}");
    node.run_member(&missing).await;
    let exited = node.exited(run(2)).await;
    assert_eq!((exited.not_started.as_ref(), exited.workers[0].exit.clone()), (None, Exit::Code(127)), "it is the job's own fault");
    assert!(exited.workers[0].message.contains("no-such-python"), "{exited:?}");
    node.log_says(run(2), 0, LogStream::Stderr, "no-such-python").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_up_runs_once_sees_the_code_and_a_stop_ends_it() {
    let mut node = Node::started().await;
    let mut document = launch("cat made-by-set-up");
    document.setup = "echo once >> made-by-set-up; echo $FOOTPLATE_RUN_ID".to_owned();
    let task = node.task(1, &document);
    node.run_member(&task).await;
    assert!(node.exited(run(1)).await.is_success());
    node.log_says(run(1), 0, LogStream::Stdout, "once\n").await;
    node.log_says(run(1), 0, LogStream::Setup, &run(1).to_string()).await;

    document.setup = "echo begun; trap '' TERM; sleep 300".to_owned();
    let slow = node.task(2, &document);
    node.assign(vec![slow.clone()]).await;
    node.log_says(run(2), 0, LogStream::Setup, "begun").await;
    node.assign(vec![Node::stop_order(&slow, StopCause::Cancelled, 100)]).await;
    let exited = node.exited(run(2)).await;
    assert_eq!((exited.obeyed, exited.workers.len(), node.living()), (Some(StopCause::Cancelled), 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_gets_the_real_values_and_nothing_else_does() {
    let mut node = Node::started().await;
    let sealed = br#"{"env":{"TOKEN":"s3cret"},"config":"{\"api_key\":\"k-123\"}"}"#;
    let mut document = launch("[ $TOKEN = s3cret ] && grep -q k-123 $FOOTPLATE_CONFIG && echo $OPEN");
    document.env = [("TOKEN".to_owned(), "***".to_owned()), ("OPEN".to_owned(), "seen".to_owned())].into();
    document.sealed = Some(node.store.add(sealed));
    let mut task = node.task(1, &document);
    task.config = Some(node.store.add(br#"{"api_key":"***"}"#));
    node.run_member(&task).await;
    assert!(node.exited(run(1)).await.is_success());
    node.log_says(run(1), 0, LogStream::Stdout, "seen").await;
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&node.config.work).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "the folder is its owner's alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_agent_kills_reports_and_goes_on_under_the_new_generation() {
    let mut node = Node::started().await;
    let task = node.shell(1, COUNTING);
    node.run_member(&task).await;
    node.log_says(run(1), 0, LogStream::Stdout, "up").await;
    node.fence(2).await;
    let exited = node.exited(run(1)).await;
    assert_eq!((exited.obeyed, exited.epoch, node.living()), (Some(StopCause::Fenced), Epoch(1), 0));
    node.registered(2).await;
    let Some((_, BeatMessage::Beat(beat))) = node.last_beat().await else { panic!("no beat") };
    assert_eq!((beat.epoch, beat.held.len()), (Epoch(2), 0));
    let mut next = node.shell(2, "exit 0");
    next.epoch = Epoch(2);
    node.run_member(&next).await;
    assert!(node.exited(run(2)).await.is_success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_away_for_half_a_lease_costs_nothing_and_for_two_leases_the_members() {
    let mut node = Node::new();
    node.config.lease = Some(Duration::from_secs(3));
    node.start();
    node.registered(1).await;
    let task = node.shell(1, COUNTING);
    node.run_member(&task).await;
    node.log_says(run(1), 0, LogStream::Stdout, "up").await;
    node.broker.faults().unavailable(true);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    node.broker.faults().unavailable(false);
    node.log_says(run(1), 0, LogStream::Stdout, "\n40\n").await;
    assert!(node.living() > 0);
    node.broker.faults().unavailable(true);
    eventually(SOON, "the shim kills at the lease's end", || async { (node.living() == 0).then_some(()) }).await;
    node.broker.faults().unavailable(false);
    let exited = node.exited(run(1)).await;
    assert_eq!((exited.obeyed, exited.workers[0].exit.clone()), (Some(StopCause::Fenced), Exit::Signal(9)));
    node.log_says(run(1), 0, LogStream::Platform, "lease").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_that_a_killed_broker_lost_are_sent_again_and_settled_ones_forgotten() {
    let mut node = Node::started().await;
    let task = node.shell(1, "exit 0");
    node.run_member(&task).await;
    node.exited(run(1)).await;
    let told = node.executor_reports().await.len();
    node.broker.lose_last(StreamName::Reports, 2);
    let complete = || async { (node.executor_reports().await.len() == told).then_some(()) };
    eventually(SOON, "sent again after a standstill", complete).await;
    let last = node.reports().await.into_iter().rev().find(|report| report.body.service() == "executor").unwrap();
    node.settle("executor", SpoolPosition { ..last.at }).await;
    let spool = node.config.work.join("spool/executor");
    let bytes = || fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>();
    eventually(SOON, "the spool is trimmed", || async { (bytes() < 100).then_some(()) }).await;
    node.kill().await;
    node.start();
    let next = node.shell(2, "exit 0");
    node.run_member(&next).await;
    let reports = node.reports().await;
    let first_new = reports.iter().find(|report| report.body.service() == "executor" && report.at.offset > last.at.offset).unwrap();
    assert_eq!((first_new.at.spool, first_new.at.offset), (last.at.spool, last.at.offset + 1), "the count goes on");
    assert_eq!(first_new.kept_from, last.at.offset + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_killed_by_9_costs_its_member_and_nothing_lives_on() {
    let mut node = Node::started().await;
    let task = node.shell(1, COUNTING);
    node.run_member(&task).await;
    node.log_says(run(1), 0, LogStream::Stdout, "up").await;
    let seen = footplate_testkit::processes_mentioning(&node.root.path().display().to_string());
    let shim = seen.iter().find(|process| process.argv[0].ends_with("footplate-shim")).unwrap();
    let pid = rustix::process::Pid::from_raw(shim.pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let exited = node.exited(run(1)).await;
    assert!(matches!(exited.workers[0].exit, Exit::Unknown(_)), "{exited:?}");
    assert_eq!((exited.obeyed, node.living()), (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_or_stop_that_matches_nothing_is_answered_and_never_started() {
    let mut node = Node::started().await;
    let unknown = node.shell(1, "touch $TMPDIR/ran");
    let rendezvous = footplate_events::facts::Rendezvous { address: "n1".to_owned(), port: 1 };
    let order = node.run_order(&unknown, rendezvous);
    node.assign(vec![order, Node::stop_order(&node.shell(2, "exit 0"), StopCause::Cancelled, 1)]).await;
    assert!(node.exited(run(1)).await.not_started.is_some());
    assert_eq!(node.exited(run(2)).await.obeyed, Some(StopCause::Cancelled));
    assert_eq!(node.living(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_lets_members_checkpoint_and_leaves_nothing_unsaid() {
    let mut node = Node::new();
    node.config.on_shutdown = OnShutdown::StopMembers(SOON);
    node.start();
    node.registered(1).await;
    let mut task = node.shell(1, "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.05; done");
    task.stop.grace = footplate_types::Millis(10_000);
    node.run_member(&task).await;
    node.log_says(run(1), 0, LogStream::Stdout, "up").await;
    node.shut_down().await.unwrap();
    let exited = node.exited(run(1)).await;
    assert_eq!((exited.obeyed, exited.workers[0].exit.clone()), (Some(StopCause::Shutdown), Exit::Code(75)));
    assert_eq!(node.log(run(1), 0, LogStream::Stdout).await, b"up\nsaved\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_that_leaves_members_is_followed_by_adoption() {
    let mut node = Node::started().await;
    let task = node.shell(1, "sleep 1; exit 4");
    node.run_member(&task).await;
    node.shut_down().await.unwrap();
    assert!(node.living() > 0);
    node.start();
    assert_eq!(node.exited(run(1)).await.workers[0].exit, Exit::Code(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_agent_a_folder() {
    let node = Node::started().await;
    let second = footplate_executor_agent::run(
        node.config.clone(),
        std::sync::Arc::new(node.broker.clone()),
        node.store.clone(),
        tokio_util::sync::CancellationToken::new(),
    );
    assert!(matches!(second.await, Err(AgentError::InUse { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_worker_logs_through_the_socket_and_finds_its_checkpoint_again() {
    const SCRIPT: &str = "import footplate, json, os\n\
        r = footplate.init()\n\
        ck = r.latest_checkpoint()\n\
        print('resumed', None if ck is None else open(ck.path).read(), flush=True)\n\
        r.log_params({'lr': 0.1, 'layers': [1, 2]})\n\
        for step in range(100):\n    r.log({'loss': 1.0 / (step + 1)}, step=step)\n\
        open('ck.txt', 'w').write('weights ' + os.environ['FOOTPLATE_ATTEMPT'])\n\
        r.save_checkpoint('ck.txt', step=100)\n\
        r.log_artifact('ck.txt', name='final.txt')\n\
        r.finish()\n";
    let mut node = Node::started().await;
    let mut document = launch("python3 train.py");
    document.env.insert("PYTHONPATH".to_owned(), repository_root().join("libs/python").display().to_string());
    let mut task = node.task(1, &document);
    task.source = Some(node.snapshot(&[("train.py", SCRIPT)]));
    node.run_member(&task).await;
    let exited = node.exited(run(1)).await;
    assert!(exited.is_success(), "{exited:?} {:?}", String::from_utf8_lossy(&node.log(run(1), 0, LogStream::Stderr).await));
    assert_eq!(node.log(run(1), 0, LogStream::Stdout).await, b"resumed None\n");
    let sessions = exited.offsets.sessions.clone();
    let metrics = || async {
        let page = footplate_eventlog::Broker::read(&node.broker, StreamName::Metrics, ">", 1, usize::MAX).await.unwrap();
        (page.messages.len() as u64 == sessions.iter().map(|session| session.batches).sum::<u64>()).then_some(page.messages)
    };
    let messages = eventually(SOON, "every batch that the exit names is in the stream", metrics).await;
    assert!(messages[0].subject.starts_with("fp.metrics.") && messages[0].subject.ends_with(".n1"), "{}", messages[0].subject);
    let reports = node.tracker_reports().await;
    assert!(reports.iter().any(|report| matches!(report, TrackerReport::Params { params, .. } if params.params.len() == 2)), "{reports:?}");
    let artifact =
        |report: &TrackerReport| matches!(report, TrackerReport::Artifacts { artifacts, .. } if artifacts[0].path.as_str() == "final.txt");
    assert!(reports.iter().any(artifact), "{reports:?}");
    assert!(exited.offsets.tracker >= reports.len() as u64);
    let executor = node.executor_reports().await;
    let stored = executor.iter().find_map(|report| match report {
        ExecutorReport::Checkpointed { checkpointed, .. } => Some(checkpointed.clone()),
        _ => None,
    });
    let stored = stored.expect("a checkpoint is reported");
    assert!(matches!(executor.last(), Some(ExecutorReport::Exited { .. })), "and before the exit");

    let mut second = task.clone();
    second.run = run(2);
    second.slots = vec![footplate_types::SlotIndex(2)];
    second.checkpoint = Some((AttemptNumber(1), stored.step, stored.manifest));
    node.run_member(&second).await;
    assert!(node.exited(run(2)).await.is_success());
    node.log_says(run(2), 0, LogStream::Stdout, "resumed weights 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_the_node_go_into_its_own_series() {
    let mut node = Node::new();
    node.config.timings.sample_every = Duration::from_millis(50);
    node.start();
    node.registered(1).await;
    let sampled = || async {
        let page = footplate_eventlog::Broker::read(&node.broker, StreamName::Metrics, "fp.metrics.*.n1", 1, usize::MAX).await.unwrap();
        let batches = page
            .messages
            .iter()
            .map(|message| <footplate_api::metrics::Batch as prost::Message>::decode(message.payload.as_ref()).unwrap());
        let batches: Vec<_> = batches.collect();
        (batches.len() >= 3).then_some(batches)
    };
    let batches = eventually(SOON, "samples arrive", sampled).await;
    assert!(batches.iter().all(|batch| batch.run == "node:n1"));
    assert_eq!(batches.iter().map(|batch| batch.n).take(3).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(batches[0].series.iter().any(|block| block.name == "host/memory_free_bytes"));
    let healthy = || async {
        let told = |report: &Report| matches!(&report.body, ReportBody::Inventory(InventoryReport::HealthChanged { changed }) if changed.gpu.is_none());
        node.reports().await.iter().any(told).then_some(())
    };
    eventually(SOON, "the node's health is told once it is registered", healthy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_last_words_are_of_a_full_gpu_ran_out_of_memory() {
    let mut node = Node::started().await;
    let said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.";
    let task = node.shell(1, &format!("echo Traceback >&2; echo '{said}' >&2; exit 1"));
    node.run_member(&task).await;
    let worker = node.exited(run(1)).await.workers.remove(0);
    assert_eq!((worker.exit, worker.out_of_memory), (Exit::Code(1), Some(MemoryKind::Accelerator)), "{}", worker.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_eats_more_memory_than_it_asked_is_killed_and_told_why() {
    let mut node = Node::started().await;
    let mut task = node.shell(1, "python3 -c 'x = bytearray(600 << 20); print(len(x))'");
    task.memory_bytes = 64 << 20;
    node.run_member(&task).await;
    let exited = node.exited(run(1)).await;
    if exited.is_success() {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    }
    assert!(exited.workers[0].message.contains("memory"), "{exited:?}");
    assert_eq!(exited.workers[0].out_of_memory, Some(MemoryKind::Machine), "{exited:?}");
    node.log_says(run(1), 0, LogStream::Platform, "memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gangs_on_one_node_meet_each_at_its_own_port_and_a_retry_at_another() {
    const SCRIPT: &str = "import os, socket, time\n\
        run, rank, at = os.environ['FOOTPLATE_RUN_ID'], os.environ['RANK'], (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n\
        if rank == '0':\n    s = socket.socket()\n    s.bind(at)\n    s.listen()\n    c, _ = s.accept()\n    c.sendall(run.encode())\n    c.close()\n\
        else:\n    for _ in range(200):\n        try:\n            c = socket.create_connection(at)\n            break\n        except OSError:\n            time.sleep(0.05)\n    \
        assert c.makefile().read() == run\n\
        print('met', flush=True)\n";
    // A stranger on the port that everybody takes by default; taken already is as good.
    let _stranger = std::net::TcpListener::bind("127.0.0.1:29500");
    let mut node = Node::started().await;
    let source = node.snapshot(&[("gang.py", SCRIPT)]);
    let gang = |node: &Node, run: u8| {
        let mut task = node.shell(run, "python3 gang.py");
        (task.workers, task.world_size) = (2, 2);
        task.source = Some(source.clone());
        task
    };
    let (first, second) = (gang(&node, 1), gang(&node, 2));
    node.assign(vec![first.clone(), second.clone()]).await;
    let (at_first, at_second) = (node.ready(run(1)).await, node.ready(run(2)).await);
    assert_ne!(at_first.port, at_second.port);
    let orders = vec![node.run_order(&first, at_first.clone()), node.run_order(&second, at_second)];
    node.assign(orders).await;
    for number in [1, 2] {
        let exited = node.exited(run(number)).await;
        assert!(exited.is_success(), "{exited:?}");
    }
    // The port of the first is in TIME_WAIT now: the next attempt is given another, and meets.
    let retry = Task { attempt: AttemptNumber(2), run: run(3), ..gang(&node, 3) };
    node.assign(vec![retry.clone()]).await;
    let again = node.ready(run(3)).await;
    assert_ne!(again.port, at_first.port);
    let order = node.run_order(&retry, again);
    node.assign(vec![order]).await;
    assert!(node.exited(run(3)).await.is_success());
}
