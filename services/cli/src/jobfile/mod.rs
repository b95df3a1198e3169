//! The job file: read, merged, checked, resolved.
//!
//! Every fault is told at once, each with its place; nothing is guessed and nothing unknown is passed over. A file that cannot be read is
//! never taken for something else. This module reads files and nothing more: it asks no server and captures no code.

mod after;
mod array;
mod canonical;
mod document;
mod keys;
mod merge;
mod problem;
mod read;
mod reference;
mod role;
mod schema;
mod units;
mod yaml;

pub use after::{AfterEnd, AfterItem};
pub use array::ArraySection;
pub use canonical::canonical;
pub use document::*;
pub use keys::{NOT_BUILT, nearest};
pub(crate) use merge::{deep_merge, extended, load as document, set};
pub use problem::{Problem, Problems};
pub use reference::reference_page;
pub use role::{RoleEnvSection, RoleSection};
pub use schema::json_schema;
pub use units::{AtLeast, Backoff, Deadline, Size, Span};
pub use yaml::FILE_BYTES_MAX;
pub(crate) use yaml::read_file;

use footplate_types::Digest;
use serde_json::{Map, Value};
use std::path::Path;

/// A job file with everything merged: its typed form, and the document that is stored and hashed.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The typed form.
    pub file: JobFile,
    /// The merged document in its one long form.
    pub document: Value,
}

impl Resolved {
    /// The canonical text of the document.
    pub fn canonical(&self) -> String {
        canonical(&self.document)
    }

    /// The digest of the canonical text.
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical().as_bytes())
    }
}

/// Reads a job file, merges what it extends and what is set on the command line over it, and checks everything.
///
/// # Errors
/// Every fault, each with its place.
pub fn load(path: &Path, sets: &[String]) -> Result<Resolved, Problems> {
    resolve(merge::load(path)?, sets)
}

/// The same for a document made elsewhere (`submit -- python train.py`).
///
/// # Errors
/// Every fault, each with its place.
pub fn resolve(mut document: Map<String, Value>, sets: &[String]) -> Result<Resolved, Problems> {
    let mut problems = Problems::default();
    for assignment in sets {
        if let Err(problem) = merge::set(&mut document, assignment) {
            problems.0.push(problem);
        }
    }
    read::normalise(&mut document, &mut problems);
    let file = read::read(&document, &mut problems);
    if let Some(file) = &file {
        check(file, &mut problems);
    }
    problems.or(|| file.map(|file| Resolved { file, document: Value::Object(document) }))
}

/// What the types alone cannot say.
fn check(file: &JobFile, problems: &mut Problems) {
    check_resources(&file.resources, "resources", problems);
    role::check(&file.roles, &file.resources, problems);
    if file.source.git.is_some() && file.source.path.is_some() {
        problems.add("source", "takes `git` or `path`, not both");
    }
    check_run(Some(&file.run), "run", problems);
    if let Some(array) = &file.array {
        array.check(problems);
    }
    check_vars(file.env.vars.keys().chain(&file.env.pass), problems);
}

fn check_resources(resources: &ResourcesSection, path: &str, problems: &mut Problems) {
    if resources.nodes == 0 {
        problems.add(format!("{path}.nodes"), "0 is not allowed; a job stands on at least 1 node");
    }
    match (resources.gpus, resources.slots) {
        (Some(0), None | Some(0)) => {
            problems.add(format!("{path}.gpus"), "0 is not allowed; leave it out and ask for `slots` to run without GPUs")
        }
        (None, Some(0)) => problems.add(format!("{path}.slots"), "0 is not allowed; a node gives at least 1 slot"),
        (Some(gpus), Some(slots)) if gpus > 0 && slots > 0 => problems.add(path, "takes `gpus` or `slots`, not both"),
        _ => {}
    }
    let gpu = &resources.gpu;
    if gpu.share.is_some_and(|share| !(1..=999).contains(&share)) {
        problems.add("resources.gpu.share", "takes 1 to 999 thousandths of a GPU; leave it out to ask for all of it");
    } else if gpu.share.is_some() && (resources.gpus.unwrap_or(0) > 1 || gpu.mig.is_some()) {
        problems
            .add("resources.gpu.share", "is a share of one whole GPU: it goes with `resources.gpus: 1` and without `resources.gpu.mig`");
    }
    let asks_kind = !gpu.model.is_empty() || gpu.memory.is_some() || gpu.mig.is_some() || gpu.share.is_some();
    if asks_kind && resources.gpus.unwrap_or(0) == 0 {
        problems.add(format!("{path}.gpu"), format!("names a kind of GPU, but `{path}.gpus` asks for none"));
    }
}

fn check_run(run: Option<&Run>, path: &str, problems: &mut Problems) {
    let Some(run) = run else { return };
    match run {
        Run::Shell(line) if line.trim().is_empty() => problems.add(path, "is empty"),
        Run::Argv(words) if words.first().is_none_or(|word| word.is_empty()) => problems.add(path, "names no program"),
        Run::Shell(_) | Run::Argv(_) => {}
    }
    let zero_byte = match run {
        Run::Shell(line) => line.contains('\0'),
        Run::Argv(words) => words.iter().any(|word| word.contains('\0')),
    };
    if zero_byte {
        problems.add(path, "holds a zero byte, which no program can be given");
    }
}

fn check_vars<'a>(names: impl Iterator<Item = &'a String>, problems: &mut Problems) {
    for name in names {
        if name.is_empty() || name.contains(['=', '\0']) {
            problems.add("env", format!("{name:?} is no name of a variable"));
        } else if name.starts_with("FOOTPLATE_") {
            problems.add("env", format!("{name} is set by the platform"));
        }
    }
}
