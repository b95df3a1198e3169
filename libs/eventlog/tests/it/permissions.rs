//! A node may only speak and read for itself, a service only write what it owns.

use crate::facts::{experiment, note, project};
use crate::principals::{Principals, services};
use crate::servers;
use footplate_eventlog::conformance::{message, texts};
use footplate_eventlog::jetstream::JetStreamBroker;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{AppendError, Broker, Expect, Ledger, StreamName};
use footplate_events::Subject;
use footplate_testkit::nats;
use footplate_types::{
    AttemptId, AttemptNumber, ModelId, ModelVersionId, NodeName, PrincipalId, QueueName, RunId, ServiceName, SweepId, TokenId, TrialId,
    TrialNumber, VersionNumber,
};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn a_node_may_only_speak_and_read_for_itself() {
    let principals = Principals::start().await;
    let platform = principals.platform_broker().await;
    let agent = principals.node_broker(&NodeName::parse("n1").unwrap()).await;

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

/// Every kind of aggregate once, with the terms of all services.
pub(crate) fn subjects(services: &[ServiceName]) -> Vec<Subject> {
    let (vision, run, name) = (project(), RunId::from_bytes([7; 16]), NodeName::parse("n1").unwrap());
    let mut subjects = vec![
        experiment("digits"),
        Subject::run(&vision, run),
        Subject::job(&vision, run),
        Subject::job_request(&vision, run),
        Subject::attempt(&vision, AttemptId { run, attempt: AttemptNumber(1) }),
        Subject::queue(&QueueName::parse("q").unwrap()),
        Subject::node(&name),
        Subject::node_request(&name),
        Subject::model(&vision, ModelId::from_bytes([8; 16])),
        Subject::model_version(&vision, ModelVersionId { model: ModelId::from_bytes([8; 16]), version: VersionNumber(3) }),
        Subject::sweep(&vision, SweepId::from_bytes([8; 16])),
        Subject::trial(&vision, TrialId { sweep: SweepId::from_bytes([8; 16]), trial: TrialNumber(1) }),
        Subject::project(&vision),
        Subject::principal(&PrincipalId::parse("user:ada").unwrap()).unwrap(),
        Subject::token(TokenId::from_bytes([9; 16])),
    ];
    subjects.extend(services.iter().map(Subject::term));
    subjects
}

/// Everything of a service's own that its credentials must allow.
async fn works(broker: JetStreamBroker, service: &ServiceName, subjects: &[Subject]) {
    let broker: Arc<dyn Broker> = Arc::new(broker);
    let ledger = Ledger::new(broker.clone()).of(service);
    let own: Vec<&Subject> = subjects.iter().filter(|subject| subject.is_owned_by(service)).collect();
    let mut last = 0;
    for subject in &own {
        last = ledger.append(note(subject, footplate_clock::event_id(), "own"), 0).await.unwrap();
    }
    assert_eq!(ledger.aggregate(own[0]).await.unwrap().len(), 1);
    assert_eq!(broker.last(StreamName::Ledger, &own[0].to_string()).await.unwrap().unwrap().subject, own[0].to_string());
    let mut tail = ledger.tail(vec![Subject::filter(None, None)], last);
    let read = tokio::time::timeout(Duration::from_secs(20), tail.next()).await.unwrap().unwrap();
    assert_eq!(read.sequence(), last, "a consumer, from there on");
    let two = own.iter().cycle().take(2).map(|subject| (message(&subject.to_string(), "more"), Expect::Any)).collect();
    broker.publish_batch(StreamName::Ledger, two).await.unwrap();
    let lease = message(&format!("fp.lease.{service}"), "x");
    assert!(broker.publish(StreamName::Beats, lease, Expect::Any).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_may_only_write_what_it_owns() {
    let principals = Principals::start().await;
    let services = services();
    // The first service makes the streams, the others find them as they must be.
    let mut brokers = Vec::new();
    for service in &services {
        brokers.push(principals.service_broker(service).await);
    }
    let subjects = subjects(&services);
    for (broker, service) in brokers.iter().zip(&services) {
        works(broker.clone(), service, &subjects).await;
    }
    let platform = principals.platform_broker().await;
    let before = platform.bounds(StreamName::Ledger).await.unwrap().last;

    // All refused: the broker says nothing to the publisher, and stores nothing.
    let refused = brokers.iter().zip(&services).flat_map(|(broker, service)| {
        let foreign = subjects.iter().filter(|subject| !subject.is_owned_by(service)).map(ToString::to_string);
        foreign.map(move |subject| async move {
            let stored = broker.publish(StreamName::Ledger, message(&subject, "foreign"), Expect::Any).await;
            assert!(stored.is_err(), "the {service} wrote {subject}");
        })
    });
    let refused = futures::future::join_all(refused);
    let (scheduler, executor) = (&brokers[1], &brokers[2]);
    let smuggled = [subjects[2].to_string(), subjects[4].to_string()].map(|subject| (message(&subject, "x"), Expect::Any)).to_vec();
    let (_, smuggled, lease, fence, assignment, emptied) = tokio::join!(
        refused,
        scheduler.publish_batch(StreamName::Ledger, smuggled),
        scheduler.publish(StreamName::Beats, message("fp.lease.executor", "x"), Expect::Any),
        scheduler.publish(StreamName::Beats, message("fp.beat.n1", "x"), Expect::Any),
        executor.publish(StreamName::Assignments, message("fp.assign.n1", "x"), Expect::Any),
        scheduler.purge(StreamName::Ledger, None, before),
    );
    assert!(smuggled.is_err(), "a batch with another's event in it");
    assert!(lease.is_err() && fence.is_err() && assignment.is_err() && emptied.is_err());
    let after = platform.bounds(StreamName::Ledger).await.unwrap();
    assert_eq!((after.first, after.last), (1, before));
}

#[tokio::test]
async fn a_ledger_in_a_services_hands_refuses_what_another_owns_before_it_is_sent() {
    let services = services();
    let broker = MemoryBroker::new();
    let ledger = Ledger::new(Arc::new(broker.clone()));
    for service in &services {
        for subject in subjects(&services).iter().filter(|subject| !subject.is_owned_by(service)) {
            let refused = ledger.of(service).append(note(subject, footplate_clock::event_id(), "foreign"), 0).await.unwrap_err();
            let AppendError::NotOwned { service: writer, subject: named, .. } = &refused else { panic!("{refused:?}") };
            assert_eq!((writer, named), (service, &subject.to_string()));
        }
    }
    assert_eq!(broker.bounds(StreamName::Ledger).await.unwrap().last, 0);
    let own = experiment("digits");
    assert_eq!(ledger.of(&services[0]).append(note(&own, footplate_clock::event_id(), "own"), 0).await, Ok(1));
}
