//! The table of the protocol's rules in the architecture page: every rule stands in it, and every test that it names is one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const PAGE: &str = "docs/ARCHITECTURE.md";
const HEADING: &str = "## The protocol's rules and their tests";
/// How many rules the protocol has.
const RULES: usize = 14;
/// How far above its name a test's attributes begin.
const ATTRIBUTE_LINES: usize = 4;

/// A rule's number and its tests, each with the file it stands in.
type Row<'t> = (usize, Vec<(&'t str, &'t str)>);

/// What the table leaves out, and what it names in vain.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut wrong = Vec::new();
    let rows = rows(&page, &mut wrong);
    let lacking = (1..=RULES).filter(|number| !rows.iter().any(|(known, tests)| known == number && !tests.is_empty()));
    wrong.extend(lacking.map(|number| format!("{PAGE}: rule {number} has no test")));
    for (number, tests) in rows {
        for (file, name) in tests {
            // A file that is not there is told by the check of the links.
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            if !is_test(&text, name) {
                wrong.push(format!("{PAGE}: rule {number} names `{name}`, which is no test of {file}"));
            }
        }
    }
    Ok(wrong)
}

/// The rows under the heading: a number, the rule, and in back ticks files, each followed by the names of tests in it.
fn rows<'t>(page: &'t str, wrong: &mut Vec<String>) -> Vec<Row<'t>> {
    let section = page.lines().skip_while(|line| *line != HEADING).skip(1).take_while(|line| !line.starts_with("## "));
    let mut rows = Vec::new();
    for line in section {
        let mut cells = line.split('|').skip(1);
        let (Some(number), Some(_), Some(tests)) = (cells.next(), cells.next(), cells.next()) else { continue };
        let Ok(number) = number.trim().parse() else { continue };
        let (mut file, mut named) = (None, Vec::new());
        for piece in tests.split('`').skip(1).step_by(2) {
            match file {
                _ if piece.contains('/') => file = Some(piece),
                Some(file) => named.push((file, piece)),
                None => wrong.push(format!("{PAGE}: rule {number} names `{piece}` before any file")),
            }
        }
        rows.push((number, named));
    }
    rows
}

/// Whether `name` is a function of `text` under a test's attribute, or a behaviour in the list of a suite.
fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    if text.contains("macro_rules!") && lines.contains(&format!("{name},").as_str()) {
        return true;
    }
    let opens = format!("fn {name}(");
    let Some(at) = lines.iter().position(|line| line.strip_prefix("async ").unwrap_or(line).starts_with(&opens)) else { return false };
    let above = lines[at.saturating_sub(ATTRIBUTE_LINES)..at].iter().rev();
    above.take_while(|line| line.starts_with('#') || line.starts_with("//")).any(|line| line.contains("test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_give_each_test_with_its_file() {
        let page = format!(
            "| 9 | elsewhere | `a/b.rs`: `c` |\n{HEADING}\n| rule | says | tests |\n|---|---|---|\n| 1 | x | `a/b.rs`: `c`, `d`; `e/f.rs`: `g` |\n## Next\n| 2 | y | `h/i.rs`: `j` |\n"
        );
        let mut wrong = Vec::new();
        assert_eq!(rows(&page, &mut wrong), [(1, vec![("a/b.rs", "c"), ("a/b.rs", "d"), ("e/f.rs", "g")])]);
        assert!(wrong.is_empty());
        rows(&format!("{HEADING}\n| 1 | x | `c` |\n"), &mut wrong);
        assert_eq!(wrong.len(), 1);
    }

    #[test]
    fn a_test_is_a_function_under_its_attribute() {
        let text =
            "#[test]\nfn one() {}\n\n    #[tokio::test(flavor = \"multi_thread\")]\n    // Why.\n    async fn two() {}\n\nfn three() {}\n";
        assert!(is_test(text, "one") && is_test(text, "two"));
        assert!(is_test("macro_rules! suite {\n    four,\n}", "four"));
        assert!(!is_test(text, "three") && !is_test(text, "tw") && !is_test(text, "four"));
    }
}
