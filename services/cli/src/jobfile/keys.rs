//! Which keys there are: an unknown one is refused with the nearest known one, a planned one by name.

use super::Problems;
use serde_json::{Map, Value};

/// Keys that are planned and not built yet, by path.
pub const NOT_BUILT: [&str; 37] = [
    "elastic",
    "health",
    "determinism",
    "outputs",
    "gates",
    "notify",
    "retention",
    "source.url",
    "source.ref",
    "env.image",
    "env.python",
    "env.requirements",
    "env.secrets",
    "launcher.nproc",
    "resources.shm",
    "placement.constraint",
    "placement.spot",
    "limits.log_quota",
    "limits.max_cost",
    "retry.not_on_log",
    "retry.exclude_bad_node",
    "data.mount",
    "data.split",
    "checkpoints.dir",
    "checkpoints.every",
    "checkpoints.keep",
    "seeds.group",
    "seeds.derive",
    "kind=Group",
    "kind=Reproduction",
    "launcher.type=none",
    "launcher.type=mpi",
    "launcher.type=deepspeed",
    "launcher.type=ray",
    "launcher.type=jax",
    "checkpoints.resume=never",
    "checkpoints.resume=required",
];

/// Words for the same key: (alias, key).
pub(super) const ALIASES: [(&str, &str); 3] = [("entrypoint", "run"), ("command", "run"), ("commands", "run")];

/// The farthest an unknown key may be from a known one to be offered as what was meant, in edits.
const NEAR: usize = 3;

/// Checks every key of a document against the published schema (`schema` is the schema of this level).
pub(super) fn check(document: &Map<String, Value>, schema: &Value, problems: &mut Problems) {
    check_level(document, schema, "", problems);
}

fn check_level(level: &Map<String, Value>, schema: &Value, path: &str, problems: &mut Problems) {
    let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
    for (key, value) in level {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if path.is_empty() && ALIASES.iter().any(|(alias, _)| alias == key) {
            continue;
        }
        let Some(below) = known.get(key) else {
            problems.add(&full, unknown(key, path, known));
            continue;
        };
        if let Some(word) = value.as_str()
            && NOT_BUILT.contains(&format!("{full}={word}").as_str())
        {
            problems.add(&full, format!("`{word}` is known but not built yet"));
        }
        check_below(value, below, &full, problems);
    }
}

fn check_below(value: &Value, schema: &Value, path: &str, problems: &mut Problems) {
    match value {
        Value::Object(level) => check_level(level, object_of(schema), path, problems),
        Value::Array(items) => {
            let forms = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
            let of_items = std::iter::once(schema).chain(forms).find_map(|form| form.get("items")).unwrap_or(&Value::Null);
            for level in items.iter().filter_map(Value::as_object) {
                check_level(level, object_of(of_items), path, problems);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The object form of a schema that also has a short form.
fn object_of(schema: &Value) -> &Value {
    let forms = schema.get("anyOf").and_then(Value::as_array);
    forms.and_then(|forms| forms.iter().find(|form| form.get("properties").is_some())).unwrap_or(schema)
}

fn unknown(key: &str, path: &str, known: &Map<String, Value>) -> String {
    let full = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    if NOT_BUILT.contains(&full.as_str()) {
        return format!("`{key}` is known but not built yet");
    }
    let planned = NOT_BUILT.iter().filter(|planned| !planned.contains('=')).filter_map(|planned| match planned.rsplit_once('.') {
        Some((folder, name)) => (folder == path).then_some(name),
        None => path.is_empty().then_some(*planned),
    });
    match nearest(key, known.keys().map(String::as_str).chain(planned)) {
        Some(near) => format!("no such key; did you mean `{near}`?"),
        None => format!("no such key; known here: {}", known.keys().cloned().collect::<Vec<_>>().join(", ")),
    }
}

/// The nearest of `known`, when it is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |other: &str| edits(&word.to_lowercase(), &other.to_lowercase());
    let (best, edits) = known.map(|other| (other, distance(other))).min_by_key(|(_, edits)| *edits)?;
    (edits <= NEAR && edits * 2 <= word.chars().count().max(2)).then_some(best)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
fn edits(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0usize; other.len() + 1]; one.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    for (at, cell) in rows[0].iter_mut().enumerate() {
        *cell = at;
    }
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            rows[i][j] = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_offered_only_when_it_is_near() {
        let known = ["resources", "retry", "run", "labels"];
        assert_eq!(nearest("resuorces", known.into_iter()), Some("resources"));
        assert_eq!(nearest("Label", known.into_iter()), Some("labels"));
        assert_eq!(nearest("zebra", known.into_iter()), None);
    }

    #[test]
    fn edits_count_a_swap_as_one() {
        assert_eq!((edits("ab", "ba"), edits("abc", "abd"), edits("", "ab")), (1, 1, 2));
    }
}
