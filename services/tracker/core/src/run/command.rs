//! What may be written about a run, and what is refused.

use super::{Origin, Run, Status};
use footplate_es::Decide;
use footplate_events::Event;
use footplate_events::facts::{
    InputRef, LoggedArtifact, Outcome, ParamValue, RunArtifactsLogged, RunCreated, RunFinished, RunInputsLogged, RunNoted, RunParamsLogged,
    RunTagsSet, SessionEnd, TEXT_MAX,
};
use footplate_types::{AttemptNumber, Digest, DisplayName, ExperimentId, Invalid, ParamKey, Rank, RunId};
use std::collections::BTreeMap;

/// The most keys of one write (params, tags) and entries of one list (inputs, artifacts).
pub const KEYS_MAX: usize = 1_000;

/// The most characters of a tag.
pub const TAG_MAX: usize = 8_000;

/// What a client, or a worker through its agent, asks of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunCommand {
    /// Open a run without a job.
    Create {
        /// Its name.
        name: DisplayName,
        /// Its experiment's name.
        experiment: DisplayName,
        /// Digest of the whole request.
        body: Digest,
        /// The expectation that is being tested; may be empty.
        hypothesis: String,
    },
    /// Log params.
    LogParams {
        /// The attempt whose worker says so; 0 for clients.
        attempt: AttemptNumber,
        /// The worker's rank.
        rank: Rank,
        /// Key to value.
        params: BTreeMap<ParamKey, ParamValue>,
    },
    /// Set and remove tags.
    SetTags {
        /// Key to value.
        set: BTreeMap<ParamKey, String>,
        /// Keys that are to go.
        removed: Vec<ParamKey>,
    },
    /// Write a hypothesis, a conclusion or a note.
    Note(RunNoted),
    /// Name data that it reads.
    LogInputs(Vec<InputRef>),
    /// Name stored files.
    LogArtifacts(Vec<LoggedArtifact>),
    /// End a run without a job.
    Finish {
        /// How it ended.
        outcome: Outcome,
        /// In words; may be empty.
        message: String,
        /// How many batches each logging session sent.
        sessions: Vec<SessionEnd>,
    },
}

/// What a decision about a run needs of the world: nothing beside the state and the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunFacts;

/// A "no", told by what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
    /// There is no such run in this project.
    #[error("there is no run {0} in this project")]
    NotFound(RunId),
    /// The id is taken by a run with another body.
    #[error("run {run} exists and was made from another request; use another request_id, or send the same request")]
    Exists {
        /// The run that came first.
        run: RunId,
    },
    /// The run is ended by its job alone.
    #[error("run {0} ends with its job; stop it with `footplate run cancel`")]
    EndsWithItsJob(RunId),
    /// It has already ended otherwise; the first end stands.
    #[error("run {run} has already ended as {outcome}; the first end stands")]
    AlreadyEnded {
        /// The run.
        run: RunId,
        /// How it ended.
        outcome: &'static str,
    },
    /// A field is not allowed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// The word of an outcome, in the API's and the filter's form.
pub const fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
    }
}

impl Decide for Run {
    type Command = RunCommand;
    type Facts = RunFacts;
    type Refusal = RunRefusal;

    fn decide(&self, command: RunCommand, _facts: &RunFacts) -> Result<Vec<Event>, RunRefusal> {
        if let RunCommand::Create { name, experiment, body, hypothesis } = command {
            return self.create(name, experiment, body, hypothesis);
        }
        if !self.is_visible() {
            return Err(RunRefusal::NotFound(self.id));
        }
        match command {
            RunCommand::Create { .. } => Ok(Vec::new()),
            RunCommand::LogParams { attempt, rank, params } => self.log_params(attempt, rank, params),
            RunCommand::SetTags { set, removed } => self.set_tags(set, removed),
            RunCommand::Note(noted) => self.decide_note(noted),
            RunCommand::LogInputs(inputs) => self.log_inputs(inputs),
            RunCommand::LogArtifacts(artifacts) => self.log_artifacts(artifacts),
            RunCommand::Finish { outcome, message, sessions } => self.finish(outcome, message, sessions),
        }
    }
}

impl Run {
    fn create(&self, name: DisplayName, experiment: DisplayName, body: Digest, hypothesis: String) -> Result<Vec<Event>, RunRefusal> {
        check_text("hypothesis", &hypothesis)?;
        if self.is_visible() {
            let same = self.origin == Some(Origin::Opened) && self.body == Some(body);
            return if same { Ok(Vec::new()) } else { Err(RunRefusal::Exists { run: self.id }) };
        }
        let id = ExperimentId::of(&self.project, &experiment);
        Ok(vec![RunCreated { name, experiment: id, experiment_name: experiment, body: Some(body), hypothesis }.into()])
    }

    fn log_params(&self, attempt: AttemptNumber, rank: Rank, params: BTreeMap<ParamKey, ParamValue>) -> Result<Vec<Event>, RunRefusal> {
        check_count("params", params.len())?;
        for (key, value) in &params {
            check_finite(key, value)?;
        }
        let is_news = |key: &ParamKey, value: &ParamValue| self.params.get(key).is_none_or(|param| param.is_news(attempt, rank, value));
        let params: BTreeMap<_, _> = params.into_iter().filter(|(key, value)| is_news(key, value)).collect();
        Ok(if params.is_empty() { Vec::new() } else { vec![RunParamsLogged { attempt, rank, params }.into()] })
    }

    fn set_tags(&self, set: BTreeMap<ParamKey, String>, removed: Vec<ParamKey>) -> Result<Vec<Event>, RunRefusal> {
        check_count("tags", set.len() + removed.len())?;
        for (key, value) in &set {
            if value.chars().count() > TAG_MAX {
                let given = format!("{} characters", value.chars().count());
                return Err(Invalid::new(format!("tags.{key}"), given, format!("at most {TAG_MAX} characters")).into());
            }
            if removed.contains(key) {
                return Err(Invalid::new(format!("tags.{key}"), "set and removed", "one of both in one request").into());
            }
        }
        let set: BTreeMap<_, _> = set.into_iter().filter(|(key, value)| self.tags.get(key) != Some(value)).collect();
        let removed: Vec<_> = removed.into_iter().filter(|key| self.tags.contains_key(key)).collect();
        Ok(if set.is_empty() && removed.is_empty() { Vec::new() } else { vec![RunTagsSet { set, removed }.into()] })
    }

    fn decide_note(&self, noted: RunNoted) -> Result<Vec<Event>, RunRefusal> {
        for (field, text) in [("hypothesis", &noted.hypothesis), ("conclusion", &noted.conclusion), ("note", &noted.note)] {
            if let Some(text) = text {
                check_text(field, text)?;
            }
        }
        let news = |new: Option<String>, old: &str| new.filter(|text| text != old);
        let noted = RunNoted {
            hypothesis: news(noted.hypothesis, &self.hypothesis),
            conclusion: news(noted.conclusion, &self.conclusion),
            note: news(noted.note, &self.note),
        };
        let is_news = noted.hypothesis.is_some() || noted.conclusion.is_some() || noted.note.is_some();
        Ok(if is_news { vec![noted.into()] } else { Vec::new() })
    }

    fn log_inputs(&self, inputs: Vec<InputRef>) -> Result<Vec<Event>, RunRefusal> {
        check_count("inputs", inputs.len())?;
        for input in &inputs {
            for (field, text) in [("inputs.name", &input.name), ("inputs.snapshot", &input.snapshot)] {
                if text.is_empty() || text.chars().count() > 1_000 {
                    return Err(Invalid::new(field, text, "1 to 1,000 characters").into());
                }
            }
        }
        let inputs: Vec<_> = inputs.into_iter().filter(|input| !self.inputs.contains(input)).collect();
        Ok(if inputs.is_empty() { Vec::new() } else { vec![RunInputsLogged { inputs }.into()] })
    }

    fn log_artifacts(&self, artifacts: Vec<LoggedArtifact>) -> Result<Vec<Event>, RunRefusal> {
        check_count("artifacts", artifacts.len())?;
        let stands = |logged: &LoggedArtifact| {
            self.artifacts.get(&logged.path).is_some_and(|known| known.digest == logged.digest && known.attempt == logged.attempt)
        };
        let artifacts: Vec<_> = artifacts.into_iter().filter(|logged| !stands(logged)).collect();
        Ok(if artifacts.is_empty() { Vec::new() } else { vec![RunArtifactsLogged { artifacts }.into()] })
    }

    fn finish(&self, outcome: Outcome, message: String, sessions: Vec<SessionEnd>) -> Result<Vec<Event>, RunRefusal> {
        check_text("message", &message)?;
        check_count("sessions", sessions.len())?;
        if self.has_job() {
            return Err(RunRefusal::EndsWithItsJob(self.id));
        }
        match &self.ended {
            Some(ended) if ended.outcome == outcome => Ok(Vec::new()),
            Some(ended) => Err(RunRefusal::AlreadyEnded { run: self.id, outcome: outcome_text(ended.outcome) }),
            None => Ok(vec![RunFinished { outcome, attempt: AttemptNumber(0), message, sessions }.into()]),
        }
    }

    /// Whether nothing of its course can change any more.
    pub fn is_over(&self) -> bool {
        matches!(self.status, Status::Ending | Status::Sealed)
    }
}

fn check_text(field: &str, text: &str) -> Result<(), Invalid> {
    let count = text.chars().count();
    if count > TEXT_MAX {
        return Err(Invalid::new(
            field,
            format!("{count} characters"),
            format!("at most {TEXT_MAX} characters; a longer text is an artifact"),
        ));
    }
    Ok(())
}

fn check_count(field: &str, count: usize) -> Result<(), Invalid> {
    if count > KEYS_MAX {
        return Err(Invalid::new(field, format!("{count} entries"), format!("at most {KEYS_MAX} in one request")));
    }
    Ok(())
}

fn check_finite(key: &ParamKey, value: &ParamValue) -> Result<(), Invalid> {
    match value {
        ParamValue::Float(number) if !number.is_finite() => {
            Err(Invalid::new(format!("params.{key}"), number, "a finite number, or the text \"NaN\" or \"Infinity\""))
        }
        ParamValue::List(values) => values.iter().try_for_each(|value| check_finite(key, value)),
        ParamValue::Map(values) => values.values().try_for_each(|value| check_finite(key, value)),
        ParamValue::Float(_) | ParamValue::Bool(_) | ParamValue::Int(_) | ParamValue::Text(_) | ParamValue::Null(()) => Ok(()),
    }
}
