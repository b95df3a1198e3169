//! What the store asks of its servers, and what it says of those that do not give it.

use super::{connect, raw};
use footplate_series::{
    SeriesStore,
    conformance::{Writer, in_time, points},
};
use footplate_testkit::{CassandraServer, cassandra};

/// A server that has too few replicas says at which consistency it was asked; of a compare-and-set, and of a read that settles one, it says so
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_and_write_asks_a_quorum_of_all_replicas_wherever_they_are() {
    let keyspace = cassandra().await;
    in_time(async {
        let (store, fresh) = (connect(&keyspace, "writes").await, connect(&keyspace, "takes over").await);
        let raw = raw(&keyspace).await;
        let mut writer = Writer::of("quorum");
        writer.write(&store, &[("loss", points(0..3))]).await;
        let three = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}";
        raw.query_unpaged(format!("ALTER KEYSPACE {} WITH replication = {three}", keyspace.name), ()).await.unwrap();

        let batch = writer.batch(&[("loss", points(3..6))]);
        let told = [
            store.state(&writer.source).await.unwrap_err(),
            store.ingest(std::slice::from_ref(&batch)).await.unwrap_err(),
            fresh.ingest(std::slice::from_ref(&batch)).await.unwrap_err(),
        ];
        for refused in told {
            assert!(refused.is_transient() && refused.to_string().contains("consistency level QUORUM"), "{refused}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_acknowledges_before_its_disk_has_it_is_told_of() {
    let (server, keyspace) = (CassandraServer::start_early().await, cassandra().await);
    in_time(async {
        let early = connect(&server.keyspace(), "warned").await;
        assert!(early.acknowledges_early().unwrap().contains("commitlog_sync: periodic"), "{:?}", early.acknowledges_early());
        assert_eq!(connect(&keyspace, "content").await.acknowledges_early(), None, "a server that waits for its disk");
        let settings =
            raw(&keyspace).await.query_unpaged("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'", ()).await;
        let (value,): (String,) = settings.unwrap().into_rows_result().unwrap().single_row().unwrap();
        assert_eq!(value, "batch", "what tests stand on");
    })
    .await;
}
