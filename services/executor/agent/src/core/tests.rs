//! The node's judgement, case by case, without a clock, a disk or a broker.

use super::*;
use footplate_events::{
    facts::{DocumentRef, Launcher, StopNotice, StopPolicy},
    messages::{Fence, RoleSize, TaskRole},
};
use footplate_types::{AttemptNumber, Digest, DisplayName, MemberIndex, ProjectName, Rank, RunId, SlotIndex};

const LEASE_MS: u64 = 10_000;
const SECOND: u64 = 1_000_000_000;

fn fixed() -> Fixed {
    Fixed { node: node(), boot_id: "boot-1".to_owned(), lease_ms: LEASE_MS, beat_every_ms: 1_000, kill_ms: 5_000 }
}

fn node() -> NodeName {
    NodeName::parse("n1").unwrap()
}

pub(crate) fn task(run: u8, epoch: u64, slots: &[u32], order: Order) -> Task {
    Task {
        project: ProjectName::parse("vision").unwrap(),
        run: RunId::from_bytes([run; 16]),
        name: DisplayName::parse("x").unwrap(),
        attempt: AttemptNumber(1),
        member: MemberIndex(0),
        epoch: Epoch(epoch),
        placed_at: 10,
        order,
        members: 1,
        world_size: 1,
        first_rank: Rank(0),
        workers: 1,
        gpus: Vec::new(),
        gpu_profile: None,
        gpu_share: 0,
        gpu_memory_bytes: 0,
        slots: slots.iter().map(|slot| SlotIndex(*slot)).collect(),
        memory_bytes: 0,
        launcher: Launcher::Direct,
        stop: StopPolicy::default(),
        launch: DocumentRef { digest: Digest::of(b"launch"), bytes: 6 },
        config: None,
        source: None,
        checkpoint: None,
        seed: None,
        objective: None,
        role: None,
        array: None,
        traceparent: None,
    }
}

fn run_order() -> Order {
    Order::Run { rendezvous: rendezvous(), peers: vec!["n1".to_owned()] }
}

fn stop_order(cause: StopCause) -> Order {
    Order::Stop { cause, grace: Millis(3_000) }
}

fn rendezvous() -> Rendezvous {
    Rendezvous { address: "n1".to_owned(), port: 20_000 }
}

fn assignment(as_of: u64, tasks: Vec<Task>) -> Input {
    Input::Assigned(Assignment { node: node(), as_of, tasks })
}

fn exited(task: &Task) -> MemberExited {
    MemberExited {
        member: task.member,
        node: node(),
        epoch: task.epoch,
        obeyed: None,
        workers: Vec::new(),
        not_started: None,
        offsets: FinalOffsets::default(),
    }
}

/// A core with a clock that the test moves.
struct Bench {
    core: Core,
    seconds: u64,
}

impl Bench {
    fn new(state: CoreState) -> Self {
        Self { core: Core::new(fixed(), state, None), seconds: 100 }
    }

    /// A node that has beaten once, under generation 1.
    fn beating() -> Self {
        let mut bench = Self::new(CoreState::default());
        assert_eq!(bench.core.adopt(Vec::new()), [Effect::Persist]);
        assert_eq!(bench.step(Input::Tick), [Effect::LookAtBeat]);
        let effects = bench.step(Input::BeatLooked(Ok(None)));
        assert!(matches!(effects.as_slice(), [Effect::Persist, Effect::SendBeat { expect: 0, .. }]), "{effects:?}");
        bench.acknowledge(1, 1);
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let now = Now { boot_ns: self.seconds * SECOND, wall: Timestamp::from_nanos(0) };
        self.core.step(now, input)
    }

    fn acknowledge(&mut self, number: u64, sequence: u64) -> Vec<Effect> {
        self.step(Input::BeatDone { number, outcome: BeatOutcome::Acknowledged(sequence) })
    }

    /// Beats once more; its number and what it expects.
    fn beat(&mut self) -> (u64, u64) {
        self.seconds += 1;
        let effects = self.step(Input::Tick);
        effects
            .iter()
            .find_map(|effect| match effect {
                Effect::SendBeat { beat, expect } => Some((beat.number, *expect)),
                _ => None,
            })
            .unwrap_or_else(|| panic!("no beat in {effects:?}"))
    }

    /// Takes a member up to running.
    fn running(&mut self, task: &Task) -> MemberKey {
        let key = MemberKey::of(task);
        let prepare = Task { order: Order::Prepare, ..task.clone() };
        assert_eq!(self.step(assignment(20, vec![prepare])), [Effect::Persist, Effect::Prepare { key }]);
        self.step(Input::Prepared { key, result: Ok(Some(rendezvous())) });
        let run = Task { order: run_order(), ..task.clone() };
        let effects = self.step(assignment(21, vec![run]));
        assert!(matches!(effects.as_slice(), [Effect::Persist, Effect::Launch { .. }]), "{effects:?}");
        self.step(Input::Launched { key, result: Ok(vec![WorkerStarted { rank: Rank(0), pid: 7 }]) });
        key
    }

    fn end(&mut self, key: MemberKey, task: &Task) {
        self.step(Input::TreeEmpty { key });
        self.step(Input::Gathered { key, exited: exited(task) });
        self.step(Input::ExitReported { key });
    }
}

#[test]
fn the_ports_of_a_gang_of_roles_come_with_its_launch() {
    let mut bench = Bench::beating();
    let size = RoleSize { name: "ps".to_owned(), members: 1, workers: 1 };
    let role = |ports: &[u16]| Some(TaskRole { name: "ps".to_owned(), roles: vec![size.clone()], ports: ports.to_vec() });
    let prepare = Task { role: role(&[]), ..task(1, 1, &[0], Order::Prepare) };
    let key = MemberKey::of(&prepare);
    bench.step(assignment(20, vec![prepare.clone()]));
    bench.step(Input::Prepared { key, result: Ok(Some(rendezvous())) });
    let run = Task { order: run_order(), role: role(&[20_001]), ..prepare };
    let effects = bench.step(assignment(21, vec![run]));
    assert!(matches!(effects.as_slice(), [Effect::Persist, Effect::Launch { .. }]), "kept before it is used: {effects:?}");
    assert_eq!(bench.core.state.members[&key].task.role, role(&[20_001]));
}

#[test]
fn a_member_goes_from_prepare_to_exited_and_each_intent_is_persisted_first() {
    let mut bench = Bench::beating();
    let task = task(1, 1, &[0], Order::Prepare);
    let key = bench.running(&task);
    assert_eq!(bench.step(Input::TreeEmpty { key }), [Effect::Persist, Effect::Gather { key, end: End::Recorded }]);
    assert_eq!(bench.step(Input::TreeEmpty { key }), [], "an end is gathered once");
    let effects = bench.step(Input::Gathered { key, exited: exited(&task) });
    assert!(matches!(effects.as_slice(), [Effect::ReportExit { .. }]));
    bench.step(Input::ExitReported { key });
    assert!(bench.core.is_idle());
    let run = Task { order: run_order(), ..task.clone() };
    assert_eq!(bench.step(assignment(22, vec![run])), [Effect::Persist], "what has ended never starts again");
    assert_eq!(bench.step(assignment(23, vec![])), [Effect::Persist, Effect::Forget { key }]);
}

#[test]
fn nothing_begins_without_a_lease_and_a_held_back_start_comes_with_it() {
    let mut bench = Bench::beating();
    bench.seconds += LEASE_MS / 1_000 + 1;
    let task = task(1, 1, &[0], Order::Prepare);
    let effects = bench.step(assignment(20, vec![task.clone()]));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Prepare { .. })), "{effects:?}");
    let effects = bench.acknowledge(2, 2);
    assert!(effects.contains(&Effect::Prepare { key: MemberKey::of(&task) }), "{effects:?}");
}

#[test]
fn a_lower_assignment_and_a_missing_one_change_nothing() {
    let mut bench = Bench::beating();
    let key = bench.running(&task(1, 1, &[0], Order::Prepare));
    assert_eq!(bench.step(assignment(15, vec![])), []);
    assert_eq!(bench.core.state.members[&key].phase, Phase::Running);
    let other = Assignment { node: NodeName::parse("n2").unwrap(), as_of: 99, tasks: vec![] };
    assert_eq!(bench.step(Input::Assigned(other)), []);
    let effects = bench.step(assignment(30, vec![]));
    assert!(matches!(effects.as_slice(), [Effect::Persist, Effect::Stop { cause: StopCause::Fenced, .. }]), "absence later ends it");
}

#[test]
fn a_restarted_agent_ignores_what_is_older_than_what_it_has_seen() {
    let mut bench = Bench::beating();
    let held = task(1, 1, &[0], Order::Prepare);
    let key = bench.running(&held);
    let run = Task { order: run_order(), ..held.clone() };
    assert_eq!(
        bench.step(assignment(30, vec![run.clone()])),
        [Effect::Persist],
        "what was seen is on disk before anything follows from it"
    );
    let state: CoreState = serde_json::from_str(&serde_json::to_string(&bench.core.state).unwrap()).unwrap();

    let mut again = Bench::new(state);
    again.core.adopt(vec![(key, vec![WorkerStarted { rank: Rank(0), pid: 7 }])]);
    again.step(Input::Tick);
    again.step(Input::BeatLooked(Ok(Some((5, beat_message(17, 1, "boot-1"))))));
    again.acknowledge(1, 6);
    let other = task(2, 1, &[1], Order::Prepare);
    let stop = Task { order: stop_order(StopCause::Cancelled), ..held.clone() };
    for older in [vec![], vec![stop], vec![run.clone(), other.clone()]] {
        assert_eq!(again.step(assignment(29, older)), [], "older than what was followed before the restart");
    }
    assert_eq!(again.core.state.members[&key].phase, Phase::Running);
    again.seconds += 1;
    let effects = again.step(Input::Tick);
    assert!(
        matches!(effects.as_slice(), [Effect::SendBeat { beat, .. }] if beat.as_of == 30),
        "its beats say what it has seen: {effects:?}"
    );
    assert_eq!(again.step(assignment(30, vec![run.clone()])), [], "the same again changes nothing");
    let effects = again.step(assignment(31, vec![run, other.clone()]));
    assert_eq!(effects, [Effect::Persist, Effect::Prepare { key: MemberKey::of(&other) }], "a later one is followed");
}

#[test]
fn absence_before_the_placement_says_nothing_about_it() {
    let mut bench = Bench::beating();
    let late = Task { placed_at: 25, ..task(1, 1, &[0], Order::Prepare) };
    bench.step(assignment(20, vec![late.clone()]));
    assert_eq!(bench.step(assignment(22, vec![])), [Effect::Persist]);
    assert!(bench.core.state.members.contains_key(&MemberKey::of(&late)));
}

#[test]
fn overlapping_claims_wait_for_the_holder() {
    let mut bench = Bench::beating();
    let first = task(1, 1, &[0, 1], Order::Prepare);
    let key = bench.running(&first);
    let second = task(2, 1, &[1, 2], Order::Prepare);
    let run = Task { order: run_order(), ..first.clone() };
    let effects = bench.step(assignment(30, vec![run, second.clone()]));
    assert_eq!(effects, [Effect::Persist], "refused while the slot is held");
    bench.end(key, &first);
    assert!(bench.core.state.members.contains_key(&MemberKey::of(&second)));
}

#[test]
fn shares_of_one_gpu_stand_beside_each_other_up_to_all_of_it_and_never_beside_who_has_it_alone() {
    let mut bench = Bench::beating();
    let on_gpu = |run: u8, share: u32| Task {
        gpus: vec![footplate_types::GpuUuid::parse("GPU-0").unwrap()],
        gpu_share: share,
        ..task(run, 1, &[], Order::Prepare)
    };
    let all = [on_gpu(1, 500), on_gpu(2, 400), on_gpu(3, 101), on_gpu(4, 100), on_gpu(5, 0)];
    bench.step(assignment(30, all.to_vec()));
    let held = |bench: &Bench| all.iter().map(|task| bench.core.state.members.contains_key(&MemberKey::of(task))).collect::<Vec<_>>();
    assert_eq!(held(&bench), [true, true, false, true, false]);
    let mut bench = Bench::beating();
    bench.step(assignment(30, vec![all[4].clone(), all[0].clone()]));
    assert_eq!(held(&bench), [false, false, false, false, true]);
}

#[test]
fn what_cannot_be_matched_is_answered_once() {
    let mut bench = Bench::beating();
    let unknown = task(1, 1, &[0], run_order());
    let stopped = task(2, 1, &[1], stop_order(StopCause::Cancelled));
    let old = task(3, 0, &[2], Order::Prepare);
    let coming = task(4, 2, &[3], Order::Prepare);
    let tasks = vec![unknown, stopped, old, coming];
    let effects = bench.step(assignment(20, tasks.clone()));
    let answers: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::ReportExit { key, exited } => Some((key.run.as_bytes()[0], exited.obeyed, exited.not_started.is_some())),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(1, None, true), (2, Some(StopCause::Cancelled), true), (3, None, true)]);
    assert_eq!(bench.step(assignment(21, tasks)), [Effect::Persist], "once");
}

#[test]
fn a_stop_reaches_every_phase() {
    let stopped = |cause| Task { order: stop_order(cause), ..task(1, 1, &[0], Order::Prepare) };
    let mut preparing = Bench::beating();
    let key = MemberKey::of(&stopped(StopCause::Cancelled));
    preparing.step(assignment(20, vec![task(1, 1, &[0], Order::Prepare)]));
    assert_eq!(preparing.step(assignment(21, vec![stopped(StopCause::Cancelled)])), [Effect::Persist, Effect::CancelPrepare { key }]);
    let effects = preparing.step(Input::Prepared { key, result: Err("cancelled".to_owned()) });
    assert_eq!(effects, [Effect::Persist, Effect::Gather { key, end: End::Stopped(StopCause::Cancelled) }]);

    let mut ready = Bench::beating();
    ready.step(assignment(20, vec![task(1, 1, &[0], Order::Prepare)]));
    ready.step(Input::Prepared { key, result: Ok(None) });
    let effects = ready.step(assignment(21, vec![stopped(StopCause::NotReady)]));
    assert_eq!(effects, [Effect::Persist, Effect::Gather { key, end: End::Stopped(StopCause::NotReady) }]);

    let mut running = Bench::beating();
    running.running(&task(1, 1, &[0], Order::Prepare));
    let effects = running.step(assignment(22, vec![stopped(StopCause::Preempted)]));
    let [Effect::Persist, Effect::Stop { stop, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((stop.cause.as_str(), stop.grace_ms, stop.signal), ("preempted", 3_000, 15));
    assert_eq!(running.step(assignment(23, vec![stopped(StopCause::Preempted)])), [Effect::Persist], "once");
}

#[test]
fn a_warning_comes_ahead_only_where_the_stop_can_wait() {
    let mut task = task(1, 1, &[0], Order::Prepare);
    task.stop.notice = Some(StopNotice { signal: StopSignal::Usr1, before: Millis(500) });
    assert_eq!(stop_of(&task, StopCause::Preempted, Millis(1)).notice, Some(Notice { signal: 10, before_ms: 500 }));
    assert_eq!(stop_of(&task, StopCause::Cancelled, Millis(1)).notice, None);
}

#[test]
fn an_acknowledged_beat_extends_the_lease_from_when_it_was_sent() {
    let mut bench = Bench::beating();
    let (number, expect) = bench.beat();
    assert_eq!((number, expect), (2, 1));
    let sent = bench.seconds;
    bench.seconds += 4;
    let effects = bench.acknowledge(number, 5);
    assert!(effects.contains(&Effect::WriteLease { until_boot_ns: Some(sent * SECOND + LEASE_MS * 1_000_000) }), "{effects:?}");
}

#[test]
fn after_an_unacknowledged_beat_it_looks_before_it_beats() {
    let mut bench = Bench::beating();
    let (number, _) = bench.beat();
    let sent = bench.seconds;
    assert_eq!(bench.step(Input::BeatDone { number, outcome: BeatOutcome::Unknown }), []);
    bench.seconds += 1;
    assert_eq!(bench.step(Input::Tick), [Effect::LookAtBeat]);
    assert_eq!(bench.step(Input::BeatLooked(Err(()))), [], "the broker is away");
    bench.seconds += 1;
    assert_eq!(bench.step(Input::Tick), [Effect::LookAtBeat]);
    let stored = beat_message(number, 1, "boot-1");
    let effects = bench.step(Input::BeatLooked(Ok(Some((8, stored)))));
    assert!(
        effects.contains(&Effect::WriteLease { until_boot_ns: Some(sent * SECOND + LEASE_MS * 1_000_000) }),
        "it had landed: {effects:?}"
    );
    let sends: Vec<_> = effects.iter().filter(|effect| matches!(effect, Effect::SendBeat { expect: 8, .. })).collect();
    assert!(sends.len() == 1 || bench.beat().1 == 8);
}

fn beat_message(number: u64, epoch: u64, boot: &str) -> BeatMessage {
    BeatMessage::Beat(beat_of(number, epoch, boot, ""))
}

fn beat_of(number: u64, epoch: u64, boot: &str, agent: &str) -> Beat {
    Beat {
        node: node(),
        epoch: Epoch(epoch),
        boot_id: boot.to_owned(),
        number,
        lease_ms: LEASE_MS,
        kill_ms: 5_000,
        as_of: 0,
        held: Vec::new(),
        sent_at: Timestamp::from_nanos(0),
        agent: agent.to_owned(),
    }
}

fn fence(epoch: u64) -> BeatMessage {
    BeatMessage::Fence(Fence { node: node(), epoch: Epoch(epoch), reason: "lease".to_owned(), lease_ms: LEASE_MS })
}

#[test]
fn a_fenced_agent_kills_reports_and_only_then_beats_under_the_new_generation() {
    let mut bench = Bench::beating();
    let held = task(1, 1, &[0], Order::Prepare);
    let key = bench.running(&held);
    let (number, _) = bench.beat();
    assert_eq!(bench.step(Input::BeatDone { number, outcome: BeatOutcome::Conflict }), [Effect::LookAtBeat]);
    let effects = bench.step(Input::BeatLooked(Ok(Some((9, fence(2))))));
    let [Effect::Persist, Effect::Stop { stop, cause: StopCause::Fenced, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(stop.grace_ms, 0);
    bench.seconds += 30;
    let new = task(2, 2, &[1], Order::Prepare);
    assert_eq!(bench.step(assignment(40, vec![new.clone()])), [Effect::Persist], "nothing begins and nothing is said while anything lives");
    bench.step(Input::TreeEmpty { key });
    bench.step(Input::Gathered { key, exited: exited(&held) });
    let effects = bench.step(Input::ExitReported { key });
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SendBeat { beat, expect: 9 } if beat.epoch == Epoch(2))), "{effects:?}");
    assert_eq!(bench.core.state.epoch, Some(Epoch(2)));
    let effects = bench.acknowledge(number + 1, 10);
    assert!(effects.contains(&Effect::Register { epoch: Epoch(2) }));
    assert!(effects.contains(&Effect::Prepare { key: MemberKey::of(&new) }), "{effects:?}");
}

#[test]
fn a_restarted_agent_adopts_what_runs_and_ends_what_does_not() {
    let mut bench = Bench::beating();
    let alive = task(1, 1, &[0], Order::Prepare);
    let key = bench.running(&alive);
    let mut state = bench.core.state.clone();
    let dead = Task { run: RunId::from_bytes([2; 16]), ..alive.clone() };
    let dead_key = MemberKey::of(&dead);
    state.members.insert(dead_key, Held { task: dead, phase: Phase::Launching, rendezvous: None, stop: None });
    let mut again = Bench::new(state);
    let effects = again.core.adopt(vec![(key, vec![WorkerStarted { rank: Rank(0), pid: 7 }])]);
    assert!(matches!(effects[1], Effect::Report(ExecutorReport::Started { .. })), "{effects:?}");
    assert_eq!(effects[2], Effect::Gather { key: dead_key, end: End::Recorded }, "an intent is never started a second time");
    assert_eq!(again.step(Input::Tick), [Effect::LookAtBeat]);
    let effects = again.step(Input::BeatLooked(Ok(Some((5, beat_message(17, 1, "boot-1"))))));
    assert!(matches!(effects.as_slice(), [Effect::SendBeat { expect: 5, .. }]), "its own earlier beat: {effects:?}");
}

#[test]
fn a_stranger_under_this_name_is_waited_out() {
    let mut bench = Bench::new(CoreState::default());
    bench.core.adopt(Vec::new());
    bench.step(Input::Tick);
    let sequence = 5;
    let seen = |bench: &mut Bench, sequence: u64| {
        bench.seconds += 2;
        bench.step(Input::Tick);
        bench.step(Input::BeatLooked(Ok(Some((sequence, beat_message(sequence, 3, "other-boot"))))))
    };
    let mut waited = 0;
    while seen(&mut bench, sequence).is_empty() {
        waited += 2;
        assert!(waited < 30);
    }
    assert!((waited + 2) * 1_000 > LEASE_MS + 5_000, "{waited}");
    assert_eq!(bench.core.state.epoch, Some(Epoch(4)), "another machine's place is taken under a generation of its own");
}

#[test]
fn a_machine_that_was_started_anew_begins_another_generation_and_starts_nothing_of_the_one_before() {
    let mut bench = Bench::beating();
    bench.step(assignment(20, vec![task(1, 1, &[0], Order::Prepare)]));
    let key = MemberKey::of(&task(1, 1, &[0], Order::Prepare));
    bench.step(Input::Prepared { key, result: Ok(Some(rendezvous())) });
    let saved = bench.core.state.clone();
    // Power goes and comes back; meanwhile the gang was launched, and another member placed here.
    let mut again = Bench { core: Core::new(Fixed { boot_id: "boot-2".to_owned(), ..fixed() }, saved, None), seconds: 5 };
    again.core.adopt(Vec::new());
    let orders = vec![task(1, 1, &[0], run_order()), task(2, 1, &[1], Order::Prepare)];
    let mut effects = again.step(assignment(30, orders.clone()));
    effects.extend(again.step(Input::BeatLooked(Ok(Some((1, beat_message(1, 1, "boot-1")))))));
    let gathers = |effect: &Effect| matches!(effect, Effect::Gather { end: End::Stopped(StopCause::Fenced), .. });
    assert!(effects.iter().any(gathers), "what was ready ends: {effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::SendBeat { .. })), "{effects:?}");
    effects.extend(again.step(Input::Gathered { key, exited: exited(&orders[0]) }));
    effects.extend(again.step(Input::ExitReported { key }));
    assert_eq!(again.core.state.epoch, Some(Epoch(2)));
    let beats = |effect: &Effect| matches!(effect, Effect::SendBeat { beat, expect: 1 } if beat.epoch == Epoch(2));
    assert!(effects.iter().any(beats), "{effects:?}");
    effects.extend(again.acknowledge(1, 2));
    assert!(effects.contains(&Effect::Register { epoch: Epoch(2) }), "{effects:?}");
    effects.extend(again.step(assignment(31, orders)));
    let begins = |effect: &Effect| matches!(effect, Effect::Launch { .. } | Effect::Prepare { .. });
    assert!(!effects.iter().any(begins), "nothing of the old generation begins: {effects:?}");
    let answered = effects.iter().filter(|effect| matches!(effect, Effect::ReportExit { .. })).count();
    assert_eq!(answered, 2, "both are answered: {effects:?}");
}

#[test]
fn of_two_living_agents_of_one_name_on_one_machine_none_takes_the_others_lease() {
    let state = CoreState { token: "mine".to_owned(), ..Bench::beating().core.state };
    let beats = |number: u64, agent: &str| BeatMessage::Beat(beat_of(number, 1, "boot-1", agent));
    // One that starts on the machine where the other one beats.
    let mut late = Bench::new(state.clone());
    late.core.adopt(Vec::new());
    late.step(Input::Tick);
    assert_eq!(late.step(Input::BeatLooked(Ok(Some((7, beats(7, "other")))))), [], "its lease is not taken");
    assert_eq!(late.core.name_taken(), None, "it may be dead");
    late.seconds += 2;
    late.step(Input::Tick);
    assert_eq!(late.step(Input::BeatLooked(Ok(Some((8, beats(8, "other")))))), []);
    assert_eq!(late.core.name_taken(), Some("boot-1"), "it lives");
    // One that beats already, and whose number is higher than the stranger's.
    let mut first = Bench::beating();
    first.core.state.token = "mine".to_owned();
    first.acknowledge(1, 1);
    let (number, _) = first.beat();
    first.step(Input::BeatDone { number, outcome: BeatOutcome::Conflict });
    assert_eq!(first.step(Input::BeatLooked(Ok(Some((2, beats(1, "other")))))), []);
    // Its own, told by its token, is followed.
    let mut again = Bench::new(state);
    again.core.adopt(Vec::new());
    again.step(Input::Tick);
    let effects = again.step(Input::BeatLooked(Ok(Some((7, beats(7, "mine"))))));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SendBeat { expect: 7, .. })), "{effects:?}");
}

#[test]
fn a_lease_without_end_is_taken_over_only_from_an_agent_that_stands_still() {
    let mut bench = Bench::new(CoreState::default());
    bench.core.adopt(Vec::new());
    bench.step(Input::Tick);
    let stranger = || BeatMessage::Beat(Beat { lease_ms: 0, kill_ms: 0, ..beat_of(3, 2, "boot-1", "other") });
    assert_eq!(bench.step(Input::BeatLooked(Ok(Some((5, stranger()))))), []);
    bench.seconds += 3;
    bench.step(Input::Tick);
    let effects = bench.step(Input::BeatLooked(Ok(Some((5, stranger())))));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SendBeat { expect: 5, .. })), "{effects:?}");
}

#[test]
fn a_shutdown_stops_every_member_with_its_own_grace() {
    let mut bench = Bench::beating();
    let key = bench.running(&task(1, 1, &[0], Order::Prepare));
    let effects = bench.step(Input::StopMembers);
    let [Effect::Persist, Effect::Stop { stop, cause: StopCause::Shutdown, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(stop.grace_ms, StopPolicy::DEFAULT_GRACE.0);
    let state = bench.core.state.clone();
    assert_eq!(state.members[&key].stop, Some(StopCause::Shutdown));
    let json = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<CoreState>(&json).unwrap(), state, "the state reads back");
}
