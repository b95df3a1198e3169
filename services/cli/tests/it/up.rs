//! A real `footplate up` over a temporary folder, and the command line against it.

use footplate_testkit::{Process, nats_server_program, repository_root};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long a start, or one command, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub struct Up {
    pub folder: tempfile::TempDir,
    pub addr: String,
    pub process: Process,
    variables: Vec<(String, String)>,
}

impl Up {
    /// Starts it with two slots and waits until its node is ready.
    pub fn start(more: &[(&str, String)]) -> Self {
        Self::start_at(format!("127.0.0.1:{}", free_port()), more)
    }

    /// The same on an address of its own.
    pub fn start_at(addr: String, more: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variables = vec![("XDG_CONFIG_HOME".to_owned(), folder.path().join("config").display().to_string())];
        std::fs::create_dir_all(folder.path().join("work")).unwrap();
        let command = command(folder.path(), &addr, &variables, more);
        let process = Process::start("up", command, folder.path()).unwrap();
        let up = Self { folder, addr, process, variables };
        up.ready();
        up
    }

    /// Starts it with settings that it must not take: its exit code, and what it says.
    pub fn refused(more: &[(&str, String)]) -> (Option<i32>, String) {
        Self::refused_at(&format!("127.0.0.1:{}", free_port()), more)
    }

    /// The same on an address of its own.
    pub fn refused_at(addr: &str, more: &[(&str, String)]) -> (Option<i32>, String) {
        let folder = tempfile::tempdir().unwrap();
        let output = command(folder.path(), addr, &[], more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    /// Starts it again over the same folder, after it has ended.
    pub fn restart(&mut self, more: &[(&str, String)]) {
        let command = command(self.folder.path(), &self.addr, &self.variables, more);
        self.process = Process::start("up", command, self.folder.path()).unwrap();
        self.ready();
    }

    fn ready(&self) {
        let began = Instant::now();
        loop {
            let listed = self.run(&["node", "list", "-o", "json"]);
            if String::from_utf8_lossy(&listed.stdout).contains("\"ready\"") {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "not ready:\n{}\n{}", self.process.stdout(), self.process.stderr());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The folder in which commands are run.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Runs one command, whatever it ends with.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
        clean(&mut command);
        command.args(args).current_dir(self.work()).envs(self.variables.iter().cloned()).output().unwrap()
    }

    /// Runs one command that must succeed; gives what it printed.
    pub fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(output.status.success(), "footplate {args:?} ended with {}:\n{out}{err}\n{}", output.status, self.process.stderr());
        out
    }

    /// Runs one command that must succeed; gives its JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.done(&args)).unwrap()
    }
}

/// No setting of whoever runs the tests may leak in.
pub fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if ["FOOTPLATE_", "OTEL_", "AWS_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}

fn command(folder: &Path, addr: &str, variables: &[(String, String)], more: &[(&str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
    clean(&mut command);
    command.args(["up", "--slots", "2", "--listen", addr, "--data"]).arg(folder.join("data"));
    let mut set = |key: &str, value: String| {
        command.arg("--set").arg(format!("{key}={value}"));
    };
    set("nats.port", free_port().to_string());
    set("nats.monitor-port", free_port().to_string());
    set("admin.listen", format!("127.0.0.1:{}", free_port()));
    set("nats.disk", "1GiB".to_owned());
    set("nats.program", nats_server_program().unwrap().display().to_string());
    for (key, value) in more.iter().filter(|(key, _)| !key.starts_with("OTEL_") && !key.starts_with("--")) {
        set(key, value.clone());
    }
    // A flag of its own is written as one.
    command.args(more.iter().filter(|(key, _)| key.starts_with("--")).flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]));
    command
        .envs(variables.iter().cloned())
        .envs(more.iter().filter(|(key, _)| key.starts_with("OTEL_")).map(|(key, value)| (*key, value.clone())));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", repository_root().join(".tools/python/bin").display()));
    command
}
