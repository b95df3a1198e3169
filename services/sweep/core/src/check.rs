//! Which sweeps are let in: a space that can be searched, told else by field, value and what is allowed.

use crate::job::largest_job;
use crate::space::{ordered, same, size};
use crate::{GRID_POINTS_MAX, grid, pruner};
use footplate_events::facts::{Condition, Domain, ParamValue, Parameter, Pruner, Sampler, Space, SweepCreated};
use footplate_types::Invalid;

/// The most params of a space.
pub const PARAMETERS_MAX: usize = 100;
/// The most choices of one param, values of one condition, or conditions of one param.
const CHOICES_MAX: usize = 1_000;
/// The most characters of a choice.
const CHOICE_TEXT_MAX: usize = 1_000;
/// The most trials of a sweep.
pub const TRIALS_MAX: u32 = GRID_POINTS_MAX as u32;
/// The most trials under way at once.
pub const PARALLEL_MAX: u32 = 1_000;
/// The most rungs.
pub const RUNGS_MAX: usize = 64;

/// Checks everything that can be checked before the first trial; of a grid, how many points it has.
///
/// # Errors
/// The first fault.
pub fn check(sweep: &SweepCreated) -> Result<Option<u64>, Invalid> {
    check_space(&sweep.space)?;
    let within = |field: &str, value: u32, most: u32| {
        if (1..=most).contains(&value) { Ok(()) } else { Err(Invalid::new(field, value, format!("1 to {most}"))) }
    };
    within("parallel", sweep.parallel, PARALLEL_MAX)?;
    let points = match sweep.sampler {
        Sampler::Grid => Some(grid::points(&sweep.space)?),
        Sampler::Random => None,
    };
    match sweep.trials {
        Some(trials) => within("trials", trials, TRIALS_MAX)?,
        None if points.is_none() => {
            return Err(Invalid::new("trials", "nothing", format!("1 to {TRIALS_MAX}; only a grid has an end of its own")));
        }
        None => {}
    }
    check_rungs(&sweep.rungs, &sweep.pruner)?;
    let in_job = |invalid: Invalid| {
        let field = format!("job.{}", invalid.field);
        invalid.of(field)
    };
    largest_job(sweep).validate().map_err(in_job)?;
    // Trials' ids are known beforehand: two sweeps could wait for each other for ever.
    if let Some(after) = sweep.job.after.first() {
        return Err(Invalid::new("job.after", after.run, "nothing: begin the sweep once that run has ended"));
    }
    if let Some(masked) =
        sweep.job.masked.iter().find(|path| *path == "config" || path.starts_with("config.") || path.starts_with("config["))
    {
        let allowed = "a config without secrets, since every trial's config is written anew; give secrets to the job by its env";
        return Err(Invalid::new("job.config", masked, allowed));
    }
    Ok(points)
}

fn check_rungs(rungs: &[i64], pruner: &Pruner) -> Result<(), Invalid> {
    if rungs.len() > RUNGS_MAX {
        return Err(Invalid::new("rungs", rungs.len(), format!("at most {RUNGS_MAX}")));
    }
    let mut before = -1;
    for rung in rungs {
        if *rung <= before {
            return Err(Invalid::new("rungs", rung, "steps from 0, each above the one before"));
        }
        before = *rung;
    }
    match pruner {
        Pruner::None => Ok(()),
        Pruner::Median { .. } if rungs.is_empty() => Err(Invalid::new("rungs", "nothing", "the steps at which the pruner is to judge")),
        Pruner::Median { startup } if *startup == 0 || *startup > TRIALS_MAX => {
            let allowed = format!("1 to {TRIALS_MAX}, such as {}", pruner::STARTUP_DEFAULT);
            Err(Invalid::new("pruner.startup", startup, allowed))
        }
        Pruner::Median { .. } => Ok(()),
    }
}

fn check_space(space: &Space) -> Result<(), Invalid> {
    if space.0.is_empty() || space.0.len() > PARAMETERS_MAX {
        return Err(Invalid::new("space", format!("{} params", space.0.len()), format!("1 to {PARAMETERS_MAX} params")));
    }
    for (at, parameter) in space.0.iter().enumerate() {
        check_name(parameter, &space.0[..at])?;
        check_domain(&format!("space.{}", parameter.name), &parameter.domain)?;
    }
    for parameter in &space.0 {
        check_conditions(parameter, space)?;
    }
    let order = ordered(space);
    match space.0.iter().find(|parameter| !order.iter().any(|known| known.name == parameter.name)) {
        Some(cyclic) => {
            let named: Vec<&str> = cyclic.when.iter().map(|condition| condition.parameter.as_str()).collect();
            Err(Invalid::new(format!("space.{}.when", cyclic.name), named.join(", "), "conditions that lead to no param by way of itself"))
        }
        None => Ok(()),
    }
}

/// A name is a path of the config: unique, without empty parts, and no path leads through another param.
fn check_name(parameter: &Parameter, before: &[Parameter]) -> Result<(), Invalid> {
    let name = parameter.name.as_str();
    if name.split('.').any(str::is_empty) {
        return Err(Invalid::new("space", name, "names whose parts between dots are not empty"));
    }
    for other in before {
        let other = other.name.as_str();
        if other == name {
            return Err(Invalid::new("space", name, "each name once"));
        }
        let (short, long) = if other.len() < name.len() { (other, name) } else { (name, other) };
        if long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.')) {
            return Err(Invalid::new("space", name, format!("no name that leads through another param, as {long} does through {short}")));
        }
    }
    Ok(())
}

fn check_domain(field: &str, domain: &Domain) -> Result<(), Invalid> {
    let refused = |key: &str, value: &dyn std::fmt::Display, allowed: &str| Err(Invalid::new(format!("{field}.{key}"), value, allowed));
    match domain {
        Domain::Float { low, high, log, step } => {
            for (key, value) in [("low", low), ("high", high)] {
                if !value.is_finite() {
                    return refused(key, value, "a finite number");
                }
            }
            if low > high {
                return refused("low", low, &format!("at most high, which is {high}"));
            }
            if *log && *low <= 0.0 {
                return refused("low", low, "above 0 on a logarithmic scale");
            }
            match step {
                Some(step) if *log => refused("step", step, "no step on a logarithmic scale"),
                Some(step) if !step.is_finite() || *step <= 0.0 || *step > high - low => {
                    refused("step", step, &format!("above 0, and at most the range from {low} to {high}"))
                }
                // Each place has to be a number of its own, or a grid would come back to one and never end.
                Some(step)
                    if size(domain).is_none_or(|count| count > 1 << 52) || *step < low.abs().max(high.abs()) * 4.0 * f64::EPSILON =>
                {
                    refused("step", step, "a step that the numbers of the range can tell apart")
                }
                _ => Ok(()),
            }
        }
        Domain::Int { low, high, log, step } => {
            if low > high {
                return refused("low", low, &format!("at most high, which is {high}"));
            }
            if *log && *low < 1 {
                return refused("low", low, "at least 1 on a logarithmic scale");
            }
            match step {
                Some(step) if *log => refused("step", step, "no step on a logarithmic scale"),
                Some(step) if *step < 1 || i128::from(*step) > (i128::from(*high) - i128::from(*low)).max(1) => {
                    refused("step", step, &format!("at least 1, and at most the range from {low} to {high}"))
                }
                _ => Ok(()),
            }
        }
        Domain::Categorical { choices } => check_values(&format!("{field}.choices"), choices),
    }
}

/// A list of choices: some, no two the same, each one a number, a text, true or false.
fn check_values(field: &str, values: &[ParamValue]) -> Result<(), Invalid> {
    if values.is_empty() || values.len() > CHOICES_MAX {
        return Err(Invalid::new(field, format!("{} values", values.len()), format!("1 to {CHOICES_MAX} values")));
    }
    for (at, value) in values.iter().enumerate() {
        let shown = shown(value);
        let plain = match value {
            ParamValue::Bool(_) | ParamValue::Int(_) => true,
            ParamValue::Float(number) => number.is_finite(),
            ParamValue::Text(text) => text.chars().count() <= CHOICE_TEXT_MAX,
            ParamValue::List(_) | ParamValue::Map(_) | ParamValue::Null(()) => false,
        };
        if !plain {
            let allowed = format!("finite numbers, texts of at most {CHOICE_TEXT_MAX} characters, true and false");
            return Err(Invalid::new(field, shown, allowed));
        }
        if values[..at].iter().any(|other| same(other, value)) {
            return Err(Invalid::new(field, shown, "each value once"));
        }
    }
    Ok(())
}

/// A value as a refusal shows it.
fn shown(value: &ParamValue) -> String {
    match value {
        ParamValue::Bool(value) => value.to_string(),
        ParamValue::Int(value) => value.to_string(),
        ParamValue::Float(value) => value.to_string(),
        ParamValue::Text(value) => value.clone(),
        ParamValue::List(_) => "a list".to_owned(),
        ParamValue::Map(_) => "a section".to_owned(),
        ParamValue::Null(()) => "null".to_owned(),
    }
}

fn check_conditions(parameter: &Parameter, space: &Space) -> Result<(), Invalid> {
    let field = format!("space.{}.when", parameter.name);
    if parameter.when.len() > CHOICES_MAX {
        return Err(Invalid::new(field, parameter.when.len(), format!("at most {CHOICES_MAX} conditions")));
    }
    for (at, condition) in parameter.when.iter().enumerate() {
        if parameter.when[..at].iter().any(|other| other.parameter == condition.parameter) {
            return Err(Invalid::new(field, &condition.parameter, "each other param once"));
        }
        check_condition(&field, parameter, condition, space)?;
    }
    Ok(())
}

fn check_condition(field: &str, parameter: &Parameter, condition: &Condition, space: &Space) -> Result<(), Invalid> {
    let others = || {
        let names: Vec<&str> = space.0.iter().map(|other| other.name.as_str()).filter(|name| *name != parameter.name.as_str()).collect();
        if names.is_empty() { "no condition, since there is no other param".to_owned() } else { format!("one of {}", names.join(", ")) }
    };
    let other = space.0.iter().find(|other| other.name == condition.parameter && other.name != parameter.name);
    let Some(other) = other else { return Err(Invalid::new(field, &condition.parameter, others())) };
    let field = format!("{field}.{}", condition.parameter);
    check_values(&field, &condition.one_of)?;
    for value in &condition.one_of {
        let (possible, allowed) = match (&other.domain, value) {
            (Domain::Categorical { choices }, value) => (choices.iter().any(|choice| same(choice, value)), "one of its choices".to_owned()),
            (Domain::Int { low, high, step, .. }, ParamValue::Int(value)) => {
                let on_step = (i128::from(*value) - i128::from(*low)) % i128::from(step.unwrap_or(1)) == 0;
                ((low..=high).contains(&value) && on_step, format!("a whole number that it can be, {low} to {high}"))
            }
            (Domain::Int { low, high, .. }, _) => (false, format!("a whole number that it can be, {low} to {high}")),
            (Domain::Float { .. }, _) => (false, "a condition on a categorical or a whole param".to_owned()),
        };
        if !possible {
            return Err(Invalid::new(field, shown(value), allowed));
        }
    }
    Ok(())
}
