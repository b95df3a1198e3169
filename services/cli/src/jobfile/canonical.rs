//! One spelling of a JSON value: keys sorted, no blanks, so that equal documents have equal digests.

use serde_json::Value;

/// The canonical text of a value: objects by their keys' bytes, no blanks, numbers as serde_json writes them (`3.0` stays `3.0`).
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by(|one, other| one.0.cmp(other.0));
            text.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_matter_and_floats_stay_floats() {
        let one = canonical(&json!({"b": [1, 3.0, null], "a": {"y": "x\"", "x": true}}));
        assert_eq!(one, r#"{"a":{"x":true,"y":"x\""},"b":[1,3.0,null]}"#);
        assert_eq!(one, canonical(&json!({"a": {"x": true, "y": "x\""}, "b": [1, 3.0, null]})));
    }
}
