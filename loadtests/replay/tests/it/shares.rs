//! Policies that stop jobs: what is lent comes back, what is stopped loses what was declared, and nobody waits for ever.

use crate::jct::{ends, job, played};
use footplate_replay::jct::PATIENCE_S;
use footplate_replay::jct::philly::Job;
use footplate_replay::jct::shares::Shares;
use footplate_replay::jct::world::Preemption;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn of(vc: usize, job: Job) -> Job {
    Job { vc, ..job }
}

fn ours(vcs: usize, jobs: &[Job]) -> Shares {
    Shares::expected(vcs, PATIENCE_S, jobs.len(), true)
}

#[test]
fn what_a_vc_borrowed_it_gives_back_when_the_owner_comes() {
    // The first VC takes all 16 GPUs for a day; five hours on the owner of half of them wants them.
    let mut line: Vec<Job> = (0..16).map(|at| job(at, DAY, 1)).collect();
    line.push(of(1, job(5 * HOUR, HOUR, 8)));
    let world = played(&line, &[8, 8], ours(2, &line));
    let ends = ends(&world);
    assert!(ends[16] <= 6 * HOUR + 60, "the owner waits a minute at most: {}", ends[16]);
    assert_eq!(world.audit.stops, 8);
    assert_eq!(world.audit.quota_violations, 0);
    // Eight are stopped for the hour, and lose what it costs to go on.
    let late = ends[..16].iter().filter(|end| **end > DAY + 60).count();
    assert_eq!(late, 8);
    assert!(ends[..16].iter().all(|end| *end <= DAY + HOUR + 4 * 60 + Preemption::default().cost_s));
    assert_eq!(world.audit.lost_gpu_s, 8 * u128::from(Preemption::default().cost_s));
}

#[test]
fn who_has_just_started_runs_its_time_even_on_what_is_lent() {
    let mut line: Vec<Job> = (0..16).map(|at| job(at, DAY, 1)).collect();
    line.push(of(1, job(100, HOUR, 8)));
    let world = played(&line, &[8, 8], ours(2, &line));
    let started = ends(&world)[16] - HOUR;
    let minimum = Preemption::default().minimum_run_s;
    assert!((minimum..=minimum + 200).contains(&started), "{started}");
}

#[test]
fn small_borrowers_that_follow_each_other_do_not_keep_a_wide_owner_out() {
    // One VC sends three jobs of one GPU and eleven minutes every minute, more than all can hold; the owner of a node wants it whole.
    let mut line: Vec<Job> = (0..1_200).map(|at| job(at / 3 * 60, 660, 1)).collect();
    line.push(of(1, job(2 * HOUR, HOUR, 8)));
    line.sort_by_key(|job| job.submitted_s);
    let at = line.iter().position(|job| job.vc == 1).unwrap();
    let world = played(&line, &[8, 8], ours(2, &line));
    let started = ends(&world)[at] - HOUR;
    assert!(started <= 2 * HOUR + Preemption::default().minimum_run_s + 300, "{} s after it came", started - 2 * HOUR);
    assert_eq!(world.audit.quota_violations, 0);
}

#[test]
fn without_quotas_least_attained_service_lets_the_new_one_pass() {
    let line = [job(0, 10 * HOUR, 8), job(HOUR, 600, 8)];
    let world = played(&line, &[8], Shares::least_attained(&[HOUR], line.len(), false));
    let cost = Preemption::default().cost_s;
    let end = HOUR + 600;
    assert_eq!(world.standings[1].ended_s, Some(end));
    assert_eq!(world.standings[0].ended_s, Some(10 * HOUR + 600 + cost));
}

#[test]
fn who_ranks_last_gets_a_turn_when_it_has_waited_its_patience() {
    // Three days of short jobs, as many as eight GPUs can do, and one that takes a day on all eight.
    let mut line: Vec<Job> = (0..3 * 24 * 6).flat_map(|at| (0..8).map(move |_| job(at * 600, 590, 1))).collect();
    line.insert(8, job(1, DAY, 8));
    let longest = |patience_s| played(&line, &[8], Shares::expected(1, patience_s, line.len(), true)).standings[8].longest_wait_s;
    let patience_s = 12 * HOUR;
    assert!(longest(patience_s) <= patience_s + 2 * HOUR, "{} h", longest(patience_s) / HOUR);
    assert!(longest(PATIENCE_S) > 2 * DAY, "{} h", longest(PATIENCE_S) / HOUR);
}

#[test]
fn jobs_move_together_where_a_gang_would_fit_then() {
    // Eight one-GPU jobs of an hour leave holes on both nodes as others end; the gang of the same VC ranks before the long ones by age only.
    let mut line: Vec<Job> = Vec::new();
    for at in 0..16 {
        line.push(job(at, if at % 2 == 0 { 20 * HOUR } else { HOUR }, 1));
    }
    line.push(of(1, job(2 * HOUR, HOUR, 8)));
    let world = played(&line, &[8, 8], ours(2, &line));
    // Four move off the node that is cleared; nobody has to stop, for eight GPUs are free.
    assert!(ends(&world)[16] <= 3 * HOUR + 60);
    assert_eq!(world.audit.stops, 4);
    assert!(ends(&world)[..16].iter().all(|end| *end <= 20 * HOUR + 120 + Preemption::default().cost_s));
}
