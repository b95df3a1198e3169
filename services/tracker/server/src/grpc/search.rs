//! ListRuns: filter, order, page, and remarks on names that no run has.

use super::convert::run_out;
use super::page_size;
use crate::metrics::{Reads, Searchable};
use crate::view::View;
use footplate_api::v1::{ListRunsRequest, ListRunsResponse};
use footplate_api::{Refusal, reason};
use footplate_events::facts::ParamValue;
use footplate_tracker_core::Run;
use footplate_tracker_core::search::{
    self, Field, Filter, Known, OrderBy, QueryError, Row as _, RunRow, matches, needs_metrics, notes, parse_filter, parse_order,
};
use footplate_types::{DisplayName, ExperimentId, ProjectName, RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Runs of a page when nothing is asked.
const PAGE_DEFAULT: usize = 50;

/// What a search reads.
pub(super) struct Search<'a> {
    pub(super) view: &'a View,
    pub(super) reads: &'a Reads,
    pub(super) now: Timestamp,
}

/// A question that was understood.
struct Question {
    filter: Filter,
    order: Vec<OrderBy>,
}

impl Question {
    fn read(request: &ListRunsRequest) -> Result<Self, Refusal> {
        let refused = |field: &'static str| move |error: QueryError| invalid(field, &error);
        let filter = parse_filter(&request.filter).map_err(refused("filter"))?;
        let order = parse_order(&request.order_by).map_err(refused("order_by"))?;
        Ok(Self { filter, order })
    }

    fn fields(&self) -> Vec<&Field> {
        self.filter.fields().into_iter().chain(self.order.iter().map(|by| &by.field)).collect()
    }
}

fn invalid(field: &str, error: &QueryError) -> Refusal {
    let refusal = Refusal::new(&reason::INVALID_FILTER, format!("{field}: {error}"));
    refusal.field(field).value(&error.found).allowed(error.allowed.clone())
}

impl Search<'_> {
    pub(super) async fn list(&self, project: &ProjectName, request: &ListRunsRequest) -> Result<ListRunsResponse, Refusal> {
        let question = Question::read(request)?;
        let (candidates, parents, view_sequence) = self.candidates(project, &request.experiment)?;
        let metrics = self.metrics(&question, &candidates, &parents).await?;
        let row = |run: &'_ Arc<Run>| -> (Arc<Run>, Option<Arc<Run>>) {
            (run.clone(), run.parent().and_then(|parent| parents.get(&parent)).cloned())
        };
        let mut found: Vec<(Arc<Run>, Option<Arc<Run>>)> =
            candidates.iter().map(row).filter(|(run, parent)| matches(&question.filter, &self.row(run, parent, &metrics))).collect();
        found.sort_by(|(a, a_parent), (b, b_parent)| {
            let by_question = search::compare(&question.order, &self.row(a, a_parent, &metrics), &self.row(b, b_parent, &metrics));
            by_question.then_with(|| b.created_at.cmp(&a.created_at)).then_with(|| b.id.cmp(&a.id))
        });
        let from = start(&found, &request.page_token)?;
        let size = page_size(request.page_size, PAGE_DEFAULT);
        let page: Vec<Arc<Run>> = found.iter().skip(from).take(size).map(|(run, _)| run.clone()).collect();
        let more = found.len() > from + page.len();
        let next_page_token = page.last().filter(|_| more).map_or_else(String::new, |last| last.id.to_string());
        let latest = self.reads.searchable(self.reads.shown_of(page.iter().map(|run| run.id).collect()).await?);
        let runs = page.iter().map(|run| run_out(run, latest.of(run.id), self.now)).collect();
        let notes = self.notes(&question, &parents, &metrics);
        Ok(ListRunsResponse { runs, next_page_token, notes, view_sequence })
    }

    /// Remarks on names that no run of the project has; the names are gathered only when there is one.
    fn notes(&self, question: &Question, runs: &BTreeMap<RunId, Arc<Run>>, metrics: &Searchable) -> Vec<String> {
        let is_known = |field: &Field| {
            let field = match field {
                Field::Parent(inner) => inner,
                field => field,
            };
            runs.values().any(|run| self.row(run, &None, metrics).is_present(field))
        };
        let named = |field: &&Field| !matches!(field, Field::Own(_));
        let unknown: Vec<&Field> = question.fields().into_iter().filter(named).filter(|field| !is_known(field)).collect();
        if unknown.is_empty() { Vec::new() } else { notes(unknown, &known(runs, metrics)) }
    }

    fn row<'r>(&self, run: &'r Arc<Run>, parent: &'r Option<Arc<Run>>, metrics: &'r Searchable) -> RunRow<'r, Searchable> {
        RunRow { run, parent: parent.as_deref(), metrics, now: self.now }
    }

    /// The runs that are looked at, and all that may be their parents.
    #[allow(clippy::type_complexity)]
    fn candidates(&self, project: &ProjectName, experiment: &str) -> Result<(Vec<Arc<Run>>, BTreeMap<RunId, Arc<Run>>, u64), Refusal> {
        let (state, position) = self.view.live().read_at();
        let experiment = match experiment {
            "" => None,
            named => {
                let by_id = ExperimentId::parse(named).ok().filter(|id| state.experiment(project, *id).is_some());
                let by_name = || DisplayName::parse(named).ok().map(|name| ExperimentId::of(project, &name));
                let known = by_id.or_else(by_name).filter(|id| state.experiment(project, *id).is_some());
                let refused = || {
                    let near: Vec<String> =
                        state.experiments(project).filter_map(|one| one.name.as_ref()).map(ToString::to_string).take(10).collect();
                    let message = format!("project {project} has no experiment {named:?}");
                    let refusal = Refusal::new(&reason::EXPERIMENT_NOT_FOUND, message).field("experiment").value(named);
                    if near.is_empty() { refusal } else { refusal.allowed(near.join(", ")) }
                };
                Some(known.ok_or_else(refused)?)
            }
        };
        let all: BTreeMap<RunId, Arc<Run>> = state.runs(project).map(|run| (run.id, run.clone())).collect();
        let within = |run: &&Arc<Run>| experiment.is_none_or(|id| run.experiment == Some(id));
        let candidates = all.values().filter(within).cloned().collect();
        Ok((candidates, all, position))
    }

    /// The figures that the question needs: none when it names no metric, else those of runs that the rest of the filter lets through.
    async fn metrics(
        &self,
        question: &Question,
        candidates: &[Arc<Run>],
        parents: &BTreeMap<RunId, Arc<Run>>,
    ) -> Result<Searchable, Refusal> {
        if !needs_metrics(question.fields()) {
            return Ok(self.reads.searchable(BTreeMap::new()));
        }
        let needs_parents = question.fields().iter().any(|field| matches!(field, Field::Parent(inner) if needs_metrics([inner.as_ref()])));
        let mut wanted: BTreeSet<RunId> = candidates.iter().map(|run| run.id).collect();
        if needs_parents {
            wanted.extend(candidates.iter().filter_map(|run| run.parent()).filter(|parent| parents.contains_key(parent)));
        }
        Ok(self.reads.searchable(self.reads.latest_of(wanted.into_iter().collect()).await?))
    }
}

/// Where a page begins: after the last run of the page before. Runs that came meanwhile may stand before it and are not shown again.
fn start(found: &[(Arc<Run>, Option<Arc<Run>>)], token: &str) -> Result<usize, Refusal> {
    if token.is_empty() {
        return Ok(0);
    }
    let refused = || Refusal::new(&reason::INVALID_PAGE_TOKEN, format!("page_token: {token:?} is none of this query")).field("page_token");
    let last = RunId::parse(token).map_err(|_| refused())?;
    found.iter().position(|(run, _)| run.id == last).map(|at| at + 1).ok_or_else(refused)
}

/// Every name that the runs in hand have.
fn known(runs: &BTreeMap<RunId, Arc<Run>>, metrics: &Searchable) -> Known {
    let mut known = Known { metrics: metrics.names(), ..Known::default() };
    for run in runs.values() {
        known.tags.extend(run.tags.keys().map(ToString::to_string));
        for (key, param) in &run.params {
            add_paths(&mut known.params, vec![key.to_string()], &param.value);
        }
    }
    known
}

/// A param and everything inside it, as paths.
fn add_paths(paths: &mut BTreeSet<Vec<String>>, path: Vec<String>, value: &ParamValue) {
    let below = |step: String| path.iter().cloned().chain([step]).collect::<Vec<String>>();
    match value {
        ParamValue::Map(values) => values.iter().for_each(|(key, value)| add_paths(paths, below(key.clone()), value)),
        ParamValue::List(values) => values.iter().enumerate().for_each(|(at, value)| add_paths(paths, below(at.to_string()), value)),
        ParamValue::Bool(_) | ParamValue::Int(_) | ParamValue::Float(_) | ParamValue::Text(_) | ParamValue::Null(()) => {}
    }
    paths.insert(path);
}
