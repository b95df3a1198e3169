//! Gangs of roles: what each role asks and runs.

use super::document::{ResourcesSection, Run};
use super::{Problems, keys};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// One role of a gang.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleSection {
    /// What it is called: 1 to 63 of a-z, 0-9, `-` and `_`.
    pub name: String,
    /// How many members it has, and what each of them asks.
    #[serde(default)]
    pub resources: ResourcesSection,
    /// What its members run; absent: `run` of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Its environment.
    #[serde(default)]
    pub env: RoleEnvSection,
}

/// The environment of a role.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoleEnvSection {
    /// Variables and their values, over those of the job; values are text (quote numbers). Recorded, so no place for secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, String>,
}

/// The long form of what a person writes: roles by name in the order in which they are numbered, `nodes` beside `resources`, `command` for `run`.
pub(super) fn normalise(document: &mut Map<String, Value>, problems: &mut Problems) {
    let Some(value) = document.get_mut("roles") else { return };
    if let Value::Object(by_name) = value {
        let named = |(name, keys): (String, Value)| match keys {
            Value::Object(keys) => {
                let mut role = Map::from_iter([("name".to_owned(), Value::String(name))]);
                role.extend(keys);
                Value::Object(role)
            }
            other => json!({ "name": name, "resources": other }),
        };
        *value = std::mem::take(by_name).into_iter().map(named).collect();
    }
    for (at, role) in value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut).enumerate() {
        for (alias, key) in keys::ALIASES.iter().filter(|(alias, _)| *alias != "commands") {
            if let Some(run) = role.shift_remove(*alias) {
                role.entry(*key).or_insert(run);
            }
        }
        if let Some(nodes) = role.shift_remove("nodes") {
            match role.entry("resources").or_insert_with(|| json!({})) {
                Value::Object(resources) => {
                    resources.insert("nodes".to_owned(), nodes);
                }
                _ => problems.add(format!("roles[{at}].nodes"), "stands beside `resources`, which is no section of keys and values"),
            }
        }
    }
    if value.as_array().is_some_and(Vec::is_empty) {
        document.shift_remove("roles");
    }
}

/// What the types alone cannot say.
pub(super) fn check(roles: &[RoleSection], common: &ResourcesSection, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for role in roles {
        if !seen.insert(role.name.as_str()) {
            problems.add("roles", format!("{:?} is named twice", role.name));
        }
        super::check_resources(&role.resources, &format!("roles.{}.resources", role.name), problems);
        super::check_run(role.run.as_ref(), &format!("roles.{}.run", role.name), problems);
        super::check_vars(role.env.vars.keys(), problems);
    }
    if !roles.is_empty() && common.is_given() {
        problems.add("resources", "stands with each role: beside `roles` nothing is asked for all of them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile;

    fn read(roles: Value) -> Result<Vec<RoleSection>, String> {
        let mut document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": "true"});
        document["roles"] = roles;
        let job = jobfile::resolve(document.as_object().unwrap().clone(), &[]).map_err(|problems| problems.to_string())?;
        Ok(job.file.roles)
    }

    #[test]
    fn roles_by_name_and_as_a_list_mean_the_same_in_their_order() {
        let by_name = json!({
            "worker": {"nodes": 2, "resources": {"gpus": 4}, "command": ["python", "w.py"]},
            "chief": {"resources": {"gpus": 1}, "env": {"vars": {"A": "1"}}},
        });
        let listed = json!([
            {"name": "worker", "resources": {"gpus": 4, "nodes": 2}, "run": ["python", "w.py"]},
            {"name": "chief", "resources": {"gpus": 1}, "env": {"vars": {"A": "1"}}},
        ]);
        let (one, other) = (read(by_name).unwrap(), read(listed).unwrap());
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
        let told: Vec<(&str, u32, Option<u32>)> =
            one.iter().map(|role| (role.name.as_str(), role.resources.nodes, role.resources.gpus)).collect();
        assert_eq!(told, [("worker", 2, Some(4)), ("chief", 1, Some(1))]);
        assert_eq!((one[0].run.is_some(), one[1].env.vars["A"].as_str()), (true, "1"));
        assert!(read(json!({})).unwrap().is_empty());
    }

    #[test]
    fn faults_are_told_with_the_name_of_the_role() {
        for (roles, told) in [
            (json!({"a": {"resources": {"gpus": 1, "slots": 1}}}), "roles.a.resources: takes `gpus` or `slots`, not both"),
            (json!({"a": {"resources": {"gpu": {"model": ["H100"]}}}}), "roles.a.resources.gpu: names a kind of GPU"),
            (json!({"a": {"run": ""}}), "roles.a.run: is empty"),
            (json!({"a": {"env": {"vars": {"FOOTPLATE_X": "1"}}}}), "FOOTPLATE_X is set by the platform"),
            (json!([{"name": "a"}, {"name": "a"}]), "roles: \"a\" is named twice"),
            (json!({"a": {"rum": "x"}}), "roles.rum: no such key; did you mean `run`?"),
        ] {
            let problem = read(roles.clone()).unwrap_err();
            assert!(problem.contains(told), "{roles}: {problem}");
        }
        let mut document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": "true", "resources": {"gpus": 1}});
        document["roles"] = json!({"a": {}});
        let problem = jobfile::resolve(document.as_object().unwrap().clone(), &[]).unwrap_err().to_string();
        assert!(problem.contains("resources: stands with each role"), "{problem}");
    }
}
