//! `login`: keeps an address and a token as a context, once the platform has said whom it stands for.

use super::whoami;
use crate::{
    call,
    context::{Context, ContextFile, NamedContext},
    output::{Exit, Failure},
};
use footplate_api::{Client, Target, json, v1};
use footplate_types::ProjectName;
use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

/// The longest token.
const TOKEN_MAX: u64 = 4_096;

const EXAMPLES: &str = "\
Examples:
  footplate login footplate.lab:443 --token-file ada.token
  printf %s \"$TOKEN\" | footplate login 10.0.0.7:7450 --as lab --default-project vision
  footplate login https://footplate.lab:7450 --ca lab-ca.pem --token-file ada.token";

/// Keep a platform's address and your token, and use them from now on
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address of the platform: host:port or a URL
    #[arg(value_name = "ADDR")]
    pub address: String,
    /// File with the token; else it is read from standard input, never from an argument that others see
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What the context is called; the address when not given
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// The project to work in where none is named
    #[arg(long, value_name = "PROJECT", value_parser = ProjectName::parse)]
    pub default_project: Option<ProjectName>,
}

/// Asks the platform whom the token stands for, and only then keeps it.
///
/// # Errors
/// A token that is not taken, no answer, or a file that cannot be written.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let token = token(&args)?;
    // From everywhere the same: the next command may stand in another folder.
    let ca = ctx.ca_given.as_ref().map(std::path::absolute).transpose()?;
    let target = Target::new(args.address.as_str()).token(&token).ca(ca.clone());
    ctx.note_if_readable(&target);
    let client = Client::connect(target)?;
    let who = call!(client, principals.who_am_i(v1::WhoAmIRequest {}))?;
    let path = super::context::file()?;
    let name = args.name.unwrap_or_else(|| args.address.clone());
    let mut file = ContextFile::read(&path)?;
    let context = NamedContext {
        addr: Some(args.address.clone()),
        project: args.default_project.map(|project| project.to_string()),
        token: Some(token),
        ca: ca.map(|file| file.display().to_string()),
        data: None,
    };
    file.contexts.insert(name.clone(), context);
    file.current = Some(name.clone());
    file.write(&path)?;
    let mut data = json::to_value(&who);
    if let Some(data) = data.as_object_mut() {
        data.insert("context".to_owned(), serde_json::Value::String(name.clone()));
    }
    let text = format!("{}kept as context {name}, and used from now on\n", whoami::text(&args.address, &who));
    ctx.output.one(&name, &data, &text)?;
    Ok(Exit::Done)
}

fn token(args: &Args) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match &args.token_file {
        Some(path) => {
            let opened = std::fs::File::open(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            opened.take(TOKEN_MAX).read_to_string(&mut text)
        }
        None if std::io::stdin().is_terminal() => {
            crate::output::tell("paste the token, then press Enter and Ctrl-D:");
            std::io::stdin().take(TOKEN_MAX).read_to_string(&mut text)
        }
        None => std::io::stdin().take(TOKEN_MAX).read_to_string(&mut text),
    };
    read.map_err(|error| Failure::usage(format!("the token cannot be read: {error}")))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::usage("no token was given; name its file with --token-file, or hand it to standard input"));
    }
    Ok(token.to_owned())
}
