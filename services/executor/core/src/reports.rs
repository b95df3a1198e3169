//! Reports into attempts: what an agent claims is checked against the placement; what arrives together folds into one event an attempt.

use crate::{Executor, MemberPhase};
use footplate_es::Decision;
use footplate_events::facts::{AttemptExited, AttemptReady, AttemptStarted, Exit, MemberExited, MemberReady, MemberStarted};
use footplate_events::messages::{ExecutorReport, MemberRef};
use footplate_events::{Event, Subject};
use footplate_types::{AttemptId, Epoch, MemberIndex, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// One report as it came from a node's subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// The node of the subject.
    pub node: NodeName,
    /// What it says.
    pub report: ExecutorReport,
}

/// A report that became no fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// From which node.
    pub node: NodeName,
    /// About which member.
    pub of: MemberRef,
    /// Why, in words.
    pub reason: String,
}

#[derive(Default)]
struct Folded {
    ready: Vec<MemberReady>,
    started: Vec<MemberStarted>,
    exited: Vec<MemberExited>,
    checkpoints: Vec<Event>,
}

struct Folder<'a> {
    state: &'a Executor,
    attempts: BTreeMap<AttemptId, Folded>,
    ready: BTreeSet<(AttemptId, MemberIndex)>,
    released: BTreeSet<(AttemptId, MemberIndex)>,
    newest_step: BTreeMap<AttemptId, i64>,
    refused: Vec<Refused>,
}

/// The events that reports lead to, one of each kind an attempt (more only where a gang does not fit into one), in the order: ready, started,
/// checkpointed, exited; and the reports that were refused. A repeated report leads to nothing.
pub fn fold_reports(state: &Executor, reports: &[Reported]) -> (Vec<Decision>, Vec<Refused>) {
    let mut folder = Folder {
        state,
        attempts: BTreeMap::new(),
        ready: BTreeSet::new(),
        released: BTreeSet::new(),
        newest_step: BTreeMap::new(),
        refused: Vec::new(),
    };
    for reported in reports {
        folder.take(reported);
    }
    folder.decisions()
}

fn member_ref(report: &ExecutorReport) -> &MemberRef {
    match report {
        ExecutorReport::Ready { of, .. }
        | ExecutorReport::Started { of, .. }
        | ExecutorReport::Exited { of, .. }
        | ExecutorReport::Checkpointed { of, .. } => of,
    }
}

impl Folder<'_> {
    fn take(&mut self, reported: &Reported) {
        let of = member_ref(&reported.report);
        let id = AttemptId { run: of.run, attempt: of.attempt };
        match self.admit(&reported.node, of, id, &reported.report) {
            Ok(phase) => self.fold(id, of.member, &phase, &reported.report),
            Err(reason) => self.refused.push(Refused { node: reported.node.clone(), of: of.clone(), reason }),
        }
    }

    /// Whether the node may say this of that member.
    fn admit(&self, node: &NodeName, of: &MemberRef, id: AttemptId, report: &ExecutorReport) -> Result<MemberPhase, String> {
        let attempt = self.state.attempt(&id).ok_or_else(|| format!("attempt {id} was never placed"))?;
        if attempt.project != of.project {
            return Err(format!("attempt {id} belongs to another project than {}", of.project));
        }
        let member = attempt.members.get(&of.member).ok_or_else(|| format!("attempt {id} has no member {}", of.member))?;
        if member.node != *node {
            return Err(format!("member {} of {id} stands on {}, not on {node}", of.member, member.node));
        }
        let claimed: Option<(MemberIndex, &NodeName, Epoch)> = match report {
            ExecutorReport::Ready { ready, .. } => Some((ready.member, &ready.node, ready.epoch)),
            ExecutorReport::Started { started, .. } => Some((started.member, &started.node, started.epoch)),
            ExecutorReport::Exited { exited, .. } => Some((exited.member, &exited.node, exited.epoch)),
            ExecutorReport::Checkpointed { .. } => None,
        };
        if let Some(claim) = claimed
            && claim != (of.member, node, member.epoch)
        {
            let (index, node, epoch) = claim;
            return Err(format!(
                "the report speaks of member {index} on {node} in generation {epoch}; placed: {} on {} in {}",
                of.member, member.node, member.epoch
            ));
        }
        Ok(member.phase.clone())
    }

    fn fold(&mut self, id: AttemptId, index: MemberIndex, phase: &MemberPhase, report: &ExecutorReport) {
        if phase.is_released() || self.released.contains(&(id, index)) {
            return;
        }
        let folded = self.attempts.entry(id).or_default();
        match report {
            ExecutorReport::Ready { ready, .. } => {
                if *phase == MemberPhase::Placed && self.ready.insert((id, index)) {
                    folded.ready.push(ready.clone());
                }
            }
            ExecutorReport::Started { started, .. } => {
                let repeated = folded.started.iter().any(|known| known.member == index);
                if *phase != MemberPhase::Started && !repeated {
                    folded.started.push(started.clone());
                }
            }
            ExecutorReport::Exited { exited, .. } => {
                self.released.insert((id, index));
                folded.exited.push(fitted(exited));
            }
            ExecutorReport::Checkpointed { checkpointed, .. } => {
                let known = self.state.attempt(&id).and_then(|attempt| attempt.checkpoint.as_ref());
                let newest = self.newest_step.get(&id).copied().or(known.map(|checkpoint| checkpoint.step));
                if newest.is_none_or(|step| checkpointed.step > step) {
                    self.newest_step.insert(id, checkpointed.step);
                    folded.checkpoints.push(checkpointed.clone().into());
                }
            }
        }
    }

    fn decisions(self) -> (Vec<Decision>, Vec<Refused>) {
        let mut decisions = Vec::new();
        for (id, folded) in self.attempts {
            let Some(attempt) = self.state.attempt(&id) else { continue };
            let mut events: Vec<Event> = Vec::new();
            events.extend(split(folded.ready, |_| READY_BYTES).into_iter().map(|members| AttemptReady { members }.into()));
            let started = split(folded.started, |member| READY_BYTES + WORKER_BYTES * member.workers.len());
            events.extend(started.into_iter().map(|members| AttemptStarted { members }.into()));
            events.extend(folded.checkpoints);
            events.extend(split(folded.exited, exited_bytes).into_iter().map(|members| AttemptExited { members }.into()));
            for event in events {
                let ordinal = ordinal_of(&event);
                let subject = Subject::attempt(&attempt.project, id);
                let mut decision = Decision::new(subject, event, Some(attempt.cause.clone()));
                decision.ordinal = ordinal;
                decisions.push(decision);
            }
        }
        (decisions, self.refused)
    }
}

/// What one event of an attempt may hold: well below the limit of an event (256 KiB), since sizes are estimated.
const EVENT_BYTES: usize = 192 * 1024;
/// The last words of all workers of one member together: who ended first comes first.
const WORDS_BYTES: usize = 32 * 1024;
/// The last words of one worker, in characters.
const WORDS_CHARACTERS: usize = 1_000;
/// An upper estimate of a member without its workers, as JSON.
const READY_BYTES: usize = 512;
/// An upper estimate of a worker without its words, or of a session, as JSON.
const WORKER_BYTES: usize = 96;

/// How many bytes a text takes as JSON.
fn json_bytes(text: &str) -> usize {
    let bytes = |c: char| match c {
        '"' | '\\' => 2,
        c if c.is_control() => 6,
        c => c.len_utf8(),
    };
    text.chars().map(bytes).sum()
}

/// The same member with its workers' last words cut to what an event can carry. Exits are never cut.
fn fitted(exited: &MemberExited) -> MemberExited {
    let mut exited = exited.clone();
    let mut left = WORDS_BYTES;
    for worker in &mut exited.workers {
        if worker.message.chars().count() > WORDS_CHARACTERS {
            worker.message = worker.message.chars().take(WORDS_CHARACTERS).collect();
        }
        let bytes = json_bytes(&worker.message);
        if bytes > left {
            worker.message.clear();
        } else {
            left -= bytes;
        }
    }
    if let Some(why) = &exited.not_started {
        exited.not_started = Some(why.chars().take(WORDS_CHARACTERS).collect());
    }
    exited
}

fn exited_bytes(exited: &MemberExited) -> usize {
    let worker = |worker: &footplate_events::facts::WorkerExit| {
        let why = match &worker.exit {
            Exit::NotStarted(why) | Exit::Unknown(why) => json_bytes(why),
            Exit::Code(_) | Exit::Signal(_) => 0,
        };
        WORKER_BYTES + why + json_bytes(&worker.message)
    };
    let why = exited.not_started.as_ref().map_or(0, |why| json_bytes(why));
    READY_BYTES + why + exited.workers.iter().map(worker).sum::<usize>() + WORKER_BYTES * exited.offsets.sessions.len()
}

/// Members in as few events as they fit into, in order.
fn split<T>(members: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut events: Vec<Vec<T>> = Vec::new();
    let mut filled = 0;
    for member in members {
        let size = bytes(&member);
        match events.last_mut() {
            Some(event) if filled + size <= EVENT_BYTES => {
                filled += size;
                event.push(member);
            }
            _ => {
                filled = size;
                events.push(vec![member]);
            }
        }
    }
    events
}

/// What tells apart several events of one type that answer one placement: the first member they name, or the checkpoint's step.
fn ordinal_of(event: &Event) -> u32 {
    match event {
        Event::AttemptReady(fact) => fact.members.first().map_or(0, |member| member.member.0),
        Event::AttemptStarted(fact) => fact.members.first().map_or(0, |member| member.member.0),
        Event::AttemptExited(fact) => fact.members.first().map_or(0, |member| member.member.0),
        Event::AttemptCheckpointed(fact) => (fact.step as u64 % u64::from(u32::MAX)) as u32,
        _ => 0,
    }
}
