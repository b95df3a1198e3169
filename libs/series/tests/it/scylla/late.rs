//! Requests that land late, twice, or with their answer lost, as raw statements against the same tables.

use super::{connect, raw};
use footplate_series::{
    SHARDS, SeriesStore,
    conformance::{Writer, in_time, points},
};
use footplate_testkit::{Keyspace, cassandra};
use scylla::{
    client::session::Session,
    response::query_result::QueryResult,
    value::{CqlValue, Row},
};

/// What the row of `progress` holds: the epoch, and the floors.
type Stands = (i64, Vec<i64>);

async fn stands(raw: &Session) -> Stands {
    let found = raw.query_unpaged("SELECT epoch, floors FROM progress WHERE part = 0", ()).await.unwrap();
    found.into_rows_result().unwrap().single_row().unwrap()
}

fn applied(result: QueryResult) -> bool {
    let row = result.into_rows_result().unwrap().first_row::<Row>().unwrap();
    row.columns[0] == Some(CqlValue::Boolean(true))
}

/// The statement with which the store raises floors, as the server has it.
async fn raise_statement(raw: &Session, keyspace: &Keyspace) -> String {
    let asked = "SELECT logged_keyspace, query_string FROM system.prepared_statements";
    let prepared = raw.query_unpaged(asked, ()).await.unwrap().into_rows_result().unwrap();
    let prepared: Vec<(Option<String>, String)> = prepared.rows().unwrap().map(Result::unwrap).collect();
    let is_raise = |(of, text): &(Option<String>, String)| *of == Some(keyspace.name.clone()) && text.contains("SET floors");
    prepared.into_iter().find(is_raise).unwrap().1
}

fn bigints(floors: &[i64]) -> CqlValue {
    CqlValue::List(floors.iter().copied().map(CqlValue::BigInt).collect())
}

/// A raise that the client gave up waiting for is still on its way in a server, and the same raise, sent again, was applied long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_that_lands_late_does_not_lower_a_floor() {
    let keyspace = cassandra().await;
    in_time(async {
        let store = connect(&keyspace, "raises").await;
        let raw = raw(&keyspace).await;
        let mut writer = Writer::of("late");
        let mut stood: Vec<Stands> = Vec::new();
        for part in 0..3 {
            writer.write(&store, &[("loss", points(part * 10..part * 10 + 10))]).await;
            stood.push(stands(&raw).await);
        }
        let epoch = stood[2].0;
        assert!(stood.iter().all(|(of, _)| *of == epoch), "all under one writer");
        let raise = raw.prepare(raise_statement(&raw, &keyspace).await).await.unwrap();
        for late in 0..2usize {
            let before = late.checked_sub(1).map(|before| bigints(&stood[before].1));
            let mut values = vec![Some(bigints(&stood[late].1)), Some(CqlValue::BigInt(epoch)), before];
            values.truncate(raise.get_variable_col_specs().len());
            assert!(!applied(raw.execute_unpaged(&raise, values).await.unwrap()), "raise {late} is refused");
            assert_eq!(stands(&raw).await, stood[2]);
        }
        assert_eq!(store.floor(writer.source.shard()).await.unwrap(), 3);
        assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..30));
    })
    .await;
}

/// Of a raise whose answer was lost the second try is refused, since the first was applied: that is no reason to begin anew. Floors that
/// nobody here has asked for are: they are kept, under a new epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_that_is_refused_looks_at_what_stands() {
    let keyspace = cassandra().await;
    in_time(async {
        let store = connect(&keyspace, "looks").await;
        let raw = raw(&keyspace).await;
        let mut writer = Writer::of("looks");
        writer.write(&store, &[("loss", points(0..10))]).await;
        let (epoch, mut floors) = stands(&raw).await;
        let set = |floors: Vec<i64>| raw.query_unpaged("UPDATE progress SET floors = ? WHERE part = 0 IF epoch = ?", (floors, epoch));

        floors[usize::from(writer.source.shard())] = 2;
        assert!(applied(set(floors.clone()).await.unwrap()));
        writer.write(&store, &[("loss", points(10..20))]).await;
        assert_eq!(stands(&raw).await, (epoch, floors.clone()), "its own raise had landed");

        let other = (writer.source.shard() + 1) % SHARDS;
        floors[usize::from(other)] = 7;
        assert!(applied(set(floors.clone()).await.unwrap()));
        writer.write(&store, &[("loss", points(20..30))]).await;
        floors[usize::from(writer.source.shard())] = 3;
        assert_eq!(stands(&raw).await, (epoch + 1, floors), "what stood is kept");
        assert_eq!(store.points(&writer.key("loss")).await.unwrap(), points(0..30));
        assert_eq!(store.floor(other).await.unwrap(), 7);
    })
    .await;
}
