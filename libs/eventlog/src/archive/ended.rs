//! Which runs have ended for good, as their segments tell.
//!
//! A run has when it is sealed and its job, where it has one, has ended; with it go its job, what was asked of that, its attempts and, once finished, its
//! trial. Everything else stays: what people look up by name, what nodes are, and every term.

use super::chain::Known;
use super::segment::Segment;
use footplate_events::{Aggregate, Subject, header};
use footplate_types::RunId;
use std::collections::HashMap;

/// What ends an aggregate.
const ENDS: [&str; 3] = ["footplate.run.sealed.v1", "footplate.job.ended.v1", "footplate.trial.finished.v1"];

/// A run whose events may leave, with the subjects of all that belongs to it and the segment in which each begins.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedRun {
    pub(super) subjects: Vec<(String, u32)>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Subject, the segment in which it begins, whether it has ended (attempts end with their job).
    subjects: Vec<(String, u32, bool)>,
}

impl Seen {
    fn note(&mut self, subject: &Subject, text: &str, segment: u32, ends: bool) {
        let ends = ends || matches!(subject.aggregate, Aggregate::Attempt | Aggregate::JobRequest);
        match self.subjects.iter_mut().find(|(known, ..)| known == text) {
            Some((.., ended)) => *ended |= ends,
            None => self.subjects.push((text.to_owned(), segment, ends)),
        }
    }

    /// All has ended, and among it is the run itself.
    fn has_ended(&self) -> bool {
        let of_a_run = |text: &str| Subject::parse(text).is_ok_and(|subject| subject.aggregate == Aggregate::Run);
        self.subjects.iter().all(|(.., ended)| *ended) && self.subjects.iter().any(|(text, ..)| of_a_run(text))
    }
}

/// Looks at one segment after the other and remembers the runs that have not ended yet: those that go on, never all.
#[derive(Debug, Default)]
pub(super) struct Ended {
    looked_at: u32,
    open: HashMap<RunId, Seen>,
}

impl Ended {
    /// The number of the last segment that was looked at.
    pub(super) fn looked_at(&self) -> u32 {
        self.looked_at
    }

    /// Takes the next segment in; gives the runs that have ended by its end, in the order of their first events.
    pub(super) fn look_at(&mut self, segment: &Segment, known: &Known) -> Vec<EndedRun> {
        let number = segment.entry().head.number;
        let mut touched = Vec::new();
        for stored in segment.messages(1) {
            let Ok(subject) = Subject::parse(&stored.subject) else { continue };
            let Some(run) = subject.run_id() else { continue };
            // It has left already; what came later stays.
            if known.gone.place(&stored.subject).is_some() {
                continue;
            }
            let kind = stored.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(header::TYPE));
            let ends = kind.is_some_and(|(_, kind)| ENDS.contains(&kind.as_str()));
            self.open.entry(run).or_default().note(&subject, &stored.subject, number, ends);
            if ends {
                touched.push(run);
            }
        }
        self.looked_at = number;
        let mut ended = Vec::new();
        for run in touched {
            if self.open.get(&run).is_some_and(Seen::has_ended)
                && let Some(seen) = self.open.remove(&run)
            {
                ended.push(EndedRun { subjects: seen.subjects.into_iter().map(|(subject, segment, _)| (subject, segment)).collect() });
            }
        }
        ended
    }
}
