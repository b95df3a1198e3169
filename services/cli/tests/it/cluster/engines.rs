//! The real engines under a platform: its series in a Cassandra, its objects in a bucket of an S3 server.

use footplate_testkit::{CassandraServer, S3Server, s3};

const BUCKET: &str = "objects";

/// Both servers, for as many platforms as come one after the other.
pub struct Engines {
    pub series: CassandraServer,
    pub objects: S3Server,
}

impl Engines {
    /// Starts both.
    pub async fn start() -> Self {
        let (series, objects) = tokio::join!(CassandraServer::start(), s3());
        objects.make_bucket(BUCKET);
        Self { series, objects }
    }

    /// What makes a platform use them, with a keyspace and a prefix of its own.
    pub fn settings(&self) -> Vec<String> {
        let keyspace = self.series.keyspace();
        let (key, secret) = self.objects.key();
        vec![
            format!("series={}", keyspace.url()),
            format!("blobs=s3://{BUCKET}/{}", keyspace.name),
            format!("blobs.endpoint={}", self.objects.endpoint()),
            "blobs.allow-http=true".to_owned(),
            format!("blobs.access-key={key}"),
            format!("blobs.secret-key={secret}"),
        ]
    }
}
