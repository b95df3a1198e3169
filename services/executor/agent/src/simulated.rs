//! Members on paper, for load tests with declared nodes: ready at once, running for a set time, ended with exit 0 or by a stop.

use crate::{
    core::{End, Held, MemberKey},
    hands::{Adopted, Hands},
    shim::Stop,
};
use footplate_events::{
    facts::{Exit, FinalOffsets, MemberExited, Rendezvous, StopCause, WorkerExit, WorkerStarted},
    messages::Task,
};
use footplate_types::{NodeName, Rank, SpoolId};
use futures::future::BoxFuture;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// When a member ends, and the stop that it obeys then.
type Ending = watch::Sender<(Instant, Option<StopCause>)>;

/// Members of one declared node.
pub(crate) struct Simulated {
    node: NodeName,
    address: String,
    spool: SpoolId,
    run_for: Duration,
    members: Mutex<BTreeMap<MemberKey, Ending>>,
}

impl Simulated {
    pub(crate) fn new(node: NodeName, address: String, spool: SpoolId, run_for: Duration) -> Self {
        Self { node, address, spool, run_for, members: Mutex::new(BTreeMap::new()) }
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<MemberKey, Ending>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranks(task: &Task) -> impl Iterator<Item = Rank> + use<> {
        let first = task.first_rank.0;
        (first..first + task.workers).map(Rank)
    }
}

impl Hands for Simulated {
    fn adopt<'a>(&'a self, _: MemberKey, _: &'a Held) -> BoxFuture<'a, Result<Adopted, String>> {
        Box::pin(async { Ok(Adopted::NotRunning) })
    }

    fn recovered(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn prepare<'a>(&'a self, _: MemberKey, task: &'a Task, _: CancellationToken) -> BoxFuture<'a, Result<Option<Rendezvous>, String>> {
        let rendezvous = (task.member.0 == 0).then(|| Rendezvous { address: self.address.clone(), port: 1 });
        Box::pin(async { Ok(rendezvous) })
    }

    fn launch<'a>(
        &'a self,
        key: MemberKey,
        task: &'a Task,
        _: &'a Rendezvous,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<WorkerStarted>, String>> {
        self.locked().insert(key, watch::Sender::new((Instant::now() + self.run_for, None)));
        let workers = Self::ranks(task).map(|rank| WorkerStarted { rank, pid: 0 }).collect();
        Box::pin(async { Ok(workers) })
    }

    fn ended(&self, key: MemberKey) -> BoxFuture<'_, ()> {
        let ending = self.locked().get(&key).map(watch::Sender::subscribe);
        Box::pin(async move {
            let Some(mut ending) = ending else { return };
            loop {
                let at = ending.borrow_and_update().0;
                tokio::select! {
                    () = tokio::time::sleep_until(at) => return,
                    changed = ending.changed() => if changed.is_err() { return },
                }
            }
        })
    }

    fn stop<'a>(&'a self, key: MemberKey, _: &'a Stop, cause: StopCause) -> BoxFuture<'a, ()> {
        if let Some(ending) = self.locked().get(&key) {
            ending.send_modify(|(at, obeyed)| {
                if *at > Instant::now() {
                    *at = Instant::now();
                    obeyed.get_or_insert(cause);
                }
            });
        }
        Box::pin(async {})
    }

    fn gather<'a>(&'a self, key: MemberKey, task: &'a Task, end: End) -> BoxFuture<'a, MemberExited> {
        let ran = self.locked().remove(&key).map(|ending| ending.borrow().1);
        let (obeyed, not_started) = match (end, ran) {
            (End::Stopped(cause), _) => (Some(cause), None),
            (End::NotStarted(why), _) => (None, Some(why)),
            (End::Recorded, Some(obeyed)) => (obeyed, None),
            (End::Recorded, None) => (None, Some("the simulated agent was started anew".to_owned())),
        };
        let exit = if obeyed.is_some() { Exit::Signal(15) } else { Exit::Code(0) };
        let one = |rank| WorkerExit { rank, exit: exit.clone(), after_ms: 0, message: String::new(), out_of_memory: None };
        let workers = if ran.is_some() { Self::ranks(task).map(one).collect() } else { Vec::new() };
        let offsets = FinalOffsets { spool: Some(self.spool), ..FinalOffsets::default() };
        let exited =
            MemberExited { member: task.member, node: self.node.clone(), epoch: task.epoch, obeyed, workers, not_started, offsets };
        Box::pin(async { exited })
    }

    fn forget(&self, key: MemberKey) -> BoxFuture<'_, ()> {
        self.locked().remove(&key);
        Box::pin(async {})
    }

    fn write_progress(&self) -> BoxFuture<'_, std::io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
