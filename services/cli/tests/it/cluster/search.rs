//! A sweep in flight while the platform is struck. Only their points decide what its trials report, so what an undisturbed sweep finds is known.

use super::record::assert_kept;
use super::{Cluster, PATIENCE, PROJECT};
use footplate_api::types::Outcome;
use footplate_api::v1;
use footplate_testkit::{eventually, try_eventually};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many trials a sweep has.
pub const TRIALS: usize = 8;
/// Every cause is retried, more often than there are faults; and whoever is more urgent may take a trial's place.
const JOB: &str = "queue: {priority: 3, preemptible: true}\n  stop: {grace: 5s}\n  \
                   retry: {max: 20, on: [infra, preempted, lost, failed], backoff: 100ms..1s}";

/// A sweep of so many short trials.
pub struct Search {
    id: String,
    /// What its trials record, in a folder for each run.
    kept: PathBuf,
}

impl Search {
    /// Begins one by a seed; a trial takes 40 times so many milliseconds.
    pub async fn begin(cluster: &Cluster, name: &str, seed: u64, parallel: u32, step_ms: u32) -> Self {
        let (job, kept) = cluster.workers(name);
        let text = format!(
            "apiVersion: footplate/v1\nkind: Sweep\nname: {name}\nmetric: loss\ndirection: minimize\nsampler: random\nseed: {seed}\n\
             trials: {TRIALS}\nparallel: {parallel}\nspace:\n  x: {{type: float, low: -1, high: 1}}\n  opt: {{choices: [sgd, adam]}}\n\
             job:\n  run: [python3, trial.py]\n  resources: {{nodes: 1, slots: 1}}\n  {JOB}\n  \
             env: {{vars: {{RECORD: {:?}, STEP_MS: \"{step_ms}\"}}}}\n",
            kept.display().to_string()
        );
        std::fs::write(job.join("sweep.yaml"), text).unwrap();
        let output = cluster.footplate(&job, &["sweep", "run", "-q", "sweep.yaml"]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { id: String::from_utf8(output.stdout).unwrap().trim().to_owned(), kept }
    }

    /// Its trials no longer sleep.
    pub fn hurry(&self) {
        std::fs::write(self.kept.join("finish"), "").unwrap();
    }

    /// The sweep as its service knows it, or why it does not tell.
    pub async fn look(&self, cluster: &Cluster) -> Option<v1::Sweep> {
        let asked = v1::GetSweepRequest { project: PROJECT.to_owned(), sweep_id: self.id.clone(), at_least: 0 };
        cluster.client.safely(|| async { cluster.client.sweeps().get_sweep(asked.clone()).await }).await.ok()?.sweep
    }

    /// Waits until nothing more is to come of it.
    async fn finished(&self, cluster: &Cluster) -> v1::Sweep {
        let look = || async { self.look(cluster).await.filter(|sweep| sweep.state == "finished") };
        match try_eventually(PATIENCE, "the sweep is finished", look).await {
            Ok(sweep) => sweep,
            Err(late) => panic!("{late}: {:?}: {:?}", self.look(cluster).await, self.trials(cluster).await),
        }
    }

    async fn trials(&self, cluster: &Cluster) -> Vec<v1::Trial> {
        let asked = v1::ListTrialsRequest { project: PROJECT.to_owned(), sweep_id: self.id.clone(), ..v1::ListTrialsRequest::default() };
        let ask = || async { cluster.client.safely(|| async { cluster.client.sweeps().list_trials(asked.clone()).await }).await.ok() };
        eventually(PATIENCE, "the trials are told", ask).await.trials
    }

    /// The points of all its trials by number, after every one of them came to its end with the value of its point, and the best is the best.
    async fn assert_found(&self, cluster: &Cluster) -> Vec<v1::Trial> {
        let sweep = self.finished(cluster).await;
        let trials = self.trials(cluster).await;
        let numbers: Vec<usize> = trials.iter().map(|trial| trial.number as usize).collect();
        assert_eq!(numbers, (1..=TRIALS).collect::<Vec<_>>(), "{trials:?}");
        for trial in &trials {
            assert_eq!((trial.state.as_str(), trial.value), ("complete", Some(loss(trial))), "{trial:?}");
        }
        // Of equal values the lowest number.
        let best = trials.iter().min_by(|one, other| loss(one).total_cmp(&loss(other))).unwrap();
        assert_eq!(sweep.best.as_ref().map(|best| (best.number, &best.run_id)), Some((best.number, &best.run_id)), "{sweep:?}");
        trials
    }

    /// Everything of it is as if nothing had been struck: what a calm sweep by the same seed tries and finds, each trial one run that
    /// ended well, with all that its worker recorded; how much, in words.
    pub async fn assert_undisturbed(&self, cluster: &Cluster, seed: u64) -> String {
        let trials = self.assert_found(cluster).await;
        let calm = Self::begin(cluster, "calm", seed, 4, 0).await;
        let points =
            |trials: &[v1::Trial]| trials.iter().map(|trial| trial.values.clone().into_iter().collect()).collect::<Vec<BTreeMap<_, _>>>();
        assert_eq!(points(&trials), points(&calm.assert_found(cluster).await), "the same points in the same order");
        let runs: BTreeSet<&String> = trials.iter().map(|trial| &trial.run_id).collect();
        assert_eq!(runs.len(), TRIALS, "{trials:?}");
        assert_eq!(recorded(&self.kept), runs.into_iter().cloned().collect(), "these runs ran, and no other");
        let mut told = Vec::new();
        for trial in &trials {
            let run = cluster.sealed(&trial.run_id).await;
            assert_eq!((run.outcome(), run.seal_complete), (Outcome::Succeeded, true), "trial {}: {run:?}", trial.number);
            let kept = assert_kept(cluster, &run, &self.kept.join(&trial.run_id)).await;
            told.push(format!("trial {}: {} attempts, {kept}", trial.number, run.attempts.len()));
        }
        told.join("\n       ")
    }

    /// What is wrong with the sweep's part of the ledger: every trial was suggested, submitted, sealed and finished once, whoever led.
    pub fn wrong_events(&self, events: &[v1::Event]) -> Vec<String> {
        let of_trial = |kind: &str, number: usize| {
            let id = format!("{}-{number}", self.id);
            events.iter().filter(|event| event.r#type == format!("footplate.{kind}.v1") && event.aggregate_id == id).count()
        };
        let all = events.iter().filter(|event| event.r#type == "footplate.trial.suggested.v1" && event.aggregate_id.starts_with(&self.id));
        let mut wrong = Vec::new();
        if all.count() != TRIALS {
            wrong.push(format!("not {TRIALS} trials of {} were suggested", self.id));
        }
        for number in 1..=TRIALS {
            for kind in ["trial.suggested", "trial.finished"] {
                let count = of_trial(kind, number);
                if count != 1 {
                    wrong.push(format!("{count} events {kind} of trial {number} of {}", self.id));
                }
            }
        }
        wrong
    }
}

/// The runs that recorded something.
fn recorded(kept: &Path) -> BTreeSet<String> {
    let folders = std::fs::read_dir(kept).unwrap().flatten().filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// What a trial reports at its end: the same sum as in `trial.py`.
fn loss(trial: &v1::Trial) -> f64 {
    let away = trial.values["x"].parse::<f64>().unwrap() - 0.25;
    away * away + if trial.values["opt"] == "\"sgd\"" { 0.5 } else { 0.0 }
}
