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

#[test]
fn the_help_of_every_verb_is_what_it_was() {
    let mut text = String::new();
    every_command(&cli(), "footplate", &mut |path, command| {
        let mut command = command.clone().term_width(100).bin_name(path);
        text.push_str(&format!("$ {path} --help\n{}\n", command.render_help()));
    });
    footplate_testkit::golden("tests/golden/help.txt", &text);
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
