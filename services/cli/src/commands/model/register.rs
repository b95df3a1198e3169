//! `model register`: makes a version of what a run produced.

use super::{Done, written};
use crate::{
    call,
    context::{Context, find_run_id},
    output::{Exit, Failure},
};
use footplate_api::v1;
use footplate_registry_server::Reference;
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model register digits runs:/0190f3a2/model.bin
  footplate model register digits runs:/0190f3a2/checkpoints/final --note 'the nightly run'

The run must be sealed (`footplate run wait`). Its artifact is a file or a folder; its digest is kept.";

/// Make a version of an artifact of a sealed run; the model is created when there is none of its name
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// The artifact: runs:/RUN/PATH, the run by its id or a unique prefix of it
    #[arg(value_name = "ARTIFACT", value_parser = Reference::parse)]
    pub artifact: Reference,
    /// What the version is about
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub note: String,
    /// Take a run that failed or was cancelled
    #[arg(long)]
    pub allow_failed: bool,
    /// Take a run whose record is incomplete
    #[arg(long)]
    pub allow_incomplete: bool,
}

/// Registers it.
///
/// # Errors
/// A run or an artifact that does not fit, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let Reference::Run(artifact) = &args.artifact else {
        return Err(Failure::usage(format!("{} is a version already; give an artifact: runs:/RUN/PATH", args.artifact)).into());
    };
    let client = ctx.client()?;
    let run_id = find_run_id(&client, &artifact.run).await?;
    let message = v1::RegisterVersionRequest {
        project: client.project().to_owned(),
        model: args.model.to_string(),
        run_id,
        path: artifact.path.to_string(),
        note: args.note,
        allow_failed: args.allow_failed,
        allow_incomplete: args.allow_incomplete,
        request_id: footplate_clock::request_id().to_string(),
    };
    let answer = match call!(client, registry.register_version(message.clone())) {
        Err(error) if error.reason == "MODEL_NOT_FOUND" => {
            create(&ctx, &client, &args.model).await?;
            call!(client, registry.register_version(message))?
        }
        answered => answered?,
    };
    let done = Done::with(VersionNumber(answer.version), format!("registered ({})", answer.digest));
    written(&ctx, &client, &args.model, done, answer.sequence).await
}

/// Creates the model; someone else may be quicker.
async fn create(ctx: &Context, client: &footplate_api::Client, model: &ModelName) -> anyhow::Result<()> {
    let asked = v1::CreateModelRequest {
        project: client.project().to_owned(),
        name: model.to_string(),
        note: String::new(),
        request_id: footplate_clock::request_id().to_string(),
    };
    match call!(client, registry.create_model(asked)) {
        Err(error) if error.reason != "ID_TAKEN" => Err(error.into()),
        _ => {
            ctx.note(format!("model {model} is new"));
            Ok(())
        }
    }
}
