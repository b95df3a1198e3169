//! Truth: what the ledger says happened, once and for good, whoever was away meanwhile.

use super::*;
use footplate_events::Event;

/// 15, kueue#12735: a node was silent for half a minute, its work was placed elsewhere, and went on where it was.
#[test]
fn complaint_15_work_on_a_node_that_is_not_heard_of_is_not_placed_again_before_its_loss_is_certain() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.slots("n2", 1);
    world.node_lost("n1");
    live_on(&mut world, 10);
    assert_eq!((world.nodes_of(run), world.attempt(run)), (vec!["n1".to_owned()], 1), "silent is not gone");
    world.lost(run, 0);
    world.settle();
    world.wait(600_000);
    world.settle();
    assert_eq!((world.nodes_of(run), world.attempt(run)), (vec!["n2".to_owned()], 2));
}

/// 16, kueue#10463, nomad#12680: a replacement was started for what hung on a dead node, and stopped when that came back.
#[test]
fn complaint_16_a_node_that_comes_back_ends_what_it_held_and_leaves_the_replacement_alone() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    let (old, exited) = world.exit_of(run, 0, Exit::Code(0), None);
    world.slots("n2", 1);
    world.node_lost("n1");
    world.lost(run, 0);
    world.settle();
    world.wait(600_000);
    world.settle();
    world.all_ready(run);
    world.settle();
    world.register("n1", slots_shape(1), 2);
    world.record(old.clone(), AttemptExited { members: vec![exited] });
    world.record(old, AttemptReady { members: Vec::new() });
    world.settle();
    assert_eq!((world.nodes_of(run), world.attempt(run), world.stop_cause(run)), (vec!["n2".to_owned()], 2, None));
    let tasks = |name: &str| assignments(&world.state)[&node_name(name)].tasks.len();
    assert_eq!((tasks("n1"), tasks("n2")), (0, 1), "one attempt is to live, and one only");
}

/// 17, nomad#1050, #4299, #19564, skypilot#6133: finished work ran again after its node was lost, toggled or cut off.
#[test]
fn complaint_17_what_has_succeeded_never_runs_again_whatever_becomes_of_its_node() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.running(spec(1, 1));
    world.exits(run, 0, 0, None);
    // All of it before anyone looks.
    world.node_lost("n1");
    world.drain("n1");
    world.uncordon("n1");
    world.register("n1", slots_shape(1), 2);
    let subject = Subject::attempt(&project(), AttemptId { run, attempt: AttemptNumber(1) });
    let lost = MemberLost { member: MemberIndex(0), node: node_name("n1"), epoch: Epoch(1), evidence: LossEvidence::LeaseExpired };
    world.record(subject, AttemptLost { members: vec![lost] });
    live_on(&mut world, 5);
    assert_eq!((world.end(run).outcome, world.end(run).attempt.0), (Outcome::Succeeded, 1));
    assert_eq!(world.count(run, |event| matches!(event, Event::JobPlaced(_))), 1);
}

/// 18, nomad#9890, #23640: what was preempted or lost was never replaced.
#[test]
fn complaint_18_who_was_preempted_or_lost_is_queued_again_and_runs() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let (one, other) = (world.running(loan("default", 1)), world.running(loan("default", 1)));
    let urgent = world.submit(JobSpec { priority: 9, ..spec(1, 1) });
    let node = world.nodes_of(one)[0].clone();
    world.node_lost(&node);
    world.lost(one, 0);
    live_on(&mut world, 3);
    assert!(world.is_active(urgent) && world.is_pending(one) && world.is_pending(other));
    world.register(&node, slots_shape(2), 2);
    live_on(&mut world, 3);
    assert!(world.is_active(one) && world.is_active(other));
}

/// 19, nomad GH-26710: a job was accepted and never looked at: the two were not one.
#[test]
fn complaint_19_a_submission_is_one_event_and_whoever_leads_next_starts_it() {
    let mut world = World::new();
    world.slots("n1", 1);
    let run = world.submit(spec(1, 1));
    world.new_term();
    // Decided, and the leader dies before a word of it is written.
    let unwritten = world.ruling();
    assert_eq!(unwritten.decisions.len(), 1);
    world.new_term();
    world.settle();
    assert!(world.is_active(run));
}

/// 20, skypilot#7707, #10061, #9868: a restart called hundreds of sound jobs failed, wrote over what had ended, forgot a cancel.
#[test]
fn complaint_20_a_restart_is_a_replay_what_runs_runs_on_what_ended_stays_and_a_cancel_is_answered() {
    let mut world = World::new();
    world.slots("n1", 3);
    let runs: Vec<RunId> = (0..3).map(|_| world.running(spec(1, 1))).collect();
    world.exits(runs[0], 0, 0, None);
    world.settle();
    world.cancel(runs[1], 1);
    world.new_term();
    let said = world.settle();
    assert!(
        matches!(&said[..], [(run, Event::JobStopRequested(stop))] if *run == runs[1] && stop.cause == StopCause::Cancelled),
        "{said:?}"
    );
    let failed = JobEnded {
        outcome: Outcome::Failed,
        cause: Cause::Infrastructure,
        attempt: AttemptNumber(1),
        root: None,
        request: None,
        message: "a controller's guess".to_owned(),
    };
    world.state = {
        let mut story = world.story.clone();
        story.record(Subject::job(&project(), runs[0]), failed);
        story.folded()
    };
    assert_eq!(world.end(runs[0]).outcome, Outcome::Succeeded, "the first end stands");
    assert!(world.is_active(runs[2]) && world.stop_cause(runs[2]).is_none());
}

/// 22, determined#5442, #4463, #3144: tasks vanished after a restart; an agent that was lost counted as success.
#[test]
fn complaint_22_silence_after_a_restart_ends_nothing_and_a_loss_is_never_a_success() {
    let mut world = World::new();
    world.slots("n1", 1);
    world.slots("n2", 1);
    let gang = world.running(spec(2, 1));
    world.new_term();
    live_on(&mut world, 20);
    assert!(world.is_active(gang) && world.stop_cause(gang).is_none(), "nothing was heard, so nothing has changed");
    world.exits(gang, 0, 0, None);
    world.lost(gang, 1);
    let said = world.settle();
    assert!(said.iter().any(|(_, event)| matches!(event, Event::JobRequeued(fact) if fact.cause == Cause::Lost)), "{said:?}");
}

/// 24, armada#4918, #2117: the place in the log moved on before the decision was written; what had just been given was given again.
#[test]
fn complaint_24_a_decision_that_was_not_written_is_taken_again_and_one_that_was_is_counted_at_once() {
    let mut world = World::new();
    world.slots("n1", 3);
    let first = [world.submit(spec(1, 1)), world.submit(spec(1, 1))];
    let lost = world.ruling();
    assert_eq!(lost, world.ruling(), "nothing was written, so all of it is decided again");
    let mut half = world.ruling().decisions;
    half.truncate(1);
    world.append(half);
    let late = world.submit(spec(1, 2));
    world.settle();
    // Three slots: the one that was written, its fellow, and nothing for two more.
    assert_eq!((active(&world, &first), world.is_pending(late)), (2, true));
}
