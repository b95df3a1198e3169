//! Seats those who should run: on free GPUs, else on those of jobs that should not, else by moving jobs together.

use super::floor::JobId;
use super::philly::NODE_GPUS;
use super::world::World;
use std::collections::VecDeque;

/// What it would take to have room on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Effort {
    /// Seconds for which somebody runs undisturbed still.
    wait_s: u64,
    /// GPUs of jobs that should run, and would have to move.
    moved: u32,
    /// GPUs of jobs that should not run, and would be stopped.
    stopped: u32,
    /// GPUs that would be left over.
    over: u32,
}

/// The seating of one look.
pub(super) struct Seating<'a> {
    world: &'a mut World,
    /// Who runs and should go on, by job.
    keeps: &'a [bool],
    /// Nodes that are kept for somebody who waits for a protected job to run its time.
    kept_for: Vec<bool>,
}

impl<'a> Seating<'a> {
    /// Nobody seated yet.
    pub(super) fn new(world: &'a mut World, keeps: &'a [bool]) -> Self {
        let nodes = world.floor.nodes();
        Self { world, keeps, kept_for: vec![false; nodes] }
    }

    /// Starts jobs, the widest first, and stops others where they need it; gives those that started. Who is protected stays where it is, and so
    /// do gangs that should go on; any other that should go on may be moved: it is stopped, and seated again in the same moment.
    pub(super) fn seat_all(mut self, starting: &[JobId]) -> Vec<JobId> {
        let mut order: Vec<JobId> = starting.to_vec();
        order.sort_by_key(|job| (std::cmp::Reverse(self.world.jobs[*job].held()), *job));
        let mut order = VecDeque::from(order);
        let mut started = Vec::new();
        while let Some(job) = order.pop_front() {
            let held = self.world.jobs[job].held();
            let Some(nodes) = self.room_for(held, &mut order) else { continue };
            self.world.start(job, nodes);
            started.push(job);
        }
        started
    }

    /// Nodes with room, made where there is none; those who have to move for it join the line.
    fn room_for(&mut self, held: u32, line: &mut VecDeque<JobId>) -> Option<Vec<usize>> {
        if let Some(nodes) = self.world.floor.seat_on(held, |node| !self.kept_for[node]) {
            return Some(nodes);
        }
        let (nodes, wait_s) = self.nodes_to_clear(held)?;
        if wait_s > 0 {
            // Nobody else sits down there, so that the wait has an end.
            nodes.iter().for_each(|node| self.kept_for[*node] = true);
            return None;
        }
        for moved in self.clear(held, &nodes) {
            // It is no wider than who takes its place, so it is not too late for it.
            let at = line.partition_point(|other| self.world.jobs[*other].held() > self.world.jobs[moved].held());
            line.insert(at, moved);
        }
        Some(nodes)
    }

    /// The nodes on which a job would have room with least effort, and for how long it would have to wait.
    fn nodes_to_clear(&self, held: u32) -> Option<(Vec<usize>, u64)> {
        let count = held.div_ceil(NODE_GPUS) as usize;
        let nodes = (0..self.world.floor.nodes()).filter(|node| !self.kept_for[*node]);
        let mut efforts: Vec<(Effort, usize)> = nodes.filter_map(|node| Some((self.effort(node, held.min(NODE_GPUS))?, node))).collect();
        efforts.sort_unstable();
        efforts.truncate(count);
        let wait_s = efforts.last()?.0.wait_s;
        (efforts.len() == count).then(|| (efforts.into_iter().map(|(_, node)| node).collect(), wait_s))
    }

    fn effort(&self, node: usize, wanted: u32) -> Option<Effort> {
        let mut room = self.world.floor.free(node);
        let mut effort = Effort { wait_s: 0, moved: 0, stopped: 0, over: 0 };
        for (job, gpus, wait_s) in self.victims(node) {
            if room >= wanted {
                break;
            }
            room += gpus;
            effort.wait_s = effort.wait_s.max(wait_s);
            if self.keeps[job] { effort.moved += gpus } else { effort.stopped += gpus }
        }
        effort.over = room.checked_sub(wanted)?;
        Some(effort)
    }

    /// Who could leave a node, and after how long: first who could at once; of these first who should not run anyway.
    fn victims(&self, node: usize) -> Vec<(JobId, u32, u64)> {
        let residents = self.world.floor.residents(node).iter();
        let gang_goes_on = |job: JobId| self.keeps[job] && self.world.jobs[job].held() > NODE_GPUS && !self.world.is_protected(job);
        let mut victims: Vec<(JobId, u32, u64)> =
            residents.filter(|(job, _)| !gang_goes_on(*job)).map(|(job, gpus)| (*job, *gpus, self.world.protected_for_s(*job))).collect();
        victims.sort_unstable_by_key(|(job, gpus, wait_s)| (*wait_s, self.keeps[*job], *gpus, std::cmp::Reverse(*job)));
        victims
    }

    /// Stops who stands in the way; gives those that should go on.
    fn clear(&mut self, held: u32, nodes: &[usize]) -> Vec<JobId> {
        let mut moved = Vec::new();
        for node in nodes {
            for (job, ..) in self.victims(*node) {
                if self.world.floor.free(*node) >= held.min(NODE_GPUS) {
                    break;
                }
                self.world.stop(job);
                if self.keeps[job] {
                    moved.push(job);
                }
            }
        }
        moved
    }
}
