//! What a job comes after: other runs, and which end of each.

use super::Problems;
use footplate_api::types;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Which end is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterEnd {
    /// It succeeded.
    #[default]
    Success,
    /// It failed. A run that was cancelled neither succeeded nor failed.
    Failure,
    /// It ended, however.
    Any,
}

/// The words of [`AfterEnd`].
const ENDS: [&str; 3] = ["success", "failure", "any"];

impl AfterEnd {
    /// As it goes over the wire.
    pub const fn wire(self) -> types::AfterWhen {
        match self {
            Self::Success => types::AfterWhen::Success,
            Self::Failure => types::AfterWhen::Failure,
            Self::Any => types::AfterWhen::Any,
        }
    }
}

/// One run that a job comes after.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AfterItem {
    /// Its id or the beginning of one; in a pipeline also the name of another job of it.
    pub run: String,
    /// Which end of it is waited for: `success`, `failure` or `any`.
    #[serde(default)]
    pub when: AfterEnd,
}

/// The long form of what a person writes: `RUN`, `RUN:failure`, a list of them.
pub(super) fn normalise(document: &mut Map<String, Value>, problems: &mut Problems) {
    let Some(value) = document.get_mut("after") else { return };
    if value.is_string() {
        *value = json!([value.take()]);
    }
    for (at, item) in value.as_array_mut().into_iter().flatten().enumerate() {
        if let Some(text) = item.as_str() {
            match long(text) {
                Ok(long) => *item = long,
                Err(message) => {
                    problems.add(format!("after[{at}]"), message);
                    *item = json!({ "run": text });
                }
            }
        }
    }
    if value.as_array().is_some_and(Vec::is_empty) {
        document.shift_remove("after");
    }
}

fn long(text: &str) -> Result<Value, String> {
    let (named, end) = match text.rsplit_once(':') {
        None => (text, None),
        // `run:` before an id, as elsewhere.
        Some(("run", _)) => (text, None),
        Some((named, end)) if ENDS.contains(&end) => (named, Some(end)),
        Some((_, end)) => return Err(format!("{end:?} is no end of a run; one of {}", ENDS.join(", "))),
    };
    if named.trim().is_empty() {
        return Err(format!("{text:?} names no run"));
    }
    Ok(end.map_or_else(|| json!({ "run": named }), |end| json!({ "run": named, "when": end })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile;

    fn read(after: Value) -> Result<Vec<AfterItem>, String> {
        let mut document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": "true"});
        document["after"] = after;
        let job = jobfile::resolve(document.as_object().unwrap().clone(), &[]).map_err(|problems| problems.to_string())?;
        Ok(job.file.after)
    }

    fn item(run: &str, when: AfterEnd) -> AfterItem {
        AfterItem { run: run.to_owned(), when }
    }

    #[test]
    fn a_run_is_named_in_short_and_in_long() {
        assert_eq!(read(json!("0190f3a2")), Ok(vec![item("0190f3a2", AfterEnd::Success)]));
        let some = json!(["run:0190f3a2", "0190aaaa:failure", "run:0190bbbb:any", {"run": "0190cccc"}, {"run": "0190dddd", "when": "any"}]);
        let (success, any) = (AfterEnd::Success, AfterEnd::Any);
        let expected = vec![
            item("run:0190f3a2", success),
            item("0190aaaa", AfterEnd::Failure),
            item("run:0190bbbb", any),
            item("0190cccc", success),
            item("0190dddd", any),
        ];
        assert_eq!(read(some), Ok(expected));
        assert_eq!(read(json!([])), Ok(Vec::new()));
    }

    #[test]
    fn what_names_no_run_or_no_end_is_told_with_its_place() {
        assert!(read(json!(["0190", "0191:failed"])).unwrap_err().starts_with("after[1]: \"failed\" is no end of a run"));
        assert!(read(json!(":any")).unwrap_err().contains("names no run"));
        assert!(read(json!([{"run": "a", "wen": "any"}])).unwrap_err().contains("after.wen: no such key; did you mean `when`?"));
        assert!(read(json!([{"run": "a", "when": "never"}])).unwrap_err().contains("after"));
        assert!(read(json!(7)).unwrap_err().contains("after"));
    }
}
