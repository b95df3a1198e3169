//! The platform beyond this machine: within TLS for everyone who calls (the command line, curl, grpcurl, Python, an agent), refused without it, renewed
//! without a restart.

use crate::guide::shell_words;
use crate::platform::{stderr, stdout};
use crate::up::{Up, clean, free_port};
use footplate_testkit::{Authority, CertificateFiles, Process, eventually, nats, repository_root};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime};

const PATIENCE: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3_600);
/// An address that every machine reaches this one by.
const EVERYWHERE: &str = "0.0.0.0";

fn settings(files: &CertificateFiles) -> Vec<(&'static str, String)> {
    vec![
        ("tls.certificate", files.certificate.display().to_string()),
        ("tls.key", files.key.display().to_string()),
        ("tls.reread", "100ms".to_owned()),
        ("listen.local", "127.0.0.1:0".to_owned()),
    ]
}

/// Somebody on another machine: no settings, no context but their own.
struct Caller {
    home: tempfile::TempDir,
    token: String,
    port: u16,
}

impl Caller {
    fn of(up: &Up) -> Self {
        let token = std::fs::read_to_string(up.folder.path().join("data/token")).unwrap().trim().to_owned();
        Self { home: tempfile::tempdir().unwrap(), token, port: up.addr.rsplit_once(':').unwrap().1.parse().unwrap() }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.port)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        clean(&mut command);
        command.current_dir(self.home.path()).env("XDG_CONFIG_HOME", self.home.path().join("config"));
        command
    }

    fn footplate(&self, words: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_footplate")).args(words).output().unwrap()
    }

    /// A read at `host`, trusting `ca`.
    fn listed(&self, host: &str, ca: &Path) -> Output {
        let (url, ca) = (self.url(host), ca.display().to_string());
        self.footplate(&["node", "list", "--addr", &url, "--ca", &ca, "--token", &self.token])
    }
}

fn good(output: Output) -> String {
    assert!(output.status.success(), "{}: {}{}", output.status, stdout(&output), stderr(&output));
    stdout(&output)
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_who_calls_goes_within_it_and_so_does_the_broker() {
    let authority = Authority::new();
    let (broker_files, server, client) = (
        authority.sign("broker", &["localhost"]),
        authority.sign("server", &["localhost", "127.0.0.1"]),
        authority.sign("client", &["ours"]),
    );
    let ca = authority.file().display().to_string();
    let shown = |path: &Path| path.display().to_string();
    let (certificate, key) = (shown(&broker_files.certificate), shown(&broker_files.key));
    let block = format!("tls {{ cert_file: '{certificate}', key_file: '{key}', ca_file: '{ca}', verify: true }}");
    let broker = nats().config(&block).start().await;
    let broker_settings = |ca: &str| {
        vec![
            ("nats", format!("tls://localhost:{}", broker.port())),
            ("nats.ca", ca.to_owned()),
            ("nats.certificate", shown(&client.certificate)),
            ("nats.key", shown(&client.key)),
        ]
    };
    let other = Authority::new();
    let (code, told) = Up::refused(&broker_settings(&shown(&other.file())));
    assert!(code == Some(5) && told.contains("invalid peer certificate"), "{code:?}: {told}");

    let mut more = settings(&server);
    more.extend(broker_settings(&ca));
    let up = Up::start_at(format!("{EVERYWHERE}:{}", free_port()), &more);
    let caller = Caller::of(&up);
    for host in ["localhost", "127.0.0.1"] {
        assert!(good(caller.listed(host, &authority.file())).contains("ready"));
    }
    json_and_grpc_by_programs_of_others(&caller, &ca);
    python(&caller, &ca);

    // An agent that reaches platform and broker within TLS alone, and holds what the other node cannot.
    let mut agent = caller.command(env!("CARGO_BIN_EXE_footplate"));
    agent.args(["agent", "--join", "far.join", "--slots", "3", "--data"]).arg(caller.home.path().join("agent"));
    let (url, nats) = (caller.url("localhost"), format!("tls://localhost:{}", broker.port()));
    let joining = ["node", "token", "far", "--out", "far.join", "--nats", &nats, "--addr", &url, "--ca", &ca, "--token", &caller.token];
    good(caller.footplate(&joining));
    let mut set = broker_settings(&ca);
    set.push(("admin.listen", format!("127.0.0.1:{}", free_port())));
    for (key, value) in set {
        agent.arg("--set").arg(format!("{key}={value}"));
    }
    let agent = Process::start("agent", agent, caller.home.path()).unwrap();
    let began = Instant::now();
    while !up.done(&["node", "list"]).lines().any(|line| line.starts_with("far") && line.contains("ready")) {
        assert!(began.elapsed() < PATIENCE, "{}", agent.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(up.work().join("job.yaml"), JOB).unwrap();
    let run = up.done(&["submit", "-q", "--wait", "--no-source", "job.yaml"]).trim().to_owned();
    let log = up.done(&["run", "logs", &run]);
    let trusted = caller.home.path().join("agent/platform-ca.pem");
    assert!(log.contains(&format!("at {url} trusting {}", trusted.display())), "{log}");
}

/// Its config is a blob that the agent fetches at the platform's door.
const JOB: &str = "\
apiVersion: footplate/v1
kind: Job
name: far
run: cat \"$FOOTPLATE_CONFIG\" && echo at $FOOTPLATE_ADDR trusting $FOOTPLATE_CA
config: {lr: 0.5}
resources: {nodes: 1, slots: 3}
";

fn json_and_grpc_by_programs_of_others(caller: &Caller, ca: &str) {
    let url = format!("{}/footplate.api.v1.PrincipalService/WhoAmI", caller.url("localhost"));
    let authorization = format!("authorization: Bearer {}", caller.token);
    for version in ["--http1.1", "--http2"] {
        let mut curl = caller.command("curl");
        curl.args([
            "-sS",
            "--fail-with-body",
            version,
            "--cacert",
            ca,
            "-H",
            "content-type: application/json",
            "-H",
            &authorization,
            "-d",
            "{}",
            &url,
        ]);
        assert!(good(curl.output().unwrap()).contains("local:"));
    }
    let mut old = caller.command("curl");
    old.args(["-sS", "--tls-max", "1.1", "--ciphers", "DEFAULT:@SECLEVEL=0", "--cacert", ca, &url]);
    assert!(!old.output().unwrap().status.success(), "TLS 1.1 is spoken");
    let mut clear = caller.command("curl");
    clear.args(["-sS", &url.replace("https://", "http://")]);
    assert!(!clear.output().unwrap().status.success(), "HTTP in the clear is spoken");
    let mut grpcurl = caller.command(&repository_root().join(".tools/grpc/bin/grpcurl").display().to_string());
    grpcurl.args(["-cacert", ca, &format!("localhost:{}", caller.port), "list"]);
    assert!(good(grpcurl.output().unwrap()).contains("footplate.api.v1.RunService"));
}

/// A run without a job, by the Python package; and what it says of a platform that it cannot trust.
fn python(caller: &Caller, ca: &str) {
    let python = repository_root().join(".tools/python/bin/python3").display().to_string();
    let shell = |script: &str, ca: Option<&str>| {
        let mut command = caller.command(&python);
        command.args(["-c", script]).env("PYTHONPATH", repository_root().join("libs/python")).env("XDG_DATA_HOME", caller.home.path());
        command.env("FOOTPLATE_ADDR", caller.url("localhost")).env("FOOTPLATE_TOKEN", &caller.token);
        command.envs(ca.map(|ca| ("FOOTPLATE_CA", ca))).output().unwrap()
    };
    let logged = shell(
        "import footplate\nwith footplate.init(name='within') as run:\n    run.log({'loss': 0.5})\nprint([run.name for run in footplate.runs()])",
        Some(ca),
    );
    assert!(good(logged).contains("within"));
    let told = stderr(&shell("import footplate\nfootplate.runs()", None));
    assert!(told.contains("its certificate is not trusted") && told.contains("FOOTPLATE_CA"), "{told}");
}

#[test]
fn beyond_this_machine_it_is_tls_or_an_explicit_word() {
    let authority = Authority::new();
    let (good, other) = (authority.sign("good", &["localhost"]), authority.sign("other", &["localhost"]));
    let over = authority.sign_until("over", &["localhost"], SystemTime::now() - HOUR);
    let everywhere = format!("{EVERYWHERE}:{}", free_port());
    let here = format!("127.0.0.1:{}", free_port());
    let pair = |certificate: &Path, key: &Path| settings(&CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned() });
    let mut outside = pair(&good.certificate, &good.key);
    outside.last_mut().unwrap().1 = format!("{EVERYWHERE}:0");
    for (addr, more, told) in [
        (&everywhere, vec![], &["--tls-certificate FILE and --tls-key FILE", "--insecure", &everywhere][..]),
        (&here, pair(&good.certificate, &other.key), &["does not fit", "other.key"]),
        (&here, pair(&over.certificate, &over.key), &["over.pem expired at 20", "renew it"]),
        (&here, pair(&good.certificate, &good.certificate), &["holds no key"]),
        (&here, vec![("tls.certificate", "x.pem".to_owned())], &["tls.certificate is set and tls.key is not"]),
        (&here, outside, &["listen.local", "127.0.0.1:7454"]),
    ] {
        let (code, said) = Up::refused_at(addr, &more);
        assert!(code == Some(2) && told.iter().all(|part| said.contains(part)), "{code:?} {said}, not {told:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_footplate"));
    clean(&mut serve);
    let output = serve.args(["serve", "tracker", "--listen", &everywhere, "--data"]).arg(folder.path()).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("--insecure"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_makes_a_certificate_that_is_served_trusted_and_renewed_without_a_restart() {
    let everywhere = format!("{EVERYWHERE}:{}", free_port());
    let mut up = Up::start_at(everywhere, &[("listen.insecure", "true".to_owned())]);
    let greeted = async || up.process.stderr().contains("footplate is up at 0.0.0.0:").then_some(());
    eventually(PATIENCE, "it says that it is up", greeted).await;
    up.process.terminate(PATIENCE).await.unwrap();

    let caller = Caller::of(&up);
    std::fs::write(caller.home.path().join("ada.token"), &caller.token).unwrap();
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/tls.md")).unwrap();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let (making, calling): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| !line.starts_with("footplate "));
    assert_eq!((making.len(), calling.len()), (4, 2));
    for line in making {
        good(caller.command("bash").args(["-c", line]).output().unwrap());
    }
    let in_home = |name: &str| caller.home.path().join(name);
    let files = CertificateFiles { certificate: in_home("lab.pem"), key: in_home("lab.key") };
    up.restart(&settings(&files));
    for line in calling {
        let words = shell_words(&line.replace("footplate.lab:7450", &format!("localhost:{}", caller.port)));
        let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        assert!(good(caller.footplate(&words)).contains("local:"), "{line}");
    }
    // The file of authorities is found from everywhere.
    let mut elsewhere = caller.command(env!("CARGO_BIN_EXE_footplate"));
    good(elsewhere.arg("whoami").current_dir(repository_root()).output().unwrap());

    let other = Authority::new();
    for (host, ca, code, reason) in [
        ("localhost", other.file(), 5, "(CERTIFICATE_UNTRUSTED); name the platform's own authority with --ca FILE"),
        (
            "127.0.0.2",
            in_home("lab-ca.pem"),
            5,
            "(CERTIFICATE_NAME); call it by a name of its certificate: footplate.lab, localhost, 127.0.0.1",
        ),
        ("localhost", in_home("ada.token"), 2, "holds no certificate"),
    ] {
        let output = caller.listed(host, &ca);
        assert!(output.status.code() == Some(code) && stderr(&output).contains(reason), "{:?} {}", output.status, stderr(&output));
    }

    other.sign_into(&files, &["localhost"], SystemTime::now() + HOUR).unwrap();
    let began = Instant::now();
    while !caller.listed("localhost", &other.file()).status.success() {
        assert!(began.elapsed() < PATIENCE, "not renewed: {}", up.process.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(caller.listed("localhost", &in_home("lab-ca.pem")).status.code(), Some(5));
    // This machine's own are served as before.
    assert!(up.done(&["node", "list"]).contains("ready"));
}

#[test]
fn a_token_in_the_clear_to_another_machine_is_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let asked = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_footplate"));
        clean(&mut command);
        command.args(words).env("XDG_CONFIG_HOME", folder.path()).env("FOOTPLATE_TOKEN", "t-1").output().unwrap()
    };
    let told = stderr(&asked(&["doctor", "--addr", "nowhere.invalid:1"]));
    assert_eq!(told.matches("the token goes to nowhere.invalid:1 in the clear").count(), 1, "{told}");
    for words in [&["node", "list", "-q", "--addr", "nowhere.invalid:1"][..], &["node", "list", "--addr", "127.0.0.1:1"]] {
        let output = asked(words);
        assert!(output.status.code() == Some(5) && !stderr(&output).contains("in the clear"), "{}", stderr(&output));
    }
}
