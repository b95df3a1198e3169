//! Declared nodes with agents on paper: a gang of 64 members, all in one process.

use crate::node::{Folder, SOON, launch, quick};
use footplate_eventlog::{Broker as _, Expect, Headers, Message, StreamName, memory::MemoryBroker};
use footplate_events::{
    facts::{DocumentRef, Launcher, Rendezvous, StopCause, StopPolicy},
    messages::{Assignment, ExecutorReport, Order, Report, ReportBody, Task, assign_subject},
};
use footplate_executor_agent::{AgentConfig, Mode, OnShutdown, ShapeSource, node::declared_nodes, run};
use footplate_testkit::eventually;
use footplate_types::{AttemptNumber, DisplayName, Epoch, MemberIndex, Millis, NodeName, ProjectName, Rank, RunId};
use std::{fs, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

const NODES: u32 = 64;

struct Gang {
    broker: MemoryBroker,
    nodes: Vec<NodeName>,
    launch: DocumentRef,
}

impl Gang {
    fn task(&self, at: u32, order: Order) -> Task {
        Task {
            project: ProjectName::parse("vision").unwrap(),
            run: RunId::from_bytes([1; 16]),
            name: DisplayName::parse("gang").unwrap(),
            attempt: AttemptNumber(1),
            member: MemberIndex(at),
            epoch: Epoch(1),
            placed_at: 10,
            order,
            members: NODES,
            world_size: NODES,
            first_rank: Rank(at),
            workers: 1,
            gpus: Vec::new(),
            gpu_profile: None,
            gpu_share: 0,
            gpu_memory_bytes: 0,
            slots: Vec::new(),
            memory_bytes: 0,
            launcher: Launcher::Direct,
            stop: StopPolicy::default(),
            launch: self.launch,
            config: None,
            source: None,
            checkpoint: None,
            seed: None,
            objective: None,
            role: None,
            array: None,
            traceparent: None,
        }
    }

    async fn assign(&self, as_of: u64, order: &Order) {
        for (at, node) in self.nodes.iter().enumerate() {
            let assignment = Assignment { node: node.clone(), as_of, tasks: vec![self.task(at as u32, order.clone())] };
            let payload = serde_json::to_vec(&assignment).unwrap().into();
            let message = Message { subject: assign_subject(node), headers: Headers::default(), payload };
            self.broker.publish(StreamName::Assignments, message, Expect::Any).await.unwrap();
        }
    }

    async fn reports(&self) -> Vec<ExecutorReport> {
        let page = self.broker.read(StreamName::Reports, "fp.report.*.executor", 1, usize::MAX).await.unwrap();
        let reports = page.messages.iter().map(|message| serde_json::from_slice::<Report>(&message.payload).unwrap());
        reports.filter_map(|report| if let ReportBody::Executor(report) = report.body { Some(report) } else { None }).collect()
    }

    async fn all(&self, what: &str, is: impl Fn(&ExecutorReport) -> bool) {
        let counted = || async { (self.reports().await.iter().filter(|report| is(report)).count() == NODES as usize).then_some(()) };
        eventually(SOON, what, counted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_of_64_simulated_members_goes_through_its_life() {
    let root = tempfile::tempdir().unwrap();
    let store = root.path().join("store");
    fs::create_dir_all(&store).unwrap();
    let store = Arc::new(Folder(store));
    let nodes = declared_nodes("[[node]]\nname = \"sim\"\ncount = 64\ncpus = 8\n[[node.gpu]]\nmodel = \"H100\"\ncount = 8\n").unwrap();
    let launch = store.add(&serde_json::to_vec(&launch("true")).unwrap());
    let gang = Gang { broker: MemoryBroker::new(), nodes: nodes.iter().map(|node| node.name.clone()).collect(), launch };
    let shutdown = CancellationToken::new();
    let agents: Vec<_> = nodes
        .iter()
        .map(|node| {
            let mut config = AgentConfig::new(node.name.clone(), root.path().join(node.name.as_str()));
            config.shape = ShapeSource::Declared(node.shape.clone());
            config.mode = Mode::Simulated { run_for: Duration::from_secs(3_600) };
            config.sync = false;
            config.timings = quick();
            config.on_shutdown = OnShutdown::LeaveMembers;
            tokio::spawn(run(config, Arc::new(gang.broker.clone()), store.clone(), shutdown.clone()))
        })
        .collect();
    let registered = || async {
        let page = gang.broker.read(StreamName::Reports, "fp.report.*.gpu-inventory", 1, usize::MAX).await.unwrap();
        (page.messages.len() == NODES as usize).then_some(())
    };
    eventually(SOON, "all nodes are registered", registered).await;
    gang.assign(20, &Order::Prepare).await;
    gang.all("all are ready", |report| matches!(report, ExecutorReport::Ready { .. })).await;
    let rendezvous = Rendezvous { address: "sim-0".to_owned(), port: 1 };
    gang.assign(21, &Order::Run { rendezvous, peers: Vec::new() }).await;
    gang.all("all have started", |report| matches!(report, ExecutorReport::Started { .. })).await;
    gang.assign(22, &Order::Stop { cause: StopCause::Cancelled, grace: Millis(100) }).await;
    let obeyed =
        |report: &ExecutorReport| matches!(report, ExecutorReport::Exited { exited, .. } if exited.obeyed == Some(StopCause::Cancelled));
    gang.all("all have obeyed", obeyed).await;
    shutdown.cancel();
    for agent in agents {
        agent.await.unwrap().unwrap();
    }
}
