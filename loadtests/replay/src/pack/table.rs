//! The table: ours beside the published, and the paper's policies as replayed here beside the same.

use super::published::{self, FGD_FRAGMENTED, POLICIES};
use super::replay::{ARRIVED_PERCENT, Past};
use crate::report::Report;
use serde_json::json;
use std::time::Duration;

/// The rows as they come.
pub(super) struct Table<'a> {
    report: &'a mut Report,
    published: &'a published::Table,
    compared: u32,
    above: u32,
    absent: Vec<String>,
    off_most: f64,
    /// Decisions a second of every run, and how long each decision took.
    rates: Vec<f64>,
    decisions: Vec<Duration>,
    learned_in: Duration,
}

impl<'a> Table<'a> {
    /// An empty table.
    pub(super) fn new(report: &'a mut Report, published: &'a published::Table) -> Self {
        report.line(format!(
            "allocated GPUs in percent when {ARRIVED_PERCENT} % had been asked for; published, and in brackets as replayed here"
        ));
        report.line(format!("{:12}{:>16}{:>18}{:>18}{:>18}{:>8}", "", "ours", "Random", "BestFit", "FGD", "-FGD"));
        let (absent, rates, decisions) = (Vec::new(), Vec::new(), Vec::new());
        Self { report, published, compared: 0, above: 0, absent, off_most: 0.0, rates, decisions, learned_in: Duration::ZERO }
    }

    /// A variant whose trace is not there.
    pub(super) fn absent(&mut self, variant: &str) {
        self.absent.push(variant.to_owned());
    }

    /// A variant: our runs, how long was learned, and the paper's policies replayed here.
    pub(super) fn variant(&mut self, variant: &str, ours: &[Past], learned_in: Duration, beside: &[(&str, Vec<Past>)]) {
        let (mean, deviation) = allocated(ours);
        let mut line = format!("{variant:12}{:>16}", format!("{mean:.2} ± {deviation:.2}"));
        self.report.number(format!("{variant}_allocated_percent"), mean);
        self.report.number(format!("{variant}_allocated_deviation"), deviation);
        for (policy, _) in POLICIES {
            let published = self.published.allocated(variant, policy);
            let replayed = beside.iter().find(|(name, _)| *name == policy).map(|(_, pasts)| allocated(pasts).0);
            let shown = published.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.2}"));
            line += &format!("{:>18}", format!("{shown}{}", replayed.map_or_else(String::new, |figure| format!(" ({figure:.2})"))));
            if let Some(figure) = replayed {
                self.report.number(format!("{variant}_{policy}_allocated_percent"), figure);
            }
            if let (Some(published), Some(replayed)) = (published, replayed) {
                self.off_most = self.off_most.max((published - replayed).abs());
            }
        }
        if let Some(fgd) = self.published.allocated(variant, "fgd") {
            self.report.number(format!("{variant}_fgd_published"), fgd);
            self.compared += 1;
            self.above += u32::from(mean > fgd);
            line += &format!("{:>+8.2}", mean - fgd);
        }
        self.report.line(line);
        let wrongly: u32 = ours.iter().map(|past| past.refused_wrongly).sum();
        self.report.must(wrongly == 0, format!("{variant}: {wrongly} pods were refused though there was room"));
        if variant == "default" {
            self.fragmented(ours);
        }
        let rate = |past: &Past| past.took.len() as f64 / past.took.iter().sum::<Duration>().as_secs_f64().max(1e-9);
        self.rates.extend(ours.iter().map(rate));
        self.decisions.extend(ours.iter().flat_map(|past| &past.took));
        self.learned_in = self.learned_in.max(learned_in);
    }

    fn fragmented(&mut self, ours: &[Past]) {
        let mut line = "  fragmented GPUs in percent, in brackets FGD as published:".to_owned();
        for (percent, fgd) in FGD_FRAGMENTED {
            let figure = ours.iter().map(|past| past.fragmented(percent)).sum::<f64>() / ours.len() as f64;
            self.report.number(format!("frag_{percent}"), figure);
            line += &format!(" at {percent} %: {figure:.2} ({fgd:.2})");
        }
        self.report.line(line);
    }

    /// The last lines.
    pub(super) fn end(mut self) {
        let of_table = self.published.variants().len();
        self.report.key("variants_published", json!(of_table));
        self.report.key("variants_compared", json!(self.compared));
        self.report.key("variants_above_fgd", json!(self.above));
        self.report.key("variants_above_fgd_all", json!(self.compared > 0 && self.above == self.compared));
        self.report.key("variants_absent", json!(self.absent));
        self.report.line(format!("above FGD on {} of {} variants ({of_table} are published)", self.above, self.compared));
        if !self.absent.is_empty() {
            self.report.line(format!("not in the folder: {}", self.absent.join(", ")));
        }
        if self.off_most > 0.0 {
            self.report.number("calibration_off_most", self.off_most);
            self.report
                .line(format!("the paper's policies as replayed here are at most {:.2} points off what is published", self.off_most));
        }
        self.decisions.sort_unstable();
        self.rates.sort_unstable_by(f64::total_cmp);
        let p99 = self.decisions.get(self.decisions.len() * 99 / 100);
        // Of the runs the median: on a busy machine some are stopped in the middle.
        if let (Some(p99), Some(per_s)) = (p99, self.rates.get(self.rates.len() / 2)) {
            let (p99_us, learned) = (p99.as_secs_f64() * 1e6, self.learned_in.as_secs_f64());
            self.report.number("decisions_per_s", *per_s);
            self.report.number("decision_p99_us", p99_us);
            self.report.number("learn_s", learned);
            self.report.line(format!("{per_s:.0} decisions/s, p99 {p99_us:.1} µs; prices of a variant learned in at most {learned:.1} s"));
        }
    }
}

/// The mean over runs, and the deviation between them.
fn allocated(pasts: &[Past]) -> (f64, f64) {
    let figures: Vec<f64> = pasts.iter().map(|past| past.allocated(ARRIVED_PERCENT)).collect();
    let mean = figures.iter().sum::<f64>() / figures.len() as f64;
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    (mean, (squares / (figures.len() as f64 - 1.0).max(1.0)).sqrt())
}
