//! Many nodes, many jobs: one look stays far from quadratic.

use crate::world::*;
use footplate_es::Evolve;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{Facts, Memory, Policy, State, Timeline, decide};
use footplate_types::*;

fn big(nodes: u32, jobs: u32) -> State {
    let mut story = footplate_es::harness::Story::new();
    let mut state = State::default();
    for n in 0..nodes {
        let name = format!("n{n}");
        let shape = gpus_shape(&name, &[("A", Some(0)); 8]);
        let registered = NodeRegistered {
            epoch: Epoch(1),
            boot_id: "b".to_owned(),
            shape,
            address: name.clone(),
            agent_version: String::new(),
            clock_ahead_ms: None,
        };
        state.evolve(story.record(Subject::node(&node_name(&name)), registered));
    }
    for n in 0..jobs {
        let mut bytes = [0u8; 16];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        let run = RunId::from_bytes(bytes);
        let spec = JobSpec { priority: (n % 5) as i32, ..gpu_spec(1 + n % 4, [1, 2, 4, 8][(n / 4 % 4) as usize]) };
        let submitted = JobSubmitted { spec, body: Digest::of(b"") };
        state.evolve(story.record(Subject::job(&project(), run), submitted));
    }
    state
}

#[test]
fn a_look_at_1000_nodes_and_10000_pending_jobs_takes_far_less_than_a_pass_over_every_pair() {
    let state = big(1_000, 10_000);
    let policy = Policy { decisions_max: usize::MAX, members_max: usize::MAX, ..Policy::default() };
    let timeline = Timeline::default();
    let facts =
        Facts { view: state.position(), now: Timestamp::default(), elapsed: Millis(0), seed: 0, policy: &policy, timeline: &timeline };
    let begun = std::time::Instant::now();
    let ruling = decide(&state, &facts, &mut Memory::default());
    let took = begun.elapsed();
    let placed = ruling.decisions.iter().filter(|decision| matches!(decision.event, Event::JobPlaced(_))).count();
    assert_eq!(ruling.decisions.len(), 10_000, "every job is placed or told why not");
    assert!(placed > 500, "{placed}");
    println!("10000 pending on 1000 nodes: {placed} placed in {took:?}");
    // 10,000,000 pairs at a microsecond each would be ten seconds; an unoptimised build on a busy machine stays below that.
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}
