//! Queues over the wire.

use crate::stage::*;
use footplate_api::{ApiError, types, v1};

async fn set(stage: &Stage, request: v1::SetQueueRequest) -> Result<v1::WriteResponse, ApiError> {
    stage.scheduler.client.once(stage.scheduler.client.queues().set_queue(request)).await
}

async fn listed(stage: &Stage, at_least: u64) -> Vec<v1::Queue> {
    let asked = v1::ListQueuesRequest { at_least };
    stage.scheduler.client.once(stage.scheduler.client.queues().list_queues(asked)).await.unwrap().queues
}

fn named(name: &str) -> v1::SetQueueRequest {
    v1::SetQueueRequest { name: name.to_owned(), ..v1::SetQueueRequest::default() }
}

#[tokio::test]
async fn a_queue_is_made_changed_field_by_field_and_read_at_least_as_new_as_written() {
    let stage = stage().await;
    assert_eq!(listed(&stage, 0).await.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["default"]);
    set(&stage, v1::SetQueueRequest { weight: Some(3), quota_slots: Some(4), ..named("night") }).await.unwrap();
    let written = set(&stage, v1::SetQueueRequest { held: Some(true), ..named("night") }).await.unwrap();
    let queue = listed(&stage, written.sequence).await.remove(1);
    assert_eq!((queue.weight, queue.quota_slots, queue.quota_gpus, queue.held), (3, Some(4), None, true));
    let again = set(&stage, v1::SetQueueRequest { held: Some(true), ..named("night") }).await.unwrap();
    assert_eq!(again, written, "no change, no event");
    let cleared = set(&stage, v1::SetQueueRequest { clear_quota: true, held: Some(false), ..named("night") }).await.unwrap();
    let queue = listed(&stage, cleared.sequence).await.remove(1);
    assert_eq!((queue.quota_slots, queue.held, queue.sequence), (None, false, cleared.sequence));
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn one_key_is_one_change_whatever_came_after_it_and_another_change_is_refused() {
    let stage = stage().await;
    let keyed = |weight| v1::SetQueueRequest { weight: Some(weight), request_id: "k".into(), ..named("night") };
    set(&stage, v1::SetQueueRequest { quota_gpus: Some(8), ..named("night") }).await.unwrap();
    let first = set(&stage, keyed(3)).await.unwrap();
    set(&stage, v1::SetQueueRequest { weight: Some(5), quota_gpus: Some(4), ..named("night") }).await.unwrap();
    assert_eq!(set(&stage, keyed(3)).await.unwrap(), first);
    let reused = set(&stage, keyed(4)).await.unwrap_err();
    assert_eq!((reused.reason.as_str(), reused.value.as_deref()), ("IDEMPOTENCY_KEY_REUSED", Some("k")));
    assert_eq!(listed(&stage, 0).await.remove(1).weight, 5);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn two_who_change_a_queue_at_once_both_get_what_they_asked() {
    let stage = stage().await;
    let one = set(&stage, v1::SetQueueRequest { weight: Some(5), ..named("q") });
    let two = set(&stage, v1::SetQueueRequest { quota_gpus: Some(8), ..named("q") });
    let (one, two) = tokio::join!(one, two);
    let queue = listed(&stage, one.unwrap().sequence.max(two.unwrap().sequence)).await.remove(1);
    assert_eq!((queue.weight, queue.quota_gpus), (5, Some(8)));
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_queue_with_living_jobs_is_not_closed_and_a_closed_one_takes_none() {
    let stage = stage().await;
    set(&stage, named("old")).await.unwrap();
    let of_old = types::JobSpec { queue: "old".to_owned(), ..spec(1, 1) };
    let run = stage.scheduler.submitted(of_old.clone()).await;
    let refused = set(&stage, v1::SetQueueRequest { closed: Some(true), ..named("old") }).await.unwrap_err();
    assert!(refused.message.contains(&run), "{}", refused.message);
    let queue = listed(&stage, 0).await.remove(1);
    assert_eq!((queue.pending, queue.running), (1, 0));
    stage.scheduler.cancel(&run, "").await.unwrap();
    stage.scheduler.reaches(&run, "ended").await;
    let closed = set(&stage, v1::SetQueueRequest { closed: Some(true), ..named("old") }).await.unwrap();
    stage.scheduler.handle.live().at_least(closed.sequence, SOON).await.unwrap();
    assert_eq!(stage.scheduler.submit(submission(of_old)).await.unwrap_err().reason, "QUEUE_CLOSED");
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn nonsense_settings_are_refused() {
    let stage = stage().await;
    for request in [v1::SetQueueRequest { weight: Some(0), ..named("q") }, named("a.b"), named("")] {
        assert_eq!(set(&stage, request).await.unwrap_err().reason, "INVALID_FIELD");
    }
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn queues_stand_in_a_tree_whose_settings_hold_together() {
    let stage = stage().await;
    set(&stage, v1::SetQueueRequest { guarantee_slots: Some(4), quota_slots: Some(6), ..named("team") }).await.unwrap();
    let below = |slots| v1::SetQueueRequest { parent: Some("team".to_owned()), guarantee_slots: Some(slots), ..named("one") };
    let refused = set(&stage, below(5)).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("QUEUE_TREE", Some("guarantee_slots")), "{refused:?}");
    assert_eq!((refused.value.as_deref(), refused.allowed.as_deref()), (Some("5"), Some("at most 4")), "{refused:?}");
    let written = set(&stage, below(3)).await.unwrap();
    let one = listed(&stage, written.sequence).await.into_iter().find(|queue| queue.name == "one").unwrap();
    assert_eq!((one.parent.as_str(), one.guarantee_slots, one.guarantee_gpus), ("team", 3, 0));
    assert_eq!(set(&stage, below(3)).await.unwrap(), written, "no change, no event");
    for (parent, field) in [("none-such", "parent"), ("one", "parent"), ("No Name", "parent")] {
        let asked = v1::SetQueueRequest { parent: Some(parent.to_owned()), ..named("team") };
        let refused = set(&stage, asked).await.unwrap_err();
        assert_eq!(refused.field.as_deref(), Some(field), "{parent}: {refused:?}");
    }
    let inner = types::JobSpec { queue: "team".to_owned(), ..spec(1, 1) };
    let refused = stage.scheduler.submit(submission(inner)).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.allowed.as_deref()), ("QUEUE_NOT_A_LEAF", Some("one")), "{refused:?}");
    // What was closed takes its place again only where that is still free.
    set(&stage, v1::SetQueueRequest { closed: Some(true), ..named("one") }).await.unwrap();
    let other = v1::SetQueueRequest { parent: Some("team".to_owned()), guarantee_slots: Some(4), ..named("two") };
    let written = set(&stage, other.clone()).await.unwrap();
    stage.scheduler.handle.live().at_least(written.sequence, SOON).await.unwrap();
    let refused = set(&stage, v1::SetQueueRequest { closed: Some(false), ..named("one") }).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.allowed.as_deref()), ("QUEUE_TREE", Some("at most 0")), "{refused:?}");
    set(&stage, v1::SetQueueRequest { closed: Some(true), ..named("two") }).await.unwrap();
    let opened = set(&stage, v1::SetQueueRequest { closed: Some(false), ..named("one") }).await.unwrap();
    stage.scheduler.handle.live().at_least(opened.sequence, SOON).await.unwrap();
    let run = stage.scheduler.submitted(types::JobSpec { queue: "one".to_owned(), ..spec(1, 1) }).await;
    stage.scheduler.cancel(&run, "").await.unwrap();
    let free = set(&stage, v1::SetQueueRequest { parent: Some(String::new()), guarantee_slots: Some(0), ..named("one") }).await.unwrap();
    let one = listed(&stage, free.sequence).await.into_iter().find(|queue| queue.name == "one").unwrap();
    assert_eq!((one.parent.as_str(), one.guarantee_slots), ("", 0));
    stage.scheduler.stop().await;
}
