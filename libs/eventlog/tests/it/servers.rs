//! Real servers for these tests.

use footplate_eventlog::jetstream::{JetStreamBroker, JetStreamConfig, StreamBytes};
use footplate_testkit::{NatsServer, nats};

/// How a test connects.
pub(crate) fn config(server: &NatsServer) -> JetStreamConfig {
    let mut config = JetStreamConfig::single(server.url(), "eventlog tests");
    config.bytes = StreamBytes::of_disk(4 << 30);
    config
}

/// A fresh server with the streams, and a connection.
pub(crate) async fn jetstream() -> (NatsServer, JetStreamBroker) {
    let server = nats().start().await;
    let broker = JetStreamBroker::connect(config(&server)).await.unwrap();
    (server, broker)
}
