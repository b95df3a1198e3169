//! Finding runs by name, filter and order, with names as users really write them.

use crate::world::*;
use footplate_api::v1;
use footplate_events::facts::*;
use footplate_types::*;

async fn run_with(world: &World, name: &str, params: &[(&str, &str)]) -> String {
    let request = v1::CreateRunRequest {
        project: PROJECT.into(),
        name: name.into(),
        params: params.iter().map(|(key, json)| ((*key).to_owned(), (*json).to_owned())).collect(),
        ..Default::default()
    };
    world.client().once(world.client().runs().create_run(request)).await.unwrap().run_id
}

fn names(answer: &v1::ListRunsResponse) -> Vec<&str> {
    answer.runs.iter().map(|run| run.name.as_str()).collect()
}

#[tokio::test]
async fn keys_with_dots_slashes_blanks_and_list_positions_are_filtered_and_sorted_by_one_rule() {
    let world = World::new().await;
    let odd = [("model.type", "\"flat\""), ("model", "{\"type\":\"nested\"}"), ("enc", "[7,8]"), ("enc.0", "1"), ("a/b c", "2")];
    let odd = run_with(&world, "odd", &[&odd[..], &[("1st-try", "true"), ("学习率", "0.5")]].concat()).await;
    let plain = run_with(&world, "plain", &[("学习率", "0.25"), ("a/b c", "3")]).await;
    for (run, value) in [(&odd, 0.95), (&plain, 0.5)] {
        let batch = batch(run, &session(1), 1, "val/acc (top 1)", &[(1, value)]);
        world.client().once(world.client().metrics().log_batch(batch)).await.unwrap();
    }
    for filter in [
        "params.`model.type` = flat",
        "params.model.type = nested",
        "params.`enc.0` = 1",
        "params.enc.1 = 8",
        "params.\"a/b c\" = 2",
        "params.1st-try = true",
        "params.学习率 > 0.3",
        "metrics.`val/acc (top 1)` > 0.9",
    ] {
        let answer = world.list(filter, "").await;
        assert_eq!((names(&answer), answer.notes.len()), (vec!["odd"], 0), "{filter}: {:?}", answer.notes);
    }
    assert_eq!(names(&world.list("", "params.学习率").await), ["plain", "odd"]);
    assert_eq!(names(&world.list("", "metrics.`val/acc (top 1)` desc").await), ["odd", "plain"]);
    let note = world.list("params.model.typ = x", "").await;
    assert!(note.runs.is_empty());
    assert!(note.notes[0].contains("params.model.type") && note.notes[0].contains("params.`model.type`"), "{:?}", note.notes);
}

#[tokio::test]
async fn duration_ends_silence_and_parents_are_one_filter_each() {
    let world = World::new().await;
    let sweep = run_with(&world, "sweep", &[("set", "\"A\"")]).await;
    let finished = run_with(&world, "finished", &[]).await;
    world.finish(&finished, Vec::new()).await;
    let running = world.running_job().await;
    let pending = footplate_clock::run_id();
    world.job(pending, JobSubmitted { spec: spec("pending"), body: Digest::of(b"x") }).await;
    let lost = world.running_job().await;
    world.job(lost, JobEnded { outcome: Outcome::Failed, cause: Cause::Lost, ..ended(1) }).await;
    let child = v1::CreateRunRequest {
        project: PROJECT.into(),
        name: "child".into(),
        tags: [("parent".to_owned(), sweep.clone())].into(),
        ..Default::default()
    };
    world.client().once(world.client().runs().create_run(child)).await.unwrap();
    assert_eq!(names(&world.list("parent.params.set = A", "").await), ["child"]);
    let mut ended = world.list("ended > now-1m and ended < now + 1m", "ended").await;
    ended.runs.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(names(&ended), ["finished", "gang"]);
    assert_eq!(world.list("cause = lost", "").await.runs[0].run_id, lost.to_string());
    assert_eq!(names(&world.list("state = pending", "").await), ["pending"]);
    let alive = world.list("duration >= 0s and state = running and has_job = true", "").await;
    assert_eq!(alive.runs[0].run_id, running.to_string());
    footplate_testkit::eventually(SOON, "silence of a tenth of a second", || async {
        let silent = world.list("silent > 100ms and has_job = true", "").await;
        (silent.runs.len() == 1 && silent.runs[0].run_id == running.to_string()).then_some(())
    })
    .await;
    let by_end = world.list("", "ended desc").await;
    let last: Vec<bool> = by_end.runs.iter().map(|run| run.ended_at.is_empty()).collect();
    assert_eq!(last, [false, false, true, true, true, true], "what has not ended sorts last");
}

#[tokio::test]
async fn a_wrong_name_is_told_case_is_kept_and_wildcards_can_be_escaped() {
    let world = World::new().await;
    run_with(&world, "lower_case", &[("lr", "1"), ("LR", "2")]).await;
    run_with(&world, "lowerXcase", &[]).await;
    assert_eq!(names(&world.list("params.lr = 1 and params.LR = 2", "").await), ["lower_case"]);
    assert_eq!(world.list("name ilike 'LOWER_CASE'", "").await.runs.len(), 2);
    assert_eq!(names(&world.list("name ilike 'LOWER\\_CASE'", "").await), ["lower_case"]);
    let ordered = world.list("", "metrics.stepp").await;
    assert_eq!(ordered.notes, ["no run has the metric metrics.stepp"]);
    for (filter, order_by, field) in [("state = finished", "", "filter"), ("", "createt", "order_by"), ("params.lr <", "", "filter")] {
        let request = world.list_request(filter, order_by).await;
        let refused = world.client().once(world.client().runs().list_runs(request)).await.unwrap_err();
        assert_eq!((refused.reason.as_str(), refused.field.as_deref()), ("INVALID_FILTER", Some(field)));
        assert!(refused.message.contains("at character"), "{refused:?}");
    }
}

#[tokio::test]
async fn pages_cover_every_run_once_and_an_experiment_narrows_them() {
    let world = World::new().await;
    for n in 0..7 {
        run_with(&world, &format!("run {n}"), &[]).await;
    }
    world.running_job().await;
    let mut seen = Vec::new();
    let mut request = v1::ListRunsRequest { page_size: 3, experiment: "default".into(), ..world.list_request("", "name").await };
    loop {
        let page = world.client().once(world.client().runs().list_runs(request.clone())).await.unwrap();
        seen.extend(page.runs.into_iter().map(|run| run.name));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, (0..7).map(|n| format!("run {n}")).collect::<Vec<_>>());
    let unknown = v1::ListRunsRequest { experiment: "digit".into(), ..world.list_request("", "").await };
    let refused = world.client().once(world.client().runs().list_runs(unknown)).await.unwrap_err();
    assert_eq!(refused.reason, "EXPERIMENT_NOT_FOUND");
    let bad = v1::ListRunsRequest { page_token: "x".into(), ..world.list_request("", "").await };
    assert_eq!(world.client().once(world.client().runs().list_runs(bad)).await.unwrap_err().reason, "INVALID_PAGE_TOKEN");
}
