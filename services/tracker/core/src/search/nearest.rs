//! Remarks on names that no run has.

use super::Field;
use std::collections::BTreeSet;

/// How many near names a remark shows.
const SHOWN: usize = 3;

/// The names that the runs of a project have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Params, as paths; a nested one has every path to its leaves and sections.
    pub params: BTreeSet<Vec<String>>,
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Metrics.
    pub metrics: BTreeSet<String>,
}

/// A remark for each field that no run has, with the nearest ones.
pub fn notes<'a>(fields: impl IntoIterator<Item = &'a Field>, known: &Known) -> Vec<String> {
    let mut notes: Vec<String> = fields.into_iter().filter_map(|field| note(field, known)).collect();
    notes.dedup();
    notes
}

fn note(field: &Field, known: &Known) -> Option<String> {
    match field {
        Field::Own(_) => None,
        Field::Parent(inner) => note(inner, known),
        Field::Tag(name) => flat_note("tag", "tags", name, &known.tags),
        Field::Metric(_, name) => flat_note("metric", "metrics", name, &known.metrics),
        Field::Param(path) => {
            if known.params.contains(path) {
                return None;
            }
            let asked = path.join(".");
            let names: Vec<(String, String)> =
                known.params.iter().map(|path| (path.join("."), format!("params.{}", shown_path(path)))).collect();
            let mut near: Vec<String> = names.iter().filter(|(name, _)| *name == asked).map(|(_, shown)| shown.clone()).collect();
            if near.is_empty() {
                // One name may be a flat key and a nested path at once: both are shown.
                let nearest: BTreeSet<&str> = nearest(&asked, names.iter().map(|(name, _)| name.as_str())).into_iter().collect();
                near = names.iter().filter(|(name, _)| nearest.contains(name.as_str())).map(|(_, shown)| shown.clone()).collect();
            }
            Some(remark(&format!("params.{}", shown_path(path)), "param", &near))
        }
    }
}

fn flat_note(kind: &str, of: &str, name: &str, known: &BTreeSet<String>) -> Option<String> {
    if known.contains(name) {
        return None;
    }
    let near: Vec<String> =
        nearest(name, known.iter().map(String::as_str)).into_iter().map(|name| format!("{of}.{}", shown(name))).collect();
    Some(remark(&format!("{of}.{}", shown(name)), kind, &near))
}

fn remark(asked: &str, kind: &str, near: &[String]) -> String {
    if near.is_empty() {
        format!("no run has the {kind} {asked}")
    } else {
        format!("no run has the {kind} {asked}; near: {}", near.join(", "))
    }
}

/// A name as a query writes it: in backticks where it has to be.
fn shown(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | ':'));
    if plain { name.to_owned() } else { format!("`{}`", name.replace('`', "``")) }
}

fn shown_path(path: &[String]) -> String {
    path.iter().map(|step| shown(step)).collect::<Vec<_>>().join(".")
}

/// The nearest names, by edits with swaps, case aside at first; at most three, none that is wholly different.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let folded = name.to_lowercase();
    let most = (name.chars().count() / 2).max(1);
    let mut scored: Vec<(usize, &str)> = known
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let distance = strsim::osa_distance(&folded, &lower);
            let contains = lower.contains(&folded) || folded.contains(&lower);
            (distance <= most || (contains && name.chars().count() >= 3)).then_some((distance, candidate))
        })
        .collect();
    scored.sort();
    scored.into_iter().take(SHOWN).map(|(_, candidate)| candidate).collect()
}
