//! Doing what was judged: effects become files, messages and calls on members; what comes of them comes back as inputs.

use super::open::Parts;
use crate::{
    boot,
    config::AgentConfig,
    core::{BeatOutcome, CoreState, Effect, End, Input, MemberKey},
    durable::Twin,
    hands::Hands,
    members::lease_file,
    record::StoredReport,
    shim::Lease,
    socket::{Intake, patiently},
    spool::Spool,
};
use footplate_eventlog::{Broker, Expect, Headers, Message, PublishError, StreamName};
use footplate_events::{
    facts::{MemberExited, NodeRegistered},
    messages::{Beat, BeatMessage, ExecutorReport, InventoryReport, ReportBody, Task, beat_subject},
};
use footplate_types::{Epoch, NodeShape};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Reports that may wait for the disk.
const REPORTS_MOST: usize = 4_096;
/// Pause while the state cannot be written.
const DISK_PAUSE: Duration = Duration::from_millis(250);

/// One report on its way to the spool, and the member whose end it is.
type Outgoing = (Task, ExecutorReport, Option<MemberKey>);

pub(super) struct Performer {
    state: Arc<Mutex<Twin>>,
    lease_file: PathBuf,
    sync: bool,
    node: footplate_types::NodeName,
    address: String,
    shape: NodeShape,
    broker: Arc<dyn Broker>,
    hands: Arc<dyn Hands>,
    intake: Arc<Intake>,
    inputs: mpsc::Sender<Input>,
    reports: mpsc::Sender<Outgoing>,
    preparing: BTreeMap<MemberKey, CancellationToken>,
    life: CancellationToken,
}

impl Performer {
    pub(super) fn new(
        config: &AgentConfig,
        broker: Arc<dyn Broker>,
        parts: &Parts,
        inputs: mpsc::Sender<Input>,
        life: CancellationToken,
    ) -> Self {
        let (reports, queue) = mpsc::channel(REPORTS_MOST);
        let writing = write_reports(parts.spools.executor.clone(), parts.intake.clone(), queue, inputs.clone());
        let until = life.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = until.cancelled() => {}
                () = writing => {}
            }
        });
        Self {
            state: parts.twin.clone(),
            lease_file: lease_file(config),
            sync: config.sync,
            node: config.node.clone(),
            address: config.address.clone(),
            shape: parts.shape.clone(),
            broker,
            hands: parts.hands.clone(),
            intake: parts.intake.clone(),
            inputs,
            reports,
            preparing: BTreeMap::new(),
            life,
        }
    }

    /// Does the effects in their order; long ones go on beside.
    pub(super) async fn perform(&mut self, state: &CoreState, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist => self.persist(state).await,
                Effect::LookAtBeat => self.look_at_beat(),
                Effect::SendBeat { beat, expect } => self.send_beat(beat, expect),
                Effect::WriteLease { until_boot_ns } => self.write_lease(until_boot_ns).await,
                Effect::Register { epoch } => self.register(epoch),
                Effect::Prepare { key } => self.with_task(state, key, Self::prepare),
                Effect::CancelPrepare { key } => {
                    if let Some(cancel) = self.preparing.remove(&key) {
                        cancel.cancel();
                    }
                }
                Effect::Launch { key, rendezvous, peers } => {
                    self.with_task(state, key, |performer, key, task| performer.launch(key, task, rendezvous, peers));
                }
                Effect::Stop { key, stop, cause } => self.spawn(move |hands, _| async move { hands.stop(key, &stop, cause).await }),
                Effect::Gather { key, end } => self.with_task(state, key, |performer, key, task| performer.gather(key, task, end)),
                Effect::Report(report) => {
                    let key = key_of(&report);
                    if let Some(held) = state.members.get(&key) {
                        let _ = self.reports.send((held.task.clone(), report, None)).await;
                    }
                }
                Effect::ReportExit { key, exited } => self.report_exit(state, key, exited).await,
                Effect::Forget { key } => self.spawn(move |hands, _| async move { hands.forget(key).await }),
            }
        }
    }

    fn with_task(&mut self, state: &CoreState, key: MemberKey, act: impl FnOnce(&mut Self, MemberKey, Task)) {
        if let Some(held) = state.members.get(&key) {
            act(self, key, held.task.clone());
        }
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Arc<dyn Hands>, mpsc::Sender<Input>) -> F) {
        let work = work(self.hands.clone(), self.inputs.clone());
        let life = self.life.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = life.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// The state is on disk when this returns; until then nothing else is done.
    async fn persist(&self, state: &CoreState) {
        if let Some(epoch) = state.epoch {
            self.intake.set_epoch(epoch);
        }
        if !self.sync {
            return;
        }
        let json = serde_json::to_vec(state).unwrap_or_default();
        loop {
            let (twin, json) = (self.state.clone(), json.clone());
            match tokio::task::spawn_blocking(move || twin.lock().unwrap_or_else(PoisonError::into_inner).write(&json)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::error!(%error, "state cannot be written"),
                Err(_) => return,
            }
            tokio::time::sleep(DISK_PAUSE).await;
        }
    }

    async fn write_lease(&self, until_boot_ns: Option<u64>) {
        let (path, lease) = (self.lease_file.clone(), Lease { boot_id: boot::id(), until_boot_ns });
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || lease.write(&path)).await {
            tracing::error!(%error, "lease cannot be written; members end when the old one runs out");
        }
    }

    fn look_at_beat(&self) {
        let (broker, subject) = (self.broker.clone(), beat_subject(&self.node));
        self.spawn(move |_, inputs| async move {
            let looked = match broker.last(StreamName::Beats, &subject).await {
                Ok(None) => Ok(None),
                Ok(Some(stored)) => match serde_json::from_slice::<BeatMessage>(&stored.payload) {
                    Ok(message) => Ok(Some((stored.sequence, message))),
                    Err(error) => {
                        tracing::error!(%error, %subject, "unreadable beat");
                        Err(())
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "beat subject cannot be read");
                    Err(())
                }
            };
            let _ = inputs.send(Input::BeatLooked(looked)).await;
        });
    }

    fn send_beat(&self, beat: Beat, expect: u64) {
        let (broker, subject, number) = (self.broker.clone(), beat_subject(&self.node), beat.number);
        let payload = serde_json::to_vec(&BeatMessage::Beat(beat)).unwrap_or_default().into();
        let message = Message { subject, headers: Headers::default(), payload };
        self.spawn(move |_, inputs| async move {
            let outcome = match broker.publish(StreamName::Beats, message, Expect::Subject(expect)).await {
                Ok(sequence) => BeatOutcome::Acknowledged(sequence),
                Err(PublishError::Conflict) => BeatOutcome::Conflict,
                Err(PublishError::Unknown(_) | PublishError::Stuck(_)) => BeatOutcome::Unknown,
                Err(error @ (PublishError::Full(_) | PublishError::Unavailable(_) | PublishError::Refused(_))) => {
                    tracing::warn!(%error, "beat not sent");
                    BeatOutcome::NotSent
                }
            };
            let _ = inputs.send(Input::BeatDone { number, outcome }).await;
        });
    }

    fn register(&self, epoch: Epoch) {
        let (shape, address) = (self.shape.clone(), self.address.clone());
        let (intake, broker, subject) = (self.intake.clone(), self.broker.clone(), beat_subject(&self.node));
        self.spawn(move |_, _| async move {
            let registered = NodeRegistered {
                epoch,
                boot_id: boot::id(),
                shape,
                address,
                agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                clock_ahead_ms: clock_ahead_ms(broker.as_ref(), &subject).await,
            };
            let body = ReportBody::Inventory(InventoryReport::Registered { registered });
            let stored = StoredReport { epoch, body, traceparent: None, origin: None };
            patiently(|| intake.spools.inventory.append(stored.to_bytes())).await;
            intake.registered.send_replace(epoch);
        });
    }

    fn prepare(&mut self, key: MemberKey, task: Task) {
        let cancel = self.life.child_token();
        self.preparing.insert(key, cancel.clone());
        self.spawn(move |hands, inputs| async move {
            let result = hands.prepare(key, &task, cancel).await;
            let _ = inputs.send(Input::Prepared { key, result }).await;
        });
    }

    fn launch(&mut self, key: MemberKey, task: Task, rendezvous: footplate_events::facts::Rendezvous, peers: Vec<String>) {
        self.preparing.remove(&key);
        self.spawn(move |hands, inputs| async move {
            let result = hands.launch(key, &task, &rendezvous, &peers).await;
            let started = result.is_ok();
            let _ = inputs.send(Input::Launched { key, result }).await;
            if started {
                hands.ended(key).await;
                let _ = inputs.send(Input::TreeEmpty { key }).await;
            }
        });
    }

    /// For adopted members: says when their tree is empty.
    pub(super) fn follow_to_the_end(&self, key: MemberKey) {
        self.spawn(move |hands, inputs| async move {
            hands.ended(key).await;
            let _ = inputs.send(Input::TreeEmpty { key }).await;
        });
    }

    fn gather(&mut self, key: MemberKey, task: Task, end: End) {
        self.preparing.remove(&key);
        self.spawn(move |hands, inputs| async move {
            let exited = hands.gather(key, &task, end).await;
            let _ = inputs.send(Input::Gathered { key, exited }).await;
        });
    }

    async fn report_exit(&self, state: &CoreState, key: MemberKey, exited: MemberExited) {
        let Some(held) = state.members.get(&key) else { return };
        let report = ExecutorReport::Exited { of: crate::core::member_ref(&held.task), exited };
        let _ = self.reports.send((held.task.clone(), report, Some(key))).await;
    }
}

/// By how much this machine's clock runs ahead of the broker's, told by the node's own last beat. Only shown.
async fn clock_ahead_ms(broker: &dyn Broker, subject: &str) -> Option<i64> {
    let stored = broker.last(StreamName::Beats, subject).await.ok()??;
    let BeatMessage::Beat(beat) = serde_json::from_slice(&stored.payload).ok()? else { return None };
    Some(beat.sent_at.as_millis() - stored.recorded_at.as_millis())
}

fn key_of(report: &ExecutorReport) -> MemberKey {
    let (ExecutorReport::Ready { of, .. }
    | ExecutorReport::Started { of, .. }
    | ExecutorReport::Exited { of, .. }
    | ExecutorReport::Checkpointed { of, .. }) = report;
    MemberKey { run: of.run, attempt: of.attempt, member: of.member }
}

/// Puts reports into the spool, in order; tells when an end is durable there.
async fn write_reports(spool: Spool, intake: Arc<Intake>, mut queue: mpsc::Receiver<Outgoing>, inputs: mpsc::Sender<Input>) {
    const BATCH: usize = 256;
    let mut ready = Vec::new();
    while queue.recv_many(&mut ready, BATCH).await > 0 {
        let mut ended = Vec::new();
        let mut entries = Vec::new();
        for (task, report, end) in ready.drain(..) {
            let stored =
                StoredReport { epoch: intake.epoch(), body: ReportBody::Executor(report), traceparent: task.traceparent, origin: None };
            entries.push(stored.to_bytes());
            ended.extend(end);
        }
        if patiently(|| spool.append_all(entries.clone())).await.is_none() {
            return;
        }
        for key in ended {
            let _ = inputs.send(Input::ExitReported { key }).await;
        }
    }
}
