//! What credentials may do at the broker. A node's: speak under its own name, read what is meant for it, nothing else. A service's: read
//! everything, write what it owns.

use crate::port::StreamName;
use footplate_events::{Aggregate, Subject, messages::lease_subject};
use footplate_types::{NodeName, ServiceName};
use std::collections::BTreeSet;

/// Subjects that one set of credentials may publish to and subscribe to, as NATS permissions name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// May publish to.
    pub publish: Vec<String>,
    /// May subscribe to.
    pub subscribe: Vec<String>,
}

/// The prefix of a node's reply subjects ([`super::JetStreamConfig::inbox_prefix`]): nobody else may read its answers.
pub fn node_inbox_prefix(node: &NodeName) -> String {
    format!("_INBOX_{node}")
}

/// The prefix of a service's reply subjects; no node's, as a node has a name.
pub fn service_inbox_prefix(service: &ServiceName) -> String {
    format!("_INBOX_.{service}")
}

/// The prefix of the reply subjects of a process that is several of them at once.
pub const SHARED_INBOX_PREFIX: &str = "_INBOX_.shared";

impl Permissions {
    /// What a node's agent needs. It reads single subjects alone, by direct get ([`super::JetStreamConfig::direct_reads`]), since the
    /// permission of a leader's read could not be narrowed to a subject; and it holds no consumer.
    pub fn of_node(node: &NodeName) -> Self {
        let read = |stream: StreamName, subject: String| format!("$JS.API.DIRECT.GET.{}.{subject}", stream.as_str());
        Self {
            publish: vec![
                format!("fp.report.{node}.*"),
                format!("fp.logs.{node}.*"),
                format!("fp.metrics.*.{node}"),
                format!("fp.beat.{node}"),
                read(StreamName::Assignments, format!("fp.assign.{node}")),
                read(StreamName::Settled, format!("fp.settled.{node}.*")),
                read(StreamName::Beats, format!("fp.beat.{node}")),
            ],
            subscribe: vec![format!("fp.assigned.{node}"), format!("{}.>", node_inbox_prefix(node))],
        }
    }

    /// What a service needs: every stream to read, the facts of its own aggregates and its lease to write, and what it says to nodes. It
    /// may make a stream that is missing, but neither change nor remove one, so that it cannot make room for itself in another's
    /// subjects.
    pub fn of_service(service: &ServiceName) -> Self {
        let own = |aggregate: &Aggregate| aggregate.owner() == service.as_str();
        let mut publish: Vec<String> =
            Aggregate::ALL.iter().filter(|aggregate| own(aggregate)).map(|aggregate| Subject::filter(None, Some(*aggregate))).collect();
        publish.extend([Subject::term(service).to_string(), lease_subject(service), format!("fp.settled.*.{service}")]);
        let (says, purges): (&[&str], &[StreamName]) = match service.as_str() {
            "tracker" => (&["fp.metrics.>"], &[StreamName::Metrics, StreamName::Reports]),
            "scheduler" => (&["fp.assign.*"], &[]),
            // The fence on a node's beats, and how far the archive has taken its logs.
            "executor" => (&["fp.beat.*", "fp.settled.*.logs"], &[StreamName::Reports, StreamName::Logs]),
            "gpu-inventory" => (&[], &[StreamName::Reports]),
            _ => (&[], &[]),
        };
        publish.extend(says.iter().map(|subject| (*subject).to_owned()));
        publish.extend(purges.iter().map(|stream| format!("$JS.API.STREAM.PURGE.{}", stream.as_str())));
        let api = ["INFO", "STREAM.INFO.*", "STREAM.CREATE.*", "STREAM.MSG.GET.*", "DIRECT.GET.>", "CONSUMER.>"];
        publish.extend(api.map(|asked| format!("$JS.API.{asked}")));
        Self { publish, subscribe: vec![format!("{}.>", service_inbox_prefix(service))] }
    }

    /// What it takes to make streams and to bring them in line: neither to read nor to write what is in them, nor to remove any.
    pub fn of_streams() -> Self {
        let api = ["INFO", "STREAM.INFO.*", "STREAM.CREATE.*", "STREAM.UPDATE.*"];
        Self { publish: api.map(|asked| format!("$JS.API.{asked}")).to_vec(), subscribe: vec!["_INBOX_.streams.>".to_owned()] }
    }

    /// The same, and it may remove from LEDGER: what the tracker needs where ended runs leave the broker (`ledger.keep`). The broker cannot narrow it to
    /// single subjects, so that it is given to who asks for it alone.
    #[must_use]
    pub fn letting_go(mut self) -> Self {
        self.publish.push(format!("$JS.API.STREAM.PURGE.{}", StreamName::Ledger.as_str()));
        self
    }

    /// What one process needs that is all of these at once (`up`), over one connection. It changes streams, too: on a server of its own
    /// there is nobody else to bring them in line.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Self {
        let (mut publish, mut subscribe) = (BTreeSet::new(), BTreeSet::new());
        for one in all {
            publish.extend(one.publish);
            subscribe.extend(one.subscribe.into_iter().filter(|subject| !subject.starts_with("_INBOX")));
        }
        publish.insert("$JS.API.STREAM.UPDATE.*".to_owned());
        subscribe.insert(format!("{SHARED_INBOX_PREFIX}.>"));
        Self { publish: publish.into_iter().collect(), subscribe: subscribe.into_iter().collect() }
    }

    /// As the `permissions` of a user in a nats-server configuration.
    pub fn to_server_config(&self) -> String {
        let list = |subjects: &[String]| subjects.iter().map(|subject| format!("{subject:?}")).collect::<Vec<_>>().join(", ");
        format!("{{ publish: {{ allow: [{}] }}, subscribe: {{ allow: [{}] }} }}", list(&self.publish), list(&self.subscribe))
    }
}
