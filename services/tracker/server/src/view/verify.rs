//! The proof that the view can be rebuilt: file and memory at one position, against a shadow copy built from the ledger alone up to there.

use super::{Row, Rows, State, Table, View};
use footplate_api::Refusal;
use footplate_es::Evolve;
use footplate_eventlog::{LedgerItem, ReadError};
use footplate_shell::away;
use footplate_types::Digest;
use std::time::{Duration, Instant};

/// Events read at a time while rebuilding.
const PAGE: usize = 1_000;

/// The comparison of one table.
#[derive(Clone, Debug)]
pub(crate) struct ViewReport {
    /// The table.
    pub view: &'static str,
    /// The sequence at which it was compared.
    pub sequence: u64,
    /// Digest of the living rows.
    pub living: Digest,
    /// Digest of the rebuilt rows.
    pub rebuilt: Digest,
    /// The first difference, in words; empty when equal.
    pub difference: String,
    /// How many events the rebuilding folded.
    pub events: u64,
    /// How long it took.
    pub took: Duration,
}

/// Waits until the view stands at `at_least` (the ledger's end when 0) and compares it, table by table, with one rebuilt from the ledger.
pub(crate) async fn verify(view: &View, at_least: u64) -> Result<Vec<ViewReport>, Refusal> {
    if at_least == 0 {
        view.catch_up().await?
    } else {
        view.at_least(at_least).await?
    }
    let folding = view.folding.lock().await;
    let sequence = view.live.position();
    let file = view.file.clone();
    let filed = tokio::task::spawn_blocking(move || file.rows()).await.map_err(Refusal::internal)?.map_err(Refusal::internal)?;
    let served = rows_of(&view.live.read())?;
    drop(folding);
    // Elapsed time is shown, never decided upon.
    let began = Instant::now();
    let (shadow, events) = rebuild(view, sequence).await.map_err(away)?;
    let rebuilt = rows_of(&shadow)?;
    let took = began.elapsed();
    let report = |table: Table| {
        let of = |rows: &'static str, all: &Rows| (rows, all.get(&table).cloned().unwrap_or_default());
        let (filed, served, rebuilt) = (of("file", &filed), of("served", &served), of("rebuilt", &rebuilt));
        let difference = first_difference(&filed, &rebuilt).or_else(|| first_difference(&served, &rebuilt)).unwrap_or_default();
        let (living, rebuilt) = (digest(&filed.1), digest(&rebuilt.1));
        ViewReport { view: table.as_str(), sequence, living, rebuilt, difference, events, took }
    };
    Ok(Table::ALL.map(report).to_vec())
}

fn rows_of(state: &State) -> Result<Rows, Refusal> {
    Table::ALL.into_iter().map(|table| state.rows(table).map(|rows| (table, rows)).map_err(Refusal::internal)).collect()
}

async fn rebuild(view: &View, sequence: u64) -> Result<(State, u64), ReadError> {
    let mut shadow = State::default();
    let mut events = 0;
    let mut from = Some(1);
    while let Some(next) = from.filter(|next| *next <= sequence) {
        let (items, more) = view.ledger.read("fp.ledger.>", next, PAGE).await?;
        for item in &items {
            if let LedgerItem::Fact(recorded) = item
                && recorded.sequence <= sequence
            {
                shadow.evolve(recorded);
                events += 1;
            }
        }
        from = more;
    }
    Ok((shadow, events))
}

fn digest(rows: &[Row]) -> Digest {
    let mut text = String::new();
    for row in rows {
        for part in [&row.project, &row.id, &row.name, &row.document] {
            text.push_str(&format!("{}:{part}", part.len()));
        }
    }
    Digest::of(text.as_bytes())
}

/// The first row that differs, named with what each side has.
fn first_difference(one: &(&str, Vec<Row>), other: &(&str, Vec<Row>)) -> Option<String> {
    let ((one_name, one), (other_name, other)) = (one, other);
    for at in 0..one.len().max(other.len()) {
        match (one.get(at), other.get(at)) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) if (&a.project, &a.id, &a.name) == (&b.project, &b.id, &b.name) => {
                let (a_text, b_text) = around_difference(&a.document, &b.document);
                return Some(format!("{}: {one_name} has ...{a_text}..., {other_name} has ...{b_text}...", key_of(a)));
            }
            (Some(a), Some(b)) if a < b => return Some(format!("{}: only {one_name} has it", key_of(a))),
            (_, Some(b)) => return Some(format!("{}: only {other_name} has it", key_of(b))),
            (Some(a), None) => return Some(format!("{}: only {one_name} has it", key_of(a))),
            (None, None) => return None,
        }
    }
    None
}

fn key_of(row: &Row) -> String {
    let name = if row.name.is_empty() { String::new() } else { format!(" {}", row.name) };
    format!("{}/{}{name}", row.project, row.id)
}

/// At most 120 characters of each text from shortly before the first difference.
fn around_difference(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let part = |text: &str| text.chars().skip(same.saturating_sub(40)).take(120).collect::<String>();
    (part(one), part(other))
}
