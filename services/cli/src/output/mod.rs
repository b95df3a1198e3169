//! What commands print: data to standard output in the form asked for, talk and progress to standard error.
//!
//! Nothing here asks a server. Output is stable: the same data gives the same bytes, sorted by the caller's stated key.

mod failure;
mod secret;
mod table;
mod time;

pub use failure::Failure;
pub use footplate_service::Exit;
pub use secret::SecretFile;
pub use table::{Column, Fit, columns_of, render};
pub use time::{ago, length};

use serde_json::Value;
use std::io::{self, IsTerminal as _, Write as _};

/// `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people.
    #[default]
    Table,
    /// The table with more columns.
    Wide,
    /// JSON: one object or one list, keys stable.
    Json,
    /// The same as YAML.
    Yaml,
    /// A Graphviz graph, for `lineage` alone; not offered by every verb's help.
    #[value(hide = true)]
    Dot,
}

/// Whether colours are used. A terminal that is none, `NO_COLOR` set to anything, or `TERM=dumb` means plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With ANSI colours.
    Coloured,
    /// Without.
    Plain,
}

impl Style {
    /// What standard output takes.
    pub fn of_stdout() -> Self {
        Self::decide(
            io::stdout().is_terminal(),
            std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
            std::env::var("TERM").is_ok_and(|term| term == "dumb"),
        )
    }

    fn decide(terminal: bool, no_color: bool, dumb: bool) -> Self {
        if terminal && !no_color && !dumb { Self::Coloured } else { Self::Plain }
    }

    fn heading(self, text: &str) -> String {
        self.wrapped("\u{1b}[1m", text)
    }

    /// A good state.
    pub fn good(self, text: &str) -> String {
        self.wrapped("\u{1b}[32m", text)
    }

    /// A bad state.
    pub fn bad(self, text: &str) -> String {
        self.wrapped("\u{1b}[31m", text)
    }

    /// What matters less.
    pub fn faint(self, text: &str) -> String {
        self.wrapped("\u{1b}[2m", text)
    }

    fn wrapped(self, code: &str, text: &str) -> String {
        match self {
            Self::Coloured => format!("{code}{text}\u{1b}[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

/// The form of a command's output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// `-o`.
    pub format: Format,
    /// `-q`: bare ids, one a line.
    pub quiet: bool,
    /// Colours.
    pub style: Style,
    /// The width of the terminal; none when standard output is no terminal.
    pub width: Option<usize>,
}

/// One row of a list: its id, its cells, and the same as data.
#[derive(Clone, Debug)]
pub struct Row {
    /// What `-q` prints.
    pub id: String,
    /// The cells of the table.
    pub cells: Vec<String>,
    /// What `-o json` prints.
    pub data: Value,
}

impl Output {
    /// The form for this process's standard output.
    pub fn new(format: Format, quiet: bool) -> Self {
        let width = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        Self { format, quiet, style: Style::of_stdout(), width }
    }

    /// Prints a list.
    ///
    /// # Errors
    /// Standard output that cannot be written; a closed pipe is none.
    pub fn list(&self, columns: &[Column], rows: Vec<Row>) -> io::Result<()> {
        print(&self.list_text(columns, rows))
    }

    fn list_text(&self, columns: &[Column], rows: Vec<Row>) -> String {
        if self.quiet {
            return rows.iter().map(|row| format!("{}\n", row.id)).collect();
        }
        match self.format {
            Format::Json | Format::Yaml => self.data_text(&Value::Array(rows.into_iter().map(|row| row.data).collect())),
            Format::Table | Format::Wide | Format::Dot => {
                let cells: Vec<Vec<String>> = rows.into_iter().map(|row| row.cells).collect();
                render(columns, &cells, self.format == Format::Wide, self.width, self.style)
            }
        }
    }

    /// Prints one thing: its id with `-q`, its data with `-o json` or `yaml`, else `text`.
    ///
    /// # Errors
    /// Standard output that cannot be written; a closed pipe is none.
    pub fn one(&self, id: &str, data: &Value, text: &str) -> io::Result<()> {
        if self.quiet {
            return print(&format!("{id}\n"));
        }
        match self.format {
            Format::Json | Format::Yaml => print(&self.data_text(data)),
            Format::Table | Format::Wide | Format::Dot => print(text),
        }
    }

    fn data_text(&self, data: &Value) -> String {
        if self.format == Format::Yaml {
            return serde_yaml_ng::to_string(data).unwrap_or_default();
        }
        serde_json::to_string_pretty(data).unwrap_or_default() + "\n"
    }
}

/// Writes to standard output. A reader that went away (`| head`) is no fault.
///
/// # Errors
/// Standard output that cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to standard output as they are. A reader that went away is no fault.
///
/// # Errors
/// Standard output that cannot be written.
pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Says something to the person, on standard error.
pub fn tell(message: impl std::fmt::Display) {
    // Nobody reads it when standard error is closed; the command goes on.
    let _unheard = writeln!(io::stderr().lock(), "{message}");
}

/// A line of progress on standard error, rewritten in place; silent when standard error is no terminal, or with `-q`.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    dirty: bool,
}

impl Progress {
    /// Progress for a person who did not ask for quiet.
    pub fn new(quiet: bool) -> Self {
        Self { shown: !quiet && io::stderr().is_terminal(), dirty: false }
    }

    /// Whether anybody sees it.
    pub fn is_shown(&self) -> bool {
        self.shown
    }

    /// Shows what is being done now.
    pub fn step(&mut self, message: &str) {
        if self.shown {
            self.dirty = true;
            let _unheard = write!(io::stderr().lock(), "\r\u{1b}[K{message}");
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if self.dirty {
            self.dirty = false;
            let _unheard = write!(io::stderr().lock(), "\r\u{1b}[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn output(format: Format, quiet: bool) -> Output {
        Output { format, quiet, style: Style::Plain, width: None }
    }

    fn rows() -> Vec<Row> {
        vec![Row { id: "a".into(), cells: vec!["a".into(), "x".into()], data: json!({"id": "a", "name": "x"}) }]
    }

    const COLUMNS: [Column; 2] = [Column::whole("ID"), Column::cut("NAME")];

    #[test]
    fn a_list_has_four_forms() {
        assert_eq!(output(Format::Table, false).list_text(&COLUMNS, rows()), "ID  NAME\na   x\n");
        assert_eq!(output(Format::Json, true).list_text(&COLUMNS, rows()), "a\n");
        assert_eq!(output(Format::Json, false).list_text(&COLUMNS, rows()), "[\n  {\n    \"id\": \"a\",\n    \"name\": \"x\"\n  }\n]\n");
        assert_eq!(output(Format::Yaml, false).list_text(&COLUMNS, rows()), "- id: a\n  name: x\n");
        assert_eq!(output(Format::Json, false).list_text(&COLUMNS, Vec::new()), "[]\n");
    }

    #[test]
    fn colours_need_a_terminal_that_wants_them() {
        assert_eq!(Style::decide(true, false, false), Style::Coloured);
        for (terminal, no_color, dumb) in [(false, false, false), (true, true, false), (true, false, true)] {
            assert_eq!(Style::decide(terminal, no_color, dumb), Style::Plain);
        }
        assert_eq!(Style::Plain.good("x"), "x");
    }
}
