//! Following a living member: its logs as they grow, its tree until it is empty.

use super::{Members, Open};
use crate::shim::{MemberState, ShimHandle};
use std::{sync::Arc, time::Duration};

/// How often a shim's lock is tried; its record is looked for each time.
const LOCK_EVERY: Duration = Duration::from_secs(1);
/// How long one clearing of an orphaned tree may take before it is tried again.
const CLEAR_PATIENCE: Duration = Duration::from_secs(10);

impl Members {
    /// Follows the member's logs until it is gathered.
    pub(super) async fn follow(&self, open: &Arc<Open>) {
        let mut follower = open.follower.lock().await;
        if follower.is_some() {
            return;
        }
        let (member, spool, every) = (open.clone(), self.intake.spools.logs.clone(), self.config.timings.look_every);
        let life = self.life.clone();
        *follower = Some(tokio::spawn(async move {
            loop {
                let moved = tokio::select! {
                    () = life.cancelled() => return,
                    moved = async { member.tail.lock().await.pump(&spool).await } => moved,
                };
                tokio::select! {
                    () = member.following.cancelled() => return,
                    () = tokio::time::sleep(every), if !moved => {}
                    () = std::future::ready(()), if moved => {}
                }
            }
        }));
    }

    /// Waits until the shim has recorded the end, or clears up behind a dead one.
    pub(super) async fn wait_for_end(&self, shim: &ShimHandle, marker: &str) {
        let every = self.config.timings.look_every;
        let looks = (LOCK_EVERY.as_millis() / every.as_millis().max(1)).max(1);
        let mut look = 0;
        loop {
            if shim.has_ended() {
                return;
            }
            look += 1;
            if look % looks == 0 {
                let (state, clearing, marker) = (shim.clone(), shim.clone(), marker.to_owned());
                let ended = tokio::task::spawn_blocking(move || match state.state() {
                    Ok(MemberState::Orphaned(_)) => {
                        tracing::error!(%marker, "its supervisor has died: what it left is killed");
                        matches!(clearing.clear_orphans(&marker, CLEAR_PATIENCE), Ok(Some(_)))
                    }
                    Ok(MemberState::Ended(_)) => true,
                    Ok(MemberState::NotStarted | MemberState::Running(_)) => false,
                    Err(error) => {
                        tracing::error!(%error, %marker, "member cannot be looked at");
                        false
                    }
                });
                if ended.await.unwrap_or(false) {
                    return;
                }
            }
            tokio::time::sleep(every).await;
        }
    }

    /// What had been taken of the logs before a restart, told by the entries that the spool still holds.
    pub(crate) async fn recover_logs(&self) -> Result<(), crate::spool::SpoolError> {
        const PAGE_BYTES: usize = 8 << 20;
        let spool = &self.intake.spools.logs;
        let mut next = spool.first();
        loop {
            let page = spool.read_from(next, PAGE_BYTES).await?;
            let Some(last) = page.last().map(|record| record.offset) else { return Ok(()) };
            for record in page {
                let Some((header, body)) = crate::record::unpack::<crate::record::LogRecord>(&record.payload) else { continue };
                let of = &header.of;
                let key = crate::core::MemberKey { run: of.run, attempt: of.attempt, member: of.member };
                if let Some(open) = self.find(key) {
                    open.tail.lock().await.recover(&header, body.len() as u64);
                }
            }
            next = last + 1;
        }
    }
}
