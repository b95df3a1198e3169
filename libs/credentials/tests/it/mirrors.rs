//! A mirror of its own part of the ledger for each project, in its own account.

use crate::servers::{Served, connect};
use async_nats::Client;
use async_nats::jetstream::{self, consumer};
use footplate_credentials::{
    Access, Begin, MirrorError, MirrorLimits, Subscription, ensure_consumer, ensure_project_mirror, now_seconds, remove_consumer,
    remove_project, revoke_subscriber,
};
use footplate_testkit::eventually;
use footplate_types::ProjectName;
use futures::{StreamExt as _, TryStreamExt as _};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(20);

fn project(name: &str) -> ProjectName {
    ProjectName::parse(name).unwrap()
}

/// The ledger, as the platform makes it.
async fn ledger(platform: &Client) -> jetstream::Context {
    let context = jetstream::new(platform.clone());
    let config = jetstream::stream::Config {
        name: "LEDGER".to_owned(),
        subjects: vec!["fp.ledger.>".to_owned()],
        max_bytes: 64 << 20,
        allow_direct: true,
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    context
}

async fn append(context: &jetstream::Context, subject: &str) -> u64 {
    context.publish(subject.to_owned(), subject.to_owned().into()).await.unwrap().await.unwrap().sequence
}

/// What a subscriber reads, by a durable consumer: sequence and subject.
async fn read(subscriber: &Client, name: &str, most: usize) -> Vec<(u64, String)> {
    let stream = jetstream::new(subscriber.clone()).get_stream("LEDGER").await.unwrap();
    let config = consumer::pull::Config { durable_name: Some(name.to_owned()), ..Default::default() };
    let consumer = stream.get_or_create_consumer(name, config).await.unwrap();
    let messages = consumer.fetch().max_messages(most).expires(Duration::from_secs(1)).messages().await.unwrap();
    let mut read = Vec::new();
    for message in messages.map_err(|error| error.to_string()).try_collect::<Vec<_>>().await.unwrap() {
        read.push((message.info().unwrap().stream_sequence, message.subject.to_string()));
        message.double_ack().await.unwrap();
    }
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_project_sees_its_own_events_at_the_ledgers_sequences_and_no_others() {
    let served = Served::start().await;
    let (operator, url, limits) = (&served.operator, served.server.url(), MirrorLimits::default());
    let platform = ledger(&served.platform().await).await;
    let mut written = [Vec::new(), Vec::new()];
    for number in 0..6 {
        let subject = format!("fp.ledger.{}.run.{number}", ["vision", "audio"][number % 2]);
        written[number % 2].push((append(&platform, &subject).await, subject));
        append(&platform, "fp.ledger._.node.n1").await;
    }
    for name in ["vision", "audio"] {
        ensure_project_mirror(&url, operator, &project(name), &limits, now_seconds()).await.unwrap();
    }
    let now = now_seconds();
    let [vision, audio] = ["vision", "audio"].map(|name| operator.project(&project(name)).subscriber("team", now, None));
    let (vision, audio) = (connect(&served.server, &vision).await.unwrap(), connect(&served.server, &audio).await.unwrap());
    for (subscriber, wanted) in [(&vision, &written[0]), (&audio, &written[1])] {
        let mut got = Vec::new();
        while got.len() < wanted.len() {
            got.extend(read(subscriber, "first", 10).await);
        }
        assert_eq!(&got, wanted);
    }

    // It follows live, over a restart of the server, and a consumer goes on where it was.
    let live = append(&platform, "fp.ledger.vision.run.9").await;
    assert_eq!(read(&vision, "first", 1).await, [(live, "fp.ledger.vision.run.9".to_owned())]);
    served.server.restart().await.unwrap();
    let platform = jetstream::new(served.platform().await);
    let later = append(&platform, "fp.ledger.audio.run.10").await;
    let audio_again = operator.project(&project("audio")).subscriber("team", now_seconds(), None);
    let audio_again = connect(&served.server, &audio_again).await.unwrap();
    // The server was killed: what was acknowledged shortly before may come again, and nothing is left out.
    let wanted = (later, "fp.ledger.audio.run.10".to_owned());
    let mut got = Vec::new();
    while !got.contains(&wanted) {
        got.extend(read(&audio_again, "first", 1).await);
    }
    assert!(got.iter().all(|(_, subject)| subject.starts_with("fp.ledger.audio.")), "{got:?}");

    // Doing it again changes nothing, and another limit is taken up.
    let more = MirrorLimits { bytes: limits.bytes * 2, ..limits };
    let again = ensure_project_mirror(&url, operator, &project("audio"), &limits, now_seconds()).await.unwrap();
    assert_eq!((again.events, again.last), (4, later));
    ensure_project_mirror(&url, operator, &project("audio"), &more, now_seconds()).await.unwrap();
    let stream = jetstream::new(audio_again.clone()).get_stream("LEDGER").await.unwrap();
    assert_eq!(stream.cached_info().config.max_bytes, (limits.bytes * 2) as i64);
    drop(audio);

    remove_project(&url, operator, &project("audio"), now_seconds()).await.unwrap();
    let is_out = || async { (audio_again.connection_state() != async_nats::connection::State::Connected).then_some(()) };
    eventually(WITHIN, "the subscriber of a project that is gone is put out", is_out).await;
    let back = ensure_project_mirror(&url, operator, &project("audio"), &limits, now_seconds()).await.unwrap();
    assert_eq!(back.last, later, "made again, it has what it had");
    let subscriber = operator.project(&project("audio")).subscriber("team", now_seconds(), None);
    let subscriber = connect(&served.server, &subscriber).await.unwrap();
    assert_eq!(read(&subscriber, "second", 1).await[0].1, written[1][0].1);
}

#[tokio::test]
async fn no_mirror_is_made_of_the_platforms_own_things_or_without_room() {
    let served = Served::start().await;
    ledger(&served.platform().await).await;
    let (operator, url) = (&served.operator, served.server.url());
    let refused = ensure_project_mirror(&url, operator, &project("_"), &MirrorLimits::default(), now_seconds()).await.unwrap_err();
    assert!(matches!(refused, MirrorError::Platform));
    let huge = MirrorLimits { bytes: 1 << 50, ..MirrorLimits::default() };
    let refused = ensure_project_mirror(&url, operator, &project("vision"), &huge, now_seconds()).await.unwrap_err();
    assert!(matches!(refused, MirrorError::NoRoom { .. }) && refused.to_string().contains("vision"), "{refused}");
    let right = ensure_project_mirror(&url, operator, &project("vision"), &MirrorLimits::default(), now_seconds()).await.unwrap();
    assert_eq!(right.events, 0, "with less it is made");
    assert!(served.home.path().join("accounts").is_dir());
}

/// A consumer that has messages without a payload delivered to a subject: to JetStream's own doors these would be requests.
async fn deliver(subscriber: &Client, name: &str, subject: &str) -> serde_json::Value {
    let config = serde_json::json!({
        "durable_name": name, "deliver_subject": subject, "deliver_policy": "all", "ack_policy": "none", "headers_only": true,
    });
    let body = serde_json::json!({ "stream_name": "LEDGER", "config": config }).to_string();
    let answer = subscriber.request(format!("$JS.API.CONSUMER.DURABLE.CREATE.LEDGER.{name}"), body.into()).await.unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

#[tokio::test]
async fn a_subscriber_reaches_nothing_by_having_events_delivered_to_what_it_may_not_ask() {
    let served = Served::start().await;
    let (operator, url) = (&served.operator, served.server.url());
    let platform = ledger(&served.platform().await).await;
    append(&platform, "fp.ledger.vision.run.1").await;
    let last = append(&platform, "fp.ledger.vision.run.2").await;
    ensure_project_mirror(&url, operator, &project("vision"), &MirrorLimits::default(), now_seconds()).await.unwrap();
    let vision = operator.project(&project("vision")).subscriber("team", now_seconds(), None);
    let vision = connect(&served.server, &vision).await.unwrap();
    let mut heard = vision.subscribe("_INBOX.heard").await.unwrap();
    let doors = [
        "$JS.API.STREAM.DELETE.LEDGER",
        "$JS.API.STREAM.PURGE.LEDGER",
        "$JS.FC.LEDGER.x.y",
        "JS.FP.API.CONSUMER.CREATE.LEDGER.x.fp.ledger.vision.run.1",
    ];
    for (number, door) in doors.into_iter().enumerate() {
        deliver(&vision, &format!("door{number}"), door).await;
    }
    // What is delivered rightly arrives; the others had their turn before.
    deliver(&vision, "right", "_INBOX.heard").await;
    for _ in 0..2 {
        tokio::time::timeout(WITHIN, heard.next()).await.unwrap().unwrap();
    }
    let stream = jetstream::new(vision.clone()).get_stream("LEDGER").await.unwrap();
    assert_eq!((stream.cached_info().state.messages, stream.cached_info().state.last_sequence), (2, last));
    let mut ledger = platform.get_stream("LEDGER").await.unwrap();
    let consumers: Vec<_> = ledger.consumers().try_collect().await.unwrap();
    assert!(consumers.iter().all(|consumer| consumer.name != "x"), "{consumers:?}");
    assert_eq!(ledger.info().await.unwrap().state.messages, 2);
}

#[tokio::test]
async fn an_account_reaches_no_more_of_the_ledger_than_the_platform_gave_its_word_for_whatever_its_users_may() {
    let served = Served::start().await;
    let (operator, url) = (&served.operator, served.server.url());
    let platform = ledger(&served.platform().await).await;
    append(&platform, "fp.ledger.audio.run.1").await;
    ensure_project_mirror(&url, operator, &project("vision"), &MirrorLimits::default(), now_seconds()).await.unwrap();
    let everything = Access::new([">"], [">"]);
    let vision =
        connect(&served.server, &operator.project(&project("vision")).user("all", &everything, now_seconds(), None)).await.unwrap();
    let theirs = "fp.ledger.audio.run.1";
    let config = serde_json::json!({ "deliver_subject": "fp.deliver.vision.theirs", "filter_subject": theirs, "ack_policy": "none" });
    let body = serde_json::json!({ "stream_name": "LEDGER", "config": config }).to_string();
    // Its own door with another's filter is refused; another's door is none.
    let asked = |filter: &str| format!("JS.FP.API.CONSUMER.CREATE.LEDGER.x.fp.ledger.{filter}");
    let own = vision.request(asked("vision.run.1"), body.clone().into()).await.unwrap();
    assert!(String::from_utf8_lossy(&own.payload).contains("\"error\""), "{:?}", own.payload);
    assert!(vision.request(asked("audio.run.1"), body.into()).await.is_err(), "no such door");
    let mut all = vision.subscribe("fp.>").await.unwrap();
    vision.publish("fp.ledger.audio.run.2", "forged".into()).await.unwrap();
    vision.publish("fp.deliver.vision.x", "forged".into()).await.unwrap();
    let live = append(&platform, "fp.ledger.vision.run.3").await;
    assert_eq!(live, 2, "nothing that it published is in the ledger");
    let seen = async {
        loop {
            let message = all.next().await.unwrap();
            assert!(message.payload != "fp.ledger.audio.run.1", "{message:?}");
            if message.payload == "fp.ledger.vision.run.3" {
                return;
            }
        }
    };
    tokio::time::timeout(WITHIN, seen).await.unwrap();
}

#[tokio::test]
async fn a_consumer_is_ready_for_a_subscriber_keeps_its_place_and_a_revoked_subscriber_is_out_alone() {
    let served = Served::start().await;
    let (operator, url, limits) = (&served.operator, served.server.url(), MirrorLimits::default());
    let (vision, now) = (project("vision"), now_seconds());
    let platform = ledger(&served.platform().await).await;
    append(&platform, "fp.ledger.vision.run.1").await;
    append(&platform, "fp.ledger.vision.model.1").await;
    let wanted = append(&platform, "fp.ledger.vision.model.2").await;
    ensure_project_mirror(&url, operator, &vision, &limits, now).await.unwrap();
    let models = Subscription { name: "models".to_owned(), filter: Some("fp.ledger.vision.model.>".to_owned()), begin: Begin::At(wanted) };
    let everything = Subscription { name: "all".to_owned(), filter: None, begin: Begin::First };
    for subscription in [&models, &everything, &models] {
        ensure_consumer(&url, operator, &vision, subscription, now).await.unwrap();
    }
    // Of the second before, so that a revocation of this one voids it.
    let [team, other] = ["team", "other"].map(|name| operator.project(&vision).subscriber(name, now - 2, None));
    let (connected, stays) = (connect(&served.server, &team).await.unwrap(), connect(&served.server, &other).await.unwrap());
    assert_eq!(read(&connected, "models", 1).await, [(wanted, "fp.ledger.vision.model.2".to_owned())]);
    // Made again, even to begin elsewhere, it goes on where it was.
    let later = append(&platform, "fp.ledger.vision.model.3").await;
    ensure_consumer(&url, operator, &vision, &Subscription { begin: Begin::First, ..models }, now).await.unwrap();
    assert_eq!(read(&connected, "models", 1).await, [(later, "fp.ledger.vision.model.3".to_owned())]);
    assert_eq!(read(&stays, "all", 4).await.len(), 4);

    revoke_subscriber(&url, operator, &vision, team.public(), &limits, now - 1).await.unwrap();
    let is_out = || async { (connected.connection_state() != async_nats::connection::State::Connected).then_some(()) };
    eventually(WITHIN, "the revoked subscriber is put out", is_out).await;
    assert!(connect(&served.server, &team).await.is_err());
    let last = append(&platform, "fp.ledger.vision.run.2").await;
    assert_eq!(read(&stays, "all", 1).await, [(last, "fp.ledger.vision.run.2".to_owned())], "the other reads on");
    // Doing any of it again keeps who is out out.
    ensure_project_mirror(&url, operator, &vision, &limits, now_seconds()).await.unwrap();
    assert!(connect(&served.server, &team).await.is_err());
    for _ in 0..2 {
        remove_consumer(&url, operator, &vision, "all", now).await.unwrap();
    }
    let stream = jetstream::new(stays).get_stream("LEDGER").await.unwrap();
    assert!(stream.get_consumer::<consumer::pull::Config>("all").await.is_err());
    let without = ensure_consumer(&url, operator, &project("audio"), &everything, now).await.unwrap_err();
    assert!(without.to_string().contains("a user of a project"), "{without}");
}
