//! From YAML text to JSON values: the one rule of how a plain scalar becomes a number, a word or nothing.
//!
//! The rule (documented in the job file's reference, the same in a file, in a file named by `extends` and in `--set`):
//! `null`, `~` and nothing are null; `true` and `false` are booleans (`yes`, `no`, `on`, `off` are text); whole numbers in decimal without a
//! leading zero, or as `0x`, `0o`, `0b`, are integers; decimals with a point or an exponent are floats and stay floats (`3.0`, `1e-4`, `2E5`,
//! `.5`); everything else, such as `010`, `1_000` and `12:30`, is text, and so is everything in quotes.

use super::Problem;
use serde_json::{Map, Number, Value};
use serde_yaml_ng as yaml;
use std::path::Path;

/// The largest job file, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// How deep values may nest.
const DEPTH_MAX: usize = 64;

/// Reads one YAML (or JSON) file.
pub(crate) fn read_file(path: &Path) -> Result<Value, Problem> {
    let shown = path.display().to_string();
    let size = std::fs::metadata(path).map_err(|error| Problem::new(&shown, format!("cannot be read: {error}")))?.len();
    if size > FILE_BYTES_MAX {
        return Err(Problem::new(&shown, format!("{size} bytes; a job file has at most {FILE_BYTES_MAX}")));
    }
    let bytes = std::fs::read(path).map_err(|error| Problem::new(&shown, format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| Problem::new(&shown, format!("is not UTF-8 text (byte {})", error.utf8_error().valid_up_to())))?;
    parse(&text, &shown)
}

/// Reads YAML text; `file` is how faults name it.
pub(super) fn parse(text: &str, file: &str) -> Result<Value, Problem> {
    let mut document: yaml::Value = yaml::from_str(text).map_err(|error| syntax(text, file, &error))?;
    document.apply_merge().map_err(|error| Problem::new(file, error.to_string()))?;
    to_json(document, &mut Vec::new())
        .map_err(|(path, message)| Problem::new(if path.is_empty() { file.to_owned() } else { path }, message))
}

fn syntax(text: &str, file: &str, error: &yaml::Error) -> Problem {
    let tab = text.lines().enumerate().find_map(|(number, line)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        indent.find('\t').map(|column| (number + 1, column + 1))
    });
    let place = |line: usize, column: usize| format!("{file}, line {line}, column {column}");
    match (tab, error.location()) {
        (Some((line, column)), _) => Problem::new(place(line, column), "a tab stands in the indent; YAML takes blanks only"),
        (None, Some(at)) => {
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
            Problem::new(place(at.line(), at.column()), message)
        }
        (None, None) => Problem::new(file, error.to_string()),
    }
}

fn to_json(value: yaml::Value, path: &mut Vec<String>) -> Result<Value, (String, String)> {
    let refused = |path: &[String], message: &str| Err((path.join("."), message.to_owned()));
    if path.len() > DEPTH_MAX {
        return refused(path, "nests too deep");
    }
    match value {
        yaml::Value::Null => Ok(Value::Null),
        yaml::Value::Bool(value) => Ok(Value::Bool(value)),
        yaml::Value::String(text) => Ok(Value::String(text)),
        yaml::Value::Number(number) => match number_to_json(&number) {
            Some(number) => Ok(Value::Number(number)),
            None => {
                refused(path, "is infinite or not a number, which JSON and the program's config cannot hold; quote it to pass it as text")
            }
        },
        yaml::Value::Sequence(items) => {
            let mut list = Vec::with_capacity(items.len());
            for (at, item) in items.into_iter().enumerate() {
                path.push(at.to_string());
                list.push(to_json(item, path)?);
                path.pop();
            }
            Ok(Value::Array(list))
        }
        yaml::Value::Mapping(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let yaml::Value::String(key) = key else {
                    let shown = yaml::to_string(&key).unwrap_or_default();
                    return refused(path, &format!("the key {} is not text; put it in quotes", shown.trim()));
                };
                path.push(key.clone());
                map.insert(key, to_json(value, path)?);
                path.pop();
            }
            Ok(Value::Object(map))
        }
        yaml::Value::Tagged(tagged) => refused(path, &format!("the tag {} is not known", tagged.tag)),
    }
}

fn number_to_json(number: &yaml::Number) -> Option<Number> {
    if let Some(whole) = number.as_u64() {
        return Some(Number::from(whole));
    }
    if let Some(whole) = number.as_i64() {
        return Some(Number::from(whole));
    }
    number.as_f64().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plain_scalar_has_one_type_at_every_door() {
        for (text, value) in [
            ("1e-4", json!(1e-4)),
            ("2E5", json!(2e5)),
            (".5", json!(0.5)),
            ("3.0", json!(3.0)),
            ("-7", json!(-7)),
            ("0x1F", json!(31)),
            ("010", json!("010")),
            ("1_000", json!("1_000")),
            ("12:30", json!("12:30")),
            ("yes", json!("yes")),
            ("on", json!("on")),
            ("true", json!(true)),
            ("~", json!(null)),
            ("'5'", json!("5")),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ] {
            assert_eq!(parse(text, "f").unwrap(), value, "{text}");
        }
        assert_eq!(parse("3.0", "f").unwrap().to_string(), "3.0");
    }

    #[test]
    fn a_tab_and_a_broken_line_are_told_with_line_and_column() {
        let tab = parse("a: 1\nb:\n\tc: 2\n", "job.yaml").unwrap_err();
        assert_eq!(tab.place, "job.yaml, line 3, column 1");
        assert!(tab.message.contains("tab"), "{tab}");
        let broken = parse("a: [1, 2\nb: 3\n", "job.yaml").unwrap_err();
        assert!(broken.place.starts_with("job.yaml, line 2"), "{broken}");
    }

    #[test]
    fn what_json_cannot_hold_is_refused_with_its_path() {
        assert_eq!(parse("config: {a: .nan}", "f").unwrap_err().place, "config.a");
        assert!(parse("config: {1: a}", "f").unwrap_err().message.contains("quotes"));
        assert!(parse("a: 1\na: 2", "f").unwrap_err().message.contains("duplicate"));
    }
}
