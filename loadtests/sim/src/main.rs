//! `footplate-sim [--seeds N] [--seed S] [--planted NAME|all] [--lines N] [--story N] [--json FILE]`: runs seeds of the simulation, one after the other,
//! and says what was found. Ends with 1 when a rule was found broken, or a planted fault was not found; with 2 when it was called wrongly.

use footplate_sim::{Figures, Planted, Violation, find, story, survey};
use std::process::ExitCode;
use std::time::Instant;

/// What was asked on the command line.
struct Asked {
    seed: u64,
    seeds: u64,
    planted: Vec<Planted>,
    lines: usize,
    /// How many lines of the first seed's trace are told, whatever it comes to.
    story: usize,
    json: Option<String>,
}

/// How many seeds a planted fault may take to be found, unless told otherwise.
const SEEDS_FOR_PLANTED: u64 = 200;
const USAGE: &str = "footplate-sim [--seeds N] [--seed S] [--planted fencing|gang|victim|quota|lease|term|intent|turn|all] [--lines N] [--story N] [--json FILE]";

fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked { seed: 0, seeds: 0, planted: Vec::new(), lines: 40, story: 0, json: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} takes a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} takes a number, not {value}"));
        match word.as_str() {
            "--seed" => asked.seed = number()?,
            "--seeds" => asked.seeds = number()?,
            "--lines" => asked.lines = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--story" => asked.story = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--json" => asked.json = Some(value),
            "--planted" if value == "all" => asked.planted = Planted::ALL.to_vec(),
            "--planted" => asked.planted.push(Planted::parse(&value).ok_or_else(|| format!("there is no planted fault {value}"))?),
            _ => return Err(format!("{word} is not known")),
        }
    }
    if asked.seeds == 0 {
        asked.seeds = if asked.planted.is_empty() { 2_000 } else { SEEDS_FOR_PLANTED };
    }
    Ok(asked)
}

fn tell(violation: &Violation, lines: usize) {
    println!("seed {}, step {}, {} ms: {}: {}", violation.seed, violation.step, violation.at_ms, violation.rule, violation.detail);
    let from = violation.lines.len().saturating_sub(lines);
    violation.lines[from..].iter().for_each(|line| println!("  {line}"));
    println!("  again: {}", violation.replay());
}

fn main() -> ExitCode {
    let asked = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let mut figures = Figures::default();
    if asked.story > 0 {
        story(asked.seed, asked.planted.first().copied(), asked.story).iter().for_each(|line| println!("{line}"));
    }
    if asked.planted.is_empty() {
        figures = survey(asked.seed, asked.seeds, |violation| tell(violation, asked.lines));
    }
    for planted in &asked.planted {
        figures.planted_faults += 1;
        match find(*planted, asked.seed, asked.seeds) {
            Some(violation) => {
                let tried = violation.seed - asked.seed + 1;
                println!("{}: found by `{}` at seed {} ({tried} seeds)", planted.name(), violation.rule, violation.seed);
                if asked.seeds == 1 {
                    tell(&violation, asked.lines);
                }
            }
            None => {
                figures.planted_faults_missed += 1;
                println!("{}: not found in {} seeds", planted.name(), asked.seeds);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let text = figures.json(seconds);
    println!("{text}");
    if let Some(Err(error)) = asked.json.as_ref().map(|file| std::fs::write(file, &text)) {
        eprintln!("the figures cannot be written: {error}");
        return ExitCode::FAILURE;
    }
    if figures.violations == 0 && figures.planted_faults_missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
