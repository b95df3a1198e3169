//! What Prometheus, the alerts and the board of Grafana name, for comparison with what processes export.

use super::file::Compose;
use footplate_testkit::repository_root;
use serde_json::Value;
use std::collections::BTreeSet;

/// Words of PromQL that are no metrics, beside those that a bracket follows.
const WORDS: [&str; 8] = ["by", "without", "on", "ignoring", "and", "or", "unless", "bool"];

fn deploy(name: &str) -> String {
    std::fs::read_to_string(repository_root().join("deploy").join(name)).unwrap()
}

fn yaml(name: &str) -> Value {
    serde_yaml_ng::from_str(&deploy(name)).unwrap()
}

/// Job and `name:port` of everything that Prometheus reads.
pub fn targets() -> Vec<(String, String)> {
    let config = yaml("prometheus/prometheus.yml");
    let mut targets = Vec::new();
    for job in config["scrape_configs"].as_array().unwrap() {
        let name = job["job_name"].as_str().unwrap();
        for group in job["static_configs"].as_array().unwrap() {
            let hosts = group["targets"].as_array().unwrap().iter();
            targets.extend(hosts.map(|host| (name.to_owned(), host.as_str().unwrap().to_owned())));
        }
    }
    targets
}

/// Every query of the board and of the alerts, with where it stands.
pub fn queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    let board: Value = serde_json::from_str(&deploy("grafana/boards/footplate.json")).unwrap();
    let source = yaml("grafana/provisioning/datasources/prometheus.yml")["datasources"][0].clone();
    assert_eq!(source["url"], "http://prometheus:9090");
    let boards = yaml("grafana/provisioning/dashboards/footplate.yml")["providers"][0]["options"]["path"].clone();
    let mounted =
        Compose::read().services["grafana"].mounts.iter().any(|mount| mount.source == "../grafana/boards" && mount.target == boards);
    assert!(mounted, "{boards}");
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default() {
            assert_eq!(target["datasource"]["uid"], source["uid"], "{panel}");
            queries.push((format!("panel {}", panel["title"]), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for rule in yaml("alerts/footplate.yml")["groups"][0]["rules"].as_array().unwrap() {
        assert!(rule["annotations"]["summary"].is_string() && rule["annotations"]["look"].is_string(), "{rule}");
        queries.push((format!("alert {}", rule["alert"]), rule["expr"].as_str().unwrap().to_owned()));
    }
    assert!(queries.len() > 20, "{queries:?}");
    queries
}

/// The metrics that a query names.
pub fn metrics_of(query: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let bare = without_labels(query);
    let mut rest = bare.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let word: String = rest[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let number = rest[..start].ends_with(|c: char| c.is_ascii_digit());
        rest = &rest[start + word.len()..];
        let call = rest.trim_start().starts_with('(');
        if !call && !number && !WORDS.contains(&word.as_str()) {
            found.insert(word);
        }
    }
    found
}

/// The query without what stands in braces and brackets, and without the labels of `by (...)`.
fn without_labels(query: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    for letter in query.chars() {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            letter if depth == 0 => out.push(letter),
            _ => {}
        }
    }
    let mut text = out;
    while let Some(at) = text.find("by (") {
        let end = at + text[at..].find(')').unwrap();
        text.replace_range(at..=end, " ");
    }
    text
}

#[test]
fn the_metrics_of_a_query_are_found() {
    let query = "topk(8, histogram_quantile(0.99, sum by (le, process) (rate(a_b_bucket{method!~\"W.*\"}[5m])))) / sum(up{job=\"x\"} == 0)";
    assert_eq!(metrics_of(query), ["a_b_bucket", "up"].map(str::to_owned).into());
}
