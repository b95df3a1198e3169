//! gpu-inventory over the broker in memory, asked over gRPC as an operator would.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use footplate_api::server::{ServerParts, serve};
use footplate_api::v1::node_service_client::NodeServiceClient;
use footplate_api::v1::{ListNodesRequest, Node, NodeRequest};
use footplate_clock::SystemClock;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::verify::verify_view;
use footplate_eventlog::{Broker, Expect, Headers, Ledger, Message, StreamName};
use footplate_events::facts::NodeRegistered;
use footplate_events::messages::*;
use footplate_gpu_inventory_server::{Config, Handle, filters, start};
use footplate_service::Context;
use footplate_testkit::eventually;
use footplate_types::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

const SOON: Duration = Duration::from_secs(20);

struct Stage {
    broker: Arc<MemoryBroker>,
    ledger: Ledger,
    context: Context,
    handle: Handle,
    client: NodeServiceClient<Channel>,
}

fn node() -> NodeName {
    NodeName::parse("n1").unwrap()
}

async fn stage() -> Stage {
    let broker = Arc::new(MemoryBroker::new());
    let ledger = Ledger::new(broker.clone());
    let context = Context::new(Duration::from_secs(5));
    let config = Config { lease: Duration::from_millis(600), margin: Duration::from_millis(100), ..Config::new("test") };
    let handle = start(&config, &ledger, &SystemClock::shared(), &context).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let parts = handle.parts(ServerParts::new()).authenticator(|_| Ok(PrincipalId::parse("local:operator").unwrap()));
    let shutdown = context.shutdown.clone();
    tokio::spawn(async move { serve(listener, parts, shutdown).await });
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    Stage { broker, ledger, context, handle, client: NodeServiceClient::new(channel) }
}

impl Stage {
    async fn registers(&self, offset: u64, epoch: u64, slots: u32) {
        let registered = NodeRegistered {
            epoch: Epoch(epoch),
            boot_id: "boot-a".to_owned(),
            shape: NodeShape { slots, cpus: 4, memory_bytes: 1 << 30, ..NodeShape::default() },
            address: "127.0.0.1".to_owned(),
            agent_version: "0".to_owned(),
            clock_ahead_ms: Some(-120_000),
        };
        let report = Report {
            node: node(),
            epoch: Epoch(epoch),
            at: SpoolPosition { spool: SpoolId::from_bytes([1; 16]), offset },
            kept_from: 1,
            body: ReportBody::Inventory(InventoryReport::Registered { registered }),
            traceparent: None,
        };
        let payload = Bytes::from(serde_json::to_vec(&report).unwrap());
        let message = Message { subject: report_subject(&node(), "gpu-inventory"), headers: Headers::default(), payload };
        self.broker.publish(StreamName::Reports, message, Expect::Any).await.unwrap();
    }

    async fn beats(&self, message: BeatMessage) {
        let payload = Bytes::from(serde_json::to_vec(&message).unwrap());
        let message = Message { subject: beat_subject(&node()), headers: Headers::default(), payload };
        self.broker.publish(StreamName::Beats, message, Expect::Any).await.unwrap();
    }

    async fn nodes(&self) -> Vec<Node> {
        self.client.clone().list_nodes(ListNodesRequest::default()).await.unwrap().into_inner().nodes
    }

    async fn state_is(&self, state: &str) -> Node {
        eventually(SOON, state, || async { self.nodes().await.into_iter().find(|node| node.state == state) }).await
    }

    async fn stop(self) {
        self.context.shutdown.request();
        self.context.supervisor.stopped().await.unwrap();
    }
}

fn beat(lease_ms: u64) -> BeatMessage {
    BeatMessage::Beat(Beat {
        node: node(),
        epoch: Epoch(1),
        boot_id: "boot-a".to_owned(),
        number: 1,
        lease_ms,
        kill_ms: 10,
        as_of: 0,
        held: vec![(RunId::from_bytes([7; 16]), AttemptNumber(1))],
        sent_at: Timestamp::default(),
        agent: String::new(),
    })
}

fn asked(request_id: &str) -> NodeRequest {
    NodeRequest { name: "n1".to_owned(), reason: "fan".to_owned(), request_id: request_id.to_owned(), wait: true, ..NodeRequest::default() }
}

#[tokio::test]
async fn a_registered_node_is_listed_with_its_skew_and_what_it_holds() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.beats(beat(0)).await;
    let node = stage.state_is("ready").await;
    assert_eq!((node.slots, node.cpus, node.clock_ahead_ms), (2, 4, Some(-120_000)));
    let held = eventually(SOON, "what it holds", || async { stage.nodes().await[0].held.first().cloned() }).await;
    assert!(held.ends_with("-1"), "{held}");
    stage.stop().await;
}

#[tokio::test]
async fn an_operators_requests_are_answered_and_say_who_and_why() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.state_is("ready").await;
    let mut client = stage.client.clone();
    let answer = client.drain_node(asked("")).await.unwrap().into_inner();
    assert!(answer.answered && answer.refused.is_empty(), "{answer:?}");
    let node = stage.state_is("drained").await;
    assert_eq!((node.reason.as_str(), node.changed_by.as_str()), ("fan", "local:operator"));
    client.uncordon_node(asked("")).await.unwrap();
    stage.state_is("ready").await;
    stage.stop().await;
}

#[tokio::test]
async fn an_operators_taints_are_shown_with_who_and_why_and_taken_off_again() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.state_is("ready").await;
    let mut client = stage.client.clone();
    let of = |taint: &str| NodeRequest { taint: taint.to_owned(), ..asked("") };
    let answer = client.taint_node(of("dedicated=vision")).await.unwrap().into_inner();
    assert!(answer.answered && answer.refused.is_empty(), "{answer:?}");
    let node = stage.nodes().await.remove(0);
    let [taint] = &node.taints[..] else { panic!("{:?}", node.taints) };
    assert_eq!((taint.taint.as_str(), taint.declared, taint.reason.as_str()), ("dedicated=vision", false, "fan"));
    assert_eq!((taint.changed_by.as_str(), node.state.as_str()), ("local:operator", "ready"));
    assert!(client.untaint_node(of("dedicated")).await.unwrap().into_inner().refused.is_empty());
    assert!(stage.nodes().await[0].taints.is_empty());
    let none = client.untaint_node(of("dedicated")).await.unwrap().into_inner();
    assert!(none.answered && none.refused.contains("no taint dedicated"), "{none:?}");
    let malformed = client.taint_node(of("a=b=c")).await.unwrap_err();
    assert!(malformed.message().contains("taint"), "{malformed:?}");
    stage.stop().await;
}

#[tokio::test]
async fn one_request_id_is_one_request_however_often_it_is_sent() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.state_is("ready").await;
    let calls = (0..20).map(|_| {
        let mut client = stage.client.clone();
        async move { client.cordon_node(asked("night-7")).await.unwrap().into_inner().sequence }
    });
    let sequences: std::collections::BTreeSet<u64> = futures::future::join_all(calls).await.into_iter().collect();
    assert_eq!(sequences.len(), 1);
    let reused = stage.client.clone().uncordon_node(asked("night-7")).await.unwrap_err();
    assert!(reused.message().contains("was used on"), "{reused:?}");
    stage.stop().await;
}

#[tokio::test]
async fn a_declared_loss_is_of_the_generation_that_was_known_and_told_again_it_is_the_same_one() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.state_is("ready").await;
    let mut client = stage.client.clone();
    let lost = client.declare_node_lost(asked("night-8")).await.unwrap().into_inner();
    stage.state_is("lost").await;
    // The machine has booted: another generation.
    stage.registers(2, 2, 2).await;
    stage.state_is("ready").await;
    let again = client.declare_node_lost(asked("night-8")).await.unwrap().into_inner();
    assert_eq!(again.sequence, lost.sequence);
    let named = client.declare_node_lost(NodeRequest { epoch: Some(2), ..asked("night-8") }).await.unwrap_err();
    assert!(named.message().contains("was used on"), "{named:?}");
    let late = client.declare_node_lost(NodeRequest { epoch: Some(1), ..asked("night-9") }).await.unwrap().into_inner();
    assert!(late.refused.contains("generation 2"), "{late:?}");
    assert_eq!(stage.nodes().await[0].state, "ready");
    stage.stop().await;
}

#[tokio::test]
async fn an_unknown_node_is_refused_with_the_known_ones_and_a_bad_name_with_its_field() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.state_is("ready").await;
    let mut client = stage.client.clone();
    let refused = client.cordon_node(NodeRequest { name: "n9".to_owned(), ..asked("") }).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    for name in ["..", "*", ">", "a.b", &"x".repeat(10_000)] {
        let refused = client.cordon_node(NodeRequest { name: name.to_owned(), ..asked("") }).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{name}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_silent_node_is_lost_and_comes_back_and_the_view_can_be_rebuilt() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.beats(beat(200)).await;
    stage.state_is("lost").await;
    stage.beats(beat(60_000)).await;
    stage.state_is("ready").await;
    let verified = verify_view(&stage.ledger, &filters(), stage.handle.live(), 0, SOON).await.unwrap();
    assert!(verified.is_equal() && verified.events >= 3, "{verified:?}");
    stage.stop().await;
}

#[tokio::test]
async fn a_new_shape_holds_from_its_registration() {
    let stage = stage().await;
    stage.registers(1, 1, 2).await;
    stage.state_is("ready").await;
    stage.registers(2, 1, 1).await;
    eventually(SOON, "one slot", || async { (stage.nodes().await[0].slots == 1).then_some(()) }).await;
    stage.stop().await;
}
