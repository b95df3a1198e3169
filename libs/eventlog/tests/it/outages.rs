//! JetStream on its bad days: killed, stopped, full, emptied, without our consumers.

use crate::facts::{Seen, experiment, health, note};
use crate::leading::Instance;
use crate::servers;
use footplate_clock::event_id;
use footplate_eventlog::conformance::{message, take_messages, take_until, texts};
use footplate_eventlog::jetstream::{ConnectError, JetStreamBroker, JetStreamConfig, StreamBytes, SyncProbe};
use footplate_eventlog::{AppendError, Broker, Expect, Ledger, LedgerItem, Live, PublishError, StreamName, follow};
use footplate_testkit::{eventually, nats};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(30);

async fn put(broker: &JetStreamBroker, subject: &str, text: &str) -> u64 {
    let publish = || async { broker.publish(StreamName::Ledger, message(subject, text), Expect::Any).await.ok() };
    eventually(SOON, "the broker takes a message", publish).await
}

#[tokio::test]
async fn a_tail_goes_on_after_the_broker_was_killed_without_gap_or_repeat() {
    let (server, broker) = servers::jetstream().await;
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    let mut idle = broker.tail(StreamName::Ledger, vec!["fp.ledger.*.node.>".to_owned()], 1);
    put(&broker, "fp.ledger.p.run.1", "1").await;
    put(&broker, "fp.ledger.p.run.1", "2").await;
    assert_eq!(texts(&take_until(&mut tail, 2).await), ["1", "2"]);
    for round in 0..2 {
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
        for n in 0..3 {
            put(&broker, "fp.ledger.p.run.1", &format!("{round}/{n}")).await;
        }
        let seen = take_messages(&mut tail, 3).await;
        assert_eq!(texts(&seen), (0..3).map(|n| format!("{round}/{n}")).collect::<Vec<_>>());
    }
    assert!(take_until(&mut idle, 8).await.is_empty());
}

#[tokio::test]
async fn a_tail_goes_on_after_its_consumer_was_deleted() {
    let (_server, broker) = servers::jetstream().await;
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    put(&broker, "fp.ledger.p.run.1", "1").await;
    assert_eq!(texts(&take_messages(&mut tail, 1).await), ["1"]);
    let request = broker.client().request("$JS.API.CONSUMER.NAMES.LEDGER", "".into()).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&request.payload).unwrap();
    for name in answer["consumers"].as_array().unwrap() {
        let subject = format!("$JS.API.CONSUMER.DELETE.LEDGER.{}", name.as_str().unwrap());
        broker.client().request(subject, "".into()).await.unwrap();
    }
    put(&broker, "fp.ledger.p.run.1", "2").await;
    assert_eq!(texts(&take_messages(&mut tail, 1).await), ["2"]);
}

/// The only consumer of the ledger.
async fn only_consumer(broker: &JetStreamBroker) -> String {
    let name = || async {
        let answer = broker.client().request("$JS.API.CONSUMER.NAMES.LEDGER", "".into()).await.ok()?;
        let answer: serde_json::Value = serde_json::from_slice(&answer.payload).ok()?;
        Some(answer["consumers"].as_array()?.first()?.as_str()?.to_owned())
    };
    eventually(SOON, "the tail has a consumer", name).await
}

/// The broker counts as delivered what never reached us: here another reader of the same consumer takes it, else a subscription that overran.
#[tokio::test]
async fn a_tail_gets_what_was_lost_on_its_way_though_nothing_comes_after_it() {
    let (_server, broker) = servers::jetstream().await;
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    let consumer = only_consumer(&broker).await;
    let mut stolen = broker.client().subscribe("stolen").await.unwrap();
    let mut count: u64 = 0;
    let taken = loop {
        let ask = r#"{"batch": 1, "expires": 20000000000}"#;
        broker.client().publish_with_reply(format!("$JS.API.CONSUMER.MSG.NEXT.LEDGER.{consumer}"), "stolen", ask.into()).await.unwrap();
        count += 1;
        put(&broker, "fp.ledger.p.run.1", &count.to_string()).await;
        let next = tokio::time::timeout(Duration::from_millis(200), futures::StreamExt::next(&mut stolen)).await;
        if let Ok(Some(message)) = next
            && message.status.is_none()
        {
            break String::from_utf8(message.payload.to_vec()).unwrap();
        }
        assert!(count < 100, "the other reader never gets one");
    };
    assert_eq!(taken, count.to_string(), "the last one is lost, so that no gap shows");
    let seen = take_messages(&mut tail, usize::try_from(count).unwrap()).await;
    assert_eq!(texts(&seen), (1..=count).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_tail_asks_for_no_more_than_it_can_hold() {
    let (_server, broker) = servers::jetstream().await;
    for batch in 0..6 {
        let messages = (0..1_000).map(|n| (message("fp.ledger.p.run.1", &format!("{batch}/{n}")), Expect::Any)).collect();
        broker.publish_batch(StreamName::Ledger, messages).await.unwrap();
    }
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    take_messages(&mut tail, 6_000).await;
    let consumer = only_consumer(&broker).await;
    let answer = broker.client().request(format!("$JS.API.CONSUMER.INFO.LEDGER.{consumer}"), "".into()).await.unwrap();
    let info: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    let waiting = info["num_waiting"].as_u64().unwrap();
    assert!((1..=2).contains(&waiting), "{waiting} pulls wait at the broker");
}

#[tokio::test]
async fn a_tail_goes_on_after_the_broker_stood_still() {
    let (server, broker) = servers::jetstream().await;
    let mut tail = broker.tail(StreamName::Ledger, Vec::new(), 1);
    put(&broker, "fp.ledger.p.run.1", "1").await;
    assert_eq!(texts(&take_messages(&mut tail, 1).await), ["1"]);
    server.pause().unwrap();
    let unknown = broker.publish(StreamName::Ledger, message("fp.ledger.p.run.1", "2"), Expect::Subject(1)).await;
    assert!(matches!(unknown, Err(PublishError::Unknown(_))), "{unknown:?}");
    server.resume().unwrap();
    // The message was in the broker's socket: it is stored after all.
    assert_eq!(texts(&take_messages(&mut tail, 1).await), ["2"]);
}

/// Rules 4 and 12: whatever was acknowledged stands in the ledger exactly once, and nothing stands twice, however often the broker dies
/// between storing and answering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_are_there_exactly_once_though_the_broker_is_killed_under_them() {
    const WRITERS: usize = 24;
    let (server, broker) = servers::jetstream().await;
    let ledger = Ledger::new(Arc::new(broker));
    let done = CancellationToken::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (ledger, done) = (ledger.clone(), done.clone());
            tokio::spawn(async move {
                let subject = experiment(&format!("e{writer}"));
                let mut told = Vec::new();
                let mut expected = 0;
                while !done.is_cancelled() {
                    let id = event_id();
                    match ledger.append_within(note(&subject, id, "x"), expected, SOON).await {
                        Ok(sequence) => {
                            told.push((id, sequence));
                            expected = sequence;
                        }
                        // Nobody else writes here: a conflict would be our own event, not recognised.
                        Err(error) => panic!("writer {writer}: {error}"),
                    }
                }
                told
            })
        })
        .collect();
    for _ in 0..4 {
        let before = eventually(SOON, "the broker is there", || async { ledger.end().await.ok() }).await;
        let moved = || async { ledger.end().await.is_ok_and(|end| end > before + 20).then_some(()) };
        eventually(SOON, "appends go on", moved).await;
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
    }
    done.cancel();
    let mut told = BTreeMap::new();
    for writer in writers {
        told.extend(writer.await.unwrap());
    }
    let mut stored = BTreeMap::new();
    let mut from = Some(1);
    while let Some(next) = from {
        let (items, more) = ledger.read("fp.ledger.>", next, 500).await.unwrap();
        for item in items {
            let LedgerItem::Fact(recorded) = item else { panic!("{item:?}") };
            assert_eq!(stored.insert(recorded.envelope.id, recorded.sequence), None, "an event stands twice");
        }
        from = more;
    }
    assert!(told.len() > 80, "{}", told.len());
    assert_eq!(stored, told);
}

/// Rule 12: LEDGER and BEATS are acknowledged only when they survive a kill at that very instant.
#[tokio::test]
async fn what_is_acknowledged_survives_a_kill() {
    let (server, broker) = servers::jetstream().await;
    for n in 1..=5u64 {
        assert_eq!(put(&broker, "fp.ledger.p.run.1", &n.to_string()).await, n);
        let beat = broker.publish(StreamName::Beats, message("fp.beat.n1", &n.to_string()), Expect::Any);
        assert_eq!(beat.await, Ok(n));
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
        let connected = || async { broker.bounds(StreamName::Ledger).await.ok() };
        assert_eq!(eventually(SOON, "connected again", connected).await.last, n);
        assert_eq!(broker.bounds(StreamName::Beats).await.unwrap().last, n);
    }
}

#[tokio::test]
async fn a_leader_goes_on_after_the_broker_was_killed() {
    let (server, broker) = servers::jetstream().await;
    let ledger = Ledger::new(Arc::new(broker));
    let one = Instance::start(&ledger, "one", Duration::from_secs(1));
    one.leads().await;
    for n in 0..3 {
        one.tell(vec![health("n1", &format!("{n}a"), None), health("n2", &format!("{n}b"), None)]);
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
        one.sees(&format!("{n}b")).await;
    }
    let texts: Vec<String> = one.live.read().texts().into_iter().map(str::to_owned).collect();
    assert_eq!(texts, ["0a", "0b", "1a", "1b", "2a", "2b"]);
    one.stop().await.unwrap();
}

#[tokio::test]
async fn two_leaders_on_a_real_broker_take_turns() {
    let (_server, broker) = servers::jetstream().await;
    let ledger = Ledger::new(Arc::new(broker));
    let one = Instance::start(&ledger, "one", Duration::from_secs(60));
    one.leads().await;
    one.tell(vec![health("n1", "by one", None)]);
    one.sees("by one").await;
    let two = Instance::start(&ledger, "two", Duration::from_secs(60));
    one.stop().await.unwrap();
    two.leads().await;
    two.tell(vec![health("n1", "by two", None)]);
    two.sees("by two").await;
    assert_eq!(two.live.read().texts(), ["by one", "by two"]);
    two.stop().await.unwrap();
}

#[tokio::test]
async fn a_full_ledger_refuses_loses_nothing_and_goes_on_when_it_has_room() {
    let server = nats().start().await;
    let mut config = servers::config(&server);
    config.bytes.ledger = 96 << 10;
    let broker = JetStreamBroker::connect(config.clone()).await.unwrap();
    let ledger = Ledger::new(Arc::new(broker));
    let subject = experiment("a");
    let mut stored = Vec::new();
    let full = loop {
        // What S2 cannot make smaller.
        let text: String = (0..60).map(|_| event_id().to_string()).collect();
        match ledger.append(note(&subject, event_id(), &text), stored.last().copied().unwrap_or(0)).await {
            Ok(sequence) => stored.push(sequence),
            Err(error) => break error,
        }
        assert!(stored.len() < 1_000, "it never fills");
    };
    assert!(matches!(full, AppendError::Full(_)), "{full:?}");
    assert_eq!(ledger.aggregate(&subject).await.unwrap().len(), stored.len());
    // An operator gives it room.
    config.bytes = StreamBytes::of_disk(4 << 30);
    let _mended = JetStreamBroker::connect(config).await.unwrap();
    let next = ledger.append(note(&subject, event_id(), "again"), stored.last().copied().unwrap()).await.unwrap();
    assert_eq!(next, stored.len() as u64 + 1);
}

/// A monitoring listener that answers every question with one text.
async fn monitoring(answer: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut asked, _)) = listener.accept().await {
            // Closed with its question unread, the connection would be reset before the answer is seen.
            let _ = asked.read(&mut [0; 1_024]).await.unwrap();
            let told = format!("HTTP/1.0 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n{answer}");
            asked.write_all(told.as_bytes()).await.unwrap();
        }
    });
    address
}

/// After a failed write nats-server answers no publication any more; only its health page says why.
#[tokio::test]
async fn a_broker_that_is_silent_since_its_disk_is_full_is_told_from_one_that_is_silent() {
    const FULL: &str =
        r#"{"status":"unavailable","error":"JetStream stream '$G > LEDGER' write error: write 1.blk: no space left on device"}"#;
    const OTHER: &str = r#"{"status":"unavailable","error":"JetStream is not current with the meta leader"}"#;
    for (health, full) in [(FULL, true), (OTHER, false)] {
        let server = nats().start().await;
        let mut config = servers::config(&server);
        config.monitor = Some(monitoring(health).await);
        let broker = JetStreamBroker::connect(config).await.unwrap();
        let ledger = Ledger::new(Arc::new(broker.clone()));
        server.pause().unwrap();
        let (silent, refused) = tokio::join!(
            broker.publish(StreamName::Ledger, message("fp.ledger.p.run.1", "1"), Expect::Any),
            ledger.append(note(&experiment("a"), event_id(), "x"), 0),
        );
        server.resume().unwrap();
        match full {
            true => {
                assert!(matches!(&silent, Err(PublishError::Stuck(why)) if why.contains("no space left")), "{silent:?}");
                assert!(matches!(&refused, Err(AppendError::Full(why)) if why.contains("no space left")), "{refused:?}");
            }
            false => {
                assert!(matches!(silent, Err(PublishError::Unknown(_))), "{silent:?}");
                assert!(matches!(refused, Err(AppendError::Unavailable(_))), "{refused:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_wiped_assignments_stream_is_written_and_followed_anew() {
    let (_server, broker) = servers::jetstream().await;
    let assign = |text: &str, expected| broker.publish(StreamName::Assignments, message("fp.assign.n1", text), Expect::Subject(expected));
    let mut tail = broker.tail(StreamName::Assignments, Vec::new(), 1);
    assert_eq!(assign("one", 0).await, Ok(1));
    assert_eq!(assign("two", 1).await, Ok(2));
    take_until(&mut tail, 2).await;
    broker.client().request("$JS.API.STREAM.DELETE.ASSIGNMENTS", "".into()).await.unwrap();
    assert!(matches!(assign("nobody takes it", 2).await, Err(PublishError::Unavailable(_) | PublishError::Refused(_))));
    // Whoever starts makes the stream again.
    let _again = JetStreamBroker::connect(servers::config(&_server)).await.unwrap();
    assert_eq!(broker.last(StreamName::Assignments, "fp.assign.n1").await, Ok(None));
    assert_eq!(assign("anew", 2).await, Err(PublishError::Conflict));
    assert_eq!(assign("anew", 0).await, Ok(1));
    assert_eq!(texts(&take_messages(&mut tail, 1).await), ["anew"]);
}

#[tokio::test]
async fn a_tail_that_has_yielded_nothing_follows_a_stream_that_was_made_anew_from_its_beginning() {
    let (server, broker) = servers::jetstream().await;
    let put = |text: &str| broker.publish(StreamName::Metrics, message("fp.metrics.1.n1", text), Expect::Any);
    for n in 1..=5 {
        assert_eq!(put("old").await, Ok(n));
    }
    let mut tail = broker.tail(StreamName::Metrics, Vec::new(), 6);
    assert_eq!(take_until(&mut tail, 5).await, []);
    broker.client().request("$JS.API.STREAM.DELETE.METRICS", "".into()).await.unwrap();
    let _again = JetStreamBroker::connect(servers::config(&server)).await.unwrap();
    for (n, text) in [(1, "one"), (2, "two")] {
        assert_eq!(put(text).await, Ok(n));
    }
    assert_eq!(texts(&take_messages(&mut tail, 2).await), ["one", "two"]);
}

#[tokio::test]
async fn a_view_reads_its_own_writes_across_a_kill() {
    let (server, broker) = servers::jetstream().await;
    let ledger = Ledger::new(Arc::new(broker));
    let live = Live::new(Seen::default(), 0);
    let shutdown = CancellationToken::new();
    // Nothing that this view folds is ever written.
    tokio::spawn(follow(ledger.clone(), vec!["fp.ledger.*.node.>".to_owned()], live.clone(), shutdown.clone()));
    let first = ledger.append(note(&experiment("a"), event_id(), "x"), 0).await.unwrap();
    live.at_least(first, SOON).await.unwrap();
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let second = ledger.append_within(note(&experiment("a"), event_id(), "y"), first, SOON).await.unwrap();
    live.at_least(second, SOON).await.unwrap();
    shutdown.cancel();
}

/// Rule 12: the settings of the broker are looked at, not believed.
#[tokio::test]
async fn the_probe_tells_what_is_not_as_it_must_be() {
    for always in [true, false] {
        let monitor = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
        let server = nats().sync_always(always).config(&format!("http: \"{monitor}\"")).start().await;
        let mut config = servers::config(&server);
        config.monitor = Some(monitor.to_string());
        let broker = JetStreamBroker::connect(config).await.unwrap();
        let probe = broker.probe().await.unwrap();
        assert_eq!(matches!(probe.sync, SyncProbe::Always), always, "{:?}", probe.sync);
        assert_eq!(probe.is_sound(), always, "{probe:?}");
        if always {
            let update = serde_json::json!({ "name": "LEDGER", "subjects": ["fp.ledger.>"], "retention": "limits", "max_age": 3_600_000_000_000u64,
                "discard": "old", "storage": "file", "num_replicas": 1, "allow_direct": true, "max_consumers": 5000, "allow_atomic": true });
            let answer = broker.client().request("$JS.API.STREAM.UPDATE.LEDGER", update.to_string().into()).await.unwrap();
            assert!(!String::from_utf8_lossy(&answer.payload).contains("\"error\""), "{:?}", answer.payload);
            let probe = broker.probe().await.unwrap();
            let ledger = probe.streams.iter().find(|stream| stream.stream == StreamName::Ledger).unwrap();
            assert!(ledger.differences.iter().any(|difference| difference.starts_with("max_age")), "{ledger:?}");
            assert!(!probe.is_sound());
        }
    }
}

#[tokio::test]
async fn a_broker_that_is_too_old_or_not_there_is_told_with_what_to_do() {
    let nobody = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let mut config = JetStreamConfig::single(format!("nats://{nobody}"), "test");
    config.connect_within = Duration::from_millis(300);
    let away = JetStreamBroker::connect(config).await.unwrap_err();
    assert!(matches!(&away, ConnectError::Unreachable { .. }) && away.to_string().contains("start one"), "{away}");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let old = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let info = r#"INFO {"server_id":"X","server_name":"x","version":"2.10.29","proto":1,"headers":true,"max_payload":1048576,"host":"127.0.0.1","port":1,"client_id":1}"#;
            let _ = socket.write_all(format!("{info}\r\nPONG\r\n").as_bytes()).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let refused = JetStreamBroker::connect(JetStreamConfig::single(format!("nats://{old}"), "test")).await.unwrap_err();
    assert_eq!(refused, ConnectError::TooOld { version: "2.10.29".to_owned() });
    assert!(refused.to_string().contains("2.14"), "{refused}");
}
