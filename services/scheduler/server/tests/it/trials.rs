//! Jobs of sweeps' trials: submitted from the fact that the trial is suggested, once; cancelled from the fact that it is pruned.

use crate::stage::*;
use footplate_events::facts::{PruneCause, TrialPruned, TrialSuggested, Values};
use footplate_events::{Event, Subject};
use footplate_types::{SweepId, TrialId, TrialNumber};
use footplate_wire::job_spec_from_wire;

fn trial(number: u32) -> TrialId {
    TrialId { sweep: SweepId::from_bytes([5; 16]), trial: TrialNumber(number) }
}

fn suggested(id: TrialId) -> TrialSuggested {
    TrialSuggested { run: id.run(), values: Values::new(), job: job_spec_from_wire(&spec(1, 1)).unwrap(), view: 1 }
}

fn pruned() -> TrialPruned {
    TrialPruned { cause: PruneCause::SweepStopped, rung: None, message: "enough".to_owned() }
}

#[tokio::test]
async fn a_suggested_trial_is_one_job_whoever_leads_and_a_pruned_one_is_cancelled() {
    let stage = stage().await;
    let other = instance(stage.broker.clone(), "two").await;
    let (one, two) = (trial(1), trial(2));
    record(stage.broker.as_ref(), Subject::trial(&project(), one), suggested(one)).await;
    let run = one.run().to_string();
    stage.scheduler.reaches(&run, "pending").await;
    // What comes at once: the job is submitted all the same, so that the trial has an end.
    record(stage.broker.as_ref(), Subject::trial(&project(), two), suggested(two)).await;
    record(stage.broker.as_ref(), Subject::trial(&project(), two), pruned()).await;
    stage.scheduler.reaches(&two.run().to_string(), "ended").await;
    stage.scheduler.stop().await;
    other.reaches(&run, "pending").await;
    record(stage.broker.as_ref(), Subject::trial(&project(), one), pruned()).await;
    let job = other.reaches(&run, "ended").await;
    assert_eq!(job.outcome(), footplate_api::types::Outcome::Cancelled);
    for id in [one, two] {
        let events = other.events(&id.run().to_string()).await;
        let submissions = events.iter().filter(|event| matches!(event, Event::JobSubmitted(_))).count();
        let ends = events.iter().filter(|event| matches!(event, Event::JobEnded(_))).count();
        assert_eq!((submissions, ends), (1, 1), "{events:?}");
    }
    let verified = other.verified().await;
    assert!(verified.equal, "{}", verified.difference);
    other.stop().await;
}

#[tokio::test]
async fn a_trial_whose_submission_was_answered_by_nobody_is_one_job() {
    let stage = stage().await;
    stage.scheduler.submitted(spec(1, 1)).await;
    stage.broker.faults().lose_next_ack(footplate_eventlog::StreamName::Ledger);
    let id = trial(3);
    record(stage.broker.as_ref(), Subject::trial(&project(), id), suggested(id)).await;
    stage.scheduler.reaches(&id.run().to_string(), "pending").await;
    let events = stage.scheduler.events(&id.run().to_string()).await;
    assert_eq!(events.iter().filter(|event| matches!(event, Event::JobSubmitted(_))).count(), 1);
    stage.scheduler.stop().await;
}
