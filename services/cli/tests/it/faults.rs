//! The kill test: everything that can die dies in the middle of a gang's training and of a sweep, in an order that a seed decides, and nothing is
//! lost, doubled or run twice. Once over folders, once over the real engines, which die as well.
//!
//! `FOOTPLATE_SOAK_ROUNDS=10` runs so many rounds of fresh seeds; `FOOTPLATE_SOAK_SEED=N` runs the one round of that seed again.

use crate::cluster::engines::Engines;
use crate::cluster::record::{self, assert_kept, assert_training, moves};
use crate::cluster::search::{Search, TRIALS};
use crate::cluster::versions::Versions;
use crate::cluster::watcher::{Watcher, workers};
use crate::cluster::{Cluster, PATIENCE, SERVICES, alone};
use footplate_api::types::Outcome;
use footplate_testkit::{Signal, eventually};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The seeds of the rounds that run with every test.
const SEED: u64 = 20_260_801;
const SEED_OF_ENGINES: u64 = 20_261_130;
/// A slot of each node for the gang, and one that trials and rivals want; and a seal waits for as long as any server may take to come back.
const SETTINGS: [&str; 2] = ["agent.slots=2", "tracker.seal-within=10m"];
/// Longer than lease, kill time and margin of a node together: a stalled agent is fenced.
const STALL: Duration = Duration::from_millis(8_500);
/// How long the S3 server is away; a Cassandra takes longer than that to start.
const AWAY: Duration = Duration::from_secs(4);
/// A trial takes 40 times as long.
const STEP_MS: u32 = 100;
const NODES: [&str; 2] = ["n1", "n2"];
/// Every cause is retried, more often than there are faults.
const RETRY: &str = "queue:\n  priority: 5\nretry:\n  max: 20\n  on: [infra, preempted, lost, failed]\n  backoff: 100ms\n";

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A service is killed and started again.
    Service(&'static str),
    /// An agent is killed and started again.
    Agent(&'static str),
    /// A worker is killed.
    Worker(u32),
    /// The broker is killed and started again on its store.
    Broker,
    /// An agent stands still past its lease, then goes on.
    Stall(&'static str),
    /// The Cassandra of the series is killed, and started again while others are struck.
    Series,
    /// The S3 server of the objects is killed, and started again while others are struck.
    Objects,
}

/// A small generator: the same seed gives the same round, for ever.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

fn faults(dice: &mut Dice, engines: bool) -> Vec<Fault> {
    let mut faults: Vec<Fault> = SERVICES.into_iter().map(Fault::Service).collect();
    let node = |dice: &mut Dice| NODES[dice.below(2) as usize];
    faults.extend([Fault::Agent(node(dice)), Fault::Worker(dice.below(2) as u32), Fault::Broker, Fault::Stall(node(dice))]);
    if engines {
        faults.extend([Fault::Series, Fault::Objects]);
    }
    for at in (1..faults.len()).rev() {
        faults.swap(at, dice.below(at as u64 + 1) as usize);
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_run_twice_whatever_is_killed() {
    let _alone = alone().await;
    for seed in seeds(SEED) {
        round(seed, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_real_engines_too_nothing_is_lost_doubled_or_run_twice_whatever_is_killed() {
    let _alone = alone().await;
    let engines = Arc::new(Engines::start().await);
    for seed in seeds(SEED_OF_ENGINES) {
        round(seed, Some(engines.clone())).await;
    }
}

fn seeds(fixed: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match (number("FOOTPLATE_SOAK_SEED"), number("FOOTPLATE_SOAK_ROUNDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(rounds)) => (0..rounds).map(|_| fresh_seed()).collect(),
        (None, None) => vec![fixed],
    }
}

fn fresh_seed() -> u64 {
    let entropy: [u8; 32] = footplate_clock::entropy();
    u64::from_le_bytes(entropy[..8].try_into().unwrap()) >> 16
}

async fn round(seed: u64, engines: Option<Arc<Engines>>) {
    let began = Instant::now();
    let mut dice = Dice(seed);
    let faults = faults(&mut dice, engines.is_some());
    println!("seed {seed} (again: FOOTPLATE_SOAK_SEED={seed}): {faults:?}");
    let own = engines.as_ref().map(|engines| engines.settings()).unwrap_or_default();
    let settings: Vec<&str> = SETTINGS.into_iter().chain(own.iter().map(String::as_str)).collect();
    let cluster = Cluster::start_with(&NODES, &settings).await;
    println!("{:>6} ms the platform is ready", began.elapsed().as_millis());
    let watcher = Watcher::start(cluster.path().display().to_string());
    let mut versions = Versions::begin(&cluster).await;
    let (job, kept) = cluster.training("gang", 2, RETRY);
    let run_id = cluster.submit(&job, &["job.yaml"]).await;
    let search = Search::begin(&cluster, "search", seed, 2, STEP_MS).await;
    let mut rivals = Vec::new();
    for number in 0..2 {
        let name = format!("rival-{number}");
        let words = ["--name", &name, "--no-source", "--set", "retry.max=20", "--set", "retry.on=[infra,lost,failed]", "--", "sleep", "1"];
        rivals.push(cluster.submit(&job, &words).await);
    }
    moves(&kept, NODES.len(), "the gang trains").await;
    let mut restarts = JoinSet::new();
    for fault in &faults {
        strike(&cluster, engines.as_ref(), &mut restarts, *fault, &run_id).await;
        versions.register(&cluster, &format!("after {fault:?}")).await;
        tokio::time::sleep(Duration::from_millis(dice.below(700))).await;
        if dice.below(3) == 0 {
            println!("{:>6} ms {fault:?}: the next one follows at once", began.elapsed().as_millis());
            continue;
        }
        moves(&kept, NODES.len(), &format!("the gang trains after {fault:?}")).await;
        println!("{:>6} ms {fault:?}: it trains", began.elapsed().as_millis());
    }
    restarts.join_all().await;
    let found = search.look(&cluster).await.map(|sweep| sweep.complete);
    println!("{:>6} ms everything was struck and is back; complete trials: {found:?} of {TRIALS}", began.elapsed().as_millis());
    moves(&kept, NODES.len(), "the gang trains after everything").await;
    std::fs::write(kept.join("finish"), "").unwrap();
    search.hurry();
    let run = cluster.sealed(&run_id).await;
    println!("{:>6} ms sealed, missing: {:?}, attempts: {}", began.elapsed().as_millis(), run.seal_missing, run.attempts.len());
    assert_eq!(run.outcome(), Outcome::Succeeded, "{run:?}");
    for rival in &rivals {
        assert_eq!(cluster.sealed(rival).await.outcome(), Outcome::Succeeded);
    }
    cluster.nodes_ready(&NODES).await;
    assert_training(&kept, run.attempts.last().unwrap().attempt, NODES.len());
    println!("       {}", assert_kept(&cluster, &run, &kept).await);
    println!("       {}", search.assert_undisturbed(&cluster, seed).await);
    println!("       {} versions as they were acknowledged", versions.assert_kept(&cluster).await);
    let events = cluster.events("").await;
    assert_eq!(search.wrong_events(&events), [] as [String; 0]);
    assert_eq!(record::not_once(&events), [] as [String; 0]);
    let submitted = events.iter().filter(|event| event.r#type == "footplate.job.submitted.v1").count();
    assert_eq!(submitted, 1 + rivals.len() + 2 * TRIALS, "the gang, its rivals, the trials of both sweeps");
    assert_eq!(record::double_claims(&events), [] as [String; 0]);
    assert_eq!(record::early_attempts(&events), [] as [String; 0]);
    assert_eq!(record::double_starts(&events), [] as [String; 0]);
    let seen = watcher.end();
    assert_eq!(seen.overlaps, [] as [String; 0]);
    assert!(seen.attempts[&run_id].len() > 1, "faults end attempts: {seen:?}");
    cluster.assert_rebuild_equal().await;
    cluster.assert_all_up();
    println!("{:>6} ms {} events, {} looks at processes: all is well", began.elapsed().as_millis(), events.len(), seen.looks);
}

async fn strike(cluster: &Cluster, engines: Option<&Arc<Engines>>, restarts: &mut JoinSet<()>, fault: Fault, run_id: &str) {
    match fault {
        Fault::Service(name) | Fault::Agent(name) => cluster.restart(name).await,
        Fault::Broker => cluster.nats.restart().await.unwrap(),
        Fault::Stall(node) => {
            cluster.part(node).pause().unwrap();
            tokio::time::sleep(STALL).await;
            cluster.part(node).resume().unwrap();
        }
        Fault::Series => {
            let engines = engines.unwrap().clone();
            engines.series.kill9().await.unwrap();
            restarts.spawn(async move { engines.series.restart().await.unwrap() });
        }
        Fault::Objects => {
            let engines = engines.unwrap().clone();
            engines.objects.kill9().await.unwrap();
            restarts.spawn(async move {
                tokio::time::sleep(AWAY).await;
                engines.objects.restart().await.unwrap();
            });
        }
        Fault::Worker(rank) => {
            let (text, rank) = (cluster.path().display().to_string(), rank.to_string());
            let find = || async {
                workers(&text).into_iter().map(|(run, _, process)| (run, process)).find(|(run, process)| {
                    run == run_id && process.variable("RANK") == Some(&rank) && process.argv.iter().any(|word| word == "worker.py")
                })
            };
            let (_, process) = eventually(PATIENCE, "there is a worker to kill", find).await;
            let pid = rustix::process::Pid::from_raw(process.pid.cast_signed()).unwrap();
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
