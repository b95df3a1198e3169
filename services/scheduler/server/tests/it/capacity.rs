//! What is asked, what is idle and what would help, over the wire.

use crate::stage::*;
use footplate_api::{types, v1};
use footplate_testkit::eventually;

async fn told(instance: &Instance, project: &str) -> v1::GetCapacityResponse {
    let asked = v1::GetCapacityRequest { project: project.to_owned(), at_least: 0 };
    instance.client.once(instance.client.queues().get_capacity(asked)).await.unwrap()
}

#[tokio::test]
async fn what_waits_is_told_with_the_nodes_that_would_serve_it_and_what_is_idle_since_when() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 2).await;
    let run = stage.scheduler.submitted(spec(1, 2)).await;
    stage.scheduler.reaches(&run, "placed").await;
    for _ in 0..2 {
        stage.scheduler.submitted(spec(1, 2)).await;
    }
    let wide = v1::SubmitJobRequest { queue_anyway: true, ..submission(spec(1, 9)) };
    let wide = stage.scheduler.submit(wide).await.unwrap();
    let answer = eventually(SOON, "both demands are told why they wait", || async {
        let answer = told(&stage.scheduler, "vision").await;
        (answer.demands.iter().map(|demand| demand.jobs).sum::<u64>() == 3).then_some(answer)
    })
    .await;
    assert!(answer.view_sequence >= wide.sequence);
    let [queue] = &answer.queues[..] else { panic!("{answer:?}") };
    assert_eq!((queue.queue.as_str(), queue.placed_jobs, queue.placed_slots), ("default", 1, 2));
    assert_eq!((queue.pending_jobs, queue.pending_slots, queue.pending_gpus), (3, 13, 0));
    let [job] = &answer.jobs[..] else { panic!("{answer:?}") };
    assert_eq!((job.run_id.as_str(), job.slots, job.gpus, answer.placed_jobs), (run.as_str(), 2, 0, 1));
    assert!(!job.placed_at.is_empty());
    let [kind] = &answer.kinds[..] else { panic!("{answer:?}") };
    assert_eq!((kind.nodes, kind.idle, kind.slots, kind.cpus), (1, 0, 2, 8));
    let demand = |slots: u32| {
        let asks = |demand: &&v1::Demand| demand.resources.as_ref().unwrap().per_node.as_ref().unwrap().slots == slots;
        answer.demands.iter().find(asks).unwrap()
    };
    let (two, nine) = (demand(2), demand(9));
    assert_eq!((two.jobs, two.nodes_with_room, two.queues["default"]), (2, 0, 2));
    assert_eq!(two.more, [v1::MoreNodes { kind: 0, for_one: 1, for_all: 2 }]);
    assert_eq!((nine.jobs, nine.more.len(), nine.only_named_nodes), (1, 0, false), "no node that is there could take it");
    assert_eq!((answer.idle.len(), answer.idle_nodes, answer.demands_beyond), (0, 0, 0));
    // As many more as it says serve them all, and one that none needs is idle from when it came.
    for name in ["n2", "n3"] {
        register(stage.broker.as_ref(), name, 2).await;
    }
    let registered =
        eventually(SOON, "what waited is placed", || async { (told(&stage.scheduler, "vision").await.placed_jobs == 3).then_some(()) });
    registered.await;
    let came = register(stage.broker.as_ref(), "n4", 2).await;
    let idle = eventually(SOON, "the node that none needs is idle", || async { told(&stage.scheduler, "").await.idle.pop() }).await;
    assert_eq!((idle.node.as_str(), idle.slots, idle.since_sequence), ("n4", 2, came));
    let since = footplate_types::Timestamp::parse(&idle.idle_since).unwrap();
    assert!(footplate_clock::now().millis_since(since) < 60_000);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn placed_jobs_are_told_of_the_project_alone() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 4).await;
    let ours = stage.scheduler.submitted(spec(1, 1)).await;
    let theirs = v1::SubmitJobRequest { project: "speech".to_owned(), ..submission(types::JobSpec { ..spec(1, 2) }) };
    let theirs = stage.scheduler.submit(theirs).await.unwrap().run_id;
    let runs = |answer: v1::GetCapacityResponse| answer.jobs.into_iter().map(|job| job.run_id).collect::<Vec<_>>();
    eventually(SOON, "both are placed", || async { (told(&stage.scheduler, "").await.placed_jobs == 2).then_some(()) }).await;
    assert_eq!(runs(told(&stage.scheduler, "").await), [theirs.clone(), ours.clone()], "who asks the most first");
    assert_eq!(runs(told(&stage.scheduler, "vision").await), [ours]);
    assert_eq!(runs(told(&stage.scheduler, "speech").await), [theirs]);
    assert_eq!(runs(told(&stage.scheduler, "nobody").await), Vec::<String>::new());
    stage.scheduler.stop().await;
}
