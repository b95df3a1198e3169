//! Taking secrets out of what will be recorded: config, environment, command lines, URLs.
//!
//! The recorded form has `***` where a secret stood, and a list of what was masked, by path. The real values travel apart from the record
//! (the sealed document) and only to where the program is started. It looks for secrets by key names and by well-known shapes of values; it
//! never changes anything that is neither.

mod argv;
mod key;
mod value;

pub use argv::{scrub_argv, scrub_line};
pub use key::is_secret_key;
pub use value::scrub_text;

use serde_json::{Map, Value};

/// What stands in the place of a secret.
pub const MASK: &str = "***";

/// Masks what is secret in a JSON document, in place; the paths of what was masked are added to `masked`.
pub fn scrub_json(value: &mut Value, path: &str, masked: &mut Vec<String>) {
    match value {
        Value::Object(entries) => scrub_entries(entries, path, masked),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                scrub_json(item, &format!("{path}[{at}]"), masked);
            }
        }
        Value::String(text) => {
            if let Some(clean) = scrub_text(text) {
                *text = clean;
                masked.push(path.to_owned());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn scrub_entries(entries: &mut Map<String, Value>, path: &str, masked: &mut Vec<String>) {
    for (key, value) in entries {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::String(text) if is_secret_key(key, text) => {
                *text = MASK.to_owned();
                masked.push(below);
            }
            other => scrub_json(other, &below, masked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_go_and_harmless_neighbours_stay() {
        let mut config = json!({
            "api_key": "k-123", "db": "postgres://u:pw@h/x", "use_cls_token": true, "num_memory_tokens": 4, "pad_token": "<pad>",
            "nested": [{"hfToken": "hf_abcdefghijklmnopqrstuvwx"}], "lr": 1e-4, "token_ref": "${HF_TOKEN}", "tokenizer": "bpe"
        });
        let mut masked = Vec::new();
        scrub_json(&mut config, "config", &mut masked);
        assert_eq!(masked, ["config.api_key", "config.db", "config.nested[0].hfToken"]);
        assert_eq!(config["db"], json!("postgres://u:***@h/x"));
        assert_eq!((&config["pad_token"], &config["token_ref"], &config["lr"]), (&json!("<pad>"), &json!("${HF_TOKEN}"), &json!(1e-4)));
        assert!(!config.to_string().contains("k-123") && !config.to_string().contains("hf_abc"));
    }
}
