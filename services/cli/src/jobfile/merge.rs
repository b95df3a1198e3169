//! `extends` and `--set`: what stands in other files and on the command line, merged into one document.

use super::{Problem, yaml};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How long a chain of `extends` may be.
const CHAIN_MAX: usize = 8;

/// The document at `path` with everything it extends merged under it.
pub(crate) fn load(path: &Path) -> Result<Map<String, Value>, Problem> {
    load_chain(path, &mut Vec::new())
}

fn load_chain(path: &Path, chain: &mut Vec<PathBuf>) -> Result<Map<String, Value>, Problem> {
    let shown = path.display().to_string();
    let same = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if chain.contains(&same) {
        return Err(Problem::new(shown, "extends itself"));
    }
    if chain.len() >= CHAIN_MAX {
        return Err(Problem::new(shown, format!("a chain of extends is at most {CHAIN_MAX} files long")));
    }
    let document = match yaml::read_file(path)? {
        Value::Object(document) => document,
        Value::Null => return Err(Problem::new(shown, "is empty; a job needs at least apiVersion, kind, name and run")),
        _ => return Err(Problem::new(shown, "is not a document of keys and values, so it is no job file")),
    };
    chain.push(same);
    let merged = with_bases(document, path.parent().unwrap_or(Path::new("")), chain)?;
    chain.pop();
    Ok(merged)
}

/// A document that stands inside another file in `folder`, with everything it extends merged under it.
pub(crate) fn extended(document: Map<String, Value>, folder: &Path) -> Result<Map<String, Value>, Problem> {
    with_bases(document, folder, &mut Vec::new())
}

fn with_bases(mut document: Map<String, Value>, folder: &Path, chain: &mut Vec<PathBuf>) -> Result<Map<String, Value>, Problem> {
    let bases = match document.shift_remove("extends") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many
            .into_iter()
            .map(|base| if let Value::String(base) = base { Ok(base) } else { Err(Problem::new("extends", "takes file names")) })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(Problem::new("extends", "takes a file name or a list of them")),
    };
    let mut merged = Map::new();
    for base in bases {
        deep_merge(&mut merged, load_chain(&folder.join(base), chain)?);
    }
    deep_merge(&mut merged, document);
    Ok(merged)
}

/// Lays `over` upon `under`: sections are merged key by key, everything else (lists too) is replaced.
pub(crate) fn deep_merge(under: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => deep_merge(below, above),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Applies `path.to.key=value`; the value is typed as in the file, a key with a dot stands in double quotes.
pub(crate) fn set(document: &mut Map<String, Value>, assignment: &str) -> Result<(), Problem> {
    // Faults name the key alone: the value may be a secret.
    let (path, text) = split_assignment(assignment).ok_or_else(|| Problem::new("--set", "takes key=value, such as config.lr=0.1"))?;
    let place = format!("--set {path}");
    let keys =
        split_path(path).ok_or_else(|| Problem::new(&place, "the key is not well formed (a.b.c, with \"a.b\" for a key with a dot)"))?;
    let value = yaml::parse(text, &place)?;
    let (last, folders) = keys.split_last().ok_or_else(|| Problem::new(&place, "the key is empty"))?;
    let mut at = document;
    for key in folders {
        let next = at.entry(key.clone()).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        at = next.as_object_mut().ok_or_else(|| Problem::new(&place, format!("{key} has no keys below it")))?;
    }
    at.insert(last.clone(), value);
    Ok(())
}

/// Splits at the first `=` that stands outside quotes.
fn split_assignment(text: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '=' if !quoted => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn split_path(path: &str) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    let mut key = String::new();
    let mut quoted = false;
    for letter in path.chars() {
        match letter {
            '"' => quoted = !quoted,
            '.' if !quoted => keys.push(std::mem::take(&mut key)),
            letter => key.push(letter),
        }
    }
    keys.push(key);
    (!quoted && keys.iter().all(|key| !key.is_empty())).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn after(sets: &[&str]) -> Value {
        let mut document = json!({"config": {"lr": 0.1, "model": {"width": 8}}}).as_object().unwrap().clone();
        for assignment in sets {
            set(&mut document, assignment).unwrap();
        }
        Value::Object(document)
    }

    #[test]
    fn a_value_set_is_typed_as_in_the_file() {
        assert_eq!(after(&["config.lr=1e-4"])["config"]["lr"], json!(1e-4));
        assert_eq!(after(&["config.id=010"])["config"]["id"], json!("010"));
        assert_eq!(after(&["config.layers=[1, 2]"])["config"]["layers"], json!([1, 2]));
        assert_eq!(after(&["config.note=a=b"])["config"]["note"], json!("a=b"));
        assert_eq!(after(&["config.model.\"a.b\"=1"])["config"]["model"], json!({"width": 8, "a.b": 1}));
        assert_eq!(after(&["queue.name=x"])["queue"], json!({"name": "x"}));
        assert_eq!(after(&["config.empty="])["config"]["empty"], json!(null));
    }

    #[test]
    fn a_malformed_assignment_is_refused() {
        let mut document = json!({"name": "x"}).as_object().unwrap().clone();
        for assignment in ["novalue", "=1", "a..b=1", "name.x=1", "a=[1", "\"a=1"] {
            assert!(set(&mut document, assignment).is_err(), "{assignment}");
        }
    }

    #[test]
    fn sections_merge_and_lists_are_replaced() {
        let mut under = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1}).as_object().unwrap().clone();
        deep_merge(&mut under, json!({"a": {"c": [3]}, "d": {"e": 1}}).as_object().unwrap().clone());
        assert_eq!(Value::Object(under), json!({"a": {"b": 1, "c": [3]}, "d": {"e": 1}}));
    }

    #[test]
    fn files_extend_each_other_but_not_in_a_ring() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("base.yaml", "config: {lr: 0.1, width: 8}\nname: base\n");
        write("job.yaml", "extends: base.yaml\nname: job\nconfig: {lr: 0.2}\n");
        let merged = load(&folder.path().join("job.yaml")).unwrap();
        assert_eq!(Value::Object(merged), json!({"config": {"lr": 0.2, "width": 8}, "name": "job"}));
        write("base.yaml", "extends: [job.yaml]\n");
        assert!(load(&folder.path().join("job.yaml")).unwrap_err().message.contains("extends itself"));
    }
}
