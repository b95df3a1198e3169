//! `context use`.

use crate::{
    context::{Context, ContextFile},
    output::Exit,
};

const EXAMPLES: &str = "\
Examples:
  footplate context use lab";

/// Make a context the one that is used when none is named
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Writes it down.
///
/// # Errors
/// No such context, or a file that cannot be written.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let path = super::file()?;
    let mut file = ContextFile::read(&path)?;
    file.choose(Some(&args.name))?;
    file.current = Some(args.name.clone());
    file.write(&path)?;
    ctx.output.one(&args.name, &serde_json::json!({"current": args.name}), &format!("{} is used from now on\n", args.name))?;
    Ok(Exit::Done)
}
