//! The published JSON Schema and the tables of the reference page, both made from the types.

use super::document::JobFile;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The JSON Schema (draft 2020-12) of a job file.
pub fn json_schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let mut schema = settings.into_generator().into_root_schema_for::<JobFile>().to_value();
        schema["title"] = json!("Footplate job file");
        for section in ["launcher", "queue"] {
            with_short_form(&mut schema["properties"][section], json!({"type": "string"}));
        }
        with_short_form(&mut schema["properties"]["array"], json!({"type": ["string", "integer"]}));
        with_short_form(&mut schema["properties"]["roles"], json!({"type": "object"}));
        let after = &mut schema["properties"]["after"];
        with_short_form(&mut after["items"], json!({"type": "string"}));
        with_short_form(after, json!({"type": "string"}));
        let models = &mut schema["properties"]["resources"]["properties"]["gpu"]["properties"]["model"];
        with_short_form(models, json!({"type": "string"}));
        let run = schema["properties"]["run"].clone();
        let lines = json!({"type": "array", "items": {"type": "string"}, "description": "Lines run one after the other until one fails."});
        schema["properties"]["entrypoint"] = run.clone();
        schema["properties"]["command"] = run;
        schema["properties"]["commands"] = lines;
        let names = ["run", "entrypoint", "command", "commands"];
        schema["oneOf"] = names.iter().map(|name| json!({"required": [name]})).collect();
        if let Some(required) = schema["required"].as_array_mut() {
            required.retain(|name| name != "run");
        }
        schema
    })
}

/// Says that a value may also be written in a short form.
fn with_short_form(schema: &mut Value, short: Value) {
    let mut long = schema.take();
    let mut outer = json!({});
    for key in ["description", "default"] {
        if let Some(value) = long.as_object_mut().and_then(|long| long.shift_remove(key)) {
            outer[key] = value;
        }
    }
    outer["anyOf"] = json!([short, long]);
    *schema = outer;
}

/// The table of all keys: path, type, default, meaning; in Markdown.
pub(super) fn reference_table() -> String {
    let mut text = String::from("| key | takes | default | meaning |\n|---|---|---|---|\n");
    rows(json_schema(), "", &mut text);
    text
}

fn rows(schema: &Value, path: &str, text: &mut String) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    for (key, below) in properties {
        if path.is_empty() && matches!(key.as_str(), "entrypoint" | "command" | "commands") {
            continue;
        }
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let meaning = below.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
        let section = section_of(below);
        let default = match below.get("default") {
            _ if required.contains(&key.as_str()) || full == "run" => "required".to_owned(),
            Some(value) if section.is_none() && !value.is_null() => format!("`{}`", shown(value)),
            _ => String::new(),
        };
        text.push_str(&format!("| `{full}` | {} | {default} | {meaning} |\n", takes(below)));
        if let Some(section) = section {
            rows(section, &full, text);
        }
    }
}

/// The schema of the keys below, when there are any.
fn section_of(schema: &Value) -> Option<&Value> {
    if schema.get("properties").is_some() {
        return Some(schema);
    }
    let forms = schema.get("anyOf").and_then(Value::as_array);
    let form = forms.and_then(|forms| forms.iter().find(|form| form.get("properties").is_some()));
    let list = || std::iter::once(schema).chain(forms.into_iter().flatten()).find_map(|form| form.get("items"));
    form.or_else(|| list().and_then(section_of))
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn takes(schema: &Value) -> String {
    if let Some(constant) = schema.get("const") {
        return format!("`{}`", shown(constant));
    }
    let words = schema.get("enum").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    if let Some(words) = words {
        let words: Vec<String> = words
            .iter()
            .filter_map(|word| word.get("const").or(Some(word)))
            .filter(|w| !w.is_null())
            .map(|word| format!("`{}`", shown(word)))
            .collect();
        return words.join(", ");
    }
    if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
        let forms: Vec<String> = forms.iter().map(takes).filter(|form| form != "null").collect();
        return forms.join(" or ");
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("any"),
        Some(Value::String(kind)) => kind,
        _ => "any",
    };
    match kind {
        "string" => match schema.get("pattern").and_then(Value::as_str) {
            Some(pattern) if pattern.contains("KiB") => "size".to_owned(),
            Some(pattern) if pattern.contains("\\.\\.") => "duration or range".to_owned(),
            Some(pattern) if pattern.contains("[Tt ]") => "duration or time".to_owned(),
            Some(pattern) if pattern.contains("ms|s") => "duration".to_owned(),
            Some(pattern) if pattern.contains("a-z0-9") => "slug".to_owned(),
            _ => "text".to_owned(),
        },
        "integer" => "whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => match schema.get("items") {
            Some(items) if items.get("properties").is_none() => format!("list of {}", takes(items)),
            _ => "list".to_owned(),
        },
        "object" => match schema.get("additionalProperties").filter(|below| below.get("type").is_some()) {
            Some(below) => format!("keys with {}", takes(below)),
            None => "section".to_owned(),
        },
        other => other.to_owned(),
    }
}
