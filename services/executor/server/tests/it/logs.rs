//! Logs: bytes as they were written, each once, live, packed and archived.

use crate::stage::{RUN, SOON, Stage, stage, stage_over};
use footplate_api::server::{ServerParts, serve};
use footplate_api::v1::{ReadLogsRequest, log_service_client::LogServiceClient};
use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig, StreamBytes};
use footplate_events::Event;
use footplate_events::facts::{AttemptLogsArchived, JobEnded};
use footplate_types::{AttemptNumber, PrincipalId};
use std::sync::Arc;
use std::time::Duration;

async fn client(stage: &Stage) -> LogServiceClient<tonic::transport::Channel> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let parts = stage.handle.parts(ServerParts::new()).authenticator(|_| Ok(PrincipalId::parse("test").unwrap()));
    let shutdown = stage.context.shutdown.clone();
    tokio::spawn(async move { serve(listener, parts, shutdown).await });
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    LogServiceClient::new(channel)
}

async fn read(client: &mut LogServiceClient<tonic::transport::Channel>, follow: bool) -> (Vec<u8>, Vec<String>) {
    let request = ReadLogsRequest { project: "default".to_owned(), run_id: RUN.to_string(), follow, ..ReadLogsRequest::default() };
    let mut stream = client.read_logs(request).await.unwrap().into_inner();
    let (mut bytes, mut remarks) = (Vec::new(), Vec::new());
    while let Some(piece) = stream.message().await.unwrap() {
        bytes.extend(piece.data);
        if !piece.remark.is_empty() {
            remarks.push(piece.remark);
        }
    }
    (bytes, remarks)
}

fn archived(event: &Event) -> Option<AttemptLogsArchived> {
    match event {
        Event::AttemptLogsArchived(fact) => Some(fact.clone()),
        _ => None,
    }
}

async fn end_job(stage: &Stage) {
    let ended = JobEnded {
        outcome: footplate_events::facts::Outcome::Succeeded,
        cause: footplate_events::facts::Cause::Success,
        attempt: AttemptNumber(1),
        root: None,
        request: None,
        message: String::new(),
    };
    stage.record(footplate_events::Subject::job(&crate::stage::project(), RUN), ended).await;
}

/// The caller was let in for the project of the header; a request that names none is never taken for another one's.
#[tokio::test]
async fn a_request_that_names_no_project_reads_no_projects_logs() {
    let stage = stage().await;
    stage.placed().await;
    let mut client = client(&stage).await;
    let mut asked = tonic::Request::new(ReadLogsRequest { run_id: RUN.to_string(), ..ReadLogsRequest::default() });
    asked.metadata_mut().insert("footplate-project", "vision".parse().unwrap());
    let refused = client.read_logs(asked).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
}

#[tokio::test]
async fn a_log_is_archived_byte_for_byte_when_its_member_is_released() {
    let stage = stage().await;
    stage.placed().await;
    let bytes = b"caf\xE9 \xFF\x00\nlast line without newline";
    stage.log("n1", 0, 1, 0, &bytes[..5]).await;
    stage.log("n1", 0, 2, 5, &bytes[5..]).await;
    stage.log("n1", 0, 2, 5, &bytes[5..]).await;
    stage.exited("n1", 0, 1, 2).await;
    let fact = stage.event("attempt.logs-archived", archived).await;
    assert!(fact.complete);
    assert_eq!(fact.logs.len(), 1);
    let stored = stage.blobs.get_bytes(&fact.logs[0].digest, 1 << 20).await.unwrap();
    assert_eq!(stored.as_ref(), bytes);
    stage.stop().await;
}

#[tokio::test]
async fn a_log_is_not_archived_before_its_last_chunk_is_there() {
    let stage = stage().await;
    stage.placed().await;
    stage.log("n1", 0, 1, 0, b"one ").await;
    stage.exited("n1", 0, 1, 2).await;
    stage.event("attempt.exited", |event| matches!(event, Event::AttemptExited(_)).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!stage.events().await.iter().any(|recorded| archived(&recorded.envelope.event).is_some()));
    stage.log("n1", 0, 2, 4, b"two").await;
    let fact = stage.event("attempt.logs-archived", archived).await;
    assert_eq!((fact.complete, fact.logs[0].bytes), (true, 7));
    stage.stop().await;
}

/// As after an outage: the agent sends what waited chunk by chunk, and again from the start while nothing is settled.
#[tokio::test]
async fn many_chunks_that_come_one_by_one_after_their_member_was_released_are_archived_at_once() {
    const CHUNKS: u64 = 40;
    // A real one: only there each chunk is the last of the stream for a moment.
    let server = footplate_testkit::nats().start().await;
    let mut config = JetStreamConfig::single(server.url(), "executor tests");
    config.bytes = StreamBytes::of_disk(1 << 30);
    let stage = stage_over(Arc::new(JetStreamBroker::connect(config).await.unwrap())).await;
    stage.placed().await;
    stage.exited("n1", 0, 1, CHUNKS).await;
    stage.event("attempt.exited", |event| matches!(event, Event::AttemptExited(_)).then_some(())).await;
    let began = std::time::Instant::now();
    for chunk in (1..=CHUNKS / 2).chain(1..=CHUNKS) {
        stage.log("n1", 0, chunk, (chunk - 1) * 4, b"abc\n").await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let fact = stage.event("attempt.logs-archived", archived).await;
    assert_eq!((fact.complete, fact.logs[0].bytes), (true, CHUNKS * 4));
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    stage.stop().await;
}

#[tokio::test]
async fn a_reader_that_follows_gets_every_byte_once_and_ends_by_itself() {
    let stage = stage().await;
    stage.placed().await;
    let mut client = client(&stage).await;
    stage.log("n1", 0, 1, 0, b"first\n").await;
    let mut other = client.clone();
    let follower = tokio::spawn(async move { read(&mut other, true).await });
    for (index, part) in ["second\n", "third\n", "no newline"].into_iter().enumerate() {
        let at = ["first\n", "second\n", "third\n"][..=index].iter().map(|part| part.len() as u64).sum();
        stage.log("n1", 0, index as u64 + 2, at, part.as_bytes()).await;
    }
    stage.exited("n1", 0, 1, 4).await;
    stage.exited("n2", 1, 1, 0).await;
    end_job(&stage).await;
    let (bytes, remarks) = tokio::time::timeout(SOON, follower).await.unwrap().unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), "first\nsecond\nthird\nno newline", "{remarks:?}");
    let (again, _) = read(&mut client, false).await;
    assert_eq!(again, b"first\nsecond\nthird\nno newline");
    stage.stop().await;
}

#[tokio::test]
async fn a_run_without_a_log_answers_at_once_with_its_state() {
    let stage = stage().await;
    stage.placed().await;
    let mut client = client(&stage).await;
    footplate_testkit::eventually(SOON, "the run is known", || async {
        stage.handle.live().read().project_of(RUN).is_some().then_some(())
    })
    .await;
    let (bytes, remarks) = tokio::time::timeout(SOON, read(&mut client, false)).await.unwrap();
    assert!(bytes.is_empty());
    assert!(remarks[0].contains("n1 placed"), "{remarks:?}");
    stage.stop().await;
}

/// An empty log with exit 0 would be a wrong answer: there is no such attempt, or no such rank.
#[tokio::test]
async fn an_attempt_or_rank_that_the_run_has_not_is_refused() {
    let stage = stage().await;
    stage.placed().await;
    let mut client = client(&stage).await;
    footplate_testkit::eventually(SOON, "the run is known", || async {
        stage.handle.live().read().project_of(RUN).is_some().then_some(())
    })
    .await;
    let asked = |attempt, rank, follow| ReadLogsRequest {
        project: "default".to_owned(),
        run_id: RUN.to_string(),
        attempt,
        rank,
        follow,
        ..ReadLogsRequest::default()
    };
    for (attempt, rank, named) in [(9, None, "no attempt 9: it has 1"), (0, Some(9), "no rank 9"), (1, Some(9), "no rank 9")] {
        let refused = client.read_logs(asked(attempt, rank, false)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::NotFound, "{refused}");
        assert!(refused.message().contains(named), "{refused}");
    }
    // Whoever follows may wait for an attempt that is still to come, as long as the run lives.
    assert!(client.read_logs(asked(2, None, true)).await.is_ok());
    end_job(&stage).await;
    let ended = || async { stage.handle.live().read().has_ended(RUN).then_some(()) };
    footplate_testkit::eventually(SOON, "the run has ended", ended).await;
    assert_eq!(client.read_logs(asked(2, None, true)).await.unwrap_err().code(), tonic::Code::NotFound);
    stage.stop().await;
}
