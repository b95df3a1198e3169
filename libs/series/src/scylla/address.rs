//! Where the cluster is and how to speak to it, as one line of text.

use footplate_types::Invalid;
use std::{fmt, path::PathBuf};

const SCHEME: &str = "scylla://";
const FORM: &str = "scylla://HOST:PORT[,HOST:PORT...]/KEYSPACE[?user=NAME&password_file=FILE&datacenter=NAME&replication=COUNT&migrate=no]";
const KEYSPACE_BYTES_MAX: usize = 48;

/// The address of a series store in ScyllaDB or Apache Cassandra: `scylla://host:port[,host:port]/keyspace`, and behind a `?`, joined by
/// `&`: `user` and `password_file` (the password never stands in the address), `datacenter` (the one whose nodes are asked), `replication`
/// (of a keyspace that is made: 3 unless there are fewer nodes), `migrate=no` (the tables are made by somebody else).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Nodes to begin with, `host:port`; the others are learned from them.
    pub nodes: Vec<String>,
    /// The keyspace.
    pub keyspace: String,
    /// The user; none on a cluster that asks for none.
    pub user: Option<String>,
    /// The file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The datacenter whose nodes are asked; none: any.
    pub datacenter: Option<String>,
    /// Replicas of a keyspace that is made; none: 3, or 1 where there are fewer than three nodes.
    pub replication: Option<u32>,
    /// Whether a missing keyspace and missing or older tables are made.
    pub migrate: bool,
}

impl Address {
    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::new("series", text, FORM);
        let rest = text.strip_prefix(SCHEME).ok_or_else(invalid)?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (nodes, keyspace) = place.split_once('/').ok_or_else(invalid)?;
        let nodes: Vec<String> = nodes.split(',').map(str::to_owned).collect();
        if !nodes.iter().all(|node| is_node(node)) {
            return Err(Invalid::new("series", text, "nodes as HOST:PORT, joined by commas"));
        }
        if !is_keyspace(keyspace) {
            return Err(Invalid::new("series", text, "a keyspace of a-z, 0-9 and _, at most 48 characters, that begins with a letter"));
        }
        let keyspace = keyspace.to_owned();
        let mut address = Self { nodes, keyspace, user: None, password_file: None, datacenter: None, replication: None, migrate: true };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            address.set(option).ok_or_else(invalid)?;
        }
        if address.user.is_some() == address.password_file.is_some() {
            Ok(address)
        } else {
            Err(Invalid::new("series", text, "user and password_file together, or neither"))
        }
    }

    fn set(&mut self, option: &str) -> Option<()> {
        match option.split_once('=').filter(|(_, value)| !value.is_empty())? {
            ("user", user) => self.user = Some(user.to_owned()),
            ("password_file", file) => self.password_file = Some(PathBuf::from(file)),
            ("datacenter", name) => self.datacenter = Some(name.to_owned()),
            ("replication", count) => self.replication = Some(count.parse().ok().filter(|count| (1..=16).contains(count))?),
            ("migrate", "yes") => self.migrate = true,
            ("migrate", "no") => self.migrate = false,
            _ => return None,
        }
        Some(())
    }
}

/// `scylla://host:port/keyspace`, without the options.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.nodes.join(","), self.keyspace)
    }
}

fn is_node(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let may_name = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    !host.is_empty() && host.chars().all(may_name) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_keyspace(text: &str) -> bool {
    text.len() <= KEYSPACE_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_and_its_options_are_taken() {
        let plain = Address::parse("scylla://127.0.0.1:9042/footplate").unwrap();
        assert_eq!((plain.to_string().as_str(), plain.migrate), ("scylla://127.0.0.1:9042/footplate", true));
        let full = "scylla://a:1,[::1]:2/k_1?user=u&password_file=/p&datacenter=dc1&replication=3&migrate=no";
        let full = Address::parse(full).unwrap();
        assert_eq!((full.nodes.len(), full.replication, full.migrate), (2, Some(3), false));
        assert_eq!((full.user.as_deref(), full.datacenter.as_deref()), (Some("u"), Some("dc1")));
        assert_eq!(full.to_string(), "scylla://a:1,[::1]:2/k_1", "what is shown names no user");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form() {
        for text in [
            "",
            "http://a:1/k",
            "scylla://a/k",
            "scylla://a:0/k",
            "scylla://a:x/k",
            "scylla://:1/k",
            "scylla://a:1",
            "scylla://a:1/",
            "scylla://a:1/K",
            "scylla://a:1/1k",
            "scylla://a:1/k;drop",
            "scylla://a:1/k?user=u",
            "scylla://a:1/k?password_file=p",
            "scylla://a:1/k?tls=yes",
            "scylla://a:1/k?replication=0",
            "scylla://a:1/k?migrate=maybe",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
