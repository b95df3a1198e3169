//! Three servers, every stream with three replicas: what a single server cannot show.

use crate::facts::{experiment, note};
use footplate_clock::event_id;
use footplate_eventlog::conformance::{self, Tested};
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig, StreamBytes};
use footplate_eventlog::{Ledger, LedgerItem, StreamName};
use footplate_testkit::{NatsServer, eventually, nats};
use futures::StreamExt;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(60);
const SERVERS: usize = 3;

/// Three servers that know each other, and a connection that may use any.
async fn cluster() -> (Vec<NatsServer>, JetStreamBroker) {
    let ports: Vec<_> = (0..SERVERS).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let routes: Vec<String> = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
    drop(ports);
    let peers = routes.iter().map(|route| format!("nats://{route}")).collect::<Vec<_>>().join(", ");
    let servers = routes.iter().enumerate().map(|(number, route)| {
        let lines = format!("server_name: s{number}\ncluster {{ name: footplate, listen: \"{route}\", routes: [{peers}] }}");
        async move { nats().config(&lines).start().await }
    });
    let servers: Vec<NatsServer> = join_all(servers).await;
    let mut config = JetStreamConfig::single(servers[0].url(), "eventlog cluster tests");
    config.servers = servers.iter().map(NatsServer::url).collect();
    config.replicas = SERVERS;
    config.bytes = StreamBytes::of_disk(2 << 30);
    config.connect_within = SOON;
    let broker = JetStreamBroker::connect(config).await.unwrap();
    (servers, broker)
}

/// Behaviours that hang on replicas: expectations, batches, terms, positions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_behave_as_one_broker() {
    let (_servers, broker) = cluster().await;
    let probe = broker.probe().await.unwrap();
    assert!(probe.streams.iter().all(|stream| stream.differences.is_empty()), "{probe:?}");
    let tested: Tested = Arc::new(broker);
    conformance::many_writers_are_each_acknowledged_exactly_once(tested.clone()).await;
    let ledger = Ledger::new(tested.clone());
    let last = ledger.end().await.unwrap();
    let mut idle = tested.tail(StreamName::Ledger, vec!["fp.ledger.*.node.>".to_owned()], 1);
    assert!(conformance::take_until(&mut idle, last).await.is_empty());
}

/// How long a stream may be without a leader here: one server is killed while the one before it still reads what it missed, so that two of three
/// are not there for a while, and then they elect.
const ELECTED: Duration = Duration::from_secs(120);

/// Rules 3 and 4 on replicas: a server is killed under the writers, the leader of the stream in one of the rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_are_there_exactly_once_though_servers_are_killed_in_turn() {
    const WRITERS: usize = 8;
    let (servers, broker) = cluster().await;
    let ledger = Ledger::new(Arc::new(broker));
    let done = CancellationToken::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (ledger, done) = (ledger.clone(), done.clone());
            tokio::spawn(async move {
                let subject = experiment(&format!("e{writer}"));
                let mut told = Vec::new();
                while !done.is_cancelled() {
                    let id = event_id();
                    let expected = told.last().map_or(0, |(_, sequence)| *sequence);
                    // Nobody else writes here: a conflict would be our own event, not recognised.
                    let sequence = ledger.append_within(note(&subject, id, "x"), expected, ELECTED).await.unwrap();
                    told.push((id, sequence));
                }
                told
            })
        })
        .collect();
    let mut tail = ledger.tail(Vec::new(), 1);
    let mut stored = BTreeMap::new();
    for server in &servers {
        server.kill9().await.unwrap();
        follow_for(&mut tail, &mut stored, 30).await;
        server.restart().await.unwrap();
        follow_for(&mut tail, &mut stored, 30).await;
    }
    done.cancel();
    let told: BTreeMap<_, _> = join_all(writers).await.into_iter().flat_map(Result::unwrap).collect();
    let missing = told.len() - stored.len().min(told.len());
    follow_for(&mut tail, &mut stored, missing).await;
    assert_eq!(stored, told);
    let healed = || async { ledger.end().await.ok().filter(|end| *end == told.len() as u64) };
    eventually(SOON, "the ledger ends where the last append stands", healed).await;
}

async fn follow_for(
    tail: &mut futures::stream::BoxStream<'static, LedgerItem>,
    stored: &mut BTreeMap<footplate_types::EventId, u64>,
    more: usize,
) {
    let wanted = stored.len() + more;
    while stored.len() < wanted {
        let item = tokio::time::timeout(ELECTED, tail.next()).await.expect("appends go on").unwrap();
        if let LedgerItem::Fact(recorded) = item {
            let before = stored.insert(recorded.envelope.id, recorded.sequence);
            assert_eq!(before, None, "an event stands twice, or was delivered twice");
        }
    }
}
