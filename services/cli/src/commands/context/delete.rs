//! `context delete`.

use crate::{
    context::{Context, ContextFile},
    output::Exit,
};

const EXAMPLES: &str = "\
Examples:
  footplate context delete lab";

/// Forget a context and the token in it; the token itself is revoked with `token revoke`
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
    file.contexts.remove(&args.name);
    file.current = file.current.filter(|current| *current != args.name);
    file.write(&path)?;
    ctx.output.one(&args.name, &serde_json::json!({"deleted": args.name}), &format!("{} is forgotten\n", args.name))?;
    Ok(Exit::Done)
}
