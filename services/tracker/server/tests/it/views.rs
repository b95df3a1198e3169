//! The view: rebuilt equal, kept over a restart, found out when it is wrong.

use crate::world::*;
use footplate_api::v1;
use footplate_events::facts::*;
use footplate_types::*;

async fn verify(world: &World) -> Vec<v1::ViewDigest> {
    let request = v1::VerifyViewsRequest { at_least: 0 };
    world.client().once(world.client().tracker_views().verify_views(request)).await.unwrap().views
}

async fn busy(world: &World) -> RunId {
    let run = world.running_job().await;
    world.attempt(run, 1, exited(FinalOffsets::default())).await;
    world.job(run, ended(1)).await;
    world.sealed(&run.to_string()).await;
    let notebook = world.create("notebook").await;
    let put = v1::PutBlobRequest { project: PROJECT.into(), digest: String::new(), data: b"x".to_vec() };
    let digest = world.client().once(world.client().blobs().put_blob(put)).await.unwrap().blob.unwrap().digest;
    let artifacts = vec![v1::Artifact { path: "a/x".into(), digest, bytes: 1, ..Default::default() }];
    let request = v1::LogArtifactsRequest { project: PROJECT.into(), run_id: notebook.clone(), artifacts, ..Default::default() };
    world.client().once(world.client().artifacts().log_artifacts(request)).await.unwrap();
    let params = [("f".to_owned(), "0.1".to_owned()), ("big".to_owned(), "9007199254740993".to_owned())].into();
    let request = v1::LogParamsRequest { project: PROJECT.into(), run_id: notebook, params, ..Default::default() };
    world.client().once(world.client().runs().log_params(request)).await.unwrap();
    run
}

#[tokio::test]
async fn a_rebuilt_view_is_equal_and_a_planted_difference_is_found_and_named() {
    let mut world = World::new().await;
    let run = busy(&world).await;
    let views = verify(&world).await;
    assert_eq!(views.iter().map(|view| view.view.as_str()).collect::<Vec<_>>(), ["runs", "experiments", "artifacts", "webhooks"]);
    assert!(views.iter().all(|view| view.equal && view.difference.is_empty()), "{views:?}");
    assert!(views[..3].iter().all(|view| view.events > 5), "{views:?}");
    assert_ne!(views[0].living, views[1].living);
    world.tracker.take().unwrap().stop().await;
    let file = rusqlite::Connection::open(world.folder.path().join("view/tracker-view.sqlite")).unwrap();
    let planted = file.execute("UPDATE runs SET document = replace(document, '\"gang\"', '\"gong\"')", []).unwrap();
    assert!(planted > 0);
    drop(file);
    world.restart_after_stop().await;
    let views = verify(&world).await;
    assert!(!views[0].equal && views[1].equal && views[2].equal, "{views:?}");
    assert!(views[0].difference.contains(&run.to_string()) && views[0].difference.contains("gong"), "{}", views[0].difference);
}

#[tokio::test]
async fn a_restart_goes_on_from_the_file_and_a_missing_or_broken_file_is_built_again() {
    let mut world = World::new().await;
    let run = busy(&world).await;
    let before = world.get(&run.to_string()).await;
    for damage in [None, Some(true), Some(false)] {
        world.tracker.take().unwrap().stop().await;
        let path = world.folder.path().join("view/tracker-view.sqlite");
        match damage {
            None => {}
            Some(true) => std::fs::remove_file(&path).unwrap(),
            Some(false) => std::fs::write(&path, b"this is no database").unwrap(),
        }
        world.restart_after_stop().await;
        assert_eq!(world.get(&run.to_string()).await, before);
        assert!(verify(&world).await.iter().all(|view| view.equal), "{damage:?}");
    }
}

#[tokio::test]
async fn a_start_waits_for_a_broker_that_is_away_and_then_goes_on_from_the_file() {
    let mut world = World::new().await;
    let run = busy(&world).await;
    let before = world.get(&run.to_string()).await;
    world.tracker.take().unwrap().stop().await;
    let memory = world.memory.clone().unwrap();
    memory.faults().unavailable(true);
    let back = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        memory.faults().unavailable(false);
    };
    tokio::join!(world.restart_after_stop(), back);
    assert_eq!(world.get(&run.to_string()).await, before);
}

#[tokio::test]
async fn the_file_of_another_ledger_is_not_believed() {
    let world = World::new().await;
    let run = busy(&world).await;
    let World { tracker, folder, .. } = world;
    tracker.unwrap().stop().await;
    let other = World::new().await;
    for n in 0..40 {
        other.create(&format!("other {n}")).await;
    }
    let tracker = Tracker::start(&quick(folder.path()), &other.ledger, folder.path()).await;
    let at_least = other.ledger.end().await.unwrap();
    let request = v1::GetRunRequest { project: PROJECT.into(), run_id: run.to_string(), at_least };
    let gone = tracker.client.once(tracker.client.runs().get_run(request)).await.unwrap_err();
    assert_eq!(gone.reason, "RUN_NOT_FOUND");
    let request = v1::VerifyViewsRequest { at_least };
    let views = tracker.client.once(tracker.client.tracker_views().verify_views(request)).await.unwrap().views;
    assert!(views.iter().all(|view| view.equal), "{views:?}");
}
