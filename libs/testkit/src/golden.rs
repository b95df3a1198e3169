//! Golden files: what was written once is compared for ever, and changes only on purpose.

use std::path::{Path, PathBuf};

/// Set to `1` to write what the test made instead of comparing it.
const UPDATE_VARIABLE: &str = "UPDATE_GOLDEN";

/// Compares `actual` with the file at `path` (relative to the crate under test).
///
/// # Panics
/// When they differ or the file is missing: with the first line that differs, and how to accept the change. With `UPDATE_GOLDEN=1` the
/// file is written instead.
#[track_caller]
pub fn golden(path: impl AsRef<Path>, actual: &str) {
    let path = of_crate(path.as_ref());
    if std::env::var(UPDATE_VARIABLE).is_ok_and(|value| value == "1") {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
        }
        std::fs::write(&path, actual).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return;
    }
    let expected = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => panic!("golden file {}: {error}; write it with {UPDATE_VARIABLE}=1 and look at the diff", path.display()),
    };
    if let Some(difference) = first_difference(&expected, actual) {
        panic!("{} is not what was made:\n{difference}\naccept the change with {UPDATE_VARIABLE}=1 if it is meant", path.display());
    }
}

fn of_crate(path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| path.to_owned(), |folder| PathBuf::from(folder).join(path))
}

fn first_difference(expected: &str, actual: &str) -> Option<String> {
    if expected == actual {
        return None;
    }
    let mut wanted = expected.lines();
    let mut made = actual.lines();
    for number in 1.. {
        match (wanted.next(), made.next()) {
            (None, None) => break,
            (one, other) if one == other => {}
            (one, other) => {
                let show = |line: Option<&str>| line.map_or_else(|| "(end of text)".to_owned(), |text| format!("{text:?}"));
                return Some(format!("line {number}\n  golden: {}\n  made:   {}", show(one), show(other)));
            }
        }
    }
    Some("they differ only in line ends".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_line_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert!(first_difference("a\nb\n", "a\nc\n").unwrap().contains("line 2"));
        assert!(first_difference("a\n", "a\nb\n").unwrap().contains("(end of text)"));
        assert!(first_difference("a\n", "a").unwrap().contains("line ends"));
    }

    #[test]
    fn a_missing_golden_file_fails_and_says_how_to_write_it() {
        let caught = std::panic::catch_unwind(|| golden("/nonexistent/golden.txt", "x")).unwrap_err();
        let message = caught.downcast_ref::<String>().unwrap();
        assert!(message.contains("UPDATE_GOLDEN=1"), "{message}");
    }
}
