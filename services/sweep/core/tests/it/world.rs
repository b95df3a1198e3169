//! Spaces, sweeps, and a ledger in memory that plays the other services.

use footplate_es::harness::Story;
use footplate_events::facts::*;
use footplate_events::{Event, Subject};
use footplate_sweep_core::{Draft, Seen, Sweep, Sweeps, decide, drafts, trial_job};
use footplate_types::*;
use std::collections::BTreeMap;

pub(crate) fn key(name: &str) -> ParamKey {
    ParamKey::parse(name).unwrap()
}

pub(crate) fn text(value: &str) -> ParamValue {
    ParamValue::Text(value.to_owned())
}

pub(crate) fn float(name: &str, low: f64, high: f64, step: Option<f64>) -> Parameter {
    Parameter { name: key(name), domain: Domain::Float { low, high, log: false, step }, when: Vec::new() }
}

pub(crate) fn log(name: &str, low: f64, high: f64) -> Parameter {
    Parameter { name: key(name), domain: Domain::Float { low, high, log: true, step: None }, when: Vec::new() }
}

pub(crate) fn int(name: &str, low: i64, high: i64) -> Parameter {
    Parameter { name: key(name), domain: Domain::Int { low, high, log: false, step: None }, when: Vec::new() }
}

pub(crate) fn choice(name: &str, choices: &[&str]) -> Parameter {
    let choices = choices.iter().map(|choice| text(choice)).collect();
    Parameter { name: key(name), domain: Domain::Categorical { choices }, when: Vec::new() }
}

pub(crate) fn when(mut parameter: Parameter, other: &str, one_of: &[ParamValue]) -> Parameter {
    parameter.when.push(Condition { parameter: key(other), one_of: one_of.to_vec() });
    parameter
}

pub(crate) fn job() -> JobSpec {
    JobSpec::of(
        DisplayName::parse("train").unwrap(),
        DisplayName::parse("digits").unwrap(),
        QueueName::parse("default").unwrap(),
        ResourceAsk { nodes: 1, per_node: PerNode { slots: 1, ..PerNode::default() } },
        DocumentRef { digest: Digest::of(b"launch"), bytes: 6 },
    )
}

pub(crate) fn sweep(sampler: Sampler, space: Vec<Parameter>) -> SweepCreated {
    SweepCreated {
        name: DisplayName::parse("digits").unwrap(),
        space: Space(space),
        objective: Objective { metric: MetricName::parse("loss").unwrap(), direction: Direction::Minimize, take: Take::Last },
        sampler,
        pruner: Pruner::None,
        rungs: Vec::new(),
        seed: 7,
        parallel: 2,
        trials: Some(8),
        points: None,
        job: job(),
        body: Digest::of(b"body"),
    }
}

/// A ledger with one sweep, and the scheduler and the tracker played.
pub(crate) struct World {
    pub(crate) story: Story,
}

pub(crate) fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

pub(crate) fn id() -> SweepId {
    SweepId::from_bytes([9; 16])
}

impl World {
    pub(crate) fn new(fact: SweepCreated) -> Self {
        let mut world = Self { story: Story::new() };
        world.story.record(Subject::sweep(&project(), id()), fact);
        world
    }

    pub(crate) fn state(&self) -> Sweeps {
        self.story.folded()
    }

    pub(crate) fn sweep(&self) -> Sweep {
        self.state().sweep(&id()).unwrap().clone()
    }

    pub(crate) fn on_sweep(&mut self, event: impl Into<Event>) {
        self.story.record(Subject::sweep(&project(), id()), event);
    }

    pub(crate) fn suggest(&mut self, draft: &Draft) {
        let config = DocumentRef { digest: Digest::of(b"config"), bytes: 6 };
        let job = trial_job(&self.sweep().fact, draft.id, config, None);
        let view = self.story.sequence();
        let fact = TrialSuggested { run: draft.id.run(), values: draft.values.clone(), job, view };
        self.story.record(Subject::trial(&project(), draft.id), fact);
    }

    /// One look of the leader: what it decides is recorded; deciding again must write nothing new. What is wanted is suggested.
    pub(crate) fn look(&mut self, seen: &[Seen]) -> Vec<Event> {
        let decisions = decide(&self.state(), seen);
        let events: Vec<Event> = decisions.iter().map(|decision| decision.event.clone()).collect();
        for decision in decisions {
            self.story.record(decision.subject, decision.event);
        }
        let again = decide(&self.state(), seen);
        assert!(again.is_empty(), "deciding again writes nothing new: {again:?}");
        for draft in drafts(&self.state()) {
            self.suggest(&draft);
        }
        events
    }

    pub(crate) fn run(number: u32) -> RunId {
        TrialId { sweep: id(), trial: TrialNumber(number) }.run()
    }

    pub(crate) fn running(&self) -> Vec<u32> {
        self.sweep().running.iter().map(|number| number.0).collect()
    }

    pub(crate) fn seals(&mut self, number: u32, outcome: Outcome, last: Option<f64>) {
        let figure = SealedFigure { step: 9, last, min: last.map(|value| value - 1.0), max: last.map(|value| value + 1.0) };
        self.seals_with(number, outcome, BTreeMap::from([(MetricName::parse("loss").unwrap(), figure)]));
    }

    pub(crate) fn seals_with(&mut self, number: u32, outcome: Outcome, objectives: BTreeMap<MetricName, SealedFigure>) {
        let fact = RunSealed {
            outcome,
            attempt: AttemptNumber(1),
            complete: true,
            missing: Vec::new(),
            points: 10,
            artifacts: 0,
            log_bytes: 0,
            record: Digest::of(b"record"),
            objectives,
        };
        self.story.record(Subject::run(&project(), Self::run(number)), fact);
    }
}
