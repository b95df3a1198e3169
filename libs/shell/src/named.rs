//! Ids as people write them: whole, or as far as they are unique.

use footplate_api::{Reason, Refusal, reason};
use footplate_types::ProjectName;
use std::fmt::Display;

/// The fewest characters of a prefix.
const PREFIX_MIN: usize = 4;
/// The characters of a whole id.
const WHOLE: usize = 32;

/// What is named.
#[derive(Debug)]
pub struct Named<'a> {
    /// What people call it, such as `job`.
    pub what: &'a str,
    /// The field that names it.
    pub field: &'a str,
    /// That it is not there.
    pub unknown: &'a Reason,
    /// Where it is looked for; `None` for what belongs to no project.
    pub project: Option<&'a ProjectName>,
}

/// The one of `known` (the project's own) that a whole id or a unique prefix names.
///
/// # Errors
/// What is no id, fits none, or fits several.
pub fn resolve<I: Display>(named: &Named<'_>, text: &str, known: impl Iterator<Item = I>) -> Result<I, Refusal> {
    let Named { what, field, unknown, project } = named;
    let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !is_hex || !(PREFIX_MIN..=WHOLE).contains(&text.len()) {
        let refusal = Refusal::new(&reason::INVALID_FIELD, format!("{text:?} is no id of a {what}")).field(*field).value(text);
        return Err(refusal.allowed(format!("{WHOLE} lower-case hex digits, or the first {PREFIX_MIN} or more of them")));
    }
    let mut found = known.filter(|id| id.to_string().starts_with(text));
    match (found.next(), found.next()) {
        (None, _) => {
            let place = project.map(|project| format!(" in project {project}")).unwrap_or_default();
            Err(Refusal::new(unknown, format!("no {what} {text}{place}")).field(*field).value(text))
        }
        (Some(id), None) => Ok(id),
        (Some(one), Some(other)) => {
            let refusal = Refusal::new(&reason::AMBIGUOUS_ID, format!("{text} fits {one} and {other}"));
            Err(refusal.field(*field).value(text).allowed("more of its digits"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_types::RunId;

    #[test]
    fn an_id_is_named_whole_or_by_a_prefix_that_fits_it_alone() {
        let project = ProjectName::parse("vision").unwrap();
        let named = Named { what: "job", field: "run_id", unknown: &reason::JOB_NOT_FOUND, project: Some(&project) };
        let ids = ["aaaa1".to_owned() + &"0".repeat(27), "aaaa2".to_owned() + &"0".repeat(27)];
        let find = |text: &str| resolve(&named, text, ids.iter().map(|id| RunId::parse(id).unwrap())).map(|id| id.to_string());
        assert_eq!(find(&ids[1]).unwrap(), ids[1]);
        assert_eq!(find("aaaa1").unwrap(), ids[0]);
        for (text, word) in [("aaaa", "AMBIGUOUS_ID"), ("bbbb", "JOB_NOT_FOUND"), ("aaa", "INVALID_FIELD"), ("AAAA", "INVALID_FIELD")] {
            let refusal = find(text).unwrap_err();
            assert_eq!((refusal.reason, refusal.field.as_deref(), refusal.value.as_deref()), (word, Some("run_id"), Some(text)));
        }
        assert_eq!(find(&"c".repeat(33)).unwrap_err().reason, "INVALID_FIELD");
    }
}
