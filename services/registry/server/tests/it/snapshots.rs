//! A start is a snapshot and the ledger's tail.

use crate::stage::*;
use footplate_api::v1;
use footplate_eventlog::memory::MemoryBroker;
use footplate_eventlog::{Keeper, SnapshotStore};
use footplate_registry_server::Config;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct InMemory(Mutex<BTreeMap<String, Vec<u8>>>);

impl SnapshotStore for InMemory {
    fn save<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, io::Result<()>> {
        self.0.lock().unwrap().insert(name.to_owned(), bytes);
        async { Ok(()) }.boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<Vec<u8>>>> {
        let found = self.0.lock().unwrap().get(name).cloned();
        async { Ok(found) }.boxed()
    }
}

#[tokio::test]
async fn a_restarted_registry_goes_on_from_its_snapshot_and_knows_all_that_it_knew() {
    let (broker, store) = (Arc::new(MemoryBroker::new()), Arc::new(InMemory::default()));
    // Once at the stop, and not before.
    let config = || Config { snapshots: Some(Keeper::new(store.clone(), SOON * 1_000)), ..Config::new("one") };
    let stage = Stage { broker: broker.clone(), registry: instance_of(broker.clone(), config()).await };
    approved_versions(&stage, 3).await;
    let ada = stage.registry.of("ada");
    // Something of everything that a model may have.
    let keyed = |person: &Person| v1::VersionRequest { request_id: "tonight".to_owned(), ..person.about(1) };
    let promoted = ada.client.once(ada.client.registry().promote_version(keyed(&ada))).await.unwrap();
    ada.promote(2).await.unwrap();
    ada.roll_back().await.unwrap();
    ada.evaluate(ada.figures(1, [("acc".to_owned(), 0.1), ("推荐/loss".to_owned(), 1e300)])).await.unwrap();
    ada.set_alias("champion", 3).await.unwrap();
    ada.archive(3, true, 0).await.unwrap();
    ada.set_alias("champion", 2).await.unwrap();
    let run = trained(broker.as_ref(), "vision", 4).await;
    ada.register(ada.registration(run, "model.bin")).await.unwrap();
    ada.propose(4).await.unwrap();
    ada.client.once(ada.client.registry().reject_version(ada.about(4))).await.unwrap();
    let last = ada.create("空").await.unwrap().sequence;
    let shown = (ada.model().await, ada.version(1).await, ada.version(3).await, ada.version(4).await);
    stage.registry.stop().await;
    assert_eq!(store.0.lock().unwrap().keys().map(String::as_str).collect::<Vec<_>>(), ["registry-1"]);

    let again = instance_of(broker.clone(), config()).await;
    assert!(again.handle.live().counts().facts == 0 && again.handle.live().position() >= last, "it began at the snapshot");
    let ada = again.of("ada");
    assert_eq!((ada.model().await, ada.version(1).await, ada.version(3).await, ada.version(4).await), shown);
    let verified = again.verified().await;
    assert!(verified.equal && verified.events > 0, "{}", verified.difference);
    assert_eq!(ada.client.once(ada.client.registry().promote_version(keyed(&ada))).await.unwrap(), promoted, "keys are remembered");
    assert_eq!(ada.register(ada.registration(run, "model.bin")).await.unwrap().version, 5);
    assert!(again.verified().await.equal);
    again.stop().await;
}
