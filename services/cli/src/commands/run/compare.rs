//! `run compare`: in what runs differ; with `--all`, also in what they agree.

use crate::{
    context::{Context, find_run},
    output::{Column, Exit, Row, tell},
    view,
};
use footplate_api::types::Run;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const EXAMPLES: &str = "\
Examples:
  footplate run compare 0190f3a2 0190f4b7
  footplate run compare --all -o json 0190f3a2 0190f4b7 0190f4c0";

/// Show in what runs differ.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids of two runs or more, or unique prefixes of them
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    pub runs: Vec<String>,
    /// Show what is equal as well
    #[arg(short, long)]
    pub all: bool,
}

/// Prints the differences.
///
/// # Errors
/// No such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let mut runs = Vec::new();
    for named in &args.runs {
        runs.push(find_run(&client, named).await?);
    }
    let letters = view::id_letters(runs.iter().map(|run| run.run_id.as_str()));
    let mut columns = vec![Column::cut("KEY")];
    columns.extend(runs.iter().map(|_| Column::cut("")));
    let heading = std::iter::once(String::new()).chain(runs.iter().map(|run| view::short(&run.run_id, letters))).collect();
    let mut rows = vec![Row { id: String::new(), cells: heading, data: Value::Null }];
    rows.extend(differences(&runs, args.all).into_iter().map(|(key, values)| {
        let data = json!({"key": key, "values": runs.iter().zip(&values).map(|(run, value)| (run.run_id.clone(), value.clone())).collect::<BTreeMap<_, _>>()});
        let cells = std::iter::once(key.clone()).chain(values.iter().map(|value| value.clone().unwrap_or_else(|| "-".to_owned()))).collect();
        Row { id: key, cells, data }
    }));
    if rows.len() == 1 {
        tell("they agree in everything that is compared (--all shows it)");
    }
    if ctx.output.quiet || !matches!(ctx.output.format, crate::output::Format::Table | crate::output::Format::Wide) {
        rows.remove(0);
    }
    ctx.output.list(&columns, rows)?;
    Ok(Exit::Done)
}

/// Every key with its value in each run, those in which all agree left out unless wanted.
fn differences(runs: &[Run], all: bool) -> Vec<(String, Vec<Option<String>>)> {
    let facts: Vec<BTreeMap<String, String>> = runs.iter().map(facts).collect();
    let keys: BTreeSet<&String> = facts.iter().flat_map(BTreeMap::keys).collect();
    let values = keys.into_iter().map(|key| (key.clone(), facts.iter().map(|facts| facts.get(key).cloned()).collect::<Vec<_>>()));
    values.filter(|(_, values)| all || values.iter().any(|value| *value != values[0])).collect()
}

/// What of a run is worth comparing: what went in, and what came out.
fn facts(run: &Run) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |key: String, value: String| {
        if !value.is_empty() {
            facts.insert(key, value);
        }
    };
    add("name".into(), run.name.clone());
    add("experiment".into(), run.experiment.clone());
    add("state".into(), view::standing(run).into());
    add("source.commit".into(), run.source_commit.clone());
    add("source.branch".into(), run.source_branch.clone());
    add("source.tree".into(), run.source_tree.clone());
    add("hypothesis".into(), run.hypothesis.clone());
    add("conclusion".into(), run.conclusion.clone());
    add("duration".into(), if run.duration_ms > 0 { view::lasted(run.duration_ms) } else { String::new() });
    add("attempts".into(), if run.attempts.is_empty() { String::new() } else { run.attempts.len().to_string() });
    for (key, value) in &run.params {
        add(format!("params.{key}"), value.json.clone());
    }
    for (key, value) in &run.tags {
        add(format!("tags.{key}"), value.clone());
    }
    for value in run.latest.iter().filter(|value| value.rank == 0) {
        add(format!("metrics.{}", value.name), view::number(value.value));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_api::types::ParamValue;

    fn run_with(lr: &str, tag: Option<&str>) -> Run {
        let mut run = Run { name: "x".into(), ..Run::default() };
        run.params.insert("lr".into(), ParamValue { json: lr.into(), ..ParamValue::default() });
        if let Some(tag) = tag {
            run.tags.insert("team".into(), tag.into());
        }
        run
    }

    #[test]
    fn only_what_differs_is_shown_unless_all_is_asked() {
        let runs = [run_with("0.1", Some("vision")), run_with("0.2", None)];
        let keys = |all| differences(&runs, all).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys(false), ["params.lr", "tags.team"]);
        assert!(keys(true).contains(&"name".to_owned()));
        assert_eq!(differences(&runs, false)[1].1, [Some("vision".to_owned()), None]);
    }
}
