//! The races that need a whole platform: each makes two things happen at once that must not both count.

use crate::cluster::record::{self, assert_kept, assert_training, moves};
use crate::cluster::watcher::{Watcher, workers};
use crate::cluster::{ANY_PORT, Cluster, PATIENCE, PROJECT, TOKEN, alone, free};
use footplate_api::types::{Outcome, RunState};
use footplate_api::{Client, Target, v1};
use footplate_testkit::eventually;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

const RETRY: &str = "retry:\n  max: 20\n  on: [infra, preempted, lost, failed]\n  backoff: 100ms\n";

/// The lease is longer here, so that half of it is longer than a restart of the broker on a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_away_for_half_a_lease_costs_a_gang_nothing_and_for_two_leases_its_workers_end_by_themselves() {
    const LEASE: Duration = Duration::from_secs(6);
    let _alone = alone().await;
    let cluster = Cluster::start_with(&["n1", "n2"], &["lease.node=6s"]).await;
    let text = cluster.path().display().to_string();
    let watcher = Watcher::start(text.clone());
    let (job, kept) = cluster.training("gang", 2, RETRY);
    let run_id = cluster.submit(&job, &["job.yaml"]).await;
    assert_eq!(moves(&kept, 2, "the gang trains").await, 1);

    let began = Instant::now();
    cluster.nats.kill9().await.unwrap();
    tokio::time::sleep(LEASE / 3).await;
    cluster.nats.restart().await.unwrap();
    let away = began.elapsed();
    let attempt = moves(&kept, 2, "the gang trains on").await;
    assert!(attempt == 1 || away > LEASE / 2, "the broker was away for {away:?} and it cost an attempt");
    for node in ["n1", "n2"] {
        cluster.lease_lasts(node, LEASE * 3 / 4).await;
    }

    cluster.nats.kill9().await.unwrap();
    let began = Instant::now();
    let gone = || async { workers(&text).is_empty().then_some(()) };
    eventually(PATIENCE, "the workers end by themselves", gone).await;
    assert!(began.elapsed() > LEASE / 2, "they ended {:?} after the broker, long before their lease", began.elapsed());
    tokio::time::sleep((2 * LEASE).saturating_sub(began.elapsed())).await;
    assert!(workers(&text).is_empty(), "nothing starts without the broker");
    cluster.nats.restart().await.unwrap();
    assert_eq!(moves(&kept, 2, "it is retried once the broker is back").await, attempt + 1);

    std::fs::write(kept.join("finish"), "").unwrap();
    let run = cluster.sealed(&run_id).await;
    assert_eq!(run.outcome(), Outcome::Succeeded, "{run:?}");
    assert_training(&kept, attempt + 1, 2);
    println!("{}", assert_kept(&cluster, &run, &kept).await);
    assert_eq!(watcher.end().overlaps, [] as [String; 0]);
    assert_eq!(record::early_attempts(&cluster.events("").await), [] as [String; 0]);
}

/// Also: the stream of assignments is wiped while a gang trains, and an agent restarts while a job is prepared and launched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiped_assignments_end_nothing_and_an_agent_that_restarts_during_a_launch_starts_each_attempt_once() {
    let _alone = alone().await;
    let cluster = Cluster::start(&["n1", "n2"]).await;
    let watcher = Watcher::start(cluster.path().display().to_string());
    let (job, kept) = cluster.training("steady", 1, RETRY);
    let steady = cluster.submit(&job, &["job.yaml"]).await;
    assert_eq!(moves(&kept, 1, "it trains").await, 1);
    let busy = cluster.run(&steady).await.unwrap().attempts[0].members[0].node.clone();
    let other = if busy == "n1" { "n2" } else { "n1" };

    let answer = ask(&cluster, "$JS.API.STREAM.PURGE.ASSIGNMENTS");
    assert!(answer.contains("\"success\":true"), "{answer}");
    assert_eq!(moves(&kept, 1, "it trains on without an assignment").await, 1);

    // The set-up takes a while, so that the agent is struck in the middle of it.
    let (job, second) = cluster.training("struck", 1, &format!("setup: sleep 1\n{RETRY}"));
    let struck = cluster.submit(&job, &["job.yaml"]).await;
    let placed = || async { cluster.run(&struck).await.filter(|run| !run.attempts.is_empty()).map(drop) };
    eventually(PATIENCE, "it is placed after the wipe", placed).await;
    for _ in 0..4 {
        cluster.restart(other).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    moves(&second, 1, "it trains though its agent restarted").await;
    for kept in [&kept, &second] {
        std::fs::write(kept.join("finish"), "").unwrap();
    }
    for (run_id, kept) in [(&steady, &kept), (&struck, &second)] {
        let run = cluster.sealed(run_id).await;
        assert_eq!(run.outcome(), Outcome::Succeeded, "{run:?}");
        println!("{}", assert_kept(&cluster, &run, kept).await);
    }
    assert_eq!(cluster.run(&steady).await.unwrap().attempts.len(), 1, "the wipe cost nothing");
    assert_eq!(watcher.end().overlaps, [] as [String; 0]);
    assert_eq!(record::double_starts(&cluster.events("attempt").await), [] as [String; 0]);
    cluster.assert_rebuild_equal().await;
}

/// One request to the broker in its plain text protocol.
fn ask(cluster: &Cluster, subject: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", cluster.nats.port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer 0\r\n\r\nPING\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    lines.find(|line| line.as_ref().unwrap().starts_with("MSG answer 1 ")).unwrap().unwrap();
    lines.next().unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_at_two_schedulers_at_once_is_one_run_and_a_cancel_against_exit_0_has_one_outcome() {
    let _alone = alone().await;
    let cluster = Cluster::start(&["n1"]).await;
    let listen = free();
    cluster.add("scheduler-2", &["serve", "scheduler", "--listen", &listen.to_string(), "--admin", ANY_PORT]);
    let other = Client::connect(Target::new(listen.to_string()).token(TOKEN)).unwrap();
    let up = || async { other.jobs().list_jobs(v1::ListJobsRequest::default()).await.ok().map(drop) };
    eventually(PATIENCE, "the second scheduler answers", up).await;

    one_key(&cluster, &other).await;
    cancels(&cluster).await;
    let events = cluster.events("").await;
    assert_eq!(record::double_claims(&events), [] as [String; 0]);
    assert_eq!(record::early_attempts(&events), [] as [String; 0]);
    cluster.assert_rebuild_equal().await;
}

async fn one_key(cluster: &Cluster, other: &Client) {
    let (job, _) = cluster.training("keyed", 1, "");
    let first = cluster.submit(&job, &["--request-id", "once", "--name", "keyed", "--no-source", "--", "true"]).await;
    let spec = cluster
        .client
        .once(cluster.client.jobs().get_job(v1::GetJobRequest { project: PROJECT.to_owned(), run_id: first, at_least: 0 }))
        .await;
    let spec = spec.unwrap().job.unwrap().spec;
    let mut runs = BTreeSet::new();
    for key in 0..10 {
        let request = |name: &str| {
            let mut spec = spec.clone().unwrap();
            spec.name = name.to_owned();
            v1::SubmitJobRequest { project: PROJECT.to_owned(), spec: Some(spec), request_id: format!("key-{key}"), ..Default::default() }
        };
        let submit = async |client: &Client, name: &str| client.safely(|| async { client.jobs().submit_job(request(name)).await }).await;
        let (one, two) = tokio::join!(submit(&cluster.client, "keyed"), submit(other, "keyed"));
        assert_eq!(one.as_ref().unwrap().run_id, two.as_ref().unwrap().run_id);
        runs.insert(one.unwrap().run_id);
        let refused = submit(other, "another body").await.unwrap_err();
        assert_eq!(refused.exit(), footplate_service::Exit::Refused, "{refused}");
    }
    assert_eq!(runs.len(), 10);
    let events = cluster.events("job").await;
    let submitted: Vec<_> =
        events.iter().filter(|event| event.r#type == "footplate.job.submitted.v1").map(|event| &event.aggregate_id).collect();
    assert_eq!(submitted.len(), 11, "one event a run: {submitted:?}");
    for run_id in &runs {
        assert_eq!(cluster.sealed(run_id).await.outcome(), Outcome::Succeeded);
    }
}

/// Short jobs, each cancelled at about the moment of its end: whoever came first decides, once, and the record says which.
async fn cancels(cluster: &Cluster) {
    let mut outcomes = BTreeSet::new();
    for number in 0..12 {
        let name = format!("short-{number}");
        let (job, _) = cluster.training("short", 1, "");
        let run_id = cluster.submit(&job, &["--name", &name, "--no-source", "--", "sh", "-c", "trap '' TERM; sleep 0.4"]).await;
        let running =
            || async { cluster.run(&run_id).await.filter(|run| run.state() != RunState::Pending && !run.started_at.is_empty()).map(drop) };
        eventually(PATIENCE, "it runs", running).await;
        tokio::time::sleep(Duration::from_millis(60 * number)).await;
        let cancel = cluster.footplate(cluster.path(), &["run", "cancel", &run_id]).await;
        let run = cluster.sealed(&run_id).await;
        let told = String::from_utf8_lossy(&cancel.stderr).into_owned();
        assert!([Some(0), Some(4)].contains(&cancel.status.code()), "{cancel:?}");
        let obeyed = obeyed_and_ends(cluster, &run_id).await;
        match run.outcome() {
            Outcome::Succeeded => assert!(!obeyed, "a success that obeyed a stop"),
            Outcome::Cancelled => assert!(obeyed && cancel.status.success(), "cancelled by nobody: {told}"),
            other => panic!("{other:?}: {run:?}"),
        }
        outcomes.insert(format!("{:?}", run.outcome()));
    }
    println!("outcomes of cancel against exit 0: {outcomes:?}");
}

/// Whether a member obeyed a stop; that the job ended once is checked on the way.
async fn obeyed_and_ends(cluster: &Cluster, run_id: &str) -> bool {
    let events: Vec<_> = cluster.events("").await.into_iter().filter(|event| event.aggregate_id.starts_with(run_id)).collect();
    assert_eq!(events.iter().filter(|event| event.r#type == "footplate.job.ended.v1").count(), 1);
    let exits = events.iter().filter(|event| event.r#type == "footplate.attempt.exited.v1");
    let members = exits.flat_map(|event| serde_json::from_str::<Value>(&event.data).unwrap()["members"].as_array().cloned().unwrap());
    members.into_iter().any(|member| member["obeyed"].is_string())
}
