//! What a replay found: lines to read, keys for machines, and what did not hold though it must.

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The figures of one program, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    keys: Map<String, Value>,
    lines: Vec<String>,
    wrong: Vec<String>,
}

impl Report {
    /// An empty report of a program.
    pub fn of(program: &str) -> Self {
        let mut report = Self::default();
        report.key("program", json!(program));
        report
    }

    /// A figure for machines.
    pub fn key(&mut self, name: impl Into<String>, value: Value) {
        self.keys.insert(name.into(), value);
    }

    /// A measurement for machines, to the thousandth.
    pub fn number(&mut self, name: impl Into<String>, value: f64) {
        self.key(name, json!((value * 1_000.0).round() / 1_000.0));
    }

    /// A line to read.
    pub fn line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    /// Something that must hold and does not: the program fails by it.
    pub fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Notes that something must hold; `what` says what is wrong where it does not.
    pub fn must(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.wrong.push(what.into());
        }
    }

    /// What a machine knows by a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.keys.get(name)
    }

    /// The lines.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Prints the lines, writes the keys where they are wanted, and fails when something does not hold that must.
    pub fn tell(&self, json: Option<&Path>) -> Result<()> {
        print!("{}", self.text());
        json.map_or(Ok(()), |file| self.write(file))?;
        ensure!(self.wrong.is_empty(), "{}", self.wrong.join("; "));
        Ok(())
    }

    /// Writes the keys as one JSON object.
    pub fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.keys)? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}
