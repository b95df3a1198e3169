//! `token create`: tells a token once.

use crate::{
    context::Context,
    output::{Exit, Failure, SecretFile},
};
use footplate_api::{json, v1};
use footplate_types::{Millis, PrincipalId, ProjectName, Role};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate token create --label laptop --expires 90d
  footplate token create --for service:vision:ci --only vision --role member --out ci.token
  FOOTPLATE_TOKEN=$(footplate token create -q --role viewer --expires 1h) footplate run list";

/// Make a token, for yourself or for a program; it is told once
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Whom it stands for: user:NAME, service:NAME or service:PROJECT:NAME; yourself when not given
    #[arg(long = "for", value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub principal: Option<PrincipalId>,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub label: String,
    /// When it ends, from now, such as 12h or 90d; never when not given
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse)]
    pub expires: Option<Millis>,
    /// The one project that it is good for
    #[arg(long, value_name = "PROJECT", value_parser = ProjectName::parse)]
    pub only: Option<ProjectName>,
    /// The most that it may: viewer, member, approver or admin
    #[arg(long, value_name = "ROLE", value_parser = Role::parse)]
    pub role: Option<Role>,
    /// Write it to this file, which only you may read, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Makes it, and tells it.
///
/// # Errors
/// A refusal, a file that cannot be written, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let seconds = args.expires.map_or(0, |span| span.0.div_ceil(1_000));
    if args.expires.is_some() && seconds == 0 {
        return Err(Failure::usage("--expires takes a time to come, such as 12h").into());
    }
    // The file first: a token that cannot be kept is not made.
    let file = args.out.as_deref().map(SecretFile::reserve).transpose()?;
    let asked = v1::CreateTokenRequest {
        principal: args.principal.map(|principal| principal.to_string()).unwrap_or_default(),
        label: args.label,
        project: args.only.map(|project| project.to_string()).unwrap_or_default(),
        role: args.role.map(|role| role.to_string()).unwrap_or_default(),
        expires_in_s: seconds,
        // Without a request id it is asked once alone: the answer to a repeat could not tell the token again.
        request_id: String::new(),
    };
    let client = ctx.client()?;
    let made = client.once(client.tokens().create_token(asked)).await?;
    let mut data = json::to_value(&made);
    let until = if made.expires_at.is_empty() { "without an end".to_owned() } else { format!("until {}", made.expires_at) };
    if let (Some(file), Some(path)) = (file, &args.out) {
        file.keep(&format!("{}\n", made.secret))?;
        if let Some(data) = data.as_object_mut() {
            data.insert("secret".to_owned(), serde_json::Value::Null);
        }
        let text = format!("token {} for {}, {until}, is in {}\n", &made.id, made.principal, path.display());
        ctx.output.one(&made.id, &data, &text)?;
        return Ok(Exit::Done);
    }
    ctx.note(format!("token {} for {}, {until}; it is told here and never again", made.id, made.principal));
    ctx.output.one(&made.secret, &data, &format!("{}\n", made.secret))?;
    Ok(Exit::Done)
}
