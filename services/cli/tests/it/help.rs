//! The help of every verb, as a golden file; and the promises that hold for all of them.

use clap::{Command, CommandFactory as _};
use footplate_cli::args::Cli;

fn every_command(command: &Command, path: &str, visit: &mut dyn FnMut(&str, &Command)) {
    visit(path, command);
    for below in command.get_subcommands() {
        every_command(below, &format!("{path} {}", below.get_name()), visit);
    }
}

fn cli() -> Command {
    let mut command = Cli::command().term_width(100);
    command.build();
    command
}

const OPENING: &str = r#"# The command line

Made from the binary's own help (`UPDATE_GOLDEN=1 cargo test -p footplate-cli --test it`); do not edit by hand.

## Where to, as whom

Flags win over the environment, the environment over the context file. Without any of them the platform is looked for at `127.0.0.1:7450` and
the project is `default`.

| flag | variable | in a context | what |
|---|---|---|---|
| `--addr` | `FOOTPLATE_ADDR` | `addr` | host:port, or an http or https URL |
| `--project` | `FOOTPLATE_PROJECT` | `project` | the project |
| `--token` | `FOOTPLATE_TOKEN` | `token` | who calls; a context's token goes to that context's address alone |
| `--ca` | `FOOTPLATE_CA` | `ca` | file of the authorities (PEM) that alone are trusted at an https address; else this machine's; see [TLS](../guides/tls.md) |
| `--context` | `FOOTPLATE_CONTEXT` | | a context of the file by name |

The file is `~/.config/footplate/config.toml` (or under `XDG_CONFIG_HOME`); `footplate up` writes the context `local` into it:

```toml
current = "local"

[contexts.local]
addr = "127.0.0.1:7450"
token = "..."
data = "..."
project = "vision"
```

A context of an `https` address may have a `ca` as well.

`data`, where it is there, is the folder of an `up` on this machine: `doctor` looks at its broker and its disk.

## What comes out

Data goes to standard output, talk and progress to standard error; progress is shown on a terminal only. `-o table|wide|json|yaml` chooses the
form, `-q` prints bare ids; `lineage` also takes `-o dot`, and `event tail -o json` prints one object a line. JSON follows the proto3 mapping of
the API (lower camel case, 64-bit integers as strings). `NO_COLOR` is honoured. Ids may be given by a unique prefix, with or without `run:`.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; of a wait: the run succeeded |
| 1 | failed, for a reason that no other code names |
| 2 | usage: an argument, a job file, a context file |
| 3 | what was named is not there |
| 4 | refused: permission, quota, conflict, a snapshot that may not leave this machine |
| 5 | the platform cannot be reached or is not ready |
| 6 | it took longer than it was given; it may still happen |
| 7 | the run itself failed |
| 8 | the run was cancelled |
| 9 | of a gate: everything could be told, and something falls short of what was wanted |

## Every verb
"#;

#[test]
fn the_help_of_every_verb_is_what_the_reference_says() {
    let mut text = String::from(OPENING);
    every_command(&cli(), "footplate", &mut |path, command| {
        let mut command = command.clone().term_width(100).bin_name(path);
        // What every verb takes stands once, with the program itself.
        let help = command.render_help().to_string();
        let own = if path == "footplate" { help.as_str() } else { without_section(&help, "Everywhere:") };
        text.push_str(&format!("\n### {path}\n\n```text\n{}\n```\n", own.trim_end()));
        if path != "footplate" && !command.has_subcommands() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("\n```text\n{}\n```\n", after.trim_end()));
        }
    });
    footplate_testkit::golden("../../docs/reference/command-line.md", &text);
}

/// The help up to a section that, with what follows it, is left out.
fn without_section<'a>(help: &'a str, heading: &str) -> &'a str {
    help.find(heading).map_or(help, |at| &help[..at])
}

#[test]
fn every_verb_says_what_it_does_and_shows_an_example_that_parses() {
    let mut examples = Vec::new();
    every_command(&cli(), "footplate", &mut |path, command| {
        assert!(command.get_about().is_some(), "{path} does not say what it does");
        if command.has_subcommands() {
            return;
        }
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Example"), "{path} has no example");
        examples.extend(after.lines().filter_map(|line| line.trim().strip_prefix("footplate ")).map(str::to_owned));
    });
    assert!(examples.len() > 20);
    for example in examples {
        // Only what stands before a pipe, a redirection or another command is ours.
        let end = [" | ", " > ", " && ", "$("].iter().filter_map(|mark| example.find(mark)).min().unwrap_or(example.len());
        if example[end..].starts_with("$(") {
            continue;
        }
        let words = words(&example[..end]);
        let parsed = cli().try_get_matches_from(std::iter::once("footplate".to_owned()).chain(words.clone()));
        parsed.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
}

/// Splits at blanks outside single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
