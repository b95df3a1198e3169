//! `gate`: whether a run's metrics are good enough for a pipeline to go on; the exit code says so.

mod conditions;
mod verdict;

use crate::{
    args::RunArg,
    call,
    context::{Context, find_run, find_run_id},
    output::{Column, Exit, Failure, render, tell},
    told, view,
    waiting::{Wait, wait},
};
use conditions::{Baseline, Bound, Condition, Conditions};
use footplate_api::{
    ApiError, Client,
    refusal::Kind,
    types::{Outcome, Run, RunState},
    v1,
};
use footplate_types::Millis;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use verdict::{Leave, Verdict, Wanted, value_of};

const EXAMPLES: &str = "\
Examples:
  footplate gate 0190f3a2 --metric val/acc --min 0.93
  footplate gate 0190f3a2 --wait --timeout 2h --metric val/acc --min 0.9 --metric val/loss --max 0.35
  footplate gate 0190f3a2 --metric val/acc --of best --direction maximize --baseline 0190e7c1 --margin 0.005
  footplate gate 0190f3a2 --metric val/acc --direction maximize --baseline models:/digits@champion -o json

All conditions are checked and shown. Exit codes: 0 every one is met; 9 everything could be told, and one falls short; 3 a metric, a run, a
model or an alias is not there; 4 a metric is not a finite number, or a run is not sealed or incomplete; 6 the time-out came first; 7 the run
failed, 8 it was cancelled. A code that says that something could not be told goes before 9.";

/// Say whether a run's metrics are good enough: against numbers, runs, models
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The run
    #[command(flatten)]
    pub run: RunArg,
    /// The conditions
    #[command(flatten)]
    pub conditions: Conditions,
    /// Wait until the run and its baselines are sealed; otherwise one that is not sealed is refused
    #[arg(short, long)]
    pub wait: bool,
    /// With --wait: give up after this long
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse, requires = "wait")]
    pub timeout: Option<Millis>,
    /// Take runs that failed or were cancelled
    #[arg(long)]
    pub allow_failed: bool,
    /// Take runs whose record is incomplete
    #[arg(long)]
    pub allow_incomplete: bool,
}

/// Checks every condition and prints each.
///
/// # Errors
/// The run is not there, not sealed, failed or incomplete, conditions that do not fit together, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let conditions = args.conditions.each()?;
    let client = ctx.client()?;
    let leave = Leave { failed: args.allow_failed, incomplete: args.allow_incomplete };
    let sealing = Sealing { wait: args.wait, timeout: args.timeout.map(Millis::duration), began: Instant::now() };
    let run = sealing.run(&ctx, &client, &args.run.run).await?;
    if let Err(refusal) = leave.check(&run) {
        // A run that went wrong ends as waiting for it does.
        let went_wrong = run.state() == RunState::Sealed && !leave.failed && run.outcome() != Outcome::Succeeded;
        let exit = if went_wrong { view::exit_of(&run) } else { refusal.exit() };
        return Err(Failure::new(exit, told(&refusal)).into());
    }
    // Each baseline is looked up once: an alias that moves meanwhile means one run here.
    let mut known: Vec<(&Baseline, Found)> = Vec::new();
    let mut judged = Vec::new();
    for condition in &conditions {
        let found = match &condition.bound {
            Bound::Number(_) => None,
            Bound::Baseline { baseline, .. } => match known.iter().find(|(named, _)| *named == baseline) {
                Some((_, found)) => Some(found.clone()),
                None => {
                    let found = Arc::new(compared(&ctx, &client, baseline, sealing, leave).await?);
                    known.push((baseline, found.clone()));
                    Some(found)
                }
            },
        };
        judged.push(judge(&run, condition, found));
    }
    show(&ctx, &run, &judged)?;
    Ok(Verdict::worst(judged.iter().map(Judged::verdict)).exit())
}

/// How a run that is not sealed yet is met.
#[derive(Clone, Copy)]
struct Sealing {
    wait: bool,
    timeout: Option<Duration>,
    began: Instant,
}

impl Sealing {
    async fn run(self, ctx: &Context, client: &Client, named: &str) -> anyhow::Result<Run> {
        if !self.wait {
            return find_run(client, named).await;
        }
        let run_id = find_run_id(client, named).await?;
        let timeout = self.timeout.map(|timeout| timeout.saturating_sub(self.began.elapsed()));
        wait(ctx, client, &run_id, Wait { ended_is_enough: false, timeout }).await
    }
}

/// The run of a baseline, and the model's version that led to it.
struct Compared {
    run: Run,
    version: Option<v1::ModelVersion>,
}

/// A baseline that was looked up, or why it cannot be compared with.
type Found = Arc<Result<Compared, ApiError>>;

/// Finds the run of a baseline. That there is none, or none that counts, is told with its condition; that the platform does not answer ends
/// everything.
async fn compared(
    ctx: &Context,
    client: &Client,
    baseline: &Baseline,
    sealing: Sealing,
    leave: Leave,
) -> anyhow::Result<Result<Compared, ApiError>> {
    let found = async {
        let version = match baseline {
            Baseline::Run(_) => None,
            Baseline::Model(uri) => {
                let asked = v1::ResolveModelRequest { project: client.project().to_owned(), uri: uri.to_string(), at_least: 0 };
                Some(call!(client, registry.resolve_model(asked))?.version.unwrap_or_default())
            }
        };
        let named = match (&version, baseline) {
            (Some(version), _) => version.run_id.clone(),
            (None, named) => named.to_string(),
        };
        let run = sealing.run(ctx, client, &named).await?;
        leave.check(&run)?;
        anyhow::Ok(Compared { run, version })
    };
    match found.await {
        Ok(found) => Ok(Ok(found)),
        Err(error) => match error.downcast::<ApiError>() {
            Ok(error) if matches!(error.kind, Kind::NotFound | Kind::Conflict | Kind::Invalid) => Ok(Err(error)),
            Ok(error) => Err(error.into()),
            Err(error) => Err(error),
        },
    }
}

/// A condition with everything that is known of it.
struct Judged<'a> {
    condition: &'a Condition,
    value: Option<f64>,
    found: Option<Found>,
    wanted: Option<Wanted>,
    /// Why it cannot be told.
    unknown: Option<ApiError>,
}

impl Judged<'_> {
    /// What it is compared with, where that was found.
    fn baseline(&self) -> Option<&Compared> {
        self.found.as_deref().and_then(|found| found.as_ref().ok())
    }

    fn verdict(&self) -> Verdict {
        match (&self.unknown, self.value, self.wanted) {
            (Some(error), ..) => Verdict::Unknown(error.exit()),
            (None, Some(value), Some(wanted)) if wanted.is_met_by(value) => Verdict::Passed,
            (None, ..) => Verdict::FallsShort,
        }
    }
}

fn judge<'a>(run: &Run, condition: &'a Condition, found: Option<Found>) -> Judged<'a> {
    let of_run = |run: &Run| value_of(run, condition.metric.as_str(), condition.of, condition.direction);
    let wanted = match (&condition.bound, found.as_deref()) {
        (Bound::Number(wanted), _) => Ok(Some(*wanted)),
        (Bound::Baseline { side, margin, .. }, Some(Ok(found))) => {
            of_run(&found.run).map(|limit| Some(Wanted { side: *side, limit, margin: *margin }))
        }
        (Bound::Baseline { .. }, Some(Err(error))) => Err(error.clone()),
        (Bound::Baseline { .. }, None) => Ok(None),
    };
    let (value, wanted, unknown) = match (of_run(run), wanted) {
        (Ok(value), Ok(wanted)) => (Some(value), wanted, None),
        (Err(error), wanted) => (None, wanted.ok().flatten(), Some(error)),
        (Ok(value), Err(error)) => (Some(value), None, Some(error)),
    };
    Judged { condition, value, found, wanted, unknown }
}

fn show(ctx: &Context, run: &Run, judged: &[Judged<'_>]) -> std::io::Result<()> {
    let columns = [
        Column::cut("METRIC"),
        Column::whole("VALUE"),
        Column::whole("WANTED"),
        Column::whole("VERDICT"),
        Column::cut("BASELINE"),
        Column::whole("OF").wide(),
    ];
    let cells: Vec<Vec<String>> = judged.iter().map(cells).collect();
    let text = render(&columns, &cells, ctx.output.format == crate::output::Format::Wide, ctx.output.width, ctx.output.style);
    let verdict = Verdict::worst(judged.iter().map(Judged::verdict));
    let data = json!({"runId": run.run_id, "verdict": verdict.key(), "conditions": judged.iter().map(data).collect::<Vec<_>>()});
    ctx.output.one(&run.run_id, &data, &text)?;
    for (index, one) in judged.iter().enumerate() {
        if let Some(error) = &one.unknown
            && judged[..index].iter().all(|earlier| earlier.unknown.as_ref() != Some(error))
        {
            tell(format!("footplate: {}", told(error)));
        }
        if one.baseline().is_some_and(|baseline| baseline.run.run_id == run.run_id) {
            ctx.note(format!("note: {} is compared with the run itself", one.condition.metric));
        }
    }
    Ok(())
}

/// Numbers to their last digit: a rounded one could belie the verdict beside it.
fn cells(judged: &Judged<'_>) -> Vec<String> {
    let none = || "-".to_owned();
    let baseline = match (&judged.condition.bound, judged.baseline()) {
        (Bound::Number(_), _) => String::new(),
        (Bound::Baseline { baseline, .. }, None) => baseline.to_string(),
        (Bound::Baseline { baseline, .. }, Some(found)) => {
            let value = judged.wanted.map_or_else(none, |wanted| wanted.limit.to_string());
            let version = found.version.as_ref().map(|version| format!(" ({baseline}: version {})", version.version)).unwrap_or_default();
            format!("{value} of {}{version}", found.run.run_id)
        }
    };
    vec![
        judged.condition.metric.to_string(),
        judged.value.map_or_else(none, |value| value.to_string()),
        judged.wanted.map_or_else(none, |wanted| wanted.to_string()),
        judged.verdict().word().to_owned(),
        baseline,
        judged.condition.of.word().to_owned(),
    ]
}

fn data(judged: &Judged<'_>) -> Value {
    let Condition { metric, of, direction, bound } = judged.condition;
    let (side, margin, baseline) = match bound {
        Bound::Number(wanted) => (wanted.side, wanted.margin, None),
        Bound::Baseline { baseline, side, margin } => (*side, *margin, Some(baseline)),
    };
    let limit = judged.wanted.map(|wanted| wanted.limit);
    let version = judged.baseline().and_then(|found| found.version.as_ref());
    json!({
        "metric": metric.as_str(),
        "of": of.word(),
        "direction": direction.map(conditions::Direction::word),
        "value": judged.value,
        "wanted": {"is": side.word(), "limit": limit, "margin": margin},
        "verdict": judged.verdict().key(),
        "baseline": baseline.map(|named| json!({
            "named": named.to_string(),
            "runId": judged.baseline().map(|found| found.run.run_id.as_str()),
            "model": version.map(|version| version.model.as_str()),
            "version": version.map(|version| version.version),
            "value": limit,
        })),
        "refusal": judged.unknown.as_ref().map(|error| json!({
            "reason": error.reason, "message": error.message, "field": error.field, "value": error.value, "allowed": error.allowed, "next": error.advice,
        })),
    })
}
