//! Runs: made once, written safely, read at least as new as asked.

use crate::world::*;
use footplate_api::v1;
use footplate_events::facts::*;
use footplate_events::{Aggregate, Subject};
use footplate_tracker_server::open_series;
use footplate_types::*;
use std::collections::BTreeSet;

fn create(name: &str, request_id: &str) -> v1::CreateRunRequest {
    v1::CreateRunRequest { project: PROJECT.into(), name: name.into(), request_id: request_id.into(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_with_one_key_get_one_run_and_another_body_is_refused_naming_it() {
    let world = World::new().await;
    let calls = (0..20).map(|_| {
        let client = world.client().clone();
        async move { client.once(client.runs().create_run(create("nightly", "nightly-7"))).await.unwrap().run_id }
    });
    let ids: BTreeSet<String> = futures::future::join_all(calls).await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    let first = ids.first().unwrap();
    let (events, _) = world.ledger.read(&Subject::filter(Some(&project()), Some(Aggregate::Run)), 1, 100).await.unwrap();
    assert_eq!(events.len(), 1, "one run is created once");
    let other = world.client().once(world.client().runs().create_run(create("other", "nightly-7"))).await.unwrap_err();
    assert_eq!(other.reason, "IDEMPOTENCY_KEY_REUSED");
    assert!(other.message.contains(first), "{other:?}");
    let run = world.get(first).await;
    assert_eq!((run.name.as_str(), run.state()), ("nightly", footplate_api::types::RunState::Running));
    let again = world.client().once(world.client().runs().create_run(create("nightly", "nightly-7"))).await.unwrap();
    assert_eq!(&again.run_id, first);
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_found_again_and_not_repeated() {
    let world = World::new().await;
    world.memory.as_ref().unwrap().faults().lose_next_ack(footplate_eventlog::StreamName::Ledger);
    let run = world.create("first").await;
    let set = |value: &str| v1::SetTagsRequest {
        project: PROJECT.into(),
        run_id: run.clone(),
        set: [("a".to_owned(), value.to_owned())].into(),
        request_id: format!("set-{value}"),
        ..Default::default()
    };
    let client = world.client();
    let one = client.once(client.runs().set_tags(set("1"))).await.unwrap().sequence;
    let two = client.once(client.runs().set_tags(set("2"))).await.unwrap().sequence;
    let again = client.once(client.runs().set_tags(set("1"))).await.unwrap().sequence;
    assert_eq!(again, one, "the same request is the same event, though another came after it");
    assert!(two > one);
    assert_eq!(world.get(&run).await.tags["a"], "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_many_clients_to_one_run_all_land() {
    let world = World::new().await;
    let run = world.create("busy").await;
    let calls = (0..24).map(|n| {
        let (client, run_id) = (world.client().clone(), run.clone());
        async move {
            let params = [(format!("p{n}"), n.to_string())].into();
            let request = v1::LogParamsRequest { project: PROJECT.into(), run_id, params, ..Default::default() };
            client.once(client.runs().log_params(request)).await
        }
    });
    let failed: Vec<_> = futures::future::join_all(calls).await.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(world.get(&run).await.params.len(), 24);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_line_of_writers_refuses_the_next_at_once_and_one_that_stands_still_in_time() {
    let mut world = World::new().await;
    world.config.writers_waiting_max = 1;
    world.config.wait = std::time::Duration::from_millis(500);
    world.restart().await;
    let run = world.create("busy").await;
    let write = |key: &str| {
        let (client, run_id, params) = (world.client().clone(), run.clone(), [(key.to_owned(), "1".to_owned())].into());
        let request = v1::LogParamsRequest { project: PROJECT.into(), run_id, params, ..Default::default() };
        tokio::spawn(async move { client.once(client.runs().log_params(request)).await })
    };
    let mut held = world.memory.as_ref().unwrap().faults().stall_next(|stream, _| stream == footplate_eventlog::StreamName::Ledger);
    let first = write("first");
    held.reached().await;
    // One of these waits and the other finds the line full, whichever comes first: neither may write.
    for refused in [write("second"), write("third")] {
        let refused = refused.await.unwrap().unwrap_err();
        assert_eq!(refused.reason, "TOO_MANY_REQUESTS", "{refused:?}");
    }
    held.release();
    first.await.unwrap().unwrap();
    write("fourth").await.unwrap().unwrap();
    let params = world.get(&run).await.params;
    assert_eq!(params.keys().collect::<Vec<_>>(), ["first", "fourth"]);
}

#[tokio::test]
async fn params_keep_their_types_and_the_old_value_beside_the_new() {
    let world = World::new().await;
    let run = world.create("typed").await;
    let log = |pairs: &[(&str, &str)]| v1::LogParamsRequest {
        project: PROJECT.into(),
        run_id: run.clone(),
        params: pairs.iter().map(|(key, json)| ((*key).to_owned(), (*json).to_owned())).collect(),
        ..Default::default()
    };
    let client = world.client();
    let pairs = [("lr", "1e-4"), ("n", "3"), ("f", "3.0"), ("name", "\"010\""), ("on", "true"), ("none", "null"), ("opt", "{\"lr\":0.1}")];
    client.once(client.runs().log_params(log(&pairs))).await.unwrap();
    client.once(client.runs().log_params(log(&[("n", "4"), ("f", "3.0")]))).await.unwrap();
    let shown = world.get(&run).await.params;
    assert_eq!(shown["n"].json, "4");
    assert_eq!(shown["n"].earlier, ["3"]);
    assert_eq!((shown["f"].json.as_str(), shown["f"].earlier.len()), ("3.0", 0));
    assert_eq!((shown["name"].json.as_str(), shown["none"].json.as_str()), ("\"010\"", "null"));
    assert_eq!(shown["opt"].json, "{\"lr\":0.1}");
    let large = client.once(client.runs().log_params(log(&[("large", "[18446744073709551615]")]))).await.unwrap_err();
    assert_eq!(large.field.as_deref(), Some("params.large"));
    let refused = client.once(client.runs().log_params(log(&[("ok", "1"), ("bad", "yes no")]))).await.unwrap_err();
    assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_FIELD", Some("params.bad")));
    assert!(!world.get(&run).await.params.contains_key("ok"), "nothing of a refused request is written");
}

#[tokio::test]
async fn a_run_is_visible_from_its_submission_and_its_config_becomes_params() {
    let world = World::new().await;
    let blobs = footplate_blobs::Blobs::local(&world.folder.path().join("objects")).unwrap();
    let config = blobs.put_bytes(br#"{"lr":0.1,"model":{"type":"cnn"}}"#.to_vec().into()).await.unwrap();
    let mut spec = spec("gang");
    spec.config = Some(DocumentRef { digest: config.digest, bytes: config.bytes });
    let id = footplate_clock::run_id();
    let sequence = world.job(id, JobSubmitted { spec, body: Digest::of(b"x") }).await;
    let request = v1::GetRunRequest { project: PROJECT.into(), run_id: id.to_string(), at_least: sequence };
    let run = world.client().once(world.client().runs().get_run(request)).await.unwrap().run.unwrap();
    assert_eq!((run.name.as_str(), run.state(), run.has_job), ("gang", footplate_api::types::RunState::Pending, true));
    assert_eq!(run.tags["team"], "blue");
    let run = footplate_testkit::eventually(SOON, "the config's params", || async {
        let run = world.get(&id.to_string()).await;
        (!run.params.is_empty()).then_some(run)
    })
    .await;
    assert_eq!(run.params["model"].json, "{\"type\":\"cnn\"}");
    let listed = world.list("params.model.type = cnn", "").await;
    assert_eq!(listed.runs.len(), 1);
}

#[tokio::test]
async fn an_id_is_found_by_a_unique_prefix_and_an_ambiguous_one_lists_its_runs() {
    let world = World::new().await;
    let ids = ["abc1", "abc2"].map(|head| format!("{head:0<32}"));
    for id in &ids {
        let request = v1::CreateRunRequest { run_id: id.clone(), ..create("x", "") };
        world.client().once(world.client().runs().create_run(request)).await.unwrap();
    }
    assert_eq!(world.get("abc1").await.run_id, ids[0]);
    let get = |run_id: &str, project: &str| v1::GetRunRequest { project: project.into(), run_id: run_id.into(), at_least: 0 };
    let client = world.client();
    let ambiguous = client.once(client.runs().get_run(get("abc", PROJECT))).await.unwrap_err();
    assert_eq!(ambiguous.reason, "AMBIGUOUS_ID");
    assert!(ids.iter().all(|id| ambiguous.message.contains(id)), "{ambiguous:?}");
    let missing = client.once(client.runs().get_run(get("abd", PROJECT))).await.unwrap_err();
    assert_eq!(missing.reason, "RUN_NOT_FOUND");
    let foreign = client.once(client.runs().get_run(get("abc1", "audio"))).await.unwrap_err();
    assert_eq!(foreign.reason, "RUN_NOT_FOUND", "another project's run is not there");
    let odd = client.once(client.runs().get_run(get("../x", PROJECT))).await.unwrap_err();
    assert_eq!((odd.reason.as_str(), odd.field.as_deref()), ("INVALID_FIELD", Some("run_id")));
    let taken = v1::CreateRunRequest { project: "audio".into(), run_id: ids[0].clone(), ..create("x", "") };
    assert_eq!(client.once(client.runs().create_run(taken)).await.unwrap_err().reason, "ID_TAKEN");
}

#[tokio::test]
async fn a_read_asks_for_at_least_a_sequence_and_one_that_never_comes_ends_with_where_the_view_stands() {
    let mut world = World::new().await;
    world.config.wait = std::time::Duration::from_millis(300);
    world.restart().await;
    let run = world.create("first").await;
    for n in 0..20 {
        let set = [("n".to_owned(), n.to_string())].into();
        let request = v1::SetTagsRequest { project: PROJECT.into(), run_id: run.clone(), set, ..Default::default() };
        let sequence = world.client().once(world.client().runs().set_tags(request)).await.unwrap().sequence;
        let request = v1::GetRunRequest { project: PROJECT.into(), run_id: run.clone(), at_least: sequence };
        let seen = world.client().once(world.client().runs().get_run(request)).await.unwrap();
        assert_eq!(seen.run.unwrap().tags["n"], n.to_string());
        assert!(seen.view_sequence >= sequence);
    }
    let never = v1::GetRunRequest { project: PROJECT.into(), run_id: run, at_least: 1_000_000 };
    let behind = world.client().once(world.client().runs().get_run(never)).await.unwrap_err();
    assert_eq!(behind.reason, "VIEW_BEHIND");
}

#[tokio::test]
async fn waiting_answers_when_it_has_ended_and_says_when_it_has_not() {
    let world = World::new().await;
    let run = world.create("first").await;
    let wait =
        |ended_is_enough, timeout_ms| v1::WaitRunRequest { project: PROJECT.into(), run_id: run.clone(), ended_is_enough, timeout_ms };
    let client = world.client();
    let early = client.once(client.runs().wait_run(wait(true, 50))).await.unwrap();
    assert!(!early.done && early.run.unwrap().state() == footplate_api::types::RunState::Running);
    let (mut runs, request) = (client.runs(), wait(true, 20_000));
    let waiting = tokio::spawn(async move { runs.wait_run(request).await.unwrap().into_inner() });
    world.finish(&run, Vec::new()).await;
    let ended = waiting.await.unwrap();
    assert!(ended.done);
    assert_eq!(ended.run.unwrap().outcome(), footplate_api::types::Outcome::Succeeded);
}

#[tokio::test]
async fn a_run_with_a_job_is_not_ended_by_a_client() {
    let world = World::new().await;
    let run = world.running_job().await;
    let request = v1::FinishRunRequest {
        project: PROJECT.into(),
        run_id: run.to_string(),
        outcome: footplate_api::types::Outcome::Succeeded.into(),
        ..Default::default()
    };
    let refused = world.client().once(world.client().runs().finish_run(request)).await.unwrap_err();
    assert_eq!(refused.reason, "RUN_HAS_JOB");
    assert_eq!(world.get(&run.to_string()).await.state(), footplate_api::types::RunState::Running);
}

#[tokio::test]
async fn experiments_come_with_their_first_run_and_names_that_differ_in_case_are_two() {
    let world = World::new().await;
    let client = world.client();
    for experiment in ["Net", "net", "net"] {
        let request = v1::CreateRunRequest { experiment: experiment.into(), ..create("x", "") };
        client.once(client.runs().create_run(request)).await.unwrap();
    }
    world.running_job().await;
    let at_least = world.ledger.end().await.unwrap();
    let list = v1::ListExperimentsRequest { project: PROJECT.into(), at_least, ..Default::default() };
    let listed = client.once(client.experiments().list_experiments(list)).await.unwrap().experiments;
    let counts: Vec<(&str, u64)> = listed.iter().map(|one| (one.name.as_str(), one.runs)).collect();
    assert_eq!(counts, [("Net", 1), ("digits", 1), ("net", 2)]);
    let note = v1::NoteExperimentRequest { project: PROJECT.into(), experiment: "digits".into(), note: "two layers".into() };
    let at_least = client.once(client.experiments().note_experiment(note)).await.unwrap().sequence;
    let get = v1::GetExperimentRequest { project: PROJECT.into(), experiment: "digits".into(), at_least };
    assert_eq!(client.once(client.experiments().get_experiment(get)).await.unwrap().experiment.unwrap().note, "two layers");
    let unknown = v1::GetExperimentRequest { project: PROJECT.into(), experiment: "NET".into(), at_least: 0 };
    assert_eq!(client.once(client.experiments().get_experiment(unknown)).await.unwrap_err().reason, "EXPERIMENT_NOT_FOUND");
}

#[tokio::test]
async fn a_lineage_is_replayed_from_the_ledger_with_the_runs_it_repeats() {
    let world = World::new().await;
    let first = world.running_job().await;
    let manifest = DocumentRef { digest: Digest::of(b"manifest"), bytes: 8 };
    world.attempt(first, 1, AttemptCheckpointed { step: 7, rank: Rank(0), manifest, bytes: 9, metadata: String::new() }).await;
    world.job(first, placed(2, "n2")).await;
    let second = footplate_clock::run_id();
    let spec = JobSpec { rerun_of: Some(first), ..spec("again") };
    world.job(second, JobSubmitted { spec, body: Digest::of(b"y") }).await;
    let request = v1::GetLineageRequest { project: PROJECT.into(), run_id: second.to_string() };
    let lineage = world.client().once(world.client().runs().get_lineage(request)).await.unwrap();
    let edge = |relation: &str| lineage.edges.iter().find(|edge| edge.relation == relation).unwrap();
    assert_eq!(edge("repeats").to, format!("run:{first}"));
    assert_eq!(edge("resumed_from").from, format!("attempt:{first}-2"));
    assert!(lineage.nodes.iter().any(|node| node.kind == "checkpoint" && node.facts["step"] == "7"));
    assert_eq!(lineage.view_sequence, world.ledger.end().await.unwrap());
}

#[tokio::test]
async fn a_second_tracker_on_one_folder_is_refused() {
    let world = World::new().await;
    let refused = open_series(&world.folder.path().join("series")).await.err().unwrap();
    assert!(refused.to_string().contains("in use"), "{refused}");
}

#[tokio::test]
async fn a_run_with_an_event_that_this_build_cannot_read_takes_no_write_and_others_do_also_after_a_restart() {
    let mut world = World::new().await;
    let (odd, plain) = (world.create("odd").await, world.create("plain").await);
    let subject = Subject::run(&project(), RunId::parse(&odd).unwrap()).to_string();
    let headers = vec![("ce-type".to_owned(), "footplate.run.teleported.v9".to_owned())];
    let message = footplate_eventlog::Message { subject, headers: headers.into(), payload: "{}".into() };
    let at = world.broker.publish(footplate_eventlog::StreamName::Ledger, message, footplate_eventlog::Expect::Any).await.unwrap();
    for _ in 0..2 {
        let log = |run: &str| v1::LogParamsRequest {
            project: PROJECT.into(),
            run_id: run.into(),
            params: [("lr".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        };
        assert_eq!(world.get(&odd).await.name, "odd", "it is still shown");
        let refused = world.client().once(world.client().runs().log_params(log(&odd))).await.unwrap_err();
        assert_eq!(refused.reason, "UNREADABLE_HISTORY");
        assert!(refused.message.contains(&at.to_string()), "{refused:?}");
        world.client().once(world.client().runs().log_params(log(&plain))).await.unwrap();
        world.restart().await;
    }
}

#[tokio::test]
async fn what_is_known_is_shown_while_the_broker_is_away_and_writes_say_so() {
    let mut world = World::new().await;
    world.config.wait = std::time::Duration::from_millis(500);
    world.restart().await;
    let run = world.create("first").await;
    world.get(&run).await;
    world.memory.as_ref().unwrap().faults().unavailable(true);
    let client = world.client();
    let get = v1::GetRunRequest { project: PROJECT.into(), run_id: run.clone(), at_least: 0 };
    assert_eq!(client.once(client.runs().get_run(get)).await.unwrap().run.unwrap().name, "first");
    let list = v1::ListRunsRequest { project: PROJECT.into(), ..Default::default() };
    assert_eq!(client.once(client.runs().list_runs(list)).await.unwrap().runs.len(), 1);
    let mut batch = tonic::Request::new(batch(&run, &session(1), 1, "loss", &[(1, 1.0)]));
    batch.set_timeout(SOON);
    assert_eq!(client.once(client.metrics().log_batch(batch)).await.unwrap_err().kind, footplate_api::Kind::Unavailable);
    world.memory.as_ref().unwrap().faults().unavailable(false);
    world.finish(&run, Vec::new()).await;
    world.sealed(&run).await;
}
