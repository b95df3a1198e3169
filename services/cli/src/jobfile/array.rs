//! An array: many jobs of one file that differ in one number.

use super::Problems;
use footplate_events::facts::{ArrayMember, array_indices};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Many jobs of this one file, each with a number of its own in `FOOTPLATE_ARRAY_INDEX`. A bare text means the same as `indices`, with `%` and a number
/// behind it `at_once` too: `0-99%10`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArraySection {
    /// Their numbers, at most 1,000 of them and none above 1,000,000: `7`, `0-99`, `0-99:3` (every third), and lists of those with commas.
    pub indices: String,
    /// At most so many are placed at a time; 0 = as many as find room.
    #[serde(default)]
    #[schemars(range(max = 1000))]
    pub at_once: u32,
}

/// The long form of what a person writes: `0-99%10`, `7`.
pub(super) fn normalise(document: &mut Map<String, Value>, problems: &mut Problems) {
    let Some(value) = document.get_mut("array") else { return };
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Object(section) => {
            if let Some(number) = section.get_mut("indices").filter(|indices| indices.is_number()) {
                *number = Value::String(number.to_string());
            }
            return;
        }
        _ => return,
    };
    *value = match text.split_once('%') {
        None => json!({ "indices": text }),
        Some((indices, at_once)) => match at_once.trim().parse::<u32>() {
            Ok(at_once) if at_once > 0 => json!({ "indices": indices, "at_once": at_once }),
            _ => {
                problems.add("array", format!("{at_once:?} after `%` is no number of jobs, 1 to {}", ArrayMember::COUNT_MAX));
                json!({ "indices": indices })
            }
        },
    };
}

impl ArraySection {
    /// What the types alone cannot say.
    pub(super) fn check(&self, problems: &mut Problems) {
        if let Err(invalid) = array_indices(&self.indices) {
            problems.add("array.indices", format!("{:?} is not allowed; allowed: {}", invalid.value, invalid.allowed));
        }
        if self.at_once > ArrayMember::COUNT_MAX {
            problems.add("array.at_once", format!("{} is not allowed; at most {}", self.at_once, ArrayMember::COUNT_MAX));
        }
    }

    /// How many jobs it is.
    pub fn count(&self) -> usize {
        array_indices(&self.indices).map_or(0, |indices| indices.len())
    }

    /// How many jobs it is, and how many at a time, in words.
    pub fn told(&self) -> String {
        let limit = if self.at_once > 0 { format!(", at most {} at a time", self.at_once) } else { String::new() };
        format!("{} jobs{limit}", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile;

    fn read(array: Value) -> Result<Option<ArraySection>, String> {
        let mut document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": "true"});
        document["array"] = array;
        let job = jobfile::resolve(document.as_object().unwrap().clone(), &[]).map_err(|problems| problems.to_string())?;
        Ok(job.file.array)
    }

    fn section(indices: &str, at_once: u32) -> Result<Option<ArraySection>, String> {
        Ok(Some(ArraySection { indices: indices.to_owned(), at_once }))
    }

    #[test]
    fn an_array_is_written_in_short_and_in_long() {
        assert_eq!(read(json!("0-99%10")), section("0-99", 10));
        assert_eq!(read(json!("1,3,5-7")), section("1,3,5-7", 0));
        assert_eq!(read(json!(7)), section("7", 0));
        assert_eq!(read(json!({"indices": 7})), section("7", 0));
        assert_eq!(read(json!({"indices": "0-9:2", "at_once": 3})), section("0-9:2", 3));
        assert_eq!(read(Value::Null), Ok(None));
        assert_eq!(section("0-9:2", 3).unwrap().unwrap().told(), "5 jobs, at most 3 at a time");
    }

    #[test]
    fn what_is_none_is_told_with_its_place() {
        for (array, told) in [
            (json!("0-99%"), "array: \"\" after `%` is no number"),
            (json!("0-99%0"), "array: \"0\" after `%`"),
            (json!("9-0"), "array.indices: \"9-0\" is not allowed"),
            (json!("0-1000"), "at most 1000 indices"),
            (json!({"indices": "0", "at_once": 1_001}), "array.at_once: 1001 is not allowed"),
            (json!({"at_once": 2}), "indices"),
            (json!({"indices": "0", "at_ones": 2}), "array.at_ones: no such key; did you mean `at_once`?"),
            (json!([0, 1]), "array"),
        ] {
            let problem = read(array.clone()).unwrap_err();
            assert!(problem.contains(told), "{array}: {problem}");
        }
    }
}
