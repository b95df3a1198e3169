//! `footplate-sim [--seeds N] [--seed S] [--planted NAME|all] [--lines N] [--story N] [--json FILE]`: runs seeds of the simulation, one after the other,
//! and says what was found. Ends with 1 when a rule was found broken, or a planted fault was not found; with 2 when it was called wrongly.

use footplate_sim::Planted;
use footplate_sim::program::{Asked, run};
use std::process::ExitCode;

const USAGE: &str = "footplate-sim [--seeds N] [--seed S] [--planted fencing|gang|victim|quota|lease|term|intent|turn|all] [--lines N] [--story N] [--json FILE]";

fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} takes a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} takes a number, not {value}"));
        match word.as_str() {
            "--seed" => asked.seed = number()?,
            "--seeds" => asked.seeds = Some(number()?),
            "--lines" => asked.lines = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--story" => asked.story = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--json" => asked.json = Some(value.into()),
            "--planted" if value == "all" => asked.planted = Planted::ALL.to_vec(),
            "--planted" => asked.planted.push(Planted::parse(&value).ok_or_else(|| format!("there is no planted fault {value}"))?),
            _ => return Err(format!("{word} is not known")),
        }
    }
    Ok(asked)
}

fn main() -> ExitCode {
    let asked = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the figures cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}
