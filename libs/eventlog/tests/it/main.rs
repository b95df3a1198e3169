//! Both back ends against one suite, the protocol's rules as races, and JetStream on its bad days.
#![allow(clippy::unwrap_used)]

mod appending;
mod archive;
mod cluster;
mod facts;
mod leading;
mod outages;
mod permissions;
mod permissions_table;
mod principals;
mod reading;
mod servers;
mod together;

mod memory {
    //! The memory back end against the suite.
    use footplate_eventlog::memory::MemoryBroker;
    use std::sync::Arc;

    async fn fresh() -> ((), footplate_eventlog::conformance::Tested) {
        ((), Arc::new(MemoryBroker::new()))
    }

    footplate_eventlog::broker_conformance!(fresh);
}

mod archived {
    //! A broker with an archive against the suite.
    use footplate_eventlog::memory::{MemoryBroker, MemorySegments};
    use footplate_eventlog::{Archive, Archived};
    use std::sync::Arc;

    async fn fresh() -> ((), footplate_eventlog::conformance::Tested) {
        let archive = Archive::new(Arc::new(MemoryBroker::new()), Arc::new(MemorySegments::new()));
        ((), Arc::new(Archived::new(archive)))
    }

    footplate_eventlog::broker_conformance!(fresh);
}

mod jetstream {
    //! The JetStream back end against the suite, on a real server.
    use super::servers;
    use footplate_testkit::NatsServer;
    use std::sync::Arc;

    async fn fresh() -> (NatsServer, footplate_eventlog::conformance::Tested) {
        let (server, broker) = servers::jetstream().await;
        (server, Arc::new(broker))
    }

    footplate_eventlog::broker_conformance!(fresh);
}
