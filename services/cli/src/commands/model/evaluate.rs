//! `model evaluate`: keeps figures of a version.

use super::{Done, written};
use crate::{call, context::Context, output::Exit};
use footplate_api::v1;
use footplate_types::{ModelName, VersionNumber};

const EXAMPLES: &str = "\
Examples:
  footplate model evaluate digits 3 acc=0.94 val/loss=0.21 --data digits-test@3";

/// Keep figures of a version
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the model
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: ModelName,
    /// Number of the version
    #[arg(value_name = "VERSION", value_parser = VersionNumber::parse)]
    pub version: VersionNumber,
    /// Figures, each a finite number
    #[arg(value_name = "NAME=NUMBER", required = true, value_parser = figure)]
    pub figures: Vec<(String, f64)>,
    /// On what it was evaluated
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub data: String,
    /// SHA-256 of that
    #[arg(long, value_name = "DIGEST", default_value = "", hide_default_value = true, requires = "data")]
    pub data_digest: String,
    /// Anything else
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub note: String,
}

fn figure(text: &str) -> Result<(String, f64), String> {
    let (name, number) = text.rsplit_once('=').ok_or("NAME=NUMBER")?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    if number.is_finite() { Ok((name.to_owned(), number)) } else { Err(format!("{number} is not finite")) }
}

/// Keeps them.
///
/// # Errors
/// A refusal, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let count = args.figures.len();
    let message = v1::EvaluateVersionRequest {
        project: client.project().to_owned(),
        model: args.model.to_string(),
        version: args.version.0,
        figures: args.figures.into_iter().collect(),
        data: args.data,
        data_digest: args.data_digest,
        note: args.note,
        request_id: footplate_clock::request_id().to_string(),
    };
    let answer = call!(client, registry.evaluate_version(message))?;
    let what = if count == 1 { "evaluated: 1 figure".to_owned() } else { format!("evaluated: {count} figures") };
    written(&ctx, &client, &args.model, Done::with(args.version, what), answer.sequence).await
}
