//! The stream of decisions: the ledger's tail, of jobs alone, in words. It tells what stands in the ledger, so every instance tells the same.

use super::Jobs;
use super::history::line;
use super::show::reason_word;
use crate::measures::{cause_word, stop_word};
use footplate_api::server::named_project;
use footplate_api::v1::{DecidedUpon, Decision, WatchDecisionsRequest};
use footplate_api::{Refusal, reason};
use footplate_eventlog::LedgerItem;
use footplate_events::{Aggregate, Event, Recorded, Subject};
use footplate_shell::away;
use footplate_types::{AttemptNumber, Invalid, ProjectName, QueueName, RunId};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use std::collections::VecDeque;
use tonic::Status;

/// The most decisions that are looked up before following begins.
const NEWEST_MAX: u32 = 1_000;
/// Sequences looked at in the first step back from the end; each further step is four times as wide.
const STEP_BACK: u64 = 1_000;
/// Sequences looked back at the most: whoever wants older decisions names a sequence to begin from.
const BACK_MAX: u64 = 1_000_000;
/// Events read from the broker at a time: one may have 256 KiB.
const PAGE: usize = 100;

/// A stream of decisions.
pub(super) type Decisions = BoxStream<'static, Result<Decision, Status>>;

/// What is asked.
#[derive(Clone, Debug)]
struct Wanted {
    /// The filter of subjects at the broker.
    filter: String,
    queue: Option<QueueName>,
    /// The one job that is asked for.
    run: Option<RunId>,
}

/// What an event decided; `None` for what is no decision.
struct Told<'e> {
    kind: &'static str,
    attempt: Option<AttemptNumber>,
    cause: &'static str,
    placed: Option<&'e footplate_events::facts::JobPlaced>,
}

fn told(event: &Event) -> Option<Told<'_>> {
    let plain = |kind, attempt, cause| Told { kind, attempt, cause, placed: None };
    Some(match event {
        Event::JobWaiting(fact) => plain("waiting", None, reason_word(&fact.reason)),
        Event::JobDeadlineNeared(_) => plain("deadline_neared", None, ""),
        Event::JobDeadlineMissed(_) => plain("deadline_missed", None, ""),
        Event::JobHeld(_) => plain("held", None, ""),
        Event::JobReleased(_) => plain("released", None, ""),
        Event::JobReprioritized(_) => plain("reprioritized", None, ""),
        Event::JobRefused(_) => plain("refused", None, ""),
        Event::JobPlaced(fact) => Told { placed: Some(fact), ..plain("placed", Some(fact.attempt), "") },
        Event::JobLaunched(fact) => plain("launched", Some(fact.attempt), ""),
        Event::JobStopRequested(fact) => plain("stop_requested", Some(fact.attempt), stop_word(fact.cause)),
        Event::JobRequeued(fact) => plain("requeued", Some(fact.attempt), cause_word(fact.cause)),
        Event::JobEnded(fact) => plain("ended", Some(fact.attempt), cause_word(fact.cause)),
        _ => return None,
    })
}

fn shown(recorded: &Recorded, told: &Told<'_>, run: RunId, queue: Option<QueueName>) -> Decision {
    let envelope = &recorded.envelope;
    let placed = told.placed;
    Decision {
        sequence: recorded.sequence,
        recorded_at: recorded.recorded_at.to_string(),
        project: envelope.subject.project.to_string(),
        run_id: run.to_string(),
        queue: queue.map(|queue| queue.to_string()).unwrap_or_default(),
        kind: told.kind.to_owned(),
        attempt: told.attempt.map_or(0, |attempt| attempt.0),
        cause: told.cause.to_owned(),
        text: line(&envelope.event),
        nodes: placed.iter().flat_map(|placed| &placed.members).map(|member| member.node.to_string()).collect(),
        upon: placed.map(|placed| DecidedUpon {
            view_sequence: placed.view.sequence,
            now: placed.view.now.to_string(),
            seed: placed.view.seed,
            policy: placed.view.policy.clone(),
        }),
        causation_id: envelope.causation.map_or_else(String::new, |id| id.to_string()),
        event_id: envelope.id.to_string(),
    }
}

/// Where a stream begins and where it ends.
struct Course {
    /// What is looked up before.
    first: VecDeque<Decision>,
    from: u64,
    until: u64,
}

impl Jobs {
    /// First what is there, then what comes; ends at the ledger's end at the call or, when it follows, at the end of the one job that is asked
    /// for, at the caller's deadline, when the caller leaves, or with STOPPING when this instance ends.
    pub(super) async fn decisions(&self, request: WatchDecisionsRequest) -> Result<Decisions, Refusal> {
        if request.newest > 0 && request.from_sequence > 0 {
            return Err(Invalid::new("newest", request.newest, "0 where from_sequence is given").into());
        }
        if request.newest > NEWEST_MAX {
            return Err(Invalid::new("newest", request.newest, format!("at most {NEWEST_MAX}")).into());
        }
        let end = self.shell.ledger.end().await.map_err(away)?;
        self.shell.at_least(end).await?;
        let wanted = self.wanted(&request)?;
        let has_ended = wanted.run.is_some_and(|run| self.shell.live.read().ended().contains_key(&run));
        let until = if request.follow && !has_ended { u64::MAX } else { end };
        let course = match request.newest {
            0 => Course { first: VecDeque::new(), from: request.from_sequence.max(1), until },
            newest => Course { first: self.newest(&wanted, end, newest as usize).await?, from: end + 1, until },
        };
        Ok(self.stream(wanted, course))
    }

    fn wanted(&self, request: &WatchDecisionsRequest) -> Result<Wanted, Refusal> {
        let project = if request.project.is_empty() { None } else { Some(named_project(&request.project)?) };
        let queue = match request.queue.as_str() {
            "" => None,
            name => Some(QueueName::parse(name).map_err(|invalid| Refusal::from(invalid.of("queue")))?),
        };
        if request.run_id.is_empty() {
            return Ok(Wanted { filter: Subject::filter(project.as_ref(), Some(Aggregate::Job)), queue, run: None });
        }
        let (project, run) = match project {
            Some(project) => {
                let run = crate::shell::run_of(&self.shell, &project, &request.run_id)?;
                (project, run)
            }
            None => self.anywhere(&request.run_id)?,
        };
        Ok(Wanted { filter: Subject::job(&project, run).to_string(), queue, run: Some(run) })
    }

    /// A job of any project.
    fn anywhere(&self, text: &str) -> Result<(ProjectName, RunId), Refusal> {
        let run = RunId::parse(text).map_err(|invalid| Refusal::from(invalid.of("run_id")))?;
        let state = self.shell.live.read();
        let living = state.jobs().get(&run).map(|job| job.project.clone());
        let project = living.or_else(|| state.ended().get(&run).map(|job| job.project.clone()));
        let unknown = || Refusal::new(&reason::JOB_NOT_FOUND, format!("no job {run} in any project")).field("run_id").value(run);
        Ok((project.ok_or_else(unknown)?, run))
    }

    /// The decision that an event of the ledger is, when it is wanted. The view stands behind it.
    fn decision(&self, wanted: &Wanted, recorded: &Recorded) -> Option<Decision> {
        let told = told(&recorded.envelope.event)?;
        let run = recorded.envelope.subject.run_id()?;
        let queue = {
            let state = self.shell.live.read();
            let living = state.jobs().get(&run).map(|job| job.spec.queue.clone());
            living.or_else(|| state.ended().get(&run).map(|job| job.queue.clone()))
        };
        let is_wanted = wanted.queue.is_none() || wanted.queue == queue;
        is_wanted.then(|| shown(recorded, &told, run, queue))
    }

    /// The last `most` wanted decisions up to `end`, oldest first: found by steps back that grow, so that it costs what it finds where it finds it. Fewer where
    /// there are fewer within [`BACK_MAX`].
    async fn newest(&self, wanted: &Wanted, end: u64, most: usize) -> Result<VecDeque<Decision>, Refusal> {
        let mut found: VecDeque<Decision> = VecDeque::new();
        let (mut high, mut width) = (end, STEP_BACK);
        let lowest = end.saturating_sub(BACK_MAX).max(1);
        while high >= lowest && high > 0 && found.len() < most {
            let low = high.saturating_sub(width - 1).max(lowest);
            let mut step: VecDeque<Decision> = VecDeque::new();
            let mut next = Some(low);
            while let Some(at) = next.filter(|at| *at <= high) {
                let (items, more) = self.shell.ledger.read(&wanted.filter, at, PAGE).await.map_err(away)?;
                for item in items.iter().filter(|item| item.sequence() <= high) {
                    let LedgerItem::Fact(recorded) = item else { continue };
                    step.extend(self.decision(wanted, recorded));
                    if step.len() > most - found.len() {
                        step.pop_front();
                    }
                }
                next = more;
            }
            step.append(&mut found);
            found = step;
            high = low - 1;
            width = width.saturating_mul(4);
        }
        Ok(found)
    }

    fn stream(&self, wanted: Wanted, course: Course) -> Decisions {
        let Course { first, from, until } = course;
        let first = stream::iter(first.into_iter().map(Ok));
        if from > until {
            return first.boxed();
        }
        let items = self.shell.ledger.tail(vec![wanted.filter.clone()], from);
        let jobs = self.clone();
        let rest = stream::unfold((items, false), move |(mut items, over)| {
            let (jobs, wanted) = (jobs.clone(), wanted.clone());
            async move {
                if over {
                    return None;
                }
                loop {
                    let Some(item) = jobs.stopping.run_until_cancelled(items.next()).await else {
                        let stopping = Refusal::new(&reason::STOPPING, "this instance is stopping");
                        return Some((Err(stopping.into()), (items, true)));
                    };
                    let item = item?;
                    let sequence = item.sequence();
                    if sequence > until {
                        return None;
                    }
                    let mut over = sequence >= until;
                    if let LedgerItem::Fact(recorded) = &item {
                        over |= wanted.run.is_some() && until == u64::MAX && matches!(recorded.envelope.event, Event::JobEnded(_));
                        // The queue of a job is the view's knowledge.
                        if let Err(behind) = jobs.shell.at_least(sequence).await {
                            return Some((Err(behind.into()), (items, true)));
                        }
                        if let Some(decision) = jobs.decision(&wanted, recorded) {
                            return Some((Ok(decision), (items, over)));
                        }
                    }
                    if over {
                        return None;
                    }
                }
            }
        });
        first.chain(rest).boxed()
    }
}
