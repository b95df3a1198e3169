//! A node may only speak and read for itself.

use crate::servers;
use footplate_eventlog::conformance::{message, texts};
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, Permissions, node_inbox_prefix};
use footplate_eventlog::{Broker, Expect, StreamName};
use footplate_testkit::nats;
use footplate_types::NodeName;
use futures::StreamExt;
use std::time::Duration;

#[tokio::test]
async fn a_node_may_only_speak_and_read_for_itself() {
    let node = NodeName::parse("n1").unwrap();
    let permissions = Permissions::of_node(&node).to_server_config();
    let users = format!(
        "authorization {{ users: [ {{ user: platform, password: p }}, {{ user: n1, password: q, permissions: {permissions} }} ] }}"
    );
    let server = nats().config(&users).start().await;
    let mut config = servers::config(&server);
    config.credentials = Credentials::User { name: "platform".to_owned(), password: "p".to_owned() };
    let platform = JetStreamBroker::connect(config.clone()).await.unwrap();
    config.credentials = Credentials::User { name: "n1".to_owned(), password: "q".to_owned() };
    config.inbox_prefix = Some(node_inbox_prefix(&node));
    config.manage_streams = false;
    config.direct_reads = true;
    let agent = JetStreamBroker::connect(config.clone()).await.unwrap();

    let mut heard = agent.listen("fp.assigned.n1").await.unwrap();
    for (stream, subject) in [
        (StreamName::Reports, "fp.report.n1.executor"),
        (StreamName::Logs, "fp.logs.n1.r"),
        (StreamName::Metrics, "fp.metrics.7.n1"),
        (StreamName::Beats, "fp.beat.n1"),
    ] {
        assert_eq!(agent.publish(stream, message(subject, "x"), Expect::Any).await, Ok(1), "{subject}");
    }
    for node in ["n1", "n2"] {
        let assign = message(&format!("fp.assign.{node}"), node);
        platform.publish(StreamName::Assignments, assign, Expect::Subject(0)).await.unwrap();
    }
    let own = agent.last(StreamName::Assignments, "fp.assign.n1").await.unwrap().unwrap();
    assert_eq!(texts(std::slice::from_ref(&own)), ["n1"]);
    assert_eq!(agent.last(StreamName::Settled, "fp.settled.n1.executor").await, Ok(None));
    assert_eq!(agent.last(StreamName::Beats, "fp.beat.n1").await.unwrap().unwrap().sequence, 1);
    let assigned = tokio::time::timeout(Duration::from_secs(20), heard.next()).await.unwrap().unwrap();
    assert_eq!((assigned.sequence, assigned.subject.as_str()), (own.sequence, "fp.assigned.n1"));

    // All refused: the broker says nothing to the publisher, and stores nothing.
    let (report, lease, ledger, others) = tokio::join!(
        agent.publish(StreamName::Reports, message("fp.report.n2.executor", "x"), Expect::Any),
        agent.publish(StreamName::Beats, message("fp.lease.executor", "x"), Expect::Any),
        agent.publish(StreamName::Ledger, message("fp.ledger._.node.n1", "x"), Expect::Any),
        agent.last(StreamName::Assignments, "fp.assign.n2"),
    );
    assert!(report.is_err() && lease.is_err() && ledger.is_err() && others.is_err());
    assert_eq!(platform.bounds(StreamName::Reports).await.unwrap().last, 1);
    assert_eq!(platform.bounds(StreamName::Beats).await.unwrap().last, 1);
    assert_eq!(platform.bounds(StreamName::Ledger).await.unwrap().last, 0);
}

#[tokio::test]
async fn wrong_credentials_are_told_as_such() {
    let server = nats().config("authorization { user: platform, password: p }").start().await;
    let refused = JetStreamBroker::connect(servers::config(&server)).await.unwrap_err();
    assert!(refused.to_string().contains("credentials"), "{refused}");
}
