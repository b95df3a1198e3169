//! Hostile job files: whatever stands in one, it is read, or refused with a place and a reason a person can bear. Nothing panics.

use footplate_cli::jobfile;
use footplate_cli::submission::{Refs, job_spec};
use std::{fs, path::Path};

const GOOD: &str = "apiVersion: footplate/v1\nkind: Job\nname: digits\nrun: python train.py\nresources: {nodes: 2, gpus: 8, memory: 1TiB}\n\
                    queue: {name: fast, priority: 5}\nlimits: {max_duration: 24h}\nretry: {max: 5, backoff: 30s..10m}\nstop: {grace: 5m}\n";

/// Numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[(self.roll() % choices.len() as u64) as usize].clone()
    }
}

const KEYS: [&str; 22] = [
    "name",
    "run",
    "kind",
    "project",
    "labels",
    "why",
    "config",
    "source",
    "env",
    "launcher",
    "resources",
    "placement",
    "queue",
    "limits",
    "stop",
    "retry",
    "data",
    "checkpoints",
    "seeds",
    "extends",
    "视",
    "<<",
];

const VALUES: [&str; 34] = [
    "~",
    "-1",
    "0",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "1e999",
    ".nan",
    "-.inf",
    "0x",
    "0xFFFFFFFF",
    "{}",
    "[]",
    "[[[[]]]]",
    "{nodes: 4294967296}",
    "{nodes: -1, gpus: 1.5}",
    "{memory: 18446744073709551615TiB}",
    "{memory: 99999999999999999EiB}",
    "{backoff: 10m..30s}",
    "{backoff: ..}",
    "{max_duration: 99999999999999999999d}",
    "{max_duration: 213503982334d}",
    "{grace: -5m}",
    "{priority: 2147483648}",
    "{gpu: {memory: \">=\"}}",
    "{exit_codes: [0, 256, -1]}",
    "!!binary aGk=",
    "!evil x",
    "&a [*a, *a]",
    "*nothing",
    "\"\\0\"",
    "'\u{202e}'",
    "{a: &b {c: *b}}",
    "{notify: {signal: KILL, before: 1h}}",
];

/// One thing wrong with the text.
fn twist(dice: &mut Dice, text: &mut Vec<u8>) {
    let at = (dice.roll() % (text.len() as u64 + 1)) as usize;
    match dice.roll() % 31 {
        0..=8 => {
            let line = format!("{}: {}\n", dice.of(&KEYS), dice.of(&VALUES));
            let start = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            text.splice(start..start, line.into_bytes());
        }
        9..=17 => {
            // In the place of the line of that key, so that it is not there twice.
            let key = dice.of(&KEYS);
            let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(key.as_bytes())).collect();
            let mut changed = lines.join(&b'\n');
            changed.extend(format!("{key}: {}\n", dice.of(&VALUES)).into_bytes());
            *text = changed;
        }
        18..=23 => drop(text.splice(at..at, [dice.of(&[0, 9, 0x22, 0x27, 0x3a, 0x5b, 0x7b, 0x80, 0xff])])),
        24..=27 => text.truncate(at),
        28 | 29 => {
            let deep = dice.of(&[10, 63, 64, 65, 200, 2_000]);
            text.extend(format!("config: {}1{}\n", "{a: ".repeat(deep), "}".repeat(deep)).into_bytes());
        }
        _ => {
            // Each level is ten of the one before.
            let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
            for level in 1..dice.of(&[2, 9, 20]) {
                bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", ")));
            }
            text.extend(bomb.into_bytes());
        }
    }
}

fn assert_read_or_told(path: &Path) -> bool {
    match jobfile::load(path, &[]) {
        Ok(job) => {
            let spec = job_spec(&job.file, Refs::default());
            assert!(!spec.name.is_empty() && !job.canonical().is_empty());
            true
        }
        Err(problems) => {
            assert!(!problems.0.is_empty() && problems.0.iter().all(|problem| !problem.message.is_empty()), "{problems:?}");
            assert!(problems.to_string().len() < 20_000, "told in {} bytes", problems.to_string().len());
            false
        }
    }
}

#[test]
fn of_500_hostile_job_files_each_is_read_or_refused_with_its_faults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.yaml");
    let mut dice = Dice(11);
    let mut read = 0;
    for _ in 0..500 {
        let mut text = GOOD.as_bytes().to_vec();
        (0..1 + dice.roll() % 3).for_each(|_| twist(&mut dice, &mut text));
        fs::write(&path, &text).unwrap();
        read += usize::from(assert_read_or_told(&path));
    }
    assert!((20..480).contains(&read), "both happen: {read} read");
}

#[test]
fn files_that_extend_each_other_many_times_over_are_refused_and_not_read_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    for level in 0..7 {
        let next = format!("{}.yaml", level + 1);
        fs::write(folder.path().join(format!("{level}.yaml")), format!("{GOOD}extends: [{}]\n", vec![next; 50].join(", "))).unwrap();
    }
    fs::write(folder.path().join("7.yaml"), GOOD).unwrap();
    let told = jobfile::load(&folder.path().join("0.yaml"), &[]).map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("extends at most 64 files"), "{told}");
}
