//! Given / when / then for requests, reports and silence.
#![allow(clippy::unwrap_used)]

use super::*;
use footplate_es::harness::Story;
use footplate_events::facts::*;
use footplate_events::messages::{BeatSeen, InventoryReport, Watch};
use footplate_events::{Event, Subject};
use footplate_types::*;
use std::time::Duration;

const MARGIN: Duration = Duration::from_secs(1);

fn node() -> NodeName {
    NodeName::parse("n1").unwrap()
}

fn fact(epoch: u64, slots: u32) -> NodeRegistered {
    NodeRegistered {
        epoch: Epoch(epoch),
        boot_id: "boot-a".to_owned(),
        shape: NodeShape { slots, cpus: 2, memory_bytes: 1, ..NodeShape::default() },
        address: "127.0.0.1".to_owned(),
        agent_version: "0".to_owned(),
        clock_ahead_ms: None,
    }
}

fn told(epoch: u64, slots: u32) -> Reported {
    Reported { node: node(), epoch: Epoch(epoch), report: InventoryReport::Registered { registered: fact(epoch, slots) } }
}

fn registered() -> Story {
    let mut story = Story::new();
    story.record(Subject::node(&node()), fact(1, 2));
    story
}

fn beat(sequence: u64, epoch: u64) -> BeatSeen {
    BeatSeen {
        sequence,
        epoch: Epoch(epoch),
        boot_id: Some("boot-a".to_owned()),
        lease: Duration::from_secs(10),
        kill: Duration::from_secs(1),
        is_fence: false,
    }
}

fn step(story: &mut Story, reports: &[Reported], watch: &Watch, now: u64) -> Vec<Event> {
    let (decisions, _) = decide(&story.folded(), reports, watch, Duration::from_secs(now), MARGIN);
    let events: Vec<Event> = decisions.iter().map(|decision| decision.event.clone()).collect();
    for decision in decisions {
        story.record(decision.subject, decision.event);
    }
    let (again, _) = decide(&story.folded(), reports, watch, Duration::from_secs(now), MARGIN);
    assert!(again.is_empty(), "deciding again writes nothing new: {again:?}");
    events
}

#[test]
fn a_node_registers_once_and_again_when_its_shape_changes() {
    let mut story = Story::new();
    let watch = Watch::default();
    assert_eq!(step(&mut story, &[told(1, 2)], &watch, 0).len(), 1);
    assert_eq!(step(&mut story, &[told(1, 2)], &watch, 0).len(), 0);
    assert_eq!(step(&mut story, &[told(1, 1)], &watch, 0).len(), 1);
    assert_eq!(story.folded::<Inventory>().node(&node()).unwrap().registered.as_ref().unwrap().shape.slots, 1);
}

#[test]
fn a_registration_of_an_older_generation_is_no_news() {
    let mut story = Story::new();
    story.record(Subject::node(&node()), fact(3, 2));
    assert!(step(&mut story, &[told(2, 8)], &Watch::default(), 0).is_empty());
}

#[test]
fn every_request_is_answered_once_and_in_order() {
    let mut story = registered();
    let id = |n: u8| RequestId::from_bytes([n; 16]);
    let subject = Subject::node_request(&node());
    story.record(subject.clone(), NodeDrainRequested { request: id(1), reason: "disk".to_owned() });
    story.record(subject, NodeUncordonRequested { request: id(2) });
    let events = step(&mut story, &[], &Watch::default(), 0);
    assert!(matches!(events[..], [Event::NodeDrained(_), Event::NodeUncordoned(_)]));
    let state: Inventory = story.folded();
    assert_eq!((state.node(&node()).unwrap().state(), state.answer(&id(1)), state.answer(&id(2))), ("ready", Some(&None), Some(&None)));
}

#[test]
fn a_request_about_an_unknown_node_is_refused_with_the_known_ones() {
    let mut story = registered();
    let request = RequestId::from_bytes([1; 16]);
    let other = NodeName::parse("n9").unwrap();
    story.record(Subject::node_request(&other), NodeCordonRequested { request, reason: String::new() });
    step(&mut story, &[], &Watch::default(), 0);
    let state: Inventory = story.folded();
    let refused = state.answer(&request).unwrap().clone().unwrap();
    assert!(refused.contains("n9") && refused.contains("n1"), "{refused}");
    assert_eq!(state.nodes().count(), 1, "a refused request makes no node");
}

#[test]
fn a_silent_node_is_lost_and_back_when_it_is_heard_again_in_the_same_generation() {
    let mut story = registered();
    let mut watch = Watch::default();
    watch.saw(node(), beat(1, 1), Duration::ZERO);
    assert!(step(&mut story, &[], &watch, 10).is_empty());
    assert!(matches!(step(&mut story, &[], &watch, 11)[..], [Event::NodeLost(_)]));
    watch.saw(node(), beat(2, 1), Duration::from_secs(12));
    assert!(matches!(step(&mut story, &[], &watch, 12)[..], [Event::NodeRegistered(_)]));
}

#[test]
fn a_fenced_node_is_lost_until_it_registers_in_its_new_generation() {
    let mut story = registered();
    let mut watch = Watch::default();
    watch.saw(node(), BeatSeen { is_fence: true, boot_id: None, ..beat(2, 2) }, Duration::ZERO);
    assert!(matches!(step(&mut story, &[], &watch, 0)[..], [Event::NodeLost(_)]));
    watch.saw(node(), beat(3, 2), Duration::from_secs(1));
    assert!(step(&mut story, &[], &watch, 1).is_empty(), "a beat alone does not bring a fenced node back");
    assert!(matches!(step(&mut story, &[told(2, 2)], &watch, 1)[..], [Event::NodeRegistered(_)]));
    assert_eq!(story.folded::<Inventory>().node(&node()).unwrap().state(), "ready");
}

#[test]
fn a_lease_without_an_end_never_runs_out() {
    let mut story = registered();
    let mut watch = Watch::default();
    watch.saw(node(), BeatSeen { lease: Duration::ZERO, ..beat(1, 1) }, Duration::ZERO);
    assert!(step(&mut story, &[], &watch, 1_000_000).is_empty());
}

#[test]
fn an_operators_word_is_answered_by_the_loss() {
    let mut story = registered();
    let request = RequestId::from_bytes([4; 16]);
    story.record(Subject::node_request(&node()), NodeLossDeclared { request, reason: "burnt".to_owned(), epoch: None });
    let mut watch = Watch::default();
    watch.saw(node(), beat(1, 1), Duration::ZERO);
    assert!(matches!(step(&mut story, &[], &watch, 0)[..], [Event::NodeLost(_)]));
    assert_eq!(story.folded::<Inventory>().answer(&request), Some(&None));
}

#[test]
fn an_operators_word_of_a_generation_that_is_over_is_refused_with_the_one_that_stands() {
    let mut story = registered();
    let mut later = story.folded::<Inventory>().node(&node()).unwrap().registered.clone().unwrap();
    later.epoch = Epoch(2);
    story.record(Subject::node(&node()), later);
    let request = RequestId::from_bytes([5; 16]);
    let declared = NodeLossDeclared { request, reason: "off".to_owned(), epoch: Some(Epoch(1)) };
    story.record(Subject::node_request(&node()), declared);
    let mut watch = Watch::default();
    watch.saw(node(), beat(1, 2), Duration::ZERO);
    assert!(matches!(&step(&mut story, &[], &watch, 0)[..], [Event::NodeRefused(refused)] if refused.reason.contains("generation 2")));
    assert_eq!(story.folded::<Inventory>().node(&node()).unwrap().state(), "ready");
}

#[test]
fn what_ails_a_gpu_ails_its_slices_until_it_is_well_or_gone() {
    let uuid = |text: &str| GpuUuid::parse(text).unwrap();
    let slice = |at: &str, parent: Option<&str>| Gpu {
        uuid: uuid(at),
        model: GpuModel::parse("H100").unwrap(),
        memory_bytes: 1,
        island: None,
        numa: None,
        pci: None,
        mig_profile: Some("1g.10gb".to_owned()),
        parent: parent.map(uuid),
    };
    let gpus = vec![slice("MIG-0", Some("GPU-0")), slice("MIG-1", Some("GPU-1")), slice("MIG-2", None)];
    let fact = NodeRegistered { shape: NodeShape { gpus: gpus.clone(), ..NodeShape::default() }, ..fact(1, 0) };
    let mut story = Story::new();
    story.record(Subject::node(&node()), fact.clone());
    let bad = NodeHealthChanged { gpu: Some(uuid("GPU-0")), healthy: false, reason: "Xid 79".to_owned() };
    story.record(Subject::node(&node()), bad);
    let ails = |story: &Story| {
        let state: Inventory = story.folded();
        gpus.iter().map(|gpu| state.node(&node()).unwrap().ails(gpu).map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(ails(&story), [Some("Xid 79".to_owned()), None, None]);
    story.record(Subject::node(&node()), fact.clone());
    assert_eq!(ails(&story)[0].as_deref(), Some("Xid 79"), "a registration with the same slices does not heal it");
    let others = NodeRegistered { shape: NodeShape { gpus: gpus[1..].to_vec(), ..NodeShape::default() }, ..fact };
    story.record(Subject::node(&node()), others);
    assert_eq!(ails(&story), [None, None, None]);
}

#[test]
fn health_is_written_on_change_alone() {
    let mut story = registered();
    let changed = |healthy| Reported {
        node: node(),
        epoch: Epoch(1),
        report: InventoryReport::HealthChanged { changed: NodeHealthChanged { gpu: None, healthy, reason: "disk full".to_owned() } },
    };
    let watch = Watch::default();
    assert!(step(&mut story, &[changed(true)], &watch, 0).is_empty());
    assert_eq!(step(&mut story, &[changed(false), changed(false)], &watch, 0).len(), 1);
    assert_eq!(story.folded::<Inventory>().node(&node()).unwrap().state(), "unhealthy");
    assert_eq!(
        decide(&story.folded(), &[changed(true), changed(false)], &watch, Duration::ZERO, MARGIN).0.len(),
        2,
        "in order, the last one stands"
    );
    assert_eq!(step(&mut story, &[changed(true)], &watch, 0).len(), 1);
}

#[test]
fn taints_are_set_and_taken_off_one_after_the_other_and_a_key_alone_takes_off_all_with_it() {
    let mut story = registered();
    let id = |n: u8| RequestId::from_bytes([n; 16]);
    let subject = Subject::node_request(&node());
    let taint = |text: &str| Taint::parse(text).unwrap();
    let asks = |story: &mut Story, n: u8, text: &str| {
        story
            .record(Subject::node_request(&node()), NodeTaintRequested { request: id(n), taint: taint(text), reason: "theirs".to_owned() });
    };
    asks(&mut story, 1, "dedicated=vision");
    asks(&mut story, 2, "dedicated=speech");
    asks(&mut story, 3, "broken");
    story.record(subject, NodeUntaintRequested { request: id(4), taint: Toleration::parse("dedicated").unwrap() });
    // One answer a look: each sees what the one before has left.
    let watch = Watch::default();
    for n in 1..=4u8 {
        let (decisions, _) = decide(&story.folded(), &[], &watch, Duration::ZERO, MARGIN);
        assert_eq!(decisions.len(), 1, "{n}: {decisions:?}");
        decisions.into_iter().for_each(|decision| _ = story.record(decision.subject, decision.event));
    }
    let state: Inventory = story.folded();
    assert!((1..=4).all(|n| state.answer(&id(n)) == Some(&None)));
    let left: Vec<String> = state.node(&node()).unwrap().taints.keys().map(ToString::to_string).collect();
    assert_eq!(left, ["broken"]);
    assert_eq!(state.node(&node()).unwrap().taints[&taint("broken")].reason, "theirs");
    assert_eq!(state.node(&node()).unwrap().state(), "ready", "a taint closes no node");
}

#[test]
fn a_taint_that_is_not_there_or_is_the_agents_own_is_not_taken_off() {
    let mut story = Story::new();
    let mut told = fact(1, 2);
    told.shape.taints.insert(Taint::parse("dedicated=vision").unwrap());
    story.record(Subject::node(&node()), told);
    for (n, text, words) in [(1u8, "dedicated", "agent.taints"), (2, "broken=disk", "it has dedicated=vision")] {
        let request = RequestId::from_bytes([n; 16]);
        story.record(Subject::node_request(&node()), NodeUntaintRequested { request, taint: Toleration::parse(text).unwrap() });
        step(&mut story, &[], &Watch::default(), 0);
        let refused = story.folded::<Inventory>().answer(&request).unwrap().clone().unwrap();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_node_takes_only_so_many_taints_of_operators() {
    let mut story = registered();
    for n in 0..=PlacementAsk::TAINTS_MAX {
        let (request, taint) = (RequestId::from_bytes([n as u8; 16]), Taint::parse(&format!("t{n}")).unwrap());
        story.record(Subject::node_request(&node()), NodeTaintRequested { request, taint, reason: String::new() });
        step(&mut story, &[], &Watch::default(), 0);
    }
    let state: Inventory = story.folded();
    assert_eq!(state.node(&node()).unwrap().taints.len(), PlacementAsk::TAINTS_MAX);
    let refused = state.answer(&RequestId::from_bytes([PlacementAsk::TAINTS_MAX as u8; 16])).unwrap().clone().unwrap();
    assert!(refused.contains("64 taints"), "{refused}");
}
