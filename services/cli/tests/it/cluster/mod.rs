//! A whole platform for one test: a real broker, every service and every agent a process of its own, one address for clients, short leases.
//!
//! Nothing of it outlives the test. Tests that start one take [`alone`] first: a machine bears one at a time.

pub mod engines;
mod proxy;
pub mod record;
pub mod search;
pub mod versions;
pub mod watcher;

use footplate_api::types::{Run, RunState};
use footplate_api::{ApiError, Client, Target, v1};
use footplate_service::Exit;
use footplate_testkit::{NatsServer, Process, eventually, kill_processes_mentioning, nats, repository_root, try_eventually};
use proxy::Proxy;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

pub const SERVICES: [&str; 6] = ["tracker", "scheduler", "executor", "sweep", "gpu-inventory", "registry"];
/// How long anything may take that should take moments; generous, since machines that run tests are busy.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// The project of everything here.
pub const PROJECT: &str = "default";
pub const TOKEN: &str = "fp_the_token_of_all_the_tests_of_a_cluster";
/// For what nobody asks.
pub const ANY_PORT: &str = "127.0.0.1:0";
/// What is set everywhere: short leases, small streams.
const SETTINGS: &[&str] = &[
    "nats.disk=1GiB",
    "agent.slots=1",
    "lease.leader=1s",
    "lease.node=4s",
    "lease.margin=1s",
    "agent.kill=2s",
    "agent.beat=500ms",
    "agent.resend=1s",
    "tracker.seal-within=20s",
    "grace=5s",
];

static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The right to load the machine with a cluster.
pub async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// A running platform. All methods take `&self`, so that one task may strike what another uses.
///
/// A part that ends by itself because the broker is away is started again, as whatever supervises it in a deployment would; any other end
/// fails the test.
pub struct Cluster {
    pub nats: NatsServer,
    pub client: Client,
    proxy: Proxy,
    parts: Parts,
    supervisor: tokio::task::JoinHandle<()>,
    settings: Vec<String>,
    credentials: Option<PathBuf>,
    folder: TempDir,
}

type Parts = Arc<Mutex<BTreeMap<String, Part>>>;

struct Part {
    words: Vec<String>,
    process: Arc<Process>,
    /// Killed on purpose, and not yet started again.
    down: bool,
}

/// Starts again what ended for want of a broker.
async fn supervise(parts: Parts, folder: PathBuf) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut parts = parts.lock().unwrap();
        for (name, part) in parts.iter_mut().filter(|(_, part)| !part.down) {
            if let Ok(Some(status)) = part.process.exit_status() {
                println!("       {name} ended with {status}: {}", part.process.stderr().lines().last().unwrap_or_default());
                part.down = status.code() != Some(i32::from(Exit::Unavailable.code()));
                if !part.down {
                    part.process = spawn(&folder, name, &part.words);
                }
            }
        }
    }
}

fn spawn(folder: &Path, name: &str, words: &[String]) -> Arc<Process> {
    let mut command = binary(folder);
    command.args(words).current_dir(folder);
    Arc::new(Process::start(name, command, &folder.join("logs")).unwrap())
}

impl Cluster {
    /// Starts the services and an agent (of one slot where `agent.slots` says nothing else) for each of `nodes`, and waits until all of it is ready.
    pub async fn start(nodes: &[&str]) -> Self {
        Self::start_with(nodes, &[]).await
    }

    /// [`Cluster::start`] with some settings of its own.
    pub async fn start_with(nodes: &[&str], settings: &[&str]) -> Self {
        Self::start_over(nats().start().await, nodes, settings).await
    }

    /// [`Cluster::start_with`] over a broker that the test made.
    pub async fn start_over(nats: NatsServer, nodes: &[&str], settings: &[&str]) -> Self {
        Self::start_as(nats, None, nodes, settings).await
    }

    /// [`Cluster::start_over`] with credentials of its own for each part: the files `<part>.creds` of a folder.
    pub async fn start_as(nats: NatsServer, credentials: Option<PathBuf>, nodes: &[&str], settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("footplate-cluster-").tempdir().unwrap();
        std::fs::write(folder.path().join("bootstrap"), TOKEN).unwrap();
        let ports: BTreeMap<String, SocketAddr> = SERVICES.iter().map(|service| ((*service).to_owned(), free())).collect();
        let proxy = Proxy::start(ports.clone()).await;
        let client = Client::connect(Target::new(proxy.addr.to_string()).token(TOKEN)).unwrap();
        let settings = SETTINGS.iter().chain(settings).map(|setting| (*setting).to_owned()).collect();
        let parts = Parts::default();
        let supervisor = tokio::spawn(supervise(parts.clone(), folder.path().to_owned()));
        let cluster = Self { nats, client, proxy, parts, supervisor, settings, credentials, folder };
        for service in SERVICES {
            let listen = ports[service].to_string();
            cluster.add(service, &["serve", service, "--listen", &listen, "--admin", ANY_PORT]);
        }
        for node in nodes {
            cluster.add_agent(node);
        }
        cluster.nodes_ready(nodes).await;
        cluster
    }

    /// Waits until these nodes are ready.
    pub async fn nodes_ready(&self, nodes: &[&str]) {
        let look = || async {
            let known =
                self.client.safely(|| async { self.client.nodes().list_nodes(v1::ListNodesRequest::default()).await }).await.ok()?.nodes;
            nodes.iter().all(|name| known.iter().any(|node| node.name == *name && node.state == "ready")).then_some(())
        };
        eventually(PATIENCE, &format!("{nodes:?} are ready"), look).await;
    }

    pub fn add_agent(&self, node: &str) {
        let api = format!("agent.api={}", self.proxy.addr);
        let token = format!("agent.token={TOKEN}");
        let admin = format!("admin.listen={ANY_PORT}");
        self.add(node, &["agent", "--node", node, "--set", &api, "--set", &token, "--set", &admin]);
    }

    /// Starts a part by the words of its command line; settings, broker and data folder are added.
    pub fn add(&self, name: &str, words: &[&str]) {
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (data, url) = (self.path().join(name).display().to_string(), self.nats.url());
        words.extend(["--nats", &url, "--data", &data].map(str::to_owned));
        let own = ["objects", "bootstrap"].map(|key| format!("{key}={}", self.path().join(key).display()));
        let credentials = self.credentials.iter().map(|folder| format!("nats.credentials={}/{name}.creds", folder.display()));
        for setting in self.settings.iter().cloned().chain(own).chain(credentials) {
            words.extend(["--set".to_owned(), setting]);
        }
        let process = spawn(self.path(), name, &words);
        self.parts.lock().unwrap().insert(name.to_owned(), Part { words, process, down: false });
    }

    /// The folder that everything of this platform lies in, and every process of it mentions.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn part(&self, name: &str) -> Arc<Process> {
        self.parts.lock().unwrap()[name].process.clone()
    }

    /// Waits until a node's lease lasts for at least so long from now: its agent beats again.
    pub async fn lease_lasts(&self, node: &str, at_least: Duration) {
        let file = self.path().join(node).join("agent/lease.json");
        let look = || async {
            let lease: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
            let left = lease["until_boot_ns"].as_u64()?.saturating_sub(footplate_clock::boot_nanos());
            (Duration::from_nanos(left) >= at_least).then_some(())
        };
        eventually(PATIENCE, &format!("the lease of {node} lasts"), look).await;
    }

    /// Kills a part at once; what it started lives on.
    pub async fn kill9(&self, name: &str) {
        let process = {
            let mut parts = self.parts.lock().unwrap();
            let part = parts.get_mut(name).unwrap();
            part.down = true;
            part.process.clone()
        };
        process.kill9().await.unwrap();
    }

    /// Starts a part again as it was, killing it first when it still runs.
    pub async fn restart(&self, name: &str) {
        self.kill9(name).await;
        let mut parts = self.parts.lock().unwrap();
        let part = parts.get_mut(name).unwrap();
        part.process = spawn(self.path(), name, &part.words);
        part.down = false;
    }

    /// No part ended by itself for another reason than an absent broker.
    pub fn assert_all_up(&self) {
        let parts = self.parts.lock().unwrap();
        let down: Vec<_> = parts.iter().filter(|(_, part)| part.down).map(|(name, _)| name).collect();
        assert!(down.is_empty(), "ended by themselves: {down:?}");
    }

    /// The binary as a user calls it, against this platform.
    pub async fn footplate(&self, folder: &Path, words: &[&str]) -> Output {
        let mut command = binary(self.path());
        command.args(words).current_dir(folder).env("FOOTPLATE_ADDR", self.proxy.addr.to_string()).env("FOOTPLATE_TOKEN", TOKEN);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Submits; the run's id.
    pub async fn submit(&self, folder: &Path, words: &[&str]) -> String {
        let output = self.footplate(folder, &[&["submit", "-q"], words].concat()).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A folder with the fault tests' workers, and one for what they record.
    fn workers(&self, name: &str) -> (PathBuf, PathBuf) {
        let (job, record) = (self.path().join(format!("job-{name}")), self.path().join(format!("record-{name}")));
        std::fs::create_dir_all(&job).unwrap();
        std::fs::create_dir_all(&record).unwrap();
        let root = repository_root();
        std::fs::copy(root.join("loadtests/workers/fake_worker.py"), job.join("fake_worker.py")).unwrap();
        for worker in ["worker.py", "trial.py"] {
            std::fs::copy(root.join("services/cli/tests/it/cluster").join(worker), job.join(worker)).unwrap();
        }
        (job, record)
    }

    /// A folder with the fault tests' worker and a job file that starts it once on each of `nodes` nodes; and the folder of its record.
    pub fn training(&self, name: &str, nodes: u32, more: &str) -> (PathBuf, PathBuf) {
        let (job, record) = self.workers(name);
        let text = format!(
            "apiVersion: footplate/v1\nkind: Job\nname: {name}\nrun: [python3, worker.py]\nresources:\n  nodes: {nodes}\n  slots: 1\n\
             env:\n  vars:\n    RECORD: \"{}\"\nstop:\n  grace: 20s\n{more}",
            record.display()
        );
        std::fs::write(job.join("job.yaml"), text).unwrap();
        (job, record)
    }

    /// A run as the tracker knows it, or why it does not tell.
    pub async fn look(&self, run_id: &str) -> Result<Run, ApiError> {
        let asked = v1::GetRunRequest { project: PROJECT.to_owned(), run_id: run_id.to_owned(), ..v1::GetRunRequest::default() };
        let answer = self.client.safely(|| async { self.client.runs().get_run(asked.clone()).await }).await?;
        Ok(answer.run.unwrap_or_default())
    }

    /// [`Cluster::look`] for what is not there yet.
    pub async fn run(&self, run_id: &str) -> Option<Run> {
        self.look(run_id).await.ok()
    }

    /// Waits until a run is sealed.
    pub async fn sealed(&self, run_id: &str) -> Run {
        let look = || async { self.run(run_id).await.filter(|run| run.state() == RunState::Sealed) };
        match try_eventually(PATIENCE, "the run is sealed", look).await {
            Ok(run) => run,
            Err(late) => panic!("{late}: {:?}", self.look(run_id).await),
        }
    }

    /// Every event of an aggregate's kind (of all when empty), from the beginning.
    pub async fn events(&self, aggregate: &str) -> Vec<v1::Event> {
        let mut events = Vec::new();
        let mut from = 1;
        while from > 0 {
            let filter = v1::EventFilter { aggregate: aggregate.to_owned(), ..v1::EventFilter::default() };
            let asked = v1::ListEventsRequest { filter: Some(filter), from_sequence: from, page_size: 1_000, newest_first: false };
            let answer = self.client.safely(|| async { self.client.events().list_events(asked.clone()).await }).await.unwrap();
            events.extend(answer.events);
            from = answer.next_sequence;
        }
        events
    }

    /// Every service rebuilds its views and finds them equal.
    pub async fn assert_rebuild_equal(&self) {
        let output = self.footplate(self.path(), &["replay", "--verify"]).await;
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }

    /// The end of every part's log.
    fn logs(&self) -> String {
        let end = |text: String| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        };
        let parts = self.parts.lock().unwrap();
        parts.values().map(|part| format!("-- {}\n{}\n", part.process.name(), end(part.process.stderr()))).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last words of each part:\n{}", self.logs());
        }
        self.supervisor.abort();
        // Whoever supervises holds the lock while it starts something; afterwards it finds nothing.
        self.parts.lock().unwrap().clear();
        let text = self.path().display().to_string();
        // Twice: what was forked between look and kill is found by the second.
        while kill_processes_mentioning(&text) > 0 {
            std::thread::yield_now();
        }
        if std::env::var_os("FOOTPLATE_TEST_KEEP").is_some() {
            let kept = self.path().with_extension("kept");
            let _ = std::fs::rename(self.path(), &kept);
            eprintln!("kept: {}", kept.display());
        }
    }
}

/// The binary without the user's own settings.
pub fn binary(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FOOTPLATE_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", home).env("XDG_CONFIG_HOME", home.join("config"));
    command
}

/// A loopback address that nobody listens on: never given twice, and below the ports that the kernel gives to outgoing connections, so that it
/// is still free when whoever had it is started again.
pub fn free() -> SocketAddr {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 16_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        // Test processes side by side begin at places of their own.
        let offset = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], (FIRST + offset) as u16));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port");
}
