//! What a worker finds of its role, in a gang of roles.

use footplate_events::messages::{Task, TaskRole};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Roles that speak to each other by TensorFlow's cluster specification. An evaluator reads `TF_CONFIG` and stands in no cluster.
const CLUSTER: [&str; 4] = ["chief", "master", "worker", "ps"];
const EVALUATOR: &str = "evaluator";

/// Says a worker's role: its name, its rank and size counted in workers of the role, and `TF_CONFIG` where that can be said and the job does not.
pub(super) fn environment(env: &mut BTreeMap<String, String>, task: &Task, peers: &[String], local: u32) {
    let Some((role, place)) = task.role.as_ref().and_then(|role| Some((role, place_of(role, task)?))) else { return };
    let (rank, size) = (place.index * task.workers + local, place.members * task.workers);
    for (ours, torchs, value) in [
        ("FOOTPLATE_ROLE", "ROLE_NAME", role.name.clone()),
        ("FOOTPLATE_ROLE_RANK", "ROLE_RANK", rank.to_string()),
        ("FOOTPLATE_ROLE_SIZE", "ROLE_WORLD_SIZE", size.to_string()),
    ] {
        env.insert(ours.to_owned(), value.clone());
        env.insert(torchs.to_owned(), value);
    }
    if let Some(config) = tf_config(role, place.index, peers) {
        env.entry("TF_CONFIG".to_owned()).or_insert_with(|| config.to_string());
    }
}

/// Where a member stands in its role.
struct Place {
    index: u32,
    members: u32,
}

fn place_of(role: &TaskRole, task: &Task) -> Option<Place> {
    let at = role.roles.iter().position(|known| known.name == role.name)?;
    let before: u32 = role.roles[..at].iter().map(|known| known.members).sum();
    Some(Place { index: task.member.0.checked_sub(before)?, members: role.roles[at].members })
}

/// TensorFlow's cluster specification: one task a member, so none where a member of such a role has several workers.
fn tf_config(role: &TaskRole, index: u32, peers: &[String]) -> Option<Value> {
    let is_task = |name: &str| CLUSTER.contains(&name) || name == EVALUATOR;
    let is_one = role.roles.iter().filter(|known| is_task(&known.name)).all(|known| known.workers == 1);
    if !is_task(&role.name) || !is_one || role.ports.len() != peers.len() {
        return None;
    }
    let mut addresses = peers.iter().zip(&role.ports).map(|(host, port)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    });
    let mut cluster: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for known in &role.roles {
        let own: Vec<String> = addresses.by_ref().take(known.members as usize).collect();
        if CLUSTER.contains(&known.name.as_str()) {
            cluster.insert(&known.name, own);
        }
    }
    Some(json!({ "cluster": cluster, "task": { "type": role.name, "index": index } }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::core::tests::task;
    use footplate_events::messages::{Order, RoleSize};
    use footplate_types::MemberIndex;

    fn gang(sizes: &[(&str, u32, u32)], ports: &[u16]) -> TaskRole {
        let size =
            |(name, members, workers): &(&str, u32, u32)| RoleSize { name: (*name).to_owned(), members: *members, workers: *workers };
        TaskRole { name: String::new(), roles: sizes.iter().map(size).collect(), ports: ports.to_vec() }
    }

    fn found(gang: &TaskRole, role: &str, member: u32, workers: u32, local: u32) -> BTreeMap<String, String> {
        let mut task = task(1, 1, &[0], Order::Prepare);
        (task.member, task.workers) = (MemberIndex(member), workers);
        task.role = Some(TaskRole { name: role.to_owned(), ..gang.clone() });
        let peers: Vec<String> = ["a", "b", "fd00::1", "a"].iter().map(|peer| (*peer).to_owned()).collect();
        let mut env = BTreeMap::new();
        environment(&mut env, &task, &peers, local);
        env
    }

    #[test]
    fn a_worker_finds_its_role_counted_in_workers_of_the_role() {
        let gang = gang(&[("actor", 1, 1), ("learner", 3, 2)], &[]);
        let env = found(&gang, "learner", 2, 2, 1);
        let of = |name: &str| env[name].as_str();
        assert_eq!((of("FOOTPLATE_ROLE"), of("FOOTPLATE_ROLE_RANK"), of("FOOTPLATE_ROLE_SIZE")), ("learner", "3", "6"));
        assert_eq!((of("ROLE_NAME"), of("ROLE_RANK"), of("ROLE_WORLD_SIZE")), ("learner", "3", "6"));
        assert!(!env.contains_key("TF_CONFIG"), "no roles of TensorFlow's");
    }

    #[test]
    fn tensorflows_roles_find_their_cluster_and_the_evaluator_stands_outside_of_it() {
        let gang = gang(&[("chief", 1, 1), ("worker", 2, 1), ("evaluator", 1, 1)], &[7, 8, 9, 10]);
        let config = |role, member| -> Value { serde_json::from_str(&found(&gang, role, member, 1, 0)["TF_CONFIG"]).unwrap() };
        let cluster = json!({ "chief": ["a:7"], "worker": ["b:8", "[fd00::1]:9"] });
        assert_eq!(config("worker", 2), json!({ "cluster": cluster, "task": { "type": "worker", "index": 1 } }));
        assert_eq!(config("evaluator", 3), json!({ "cluster": cluster, "task": { "type": "evaluator", "index": 0 } }));
    }

    #[test]
    fn without_a_port_of_each_or_with_several_workers_a_member_nothing_is_said_of_a_cluster() {
        assert!(!found(&gang(&[("chief", 1, 1), ("worker", 3, 1)], &[7, 8, 9]), "worker", 1, 1, 0).contains_key("TF_CONFIG"));
        assert!(!found(&gang(&[("chief", 1, 1), ("worker", 3, 4)], &[7, 8, 9, 10]), "chief", 0, 1, 0).contains_key("TF_CONFIG"));
    }
}
