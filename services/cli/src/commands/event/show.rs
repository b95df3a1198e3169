//! `event show`: one event whole.

use super::{data, trace_id};
use crate::{
    call,
    context::Context,
    output::{Exit, Failure},
};
use footplate_api::{reason, v1};
use footplate_types::EventId;
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  footplate event show 1042
  footplate event show 0190f3a2c4d27000a1b2c3d4e5f60718 -o json";

/// Show one event whole
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Sequence of the event in the ledger, or its id
    #[arg(value_name = "EVENT")]
    pub event: String,
}

/// Prints the event.
///
/// # Errors
/// No such event, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let asked = match (EventId::parse(&args.event), args.event.parse()) {
        (Ok(id), _) => v1::GetEventRequest { id: id.to_string(), ..v1::GetEventRequest::default() },
        (Err(_), Ok(sequence)) => v1::GetEventRequest { sequence, ..v1::GetEventRequest::default() },
        (Err(_), Err(_)) => return Err(Failure::usage(format!("{:?} is neither a ledger sequence nor an event id", args.event)).into()),
    };
    let client = ctx.client()?;
    // Whoever may see every project's events needs to name none; everyone else looks into the project that they work in.
    let event = match call!(client, events.get_event(asked.clone())) {
        Err(error) if error.reason == reason::PLATFORM_DENIED.word => {
            let project = client.project().to_owned();
            call!(client, events.get_event(v1::GetEventRequest { project, ..asked }))?
        }
        answered => answered?,
    };
    let data = data(&event);
    let mut lines = Vec::new();
    for (key, value) in [
        ("sequence", event.sequence.to_string()),
        ("id", event.id.clone()),
        ("type", event.r#type.clone()),
        ("subject", event.subject.clone()),
        ("project", event.project.clone()),
        ("source", event.source.clone()),
        ("time", event.time.clone()),
        ("recorded", event.recorded_at.clone()),
        ("actor", event.actor.clone()),
        ("correlation", event.correlation_id.clone()),
        ("causation", event.causation_id.clone()),
        ("trace", trace_id(&event).to_owned()),
    ] {
        if !value.is_empty() {
            lines.push(format!("{key:<12}{value}"));
        }
    }
    let payload: &Value = &data["data"];
    let text = format!("{}\n{}\n", lines.join("\n"), serde_json::to_string_pretty(payload)?);
    ctx.output.one(&event.sequence.to_string(), &data, &text)?;
    Ok(Exit::Done)
}
