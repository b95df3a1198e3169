//! The state as text, for the comparison of a rebuilt state with the living one.

use super::State;
use footplate_es::Project;
use std::fmt::Write;

impl Project for State {
    fn fingerprint(&self) -> String {
        let mut text = format!("position {} revision {}\nterm {:?}\n", self.position, self.revision, self.term);
        // Writing to a String cannot fail.
        for (name, queue) in &self.queues {
            let _ = writeln!(text, "queue {name} {queue:?}");
        }
        for (name, node) in &self.nodes {
            let _ = writeln!(text, "node {name} {node:?}");
        }
        for (run, job) in &self.jobs {
            let _ = writeln!(text, "job {run} {job:?}");
        }
        let _ = writeln!(text, "ties {:?}", self.ties);
        for (run, wanted) in &self.wanted {
            let _ = writeln!(text, "wanted {run} {wanted:?}");
        }
        for (run, job) in &self.ended {
            let _ = writeln!(text, "ended {run} {job:?}");
        }
        text
    }
}
