//! Reading a payload's JSON Schema: its fields for people, its definitions for tools.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Map, Value};

/// One field of a payload.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) needed: bool,
    pub(crate) meaning: String,
}

/// The fields of an object, in the order in which the code declares them.
pub(crate) fn fields(schema: &Value) -> Vec<Field> {
    let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let field = |(name, of): (&String, &Value)| Field {
        name: name.clone(),
        kind: kind(of),
        needed: needed.contains(&name.as_str()),
        meaning: first_line(of["description"].as_str().unwrap_or_default()),
    };
    properties.into_iter().flatten().map(field).collect()
}

/// A type in few words: `string`, `list of Claim`, `text to string`.
pub(crate) fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or(reference).to_owned();
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        let Some(choices) = schema[choice].as_array() else { continue };
        let mut kinds: Vec<String> = choices.iter().map(kind).filter(|kind| kind != "null").collect();
        kinds.dedup();
        return kinds.join(" or ");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).filter(|one| *one != "null").collect(),
        _ => Vec::new(),
    };
    match types.as_slice() {
        ["array"] => format!("list of {}", kind(&schema["items"])),
        ["object"] if schema["additionalProperties"].is_object() => format!("text to {}", kind(&schema["additionalProperties"])),
        ["integer"] => "whole number".to_owned(),
        [] if !schema["const"].is_null() => schema["const"].to_string(),
        [] => "any".to_owned(),
        types => types.join(" or "),
    }
}

/// Moves a schema's own definitions into `shared`, where all messages find them.
pub(crate) fn hoist(mut schema: Value, shared: &mut BTreeMap<String, Value>) -> Result<Value> {
    if let Some(entries) = schema.as_object_mut() {
        entries.remove("$schema");
        if let Some(Value::Object(definitions)) = entries.remove("$defs") {
            for (name, definition) in definitions {
                let definition = redirected(definition);
                let known = shared.entry(name.clone()).or_insert_with(|| definition.clone());
                ensure!(*known == definition, "two definitions are called {name}");
            }
        }
    }
    Ok(redirected(schema))
}

fn redirected(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let entry = |(key, value): (String, Value)| match value {
                Value::String(target) if key == "$ref" => (key, Value::String(target.replace("#/$defs/", "#/components/schemas/"))),
                value => (key, redirected(value)),
            };
            Value::Object(entries.into_iter().map(entry).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(redirected).collect()),
        plain => plain,
    }
}

/// A description's first paragraph on one line, fit for a table.
pub(crate) fn first_line(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_told_in_few_words() {
        assert_eq!(kind(&json!({"type": ["string", "null"]})), "string");
        assert_eq!(kind(&json!({"type": "array", "items": {"$ref": "#/$defs/Claim"}})), "list of Claim");
        assert_eq!(kind(&json!({"anyOf": [{"$ref": "#/$defs/Quota"}, {"type": "null"}]})), "Quota");
        assert_eq!(kind(&json!({"type": "object", "additionalProperties": {"type": "integer"}})), "text to whole number");
        assert_eq!(kind(&json!({})), "any");
    }

    #[test]
    fn definitions_are_shared_and_two_of_one_name_are_refused() {
        let mut shared = BTreeMap::new();
        let one = json!({"$defs": {"A": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/A"}}});
        let hoisted = hoist(one, &mut shared).unwrap();
        assert_eq!(hoisted, json!({"properties": {"a": {"$ref": "#/components/schemas/A"}}}));
        assert!(hoist(json!({"$defs": {"A": {"type": "integer"}}}), &mut shared).is_err());
    }
}
