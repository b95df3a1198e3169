//! A mirror of its own part of the ledger for each project, in its own account.

use crate::servers::{Served, connect};
use async_nats::Client;
use async_nats::jetstream::{self, consumer};
use footplate_credentials::{MirrorError, MirrorLimits, ensure_project_mirror, now_seconds, remove_project};
use footplate_testkit::eventually;
use footplate_types::ProjectName;
use futures::TryStreamExt as _;
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
    let messages = consumer.fetch().max_messages(most).expires(Duration::from_secs(2)).messages().await.unwrap();
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
    let mut wanted = [Vec::new(), Vec::new()];
    for number in 0..6 {
        let subject = format!("fp.ledger.{}.run.{number}", ["vision", "audio"][number % 2]);
        wanted[number % 2].push((append(&platform, &subject).await, subject));
        append(&platform, "fp.ledger._.node.n1").await;
    }
    for name in ["vision", "audio"] {
        ensure_project_mirror(&url, operator, &project(name), &limits, now_seconds()).await.unwrap();
    }
    let now = now_seconds();
    let [vision, audio] = ["vision", "audio"].map(|name| operator.project(&project(name)).subscriber("team", now, None));
    let (vision, audio) = (connect(&served.server, &vision).await.unwrap(), connect(&served.server, &audio).await.unwrap());
    for (subscriber, wanted) in [(&vision, &wanted[0]), (&audio, &wanted[1])] {
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
    let mut got = Vec::new();
    while got.is_empty() {
        got = read(&audio_again, "first", 1).await;
    }
    assert_eq!(got, [(later, "fp.ledger.audio.run.10".to_owned())]);

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
    assert!(refused.to_string().contains("vision"), "{refused}");
    assert!(served.home.path().join("accounts").is_dir());
}
