//! `context list`.

use crate::{
    context::{Context, ContextFile},
    output::{Column, Exit, Row},
};

const EXAMPLES: &str = "\
Examples:
  footplate context list";

/// List the contexts of this command line
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints the list, without tokens.
///
/// # Errors
/// A file that cannot be read.
pub async fn run(_: Args, ctx: Context) -> anyhow::Result<Exit> {
    let file = ContextFile::read(&super::file()?)?;
    let columns = [Column::whole("CONTEXT"), Column::whole("ADDRESS"), Column::whole("PROJECT"), Column::whole("CURRENT")];
    let row = |(name, context): (&String, &crate::context::NamedContext)| {
        let is_current = file.current.as_ref() == Some(name);
        let (addr, project) = (context.addr.clone().unwrap_or_default(), context.project.clone());
        let data = serde_json::json!({
            "name": name, "addr": addr, "project": project, "current": is_current, "has_token": context.token.is_some(),
        });
        let cells = vec![name.clone(), addr, project.unwrap_or_else(|| "default".to_owned()), if is_current { "*" } else { "" }.to_owned()];
        Row { id: name.clone(), cells, data }
    };
    ctx.output.list(&columns, file.contexts.iter().map(row).collect())?;
    Ok(Exit::Done)
}
