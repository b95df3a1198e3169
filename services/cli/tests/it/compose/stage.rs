//! The deployment of `deploy/docker` as plain processes: each container's own command, variables, mounts and health check, and the proxy with its very
//! file. A container is an address of the loopback network, so that every port is the one in the file; its folders lie below one of this test.
//!
//! In the place of ScyllaDB stands an Apache Cassandra. Prometheus, Grafana are not started: what they read is.

use super::file::{Compose, Service, folder, variables};
use super::routes;
use crate::cluster::{PATIENCE, binary};
use bytes::Bytes;
use footplate_testkit::{
    CassandraServer, Process, demo_python, eventually, haproxy_program, kill_processes_mentioning, nats_server_program, repository_root,
    s3_server_program,
};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Every port that something listens on inside the deployment.
const PORTS: [u16; 6] = [7450, 7451, 7443, 4222, 8222, 7070];
/// Who is started, whoever another waits for before it.
const STARTED: [&str; 10] = ["nats", "s3", "tracker", "scheduler", "executor", "sweep", "gpu-inventory", "registry", "agent", "proxy"];

/// A running deployment.
pub struct Stage {
    pub compose: Compose,
    folder: TempDir,
    hosts: BTreeMap<String, Ipv4Addr>,
    /// What stands for `name:port` here.
    places: Vec<(String, String)>,
    processes: Mutex<BTreeMap<String, Arc<Process>>>,
    // Held for its life alone.
    _series: CassandraServer,
}

impl Stage {
    /// Starts all of it in the order of the file, and waits until every health check is content.
    pub async fn start() -> Self {
        let compose = Compose::read_with(&[("FOOTPLATE_NATS_DISK", "1GiB")]);
        let folder = tempfile::Builder::new().prefix("footplate-compose-").tempdir().unwrap();
        let series = CassandraServer::start().await;
        let hosts = hosts(&compose);
        let mut places: Vec<(String, String)> = vec![("scylla:9042".to_owned(), series.node())];
        for (name, host) in &hosts {
            places.extend(PORTS.map(|port| (format!("{name}:{port}"), format!("{host}:{port}"))));
        }
        let stage = Self { compose, folder, hosts, places, processes: Mutex::default(), _series: series };
        let made = super::init(&stage.path().join("secrets")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for name in stage.compose.services.keys() {
            stage.lay_out(name);
        }
        for name in STARTED {
            for before in stage.compose.services[name].depends_on.iter().filter(|before| *before != "scylla") {
                stage.becomes_healthy(before).await;
            }
            stage.spawn(name);
        }
        for name in STARTED {
            stage.becomes_healthy(name).await;
        }
        stage
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `host:port` of a container.
    pub fn addr(&self, name: &str, port: u16) -> String {
        format!("{}:{port}", self.hosts[name])
    }

    pub fn process(&self, name: &str) -> Arc<Process> {
        self.processes.lock().unwrap()[name].clone()
    }

    /// The token that `init.sh` has made for a person.
    pub fn token(&self) -> String {
        std::fs::read_to_string(self.path().join("secrets/token")).unwrap().trim().to_owned()
    }

    /// The folder that stands for `/` of a container.
    fn root(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn inside(&self, name: &str, target: &str) -> PathBuf {
        self.root(name).join(target.trim_start_matches('/'))
    }

    /// Puts what is mounted into a container where it is found: addresses and paths in it are those of here.
    fn lay_out(&self, name: &str) {
        for mount in &self.compose.services[name].mounts {
            let target = self.inside(name, &mount.target);
            if !mount.is_bind() {
                std::fs::create_dir_all(&target).unwrap();
                continue;
            }
            let source = mount.secret().map_or_else(|| folder().join(&mount.source), |secret| self.path().join("secrets").join(secret));
            let files = if source.is_dir() {
                std::fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path()).collect()
            } else {
                vec![source.clone()]
            };
            for file in files.iter().filter(|file| file.is_file()) {
                let to = if source.is_dir() { target.join(file.file_name().unwrap()) } else { target.clone() };
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::write(to, self.here(name, &std::fs::read_to_string(file).unwrap())).unwrap();
            }
        }
    }

    /// A text of a container with the addresses and paths that are its own here.
    fn here(&self, name: &str, text: &str) -> String {
        let service = &self.compose.services[name];
        let mut text = text.replace("0.0.0.0:", &format!("{}:", self.hosts.get(name).copied().unwrap_or(Ipv4Addr::LOCALHOST)));
        for (there, here) in &self.places {
            text = text.replace(there, here);
        }
        let targets = service.mounts.iter().map(|mount| Path::new(&mount.target));
        let parents = targets.clone().filter_map(Path::parent).filter(|parent| *parent != Path::new("/"));
        let paths: Vec<&str> = targets.chain(parents).map(|path| path.to_str().unwrap()).collect();
        below(&text, &paths, &self.root(name))
    }

    fn variables(&self, name: &str) -> BTreeMap<String, String> {
        let service = &self.compose.services[name];
        let mut given = service.environment.clone();
        for file in &service.env_files {
            let secret = file.strip_prefix("./secrets/").unwrap();
            given.extend(variables(&std::fs::read_to_string(self.path().join("secrets").join(secret)).unwrap()));
        }
        let named = |value: &str| self.compose.services.iter().find(|(_, other)| other.hostname == value && !value.is_empty());
        let here = |value: &str| named(value).map_or_else(|| self.here(name, value), |(other, _)| self.hosts[other].to_string());
        given.iter().map(|(key, value)| (key.clone(), here(value))).collect()
    }

    /// The command that a container runs, or one run in it (`words`).
    fn command(&self, name: &str, words: &[String]) -> Command {
        let service = &self.compose.services[name];
        let words = words.iter().map(|word| self.here(name, word));
        let mut command = match program(service) {
            Program::Footplate => {
                let mut command = binary(&self.root(name));
                let python = demo_python().unwrap();
                let path = std::env::var("PATH").unwrap_or_default();
                command.env("PATH", format!("{}:{path}", python.parent().unwrap().display()));
                command.args(words);
                command
            }
            Program::S3 => s3(words, &self.inside(name, "/data"), self.hosts[name], &self.variables(name)),
            Program::Nats => {
                let mut command = Command::new(nats_server_program().unwrap());
                command.args(words).arg("-a").arg(self.hosts[name].to_string());
                command
            }
            Program::HaProxy => self.proxy(&routes::file()),
        };
        command.envs(self.variables(name));
        command
    }

    /// The proxy with a configuration, told where everybody is.
    pub fn proxy(&self, config: &Path) -> Command {
        let mut command = Command::new(haproxy_program().unwrap());
        command.arg("-db").arg("-f").arg(config);
        for (other, host) in &self.hosts {
            command.env(format!("FOOTPLATE_{}_HOST", other.to_uppercase().replace('-', "_")), host.to_string());
        }
        command
    }

    /// Starts a container, again when it runs no more.
    pub fn spawn(&self, name: &str) {
        let mut command = self.command(name, &self.compose.services[name].command);
        std::fs::create_dir_all(self.root(name)).unwrap();
        command.current_dir(self.root(name));
        let process = Process::start(name, command, &self.path().join("logs")).unwrap();
        self.processes.lock().unwrap().insert(name.to_owned(), Arc::new(process));
    }

    /// Waits until a container's own health check says so.
    pub async fn becomes_healthy(&self, name: &str) {
        let process = self.process(name);
        let look = || async {
            assert!(process.is_running(), "{name} ended: {}{}", process.stdout(), process.stderr());
            self.is_healthy(name).await.then_some(())
        };
        eventually(PATIENCE, &format!("{name} is healthy"), look).await;
    }

    pub async fn is_healthy(&self, name: &str) -> bool {
        let check = &self.compose.services[name].health;
        if let ["CMD", "wget", "-q", "-O", "/dev/null", url] = check.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            let url = url.replace("127.0.0.1", &self.hosts[name].to_string());
            return get(&url).await.is_some_and(|(status, _)| status == 200);
        }
        assert_eq!(check[..2], ["CMD", "/usr/local/bin/footplate"]);
        let mut command = self.command(name, &check[2..]);
        tokio::task::spawn_blocking(move || command.output().unwrap().status.success()).await.unwrap()
    }

    /// `docker compose run --rm cli WORDS`.
    pub async fn cli(&self, words: &[&str]) -> Output {
        let mut command = self.cli_command(words);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Where the command line stands in its container.
    pub fn work(&self) -> PathBuf {
        self.inside("cli", &self.compose.services["cli"].working_dir)
    }

    pub fn cli_command(&self, words: &[&str]) -> Command {
        let work = self.work();
        if !work.exists() {
            std::fs::create_dir_all(&work).unwrap();
            // As the image does: the example, and no repository around it.
            for entry in std::fs::read_dir(repository_root().join("docs/examples/digits")).unwrap().flatten() {
                if entry.path().is_file() {
                    std::fs::copy(entry.path(), work.join(entry.file_name())).unwrap();
                }
            }
        }
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut command = self.command("cli", &words);
        command.current_dir(work);
        command
    }

    /// `docker compose exec NAME footplate WORDS`, which must succeed.
    pub async fn exec(&self, name: &str, words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut command = self.command(name, &words);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "in {name}: {words:?}: {told}{}", String::from_utf8_lossy(&output.stderr));
        told
    }

    /// [`Stage::cli`] for what must succeed.
    pub async fn done(&self, words: &[&str]) -> String {
        let output = self.cli(words).await;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "footplate {words:?} ended with {}: {told}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        told
    }

    /// The JSON of what must succeed.
    pub async fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.done(&[words, &["-o", "json"]].concat()).await).unwrap()
    }

    /// A target of Prometheus, as it is reached here.
    pub fn target(&self, target: &str) -> String {
        self.places.iter().find(|(there, _)| there == target).map_or_else(|| panic!("{target} is nowhere"), |(_, here)| here.clone())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let processes = std::mem::take(&mut *self.processes.lock().unwrap());
        if std::thread::panicking() {
            for (name, process) in &processes {
                let said = process.stdout() + &process.stderr();
                let lines: Vec<&str> = said.lines().collect();
                eprintln!("-- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
        drop(processes);
        let text = self.path().display().to_string();
        while kill_processes_mentioning(&text) > 0 {
            std::thread::yield_now();
        }
    }
}

enum Program {
    Footplate,
    S3,
    Nats,
    HaProxy,
}

fn program(service: &Service) -> Program {
    match service.image.split(':').next().unwrap() {
        "footplate" | "footplate-agent" => Program::Footplate,
        "footplate-s3" => Program::S3,
        "nats" => Program::Nats,
        "haproxy" => Program::HaProxy,
        other => panic!("{other} is not started"),
    }
}

/// The S3 server, with the bucket that its image has.
fn s3(words: impl Iterator<Item = String>, data: &Path, host: Ipv4Addr, variables: &BTreeMap<String, String>) -> Command {
    std::fs::create_dir_all(data.join("footplate")).unwrap();
    let program = s3_server_program().unwrap();
    let is_other = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("s3s"));
    let mut command = Command::new(program);
    if is_other {
        let (key, secret) = (&variables["ROOT_ACCESS_KEY"], &variables["ROOT_SECRET_KEY"]);
        command.args(["--host", &host.to_string(), "--port", "7070", "--access-key", key, "--secret-key", secret]).arg(data);
    } else {
        command.args(words);
    }
    command
}

/// An address of the loopback network for each container, on all of which every port is free.
fn hosts(compose: &Compose) -> BTreeMap<String, Ipv4Addr> {
    let first = std::process::id() % 200;
    for network in (first..200).chain(0..first) {
        let host = |at: usize| Ipv4Addr::new(127, 120, network as u8 + 10, at as u8 + 1);
        let hosts: BTreeMap<String, Ipv4Addr> = compose.services.keys().enumerate().map(|(at, name)| (name.clone(), host(at))).collect();
        let free = |host: &Ipv4Addr| PORTS.iter().all(|port| TcpListener::bind(SocketAddr::from((*host, *port))).is_ok());
        if hosts.values().all(free) {
            return hosts;
        }
    }
    panic!("something listens everywhere on one of the ports {PORTS:?}");
}

/// `text` with `root` before every path in it that is one of `paths` or lies below one.
fn below(text: &str, paths: &[&str], root: &Path) -> String {
    let mut out = String::new();
    for (at, letter) in text.char_indices() {
        let begins = text[..at].chars().next_back().is_none_or(|before| before.is_whitespace() || "\"'=,".contains(before));
        if letter == '/' && begins && paths.iter().any(|path| text[at..].starts_with(path)) {
            out.push_str(&root.display().to_string());
        }
        out.push(letter);
    }
    out
}

/// What an HTTP/1.1 server answers.
pub async fn get(url: &str) -> Option<(u16, String)> {
    ask(Request::get(url).body(Full::default()).unwrap()).await
}

/// The same for any request.
pub async fn ask(request: Request<Full<Bytes>>) -> Option<(u16, String)> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request).await.ok()?;
    assert_eq!(answer.version(), hyper::Version::HTTP_11);
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}
