//! Figures: what was measured, what it stands beside, and both as a table and as JSON. Judges nothing.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// What a figure is measured against.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Against {
    /// A limit, and the ratio to it that is wanted at least.
    AtLeast(f64),
    /// An upper bound.
    Below(f64),
    /// Nothing: it is shown.
    Nothing,
}

struct Row {
    what: String,
    ours: String,
    limit: String,
    ratio: String,
    wanted: String,
}

/// The figures of one run, in the order in which they were taken.
pub(crate) struct Figures {
    keys: Map<String, Value>,
    rows: Vec<Row>,
}

impl Figures {
    /// No figures yet; notes the machine and its load.
    pub(crate) fn of(program: &str) -> Self {
        let mut keys = Map::new();
        keys.insert("program".to_owned(), json!(program));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        keys.insert("cpus".to_owned(), json!(cpus));
        keys.insert("load_before".to_owned(), json!(load()));
        Self { keys, rows: Vec::new() }
    }

    /// A figure of ours beside the limit of the same run: keys `<name>_per_s`, `<name>_raw_per_s`, `<name>_ratio`.
    pub(crate) fn ratio(&mut self, name: &str, what: &str, ours: f64, raw: f64, against: Against) {
        let ratio = ours / raw;
        self.keys.insert(format!("{name}_per_s"), number(ours));
        self.keys.insert(format!("{name}_raw_per_s"), number(raw));
        self.keys.insert(format!("{name}_ratio"), number(ratio));
        let row = Row {
            what: what.to_owned(),
            ours: format!("{ours:.0}/s"),
            limit: format!("{raw:.0}/s"),
            ratio: format!("{ratio:.2}"),
            wanted: wanted(against),
        };
        self.rows.push(row);
    }

    /// A time in milliseconds under `key`.
    pub(crate) fn millis(&mut self, key: &str, what: &str, ms: f64, against: Against) {
        self.keys.insert(key.to_owned(), number(ms));
        let ratio = if let Against::Below(bound) = against { format!("{:.2}", ms / bound) } else { String::new() };
        let limit = if let Against::Below(bound) = against { format!("{bound:.0} ms") } else { String::new() };
        let row = Row { what: what.to_owned(), ours: format!("{ms:.1} ms"), limit, ratio, wanted: wanted(against) };
        self.rows.push(row);
    }

    /// A time in seconds under `key`, with an upper bound where there is one.
    pub(crate) fn seconds(&mut self, key: &str, what: &str, took: Duration, below_s: Option<f64>) {
        let s = took.as_secs_f64();
        self.keys.insert(key.to_owned(), number(s));
        let of_bound = |told: &dyn Fn(f64) -> String| below_s.map(told).unwrap_or_default();
        let row = Row {
            what: what.to_owned(),
            ours: format!("{s:.2} s"),
            limit: of_bound(&|bound| format!("{bound:.0} s")),
            ratio: of_bound(&|bound| format!("{:.2}", s / bound)),
            wanted: of_bound(&|bound| format!("< {bound:.0} s")),
        };
        self.rows.push(row);
    }

    /// A size in bytes under `key`.
    pub(crate) fn bytes(&mut self, key: &str, what: &str, bytes: u64) {
        self.keys.insert(key.to_owned(), json!(bytes));
        let empty = String::new;
        let ours = format!("{:.0} MiB", bytes as f64 / 1_048_576.0);
        self.rows.push(Row { what: what.to_owned(), ours, limit: empty(), ratio: empty(), wanted: empty() });
    }

    /// A part of a whole (0 to 1) under `key`.
    pub(crate) fn share(&mut self, key: &str, what: &str, share: f64) {
        self.keys.insert(key.to_owned(), number(share));
        let empty = String::new;
        let row = Row { what: what.to_owned(), ours: format!("{:.0} %", share * 100.0), limit: empty(), ratio: empty(), wanted: empty() };
        self.rows.push(row);
    }

    /// A plain number under `key`.
    pub(crate) fn count(&mut self, key: &str, count: u64) {
        self.keys.insert(key.to_owned(), json!(count));
    }

    /// A plain measurement under `key`, in JSON alone.
    pub(crate) fn plain(&mut self, key: &str, value: f64) {
        self.keys.insert(key.to_owned(), number(value));
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let head = Row {
            what: "what".to_owned(),
            ours: "ours".to_owned(),
            limit: "limit".to_owned(),
            ratio: "ratio".to_owned(),
            wanted: "wanted".to_owned(),
        };
        let wide = |column: fn(&Row) -> &str| {
            let rows = self.rows.iter().map(|row| column(row).chars().count());
            rows.chain([column(&head).len()]).max().unwrap_or_default()
        };
        let (what, ours, limit, ratio) = (wide(|row| &row.what), wide(|row| &row.ours), wide(|row| &row.limit), wide(|row| &row.ratio));
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            let Row { what: a, ours: b, limit: c, ratio: d, wanted: e } = row;
            let line = format!("{a:<what$}  {b:>ours$}  {c:>limit$}  {d:>ratio$}  {e}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let _ = writeln!(text, "load average {} before, {:.1} now", self.keys["load_before"], load());
        text
    }

    /// Writes all as one JSON object.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let mut keys = self.keys.clone();
        keys.insert("load_after".to_owned(), json!(load()));
        let text = serde_json::to_string_pretty(&Value::Object(keys))? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

fn wanted(against: Against) -> String {
    match against {
        Against::AtLeast(ratio) => format!(">= {ratio}"),
        Against::Below(bound) => format!("< {bound:.0} ms"),
        Against::Nothing => String::new(),
    }
}

fn number(value: f64) -> Value {
    json!((value * 1_000.0).round() / 1_000.0)
}

/// The load average of the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// The value below which the part `part` (0 to 1) of all lies; 0 of nothing.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1)) as f64 * part;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low), Some(high)) => low + (high - low) * at.fract(),
        _ => 0.0,
    }
}

/// The middle one.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[1.0, 2.0], 1.0), 2.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_ratio_has_three_keys_and_a_row() {
        let mut figures = Figures::of("test");
        figures.ratio("replay", "replay", 80.0, 100.0, Against::AtLeast(0.7));
        assert_eq!(figures.keys["replay_ratio"], json!(0.8));
        assert_eq!(figures.keys["replay_raw_per_s"], json!(100.0));
        assert!(figures.table().contains("0.80") && figures.table().contains(">= 0.7"));
    }
}
