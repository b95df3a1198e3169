//! Policies that never stop a job, told by hand; what holds for all; and the whole program on a trace of its own.

use footplate_replay::jct::floor::{Floor, JobId};
use footplate_replay::jct::philly::{self, Job, Trace};
use footplate_replay::jct::queue::{Easy, Fifo, ShortestFirst};
use footplate_replay::jct::world::{Preemption, Scheduler, World};
use footplate_replay::jct::{Name, Options, Policy, replay, run};
use footplate_replay::trace::Data;
use serde_json::json;
use std::fmt::Write as _;

/// A job of (submitted, takes, GPUs), of the only VC.
pub(crate) fn job(submitted_s: u64, takes_s: u64, gpus: u32) -> Job {
    Job { submitted_s, takes_s, gpus, vc: 0 }
}

/// A world in which everything has happened.
pub(crate) fn played(jobs: &[Job], quotas: &[u32], scheduler: impl Scheduler) -> World {
    let gpus = quotas.iter().sum();
    let mut world = World::new(jobs.to_vec(), quotas.to_vec(), gpus, Preemption::default());
    world.play(&mut Watched(scheduler));
    world
}

pub(crate) fn ends(world: &World) -> Vec<u64> {
    world.standings.iter().map(|standing| standing.ended_s.unwrap()).collect()
}

/// Looks after every look whether what runs can be.
struct Watched<S>(S);

impl<S: Scheduler> Scheduler for Watched<S> {
    fn waits(&mut self, world: &World, job: JobId) {
        self.0.waits(world, job);
    }
    fn ended(&mut self, world: &World, job: JobId) {
        self.0.ended(world, job);
    }
    fn next_mark(&self, world: &World, job: JobId, done_s: u64) -> Option<u64> {
        self.0.next_mark(world, job, done_s)
    }
    fn marked(&mut self, world: &World, job: JobId, done_s: u64) {
        self.0.marked(world, job, done_s);
    }
    fn look(&mut self, world: &mut World) {
        self.0.look(world);
        let held: u32 = world.running.iter().map(|job| world.jobs[*job].held()).sum();
        assert_eq!(world.floor.free_gpus(), world.floor.gpus() - held);
        assert_eq!(world.held.iter().sum::<u32>(), held);
        for node in 0..world.floor.nodes() {
            let used: u32 = world.floor.residents(node).iter().map(|(_, gpus)| gpus).sum();
            assert_eq!(used + world.floor.free(node), philly::NODE_GPUS);
        }
        for job in &world.running {
            let (wide, nodes) = (world.jobs[*job].held(), world.standings[*job].nodes.len() as u32);
            assert_eq!(nodes, wide.div_ceil(philly::NODE_GPUS), "a gang sits whole");
        }
    }
}

#[test]
fn a_job_sits_on_the_fullest_node_that_has_room_and_a_gang_on_idle_ones() {
    let mut floor = Floor::new(24);
    floor.take(1, 3, &[1]);
    assert_eq!(floor.seat(4), Some(vec![1]));
    assert_eq!(floor.seat(6), Some(vec![0]));
    assert_eq!(floor.seat(16), Some(vec![0, 2]));
    assert_eq!(floor.seat(24), None);
    floor.give(1, &[1]);
    assert_eq!(floor.seat(24), Some(vec![0, 1, 2]));
    assert_eq!(job(0, 1, 12).held(), 16, "what is left of its nodes is nobody's");
}

#[test]
fn fifo_waits_for_the_first_and_the_oracle_takes_the_shortest() {
    let line = [job(0, 100, 8), job(1, 50, 8), job(2, 10, 4), job(3, 20, 4)];
    assert_eq!(ends(&played(&line, &[8], Fifo::default())), [100, 150, 160, 170]);
    assert_eq!(ends(&played(&line, &[8], ShortestFirst::default())), [100, 170, 110, 120]);
}

#[test]
fn easy_lets_pass_who_is_expected_to_end_before_the_first_may_start() {
    // Twenty of one GPU that take half a minute teach it that such a job ends within a minute.
    let mut line: Vec<Job> = (0..20).map(|at| job(at, 30, 1)).collect();
    // The wide one takes fifteen minutes: at 1,010 it is about to end, as all did; at 1,125 it is expected to go on until 1,240.
    line.extend([job(1_000, 900, 4), job(1_001, 50, 8), job(1_010, 30, 1), job(1_125, 30, 1), job(1_126, 30, 8)]);
    let ends = ends(&played(&line, &[8], Easy::new(1)));
    assert_eq!(ends[20..], [1_900, 1_950, 1_155, 1_155, 1_980]);
}

#[test]
fn a_vc_is_entitled_to_its_share_and_to_one_gpu_at_least() {
    let text = "submit_s,duration_s,num_gpus,vc\n5,100,3,b\n0,500,1,a\n9,200,1,b\n9,1,1,tiny\n";
    let trace = philly::parse(text).unwrap();
    assert_eq!(trace.vcs, ["a", "b", "tiny"]);
    assert_eq!(trace.jobs.iter().map(|job| (job.submitted_s, job.vc)).collect::<Vec<_>>(), [(0, 0), (5, 1), (9, 1), (9, 2)]);
    assert_eq!(trace.quotas(16), [8, 7, 1]);
    for gpus in [8, 64, 320] {
        assert_eq!(trace.quotas(gpus).iter().sum::<u32>(), gpus);
    }
    assert_eq!(trace.clipped(2)[1].gpus, 2);
    for broken in ["h\n1,2,3\n", "h\n1,0,3,a\n", "h\n1,2,x,a\n", "h\n"] {
        assert!(philly::parse(broken).is_err(), "{broken}");
    }
}

/// A trace of some days: three VCs, bursts, gangs, more than 32 GPUs can do at once.
fn text() -> String {
    let mut text = "submit_s,duration_s,num_gpus,vc\n".to_owned();
    for at in 0..240u64 {
        let gpus = [1, 1, 1, 1, 2, 1, 4, 1, 8, 1, 1, 16, 1, 1, 12][(at * 7 % 15) as usize];
        let takes = 20 + at * 7_919 % 500 * (1 + at % 5) * (1 + at % 7);
        let _ = writeln!(text, "{},{takes},{gpus},vc{}", at / 6 * 900 + at % 6, at % 11 % 3);
    }
    text
}

fn trace() -> Trace {
    philly::parse(&text()).unwrap()
}

#[test]
fn under_every_policy_everybody_ends_and_nobody_sooner_than_it_can() {
    let trace = trace();
    for policy in Policy::ALL {
        let figures = replay(&trace, 32, policy);
        assert_eq!(figures.unfinished, 0, "{policy:?}");
        assert!(figures.wait_s[0] > 60.0 && figures.jct_s[0] > figures.wait_s[0], "{policy:?}: {figures:?}");
        assert!(figures.utilisation > 0.5 && figures.utilisation <= 1.0, "{policy:?}: {figures:?}");
        assert!(figures.fairness > 0.0 && figures.fairness <= 1.0 + 1e-9, "{policy:?}: {figures:?}");
    }
    let ours = replay(&trace, 32, Policy::Ours { quotas: true });
    let again = replay(&trace, 32, Policy::Ours { quotas: true });
    assert_eq!((ours.jct_s, ours.events, ours.stops), (again.jct_s, again.events, again.stops), "the same trace, the same figures");
    assert_eq!(ours.quota_violations, 0);
    assert!(replay(&trace, 32, Policy::Fifo).quota_violations > 0, "who never stops anybody cannot give back");
}

#[test]
fn the_program_tells_of_every_policy_on_every_number_of_gpus() {
    let folder = tempfile::tempdir().unwrap();
    let data = Data { data: Some(folder.path().to_owned()) };
    let options = |gpus: &[u32]| Options { trace: Name::Philly, gpus: gpus.to_vec(), data: data.clone() };
    let missing = run(&options(&[16])).unwrap_err();
    assert!(format!("{missing:#}").contains("philly_jobs.csv"), "{missing:#}");
    std::fs::create_dir(folder.path().join("philly")).unwrap();
    std::fs::write(folder.path().join("philly/philly_jobs.csv"), text()).unwrap();
    assert!(run(&options(&[12])).is_err(), "half a node");
    let report = run(&options(&[16, 32])).unwrap();
    assert!(report.wrong().is_empty(), "{:?}", report.wrong());
    for policy in Policy::ALL {
        for key in ["jct_mean_s", "wait_p99_s", "utilisation", "fairness", "quota_violations", "starved"] {
            for gpus in [16, 32] {
                let key = format!("{}_{key}_{gpus}", policy.key());
                assert!(report.get(&key).is_some_and(serde_json::Value::is_number), "{key}");
            }
        }
    }
    assert!(report.get("best_non_oracle_at_every_load").is_some_and(serde_json::Value::is_boolean));
    assert_eq!(report.get("starved"), Some(&json!(0)));
}
