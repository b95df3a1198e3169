//! What a waiting job is told: when it is expected to start, and what binds it in each pool.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_scheduler_core::{Forecast, explain};
use footplate_types::*;

fn world(nodes: &[&str]) -> World {
    let mut world = World::new();
    for name in nodes {
        world.node(name, gpus_shape(name, &[("A", Some(0)); 4]));
    }
    world
}

/// `nodes` x `gpus`, over after so many seconds at the latest; 0 = no limit.
fn limited(nodes: u32, gpus: u32, seconds: u64) -> JobSpec {
    JobSpec {
        limits: Limits { max_duration: Millis::from_secs(seconds), ..Limits::default() },
        stop: StopPolicy { grace: Millis(0), ..StopPolicy::default() },
        ..gpu_spec(nodes, gpus)
    }
}

fn start(world: &World, run: RunId) -> Option<Forecast> {
    explain(&world.state, &run, world.now()).unwrap().start
}

/// The seconds until a start, to the ten seconds that the events of this test take.
fn seconds(world: &World, run: RunId) -> u64 {
    match start(world, run) {
        Some(Forecast::Within(within)) => within.0.div_ceil(10_000) * 10,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_start_is_expected_when_enough_of_what_runs_is_over() {
    let mut world = world(&["n0", "n1"]);
    world.running(limited(1, 4, 1_000));
    world.running(limited(1, 4, 3_000));
    let (one, wide) = (world.submit(limited(1, 2, 100)), world.submit(limited(2, 4, 0)));
    world.settle();
    assert_eq!((seconds(&world, one), seconds(&world, wide)), (1_000, 3_000));
}

#[test]
fn those_before_it_take_their_places_first() {
    let mut world = world(&["n0"]);
    world.running(limited(1, 4, 1_000));
    let all: Vec<RunId> = (0..3).map(|_| world.submit(limited(1, 4, 500))).collect();
    world.settle();
    let told: Vec<u64> = all.iter().map(|run| seconds(&world, *run)).collect();
    assert_eq!(told, [1_000, 1_500, 2_000]);
}

#[test]
fn a_quota_binds_the_forecast_as_it_binds_the_job() {
    let mut world = world(&["n0", "n1"]);
    world.queue("q", 1, Some(4), None);
    let of_q = |seconds| JobSpec { queue: queue_name("q"), ..limited(1, 4, seconds) };
    world.running(of_q(700));
    let second = world.submit(of_q(100));
    world.settle();
    assert_eq!(seconds(&world, second), 700);
}

#[test]
fn nothing_is_promised_that_rests_on_the_end_of_work_without_a_limit() {
    let mut world = world(&["n0"]);
    world.running(limited(1, 4, 0));
    let second = world.submit(limited(1, 1, 10));
    world.settle();
    assert_eq!(start(&world, second), Some(Forecast::Unknown("it waits for work that has no limits.max_duration")));
}

#[test]
fn who_waits_for_a_person_is_told_no_time() {
    let mut world = world(&["n0"]);
    world.running(limited(1, 4, 100));
    let held = world.submit(limited(1, 4, 10));
    world.record(Subject::job_request(&project(), held), JobHoldRequested { request: request(1), reason: String::new() });
    world.settle();
    assert_eq!(start(&world, held), None);
}

#[test]
fn the_forecast_of_a_queue_played_to_its_end_comes_true() {
    let mut world = world(&["n0", "n1"]);
    let first = world.running(limited(1, 4, 400));
    let second = world.running(limited(1, 4, 900));
    let third = world.submit(limited(2, 3, 300));
    let fourth = world.submit(limited(1, 1, 200));
    world.settle();
    assert_eq!(
        (seconds(&world, third), seconds(&world, fourth)),
        (900, 400),
        "the small one overtakes: it takes nothing from the wide one"
    );
    world.exits(first, 0, 0, None);
    world.settle();
    assert!(world.is_active(fourth) && world.is_pending(third));
    world.exits(second, 0, 0, None);
    world.settle();
    assert!(world.is_active(third));
}

#[test]
fn every_pool_tells_what_binds_there() {
    let mut world = World::new();
    let pool = |name: &str, gpus: &[(&str, Option<u32>)], pool: Option<&str>| NodeShape {
        pool: pool.map(str::to_owned),
        ..gpus_shape(name, gpus)
    };
    world.node("a0", pool("a0", &[("A", None); 4], Some("a")));
    world.node("b0", pool("b0", &[("B", None); 2], Some("b")));
    world.node("c0", pool("c0", &[("A", None); 4], Some("c")));
    world.node("x0", pool("x0", &[("A", None); 4], None));
    world.drain("c0");
    world.running(JobSpec { placement: PlacementAsk { pool: Some("a".to_owned()), ..PlacementAsk::default() }, ..limited(1, 3, 0) });
    world.running(JobSpec { placement: PlacementAsk { nodes: vec![node_name("x0")], ..PlacementAsk::default() }, ..limited(1, 2, 0) });
    let waits = world.submit(limited(1, 4, 0));
    world.settle();
    let pools = explain(&world.state, &waits, world.now()).unwrap().pools;
    let told: Vec<(&str, &str)> = pools.iter().map(|room| (room.pool.as_str(), room.binds.as_str())).collect();
    assert_eq!(
        told,
        [
            ("", "4 gpus asked on each of 1 nodes, 0 have them: 2 are free on 1 nodes, at most 2 on one"),
            ("a", "4 gpus asked on each of 1 nodes, 0 have them: 1 are free on 1 nodes, at most 1 on one"),
            ("b", "no node could take a member: b0 has 2 gpus, 4 asked of each node"),
            ("c", "1 nodes asked, 0 of 1 that could take a member are open"),
        ]
    );
}
