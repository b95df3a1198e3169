//! The page: one HTML file that stands alone, with the figures and three charts of every policy.

use crate::chart::{Chart, Line, escaped};
use crate::outcome::{Outcome, Point, Spread};
use std::fmt::Write as _;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:800px;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}th,td{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}\
th:first-child,td:first-child{text-align:left}svg{width:100%;font-size:11px;fill:#444}svg .title{font-size:13px;font-weight:600}svg .grid{stroke:#e4e4e4}";

/// A length of time for people.
fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7_200.0 => format!("{:.1} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        seconds => format!("{:.1} d", seconds / 86_400.0),
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} %"))
}

fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &[String]| cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect::<String>();
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let mut text = format!("<table>\n<tr>{}</tr>\n", cells("th", &headings));
    for row in rows {
        let _ = writeln!(text, "<tr>{}</tr>", cells("td", row));
    }
    text + "</table>\n"
}

fn spread(spread: &Spread) -> [String; 4] {
    if spread.jobs == 0 {
        return ["-".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()];
    }
    [time(spread.mean_s), time(spread.p50_s), time(spread.p99_s), time(spread.max_s)]
}

/// The figures of all policies side by side.
fn summary(outcomes: &[Outcome]) -> String {
    let mut headings = vec![""];
    headings.extend(outcomes.iter().map(|outcome| outcome.policy.as_str()));
    let row = |name: &str, value: &dyn Fn(&Outcome) -> String| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(outcomes.iter().map(value)).collect()
    };
    let of_spread = |spread_of: &Spread| spread(spread_of).join(" / ");
    let rows = [
        row("jobs", &|outcome| outcome.jobs.to_string()),
        row("succeeded", &|outcome| outcome.succeeded.to_string()),
        row("ended by a limit", &|outcome| outcome.failed.to_string()),
        row("never started or ended", &|outcome| outcome.never.iter().map(|never| never.jobs).sum::<usize>().to_string()),
        row("GPUs in use", &|outcome| percent(outcome.gpus_percent)),
        row("slots in use", &|outcome| percent(outcome.slots_percent)),
        row("wait: mean / p50 / p99 / longest", &|outcome| of_spread(&outcome.wait)),
        row("completion: mean / p50 / p99 / longest", &|outcome| of_spread(&outcome.completion)),
        row("preemptions (of one job at most)", &|outcome| format!("{} ({})", outcome.preemptions, outcome.preemptions_of_one_max)),
        row("work done twice", &|outcome| format!("{:.1} unit-hours", outcome.lost_unit_s / 3_600.0)),
        row("from first to last", &|outcome| time(outcome.span_s)),
    ];
    table(&headings, &rows)
}

fn over_time(outcomes: &[Outcome], title: &str, up: &str, value: impl Fn(&Point) -> f64) -> String {
    let line = |outcome: &Outcome| Line {
        label: outcome.policy.clone(),
        points: outcome.series.iter().map(|point| (point.at_s / 3_600.0, value(point))).collect(),
    };
    Chart { title, across: "hours", up, lines: outcomes.iter().map(line).collect() }.svg()
}

fn waits(outcomes: &[Outcome]) -> String {
    let line = |outcome: &Outcome| Line {
        label: outcome.policy.clone(),
        points: outcome.wait_percentiles_s.iter().enumerate().map(|(percent, wait)| (wait / 60.0, percent as f64)).collect(),
    };
    Chart { title: "Waits", across: "minutes", up: "percent of jobs that waited no longer", lines: outcomes.iter().map(line).collect() }
        .svg()
}

fn details(outcome: &Outcome) -> String {
    let mut text = format!("<h2>{}</h2>\n", escaped(&outcome.policy));
    let stays = outcome.stays.iter().map(|stay| {
        let mut row = vec![format!("{}, {}", stay.queue, stay.size), stay.jobs.to_string()];
        row.extend(spread(&stay.wait));
        row.push(spread(&stay.completion)[0].clone());
        row
    });
    let headings = ["queue and size", "jobs", "wait: mean", "p50", "p99", "longest", "completion: mean"];
    text += &table(&headings, &stays.collect::<Vec<_>>());
    let uses = outcome.queues.iter().map(|held| {
        let hours = |hours: f64| format!("{hours:.1}");
        let entitled = hours(held.entitled_h);
        vec![held.queue.clone(), held.unit.to_owned(), hours(held.used_h), entitled, percent(held.percent), held.preempted.to_string()]
    });
    text += &table(&["queue", "of", "held (unit-hours)", "entitled", "held of entitled", "preempted"], &uses.collect::<Vec<_>>());
    if !outcome.never.is_empty() {
        let never = outcome.never.iter().map(|never| vec![never.reason.clone(), never.jobs.to_string(), never.example.clone()]);
        text += &table(&["never started or ended, because", "jobs", "such as"], &never.collect::<Vec<_>>());
    }
    text
}

/// A page of these outcomes: figures side by side, what was in use and how many waited over time, how waits are spread, and each policy in detail.
pub fn page(title: &str, outcomes: &[Outcome]) -> String {
    let title = escaped(title);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    text += &summary(outcomes);
    for (is_there, name, up, value) in [
        (outcomes.iter().any(|outcome| outcome.gpus_percent.is_some()), "GPUs in use", "GPUs", (|point| point.gpus) as fn(&Point) -> f64),
        (outcomes.iter().any(|outcome| outcome.slots_percent.is_some()), "Slots in use", "slots", |point| point.slots),
        (true, "Jobs that wait", "jobs", |point| point.pending),
    ] {
        if is_there {
            text += &over_time(outcomes, name, up, value);
        }
    }
    text += &waits(outcomes);
    outcomes.iter().for_each(|outcome| text += &details(outcome));
    text + "</body>\n</html>\n"
}
