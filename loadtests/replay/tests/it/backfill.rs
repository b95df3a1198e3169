//! One machine, a few jobs whose starts can be told by hand; and the whole program on a trace of its own.

use footplate_replay::backfill::machine::{Past, Policy, replay};
use footplate_replay::backfill::policies::{InOrder, Named, Published};
use footplate_replay::backfill::swf::Job;
use footplate_replay::backfill::{Options, published, run};
use footplate_replay::trace::Data;
use footplate_scheduler_core::plan::{Backfill, Order, Rules};
use serde_json::json;
use std::fmt::Write as _;

/// Jobs of (submitted, takes, units), in seconds, numbered from 1.
fn jobs(jobs: &[(u64, u64, u32)]) -> Vec<Job> {
    let job = |(at, (submitted_s, runs_s, units)): (usize, &(u64, u64, u32))| Job {
        number: at as u32 + 1,
        submitted_s: *submitted_s,
        runs_s: *runs_s,
        units: *units,
        asked_s: *runs_s,
    };
    jobs.iter().enumerate().map(job).collect()
}

/// When each job started, by number.
fn starts(jobs: &[Job], units: u32, policy: &mut dyn Policy) -> Vec<u64> {
    let mut past = replay(jobs, units, policy);
    past.sort_by_key(|past| past.job.number);
    past.iter().map(|past| past.started_s).collect()
}

#[test]
fn a_machine_of_four_does_what_can_be_told_by_hand() {
    // Three of four are held until 100. The second wants all four; the third ends at 100, the fourth before; the fifth is too long.
    let line = jobs(&[(0, 100, 3), (10, 50, 4), (20, 80, 1), (21, 30, 1), (22, 500, 1)]);
    let fcfs = |backfill| starts(&line, 4, &mut Published::new(Named::Fcfs, backfill));
    assert_eq!(fcfs(Backfill::None), [0, 100, 150, 150, 150]);
    assert_eq!(fcfs(Backfill::EndsBefore), [0, 100, 150, 21, 150], "what ends with the reservation's begin may not pass");
    assert_eq!(fcfs(Backfill::Easy), [0, 100, 20, 150, 150]);
}

#[test]
fn a_published_first_stays_first_and_the_cores_does_not() {
    // The machine is full until 100; then the job of 60 s is first, until one of 10 s comes.
    let line = jobs(&[(0, 100, 2), (1, 60, 2), (2, 10, 2)]);
    assert_eq!(starts(&line, 2, &mut Published::new(Named::Sjf, Backfill::None)), [0, 100, 160]);
    let mut shortest = InOrder { order: Order::Shortest, rules: Rules::of(Backfill::None) };
    assert_eq!(starts(&line, 2, &mut shortest), [0, 110, 100]);
}

#[test]
fn a_stream_of_small_jobs_starves_a_large_one_by_shortness_and_not_by_age() {
    // One job of a day on both units, and for ten days two new ones of an hour every hour.
    let hour = 3_600;
    let mut line = vec![(0, hour, 1), (1, 24 * hour, 2)];
    line.extend((0..480).map(|at| (2 + at / 2 * hour, hour, 1)));
    let line = jobs(&line);
    let large = |policy: &mut dyn Policy| starts(&line, 2, policy)[1] / hour;
    assert!(large(&mut InOrder { order: Order::Shortest, rules: Rules::of(Backfill::EndsBefore) }) >= 239);
    // It is 48 times as large, which is five doublings and a half: no job that comes six days later stands before it.
    let aged = large(&mut InOrder::default());
    assert!((100..=145).contains(&aged), "{aged} h");
}

#[test]
fn a_slowdown_is_bounded() {
    let past = |waited: u64, runs_s| Past { job: Job { number: 1, submitted_s: 5, runs_s, units: 1, asked_s: 1 }, started_s: 5 + waited };
    assert_eq!(past(90, 30).bounded_slowdown(), 4.0);
    assert_eq!(past(99, 1).bounded_slowdown(), 10.0, "no job counts as shorter than ten seconds");
    assert_eq!(past(0, 1).bounded_slowdown(), 1.0);
}

/// A workload with room for windows: bursts of small jobs and a wide one now and then.
fn workload() -> String {
    let mut text = "; MaxProcs: 16\n".to_owned();
    for number in 1..=2_100u64 {
        let (submitted, runs) = (number / 9 * 300 + number % 9, 5 + number * 7_919 % 240);
        let width = if number % 37 == 0 { 16 } else { 1 + number * 31 % 4 };
        let _ = writeln!(text, "{number} {submitted} -1 {runs} {width} -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1");
    }
    text
}

#[test]
fn the_program_says_that_another_trace_does_not_give_the_published_figures() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lublin")).unwrap();
    for trace in published::TRACES {
        std::fs::write(folder.path().join(trace), workload()).unwrap();
    }
    let report = run(&Options { windows: 1, data: Data { data: Some(folder.path().to_owned()) } }).unwrap();
    assert_eq!(report.get("published_reproduced"), Some(&json!(false)));
    assert_eq!(report.wrong().len(), 12, "{:?}", report.wrong());
    for key in ["none_fcfs_1", "backfill_sjf_2", "easy_f1_1", "default_bsld_1", "default_bsld_2", "default_longest_wait_s_2"] {
        assert!(report.get(key).and_then(serde_json::Value::as_f64).is_some_and(|figure| figure > 1.0), "{key}: {:?}", report.get(key));
    }
    let figure = |key: &str| report.get(key).unwrap().as_f64().unwrap();
    assert!(figure("backfill_fcfs_1") < figure("none_fcfs_1"), "backfill helps");
    let file = folder.path().join("figures.json");
    report.write(&file).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(read["program"], "backfill");
}

#[test]
fn without_the_trace_there_is_an_error_and_no_figure() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(&Options { windows: 1, data: Data { data: Some(folder.path().to_owned()) } }).unwrap_err();
    assert!(format!("{error:#}").contains("lublin_256.swf"), "{error:#}");
}
