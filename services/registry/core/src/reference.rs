//! How a model version or an artifact is named: `models:/<name>@<alias>`, `models:/<name>/<version, stage or latest>`,
//! `runs:/<run>/<path>`. As MLflow has it: names hold no `/`, an alias is what stands behind the last `@`.

use footplate_events::facts::Stage;
use footplate_types::{AliasName, ArtifactPath, Invalid, ModelName, VersionNumber};
use std::fmt;

const ALLOWED: &str = "models:/<name>@<alias>, models:/<name>/<version, stage or latest>, or runs:/<run>/<path>";
const RUN_DIGITS_MAX: usize = 32;

/// Which version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// By number.
    Version(VersionNumber),
    /// The one in a stage, the newest where there may be more (None, Archived).
    Stage(Stage),
    /// The one that an alias names.
    Alias(AliasName),
    /// The newest, wherever it stands.
    Latest,
}

/// `models:/...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelUri {
    /// The model.
    pub model: ModelName,
    /// Which version.
    pub pick: Pick,
}

/// `runs:/...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUri {
    /// The run's id, or the beginning of it.
    pub run: String,
    /// The artifact: a file, or a folder.
    pub path: ArtifactPath,
}

/// Either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A version of a model.
    Model(ModelUri),
    /// An artifact of a run.
    Run(RunUri),
}

impl Reference {
    /// Whether a text looks like a reference at all, rather than a path or an id.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with("models:") || text.starts_with("runs:")
    }

    /// Reads a reference.
    ///
    /// # Errors
    /// It is none; what would be.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if let Some(rest) = text.strip_prefix("models:/") {
            return model(text, rest).map(Self::Model);
        }
        match text.strip_prefix("runs:/") {
            Some(rest) => run(text, rest).map(Self::Run),
            None => Err(refused(text)),
        }
    }
}

fn refused(text: &str) -> Invalid {
    Invalid::new("reference", text, ALLOWED)
}

fn model(text: &str, rest: &str) -> Result<ModelUri, Invalid> {
    if let Some((name, word)) = rest.split_once('/') {
        let pick = match Stage::parse(word) {
            Some(stage) => Pick::Stage(stage),
            None if word.eq_ignore_ascii_case("latest") => Pick::Latest,
            None => Pick::Version(VersionNumber::parse(word).map_err(|_| refused(text))?),
        };
        return Ok(ModelUri { model: ModelName::parse(name)?, pick });
    }
    let (name, alias) = rest.rsplit_once('@').ok_or_else(|| refused(text))?;
    Ok(ModelUri { model: ModelName::parse(name)?, pick: Pick::Alias(AliasName::parse(alias)?) })
}

fn run(text: &str, rest: &str) -> Result<RunUri, Invalid> {
    let (run, path) = rest.split_once('/').ok_or_else(|| refused(text))?;
    let is_id = (1..=RUN_DIGITS_MAX).contains(&run.len()) && run.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !is_id {
        return Err(Invalid::new("reference", text, "runs:/<run>/<path>, the run by its id or the beginning of it"));
    }
    Ok(RunUri { run: run.to_owned(), path: ArtifactPath::parse(path)? })
}

impl fmt::Display for ModelUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pick {
            Pick::Version(number) => write!(f, "models:/{}/{number}", self.model),
            Pick::Stage(stage) => write!(f, "models:/{}/{}", self.model, stage.as_str()),
            Pick::Alias(alias) => write!(f, "models:/{}@{alias}", self.model),
            Pick::Latest => write!(f, "models:/{}/latest", self.model),
        }
    }
}

impl fmt::Display for RunUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runs:/{}/{}", self.run, self.path)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(uri) => uri.fmt(f),
            Self::Run(uri) => uri.fmt(f),
        }
    }
}
