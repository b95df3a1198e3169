//! `sweep show`: a sweep, its best trial, and its trials.

use super::{get, point, tally, value};
use crate::{
    call,
    context::Context,
    output::{Column, Exit, render},
};
use footplate_api::{
    Client, json,
    v1::{self, Sweep, Trial},
};

const EXAMPLES: &str = "\
Examples:
  footplate sweep show 0190f3a2
  footplate sweep show 0190f3a2 -o json";

/// Trials that one call asks for.
const PAGE: u32 = 500;

/// Show a sweep, its best trial, and its trials.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Id of the sweep, or a unique prefix of it
    #[arg(value_name = "SWEEP")]
    pub sweep: String,
}

/// Prints it.
///
/// # Errors
/// No such sweep, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let sweep = get(&client, &args.sweep, 0).await?;
    let trials = trials(&client, &sweep.sweep_id).await?;
    let mut data = json::to_value(&sweep);
    if let Some(object) = data.as_object_mut() {
        object.insert("trialList".to_owned(), trials.iter().map(json::to_value).collect());
    }
    ctx.output.one(&sweep.sweep_id, &data, &text(&ctx, &sweep, &trials))?;
    Ok(Exit::Done)
}

async fn trials(client: &Client, sweep_id: &str) -> anyhow::Result<Vec<Trial>> {
    let mut trials = Vec::new();
    let mut page_token = String::new();
    loop {
        let project = client.project().to_owned();
        let asked = v1::ListTrialsRequest { project, sweep_id: sweep_id.to_owned(), page_size: PAGE, page_token, at_least: 0 };
        let page = call!(client, sweeps.list_trials(asked))?;
        trials.extend(page.trials);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(trials);
        }
    }
}

fn text(ctx: &Context, sweep: &Sweep, trials: &[Trial]) -> String {
    let spec = sweep.spec.clone().unwrap_or_default();
    let mut text = format!("{} ({}): {}\n", sweep.name, sweep.sweep_id, sweep.state);
    text.push_str(&format!("{} {} by {} search, seed {}\n", spec.direction, spec.metric, spec.sampler, spec.seed));
    text.push_str(&format!("{}, {} at once\n", tally(sweep), spec.parallel));
    if !sweep.stop_reason.is_empty() {
        text.push_str(&format!("stopped: {}\n", sweep.stop_reason));
    }
    if let Some(best) = &sweep.best {
        text.push_str(&format!("best: trial {}, run {}, {}: {}\n", best.number, best.run_id, value(best), point(best)));
    }
    if trials.is_empty() {
        return text;
    }
    let columns = [
        Column::whole("TRIAL"),
        Column::whole("RUN"),
        Column::whole("STATE"),
        Column::whole("VALUE"),
        Column::cut("PARAMS"),
        Column::cut("WHY"),
    ];
    let row = |trial: &Trial| {
        vec![trial.number.to_string(), trial.run_id.clone(), trial.state.clone(), value(trial), point(trial), trial.message.clone()]
    };
    let rows: Vec<Vec<String>> = trials.iter().map(row).collect();
    text.push('\n');
    text.push_str(&render(&columns, &rows, false, ctx.output.width, ctx.output.style));
    text
}
