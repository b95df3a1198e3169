//! `cargo xtask`: regenerates what is checked in, and checks the rules of the house.
//!
//! `generate` writes, `check` only compares; neither touches the network. A rule that matters is checked here, not remembered.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arrows;
mod code;
#[cfg(feature = "documents")]
mod documents;
mod generated;
mod golden;
mod house;
mod links;
mod metadata;
mod rules;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use generated::Generated;

const USAGE: &str = "usage: cargo xtask generate [code|documents]
       cargo xtask check [arrows|house|code|documents|golden|links|rules]...";

/// One kind of check: its name, and what it finds wrong.
type Check = (&'static str, fn(&Path) -> Result<Vec<String>>);

const CHECKS: &[Check] = &[
    ("arrows", arrows::check),
    ("house", house::check),
    ("code", |root| code::render(root)?.differences(root)),
    ("documents", |root| render_documents(root)?.differences(root)),
    ("golden", golden::check),
    ("links", links::check),
    ("rules", rules::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let root = root()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["generate"] => {
            code::render(&root)?.write(&root)?;
            render_documents(&root)?.write(&root)
        }
        ["generate", "code"] => code::render(&root)?.write(&root),
        ["generate", "documents"] => render_documents(&root)?.write(&root),
        ["check"] => check(&root, CHECKS.iter().collect()),
        ["check", names @ ..] => check(&root, names.iter().map(|name| named(name)).collect::<Result<_>>()?),
        _ => bail!("{USAGE}"),
    }
}

fn named(name: &str) -> Result<&'static Check> {
    CHECKS.iter().find(|(known, _)| *known == name).with_context(|| format!("no check called {name}\n{USAGE}"))
}

/// Runs every check and tells all that is wrong, not only the first.
fn check(root: &Path, checks: Vec<&Check>) -> Result<()> {
    let mut wrong = 0;
    for (name, check) in checks {
        let found = check(root).with_context(|| format!("the check {name} could not run"))?;
        println!("{name}: {}", if found.is_empty() { "ok".to_owned() } else { format!("{} wrong", found.len()) });
        found.iter().for_each(|problem| println!("  {problem}"));
        wrong += found.len();
    }
    if wrong == 0 { Ok(()) } else { bail!("{wrong} wrong in all") }
}

#[cfg(feature = "documents")]
fn render_documents(root: &Path) -> Result<Generated> {
    documents::render(root)
}

#[cfg(not(feature = "documents"))]
fn render_documents(_root: &Path) -> Result<Generated> {
    bail!("this xtask was built without its feature `documents`")
}

fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(Path::to_owned).context("xtask lies two folders below the root")
}
