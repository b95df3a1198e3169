//! The ledger, shown.

use crate::world::*;
use footplate_api::v1;
use footplate_events::facts::*;
use footplate_types::*;

fn of_project() -> Option<v1::EventFilter> {
    Some(v1::EventFilter { project: PROJECT.into(), ..Default::default() })
}

#[tokio::test]
async fn a_watcher_gets_history_then_what_comes_once_each_and_ends_where_it_was_told() {
    let world = World::new().await;
    for n in 0..5 {
        world.create(&format!("before {n}")).await;
    }
    let middle = world.ledger.end().await.unwrap();
    let until = middle + 20;
    let request = v1::WatchEventsRequest { filter: of_project(), from_sequence: 1, until_sequence: until };
    let mut events = world.client().events().watch_events(request).await.unwrap().into_inner();
    let mut seen = vec![events.message().await.unwrap().unwrap()];
    while world.ledger.end().await.unwrap() < until {
        world.create("after").await;
    }
    while let Some(event) = events.message().await.unwrap() {
        seen.push(event);
    }
    assert!(seen.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    assert_eq!(seen.iter().filter(|event| event.r#type == "footplate.run.created.v1" && event.sequence <= middle).count(), 5);
    let listed = v1::ListEventsRequest { filter: of_project(), page_size: 1_000, ..Default::default() };
    let listed = world.client().once(world.client().events().list_events(listed)).await.unwrap();
    let expected: Vec<u64> = listed.events.iter().map(|event| event.sequence).filter(|sequence| *sequence <= until).collect();
    assert_eq!(seen.iter().map(|event| event.sequence).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_watcher_ends_by_its_deadline() {
    let world = World::new().await;
    let mut request = tonic::Request::new(v1::WatchEventsRequest { filter: of_project(), from_sequence: 0, until_sequence: 0 });
    request.set_timeout(std::time::Duration::from_millis(300));
    let mut events = world.client().events().watch_events(request).await.unwrap().into_inner();
    let ended = tokio::time::timeout(SOON, events.message()).await.expect("the deadline ends it");
    assert_eq!(ended.unwrap_err().code(), tonic::Code::DeadlineExceeded);
}

#[tokio::test]
async fn events_of_one_run_are_listed_both_ways_and_paged() {
    let world = World::new().await;
    let run = world.running_job().await;
    world.create("other").await;
    world.attempt(run, 1, exited(FinalOffsets::default())).await;
    world.job(run, ended(1)).await;
    let filter = v1::EventFilter { project: PROJECT.into(), run_id: run.to_string(), ..Default::default() };
    let client = world.client();
    let list = async |newest_first, page_size, from_sequence, filter: &v1::EventFilter| {
        let request = v1::ListEventsRequest { filter: Some(filter.clone()), from_sequence, page_size, newest_first };
        client.once(client.events().list_events(request)).await.unwrap()
    };
    let types = |answer: &v1::ListEventsResponse| answer.events.iter().map(|event| event.r#type.clone()).collect::<Vec<_>>();
    let jobs = v1::EventFilter { type_prefix: "footplate.job.".into(), ..filter.clone() };
    let all = list(false, 0, 0, &jobs).await;
    let expected = ["submitted", "placed", "launched", "ended"].map(|verb| format!("footplate.job.{verb}.v1"));
    assert_eq!((types(&all), all.next_sequence), (expected.to_vec(), 0));
    assert!(all.events[0].data.contains("\"name\":\"gang\""), "{}", all.events[0].data);
    let first = list(false, 2, 0, &jobs).await;
    let second = list(false, 2, first.next_sequence, &jobs).await;
    assert_eq!([types(&first), types(&second)].concat(), expected);
    let newest = list(true, 3, 0, &jobs).await;
    assert_eq!(types(&newest), [&expected[3], &expected[2], &expected[1]].map(Clone::clone));
    let attempts = v1::EventFilter { aggregate: "attempt".into(), ..filter.clone() };
    assert_eq!(types(&list(false, 0, 0, &attempts).await), ["footplate.attempt.exited.v1"]);
    let wrong = v1::ListEventsRequest { filter: Some(v1::EventFilter { aggregate: "attempts".into(), ..filter }), ..Default::default() };
    let refused = client.once(client.events().list_events(wrong)).await.unwrap_err();
    assert!(refused.allowed.as_deref().is_some_and(|allowed| allowed.contains("attempt")), "{refused:?}");
}

#[tokio::test]
async fn one_event_is_found_by_sequence_and_by_id() {
    let world = World::new().await;
    world.create("first").await;
    let end = world.ledger.end().await.unwrap();
    let client = world.client();
    let get = |sequence, id: &str| v1::GetEventRequest { sequence, id: id.into(), project: String::new() };
    let event = client.once(client.events().get_event(get(end, ""))).await.unwrap();
    assert_eq!((event.sequence, event.actor.as_str()), (end, "ada"));
    assert_eq!(client.once(client.events().get_event(get(0, &event.id))).await.unwrap(), event);
    assert_eq!(client.once(client.events().get_event(get(end + 100, ""))).await.unwrap_err().reason, "EVENT_NOT_FOUND");
    for (project, word) in [("vision", ""), ("speech", "EVENT_NOT_FOUND")] {
        for (sequence, id) in [(end, ""), (0, event.id.as_str())] {
            let asked = v1::GetEventRequest { project: project.to_owned(), ..get(sequence, id) };
            let told = client.once(client.events().get_event(asked)).await.map_or_else(|error| error.reason, |_| String::new());
            assert_eq!(told, word, "an event is found in its own project alone: {sequence} {id:?} in {project}");
        }
    }
    let unknown = EventId::from_bytes([7; 16]).to_string();
    assert_eq!(client.once(client.events().get_event(get(0, &unknown))).await.unwrap_err().reason, "EVENT_NOT_FOUND");
}

#[tokio::test]
async fn open_streams_and_waits_do_not_hold_up_the_end_of_the_tracker() {
    let mut world = World::new().await;
    let run = world.create("first").await;
    let client = world.client().clone();
    let request = v1::WatchEventsRequest { filter: of_project(), from_sequence: 0, until_sequence: 0 };
    let mut events = client.events().watch_events(request).await.unwrap().into_inner();
    let (batches, open) = tokio::sync::mpsc::channel(1);
    let mut acks = client.metrics().ingest(tokio_stream::wrappers::ReceiverStream::new(open)).await.unwrap().into_inner();
    batches.send(batch(&run, &session(1), 1, "loss", &[(1, 1.0)])).await.unwrap();
    assert_eq!(acks.message().await.unwrap().unwrap().acked, 1);
    let wait = v1::WaitRunRequest { project: PROJECT.into(), run_id: run, timeout_ms: 60_000, ..Default::default() };
    let waiting = tokio::spawn(async move { client.runs().wait_run(wait).await.unwrap().into_inner() });
    tokio::task::yield_now().await;
    let began = std::time::Instant::now();
    let stopping = tokio::spawn(world.tracker.take().unwrap().stop());
    assert_eq!(events.message().await.unwrap_err().code(), tonic::Code::Unavailable);
    assert_eq!(acks.message().await.unwrap_err().code(), tonic::Code::Unavailable);
    assert!(!waiting.await.unwrap().done);
    stopping.await.unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "the grace was not needed");
}
