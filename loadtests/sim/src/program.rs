//! What the program does with seeds: runs them one after the other and says what was found.

use crate::{Figures, Planted, Violation, find, story, survey};
use std::path::PathBuf;
use std::time::Instant;

/// How many seeds a planted fault may take to be found, unless told otherwise.
const SEEDS_FOR_PLANTED: u64 = 200;
/// How many seeds are run, unless told otherwise.
const SEEDS: u64 = 2_000;

/// What is asked of it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The first seed.
    pub seed: u64,
    /// How many; as many as are usual when absent.
    pub seeds: Option<u64>,
    /// Faults to plant and to find.
    pub planted: Vec<Planted>,
    /// Whether the seeds are run as they are, too, where faults are planted.
    pub both: bool,
    /// How many lines of a trace are told of a rule that was found broken.
    pub lines: usize,
    /// How many lines of the first seed's trace are told, whatever it comes to.
    pub story: usize,
    /// Where the figures are written.
    pub json: Option<PathBuf>,
}

impl Default for Asked {
    fn default() -> Self {
        Self { seed: 0, seeds: None, planted: Vec::new(), both: false, lines: 40, story: 0, json: None }
    }
}

fn tell(violation: &Violation, lines: usize) {
    println!("seed {}, step {}, {} ms: {}: {}", violation.seed, violation.step, violation.at_ms, violation.rule, violation.detail);
    let from = violation.lines.len().saturating_sub(lines);
    violation.lines[from..].iter().for_each(|line| println!("  {line}"));
    println!("  again: {}", violation.replay());
}

/// Runs it and tells; whether no rule was found broken and every planted fault was found. An error when the figures cannot be written.
pub fn run(asked: &Asked) -> std::io::Result<bool> {
    let as_they_are = asked.both || asked.planted.is_empty();
    let seeds = asked.seeds.unwrap_or(if as_they_are { SEEDS } else { SEEDS_FOR_PLANTED });
    let began = Instant::now();
    let mut figures = Figures::default();
    if asked.story > 0 {
        story(asked.seed, asked.planted.first().copied(), asked.story).iter().for_each(|line| println!("{line}"));
    }
    if as_they_are {
        figures = survey(asked.seed, seeds, |violation| tell(violation, asked.lines));
    }
    for planted in &asked.planted {
        figures.planted_faults += 1;
        match find(*planted, asked.seed, seeds) {
            Some(violation) => {
                let tried = violation.seed - asked.seed + 1;
                println!("{}: found by `{}` at seed {} ({tried} seeds)", planted.name(), violation.rule, violation.seed);
                if seeds == 1 {
                    tell(&violation, asked.lines);
                }
            }
            None => {
                figures.planted_faults_missed += 1;
                println!("{}: not found in {seeds} seeds", planted.name());
            }
        }
    }
    let text = figures.json(began.elapsed().as_secs_f64());
    println!("{text}");
    asked.json.as_ref().map_or(Ok(()), |file| std::fs::write(file, &text))?;
    Ok(figures.violations == 0 && figures.planted_faults_missed == 0)
}
