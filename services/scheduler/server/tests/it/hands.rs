//! Agents and the executor, played: what an assignment says is done, and told in the ledger.

use crate::stage::record;
use footplate_eventlog::{Broker, StreamName, TailItem};
use footplate_events::Subject;
use footplate_events::facts::*;
use footplate_events::messages::{Assignment, Order, Task};
use footplate_types::*;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Hands that obey every assignment of a broker until dropped.
pub(crate) struct Hands {
    finishing: Arc<AtomicBool>,
    look: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hands {
    /// Hands whose workers end with 0 as soon as they run, or not until told.
    pub(crate) fn new(broker: Arc<dyn Broker>, finishing: bool) -> Self {
        let finishing = Arc::new(AtomicBool::new(finishing));
        let look = Arc::new(Notify::new());
        let task = tokio::spawn(obey(broker, finishing.clone(), look.clone()));
        Self { finishing, look, task }
    }

    /// From now on workers end with 0.
    pub(crate) fn finish(&self) {
        self.finishing.store(true, Ordering::SeqCst);
        self.look.notify_one();
    }
}

async fn obey(broker: Arc<dyn Broker>, finishing: Arc<AtomicBool>, look: Arc<Notify>) {
    let mut stream = broker.tail(StreamName::Assignments, vec!["fp.assign.*".to_owned()], 1);
    let mut nodes: BTreeMap<NodeName, Assignment> = BTreeMap::new();
    let mut done: BTreeSet<(RunId, u32, u32, &'static str)> = BTreeSet::new();
    loop {
        tokio::select! {
            item = stream.next() => match item {
                Some(TailItem::Message(stored)) => {
                    let assignment: Assignment = serde_json::from_slice(&stored.payload).unwrap();
                    let known = nodes.get(&assignment.node).map_or(0, |known| known.as_of);
                    if assignment.as_of >= known {
                        nodes.insert(assignment.node.clone(), assignment);
                    }
                }
                Some(TailItem::Position(_)) => {}
                None => return,
            },
            () = look.notified() => {}
        }
        let held: Vec<(NodeName, Vec<Task>)> = nodes.iter().map(|(node, said)| (node.clone(), said.tasks.clone())).collect();
        for (node, tasks) in held {
            for task in tasks {
                act(broker.as_ref(), &node, &task, finishing.load(Ordering::SeqCst), &mut done).await;
            }
        }
    }
}

async fn act(broker: &dyn Broker, node: &NodeName, task: &Task, finishing: bool, done: &mut BTreeSet<(RunId, u32, u32, &'static str)>) {
    let mut first = |what: &'static str| done.insert((task.run, task.attempt.0, task.member.0, what));
    let subject = Subject::attempt(&task.project, AttemptId { run: task.run, attempt: task.attempt });
    match &task.order {
        Order::Prepare => {
            if first("ready") {
                let rendezvous = (task.member.0 == 0).then(|| Rendezvous { address: format!("{node}.local"), port: 5_000 });
                let ready = MemberReady { member: task.member, node: node.clone(), epoch: task.epoch, rendezvous };
                record(broker, subject, AttemptReady { members: vec![ready] }).await;
            }
        }
        Order::Run { .. } => {
            if finishing && first("exited") {
                record(broker, subject, exited(node, task, 0, None)).await;
            }
        }
        Order::Stop { cause, .. } => {
            if first("exited") {
                record(broker, subject, exited(node, task, 143, Some(*cause))).await;
            }
        }
    }
}

fn exited(node: &NodeName, task: &Task, code: i32, obeyed: Option<StopCause>) -> AttemptExited {
    let worker = WorkerExit { rank: task.first_rank, exit: Exit::Code(code), after_ms: 0, message: String::new(), out_of_memory: None };
    let member = MemberExited {
        member: task.member,
        node: node.clone(),
        epoch: task.epoch,
        obeyed,
        workers: vec![worker],
        not_started: None,
        offsets: FinalOffsets::default(),
    };
    AttemptExited { members: vec![member] }
}
