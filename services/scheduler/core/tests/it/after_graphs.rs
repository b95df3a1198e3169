//! Random graphs of jobs with random ends, in random order: no job starts before its conditions hold (the checker looks), none is lost, and what
//! becomes of each is what its conditions say.

use crate::after::after;
use crate::world::*;
use footplate_es::{Evolve, Project};
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_scheduler_core::{State, order};
use footplate_types::RunId;
use proptest::prelude::*;

const WHENS: [AfterWhen; 3] = [AfterWhen::Success, AfterWhen::Failure, AfterWhen::Any];

#[derive(Clone, Debug)]
enum Step {
    /// Submits the next job of the graph.
    Submit,
    Look,
    /// A look whose decisions are appended after another step.
    LateLook(Box<Step>),
    /// A job that stands somewhere gets on.
    GetOn(u8),
    Cancel(u8),
    Hold(u8),
    NewTerm,
}

fn step() -> impl Strategy<Value = Step> {
    let simple = prop_oneof![
        4 => Just(Step::Submit),
        6 => Just(Step::Look),
        6 => any::<u8>().prop_map(Step::GetOn),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => any::<u8>().prop_map(Step::Hold),
        1 => Just(Step::NewTerm),
    ];
    (simple, any::<bool>()).prop_map(|(step, late)| if late { Step::LateLook(Box::new(step)) } else { step })
}

/// A job: what it comes after (an earlier one each, reduced to those there are) and the code it exits with.
type Planned = (Vec<(u8, u8)>, i32);

fn graph() -> impl Strategy<Value = Vec<Planned>> {
    let named = proptest::collection::vec((any::<u8>(), 0..3u8), 0..4);
    proptest::collection::vec((named, 0..2i32), 1..16)
}

struct Played {
    world: World,
    graph: Vec<Planned>,
    runs: Vec<RunId>,
}

impl Played {
    fn submit(&mut self) {
        let Some((named, _)) = self.graph.get(self.runs.len()) else { return };
        let mut all: Vec<(RunId, AfterWhen)> = Vec::new();
        for (n, when) in named {
            let Some(run) = (!self.runs.is_empty()).then(|| self.runs[usize::from(*n) % self.runs.len()]) else { continue };
            if all.iter().all(|(known, _)| *known != run) {
                all.push((run, WHENS[usize::from(*when)]));
            }
        }
        self.runs.push(self.world.submit(after(&all)));
    }

    fn pick(&self, n: u8) -> Option<(usize, RunId)> {
        let at = usize::from(n).checked_rem(self.runs.len())?;
        Some((at, self.runs[at]))
    }

    fn get_on(&mut self, at: usize) {
        let run = self.runs[at];
        let Some(attempt) = self.world.state.jobs().get(&run).and_then(|job| job.attempt()) else { return };
        if attempt.is_released() {
            return;
        }
        match (attempt.stop.as_ref().map(|stop| stop.cause), attempt.launched.is_some()) {
            (Some(cause), _) => self.world.exits(run, 0, 143, Some(cause)),
            (None, false) => self.world.all_ready(run),
            (None, true) => self.world.exits(run, 0, self.graph[at].1, None),
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Submit => self.submit(),
            Step::Look => {
                let ruling = self.world.ruling();
                self.world.append(ruling.decisions);
            }
            Step::LateLook(other) => {
                let ruling = self.world.ruling();
                // A leader's decisions of an older view are what it has in flight: only clients' events come between.
                if matches!(**other, Step::Submit | Step::GetOn(_) | Step::Cancel(_) | Step::Hold(_)) {
                    self.apply(other);
                }
                self.world.append(ruling.decisions);
            }
            Step::GetOn(n) => {
                if let Some((at, _)) = self.pick(*n) {
                    self.get_on(at);
                }
            }
            Step::Cancel(n) => {
                if let Some((_, run)) = self.pick(*n) {
                    self.world.cancel(run, *n & 127);
                }
            }
            Step::Hold(n) => {
                if let Some((_, run)) = self.pick(*n) {
                    let asked = JobHoldRequested { request: request(*n & 127), reason: String::new() };
                    self.world.record(Subject::job_request(&project(), run), asked);
                }
            }
            Step::NewTerm => self.world.new_term(),
        }
    }

    /// Everything is submitted, released and played to its end.
    fn calm(&mut self) {
        while self.runs.len() < self.graph.len() {
            self.submit();
        }
        self.world.settle();
        for (n, run) in self.runs.clone().into_iter().enumerate() {
            // An id that no hold and no cancel has.
            let asked = JobReleaseRequested { request: request(128 + n as u8) };
            self.world.record(Subject::job_request(&project(), run), asked);
        }
        for _ in 0..8 * self.runs.len() {
            self.world.settle();
            (0..self.runs.len()).for_each(|at| self.get_on(at));
        }
        self.world.settle();
    }
}

fn met(when: AfterWhen, outcome: Outcome) -> bool {
    match when {
        AfterWhen::Success => outcome == Outcome::Succeeded,
        AfterWhen::Failure => outcome == Outcome::Failed,
        AfterWhen::Any => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_job_of_a_graph_ends_as_its_conditions_say(graph in graph(), steps in proptest::collection::vec(step(), 0..120)) {
        let mut world = World::new();
        world.slots("n1", 3);
        let mut played = Played { world, graph, runs: Vec::new() };
        for step in &steps {
            played.apply(step);
        }
        played.calm();
        let state = &played.world.state;
        prop_assert!(state.jobs().is_empty(), "lost: {:?}", state.jobs());
        prop_assert!(state.nodes().values().all(|node| node.claims.is_empty()));
        for recorded in played.world.story.recorded() {
            let footplate_events::Event::JobSubmitted(fact) = &recorded.envelope.event else { continue };
            let end = played.world.end(recorded.envelope.subject.run_id().unwrap());
            let may_start = fact.spec.after.iter().all(|after| met(after.when, played.world.end(after.run).outcome));
            if end.cause == Cause::Dependency || end.attempt.0 > 0 {
                prop_assert_eq!(end.attempt.0 > 0, may_start, "{:?} of {:?}", end, fact.spec.after);
            } else {
                prop_assert_eq!(end.cause, Cause::Cancelled);
            }
        }
        let mut again = State::default();
        played.world.story.recorded().iter().for_each(|recorded| again.evolve(recorded));
        prop_assert_eq!(again.fingerprint(), state.fingerprint());
    }

    #[test]
    fn an_order_is_found_exactly_where_there_is_no_circle(edges in proptest::collection::vec(proptest::collection::vec(0..8usize, 0..3), 8..=8)) {
        match order(&edges) {
            Ok(ordered) => {
                let place = |at: usize| ordered.iter().position(|known| *known == at).unwrap();
                prop_assert_eq!(ordered.len(), edges.len());
                for (at, named) in edges.iter().enumerate() {
                    prop_assert!(named.iter().all(|other| place(*other) < place(at)));
                }
            }
            Err(circle) => {
                prop_assert!(!circle.is_empty());
                for (n, at) in circle.iter().enumerate() {
                    prop_assert!(edges[*at].contains(&circle[(n + 1) % circle.len()]), "{circle:?} is no circle of {edges:?}");
                }
            }
        }
    }
}
