//! The agent: its judgement, and around it everything that touches disk, broker and processes.

mod open;
mod perform;
mod watch;

use crate::{
    blob::BlobAccess,
    config::{AgentConfig, AgentError, OnShutdown},
    core::{Core, Input, Now, Phase},
    hands::Hands,
};
use footplate_eventlog::Broker;
use perform::Performer;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Inputs that may wait to be judged.
const INPUTS_MOST: usize = 4_096;
/// Longest pause between two looks at the clock.
const TICK_MOST: Duration = Duration::from_millis(500);
/// How long the last reports may take to reach the broker when the agent ends.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the node's agent until `shutdown`, or until it cannot go on.
///
/// What it holds outlives it: a killed agent's members go on under their shims, and the next agent on the same folder adopts them.
pub async fn run(
    config: AgentConfig,
    broker: Arc<dyn Broker>,
    blobs: Arc<dyn BlobAccess>,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    let life = CancellationToken::new();
    let ending = life.clone().drop_guard();
    let parts = open::open(&config, blobs, &life).await?;
    let (inputs, queue) = mpsc::channel(INPUTS_MOST);
    let performer = Performer::new(&config, broker.clone(), &parts, inputs.clone(), life.clone());
    let shipped = watch::ship(&config, broker.clone(), &parts, &life);
    watch::assignments(&config, broker, inputs, &life);
    watch::samples(&config, &parts, &life);
    if let Some(listener) = parts.listener {
        tokio::spawn(crate::socket::accept(parts.intake.clone(), listener));
    }
    let mut agent = Agent {
        core: parts.core,
        performer,
        hands: parts.hands,
        tick: (config.beat_every() / 4).clamp(Duration::from_millis(20), TICK_MOST),
    };
    agent.adopt().await;
    tracing::info!(node = %config.node, work = %config.work.display(), "agent runs");
    let judged = agent.judge(queue, &shutdown, &config).await;
    watch::flush(&shipped, FLUSH_PATIENCE).await;
    drop(ending);
    judged
}

struct Agent {
    core: Core,
    performer: Performer,
    hands: Arc<dyn Hands>,
    tick: Duration,
}

fn now() -> Now {
    Now { boot_ns: footplate_clock::boot_nanos(), wall: footplate_clock::now() }
}

impl Agent {
    /// Takes every member over as the disk says it stands.
    async fn adopt(&mut self) {
        let mut running = Vec::new();
        let held = self.core.state.members.clone();
        for (key, held) in held.into_iter().filter(|(_, held)| held.phase != Phase::Ended) {
            match self.hands.adopt(key, &held).await {
                Ok(crate::hands::Adopted::Running(workers)) => running.push((key, workers)),
                Ok(crate::hands::Adopted::NotRunning) => {}
                Err(error) => tracing::error!(%error, member = %key, "cannot be adopted"),
            }
        }
        self.hands.recovered().await;
        for (key, _) in &running {
            self.performer.follow_to_the_end(*key);
        }
        let effects = self.core.adopt(running);
        self.performer.perform(&self.core.state, effects).await;
    }

    async fn judge(
        &mut self,
        mut queue: mpsc::Receiver<Input>,
        shutdown: &CancellationToken,
        config: &AgentConfig,
    ) -> Result<(), AgentError> {
        let mut tick = tokio::time::interval(self.tick);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut deadline: Option<Instant> = None;
        loop {
            let input = tokio::select! {
                () = shutdown.cancelled(), if deadline.is_none() => match config.on_shutdown {
                    OnShutdown::LeaveMembers => return Ok(()),
                    OnShutdown::StopMembers(patience) => {
                        deadline = Some(Instant::now() + patience);
                        Input::StopMembers
                    }
                },
                input = queue.recv() => match input {
                    Some(input) => input,
                    None => return Ok(()),
                },
                _ = tick.tick() => Input::Tick,
            };
            let effects = self.core.step(now(), input);
            self.performer.perform(&self.core.state, effects).await;
            if let Some(boot_id) = self.core.name_taken() {
                return Err(AgentError::NameTaken { node: config.node.clone(), boot_id: boot_id.to_owned() });
            }
            if deadline.is_some_and(|deadline| self.core.is_idle() || Instant::now() >= deadline) {
                return Ok(());
            }
        }
    }
}
