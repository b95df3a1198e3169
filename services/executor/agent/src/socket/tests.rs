//! The socket from a client's side: what is answered is kept, what is kept is answered once.

use super::*;
use crate::{
    record::{Batch, unpack},
    spool::SpoolOptions,
};
use footplate_events::{
    facts::StopCause,
    messages::{ExecutorReport, MemberRef, ReportBody, TrackerReport},
};
use footplate_testkit::eventually;
use footplate_types::{Digest, ProjectName, Rank, SessionId};
use futures::future::BoxFuture;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

const SOON: Duration = Duration::from_secs(10);

/// A folder as the object store, which may be away.
struct Folder {
    dir: PathBuf,
    away: AtomicBool,
    refuses: AtomicBool,
}

impl BlobAccess for Folder {
    fn put<'a>(&'a self, _: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(async move {
            if self.away.load(Ordering::SeqCst) {
                return Err(BlobError::Unavailable("away".to_owned()));
            }
            if self.refuses.load(Ordering::SeqCst) {
                return Err(BlobError::Refused("no such project".to_owned()));
            }
            let bytes = fs::read(file).unwrap();
            assert_eq!((Digest::of(&bytes), bytes.len() as u64), (blob.digest, blob.bytes));
            fs::write(self.dir.join(blob.digest.to_string()), bytes).unwrap();
            Ok(())
        })
    }

    fn get<'a>(&'a self, _: &'a ProjectName, blob: DocumentRef, file: &'a Path) -> BoxFuture<'a, Result<(), BlobError>> {
        Box::pin(async move {
            let bytes = fs::read(self.dir.join(blob.digest.to_string())).map_err(|_| BlobError::NotFound(blob.digest.to_string()))?;
            fs::write(file, bytes).map_err(|error| BlobError::Refused(error.to_string()))
        })
    }
}

/// The agent's socket over folders that outlive it.
struct Node {
    root: PathBuf,
    intake: Arc<Intake>,
    desk: Arc<Desk>,
    store: Arc<Folder>,
    life: CancellationToken,
}

fn of() -> MemberRef {
    MemberRef {
        project: ProjectName::parse("vision").unwrap(),
        run: RunId::from_bytes([1; 16]),
        attempt: AttemptNumber(2),
        member: MemberIndex(0),
    }
}

impl Node {
    async fn start(root: &Path) -> Self {
        Self::start_with(root, SpoolOptions::default(), None).await
    }

    async fn start_with(root: &Path, options: SpoolOptions, checkpoint: Option<(AttemptNumber, i64, DocumentRef)>) -> Self {
        let life = CancellationToken::new();
        let spool = |name: &'static str| {
            let open = move || async move { Spool::open(&root.join(name), options, footplate_clock::spool_id).ok() };
            eventually(SOON, "the spool is free", open)
        };
        let spools = Spools {
            executor: spool("executor").await,
            tracker: spool("tracker").await,
            inventory: spool("inventory").await,
            logs: spool("logs").await,
            metrics: spool("metrics").await,
        };
        let store = Arc::new(Folder { dir: root.join("store"), away: AtomicBool::new(false), refuses: AtomicBool::new(false) });
        fs::create_dir_all(&store.dir).unwrap();
        let node = NodeName::parse("n1").unwrap();
        let intake = Intake::new(node, spools, store.clone(), IntakeLimits::default(), life.clone());
        let dir = root.join("member");
        fs::create_dir_all(&dir).unwrap();
        let config = DeskConfig { of: of(), dir, first_rank: Rank(0), workers: 2, checkpoint, traceparent: None };
        let desk = intake.open_desk(config).unwrap();
        intake.recover().await.unwrap();
        let path = root.join("agent.sock");
        tokio::spawn(accept(intake.clone(), listen(&path).unwrap()));
        Self { root: root.to_owned(), intake, desk, store, life }
    }

    /// As after `kill -9`: nothing is written on the way out.
    fn kill(self) {
        self.life.cancel();
    }

    async fn connect(&self) -> Client {
        let path = self.root.join("agent.sock");
        let stream = eventually(SOON, "the socket is there", || async { UnixStream::connect(&path).await.ok() }).await;
        Client { stream: BufReader::new(stream) }
    }

    async fn hello(&self, session: u8) -> (Client, u64) {
        let mut client = self.connect().await;
        client
            .say(json!({"v": 1, "op": "hello", "run": of().run, "attempt": 2, "rank": 1, "session": SessionId::from_bytes([session; 16])}))
            .await;
        let answer = client.hear().await.unwrap();
        assert_eq!(answer["ok"], true, "{answer}");
        let acked = answer["acked"].as_u64().unwrap();
        (client, acked)
    }

    async fn batches(&self) -> Vec<Batch> {
        let entries = self.intake.spools.metrics.read_from(1, usize::MAX).await.unwrap();
        entries.iter().map(|entry| Batch::decode(unpack::<MetricHeader>(&entry.payload).unwrap().1).unwrap()).collect()
    }

    async fn points(&self) -> Vec<i64> {
        let batches = self.batches().await;
        batches.iter().flat_map(|batch| footplate_series::codec::decode(&batch.series[0].points).unwrap()).map(|point| point.step).collect()
    }

    async fn reports(&self, spool: &Spool) -> Vec<ReportBody> {
        let entries = spool.read_from(1, usize::MAX).await.unwrap();
        entries.iter().map(|entry| StoredReport::from_bytes(&entry.payload).unwrap().body).collect()
    }
}

struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    async fn say(&mut self, line: Value) {
        self.raw(format!("{line}\n").as_bytes()).await;
    }

    async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes).await;
    }

    /// The next answer; `None` when the agent has closed.
    async fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = tokio::time::timeout(SOON, self.stream.read_line(&mut line)).await.unwrap();
        if read.unwrap_or(0) == 0 { None } else { Some(serde_json::from_str(&line).unwrap()) }
    }

    async fn metric(&mut self, n: u64) {
        self.say(json!({"op": "metrics", "n": n, "points": [["loss", n, 0, 0.5]]})).await;
    }

    async fn acked(&mut self, n: u64) {
        loop {
            let answer = self.hear().await.unwrap();
            if answer["ack"].as_u64().unwrap_or_else(|| panic!("{answer}")) >= n {
                return;
            }
        }
    }
}

#[tokio::test]
async fn what_was_answered_survives_a_kill_and_what_was_not_is_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut client, acked) = node.hello(7).await;
    assert_eq!(acked, 0);
    for n in 1..=40 {
        client.metric(n).await;
    }
    client.say(json!({"op": "params", "n": 41, "params": {"lr": 0.1}})).await;
    client.metric(42).await;
    client.acked(42).await;
    node.kill();
    let node = Node::start(dir.path()).await;
    let (mut client, acked) = node.hello(7).await;
    assert_eq!(acked, 42);
    // The client was not sure of 41 and 42: repeats do nothing.
    client.metric(42).await;
    assert_eq!(client.hear().await.unwrap(), json!({"ack": 42}));
    client.metric(43).await;
    client.acked(43).await;
    assert_eq!(node.points().await, (1..=40).chain(42..=43).collect::<Vec<i64>>());
    let batches = node.batches().await;
    assert_eq!(batches.iter().map(|batch| batch.n).collect::<Vec<_>>(), (1..=batches.len() as u64).collect::<Vec<_>>());
    assert_eq!(node.reports(&node.intake.spools.tracker).await.len(), 1);
    let ends = node.desk.session_ends();
    assert_eq!((ends.len(), ends[0].rank, ends[0].batches), (1, Rank(1), batches.len() as u64));
}

#[tokio::test]
async fn progress_survives_the_trimming_of_the_spools() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut client, _) = node.hello(7).await;
    client.metric(1).await;
    client.acked(1).await;
    node.intake.write_sessions().unwrap();
    node.intake.spools.metrics.trim(1).await.unwrap();
    node.kill();
    let node = Node::start(dir.path()).await;
    assert_eq!(node.hello(7).await.1, 1);
    assert_eq!(node.desk.session_ends()[0].batches, 1);
}

#[tokio::test]
async fn sessions_that_many_write_at_once_are_whole_and_those_of_a_forgotten_member_are_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut client, _) = node.hello(7).await;
    client.metric(1).await;
    client.acked(1).await;
    let write = || (0..25).for_each(|_| node.intake.write_sessions().unwrap());
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(write))));
    std::fs::remove_dir_all(&node.desk.config.dir).unwrap();
    node.intake.write_sessions().unwrap();
}

#[tokio::test]
async fn a_refusal_is_final_also_after_a_kill_and_leaves_no_gap() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut client, _) = node.hello(7).await;
    client.metric(1).await;
    client.say(json!({"op": "metrics", "n": 2, "points": [["ok", 1, 0, 1], ["loss", 1.5, 0, 1]]})).await;
    client.say(json!({"op": "teleport", "n": 3})).await;
    client.acked(1).await;
    let refusal = client.hear().await.unwrap();
    assert_eq!((refusal["error"]["n"].as_u64(), refusal["error"]["code"].as_str()), (Some(2), Some("INVALID_ARGUMENT")));
    assert_eq!(client.hear().await.unwrap()["error"]["code"], "UNKNOWN_OP");
    node.kill();
    let node = Node::start(dir.path()).await;
    assert_eq!(node.hello(7).await.1, 3);
    assert_eq!(node.points().await, [1], "nothing of the refused op was stored");
}

#[tokio::test]
async fn what_breaks_the_protocol_is_told_and_closed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let long = format!("{}\n", "x".repeat(1 << 20));
    for (line, code) in [("{\"op\":\"finish\",\"n\":9}\n", "OUT_OF_ORDER"), ("nonsense\n", "MALFORMED"), (long.as_str(), "LINE_TOO_LONG")] {
        let (mut client, _) = node.hello(7).await;
        client.raw(line.as_bytes()).await;
        assert_eq!(client.hear().await.unwrap()["error"]["code"], code);
        assert_eq!(client.hear().await, None, "{code}");
    }
    for (change, code) in [
        (json!({"v": 9}), "VERSION_UNSUPPORTED"),
        (json!({"run": "ee".repeat(16)}), "UNKNOWN_RUN"),
        (json!({"attempt": 1}), "WRONG_ATTEMPT"),
        (json!({"rank": 5}), "MALFORMED"),
    ] {
        let mut hello = json!({"v": 1, "op": "hello", "run": of().run, "attempt": 2, "rank": 0, "session": "ab".repeat(16)});
        for (field, value) in change.as_object().unwrap() {
            hello[field] = value.clone();
        }
        let mut client = node.connect().await;
        client.say(hello).await;
        assert_eq!(client.hear().await.unwrap()["error"]["code"], code);
        assert_eq!(client.hear().await, None, "{code}");
    }
}

#[tokio::test]
async fn the_last_connection_of_a_session_is_the_one_that_counts() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut old, _) = node.hello(7).await;
    old.metric(1).await;
    old.acked(1).await;
    let (mut new, acked) = node.hello(7).await;
    assert_eq!(acked, 1);
    assert_eq!(old.hear().await, None, "the older one is closed");
    let (mut other, _) = node.hello(8).await;
    new.metric(2).await;
    new.acked(2).await;
    other.metric(1).await;
    other.acked(1).await;
}

#[tokio::test]
async fn artifacts_are_answered_when_durable_and_reported_when_stored() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    node.store.away.store(true, Ordering::SeqCst);
    let source = dir.path().join("plots");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/a.png"), b"a").unwrap();
    fs::write(source.join("b.png"), b"b").unwrap();
    let (mut client, _) = node.hello(7).await;
    client.say(json!({"op": "artifact", "n": 1, "path": source, "name": "figures"})).await;
    client.say(json!({"op": "artifact", "n": 2, "path": dir.path().join("absent"), "name": "x"})).await;
    let answer = client.hear().await.unwrap();
    assert_eq!(answer["ack"], 1);
    assert!(answer["digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(client.hear().await.unwrap()["error"]["code"], "NOT_FOUND");
    fs::remove_dir_all(&source).unwrap();
    node.kill();
    let node = Node::start(dir.path()).await;
    assert!(node.desk.uploaded(SOON).await, "what was answered before the kill is stored after it");
    let reports = node.reports(&node.intake.spools.tracker).await;
    let [ReportBody::Tracker(TrackerReport::Artifacts { artifacts, .. })] = reports.as_slice() else { panic!("{reports:?}") };
    let named: Vec<_> = artifacts.iter().map(|artifact| (artifact.path.as_str(), artifact.digest, artifact.rank)).collect();
    assert_eq!(named, [("figures/b.png", Digest::of(b"b"), Rank(1)), ("figures/sub/a.png", Digest::of(b"a"), Rank(1))]);
    eventually(SOON, "the staging is empty", || async { fs::read_dir(node.desk.staged()).unwrap().next().is_none().then_some(()) }).await;
}

/// Names of the artifacts reported, in the order of the reports.
async fn reported_artifacts(node: &Node) -> Vec<String> {
    let reports = node.reports(&node.intake.spools.tracker).await;
    let named = reports.into_iter().flat_map(|report| match report {
        ReportBody::Tracker(TrackerReport::Artifacts { artifacts, .. }) => artifacts,
        other => panic!("{other:?}"),
    });
    named.map(|artifact| artifact.path.to_string()).collect()
}

#[tokio::test]
async fn while_the_store_is_away_few_uploads_are_held_in_memory_and_all_go_in_their_order_when_it_is_back() {
    let count = 2 * uploads::HELD_MOST as u64 + 7;
    let names: Vec<String> = (1..=count).map(|n| format!("plot-{n}")).collect();
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    node.store.away.store(true, Ordering::SeqCst);
    let source = dir.path().join("plot");
    let (mut client, _) = node.hello(7).await;
    for (n, name) in (1..).zip(&names) {
        fs::write(&source, name).unwrap();
        client.say(json!({"op": "artifact", "n": n, "path": source, "name": name})).await;
        client.acked(n).await;
    }
    assert_eq!(node.desk.uploads.pending(), names.len(), "all was acknowledged, nothing is stored");
    assert!(node.desk.uploads.held() <= uploads::HELD_MOST);
    node.kill();
    // After the restart the same, then the store is back while more is staged.
    let node = Node::start(dir.path()).await;
    assert!(node.desk.uploads.held() <= uploads::HELD_MOST);
    let (mut client, acked) = node.hello(7).await;
    assert_eq!(acked, count);
    let last = count + 1;
    client.say(json!({"op": "artifact", "n": last, "path": source, "name": "last"})).await;
    client.acked(last).await;
    assert!(node.desk.uploaded(3 * SOON).await);
    let expected: Vec<String> = names.into_iter().chain(["last".to_owned()]).collect();
    assert_eq!(reported_artifacts(&node).await, expected);
    assert_eq!(close_desk(&node.desk, Duration::ZERO, SOON).await.lacking.len(), 1, "only the connection that is still open");
    eventually(SOON, "the staging is empty", || async { fs::read_dir(node.desk.staged()).unwrap().next().is_none().then_some(()) }).await;
}

#[tokio::test]
async fn what_is_refused_for_good_is_not_read_from_the_disk_again_and_holds_up_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    node.store.away.store(true, Ordering::SeqCst);
    let source = dir.path().join("plot");
    let (mut client, _) = node.hello(7).await;
    let count = uploads::HELD_MOST as u64 + 5;
    for n in 1..=count {
        fs::write(&source, n.to_string()).unwrap();
        client.say(json!({"op": "artifact", "n": n, "path": source, "name": format!("plot-{n}")})).await;
        client.acked(n).await;
    }
    node.store.refuses.store(true, Ordering::SeqCst);
    node.store.away.store(false, Ordering::SeqCst);
    assert!(node.desk.uploaded(3 * SOON).await);
    let named: std::collections::BTreeSet<String> = node.desk.lacking().into_iter().collect();
    assert_eq!(named.len(), footplate_events::facts::INCOMPLETE_MAX, "none is named twice");
    node.store.refuses.store(false, Ordering::SeqCst);
    client.say(json!({"op": "artifact", "n": count + 1, "path": source, "name": "after"})).await;
    client.acked(count + 1).await;
    assert!(node.desk.uploaded(SOON).await);
    assert_eq!(reported_artifacts(&node).await, ["after"]);
    assert_eq!(fs::read_dir(node.desk.staged()).unwrap().count(), count as usize, "they stay");
}

#[tokio::test]
async fn a_checkpoint_is_the_latest_at_once_and_another_attempt_finds_it_in_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut client, _) = node.hello(7).await;
    client.say(json!({"op": "latest_checkpoint", "id": 5})).await;
    assert_eq!(client.hear().await.unwrap(), json!({"id": 5, "checkpoint": null}));
    let source = dir.path().join("ck.bin");
    for (n, step) in [(1, 100), (2, 200)] {
        fs::write(&source, format!("step {step}")).unwrap();
        client.say(json!({"op": "checkpoint", "n": n, "path": source, "step": step, "metadata": {"epoch": 3}})).await;
        let answer = client.hear().await.unwrap();
        assert_eq!(answer["digest"], format!("sha256:{}", Digest::of(format!("step {step}").as_bytes())));
    }
    client.say(json!({"op": "latest_checkpoint", "id": 6})).await;
    let told = client.hear().await.unwrap()["checkpoint"].clone();
    assert_eq!((told["step"].as_i64(), told["metadata"]["epoch"].as_i64()), (Some(200), Some(3)));
    assert_eq!(fs::read_to_string(told["path"].as_str().unwrap()).unwrap(), "step 200");
    assert!(node.desk.uploaded(SOON).await);
    let reports = node.reports(&node.intake.spools.executor).await;
    let [.., ReportBody::Executor(ExecutorReport::Checkpointed { checkpointed, .. })] = reports.as_slice() else { panic!("{reports:?}") };
    let prior = Some((AttemptNumber(1), checkpointed.step, checkpointed.manifest));

    let other = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&node.store.dir, other.path().join("store")).unwrap();
    let later = Node::start_with(other.path(), SpoolOptions::default(), prior).await;
    let (mut client, _) = later.hello(9).await;
    client.say(json!({"op": "latest_checkpoint", "id": 1})).await;
    let told = client.hear().await.unwrap()["checkpoint"].clone();
    assert_eq!(told["step"], 200);
    assert_eq!(fs::read_to_string(told["path"].as_str().unwrap()).unwrap(), "step 200");
}

#[tokio::test]
async fn what_is_refused_for_good_stays_here_and_is_named_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut client, _) = node.hello(7).await;
    let source = dir.path().join("file");
    let mut staged = Vec::new();
    for (n, op) in [(1, "checkpoint"), (2, "checkpoint"), (3, "artifact")] {
        fs::write(&source, op).unwrap();
        client.say(json!({"op": op, "n": n, "path": source, "name": "model.pt", "step": n * 100})).await;
        client.acked(n).await;
        assert!(node.desk.uploaded(SOON).await);
        node.store.refuses.store(true, Ordering::SeqCst);
        staged.push(node.desk.staged().join(format!("{}-{n}", SessionId::from_bytes([7; 16]))));
    }
    for kept in &staged {
        assert!(kept.join("op.json").exists(), "{}", kept.display());
    }
    assert!(staged[0].join("done").exists() && !staged[1].join("done").exists());
    drop(client);
    assert!(node.desk.holds_the_only_copy());
    let closed = close_desk(&node.desk, SOON, SOON).await;
    assert_eq!(
        closed.lacking,
        ["checkpoint of step 200 (object store refused: no such project)", "artifact model.pt (object store refused: no such project)"]
    );
}

#[tokio::test]
async fn a_stop_is_pushed_to_who_is_there_and_told_to_who_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut early, _) = node.hello(7).await;
    early.say(json!({"op": "stop?", "id": 1})).await;
    assert_eq!(early.hear().await.unwrap(), json!({"id": 1, "stop": null}));
    node.desk.announce_stop(StandingStop { cause: StopCause::Preempted, kill_at: std::time::Instant::now() + Duration::from_secs(30) });
    for mut client in [early, node.hello(8).await.0] {
        let stop = client.hear().await.unwrap()["stop"].clone();
        assert_eq!(stop["cause"], "preempted");
        assert!((20_000..=30_000).contains(&stop["grace_ms"].as_u64().unwrap()), "{stop}");
    }
}

#[tokio::test]
async fn what_a_dying_process_left_in_the_socket_is_taken_in_before_the_desk_closes() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path()).await;
    let (mut client, _) = node.hello(7).await;
    for n in 1..=200 {
        client.metric(n).await;
    }
    drop(client);
    let closed = close_desk(&node.desk, SOON, SOON).await;
    assert_eq!(closed.lacking, [] as [&str; 0]);
    assert_eq!(node.points().await.len(), 200);
    assert_eq!(closed.sessions.len(), 1);
    let mut late = node.connect().await;
    late.say(json!({"v": 1, "op": "hello", "run": of().run, "attempt": 2, "rank": 0, "session": "ab".repeat(16)})).await;
    assert_eq!(late.hear().await.unwrap()["error"]["code"], "WRONG_ATTEMPT");
}

#[tokio::test]
async fn a_full_spool_makes_the_client_wait_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let small = SpoolOptions { max_bytes: 4_096, segment_bytes: 1_024, ..SpoolOptions::default() };
    let node = Node::start_with(dir.path(), small, None).await;
    let (mut client, _) = node.hello(7).await;
    let mut answered = 0;
    for n in 1..=60 {
        client.metric(n).await;
        let mut line = String::new();
        match tokio::time::timeout(Duration::from_millis(300), client.stream.read_line(&mut line)).await {
            Ok(_) => answered = n,
            Err(_) => break,
        }
    }
    assert!(answered > 0 && answered < 60, "{answered}");
    let kept = node.points().await;
    assert_eq!(kept, (1..=answered as i64).collect::<Vec<_>>());
    node.intake.spools.metrics.trim(answered).await.unwrap();
    client.acked(answered + 1).await;
}
