//! The end of a run: everything is mended, and within a bound everybody must have come to rest; then every view must be a fold of the ledger.

use crate::check::{Found, Unrest};
use crate::clock::Time;
use crate::faults::Fault;
use crate::instance::{self, Instance, Service};
use crate::settings::{READY_WITHIN_MS, TRAINING_MAX_MS};
use crate::wire::Step;
use crate::world::World;

/// What leases, fences and candidates need at most until everybody is served again.
const RECOVERY_MS: Time = 900_000;
/// How often it is looked whether everybody is at rest.
const JUDGE_EVERY_MS: Time = 10_000;

impl World {
    /// The storm is over: all faults cease.
    pub(crate) fn calm(&mut self) {
        self.tell("the storm is over".to_owned());
        self.wire.storm = false;
        self.broker.wall_off = 0;
        self.start_broker();
        for at in 0..self.instances.len() {
            self.start_instance(at);
            self.instances[at].paused_until = 0;
            self.reconnect_instance(at);
        }
        for at in 0..self.nodes.len() {
            self.power_on(at);
            let node = &mut self.nodes[at];
            (node.slow_ms, node.agent_paused_until) = (0, 0);
            if !node.has_agent() {
                node.start_agent(&mut self.wire);
            }
            for gpu in node.unhealthy.clone() {
                node.health(&mut self.wire, &gpu, true);
            }
            self.reconnect_node(at);
        }
        if let Some(state) = self.instances[0].mind.scheduler().filter(|state| state.position() > 0).or(self.instances[1].mind.scheduler())
        {
            self.clients.calm(&mut self.wire, state);
        }
        self.calm_since = self.wire.now;
        let each = TRAINING_MAX_MS + READY_WITHIN_MS + 60_000;
        self.bound = self.wire.now + RECOVERY_MS + self.referee.living() as u64 * each;
        self.wire.after(JUDGE_EVERY_MS, Step::Fault(Fault::Judge));
    }

    /// At rest: over. Not at rest in time: found.
    pub(crate) fn judge(&mut self) {
        let mut unrest = self.referee.unrest();
        for node in &self.nodes {
            let what = node.unrest().map(|what| Unrest { what, words: vec![node.name.to_string()] });
            unrest.extend(what);
            for (hearer, up_to) in node.unsettled() {
                let takes = |instance: &Instance| instance.service == hearer && instance.mind.has_taken(&node.name, up_to);
                if !self.instances.iter().any(takes) {
                    let what = format!("reports of {} to {hearer:?} are not taken in", node.name);
                    unrest.push(Unrest { what, words: vec![node.name.to_string()] });
                }
            }
        }
        if self.clients.open_ones() > 0 {
            unrest.push(Unrest { what: "clients wait for answers".to_owned(), words: Vec::new() });
        }
        let end = self.broker.ledger.end();
        if self.instances.iter().any(|instance| instance.position < end) {
            unrest.push(Unrest { what: "an instance is behind".to_owned(), words: Vec::new() });
        }
        let leading = self.instances.iter().find(|instance| instance.service == Service::Scheduler && instance.leads());
        let explained = match leading.and_then(|instance| instance.mind.scheduler()) {
            Some(state) if unrest.is_empty() => self.referee.explained(state),
            Some(_) => Ok(()),
            None => Err(Found { rule: "liveness", detail: "no scheduler leads".to_owned(), words: Vec::new() }),
        };
        if unrest.is_empty() && explained.is_ok() {
            self.compare_all();
            self.is_over = true;
        } else if self.wire.now >= self.bound {
            let whats: Vec<&str> = unrest.iter().take(5).map(|unrest| unrest.what.as_str()).collect();
            let words = unrest.first().map(|unrest| unrest.words.clone()).unwrap_or_default();
            let calm = (self.wire.now - self.calm_since) / 1_000;
            let late = Found { rule: "liveness", detail: format!("{calm} s after the storm: {}", whats.join("; ")), words };
            self.found = Some(if unrest.is_empty() { explained.err().unwrap_or(late) } else { late });
        } else {
            self.wire.after(JUDGE_EVERY_MS, Step::Fault(Fault::Judge));
        }
    }

    /// One living view equals the fold of what it has read.
    pub(crate) fn compare_one(&mut self) {
        let at = (self.seed % self.instances.len() as u64) as usize;
        self.compare(at);
    }

    fn compare_all(&mut self) {
        (0..self.instances.len()).for_each(|at| self.compare(at));
    }

    fn compare(&mut self, at: usize) {
        let instance = &self.instances[at];
        if !instance.is_up {
            return;
        }
        let mut fresh = instance::mind_of(instance.service, self.planted);
        for recorded in self.broker.ledger.after(0).iter().take(instance.position as usize) {
            fresh.fold(recorded);
        }
        if fresh.fingerprint() != instance.mind.fingerprint() {
            let detail = format!("the view of {:?} {} at {} is not the fold", instance.service, instance.name, instance.position);
            self.note(Err(Found { rule: "view", detail, words: Vec::new() }));
        }
    }
}
