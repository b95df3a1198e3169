//! `node token`: the file that a node joins with.

use crate::{
    context::Context,
    output::{Exit, Failure, SecretFile, print, tell},
    platform::join::Join,
};
use footplate_api::v1;
use footplate_types::{Millis, NodeName};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  footplate node token gpu-1 --out gpu-1.join
  footplate node token gpu-1 --nats nats://broker.lab:4222 --api footplate.lab:443 --out gpu-1.join

On the node: footplate agent --join gpu-1.join. To shut it out: footplate token list --for node:gpu-1, footplate token revoke ID.";

/// Make the file that a node joins with: its token and its credentials of the broker, told once
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The node's name: a-z, 0-9 and -
    #[arg(value_name = "NODE", value_parser = NodeName::parse)]
    pub node: NodeName,
    /// File to write, for your eyes alone; else standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Address of the platform, as the node reaches it; else as you do
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// Address of the broker, as the node reaches it; else as the platform does
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// When both end, from now, such as 90d; never when not given
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse)]
    pub expires: Option<Millis>,
}

/// Makes it.
///
/// # Errors
/// A refusal, a file that cannot be written, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let file = args.out.as_deref().map(SecretFile::reserve).transpose()?;
    let asked = v1::CreateNodeTokenRequest {
        node: args.node.to_string(),
        label: "joins".to_owned(),
        expires_in_s: args.expires.map_or(0, |span| span.0.div_ceil(1_000)),
    };
    // Asked once alone: a repeat would be another token.
    let made = client.once(client.tokens().create_node_token(asked)).await?;
    let nats = args.nats.or_else(|| Some(made.broker_address.clone()).filter(|address| !address.is_empty()));
    let join = Join {
        node: args.node.to_string(),
        api: args.api.unwrap_or_else(|| ctx.addr.clone()),
        nats: nats.ok_or_else(|| Failure::usage("the platform does not say where its broker is; name it with --nats"))?,
        token: made.secret,
        credentials: made.broker_credentials,
        authorities: ctx.authorities()?,
    };
    if join.credentials.is_empty() {
        ctx.note(
            "note: this platform issues no credentials of its broker; the agent needs what its broker wants (nats.user, nats.password)",
        );
    }
    let text = join.to_text().map_err(|error| Failure::new(Exit::Failed, error))?;
    match (file, &args.out) {
        (None, _) | (_, None) => {
            print(&text)?;
            tell(format!("token {} of node:{}", made.id, args.node));
        }
        (Some(file), Some(path)) => {
            file.keep(&text)?;
            let data =
                serde_json::json!({"node": args.node, "token": made.id, "file": path.display().to_string(), "expiresAt": made.expires_at});
            ctx.output.one(
                &made.id,
                &data,
                &format!("{} is in {}; on the node: footplate agent --join FILE\n", args.node, path.display()),
            )?;
        }
    }
    Ok(Exit::Done)
}
