//! Hostile jobs: whatever is asked is refused by name, or taken and then kept to like any other. Nothing panics and no sum wraps.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_events::messages::Order;
use footplate_scheduler_core::{Refusal, admit, assignments, can_follow, explain, outlook};
use footplate_types::*;
use std::collections::BTreeSet;

/// Numbers from a seed (SplitMix64, Steele et al., OOPSLA 2014).
pub struct Dice(pub u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.roll() % most
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    fn small(&mut self) -> u32 {
        self.of(&[0, 1, 1, 1, 2, 2, 3, 4, 8, 63, 64, 65, 256, 1_023, 1_024, 1_025, 4_096, 16_384, 1 << 31, u32::MAX - 1, u32::MAX])
    }

    fn large(&mut self) -> u64 {
        let shifted = 1u64 << self.below(64);
        self.of(&[0, 1, 1_000, 86_400_000, 86_400_001, 1 << 40, 1 << 60, (1 << 60) + 1, 1 << 63, u64::MAX - 1, u64::MAX, shifted])
    }

    fn text(&mut self) -> String {
        let unit = self.of(&["", "a", "\0", "\"", "\\", "\u{202e}", "视", "🜚", "../", "%00", "\r\n", "${HOME}", "{}", "' OR 1=1 --"]);
        unit.repeat(self.of(&[0, 1, 2, 255, 256, 257, 999, 1_000, 1_001, 4_001, 40_000]))
    }

    fn node(&mut self) -> NodeName {
        node_name(self.of(&["n0", "n1", "n2", "n3", "n99", "gone"]))
    }

    fn nodes(&mut self) -> Vec<NodeName> {
        let count = self.of(&[0, 1, 2, 3, 255, 256, 257]);
        (0..count).map(|_| self.node()).collect()
    }
}

/// A job that most clusters could take.
fn plain(dice: &mut Dice) -> JobSpec {
    let nodes = dice.of(&[1, 1, 1, 2, 3]);
    let mut spec = if dice.below(2) == 0 { spec(nodes, dice.of(&[1, 2])) } else { gpu_spec(nodes, dice.of(&[1, 2])) };
    spec.queue = queue_name(dice.of(&["default", "default", "q", "r", "deep"]));
    spec.preemptible = dice.below(2) == 0;
    spec.priority = dice.of(&[0, 0, 1, -1]);
    spec
}

/// One thing of it taken to its edge.
fn twist(dice: &mut Dice, spec: &mut JobSpec) {
    match dice.below(34) {
        0 => spec.resources.nodes = dice.small(),
        1 => spec.resources.per_node.gpus = dice.small(),
        2 => spec.resources.per_node.slots = dice.small(),
        3 => spec.resources.per_node.cpus = dice.small(),
        4 => spec.resources.per_node.memory_bytes = dice.large(),
        5 => spec.resources.per_node.disk_bytes = dice.large(),
        6 => spec.resources.per_node.gpu_memory_bytes = dice.large(),
        7 => {
            let model = GpuModel::parse(dice.of(&["A", "B", "Z", "NVIDIA H100"])).unwrap();
            spec.resources.per_node.gpu_models = vec![model; dice.of(&[1, 2, 256, 257])];
        }
        8 => spec.priority = dice.of(&[i32::MIN, i32::MIN + 1, -1_000_001, -1_000_000, 1_000_000, 1_000_001, i32::MAX]),
        9 => spec.queue = queue_name(dice.of(&["nowhere", "closed", "team", "held", "circle", "x"])),
        10 => spec.placement.pool = Some(dice.text()),
        11 => spec.placement.nodes = dice.nodes(),
        12 => spec.placement.exclude = dice.nodes(),
        13 => spec.limits.max_duration = Millis(dice.large()),
        14 => (spec.limits.max_pending, spec.limits.min_run) = (Millis(dice.large()), Millis(dice.large())),
        15 => spec.stop.grace = Millis(dice.large()),
        16 => spec.stop.notice = Some(StopNotice { signal: StopSignal::Usr1, before: Millis(dice.large()) }),
        17 => {
            let many = || dice.of(&[0, 1, u32::MAX - 1, u32::MAX]);
            let mut counts = [0; 5];
            counts.fill_with(many);
            let [user_code, infrastructure, lost, preempted, retryable] = counts;
            spec.retry = RetryPolicy { user_code, infrastructure, lost, preempted, retryable, ..spec.retry.clone() };
        }
        18 => (spec.retry.backoff, spec.retry.backoff_max) = (Millis(dice.large()), Millis(dice.large())),
        19 => spec.retry.exit_codes = vec![dice.of(&[0, 1, 75, i32::MIN, i32::MAX]); dice.of(&[0, 1, 256, 257])],
        20 => {
            let count = dice.of(&[1, 255, 256, 257]);
            spec.labels = (0..count).map(|n| (format!("{}{n}", dice.of(&["", "a", "视"])), dice.text())).collect();
        }
        21 => (spec.why.hypothesis, spec.why.success) = (dice.text(), dice.text()),
        22 => {
            let input = InputRef { name: dice.text(), snapshot: dice.text(), digest: Some(Digest::of(b"data")) };
            spec.inputs = vec![input; dice.of(&[1, 2, 256, 257])];
        }
        23 => spec.masked = vec![dice.text(); dice.of(&[0, 1, 256, 4_097])],
        24 => {
            let count = dice.of(&[1, 256, 257]);
            spec.placement.labels = (0..count).map(|n| (format!("{}{n}", dice.text()), dice.text())).collect();
        }
        25 => spec.placement.same_rack = true,
        31 | 32 => {
            let names = ["a", "b", "ps", "worker", "", "A", "a.b", "视"];
            let count = dice.of(&[1, 2, 2, 3, 16, 17]);
            let mut role = |n: u32| {
                let plain = plain(dice);
                let name = if dice.below(3) == 0 { dice.of(&names).to_owned() } else { format!("r{n}") };
                let nodes = if dice.below(8) == 0 { dice.small() } else { plain.resources.nodes };
                let cpus = if dice.below(8) == 0 { dice.small() } else { 0 };
                GangRole { name, nodes, per_node: PerNode { cpus, ..plain.resources.per_node } }
            };
            let roles: Vec<GangRole> = (0..count).map(&mut role).collect();
            if dice.below(8) > 0 {
                spec.resources = ResourceAsk { nodes: roles[0].nodes, per_node: roles[0].per_node.clone() };
            }
            spec.roles = roles;
        }
        28 => {
            let id = RunId::from_bytes([dice.of(&[7, 8]); 16]);
            spec.array = Some(ArrayMember { id, index: dice.small(), count: dice.small(), at_once: dice.small() });
        }
        26 => {
            let runs = [RunId::from_bytes([7; 16]), RunId::from_bytes([0; 16])];
            spec.after =
                vec![AfterJob { run: dice.of(&runs), when: dice.of(&[AfterWhen::Success, AfterWhen::Any]) }; dice.of(&[1, 2, 64, 65])];
        }
        30 => {
            let ask = &mut spec.resources.per_node;
            (ask.gpus, ask.slots, ask.gpu_share) = (dice.of(&[1, 1, 1, 2]), 0, dice.of(&[1, 250, 500, 999, 1_000, u32::MAX]));
        }
        29 => {
            let profile = dice.of(&["1g.10gb", "1g.10gb", "7g.80gb", "1c.3g.40gb"]);
            spec.resources.per_node.gpu_profile = MigProfile::parse(profile).ok();
        }
        27 => (spec.launch.bytes, spec.seed) = (u64::MAX, Some(u64::MAX)),
        _ => {
            let archive = DocumentRef { digest: Digest::of(b"code"), bytes: dice.large() };
            let (commit, branch, remote) = (dice.text(), dice.text(), dice.text());
            let (folder, remark, untracked) = (dice.text(), dice.text(), u32::MAX);
            spec.source =
                Some(SourceRef { archive, tree: Digest::of(b"tree"), commit, branch, dirty: true, untracked, remote, folder, remark });
        }
    }
}

pub fn hostile(dice: &mut Dice) -> JobSpec {
    let mut spec = plain(dice);
    (0..1 + dice.below(3)).for_each(|_| twist(dice, &mut spec));
    spec
}

const CLUSTERS: u64 = 6;

/// From nothing at all to nodes that claim more than any machine has.
fn cluster(kind: u64) -> World {
    let mut world = World::new();
    let bare = NodeShape::default();
    match kind {
        0 => {}
        1 => world.slots("n0", 1),
        2 => (0..4).for_each(|n| world.slots(&format!("n{n}"), 3)),
        3 => {
            let mut parts = shared(gpus_shape("n0", &[("A", Some(0)), ("A", Some(0)), ("B", None)]));
            parts.gpus.extend(slices("n0", "GPU-split", "1g.10gb", 2));
            world.node("n0", parts);
            world.node("n1", NodeShape { slots: 70, ..gpus_shape("n1", &[("A", None); 65]) });
            world.node("n2", NodeShape { cpus: 0, memory_bytes: 0, disk_bytes: 0, ..slots_shape(4) });
            world.node("n3", bare);
        }
        4 => {
            let most = NodeShape { cpus: u32::MAX, memory_bytes: u64::MAX, disk_bytes: u64::MAX, slots: 2_000, ..bare };
            let gpus = gpus_shape("n0", &[("A", Some(u32::MAX)); 8]).gpus;
            world.node("n0", NodeShape { gpus, share_gpus: true, ..most.clone() });
            (1..20).for_each(|n| world.node(&format!("n{n}"), NodeShape { slots: 1_024, ..most.clone() }));
        }
        _ => {
            (0..3).for_each(|n| world.slots(&format!("n{n}"), 2));
            world.drain("n1");
            world.node_lost("n2");
        }
    }
    let amount = |most: u32| Quota { gpus: Some(most), slots: Some(most) };
    let below = |name: &str| QueueConfigured { parent: Some(queue_name(name)), ..QueueConfigured::default() };
    let trees = [
        ("team", QueueConfigured { weight: 1_000_000, guarantee: amount(u32::MAX), quota: amount(u32::MAX), ..QueueConfigured::default() }),
        ("deep", QueueConfigured { guarantee: amount(2), ..below("team") }),
        ("q", QueueConfigured { quota: amount(3), ..QueueConfigured::default() }),
        ("r", QueueConfigured { weight: 0, guarantee: amount(1), ..QueueConfigured::default() }),
        ("closed", QueueConfigured { closed: true, ..QueueConfigured::default() }),
        ("held", QueueConfigured { held: true, ..QueueConfigured::default() }),
        ("circle", below("x")),
        ("x", below("circle")),
    ];
    for (name, settings) in trees {
        world.record(Subject::queue(&queue_name(name)), settings);
    }
    world
}

/// What a client is told names what is wrong and what may be.
fn assert_told(refusal: &Refusal) {
    match refusal {
        Refusal::Invalid(invalid) => {
            assert!(!invalid.field.is_empty() && !invalid.allowed.is_empty(), "{invalid:?}");
            assert!(invalid.to_string().len() < 2_000, "a refusal is for people: {} bytes", invalid.to_string().len());
        }
        Refusal::NeverFits { detail } | Refusal::OverQuota { detail, .. } => assert!(detail.contains("asked") || !detail.is_empty()),
        Refusal::NoSuchQueue { queue, .. } | Refusal::QueueClosed { queue } | Refusal::NotALeaf { queue, .. } => {
            assert!(refusal.to_string().contains(queue.as_str()));
        }
        Refusal::NoSuchRun { run, .. } => assert!(refusal.to_string().contains(&run.to_string())),
        Refusal::BadParent { .. } | Refusal::OverGuarantee { .. } | Refusal::QueueInUse { .. } => panic!("of a submission: {refusal}"),
    }
}

/// Everybody does what they are told, programs end as the dice say, until nothing moves.
fn to_rest(world: &mut World, dice: &mut Dice) {
    let mut quiet = 0;
    for round in 0..200 {
        let moved = !world.settle().is_empty();
        let orders = assignments(&world.state);
        let tasks: Vec<_> = orders.values().flat_map(|assignment| assignment.tasks.clone()).collect();
        quiet = if tasks.is_empty() && !moved { quiet + 1 } else { 0 };
        if quiet == 3 {
            return;
        }
        for task in tasks {
            if !world.is_active(task.run) {
                continue;
            }
            let member = task.member.0;
            match task.order {
                Order::Prepare => world.ready(task.run, member),
                Order::Stop { cause, .. } => world.exits(task.run, member, 143, Some(cause)),
                Order::Run { .. } => {
                    let code = if round < 40 { dice.of(&[0, 0, 1, 75, i32::MIN, i32::MAX]) } else { 0 };
                    world.exits(task.run, member, code, None);
                }
            }
        }
        world.wait(dice.of(&[0, 1, 600_000, 86_400_000]));
    }
    panic!("it does not come to rest");
}

fn play(kind: u64, seed: u64) -> (usize, usize) {
    let (mut world, mut dice) = (cluster(kind), Dice(seed * CLUSTERS + kind));
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..30 {
        let spec = hostile(&mut dice);
        let admitted = admit(&world.state, &spec, dice.below(3) == 0);
        match admitted.and_then(|()| can_follow(&world.state, &project(), &spec, &BTreeSet::new())) {
            Err(refusal) => {
                assert_told(&refusal);
                refused += 1;
            }
            Ok(()) => {
                let _ = outlook(&world.state, &spec);
                let run = world.submit(spec);
                world.settle();
                assert!(world.is_active(run) || world.reason(run).is_some(), "{run} waits without a reason");
                taken += 1;
            }
        }
    }
    to_rest(&mut world, &mut dice);
    for (run, job) in world.state.jobs() {
        let told = explain(&world.state, run, world.now()).unwrap_or_else(|| panic!("{run} rests and does not wait: {job:?}"));
        assert!(told.reason.is_some() && !told.change.is_empty(), "{told:?}");
    }
    assert!(world.state.nodes().values().all(|node| node.claims.is_empty()));
    // The last moment that a clock can tell.
    world.elapsed = u64::MAX;
    world.settle();
    (refused, taken)
}

#[test]
fn of_1800_hostile_jobs_each_is_refused_by_name_or_taken_and_kept_to() {
    let mut sums = (0, 0);
    for kind in 0..CLUSTERS {
        for seed in 0..10 {
            let (refused, taken) = play(kind, seed);
            sums = (sums.0 + refused, sums.1 + taken);
        }
    }
    assert_eq!(sums.0 + sums.1, 1_800);
    assert!(sums.0 > 300 && sums.1 > 300, "both happen: {sums:?}");
}
