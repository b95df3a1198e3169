//! Arrays: many jobs of one submission that differ in one number.

use footplate_types::{Invalid, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which one of an array a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArrayMember {
    /// The array: the run of its first job.
    pub id: RunId,
    /// The number that tells it from the others.
    pub index: u32,
    /// How many jobs the array has.
    pub count: u32,
    /// At most so many of the array are placed at a time; 0 = as many as find room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_once: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ArrayMember {
    /// The most jobs of one array: they are one atomic append, of at most so many events.
    pub const COUNT_MAX: u32 = 1_000;
    /// The largest index.
    pub const INDEX_MAX: u32 = 1_000_000;
    /// The most characters in which indices are written: each of them alone.
    const INDICES_TEXT_MAX: usize = 8_000;

    /// How many of its array are placed at a time at most, when that is limited.
    pub fn limit(&self) -> Option<u32> {
        (self.at_once > 0).then_some(self.at_once)
    }

    /// Checks what serde cannot: every number against its limits.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let within = |field: &str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) { Ok(()) } else { Err(Invalid::new(field, value, format!("{least} to {most}"))) }
        };
        within("array.index", self.index, 0, Self::INDEX_MAX)?;
        within("array.count", self.count, 1, Self::COUNT_MAX)?;
        within("array.at_once", self.at_once, 0, Self::COUNT_MAX)
    }
}

/// The indices of an array, as people write them: `7`, `0-99`, `0-99:3` (every third), and lists of those with commas. They come in order.
///
/// # Errors
/// What is no such list, an index that is named twice, one that is too large, more of them than an array may have.
pub fn array_indices(text: &str) -> Result<Vec<u32>, Invalid> {
    const FIELD: &str = "array.indices";
    // What is too long is not told in full.
    let shown: String = text.chars().take(80).collect();
    let wrong = |allowed: String| Invalid::new(FIELD, &shown, allowed);
    if text.len() > ArrayMember::INDICES_TEXT_MAX {
        return Err(wrong(format!("at most {} characters", ArrayMember::INDICES_TEXT_MAX)));
    }
    let mut indices = BTreeSet::new();
    for part in text.split(',') {
        let (first, last, step) = range(part.trim()).ok_or_else(|| {
            let most = ArrayMember::INDEX_MAX;
            wrong(format!("indices of 0 to {most} such as `0-99`, `1,3,5-7` or `0-99:3`"))
        })?;
        for index in (first..=last).step_by(step) {
            if !indices.insert(index) {
                return Err(wrong(format!("each index once, and {index} is named twice")));
            }
            if indices.len() > ArrayMember::COUNT_MAX as usize {
                return Err(wrong(format!("at most {} indices: submit what is more as another array", ArrayMember::COUNT_MAX)));
            }
        }
    }
    Ok(indices.into_iter().collect())
}

/// First, last and step of `7`, `0-99` or `0-99:3`.
fn range(part: &str) -> Option<(u32, u32, usize)> {
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| is_plain && *number <= ArrayMember::INDEX_MAX)
    };
    let (ends, step) = match part.split_once(':') {
        Some((ends, step)) => (ends, Some(number(step).filter(|step| *step > 0)?)),
        None => (part, None),
    };
    let Some((first, last)) = ends.split_once('-') else {
        // A step leads from somewhere to somewhere.
        return number(ends).filter(|_| step.is_none()).map(|index| (index, index, 1));
    };
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last, step.unwrap_or(1) as usize))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn indices_are_read_as_they_are_written_and_come_in_order() {
        assert_eq!(array_indices("7").unwrap(), [7]);
        assert_eq!(array_indices("0-3").unwrap(), [0, 1, 2, 3]);
        assert_eq!(array_indices("9, 5-7 ,1").unwrap(), [1, 5, 6, 7, 9]);
        assert_eq!(array_indices("0-10:5").unwrap(), [0, 5, 10]);
        assert_eq!(array_indices("3-3").unwrap(), [3]);
        assert_eq!(array_indices("0-999").unwrap().len(), 1_000);
        assert_eq!(array_indices("1000000").unwrap(), [1_000_000]);
    }

    #[test]
    fn what_are_no_indices_is_refused_with_what_is_allowed() {
        for text in ["", "a", "-1", "1-", "5-2", "0-9:0", "4:2", "+3", "1,,2", "1000001", "0-1000000000", "99999999999999999999"] {
            let invalid = array_indices(text).unwrap_err();
            assert_eq!((invalid.field.as_str(), invalid.value.as_str()), ("array.indices", text));
        }
        assert!(array_indices("1,5,0-2").unwrap_err().allowed.contains("1 is named twice"));
        assert!(array_indices("0-1000").unwrap_err().allowed.starts_with("at most 1000 indices"));
        let long = "7,".repeat(5_000);
        assert!(array_indices(&long).unwrap_err().value.len() <= 80);
    }

    #[test]
    fn every_number_has_its_limits() {
        let member = ArrayMember { id: RunId::from_bytes([1; 16]), index: 3, count: 10, at_once: 2 };
        assert!(member.validate().is_ok());
        let field = |member: ArrayMember| member.validate().unwrap_err().field;
        assert_eq!(field(ArrayMember { index: 1_000_001, ..member }), "array.index");
        assert_eq!(field(ArrayMember { count: 0, ..member }), "array.count");
        assert_eq!(field(ArrayMember { at_once: 1_001, ..member }), "array.at_once");
        assert_eq!((member.limit(), ArrayMember { at_once: 0, ..member }.limit()), (Some(2), None));
    }
}
