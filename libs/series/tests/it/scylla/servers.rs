//! What the store asks of its servers, and what it says of those that do not give it.

use super::{connect, raw};
use footplate_series::{
    SeriesStore,
    conformance::{Writer, in_time, points},
};
use footplate_testkit::cassandra;

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
