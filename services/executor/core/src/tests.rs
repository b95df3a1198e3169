//! Given / when / then for reports and losses.
#![allow(clippy::unwrap_used)]

use super::*;
use footplate_es::{Evolve, Project, harness::Story};
use footplate_events::facts::*;
use footplate_events::messages::{BeatSeen, ExecutorReport, MemberRef, Watch};
use footplate_events::{Event, Subject};
use footplate_types::*;
use std::time::Duration;

fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

const RUN: RunId = RunId::from_bytes([9; 16]);

fn attempt(n: u32) -> AttemptId {
    AttemptId { run: RUN, attempt: AttemptNumber(n) }
}

fn registered(epoch: u64, boot: &str) -> NodeRegistered {
    NodeRegistered {
        epoch: Epoch(epoch),
        boot_id: boot.to_owned(),
        shape: NodeShape { slots: 2, cpus: 2, memory_bytes: 1, ..NodeShape::default() },
        address: "127.0.0.1".to_owned(),
        agent_version: "0".to_owned(),
        clock_ahead_ms: None,
    }
}

fn placed(n: u32, nodes: &[(&str, u64)]) -> JobPlaced {
    let members = nodes.iter().enumerate().map(|(index, (name, epoch))| MemberPlacement {
        member: MemberIndex(index as u32),
        node: node(name),
        epoch: Epoch(*epoch),
        gpus: vec![],
        gpu_profile: None,
        gpu_share: 0,
        gpu_memory_bytes: 0,
        slots: vec![SlotIndex(0)],
        cpus: 0,
        memory_bytes: 0,
        role: None,
        first_rank: Rank(index as u32),
        workers: 1,
    });
    let view = View { sequence: 0, now: Timestamp::default(), seed: 0, policy: "p".to_owned() };
    JobPlaced { attempt: AttemptNumber(n), members: members.collect(), ready_within: Millis(1), view }
}

fn story() -> Story {
    let mut story = Story::new();
    for name in ["n1", "n2"] {
        story.record(Subject::node(&node(name)), registered(1, "boot-a"));
    }
    story.record(Subject::job(&project(), RUN), placed(1, &[("n1", 1), ("n2", 1)]));
    story
}

fn of(n: u32, member: u32) -> MemberRef {
    MemberRef { project: project(), run: RUN, attempt: AttemptNumber(n), member: MemberIndex(member) }
}

fn ready(name: &str, member: u32, epoch: u64) -> Reported {
    let fact = MemberReady { member: MemberIndex(member), node: node(name), epoch: Epoch(epoch), rendezvous: None };
    Reported { node: node(name), report: ExecutorReport::Ready { of: of(1, member), ready: fact } }
}

fn exited(name: &str, member: u32) -> Reported {
    let fact = MemberExited {
        member: MemberIndex(member),
        node: node(name),
        epoch: Epoch(1),
        obeyed: None,
        workers: vec![WorkerExit { rank: Rank(member), exit: Exit::Code(0), after_ms: 0, message: String::new(), out_of_memory: None }],
        not_started: None,
        offsets: FinalOffsets::default(),
    };
    Reported { node: node(name), report: ExecutorReport::Exited { of: of(1, member), exited: fact } }
}

fn checkpoint(step: i64) -> Reported {
    let manifest = DocumentRef { digest: Digest::of(b"m"), bytes: 1 };
    let fact = AttemptCheckpointed { step, rank: Rank(0), manifest, bytes: 1, metadata: String::new() };
    Reported { node: node("n1"), report: ExecutorReport::Checkpointed { of: of(1, 0), checkpointed: fact } }
}

fn apply(story: &mut Story, decisions: Vec<footplate_es::Decision>) {
    for decision in decisions {
        story.record(decision.subject, decision.event);
    }
}

#[test]
fn reports_that_arrive_together_fold_into_one_event_an_attempt() {
    let story = story();
    let (decisions, refused) = fold_reports(&story.folded(), &[ready("n1", 0, 1), ready("n2", 1, 1), ready("n1", 0, 1)]);
    assert!(refused.is_empty());
    assert_eq!(decisions.len(), 1);
    let Event::AttemptReady(fact) = &decisions[0].event else { panic!("ready") };
    assert_eq!(fact.members.len(), 2);
}

#[test]
fn a_repeated_report_leads_to_nothing() {
    let mut story = story();
    let reports = [ready("n1", 0, 1), exited("n1", 0)];
    let (decisions, _) = fold_reports(&story.folded(), &reports);
    assert_eq!(decisions.len(), 2);
    apply(&mut story, decisions);
    assert_eq!(fold_reports(&story.folded(), &reports).0, vec![]);
}

#[test]
fn what_a_node_claims_is_checked_against_the_placement() {
    let story = story();
    let state: Executor = story.folded();
    let foreign = Reported { node: node("n2"), ..ready("n1", 0, 1) };
    let unknown = {
        let mut reported = ready("n1", 0, 1);
        if let ExecutorReport::Ready { of, .. } = &mut reported.report {
            of.attempt = AttemptNumber(2);
        }
        reported
    };
    let other_project = {
        let mut reported = ready("n1", 0, 1);
        if let ExecutorReport::Ready { of, .. } = &mut reported.report {
            of.project = ProjectName::parse("other").unwrap();
        }
        reported
    };
    for reported in [foreign, unknown, other_project, ready("n1", 0, 2)] {
        let (decisions, refused) = fold_reports(&state, &[reported]);
        assert_eq!((decisions.len(), refused.len()), (0, 1));
    }
}

#[test]
fn an_older_checkpoint_does_not_follow_a_newer_one() {
    let mut story = story();
    let (decisions, _) = fold_reports(&story.folded(), &[checkpoint(10), checkpoint(5), checkpoint(20)]);
    assert_eq!(decisions.len(), 2);
    apply(&mut story, decisions);
    assert!(fold_reports(&story.folded(), &[checkpoint(15), checkpoint(20)]).0.is_empty());
    let ids: Vec<_> = fold_reports(&story.folded(), &[checkpoint(30), checkpoint(40)]).0.iter().map(|d| d.id("executor")).collect();
    assert_ne!(ids[0], ids[1]);
}

fn beat(sequence: u64, epoch: u64, boot: &str) -> BeatSeen {
    BeatSeen {
        sequence,
        epoch: Epoch(epoch),
        boot_id: Some(boot.to_owned()),
        lease: Duration::from_secs(10),
        kill: Duration::from_secs(1),
        is_fence: false,
    }
}

fn fence(sequence: u64, epoch: u64) -> BeatSeen {
    BeatSeen { is_fence: true, boot_id: None, ..beat(sequence, epoch, "") }
}

#[test]
fn silence_leads_to_a_fence_and_only_the_fence_to_a_loss() {
    let story = story();
    let state: Executor = story.folded();
    let mut watch = Watch::default();
    watch.saw(node("n1"), beat(1, 1, "boot-a"), Duration::ZERO);
    let margin = Duration::from_secs(1);
    let (due, wake) = due_fences(&state, &watch, Duration::from_secs(11), margin);
    assert_eq!((due.len(), wake), (0, Some(Duration::from_secs(1))));
    let (due, _) = due_fences(&state, &watch, Duration::from_secs(12), margin);
    assert_eq!(due.iter().map(|(n, seq, epoch, _)| (n.clone(), *seq, *epoch)).collect::<Vec<_>>(), vec![(node("n1"), 1, Epoch(2))]);
    assert!(losses(&state, &watch).is_empty(), "nobody is lost before the fence stands");
    watch.saw(node("n1"), fence(2, 2), Duration::from_secs(12));
    let decisions = losses(&state, &watch);
    assert_eq!(decisions.len(), 1);
    let Event::AttemptLost(fact) = &decisions[0].event else { panic!("lost") };
    assert_eq!(fact.members.len(), 1);
    assert_eq!(fact.members[0].evidence, LossEvidence::LeaseExpired);
    assert!(due_fences(&state, &watch, Duration::from_secs(100), margin).0.is_empty(), "a fence is not fenced again");
}

#[test]
fn a_watcher_that_has_just_begun_waits_a_whole_lease() {
    let story = story();
    let state: Executor = story.folded();
    let mut watch = Watch::default();
    watch.saw(node("n1"), beat(1, 1, "boot-a"), Duration::ZERO);
    watch.begin_again(Duration::from_secs(100));
    assert!(due_fences(&state, &watch, Duration::from_secs(111), Duration::from_secs(1)).0.is_empty());
}

/// 23, armada#315: the platform was away, every lease ran out meanwhile, and days of work were killed.
#[test]
fn complaint_23_after_an_hour_in_which_nobody_could_be_heard_only_who_stays_silent_is_fenced() {
    let story = story();
    let state: Executor = story.folded();
    let mut watch = Watch::default();
    let (lease, margin) = (Duration::from_secs(11), Duration::from_secs(1));
    for name in ["n1", "n2"] {
        watch.saw(node(name), beat(1, 1, "boot-a"), Duration::ZERO);
    }
    let back = Duration::from_secs(3_600);
    watch.begin_again(back);
    assert!(due_fences(&state, &watch, back, margin).0.is_empty(), "an hour without beats was ours, not theirs");
    watch.saw(node("n1"), beat(2, 1, "boot-a"), back + Duration::from_secs(5));
    let (due, _) = due_fences(&state, &watch, back + lease + margin, margin);
    assert_eq!(due.into_iter().map(|(name, ..)| name).collect::<Vec<_>>(), [node("n2")]);
    assert!(losses(&state, &watch).is_empty(), "and nothing is lost before the fence stands");
}

#[test]
fn a_registration_with_another_boot_id_loses_what_was_placed_before_it_and_nothing_after() {
    let mut story = story();
    let mut watch = Watch::default();
    watch.saw(node("n2"), beat(5, 1, "boot-b"), Duration::ZERO);
    assert!(
        losses(&story.folded(), &watch).is_empty(),
        "a beat alone is not in the ledger: what is placed meanwhile could not be told apart"
    );
    story.record(Subject::node(&node("n2")), registered(1, "boot-b"));
    let decisions = losses(&story.folded(), &watch);
    let Event::AttemptLost(fact) = &decisions[0].event else { panic!("lost") };
    assert_eq!((fact.members[0].node.clone(), fact.members[0].evidence.clone()), (node("n2"), LossEvidence::Rebooted));
    apply(&mut story, decisions);
    story.record(Subject::job(&project(), RUN), placed(2, &[("n2", 1)]));
    assert!(losses(&story.folded(), &watch).is_empty());
}

#[test]
fn a_beat_of_another_boot_under_a_later_generation_loses_what_was_placed_before_as_rebooted() {
    let story = story();
    let mut watch = Watch::default();
    watch.saw(node("n2"), beat(5, 2, "boot-b"), Duration::ZERO);
    let decisions = losses(&story.folded(), &watch);
    let Event::AttemptLost(fact) = &decisions[0].event else { panic!("lost") };
    assert_eq!((fact.members.len(), &fact.members[0].node, &fact.members[0].evidence), (1, &node("n2"), &LossEvidence::Rebooted));
}

#[test]
fn an_idle_node_that_is_declared_lost_is_fenced_before_anything_is_placed_there() {
    let mut story = Story::new();
    story.record(Subject::node(&node("n1")), registered(1, "boot-a"));
    let request = RequestId::from_bytes([1; 16]);
    story.record(Subject::node_request(&node("n1")), NodeLossDeclared { request, reason: "moved".to_owned(), epoch: None });
    let mut watch = Watch::default();
    watch.saw(node("n1"), beat(1, 1, "boot-a"), Duration::ZERO);
    assert_eq!(due_fences(&story.folded(), &watch, Duration::ZERO, Duration::ZERO).0.len(), 1);
    watch.saw(node("n1"), fence(2, 2), Duration::ZERO);
    assert!(due_fences(&story.folded(), &watch, Duration::ZERO, Duration::ZERO).0.is_empty());
    story.record(Subject::node(&node("n1")), registered(2, "boot-a"));
    assert!(story.folded::<Executor>().declared_lost().next().is_none());
}

#[test]
fn a_declaration_of_a_generation_that_is_over_does_not_fence_the_node_when_it_comes_back() {
    let mut story = Story::new();
    story.record(Subject::node(&node("n1")), registered(1, "boot-a"));
    let mut watch = Watch::default();
    watch.saw(node("n1"), fence(2, 2), Duration::ZERO);
    // Once more, while the node lies fenced: the ledger knows generation 1 still.
    let request = RequestId::from_bytes([2; 16]);
    story.record(Subject::node_request(&node("n1")), NodeLossDeclared { request, reason: "gone".to_owned(), epoch: None });
    assert!(due_fences(&story.folded(), &watch, Duration::ZERO, Duration::ZERO).0.is_empty());
    // It boots and beats under the new generation; its registration is on the way.
    watch.saw(node("n1"), beat(3, 2, "boot-b"), Duration::ZERO);
    assert!(due_fences(&story.folded(), &watch, Duration::ZERO, Duration::ZERO).0.is_empty(), "it lives");
}

#[test]
fn a_declaration_that_comes_after_the_machine_was_started_anew_does_not_hit_what_runs_there_now() {
    let mut story = Story::new();
    story.record(Subject::node(&node("n1")), registered(1, "boot-a"));
    // The operator saw generation 1 off; before his word is in the ledger the machine has booted and registered.
    story.record(Subject::node(&node("n1")), registered(2, "boot-b"));
    let request = RequestId::from_bytes([3; 16]);
    let declared = |epoch| NodeLossDeclared { request, reason: "off".to_owned(), epoch };
    story.record(Subject::node_request(&node("n1")), declared(Some(Epoch(1))));
    let mut watch = Watch::default();
    watch.saw(node("n1"), beat(2, 2, "boot-b"), Duration::ZERO);
    assert!(due_fences(&story.folded(), &watch, Duration::ZERO, Duration::ZERO).0.is_empty(), "it lives");
    story.record(Subject::node_request(&node("n1")), declared(Some(Epoch(2))));
    assert_eq!(due_fences(&story.folded(), &watch, Duration::ZERO, Duration::ZERO).0.len(), 1, "and is fenced when it is meant");
}

#[test]
fn an_operators_word_fences_at_once_even_without_an_end_of_the_lease() {
    let mut story = story();
    let request = RequestId::from_bytes([1; 16]);
    story.record(Subject::node_request(&node("n1")), NodeLossDeclared { request, reason: "powered off".to_owned(), epoch: None });
    let state: Executor = story.folded();
    let mut watch = Watch::default();
    watch.saw(node("n1"), BeatSeen { lease: Duration::ZERO, ..beat(1, 1, "boot-a") }, Duration::ZERO);
    watch.saw(node("n2"), BeatSeen { lease: Duration::ZERO, ..beat(2, 1, "boot-a") }, Duration::ZERO);
    let (due, _) = due_fences(&state, &watch, Duration::from_secs(1_000_000), Duration::ZERO);
    assert_eq!(due.len(), 1, "the other node's lease has no end");
    watch.saw(node("n1"), fence(3, 2), Duration::ZERO);
    let Event::AttemptLost(fact) = &losses(&state, &watch)[0].event else { panic!("lost") };
    assert_eq!(fact.members[0].evidence, LossEvidence::Declared);
}

#[test]
fn the_first_terminal_event_of_a_member_stands() {
    let mut story = story();
    let lost = MemberLost { member: MemberIndex(0), node: node("n1"), epoch: Epoch(1), evidence: LossEvidence::LeaseExpired };
    story.record(Subject::attempt(&project(), attempt(1)), AttemptLost { members: vec![lost] });
    assert!(fold_reports(&story.folded(), &[exited("n1", 0)]).0.is_empty());
    let mut state: Executor = story.folded();
    let late = AttemptExited {
        members: match exited("n1", 0).report {
            ExecutorReport::Exited { exited, .. } => vec![exited],
            _ => vec![],
        },
    };
    story.record(Subject::attempt(&project(), attempt(1)), late);
    let before = state.fingerprint();
    state.evolve(story.recorded().last().unwrap());
    assert_eq!(state.fingerprint(), before);
}

#[test]
fn a_void_placement_leaves_nothing_to_be_lost_or_archived() {
    let mut story = story();
    let requeued = JobRequeued {
        attempt: AttemptNumber(1),
        cause: Cause::Void,
        root: None,
        backoff: Millis(0),
        spent: 0,
        allowed: 0,
        avoid: Vec::new(),
    };
    story.record(Subject::job(&project(), RUN), requeued);
    let state: Executor = story.folded();
    assert!(state.attempt(&attempt(1)).is_none() && state.busy_nodes().next().is_none() && state.unarchived().next().is_none());
    let mut watch = Watch::default();
    watch.saw(node("n1"), fence(2, 2), Duration::ZERO);
    assert!(losses(&state, &watch).is_empty());
    assert_eq!(fold_reports(&state, &[ready("n1", 0, 1)]).1.len(), 1, "what a node says of it is refused");
}

#[test]
fn a_gang_whose_end_does_not_fit_into_one_event_ends_in_several_and_loses_no_exit() {
    let mut story = Story::new();
    story.record(Subject::node(&node("n1")), registered(1, "boot-a"));
    let nodes: Vec<(String, u64)> = (0..64).map(|index| (format!("n{index}"), 1)).collect();
    let nodes: Vec<(&str, u64)> = nodes.iter().map(|(name, epoch)| (name.as_str(), *epoch)).collect();
    story.record(Subject::job(&project(), RUN), placed(1, &nodes));
    let words = "\u{1F600}\u{1}\"".repeat(2_000);
    let reports: Vec<Reported> = (0..64)
        .map(|member| {
            let name = format!("n{member}");
            let mut reported = exited(&name, member);
            if let ExecutorReport::Exited { exited, .. } = &mut reported.report {
                exited.workers = (0..100)
                    .map(|rank| WorkerExit {
                        rank: Rank(rank),
                        exit: Exit::Code(3),
                        after_ms: 0,
                        message: words.clone(),
                        out_of_memory: None,
                    })
                    .collect();
            }
            reported
        })
        .collect();
    let (decisions, refused) = fold_reports(&story.folded(), &reports);
    assert!(refused.is_empty() && decisions.len() > 1, "{} events", decisions.len());
    let mut members = 0;
    let mut ids = std::collections::BTreeSet::new();
    for decision in &decisions {
        assert!(ids.insert(decision.id("executor")), "two events of one id");
        let envelope = footplate_events::Envelope {
            id: EventId::from_bytes([1; 16]),
            subject: decision.subject.clone(),
            event: decision.event.clone(),
            source: "executor/test".to_owned(),
            time: Timestamp::default(),
            actor: PrincipalId::parse("test").unwrap(),
            correlation: EventId::from_bytes([1; 16]),
            causation: None,
            trace: None,
        };
        footplate_events::encode(&envelope).unwrap();
        let Event::AttemptExited(fact) = &decision.event else { panic!("exited") };
        members += fact.members.len();
        assert!(fact.members.iter().all(|member| member.workers.len() == 100 && !member.workers[0].message.is_empty()));
    }
    assert_eq!(members, 64);
}
