//! Parts of GPUs through the API: asked, refused by field, and told in thousandths and as decimals.

use crate::stage::*;
use footplate_api::{types, v1};
use footplate_events::Subject;
use footplate_events::facts::NodeRegistered;
use footplate_testkit::eventually;
use footplate_types::{Epoch, Gpu, GpuModel, GpuUuid, NodeShape};

fn gpu(uuid: &str, slice_of: Option<&str>) -> Gpu {
    Gpu {
        uuid: GpuUuid::parse(uuid).unwrap(),
        model: GpuModel::parse("H100").unwrap(),
        memory_bytes: if slice_of.is_some() { 10 << 30 } else { 80 << 30 },
        island: None,
        numa: None,
        pci: None,
        mig_profile: slice_of.map(|_| "1g.10gb".to_owned()),
        parent: slice_of.map(|parent| GpuUuid::parse(parent).unwrap()),
    }
}

async fn register_shared(stage: &Stage) {
    let gpus = vec![gpu("GPU-0", None), gpu("MIG-0", Some("GPU-1")), gpu("MIG-1", Some("GPU-1"))];
    let shape = NodeShape { gpus, share_gpus: true, cpus: 8, memory_bytes: 1 << 34, disk_bytes: 1 << 34, ..NodeShape::default() };
    let fact = NodeRegistered {
        epoch: Epoch(1),
        boot_id: "boot".to_owned(),
        shape,
        address: "n1.local".to_owned(),
        agent_version: "0".to_owned(),
        clock_ahead_ms: None,
    };
    record(stage.broker.as_ref(), Subject::node(&node("n1")), fact).await;
}

fn asking(per_node: types::PerNode) -> types::JobSpec {
    types::JobSpec { resources: Some(types::ResourceAsk { nodes: 1, per_node: Some(per_node) }), ..spec(1, 1) }
}

fn share(gpu_share: u32) -> types::JobSpec {
    asking(types::PerNode { gpus: 1, gpu_share, gpu_memory_bytes: 1 << 30, ..types::PerNode::default() })
}

#[tokio::test]
async fn parts_of_gpus_are_placed_and_told_in_thousandths_and_as_decimals() {
    let stage = stage().await;
    register_shared(&stage).await;
    let slices = asking(types::PerNode { gpus: 2, gpu_profile: "1g.10gb".to_owned(), ..types::PerNode::default() });
    let runs = [stage.scheduler.submitted(share(300)).await, stage.scheduler.submitted(slices).await];
    for run in &runs {
        stage.scheduler.reaches(run, "placed").await;
    }
    let waits = stage.scheduler.submitted(share(701)).await;
    stage.scheduler.reaches(&waits, "pending").await;
    let get = |run: &str| v1::GetJobRequest { project: "vision".to_owned(), run_id: run.to_owned(), at_least: 0 };
    let job = stage.scheduler.client.once(stage.scheduler.client.jobs().get_job(get(&runs[0]))).await.unwrap().job.unwrap();
    let member = &job.members[0];
    assert_eq!((job.gpu_share, member.gpu_share, member.gpu_memory_bytes), (300, 300, 1 << 30));
    assert_eq!(member.gpus, ["GPU-0"]);
    let job = stage.scheduler.client.once(stage.scheduler.client.jobs().get_job(get(&runs[1]))).await.unwrap().job.unwrap();
    assert_eq!((job.gpu_profile.as_str(), job.gpus_per_node, job.members[0].gpus.len()), ("1g.10gb", 2, 2));
    let queues = stage.scheduler.client.once(stage.scheduler.client.queues().list_queues(v1::ListQueuesRequest::default())).await.unwrap();
    assert_eq!((queues.queues[0].used_gpu_milli, queues.queues[0].used_gpus), (300 + 2 * 142, 1));
    let asked = v1::GetCapacityRequest { project: "vision".to_owned(), at_least: 0 };
    let told = stage.scheduler.client.once(stage.scheduler.client.queues().get_capacity(asked)).await.unwrap();
    assert_eq!((told.queues[0].placed_gpu_milli, told.queues[0].pending_gpu_milli, told.queues[0].pending_gpus), (584, 701, 1));
    assert!(told.kinds[0].share_gpus && told.kinds[0].gpus.iter().any(|gpus| gpus.mig_profile == "1g.10gb" && gpus.count == 2));
    let samples = [
        r#"footplate_scheduler_gpus{pool="",model="H100",state="allocated"} 0.584"#,
        r#"footplate_scheduler_gpus{pool="",model="H100",state="free"} 0.7"#,
        r#"footplate_scheduler_gpus_fragmented{pool="",model="H100"} 0.7"#,
        r#"footplate_scheduler_queue_used{queue="default",resource="gpus"} 0.584"#,
        r#"footplate_scheduler_queue_used{queue="default",resource="slots"} 0"#,
    ];
    eventually(SOON, "parts are told as decimals", || async {
        let text = stage.scheduler.context.metrics.show();
        samples.iter().all(|sample| text.lines().any(|line| line == *sample)).then_some(())
    })
    .await;
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_share_that_can_be_none_is_refused_by_its_field() {
    let stage = stage().await;
    register_shared(&stage).await;
    let per_node =
        |gpus, gpu_share, profile: &str| types::PerNode { gpus, gpu_share, gpu_profile: profile.to_owned(), ..types::PerNode::default() };
    for (ask, field) in [
        (per_node(1, 1_000, ""), "resources.gpu.share"),
        (per_node(2, 500, ""), "resources.gpu.share"),
        (per_node(1, 500, "1g.10gb"), "resources.gpu.share"),
        (per_node(1, 0, "a tenth"), "resources.gpu.mig"),
        (types::PerNode { slots: 1, gpu_share: 500, ..types::PerNode::default() }, "resources.gpu.share"),
    ] {
        let refused = stage.scheduler.submit(submission(asking(ask.clone()))).await.unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_SPEC", Some(field)), "{ask:?}: {}", refused.message);
    }
    stage.scheduler.stop().await;
}
