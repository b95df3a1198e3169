//! What a node's credentials may do at the broker: speak under its own name, read what is meant for it, nothing else.

use crate::port::StreamName;
use footplate_types::NodeName;

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

    /// As the `permissions` of a user in a nats-server configuration.
    pub fn to_server_config(&self) -> String {
        let list = |subjects: &[String]| subjects.iter().map(|subject| format!("{subject:?}")).collect::<Vec<_>>().join(", ");
        format!("{{ publish: {{ allow: [{}] }}, subscribe: {{ allow: [{}] }} }}", list(&self.publish), list(&self.subscribe))
    }
}
