//! The same on a real nats-server, with the sweep service's own credentials, and the broker killed in the middle.

use crate::stage::*;
use footplate_api::v1;
use footplate_eventlog::Broker;
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, JetStreamConfig, Permissions, StreamBytes, service_inbox_prefix};
use footplate_events::facts::Outcome;
use footplate_testkit::{eventually, nats};
use footplate_types::ServiceName;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_broker_no_trial_is_lost_or_suggested_twice_though_it_is_killed() {
    let permissions = Permissions::of_service(&ServiceName::parse("sweep").unwrap()).to_server_config();
    let users = format!("{{ user: others, password: p }}, {{ user: sweep, password: p, permissions: {permissions} }}");
    let server = nats().config(&format!("authorization {{ users: [ {users} ] }}")).start().await;
    let connected = |user: &str| {
        let mut config = JetStreamConfig::single(server.url(), "sweep tests");
        config.bytes = StreamBytes::of_disk(4 << 30);
        config.credentials = Credentials::User { name: user.to_owned(), password: "p".to_owned() };
        config.inbox_prefix = Some(service_inbox_prefix(&ServiceName::parse("sweep").unwrap()));
        JetStreamBroker::connect(config)
    };
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::on(Arc::new(connected("sweep").await.unwrap()), folder.path(), "one").await;
    // The other services speak over a connection of their own.
    let others: Arc<dyn Broker> = Arc::new(connected("others").await.unwrap());
    let asked = v1::SweepSpec { rungs: vec![3], ..spec("random", vec![float("lr", 0.0, 1.0)]) };
    let id = stage.create(asked, "").await.unwrap().sweep_id;
    for number in 1..=4u32 {
        stage.reaches(&id, "the trial is under way", |sweep| sweep.suggested >= number).await;
        if number == 2 {
            server.kill9().await.unwrap();
            server.restart().await.unwrap();
        }
        let trial = stage.trials(&id).await.into_iter().find(|trial| trial.number == number).unwrap();
        log(&others, &trial.run_id, 1, 3, f64::from(number)).await;
        eventually(SOON, "its rung is seen, also after the kill", || async {
            let trials = stage.trials(&id).await;
            trials.iter().any(|known| known.number == number && known.observations.len() == 1).then_some(())
        })
        .await;
        seal(&others, &trial.run_id, Outcome::Succeeded, Some(f64::from(number))).await;
    }
    let sweep = stage.reaches(&id, "it is finished", |sweep| sweep.state == "finished").await;
    assert_eq!((sweep.complete, sweep.best.unwrap().number), (4, 1));
    assert_eq!((stage.events("suggested").await.len(), stage.events("finished").await.len()), (4, 4));
    stage.verifies().await;
    stage.stop().await;
}
