//! Small clusters whose figures can be worked out by hand.
#![allow(clippy::unwrap_used)]

use footplate_scheduler_simulate::*;
use footplate_types::Millis;
use serde_json::{Value, json};

fn cluster(nodes: Value, queues: Value) -> Cluster {
    serde_json::from_value(json!({"apiVersion": "footplate/v1", "kind": "Cluster", "nodes": nodes, "queues": queues})).unwrap()
}

fn workload(jobs: Value) -> Workload {
    serde_json::from_value(json!({"apiVersion": "footplate/v1", "kind": "Workload", "jobs": jobs})).unwrap()
}

fn run_with(cluster: &Cluster, jobs: Value, policy_text: &str, habits: Habits) -> Outcome {
    let arrivals = workload(jobs).arrivals(1).unwrap();
    simulate(&Scenario::new(cluster, arrivals, false).unwrap(), &policy(policy_text).unwrap(), habits).unwrap()
}

fn run(cluster: &Cluster, jobs: Value) -> Outcome {
    run_with(cluster, jobs, "default", Habits::default())
}

fn slots(count: u32, slots: u32) -> Cluster {
    cluster(json!([{"name": "n", "count": count, "slots": slots}]), json!([]))
}

#[test]
fn four_jobs_of_an_hour_on_two_slots_take_two_hours_and_half_of_them_wait_one() {
    let outcome = run(&slots(1, 2), json!([{"name": "a", "count": 4, "slots": 1, "duration": "1h"}]));
    assert_eq!((outcome.succeeded, outcome.span_s, outcome.slots_percent, outcome.gpus_percent), (4, 7_200.0, Some(100.0), None));
    assert_eq!((outcome.wait.mean_s, outcome.wait.p50_s, outcome.wait.max_s), (1_800.0, 0.0, 3_600.0));
    assert_eq!((outcome.completion.mean_s, outcome.completion.max_s), (5_400.0, 7_200.0));
    assert!(outcome.series.iter().take(60).all(|point| (point.slots, point.pending, point.running) == (2.0, 2.0, 2.0)));
    assert!(outcome.series.iter().skip(60).all(|point| (point.slots, point.pending) == (2.0, 0.0)));
    assert_eq!(outcome.series.len(), 120);
}

#[test]
fn what_prepares_holds_its_place_and_does_nothing_meanwhile() {
    let habits = Habits { prepare: Millis(600_000), ..Habits::default() };
    let outcome = run_with(&slots(1, 1), json!([{"name": "a", "count": 2, "slots": 1, "duration": "1h"}]), "default", habits);
    assert_eq!((outcome.span_s, outcome.wait.max_s, outcome.slots_percent), (8_400.0, 4_200.0, Some(100.0)));
}

#[test]
fn who_is_preempted_loses_what_it_had_not_saved_and_ends_later() {
    let jobs = json!([
        {"name": "low", "slots": 1, "duration": "2h", "preemptible": true},
        {"name": "high", "slots": 1, "duration": "1h", "priority": 9, "at": "90m"},
    ]);
    let saved = run(&slots(1, 1), jobs.clone());
    assert_eq!((saved.preemptions, saved.preemptions_of_one_max, saved.lost_unit_s, saved.span_s), (1, 1, 0.0, 3.0 * 3_600.0));
    let habits = Habits { checkpoint_every: Millis(3_600_000), leave: Millis(20_000), ..Habits::default() };
    let lossy = run_with(&slots(1, 1), jobs, "default", habits);
    assert_eq!((lossy.lost_unit_s, lossy.span_s), (1_800.0, 3.5 * 3_600.0 + 20.0));
    assert_eq!(lossy.queues[0].preempted, 1);
}

#[test]
fn a_grace_bounds_how_long_a_stopped_program_stays() {
    let jobs = json!([
        {"name": "low", "slots": 1, "duration": "2h", "preemptible": true},
        {"name": "high", "slots": 1, "duration": "1h", "priority": 9, "at": "1h"},
    ]);
    let habits = Habits { leave: Millis(3_600_000), ..Habits::default() };
    let high = run_with(&slots(1, 1), jobs, "default", habits).wait;
    assert_eq!(high.max_s, 30.0, "30 seconds of grace, then it is killed");
}

#[test]
fn what_never_starts_is_told_with_its_reason_and_holds_up_nobody() {
    let queues = json!([{"name": "q", "quota": {"slots": 1}}]);
    let outcome = run(
        &cluster(json!([{"name": "n", "slots": 2}]), queues),
        json!([
            {"name": "huge", "count": 3, "slots": 64, "duration": "1h"},
            {"name": "astray", "queue": "nowhere", "slots": 1, "duration": "1h"},
            {"name": "over", "queue": "q", "slots": 2, "duration": "1h"},
            {"name": "late", "queue": "q", "count": 2, "slots": 1, "duration": "1h", "max_pending": "10m"},
            {"name": "plain", "slots": 1, "duration": "1h"},
        ]),
    );
    assert_eq!((outcome.succeeded, outcome.never.iter().map(|never| never.jobs).sum::<usize>()), (2, 6));
    let told = |text: &str| outcome.never.iter().find(|never| never.reason.contains(text)).unwrap_or_else(|| panic!("{:?}", outcome.never));
    assert_eq!((told("it can never run here").jobs, told("64 asked").example.as_str()), (3, "huge"));
    assert_eq!(told("there is no queue nowhere").example, "astray");
    assert_eq!(told("it can never run in queue q").example, "over");
    assert_eq!(told("limits.max_pending (10m)").jobs, 1);
}

#[test]
fn a_queue_that_borrows_has_more_than_it_is_entitled_to_and_the_owner_all_of_its_own() {
    let queues = json!([{"name": "own", "guarantee": {"gpus": 4}}, {"name": "guest"}]);
    let gpus = json!([{"name": "n", "gpus": {"model": "H100", "count": 8}}]);
    let outcome = run(
        &cluster(gpus, queues),
        json!([
            {"name": "guest", "queue": "guest", "count": 8, "gpus": 1, "duration": "4h", "preemptible": true},
            {"name": "own", "queue": "own", "count": 4, "gpus": 1, "duration": "1h", "at": "1h"},
        ]),
    );
    let of = |queue: &str| outcome.queues.iter().find(|held| held.queue == queue).unwrap();
    assert_eq!((of("own").used_h, of("own").entitled_h, of("own").percent), (4.0, 4.0, Some(100.0)));
    assert_eq!((of("guest").preempted, outcome.preemptions), (4, 4));
    assert_eq!(outcome.wait.p50_s, 0.0);
}

#[test]
fn shares_stand_beside_each_other_where_the_nodes_allow_it_and_slices_are_for_who_asks_them() {
    let nodes = json!([
        {"name": "shared", "share_gpus": true, "gpus": {"model": "H100", "count": 1, "memory": "80GiB"}},
        {"name": "split", "gpus": {"model": "H100", "count": 7, "mig": "1g.10gb", "memory": "10GiB"}},
    ]);
    let jobs = json!([
        {"name": "quarter", "count": 8, "gpus": 1, "gpu_share": 250, "duration": "1h"},
        {"name": "greedy", "at": "2h", "count": 2, "gpus": 1, "gpu_share": 100, "gpu_memory": "50GiB", "duration": "1h"},
        {"name": "slices", "count": 2, "gpus": 4, "gpu_profile": "1g.10gb", "duration": "2h"},
        {"name": "whole", "gpus": 1, "duration": "1h", "at": "4h"},
    ]);
    let outcome = run(&cluster(nodes, json!([])), jobs);
    assert_eq!((outcome.succeeded, outcome.never.len(), outcome.span_s), (13, 0, 5.0 * 3_600.0));
    let stay = |size: &str| outcome.stays.iter().find(|stay| stay.size == size).unwrap();
    // Four quarters at a time; the memory of one GPU is enough for one greedy job; of seven slices four for one job at a time.
    assert_eq!((stay("part of a gpu").jobs, stay("part of a gpu").wait.max_s), (12, 7_200.0));
    assert_eq!(stay("1 gpu").wait.max_s, 0.0);
    // 8 quarters of an hour, twice a tenth, twice four slices of 0.142 for two hours, one whole for one.
    assert_eq!(outcome.queues[0].used_h, 5.472);
    let refused = workload(json!([{"name": "a", "gpus": 2, "gpu_share": 500, "duration": "1h"}])).arrivals(1).unwrap_err();
    assert_eq!(refused.field, "jobs.a: resources.gpu.share");
}

#[test]
fn a_gang_overtaken_for_ever_starts_sooner_with_less_patience() {
    let jobs = json!([
        {"name": "small", "count": 400, "every": "150s", "slots": 1, "duration": "10m"},
        {"name": "wide", "slots": 4, "duration": "10m", "at": "5m"},
    ]);
    let wait = |knobs: &str| {
        let outcome = run_with(&slots(1, 4), jobs.clone(), knobs, Habits::default());
        outcome.stays.iter().map(|stay| stay.wait.max_s).fold(0.0, f64::max)
    };
    let (short, long) = (wait("patience=10m"), wait("patience=3h"));
    assert!(short < 1_500.0 && long > 10_000.0, "{short} s and {long} s");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let jobs = json!([{"name": "a", "count": 60, "every": "1m", "slots": 1, "duration": "5m", "random": true}]);
    let text = |seed: u64| {
        let scenario = Scenario::new(&slots(2, 2), workload(jobs.clone()).arrivals(seed).unwrap(), false).unwrap();
        let outcome = simulate(&scenario, &policy("default").unwrap(), Habits::default()).unwrap();
        (serde_json::to_string(&outcome).unwrap(), page("a <title>", &[outcome]))
    };
    assert_eq!(text(7), text(7));
    assert_ne!(text(7).0, text(8).0);
    let html = text(7).1;
    assert!(html.starts_with("<!doctype html>") && html.contains("a &lt;title&gt;") && html.matches("<svg").count() == 3);
    assert!(!html.contains("http") && !html.contains("<script") && !html.contains("NaN"), "it stands alone");
}

#[test]
fn a_trace_is_read_with_its_virtual_clusters_as_queues_and_wide_jobs_on_whole_nodes() {
    let gpus = cluster(json!([{"name": "n", "count": 2, "gpus": {"model": "P100", "count": 8}}]), json!([{"name": "a", "weight": 2}]));
    let text = "submit_s,duration_s,num_gpus,vc\n60,100,12,a\n0,100,1,b\n";
    let arrivals = trace(text, &gpus, false).unwrap();
    assert_eq!((arrivals[1].spec.resources.nodes, arrivals[1].spec.resources.per_node.gpus, arrivals[0].at_ms), (2, 8, 0));
    let outcome = simulate(&Scenario::new(&gpus, arrivals, true).unwrap(), &policy("default").unwrap(), Habits::default()).unwrap();
    // The wide one waits until both nodes are empty.
    assert_eq!((outcome.succeeded, outcome.wait.max_s, outcome.span_s), (2, 40.0, 200.0));
    for (wrong, field) in [
        ("submit,takes\n", "line 1 of the trace"),
        ("submit_s,duration_s,num_gpus,vc\n1,2,3\n", "line 2 of the trace"),
        ("submit_s,duration_s,num_gpus,vc\n1,x,3,a\n", "line 2 of the trace"),
        ("submit_s,duration_s,num_gpus,vc\n\n1,2,0,a\n", "line 3 of the trace"),
        ("submit_s,duration_s,num_gpus,vc\n1,2,1,A B\n", "line 2 of the trace"),
        ("submit_s,duration_s,num_gpus,vc\n", "the trace"),
    ] {
        assert_eq!(trace(wrong, &gpus, false).unwrap_err().field, field, "{wrong}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_field() {
    let refused = |cluster: Cluster| Scenario::new(&cluster, Vec::new(), false).unwrap_err().field;
    assert_eq!(refused(cluster(json!([{"name": "n", "count": 200_000, "slots": 1}]), json!([]))), "nodes (of all groups)");
    assert_eq!(refused(cluster(json!([{"name": "n", "slots": 9_999}]), json!([]))), "nodes.n.slots");
    assert_eq!(refused(cluster(json!([{"name": "n", "slots": 1}, {"name": "n", "slots": 1}]), json!([]))), "nodes");
    let jobs = |jobs: Value| workload(jobs).arrivals(1).unwrap_err().field;
    assert_eq!(jobs(json!([{"name": "a", "duration": "1h"}])), "jobs.a: resources");
    assert_eq!(jobs(json!([{"name": "a", "count": 2_000_000, "slots": 1, "duration": "1h"}])), "jobs (of all groups)");
    let circle = cluster(json!([{"name": "n", "slots": 1}]), json!([{"name": "a", "parent": "b"}]));
    let told = simulate(&Scenario::new(&circle, Vec::new(), false).unwrap(), &policy("default").unwrap(), Habits::default());
    assert!(matches!(told, Err(Stuck::Queue(why)) if why.contains("no such queue")));
}
