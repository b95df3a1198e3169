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

/// What is wrong with the log of one worker; nothing when it is byte for byte what it printed.
pub fn wrong_log(record: &Record, kept: &[u8]) -> Option<String> {
    let common = record.out.iter().zip(kept).take_while(|(one, other)| one == other).count();
    let (printed, kept) = (record.out.len(), kept.len());
    if common < printed.min(kept) {
        return Some(format!("differs at byte {common} of {printed} printed and {kept} kept"));
    }
    // A killed worker may have printed one more line than it recorded; one that ended by itself recorded all.
    let more = if record.end.is_some() { 0 } else { LINE_MAX };
    (kept < printed || kept > printed + more).then(|| format!("{printed} bytes printed, {kept} kept"))
}

/// The ranks of a run's attempts that were lost with their node.
fn lost_ranks(run: &Run) -> BTreeSet<(u32, u32)> {
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

/// Members that were started twice, from the ledger's events.
pub fn double_starts(events: &[v1::Event]) -> Vec<String> {
    let mut started = BTreeSet::new();
    let mut wrong = Vec::new();
    for event in events.iter().filter(|event| event.r#type == "footplate.attempt.started.v1") {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        for member in data["members"].as_array().unwrap() {
            if !started.insert((event.aggregate_id.clone(), member["member"].to_string())) {
                wrong.push(format!("at {}: member {} of {} started twice", event.sequence, member["member"], event.aggregate_id));
            }
        }
    }
    wrong
}

/// Runs that were submitted or sealed other than once, from the ledger's events.
pub fn not_once(events: &[v1::Event]) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for event in events {
        if event.r#type == "footplate.job.submitted.v1" {
            counts.entry((&event.aggregate_id, "footplate.run.sealed.v1")).or_default();
        }
        if ["footplate.job.submitted.v1", "footplate.run.sealed.v1"].contains(&event.r#type.as_str()) {
            *counts.entry((&event.aggregate_id, &event.r#type)).or_default() += 1;
        }
    }
    counts.into_iter().filter(|(_, count)| *count != 1).map(|((run, kind), count)| format!("{count} events {kind} of {run}")).collect()
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

/// Points and logs of every attempt are those that the workers recorded, also of members that were lost, once their node is back; how many,
/// in words.
pub async fn assert_kept(cluster: &Cluster, run: &Run, kept: &Path) -> String {
    let (mut points, mut bytes) = (0, 0);
    for ((attempt, rank), record) in records(kept) {
        let wrong = async || {
            let stored = stored_steps(cluster, &run.run_id, attempt, rank).await;
            let log = kept_log(cluster, &run.run_id, attempt, rank).await;
            (stored.len(), log.len(), wrong_points(&record, &stored).or(wrong_log(&record, &log)))
        };
        // What an agent that was away kept for later is still on its way after the seal.
        let looked = try_eventually(PATIENCE / 3, "points and logs are as recorded", || async {
            let (points, bytes, wrong) = wrong().await;
            wrong.is_none().then_some((points, bytes))
        });
        let (more_points, more_bytes) = match looked.await {
            Ok(counts) => counts,
            Err(late) => panic!("{late}: attempt {attempt} rank {rank} of run {}: {:?}", run.run_id, wrong().await),
        };
        points += more_points;
        bytes += more_bytes;
    }
    format!("{points} points and {bytes} bytes of log as the workers recorded them; lost members: {:?}", lost_ranks(run))
}

/// The checkers see what they are there for.
mod tests {
    use super::*;

    fn event(sequence: u64, kind: &str, id: &str, data: &str) -> v1::Event {
        v1::Event {
            sequence,
            r#type: format!("footplate.{kind}.v1"),
            aggregate_id: id.to_owned(),
            data: data.to_owned(),
            ..v1::Event::default()
        }
    }

    #[test]
    fn a_double_claim_an_early_attempt_and_a_double_start_are_seen() {
        let (one, other) = ("1".repeat(32), "2".repeat(32));
        let placed = |attempt: u32| format!(r#"{{"attempt":{attempt},"members":[{{"member":0,"node":"n1","slots":[0]}}]}}"#);
        let members = r#"{"members":[{"member":0}]}"#;
        let first = [event(1, "job.placed", &one, &placed(1)), event(2, "attempt.started", &format!("{one}-1"), members)];
        let released = event(3, "attempt.exited", &format!("{one}-1"), members);
        let again = event(4, "job.placed", &one, &placed(2));
        let rival = event(5, "job.placed", &other, &placed(1));
        let with = |more: &[&v1::Event]| first.iter().chain(more.iter().copied()).cloned().collect::<Vec<_>>();
        let good = with(&[&released, &again]);
        assert_eq!((double_claims(&good).len(), early_attempts(&good).len(), double_starts(&good).len()), (0, 0, 0));
        let lost = event(3, "attempt.lost", &format!("{one}-1"), members);
        assert!(double_claims(&with(&[&lost, &rival])).is_empty());
        assert_eq!(double_claims(&with(&[&rival])).len(), 1);
        assert_eq!(double_claims(&with(&[&released, &again, &rival])).len(), 1);
        assert_eq!(early_attempts(&with(&[&again])).len(), 1);
        assert_eq!(double_starts(&with(&[&first[1]])).len(), 1);
    }

    #[test]
    fn a_run_that_is_sealed_twice_or_never_or_submitted_twice_is_seen() {
        let (submitted, sealed) = (event(1, "job.submitted", "1", "{}"), event(2, "run.sealed", "1", "{}"));
        let wrong = |events: &[&v1::Event]| not_once(&events.iter().copied().cloned().collect::<Vec<_>>()).len();
        assert_eq!(wrong(&[&submitted, &sealed]), 0);
        assert_eq!((wrong(&[&submitted]), wrong(&[&submitted, &sealed, &sealed]), wrong(&[&submitted, &submitted, &sealed])), (1, 1, 1));
    }

    #[test]
    fn a_lost_a_doubled_and_a_foreign_point_are_seen_and_so_is_each_byte_of_a_log() {
        let mut record = Record { out: b"one\ntwo\n".to_vec(), ..Record::default() };
        read_ops(&mut record, "sent 1 11\nsent 2 12\nacked 2\nsent 3 13\nsent 4");
        assert_eq!((record.acked, record.last_step()), (2, 13));
        assert_eq!((wrong_points(&record, &[11, 12]), wrong_points(&record, &[11, 12, 13])), (None, None));
        for wrong in [&[11][..], &[11, 12, 12], &[11, 12, 14]] {
            assert!(wrong_points(&record, wrong).is_some(), "{wrong:?}");
        }
        assert_eq!(wrong_log(&record, b"one\ntwo\nthree\n"), None, "killed before it recorded a line");
        record.end = Some((13, String::new()));
        assert_eq!(wrong_log(&record, b"one\ntwo\n"), None);
        for wrong in [&b"one\ntwo"[..], b"one\ntwo\n\n", b"one\ntwq\n", b"one\none\ntwo\n", b""] {
            assert!(wrong_log(&record, wrong).is_some(), "{wrong:?}");
        }
    }
}
