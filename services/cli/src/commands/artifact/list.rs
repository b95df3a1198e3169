//! `artifact list`: the files of a run, or of what a reference names.

use super::{list_files, resolve};
use crate::{
    context::{Context, find_run_id},
    output::{Column, Exit, Failure, Row},
};
use footplate_api::{json, v1};
use footplate_registry_server::Reference;
use footplate_types::ByteSize;

const EXAMPLES: &str = "\
Examples:
  footplate artifact list 0190f3a2
  footplate artifact list models:/digits@champion
  footplate artifact list runs:/0190f3a2/checkpoints -o json";

/// List the files of a run, or of what a reference names
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A run by its id or a unique prefix of it, runs:/RUN/PATH, or models:/MODEL@ALIAS (or /NUMBER, /STAGE, /latest)
    #[arg(value_name = "RUN")]
    pub named: String,
}

/// Prints the list.
///
/// # Errors
/// It names nothing, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let files = if Reference::is_meant_by(&args.named) {
        let reference = Reference::parse(&args.named).map_err(|invalid| Failure::usage(invalid.to_string()))?;
        resolve(&client, &reference).await?.files
    } else {
        list_files(&client, &find_run_id(&client, &args.named).await?, "").await?
    };
    let columns = [Column::cut("PATH"), Column::whole("BYTES"), Column::whole("DIGEST")];
    let row = |file: &v1::ModelFile| Row {
        id: file.path.clone(),
        cells: vec![file.path.clone(), ByteSize(file.bytes).to_string(), file.digest.clone()],
        data: json::to_value(file),
    };
    ctx.output.list(&columns, files.iter().map(row).collect())?;
    Ok(Exit::Done)
}
