//! From a merged document to typed sections: short forms made long, empty sections dropped, every fault gathered with its path.

use super::{AfterItem, ArraySection, Problems, RoleSection, after, array, document::*, keys, role, schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Puts a document into its one long form, in place: aliases of `run`, short forms of sections, empty sections.
pub(super) fn normalise(document: &mut Map<String, Value>, problems: &mut Problems) {
    drop_empty(document);
    let given: Vec<&str> =
        std::iter::once("run").chain(keys::ALIASES.map(|(alias, _)| alias)).filter(|key| document.contains_key(*key)).collect();
    if given.len() > 1 {
        problems.add(given[1], format!("means the same as `{}`, and both are given", given[0]));
    }
    for (alias, key) in keys::ALIASES {
        if let Some(value) = document.shift_remove(alias) {
            let value = if alias == "commands" { joined(value, problems) } else { value };
            document.entry(key).or_insert(value);
        }
    }
    for (section, key) in [("launcher", "type"), ("queue", "name")] {
        if let Some(value) = document.get_mut(section).filter(|value| value.is_string()) {
            *value = json!({ key: value.take() });
        }
    }
    after::normalise(document, problems);
    array::normalise(document, problems);
    role::normalise(document, problems);
    let models = document.get_mut("resources").and_then(|section| section.get_mut("gpu")).and_then(|section| section.get_mut("model"));
    if let Some(value) = models.filter(|value| value.is_string()) {
        *value = json!([value.take()]);
    }
}

/// An empty section is an absent one; inside `config` null is a value like any other.
fn drop_empty(level: &mut Map<String, Value>) {
    for (key, value) in level.iter_mut() {
        if key != "config"
            && let Value::Object(below) = value
        {
            drop_empty(below);
        }
    }
    level.retain(|_, value| !value.is_null());
}

/// Lines run one after the other until one fails.
fn joined(lines: Value, problems: &mut Problems) -> Value {
    let texts: Option<Vec<&str>> = lines.as_array().map(|lines| lines.iter().map(Value::as_str).collect()).unwrap_or_default();
    match texts {
        Some(texts) if !texts.is_empty() => Value::String(format!("set -e\n{}", texts.join("\n"))),
        _ => {
            problems.add("commands", "takes a list of lines");
            lines
        }
    }
}

/// Reads the typed form. Every fault is added to `problems`; nothing comes back when there was one that leaves no value.
pub(super) fn read(document: &Map<String, Value>, problems: &mut Problems) -> Option<JobFile> {
    let before = problems.0.len();
    keys::check(document, schema::json_schema(), problems);
    for (key, value) in [("apiVersion", API_VERSION), ("kind", "Job")] {
        let told = problems.0.iter().any(|problem| problem.place == key);
        match document.get(key) {
            None => problems.add(key, format!("is required; write `{key}: {value}`")),
            Some(given) if given == "Sweep" => problems.add(key, "a sweep file is for `footplate sweep run`"),
            Some(given) if given == "Pipeline" => problems.add(key, "a pipeline file is for `footplate pipeline submit`"),
            Some(given) if given != value && !told => problems.add(key, format!("{given} is not `{value}`")),
            Some(_) => {}
        }
    }
    for key in ["name", "run"] {
        if !document.contains_key(key) {
            problems.add(key, "is required");
        }
    }
    if problems.0.len() > before {
        // The faults of the values are told as well, in one go with those of the keys.
        each_key(document, problems);
        return None;
    }
    match serde_json::from_value(Value::Object(document.clone())) {
        Ok(file) => Some(file),
        Err(error) => {
            each_key(document, problems);
            if problems.0.len() == before {
                problems.add("", error.to_string());
            }
            None
        }
    }
}

/// Reads every key for itself, so that each fault is told with its own path.
fn each_key(document: &Map<String, Value>, problems: &mut Problems) {
    for (key, value) in document {
        match key.as_str() {
            "name" | "experiment" => one::<footplate_types::DisplayName>(key, value, problems),
            "project" => one::<footplate_types::ProjectName>(key, value, problems),
            "labels" => section::<std::collections::BTreeMap<String, String>>(key, value, problems),
            "why" => section::<WhySection>(key, value, problems),
            "config" => one::<Map<String, Value>>(key, value, problems),
            "source" => section::<SourceSection>(key, value, problems),
            "env" => section::<EnvSection>(key, value, problems),
            "setup" => one::<String>(key, value, problems),
            "run" => run(value, problems),
            "launcher" => section::<LauncherSection>(key, value, problems),
            "resources" => section::<ResourcesSection>(key, value, problems),
            "placement" => section::<PlacementSection>(key, value, problems),
            "queue" => section::<QueueSection>(key, value, problems),
            "limits" => section::<LimitsSection>(key, value, problems),
            "stop" => section::<StopSection>(key, value, problems),
            "retry" => section::<RetrySection>(key, value, problems),
            "data" => one::<Vec<DataItem>>(key, value, problems),
            "after" => one::<Vec<AfterItem>>(key, value, problems),
            "array" => one::<ArraySection>(key, value, problems),
            "roles" => one::<Vec<RoleSection>>(key, value, problems),
            "checkpoints" => section::<CheckpointsSection>(key, value, problems),
            "seeds" => section::<SeedsSection>(key, value, problems),
            _ => {}
        }
    }
}

fn one<T: DeserializeOwned>(path: &str, value: &Value, problems: &mut Problems) {
    if let Err(error) = serde_json::from_value::<T>(value.clone()) {
        tell(path, &error.to_string(), problems);
    }
}

fn section<T: DeserializeOwned>(path: &str, value: &Value, problems: &mut Problems) {
    let Some(level) = value.as_object() else {
        problems.add(path, format!("{value} is not a section of keys and values"));
        return;
    };
    for (key, value) in level {
        let alone = json!({ key: value });
        if let Err(error) = serde_json::from_value::<T>(alone) {
            tell(&format!("{path}.{key}"), &error.to_string(), problems);
        }
    }
}

fn run(value: &Value, problems: &mut Problems) {
    match value {
        Value::String(_) => {}
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate().filter(|(_, item)| !item.is_string()) {
                problems.add(format!("run[{at}]"), format!("{item} is not text; put it in quotes"));
            }
        }
        other => problems.add("run", format!("{other} is neither a line nor a list of program and arguments")),
    }
}

/// Adds a fault of serde in words for people, unless a check of the keys has told of the same place.
fn tell(path: &str, message: &str, problems: &mut Problems) {
    if problems.0.iter().any(|problem| problem.place == path || problem.place.starts_with(&format!("{path}.")))
        || message.starts_with("unknown field")
    {
        return;
    }
    let quote =
        message.contains("expected a string") && !message.contains("null") && !message.contains("map") && !message.contains("sequence");
    problems.add(path, if quote { format!("{message}; put it in quotes") } else { message.to_owned() });
}
