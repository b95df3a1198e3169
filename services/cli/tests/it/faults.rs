//! The kill test: everything that can die dies in the middle of a gang's training, in an order that a seed decides, and nothing is lost,
//! doubled or run twice.
//!
//! `FOOTPLATE_SOAK_ROUNDS=10` runs so many rounds of fresh seeds; `FOOTPLATE_SOAK_SEED=N` runs the one round of that seed again.

use crate::cluster::record::{self, assert_kept, assert_training, moves};
use crate::cluster::watcher::{Watcher, workers};
use crate::cluster::{Cluster, PATIENCE, SERVICES, alone};
use footplate_api::types::Outcome;
use footplate_testkit::{Signal, eventually};
use std::time::{Duration, Instant};

/// The seed of the round that runs with every test.
const SEED: u64 = 20_260_801;
/// Longer than lease, kill time and margin of a node together: a stalled agent is fenced.
const STALL: Duration = Duration::from_millis(8_500);
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

fn faults(dice: &mut Dice) -> Vec<Fault> {
    let mut faults: Vec<Fault> = SERVICES.into_iter().map(Fault::Service).collect();
    let node = |dice: &mut Dice| NODES[dice.below(2) as usize];
    faults.extend([Fault::Agent(node(dice)), Fault::Worker(dice.below(2) as u32), Fault::Broker, Fault::Stall(node(dice))]);
    for at in (1..faults.len()).rev() {
        faults.swap(at, dice.below(at as u64 + 1) as usize);
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_run_twice_whatever_is_killed() {
    let _alone = alone().await;
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match (number("FOOTPLATE_SOAK_SEED"), number("FOOTPLATE_SOAK_ROUNDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(rounds)) => (0..rounds).map(|_| fresh_seed()).collect(),
        (None, None) => vec![SEED],
    };
    for seed in seeds {
        round(seed).await;
    }
}

fn fresh_seed() -> u64 {
    let entropy: [u8; 32] = footplate_clock::entropy();
    u64::from_le_bytes(entropy[..8].try_into().unwrap()) >> 16
}

async fn round(seed: u64) {
    let began = Instant::now();
    let mut dice = Dice(seed);
    let faults = faults(&mut dice);
    println!("seed {seed} (again: FOOTPLATE_SOAK_SEED={seed}): {faults:?}");
    let cluster = Cluster::start(&NODES).await;
    println!("{:>6} ms the platform is ready", began.elapsed().as_millis());
    let watcher = Watcher::start(cluster.path().display().to_string());
    let (job, kept) = cluster.training("gang", 2, RETRY);
    let run_id = cluster.submit(&job, &["job.yaml"]).await;
    let mut rivals = Vec::new();
    for number in 0..2 {
        let name = format!("rival-{number}");
        let words = ["--name", &name, "--no-source", "--set", "retry.max=20", "--set", "retry.on=[infra,lost,failed]", "--", "sleep", "1"];
        rivals.push(cluster.submit(&job, &words).await);
    }
    moves(&kept, NODES.len(), "the gang trains").await;
    for fault in &faults {
        strike(&cluster, *fault, &run_id).await;
        tokio::time::sleep(Duration::from_millis(dice.below(700))).await;
        if dice.below(3) == 0 {
            println!("{:>6} ms {fault:?}: the next one follows at once", began.elapsed().as_millis());
            continue;
        }
        moves(&kept, NODES.len(), &format!("the gang trains after {fault:?}")).await;
        println!("{:>6} ms {fault:?}: it trains", began.elapsed().as_millis());
    }
    moves(&kept, NODES.len(), "the gang trains after everything").await;
    std::fs::write(kept.join("finish"), "").unwrap();
    let run = cluster.sealed(&run_id).await;
    println!("{:>6} ms sealed, missing: {:?}, attempts: {}", began.elapsed().as_millis(), run.seal_missing, run.attempts.len());
    assert_eq!(run.outcome(), Outcome::Succeeded, "{run:?}");
    for rival in &rivals {
        assert_eq!(cluster.sealed(rival).await.outcome(), Outcome::Succeeded);
    }
    cluster.nodes_ready(&NODES).await;
    assert_training(&kept, run.attempts.last().unwrap().attempt, NODES.len());
    println!("       {}", assert_kept(&cluster, &run, &kept).await);
    let events = cluster.events("").await;
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

async fn strike(cluster: &Cluster, fault: Fault, run_id: &str) {
    match fault {
        Fault::Service(name) | Fault::Agent(name) => cluster.restart(name).await,
        Fault::Broker => cluster.nats.restart().await.unwrap(),
        Fault::Stall(node) => {
            cluster.part(node).pause().unwrap();
            tokio::time::sleep(STALL).await;
            cluster.part(node).resume().unwrap();
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
