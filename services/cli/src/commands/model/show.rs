//! `model show`: a model, or one version of it.

use crate::{call, context::Context, output::Exit, view};
use footplate_api::{json, v1};
use footplate_registry_server::Reference;
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model show digits
  footplate model show digits 3
  footplate model show models:/digits@champion -o json";

/// Show a model, or one version of it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model, or a version as models:/MODEL@ALIAS, models:/MODEL/NUMBER, models:/MODEL/STAGE or models:/MODEL/latest
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Number of a version
    #[arg(value_name = "VERSION", value_parser = VersionNumber::parse)]
    pub version: Option<VersionNumber>,
}

/// Prints it.
///
/// # Errors
/// No such model or version, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let project = client.project().to_owned();
    let uri = match args.version {
        Some(version) => format!("models:/{}/{version}", ModelName::parse(&args.model).map_err(usage)?),
        None if Reference::is_meant_by(&args.model) => Reference::parse(&args.model).map_err(usage)?.to_string(),
        None => {
            let name = ModelName::parse(&args.model).map_err(usage)?.to_string();
            let answer = call!(client, registry.get_model(v1::GetModelRequest { project, name, at_least: 0 }))?;
            let model = answer.model.unwrap_or_default();
            ctx.output.one(&model.name, &json::to_value(&model), &of_model(&model))?;
            return Ok(Exit::Done);
        }
    };
    let answer = call!(client, registry.resolve_model(v1::ResolveModelRequest { project, uri, at_least: 0 }))?;
    let version = answer.version.unwrap_or_default();
    ctx.output.one(&format!("models:/{}/{}", version.model, version.version), &json::to_value(&version), &of_version(&version))?;
    Ok(Exit::Done)
}

fn usage(invalid: footplate_types::Invalid) -> crate::output::Failure {
    crate::output::Failure::usage(invalid.to_string())
}

/// Who, when and why in one line; empty for nobody.
fn mark(mark: Option<&v1::ModelMark>) -> String {
    let Some(mark) = mark else { return String::new() };
    let why = if mark.reason.is_empty() { String::new() } else { format!(": {}", mark.reason) };
    format!("{} at {}{why}", mark.by, mark.at)
}

/// Lines of a key and a value; without one, no line.
struct Lines(Vec<String>);

impl Lines {
    fn line(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.0.push(format!("{key:<12}{value}"));
        }
    }

    fn text(self) -> String {
        self.0.join("\n") + "\n"
    }
}

fn of_model(model: &v1::Model) -> String {
    let number = |version: u32| if version == 0 { String::new() } else { version.to_string() };
    let history: Vec<String> = model.history.iter().map(u32::to_string).collect();
    let mut lines = Lines(Vec::new());
    lines.line("model", model.name.as_str());
    lines.line("project", model.project.as_str());
    lines.line("note", model.note.as_str());
    lines.line("created", mark(model.created.as_ref()));
    lines.line("versions", model.versions.to_string());
    lines.line("serves", if model.serving == 0 { "nothing".to_owned() } else { format!("version {}", model.serving) });
    lines.line("since", mark(model.serving_changed.as_ref()));
    lines.line("has served", history.join(", "));
    lines.line("staging", number(model.staging));
    for alias in &model.aliases {
        lines.line("alias", format!("{} names version {} ({})", alias.alias, alias.version, mark(alias.set.as_ref())));
    }
    lines.text()
}

fn of_version(version: &v1::ModelVersion) -> String {
    let mut lines = Lines(Vec::new());
    lines.line("version", format!("{} of {}", version.version, version.model));
    lines.line("project", version.project.as_str());
    lines.line("stage", version.stage.as_str());
    lines.line("since", mark(version.staged.as_ref()));
    lines.line("aliases", version.aliases.join(", "));
    lines.line("artifact", format!("runs:/{}/{}", version.run_id, version.path));
    lines.line("digest", version.digest.as_str());
    lines.line("bytes", version.bytes.to_string());
    lines.line("files", version.files.len().to_string());
    lines.line("note", version.note.as_str());
    lines.line("registered", mark(version.registered.as_ref()));
    lines.line("record", if version.complete { "" } else { "incomplete" });
    lines.line("proposed", mark(version.proposed.as_ref()));
    let alone = if version.as_only_member { " (by its proposer, the project's only member)" } else { "" };
    let answered = mark(version.answered.as_ref());
    lines.line(&version.approval, if answered.is_empty() { String::new() } else { format!("{answered}{alone}") });
    for (name, figure) in &version.figures {
        lines.line("figure", format!("{name} = {}", view::number(*figure)));
    }
    lines.text()
}
