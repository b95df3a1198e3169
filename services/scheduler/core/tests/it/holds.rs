//! Reservations: who has waited its patience holds nodes, and who may use them meanwhile.

use crate::world::*;
use footplate_events::facts::*;
use footplate_scheduler_core::Job;
use footplate_types::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PATIENCE: u64 = 600_000;
/// Of the property's clock, in milliseconds.
const STEP: u64 = 40_000;

/// So many nodes of four GPUs.
fn world(nodes: usize) -> World {
    let mut world = World::new();
    for name in ["n0", "n1", "n2"].iter().take(nodes) {
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

/// One node is in use for 1,000 s after the patience of a job that wants two is over.
fn one_waits_for_two(first: JobSpec, wide: JobSpec) -> (World, RunId) {
    let mut world = world(2);
    world.running(first);
    let wide = world.submit(wide);
    world.settle();
    world.wait(PATIENCE + 1);
    world.settle();
    assert!(world.is_pending(wide));
    (world, wide)
}

#[test]
fn until_a_job_has_waited_its_patience_anybody_may_overtake_it() {
    let mut world = world(2);
    world.running(limited(1, 4, 2_000));
    let wide = world.submit(limited(2, 4, 0));
    let small = world.submit(limited(1, 4, 0));
    world.settle();
    assert!(world.is_pending(wide) && world.is_active(small));
}

#[test]
fn who_is_gone_before_the_reservation_begins_may_use_its_nodes_and_who_is_not_may_not() {
    let (mut world, wide) = one_waits_for_two(limited(1, 4, 1_600), limited(2, 4, 0));
    let (endless, long, short) = (limited(1, 4, 0), limited(1, 4, 1_000), limited(1, 4, 999));
    let (endless, long, short) = (world.submit(endless), world.submit(long), world.submit(short));
    world.settle();
    assert!(world.is_pending(endless) && world.is_pending(long), "they would delay the wide one");
    assert_eq!(world.nodes_of(short), ["n1"]);
    assert!(world.is_pending(wide));
}

#[test]
fn what_is_over_beside_the_reservation_may_be_used_without_a_limit_once() {
    let (mut world, wide) = one_waits_for_two(limited(1, 4, 1_600), limited(2, 2, 0));
    let (one, two) = (world.submit(limited(1, 2, 0)), world.submit(limited(1, 2, 0)));
    world.settle();
    assert_eq!(world.nodes_of(one), ["n1"], "two GPUs are over there beside the wide one");
    assert!(world.is_pending(two), "the other two are the wide one's: {:?} {:?}", world.nodes_of(two), world.reason(wide));
    world.wait(1_000_000);
    let first = world.state.jobs().values().find(|job| job.spec.limits.max_duration.0 > 0).map(|job| job.run).unwrap();
    world.exits(first, 0, 0, None);
    world.settle();
    assert_eq!(world.nodes_of(wide), ["n0", "n1"]);
}

#[test]
fn where_nobody_knows_when_it_ends_nobody_uses_what_is_kept() {
    let (mut world, wide) = one_waits_for_two(limited(1, 4, 0), limited(2, 4, 0));
    let short = world.submit(limited(1, 1, 1));
    world.settle();
    assert!(world.is_pending(wide) && world.is_pending(short));
    assert!(
        matches!(world.reason(short), Some(WaitReason::Resources { detail }) if detail.contains("kept for a job that has waited longer"))
    );
}

#[test]
fn a_short_job_behind_long_ones_of_its_shape_is_found() {
    let (mut world, _) = one_waits_for_two(limited(1, 4, 1_600), limited(2, 4, 0));
    let long: Vec<RunId> = (0..5).map(|_| world.submit(limited(1, 4, 0))).collect();
    let short = world.submit(limited(1, 4, 100));
    world.settle();
    assert!(world.is_active(short));
    assert!(long.iter().all(|run| world.is_pending(*run)));
}

#[test]
fn a_gang_beside_a_reservation_stands_on_nodes_of_its_own_each() {
    let mut world = world(3);
    world.running(limited(1, 4, 1_600));
    let wide = world.submit(limited(3, 4, 0));
    world.settle();
    world.wait(PATIENCE + 1);
    let (pair, triple) = (world.submit(limited(2, 2, 500)), world.submit(limited(3, 1, 500)));
    world.settle();
    assert_eq!(world.nodes_of(pair), ["n1", "n2"]);
    assert!(world.is_pending(triple) && world.is_pending(wide));
}

#[test]
fn a_job_that_holds_a_reservation_takes_its_own_nodes() {
    let (mut world, wide) = one_waits_for_two(limited(1, 4, 1_600), limited(2, 4, 0));
    let first = world.state.jobs().values().find(|job| job.run != wide).map(|job| job.run).unwrap();
    let other = world.submit(limited(2, 4, 0));
    world.exits(first, 0, 0, None);
    world.settle();
    assert!(world.is_active(wide) && world.is_pending(other));
}

#[test]
fn what_the_first_could_take_now_is_not_kept_for_one_behind_it() {
    let mut world = world(2);
    let (one, _) = (world.running(limited(1, 4, 2_000)), world.running(limited(1, 1, 2_000)));
    let (wide, wider) = (world.submit(limited(2, 3, 0)), world.submit(limited(2, 4, 0)));
    world.settle();
    world.wait(PATIENCE + 1);
    world.exits(one, 0, 0, None);
    world.settle();
    assert!(world.is_active(wide) && world.is_pending(wider));
}

#[test]
fn who_waits_for_a_gpu_that_is_not_healthy_keeps_nothing_from_anybody() {
    let mut world = world(2);
    let sick = NodeHealthChanged { gpu: Some(GpuUuid::parse("GPU-n0-0").unwrap()), healthy: false, reason: "xid".to_owned() };
    world.record(footplate_events::Subject::node(&node_name("n0")), sick);
    let wide = world.submit(limited(2, 4, 0));
    world.settle();
    world.wait(PATIENCE + 1);
    let small = world.submit(limited(2, 3, 0));
    world.settle();
    assert!(world.is_active(small) && world.is_pending(wide));
}

/// What comes while the wide one waits: (nodes, gpus, limit in seconds, how much of it it takes in percent).
fn arrivals() -> impl Strategy<Value = Vec<(u32, u32, u64, u64)>> {
    proptest::collection::vec((1..3u32, 1..5u32, 1..1_500u64, 1..101u64), 1..60)
}

/// A cluster in which whoever is placed runs at once and ends when its time is over.
struct Play {
    world: World,
    /// How long each job takes, in milliseconds.
    lengths: BTreeMap<RunId, u64>,
    ends: Vec<(u64, RunId)>,
}

impl Play {
    fn submit(&mut self, spec: JobSpec, length: u64) -> RunId {
        let run = self.world.submit(spec);
        self.lengths.insert(run, length);
        run
    }

    /// Until nothing more follows at this time.
    fn settle(&mut self) {
        loop {
            self.world.settle();
            let is_new = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.launched.is_none());
            let placed: Vec<RunId> = self.world.state.jobs().values().filter(is_new).map(|job| job.run).collect();
            for run in &placed {
                self.world.all_ready(*run);
                self.ends.push((self.world.elapsed + self.lengths[run], *run));
            }
            let now = self.world.elapsed;
            let over: Vec<RunId> = self.ends.extract_if(.., |(end, _)| *end <= now).map(|(_, run)| run).collect();
            self.world.settle();
            for run in &over {
                let members = self.world.state.jobs()[run].attempt().unwrap().members.len();
                (0..members as u32).for_each(|member| self.world.exits(*run, member, 0, None));
            }
            if placed.is_empty() && over.is_empty() {
                return;
            }
        }
    }

    /// When everything that runs is over at the latest.
    fn all_over(&self) -> u64 {
        let left = |(_, run): &(u64, RunId)| {
            let job = &self.world.state.jobs()[run];
            let launched = &job.attempt().unwrap().launched.as_ref().unwrap().stamp;
            job.spec.limits.max_duration.0.saturating_sub(self.world.timeline.age(launched, Millis(self.world.elapsed)))
        };
        self.world.elapsed + self.ends.iter().map(left).max().unwrap_or(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Mu'alem and Feitelson's promise of EASY: whoever comes later never delays the first that waits beyond what was known when it got its reservation.
    #[test]
    fn nobody_who_comes_later_delays_the_first_that_has_waited(arrivals in arrivals(), wide in 1..5u32) {
        let mut play = Play { world: world(3), lengths: BTreeMap::new(), ends: Vec::new() };
        play.world.policy.reservations_max = 1;
        // Three that fill every node, then the wide one, then the others.
        for seconds in [900, 1_200, 1_500] {
            play.submit(limited(1, 4, seconds), seconds * 1_000);
        }
        play.settle();
        let first = play.submit(limited(3, wide, 0), 0);
        let mut bound = None;
        let mut arrivals = arrivals.into_iter();
        for _ in 0..100 {
            if let Some((nodes, gpus, limit, part)) = arrivals.next() {
                play.submit(limited(nodes, gpus, limit), (limit * 10 * part).max(1));
            }
            play.settle();
            if play.world.state.ended().contains_key(&first) {
                break;
            }
            if play.world.elapsed > PATIENCE + 1_000 && bound.is_none() {
                bound = Some(play.all_over());
            }
            play.world.wait(STEP);
        }
        prop_assert!(play.world.state.ended().contains_key(&first), "the first that waits begins");
        if let Some(bound) = bound {
            // Ends are seen at the next step of this clock.
            prop_assert!(play.world.elapsed <= bound + STEP, "{} after {bound}", play.world.elapsed);
        }
    }
}
