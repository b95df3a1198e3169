//! Verbs of `job`: claims on compute.

pub mod decisions;
pub mod hold;
pub mod release;

use crate::{
    call,
    context::{Context, find_run_id},
    output::Exit,
};
use footplate_api::v1;
use std::time::Duration;

/// How long the leader may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Which request is made.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Hold,
    Release,
}

/// Asks for each job in turn.
async fn ask(ctx: &Context, runs: &[String], reason: &str, ask: Ask) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    for named in runs {
        let run_id = find_run_id(&client, named).await?;
        let message = v1::JobRequest {
            project: client.project().to_owned(),
            run_id: run_id.clone(),
            reason: reason.to_owned(),
            request_id: footplate_clock::request_id().to_string(),
            wait: true,
        };
        let (answer, word) = match ask {
            Ask::Hold => (call!(client, within ANSWER, jobs.hold_job(message))?, "held"),
            Ask::Release => (call!(client, within ANSWER, jobs.release_job(message))?, "released"),
        };
        super::run::cancel::answered(&run_id, &answer, word)?;
        ctx.output.one(&run_id, &serde_json::json!({"runId": run_id, "sequence": answer.sequence}), &format!("{run_id} {word}\n"))?;
    }
    Ok(Exit::Done)
}
