//! The arrows between crates, against the committed table `deploy/arrows.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::metadata::{self, Crate};

const TABLE: &str = "deploy/arrows.toml";

/// What is wrong with the arrows.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    let table: Table = text.parse().with_context(|| format!("cannot understand {TABLE}"))?;
    let crates = metadata::crates(root)?;
    let mut wrong = between_crates(&strings_by_name(&table, "arrows")?, &crates);
    let pure = strings_by_name(&table, "pure")?;
    for (name, forbidden) in pure {
        if crates.contains_key(&name) {
            wrong.extend(standing_on(&name, &forbidden, &metadata::tree(root, &name)?));
        } else {
            wrong.push(format!("{TABLE} calls {name} pure, and there is no such crate"));
        }
    }
    Ok(wrong)
}

/// Every arrow that the table does not draw, every crate it does not know, every name in it that is no crate.
fn between_crates(arrows: &BTreeMap<String, Vec<String>>, crates: &BTreeMap<String, Crate>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, one) in crates {
        let Some(allowed) = arrows.get(name) else {
            wrong.push(format!("{name} is not in {TABLE}: say there what it may stand on"));
            continue;
        };
        let undrawn = one.ours.iter().filter(|target| !allowed.contains(target));
        wrong.extend(undrawn.map(|target| format!("{name} -> {target} is no arrow of {TABLE}")));
    }
    let named = arrows.iter().flat_map(|(name, targets)| std::iter::once(name).chain(targets));
    let unknown: BTreeSet<&String> = named.filter(|name| !crates.contains_key(*name)).collect();
    wrong.extend(unknown.into_iter().map(|name| format!("{TABLE} names {name}, and there is no such crate")));
    wrong
}

fn standing_on(name: &str, forbidden: &[String], tree: &BTreeSet<String>) -> Vec<String> {
    let found = forbidden.iter().filter(|one| tree.contains(*one));
    found.map(|one| format!("{name} stands on {one} (see `cargo tree -p {name} -i {one}`), which {TABLE} forbids")).collect()
}

/// A section of the table: a crate's name to a list of names, where `@list` stands for the list of that name under `[lists]`.
fn strings_by_name(table: &Table, section: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let lists = table.get("lists").and_then(Value::as_table);
    let rows = table.get(section).and_then(Value::as_table).with_context(|| format!("{TABLE} has no section [{section}]"))?;
    let mut read = BTreeMap::new();
    for (name, row) in rows {
        let mut names = Vec::new();
        for word in words(row).with_context(|| format!("{TABLE}: {section}.{name} is not a list of names"))? {
            match word.strip_prefix('@') {
                None => names.push(word),
                Some(list) => {
                    let list = lists.and_then(|lists| words(lists.get(list)?)).with_context(|| format!("{TABLE} has no list {list}"))?;
                    names.extend(list);
                }
            }
        }
        read.insert(name.clone(), names);
    }
    Ok(read)
}

fn words(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, ours: &[&str]) -> (String, Crate) {
        let ours = ours.iter().map(|name| (*name).to_owned()).collect();
        (name.to_owned(), Crate { name: name.to_owned(), folder: name.into(), ours })
    }

    #[test]
    fn an_arrow_that_is_not_drawn_is_found() {
        let table: Table = "[lists]\nbase = [\"types\"]\n[arrows]\ntypes = []\ncore = [\"@base\"]\nghost = []\n".parse().unwrap();
        let arrows = strings_by_name(&table, "arrows").unwrap();
        let crates = BTreeMap::from([one("types", &["core"]), one("core", &["types"]), one("new", &[])]);
        let wrong = between_crates(&arrows, &crates);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong.iter().any(|line| line.contains("types -> core")));
        assert!(wrong.iter().any(|line| line.starts_with("new is not in")));
        assert!(wrong.iter().any(|line| line.contains("names ghost")));
    }

    #[test]
    fn a_forbidden_crate_anywhere_below_is_found() {
        let tree = BTreeSet::from(["core".to_owned(), "tokio".to_owned()]);
        let wrong = standing_on("core", &["tokio".to_owned(), "tonic".to_owned()], &tree);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("core stands on tokio"), "{wrong:?}");
    }
}
