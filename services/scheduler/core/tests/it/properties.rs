//! Random histories: whatever order events take within what the ledger allows, the rules hold. The checker shares no code with the core.

use crate::world::*;
use footplate_es::{Evolve, Project};
use footplate_events::facts::*;
use footplate_events::messages::Order;
use footplate_events::{Event, Subject};
use footplate_scheduler_core::{MemberStage, Refusal, State, admit, assignments};
use footplate_types::*;
use proptest::prelude::*;

/// Where jobs go.
const QUEUES: [&str; 3] = ["default", "q", "r"];
/// Every queue that is ever configured.
const TREE: [&str; 4] = ["q", "r", "t", "u"];

const WHENS: [AfterWhen; 3] = [AfterWhen::Success, AfterWhen::Failure, AfterWhen::Any];

/// One thing that may happen. Numbers are reduced to what there is.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        nodes: u32,
        units: u32,
        gpus: bool,
        priority: i32,
        preemptible: bool,
        queue: u8,
        same_rack: bool,
        /// Of an attempt, in seconds; 0 = none.
        limit: u64,
        after: Option<(u8, u8)>,
        /// Which array, of which so many are placed at a time.
        array: Option<u8>,
        /// A second role beside the first: members, units, and whether those are GPUs.
        second: Option<(u32, u32, bool)>,
    },
    Look,
    /// The leader decides now, others append first.
    LateLook(Vec<Step>),
    Ready(u8),
    Exit {
        member: u8,
        code: i32,
    },
    /// The agent does what its assignment says.
    Obey(u8),
    Lost(u8),
    Repeat(u8),
    NodeLost(u8),
    Drain(u8),
    Uncordon(u8),
    Register {
        node: u8,
        raise: bool,
        slots: u32,
    },
    Cancel(u8, u8),
    Hold(u8, u8),
    Release(u8, u8),
    Queue {
        name: u8,
        quota: Option<u32>,
        guarantee: Option<u32>,
        parent: Option<u8>,
    },
    Wait(u32),
    NewTerm,
}

fn simple() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (
            (1..4u32, 1..3u32, any::<bool>()), 0..3i32, any::<bool>(), 0..3u8,
            any::<bool>(), prop_oneof![Just(0), 1..2_000u64], proptest::option::weighted(0.3, (any::<u8>(), 0..3u8)),
            (proptest::option::weighted(0.5, 0..3u8), proptest::option::weighted(0.3, (1..3u32, 1..3u32, any::<bool>()))),
        )
            .prop_map(|((nodes, units, gpus), priority, preemptible, queue, same_rack, limit, after, (array, second))| {
                Step::Submit { nodes, units, gpus, priority, preemptible, queue, same_rack, limit, after, array, second }
            }),
        8 => any::<u8>().prop_map(Step::Ready),
        5 => (any::<u8>(), prop_oneof![Just(0), Just(0), Just(1), Just(75)]).prop_map(|(member, code)| Step::Exit { member, code }),
        6 => any::<u8>().prop_map(Step::Obey),
        1 => any::<u8>().prop_map(Step::Lost),
        2 => any::<u8>().prop_map(Step::Repeat),
        1 => any::<u8>().prop_map(Step::NodeLost),
        1 => any::<u8>().prop_map(Step::Drain),
        2 => any::<u8>().prop_map(Step::Uncordon),
        2 => (any::<u8>(), any::<bool>(), 0..4u32).prop_map(|(node, raise, slots)| Step::Register { node, raise, slots }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(run, n)| Step::Cancel(run, n)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(run, n)| Step::Hold(run, n)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(run, n)| Step::Release(run, n)),
        2 => (0..4u8, proptest::option::of(0..7u32), proptest::option::of(0..4u32), proptest::option::of(0..4u8))
            .prop_map(|(name, quota, guarantee, parent)| Step::Queue { name, quota, guarantee, parent }),
        2 => (0..900_000u32).prop_map(Step::Wait),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => simple(),
        6 => Just(Step::Look),
        2 => proptest::collection::vec(simple(), 1..4).prop_map(Step::LateLook),
        1 => Just(Step::NewTerm),
    ]
}

const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];

fn shape_of(node: usize, slots: u32) -> NodeShape {
    let shape = if node < 2 { gpus_shape(NODES[node], &[("A", Some(0)), ("A", Some(0)), ("B", None)]) } else { slots_shape(slots) };
    // A rack of one, a rack of two, and one that stands nowhere.
    NodeShape { rack: [Some("a"), Some("b"), Some("b"), None][node].map(str::to_owned), ..shape }
}

/// Members that are not released, as (run, member).
fn living(world: &World) -> Vec<(RunId, u32)> {
    let mut all = Vec::new();
    for (run, job) in world.state.jobs() {
        for attempt in job.attempt().into_iter().filter(|attempt| !attempt.void) {
            let members = attempt.members.iter().filter(|member| !member.is_released());
            all.extend(members.map(|member| (*run, member.placement.member.0)));
        }
    }
    all
}

fn pick<T: Copy>(from: &[T], n: u8) -> Option<T> {
    (!from.is_empty()).then(|| from[usize::from(n) % from.len()])
}

fn runs(world: &World) -> Vec<RunId> {
    world.state.jobs().keys().chain(world.state.ended().keys()).copied().collect()
}

fn obey(world: &mut World, run: RunId, member: u32) {
    let orders = assignments(&world.state);
    let tasks = orders.values().flat_map(|assignment| &assignment.tasks);
    let Some(task) = tasks.clone().find(|task| task.run == run && task.member.0 == member).cloned() else { return };
    match task.order {
        Order::Stop { cause, .. } => world.exits(run, member, 143, Some(cause)),
        Order::Prepare => world.ready(run, member),
        Order::Run { .. } => {}
    }
}

fn apply(world: &mut World, step: &Step) {
    match step {
        Step::Submit { nodes, units, gpus, priority, preemptible, queue, same_rack, limit, after, array, second } => {
            let known = runs(world);
            if known.len() > 30 {
                return;
            }
            let after = after.and_then(|(n, when)| Some(AfterJob { run: pick(&known, n)?, when: WHENS[usize::from(when)] }));
            let after = after.into_iter().collect();
            let base = if *gpus { gpu_spec(*nodes, *units) } else { spec(*nodes, *units) };
            let named = |name: &str, spec: &JobSpec| {
                let ResourceAsk { nodes, per_node } = spec.resources.clone();
                GangRole { name: name.to_owned(), nodes, per_node }
            };
            let second = second.map(|(nodes, units, gpus)| if gpus { gpu_spec(nodes, units) } else { spec(nodes, units) });
            let roles = second.map(|second| vec![named("first", &base), named("second", &second)]).unwrap_or_default();
            let base = JobSpec { roles, ..base };
            let name = QUEUES[usize::from(*queue)];
            let retry = RetryPolicy { user_code: 1, ..RetryPolicy::default() };
            let limits = Limits { max_duration: Millis::from_secs(*limit), min_run: Millis(limit * 100), ..Limits::default() };
            // Near, in a while, or never: some end when it has passed.
            let deadline = (limit % 3 == 1).then(|| Timestamp::from_millis(world.elapsed as i64).plus_millis(limit * 300_000));
            let deadline_missed = if deadline.is_some() && limit % 2 == 0 { DeadlineMissed::End } else { DeadlineMissed::Run };
            let limits = Limits { deadline, deadline_missed, ..limits };
            let placement = PlacementAsk { same_rack: *same_rack, ..PlacementAsk::default() };
            let queue = queue_name(name);
            let index = known.len() as u32;
            // One of them has no limit.
            let array = array.map(|n| ArrayMember { id: RunId::from_bytes([0xa0 + n; 16]), index, count: 30, at_once: n.into() });
            let (priority, preemptible) = (*priority, *preemptible);
            world.submit(JobSpec { priority, preemptible, queue, retry, limits, placement, after, array, ..base });
        }
        Step::Look => {
            let ruling = world.ruling();
            world.append(ruling.decisions);
        }
        Step::LateLook(others) => {
            let ruling = world.ruling();
            others.iter().for_each(|other| apply(world, other));
            world.append(ruling.decisions);
        }
        Step::Ready(n) => {
            if let Some((run, member)) = pick(&living(world), *n) {
                world.ready(run, member);
            }
        }
        Step::Exit { member, code } => {
            if let Some((run, member)) = pick(&living(world), *member) {
                let stage = world.state.jobs()[&run].attempt().unwrap().members[member as usize].stage;
                let launched = world.state.jobs()[&run].attempt().unwrap().launched.is_some();
                match (launched, stage) {
                    (true, _) => world.exits(run, member, *code, None),
                    (false, MemberStage::Preparing) => world.not_started(run, member, "set-up failed"),
                    (false, _) => {}
                }
            }
        }
        Step::Obey(n) => {
            if let Some((run, member)) = pick(&living(world), *n) {
                obey(world, run, member);
            }
        }
        Step::Lost(n) => {
            if let Some((run, member)) = pick(&living(world), *n) {
                world.lost(run, member);
            }
        }
        Step::Repeat(n) => {
            // The executor tells again what it told before.
            let attempts: Vec<usize> = (0..world.story.recorded().len())
                .filter(|at| world.story.recorded()[*at].envelope.subject.attempt_id().is_some())
                .collect();
            if let Some(at) = pick(&attempts, *n) {
                let envelope = world.story.recorded()[at].envelope.clone();
                world.record(envelope.subject, envelope.event);
            }
        }
        Step::NodeLost(n) => world.node_lost(NODES[usize::from(*n) % 4]),
        Step::Drain(n) => world.drain(NODES[usize::from(*n) % 4]),
        Step::Uncordon(n) => {
            let name = NODES[usize::from(*n) % 4];
            if world.state.nodes()[&node_name(name)].lost.is_none() {
                world.uncordon(name);
            }
        }
        Step::Register { node, raise, slots } => {
            let at = usize::from(*node) % 4;
            let known = &world.state.nodes()[&node_name(NODES[at])];
            if known.drained.is_none() {
                let epoch = known.epoch.0 + u64::from(*raise);
                world.register(NODES[at], shape_of(at, *slots), epoch);
            }
        }
        Step::Cancel(n, id) => {
            if let Some(run) = pick(&runs(world), *n) {
                world.cancel(run, *id);
            }
        }
        Step::Hold(n, id) => {
            if let Some(run) = pick(&runs(world), *n) {
                let asked = JobHoldRequested { request: request(*id), reason: String::new() };
                world.record(Subject::job_request(&project(), run), asked);
            }
        }
        Step::Release(n, id) => {
            if let Some(run) = pick(&runs(world), *n) {
                world.record(Subject::job_request(&project(), run), JobReleaseRequested { request: request(*id) });
            }
        }
        Step::Queue { name, quota, guarantee, parent } => {
            let of = |amount: Option<u32>| Quota { gpus: amount, slots: amount };
            let name = TREE[usize::from(*name)];
            // Also what two writers at once may leave: circles, and tops that are not there.
            let parent = parent.map(|parent| queue_name(TREE[usize::from(parent)]));
            let settings =
                QueueConfigured { weight: 2, quota: of(*quota), guarantee: of(*guarantee), parent, ..QueueConfigured::default() };
            world.record(Subject::queue(&queue_name(name)), settings);
        }
        Step::Wait(millis) => world.wait(u64::from(*millis)),
        Step::NewTerm => world.new_term(),
    }
}

fn begin() -> World {
    let mut world = World::new();
    world.queue("q", 2, Some(3), Some(3));
    world.queue("r", 1, None, None);
    for (at, name) in NODES.into_iter().enumerate() {
        world.node(name, shape_of(at, 3));
    }
    world
}

/// Everybody does what they are told, every node comes back, until nothing moves.
fn calm(world: &mut World) {
    for (at, name) in NODES.into_iter().enumerate() {
        let epoch = world.state.nodes()[&node_name(name)].epoch.0;
        world.register(name, shape_of(at, 3), epoch);
        world.uncordon(name);
    }
    TREE.into_iter().for_each(|name| world.queue(name, 2, None, None));
    let mut quiet = 0;
    for _ in 0..400 {
        let moved = !world.settle().is_empty();
        let members = living(world);
        quiet = if members.is_empty() && !moved { quiet + 1 } else { 0 };
        // Twice: a back-off may have been what it waited for.
        if quiet == 2 {
            return;
        }
        for (run, member) in members {
            if !world.is_active(run) {
                continue;
            }
            obey(world, run, member);
            let attempt = world.state.jobs()[&run].attempt().unwrap();
            let finishes = attempt.launched.is_some() && attempt.stop.is_none() && !attempt.members[member as usize].is_released();
            if finishes {
                world.exits(run, member, 0, None);
            }
        }
        world.wait(700_000);
    }
    panic!("it does not come to rest");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_a_rule_and_every_job_ends_or_waits_with_a_reason(steps in proptest::collection::vec(step(), 1..90)) {
        let mut world = begin();
        steps.iter().for_each(|step| apply(&mut world, step));
        calm(&mut world);
        for (run, job) in world.state.jobs() {
            prop_assert!(world.is_pending(*run), "{run} is neither ended nor pending: {job:?}");
            prop_assert!(world.reason(*run).is_some(), "{run} waits without a reason");
            prop_assert!(job.requests.is_empty(), "{run} has requests without an answer");
            let waits = job.spec.after.iter().any(|after| world.state.jobs().contains_key(&after.run));
            prop_assert_eq!(waits, world.state.waits_for_others(run));
            let never = |run: &RunId| matches!(world.reason(*run), Some(WaitReason::NoSuchNode { .. }));
            // Roles that can stand alone and not beside each other wait for ever.
            let apart = !job.spec.roles.is_empty() && matches!(admit(&world.state, &job.spec, false), Err(Refusal::NeverFits { .. }));
            // What can never start stands in the line of its array like any other.
            let of_array = |other: &RunId| job.spec.array.is_some() && world.state.jobs()[other].spec.array.map(|of| of.id) == job.spec.array.map(|of| of.id);
            let behind = matches!(world.reason(*run), Some(WaitReason::Array { .. }));
            let is_kept = behind && world.state.jobs().keys().any(|other| of_array(other) && never(other));
            let hopeless = job.held || waits || never(run) || is_kept || apart;
            prop_assert!(hopeless, "{run} could run: {:?}", world.reason(*run));
        }
        prop_assert!(world.state.nodes().values().all(|node| node.claims.is_empty()));
    }

    #[test]
    fn a_replay_gives_the_same_state_and_a_repeated_event_changes_nothing(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = begin();
        steps.iter().for_each(|step| apply(&mut world, step));
        let mut again = State::default();
        for recorded in world.story.recorded() {
            again.evolve(recorded);
            let before = (recorded.sequence % 7 == 0).then(|| again.fingerprint());
            again.evolve(recorded);
            if let Some(before) = before {
                prop_assert_eq!(before, again.fingerprint());
            }
        }
        prop_assert_eq!(again.fingerprint(), world.state.fingerprint());
        let ended: usize = world.story.recorded().iter().filter(|recorded| matches!(recorded.envelope.event, Event::JobEnded(_))).count();
        prop_assert_eq!(ended, world.state.ended().len());
    }
}
