//! What the workers recorded, beside what the platform kept: points, bytes, claims. Independent of the code under test: it folds JSON.

use super::{Cluster, PATIENCE, PROJECT};
use footplate_api::{types::Run, v1};
use footplate_service::Exit;
use footplate_testkit::{eventually, try_eventually};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The longest line of a worker: what a killed one may have printed without recording it.
const LINE_MAX: usize = 200;
/// How many steps a training that goes on has taken at least.
const STEPS_ON: i64 = 4;

/// One worker's record.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every byte it printed.
    pub out: Vec<u8>,
    /// The step of each point by its number in the session.
    pub sent: BTreeMap<u64, i64>,
    /// Up to where the agent acknowledged.
    pub acked: u64,
    /// The last step and the state after it, when it ended by itself.
    pub end: Option<(u64, String)>,
}

impl Record {
    /// The last step it took.
    pub fn last_step(&self) -> i64 {
        self.sent.last_key_value().map_or(0, |(_, step)| *step)
    }

    fn acked_steps(&self) -> BTreeSet<i64> {
        self.sent.range(..=self.acked).map(|(_, step)| *step).collect()
    }
}

/// Every worker's record, by attempt and rank.
pub fn records(folder: &Path) -> BTreeMap<(u32, u32), Record> {
    let mut records: BTreeMap<(u32, u32), Record> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((stem, kind)) = name.rsplit_once('.') else { continue };
        let (attempt, rank) = stem.split_once('-').unwrap();
        let record = records.entry((attempt.parse().unwrap(), rank.parse().unwrap())).or_default();
        let bytes = std::fs::read(entry.path()).unwrap();
        match kind {
            "out" => record.out = bytes,
            "ops" => read_ops(record, &String::from_utf8(bytes).unwrap()),
            "end" => {
                let text = String::from_utf8(bytes).unwrap();
                record.end = text.split_once(' ').map(|(step, state)| (step.parse().unwrap(), state.to_owned()));
            }
            other => panic!("unknown record {other}"),
        }
    }
    records
}

fn read_ops(record: &mut Record, text: &str) {
    // A line without its end was being written when the worker was killed.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["sent", n, step] => drop(record.sent.insert(n.parse().unwrap(), step.parse().unwrap())),
            ["acked", n] => record.acked = record.acked.max(n.parse().unwrap()),
            _ => panic!("unknown line {line:?}"),
        }
    }
}

/// The state of the workers after so many steps, computed here.
pub fn state_after(steps: u64, world: u8) -> String {
    let mut state = Sha256::digest(b"start").to_vec();
    for _ in 0..steps {
        let mut next = Sha256::new();
        next.update(&state);
        for rank in 0..world {
            next.update(Sha256::new().chain_update(&state).chain_update([rank]).finalize());
        }
        state = next.finalize().to_vec();
    }
    hex::encode(state)
}

/// The steps of every stored point of one worker, in the order in which they are shown.
pub async fn stored_steps(cluster: &Cluster, run_id: &str, attempt: u32, rank: u32) -> Vec<i64> {
    let (mut steps, mut page_token) = (Vec::new(), String::new());
    loop {
        let asked = v1::GetHistoryRequest {
            project: PROJECT.to_owned(),
            run_id: run_id.to_owned(),
            name: "step".to_owned(),
            rank,
            attempt,
            page_size: 1_000,
            page_token,
            ..v1::GetHistoryRequest::default()
        };
        let answer = cluster.client.safely(|| async { cluster.client.metrics().get_history(asked.clone()).await }).await;
        let answer = match answer {
            Ok(answer) => answer,
            // A series without a point is not there.
            Err(error) if error.exit() == Exit::NotFound => return steps,
            Err(error) => panic!("{error}"),
        };
        steps.extend(answer.points.iter().map(|point| point.step));
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            return steps;
        }
    }
}

/// Every byte of one worker's standard output that the platform kept.
pub async fn kept_log(cluster: &Cluster, run_id: &str, attempt: u32, rank: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let from = bytes.len() as u64;
        let asked = v1::GetLogRequest {
            project: PROJECT.to_owned(),
            run_id: run_id.to_owned(),
            attempt,
            rank,
            stream: "stdout".to_owned(),
            from,
            ..v1::GetLogRequest::default()
        };
        match cluster.client.safely(|| async { cluster.client.logs().get_log(asked.clone()).await }).await {
            Ok(answer) if answer.data.is_empty() => return bytes,
            Ok(answer) => bytes.extend(answer.data),
            Err(error) if error.exit() == Exit::NotFound => return bytes,
            Err(error) => panic!("{error}"),
        }
    }
}

/// What is wrong with the points of one worker; nothing when every acknowledged one is there once, and none that was never sent.
pub fn wrong_points(record: &Record, stored: &[i64]) -> Option<String> {
    let once: BTreeSet<i64> = stored.iter().copied().collect();
    if once.len() != stored.len() {
        return Some(format!("{} points stored, {} of them different", stored.len(), once.len()));
    }
    let lost: Vec<_> = record.acked_steps().difference(&once).copied().collect();
    let foreign: Vec<_> = once.difference(&record.sent.values().copied().collect()).copied().collect();
    (!lost.is_empty() || !foreign.is_empty()).then(|| format!("acknowledged and lost: {lost:?}; never sent: {foreign:?}"))
}

/// What is wrong with the log of one worker: not byte for byte what it printed. `whole`: everything must be there.
pub fn wrong_log(record: &Record, kept: &[u8], whole: bool) -> Option<String> {
    let common = record.out.iter().zip(kept).take_while(|(one, other)| one == other).count();
    let (printed, kept) = (record.out.len(), kept.len());
    if common < printed.min(kept) {
        return Some(format!("differs at byte {common} of {printed} printed and {kept} kept"));
    }
    // A killed worker may have printed one more line than it recorded; one that ended by itself recorded all.
    let more = if record.end.is_some() { 0 } else { LINE_MAX };
    let wrong = kept > printed + more || (whole && kept < printed);
    wrong.then(|| format!("{printed} bytes printed, {kept} kept"))
}

/// The members of a run's attempts that were lost with their node: (attempt, rank).
pub fn lost_ranks(run: &Run) -> BTreeSet<(u32, u32)> {
    let lost = run.attempts.iter().flat_map(|attempt| {
        let members = attempt.members.iter().filter(|member| member.state == "lost");
        members.flat_map(|member| (member.first_rank..member.first_rank + member.workers).map(|rank| (attempt.attempt, rank)))
    });
    lost.collect()
}

/// Claims that were made on a slot or GPU before its holder had exited or was lost, from the ledger's events.
pub fn double_claims(events: &[v1::Event]) -> Vec<String> {
    let mut wrong = Vec::new();
    // (node, what) -> (run, attempt, member)
    let mut held: BTreeMap<(String, String), (String, u64, u64)> = BTreeMap::new();
    for event in events {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let run = event.aggregate_id.get(..32).unwrap_or_default().to_owned();
        let members = data["members"].as_array().cloned().unwrap_or_default();
        if event.r#type == "footplate.job.placed.v1" {
            for member in &members {
                let holder = (run.clone(), data["attempt"].as_u64().unwrap(), member["member"].as_u64().unwrap());
                for what in claims(member) {
                    let key = (member["node"].as_str().unwrap().to_owned(), what);
                    if let Some(other) = held.insert(key.clone(), holder.clone()) {
                        wrong.push(format!("at {}: {key:?} claimed by {holder:?}, held by {other:?}", event.sequence));
                    }
                }
            }
        } else if ["footplate.attempt.exited.v1", "footplate.attempt.lost.v1"].contains(&event.r#type.as_str()) {
            let attempt: u64 = event.aggregate_id[33..].parse().unwrap();
            for member in &members {
                let holder = (run.clone(), attempt, member["member"].as_u64().unwrap());
                held.retain(|_, by| *by != holder);
            }
        }
    }
    wrong
}

fn claims(member: &Value) -> Vec<String> {
    let of = |key: &'static str| member[key].as_array().into_iter().flatten().map(move |what| format!("{key} {what}"));
    of("slots").chain(of("gpus")).collect()
}

/// Attempts placed before every member of the one before was released, from the ledger's events.
pub fn early_attempts(events: &[v1::Event]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut open: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for event in events {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let run = event.aggregate_id.get(..32).unwrap_or_default().to_owned();
        let members = data["members"].as_array().into_iter().flatten().filter_map(|member| member["member"].as_u64());
        match event.r#type.as_str() {
            "footplate.job.placed.v1" => {
                let before = open.insert(run.clone(), members.collect()).unwrap_or_default();
                if !before.is_empty() {
                    wrong.push(format!("at {}: {run} placed again while members {before:?} were not released", event.sequence));
                }
            }
            "footplate.attempt.exited.v1" | "footplate.attempt.lost.v1" => {
                let released: BTreeSet<u64> = members.collect();
                open.entry(run).or_default().retain(|member| !released.contains(member));
            }
            _ => {}
        }
    }
    wrong
}

/// The newest attempt and the step that all its ranks have taken.
pub fn progress(kept: &Path, ranks: usize) -> (u32, i64) {
    let records = records(kept);
    let Some(newest) = records.keys().map(|(attempt, _)| *attempt).max() else { return (0, 0) };
    let steps: Vec<i64> = records.iter().filter(|((attempt, _), _)| *attempt == newest).map(|(_, record)| record.last_step()).collect();
    if steps.len() < ranks { (newest, 0) } else { (newest, steps.into_iter().min().unwrap_or_default()) }
}

/// Waits until the ranks have taken some steps from now on, all in one attempt; which.
pub async fn moves(kept: &Path, ranks: usize, what: &str) -> u32 {
    let from = std::cell::Cell::new(progress(kept, ranks));
    let look = || async {
        let (attempt, step) = progress(kept, ranks);
        if attempt != from.get().0 || from.get().1 == 0 {
            from.set((attempt, step));
        }
        (step > 0 && step >= from.get().1 + STEPS_ON).then_some(attempt)
    };
    eventually(PATIENCE, what, look).await
}

/// The last attempt ended by itself in the very state of an undisturbed training: each attempt went on from a checkpoint of the one before.
pub fn assert_training(kept: &Path, last: u32, ranks: usize) {
    let records = records(kept);
    for rank in 0..ranks as u32 {
        let (steps, state) = records[&(last, rank)].end.clone().expect("the last attempt ended by itself");
        assert_eq!(state, state_after(steps, ranks as u8), "rank {rank} after {steps} steps");
    }
}

/// Points and logs of every attempt are those that the workers recorded; how many, in words.
pub async fn assert_kept(cluster: &Cluster, run: &Run, kept: &Path) -> String {
    let lost = lost_ranks(run);
    let (mut points, mut bytes, mut short) = (0, 0, 0);
    for ((attempt, rank), record) in records(kept) {
        let what = format!("attempt {attempt} rank {rank} of run {}", run.run_id);
        // What an agent that was away kept for later is still on its way after the seal.
        let looked = try_eventually(PATIENCE / 3, "every acknowledged point is stored", || async {
            let stored = stored_steps(cluster, &run.run_id, attempt, rank).await;
            wrong_points(&record, &stored).is_none().then_some(stored.len())
        });
        points += match looked.await {
            Ok(count) => count,
            Err(late) => panic!("{late}: {what}: {:?}", wrong_points(&record, &stored_steps(cluster, &run.run_id, attempt, rank).await)),
        };
        let log = kept_log(cluster, &run.run_id, attempt, rank).await;
        assert_eq!(wrong_log(&record, &log, !lost.contains(&(attempt, rank))), None, "{what}");
        bytes += log.len();
        short += usize::from(log.len() < record.out.len());
    }
    format!(
        "{points} points and {bytes} bytes of log as the workers recorded them; lost members: {lost:?}, {short} logs of theirs cut short"
    )
}
