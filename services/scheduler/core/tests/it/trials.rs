//! Trials of sweeps: which jobs are wanted, and what becomes of those that nobody could submit by hand.

use crate::world::*;
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_types::{Digest, ProjectName, SweepId, TrialId, TrialNumber};

fn id() -> TrialId {
    TrialId { sweep: SweepId::from_bytes([5; 16]), trial: TrialNumber(1) }
}

fn suggest(world: &mut World, job: JobSpec) {
    let subject = Subject::trial(&ProjectName::parse("vision").unwrap(), id());
    world.record(subject, TrialSuggested { run: id().run(), values: Values::new(), job, view: 1 });
}

fn submit(world: &mut World) {
    let wanted = world.state.wanted()[&id().run()].clone();
    let subject = Subject::job(&wanted.project, id().run());
    world.record(subject, JobSubmitted { spec: (*wanted.spec).clone(), body: Digest::of(b"body") });
}

#[test]
fn a_suggested_trial_wants_its_job_until_that_is_submitted() {
    let mut world = World::new();
    suggest(&mut world, spec(1, 1));
    suggest(&mut world, spec(1, 1));
    assert_eq!(world.state.wanted().len(), 1);
    submit(&mut world);
    assert!(world.state.wanted().is_empty() && world.state.jobs().contains_key(&id().run()));
    suggest(&mut world, spec(1, 1));
    assert!(world.state.wanted().is_empty(), "a trial told twice wants nothing more");
}

#[test]
fn a_trial_in_a_queue_that_is_closed_or_not_there_waits_until_somebody_opens_it() {
    let configured = |closed| QueueConfigured { closed, ..QueueConfigured::default() };
    for closed in [true, false] {
        let mut world = World::new();
        world.slots("n1", 1);
        if closed {
            world.record(Subject::queue(&queue_name("old")), configured(true));
        }
        suggest(&mut world, JobSpec { queue: queue_name("old"), ..spec(1, 1) });
        submit(&mut world);
        world.settle();
        assert!(world.is_pending(id().run()), "closed: {closed}");
        let why = footplate_scheduler_core::explain(&world.state, &id().run(), world.now()).unwrap();
        assert_eq!(why.reason, Some(WaitReason::QueueHeld));
        assert!(why.change.contains(if closed { "has to be opened" } else { "has to be made" }), "{}", why.change);
        world.record(Subject::queue(&queue_name("old")), configured(false));
        world.settle();
        assert!(world.is_active(id().run()), "closed: {closed}");
    }
}
