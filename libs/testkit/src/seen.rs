//! Processes as seen from outside, through `/proc`: for tests that must not trust what a program says of its children.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// A process of this machine, as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenProcess {
    /// Process id.
    pub pid: u32,
    /// Its parent's process id.
    pub parent: u32,
    /// Its command line.
    pub argv: Vec<String>,
    /// Its environment, as at its start.
    pub environment: Vec<String>,
}

impl SeenProcess {
    /// The value of an environment variable at its start.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Every live process (no zombie, not this one) whose command line, environment or working folder contains `text`.
pub fn processes_mentioning(text: &str) -> Vec<SeenProcess> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).filter_map(|pid| look(pid, text)).collect()
}

/// Kills (SIGKILL) every process that [`processes_mentioning`] finds, and says how many it signalled: the sweep at the end of a test whose
/// children start children that outlive them on purpose. Give it a folder that only this test uses.
pub fn kill_processes_mentioning(text: &str) -> usize {
    assert!(text.len() >= 8, "too short a text to kill by: {text:?}");
    let seen = processes_mentioning(text);
    for process in &seen {
        if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    seen.len()
}

fn look(pid: u32, text: &str) -> Option<SeenProcess> {
    let folder = Path::new("/proc").join(pid.to_string());
    let argv = strings(&folder.join("cmdline"))?;
    let environment = strings(&folder.join("environ")).unwrap_or_default();
    let working = std::fs::read_link(folder.join("cwd")).unwrap_or_default();
    let mentioned = argv.iter().chain(&environment).any(|one| one.contains(text)) || working.to_string_lossy().contains(text);
    if !mentioned {
        return None;
    }
    let (state, parent) = state_and_parent(&std::fs::read_to_string(folder.join("stat")).ok()?)?;
    (state != 'Z').then_some(SeenProcess { pid, parent, argv, environment })
}

/// `pid (name) state ppid ...`, where the name may hold spaces and brackets.
fn state_and_parent(stat: &str) -> Option<(char, u32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn strings(path: &Path) -> Option<Vec<String>> {
    let bytes = std::fs::read(path).ok()?;
    let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    Some(parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_read_past_a_name_with_brackets() {
        assert_eq!(state_and_parent("12 (a) b) S 7 1 1"), Some(('S', 7)));
        assert_eq!(state_and_parent("12"), None);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let seen = SeenProcess { pid: 1, parent: 0, argv: vec![], environment: vec!["RANKS=9".into(), "RANK=3".into()] };
        assert_eq!(seen.variable("RANK"), Some("3"));
        assert_eq!(seen.variable("RAN"), None);
    }
}
