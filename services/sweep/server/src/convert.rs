//! Sweeps between the wire and the ledger. Absent fields get their documented defaults here, once.

use footplate_api::v1::{self as wire, sweep_parameter::Domain as WireDomain};
use footplate_events::facts::{
    Condition, Direction, Domain, Objective, ParamValue, Parameter, Pruner, Sampler, Space, SweepCreated, Take, TrialObserved,
};
use footplate_sweep_core::{STARTUP_DEFAULT, Sweep, Trial};
use footplate_types::{Digest, DisplayName, Invalid, MetricName, ParamKey, SweepId, TrialNumber};
use footplate_wire::{job_spec_from_wire, job_spec_to_wire};
use prost::Message as _;

/// What a client asks, as the ledger holds it; checked by [`footplate_sweep_core::check`] afterwards.
pub(crate) fn sweep_in(spec: &wire::SweepSpec) -> Result<SweepCreated, Invalid> {
    let job = spec.job.as_ref().ok_or_else(|| Invalid::new("job", "nothing", "the job of a trial"))?;
    let in_job = |invalid: Invalid| {
        let field = format!("job.{}", invalid.field);
        invalid.of(field)
    };
    Ok(SweepCreated {
        name: DisplayName::parse(&spec.name).map_err(|invalid| invalid.of("name"))?,
        space: Space(spec.space.iter().map(parameter_in).collect::<Result<_, _>>()?),
        objective: Objective {
            metric: MetricName::parse(&spec.metric).map_err(|invalid| invalid.of("metric"))?,
            direction: match spec.direction.as_str() {
                "minimize" => Direction::Minimize,
                "maximize" => Direction::Maximize,
                other => return Err(Invalid::new("direction", other, "minimize or maximize")),
            },
            take: match spec.take.as_str() {
                "" | "last" => Take::Last,
                "best" => Take::Best,
                other => return Err(Invalid::new("take", other, "last or best")),
            },
        },
        sampler: match spec.sampler.as_str() {
            "grid" => Sampler::Grid,
            "random" => Sampler::Random,
            other => return Err(Invalid::new("sampler", other, "grid or random")),
        },
        pruner: match (spec.pruner.as_str(), spec.pruner_startup) {
            ("" | "none", 0) => Pruner::None,
            ("" | "none", startup) => return Err(Invalid::new("pruner.startup", startup, "nothing without a pruner")),
            ("median", 0) => Pruner::Median { startup: STARTUP_DEFAULT },
            ("median", startup) => Pruner::Median { startup },
            (other, _) => return Err(Invalid::new("pruner", other, "none or median")),
        },
        rungs: spec.rungs.clone(),
        seed: spec.seed,
        parallel: if spec.parallel == 0 { 1 } else { spec.parallel },
        trials: spec.trials,
        points: None,
        job: job_spec_from_wire(job).map_err(in_job)?,
        body: Digest::of(&spec.encode_to_vec()),
    })
}

fn parameter_in(parameter: &wire::SweepParameter) -> Result<Parameter, Invalid> {
    let name = ParamKey::parse(&parameter.name).map_err(|invalid| invalid.of("space"))?;
    let values = |field: String, texts: &[String]| -> Result<Vec<ParamValue>, Invalid> {
        let read = |text: &String| {
            serde_json::from_str(text).map_err(|_| Invalid::new(field.clone(), text, "JSON: a number, \"a text\", true or false"))
        };
        texts.iter().map(read).collect()
    };
    let domain = match &parameter.domain {
        Some(WireDomain::Float(domain)) => Domain::Float { low: domain.low, high: domain.high, log: domain.log, step: domain.step },
        Some(WireDomain::Int(domain)) => Domain::Int { low: domain.low, high: domain.high, log: domain.log, step: domain.step },
        Some(WireDomain::Categorical(domain)) => Domain::Categorical { choices: values(format!("space.{name}.choices"), &domain.choices)? },
        None => return Err(Invalid::new(format!("space.{name}"), "nothing", "float, int or categorical")),
    };
    let condition = |condition: &wire::SweepCondition| {
        let parameter = ParamKey::parse(&condition.parameter).map_err(|invalid| invalid.of(format!("space.{name}.when")))?;
        let one_of = values(format!("space.{name}.when.{parameter}"), &condition.one_of)?;
        Ok(Condition { parameter, one_of })
    };
    let when = parameter.when.iter().map(condition).collect::<Result<_, Invalid>>()?;
    Ok(Parameter { name, domain, when })
}

/// A value as JSON text.
fn text(value: &ParamValue) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn parameter_out(parameter: &Parameter) -> wire::SweepParameter {
    let domain = match &parameter.domain {
        Domain::Float { low, high, log, step } => WireDomain::Float(wire::FloatDomain { low: *low, high: *high, log: *log, step: *step }),
        Domain::Int { low, high, log, step } => WireDomain::Int(wire::IntDomain { low: *low, high: *high, log: *log, step: *step }),
        Domain::Categorical { choices } => WireDomain::Categorical(wire::CategoricalDomain { choices: choices.iter().map(text).collect() }),
    };
    let condition = |condition: &Condition| wire::SweepCondition {
        parameter: condition.parameter.to_string(),
        one_of: condition.one_of.iter().map(text).collect(),
    };
    wire::SweepParameter { name: parameter.name.to_string(), when: parameter.when.iter().map(condition).collect(), domain: Some(domain) }
}

fn spec_out(fact: &SweepCreated) -> wire::SweepSpec {
    let (pruner, pruner_startup) = match fact.pruner {
        Pruner::None => ("none", 0),
        Pruner::Median { startup } => ("median", startup),
    };
    wire::SweepSpec {
        name: fact.name.to_string(),
        space: fact.space.0.iter().map(parameter_out).collect(),
        metric: fact.objective.metric.to_string(),
        direction: match fact.objective.direction {
            Direction::Minimize => "minimize",
            Direction::Maximize => "maximize",
        }
        .to_owned(),
        take: match fact.objective.take {
            Take::Last => "last",
            Take::Best => "best",
        }
        .to_owned(),
        sampler: match fact.sampler {
            Sampler::Grid => "grid",
            Sampler::Random => "random",
        }
        .to_owned(),
        pruner: pruner.to_owned(),
        pruner_startup,
        rungs: fact.rungs.clone(),
        seed: fact.seed,
        parallel: fact.parallel,
        trials: fact.trials,
        job: Some(job_spec_to_wire(&fact.job)),
    }
}

/// A trial as clients see it.
pub(crate) fn trial_out(number: TrialNumber, trial: &Trial) -> wire::Trial {
    let observation = |fact: &TrialObserved| wire::TrialObservation { rung: fact.rung, step: fact.step, value: fact.value };
    let finished = trial.finished.as_ref();
    let message = finished.map(|finished| finished.message.clone()).or_else(|| trial.pruned.as_ref().map(|pruned| pruned.message.clone()));
    wire::Trial {
        number: number.0,
        run_id: trial.run.to_string(),
        state: trial.state().as_str().to_owned(),
        values: trial.values.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        value: finished.and_then(|finished| finished.value),
        message: message.unwrap_or_default(),
        observations: trial.observed.values().map(observation).collect(),
        sequence: trial.sequence,
    }
}

/// A sweep as clients see it; `whole` with what was asked.
pub(crate) fn sweep_out(id: SweepId, sweep: &Sweep, whole: bool) -> wire::Sweep {
    let counts = sweep.counts();
    wire::Sweep {
        sweep_id: id.to_string(),
        project: sweep.project.to_string(),
        name: sweep.fact.name.to_string(),
        state: sweep.standing().as_str().to_owned(),
        spec: whole.then(|| spec_out(&sweep.fact)),
        points: sweep.fact.points,
        suggested: counts.suggested,
        running: counts.running,
        complete: counts.complete,
        pruned: counts.pruned,
        failed: counts.failed,
        cancelled: counts.cancelled,
        best: sweep.best.and_then(|number| Some(trial_out(number, sweep.trials.get(&number)?))),
        trials: sweep.budget,
        created_by: sweep.created_by.clone(),
        created_at_ms: sweep.created_at.as_millis(),
        stop_reason: sweep.stop.as_ref().map(|stop| stop.reason.clone()).unwrap_or_default(),
        sequence: sweep.sequence,
    }
}
