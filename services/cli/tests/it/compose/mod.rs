//! The deployment of `deploy/docker`: its files against what the binaries really have, and all of it running as plain processes behind the proxy's
//! own configuration.

mod file;
mod live;
pub mod routes;
mod stage;
mod watched;

use clap::{CommandFactory as _, Parser as _};
use file::{Compose, folder, versions};
use footplate_cli::args::Cli;
use footplate_cli::platform::{Service as Platform, knobs};
use footplate_service::config::{AnyKnob, Config, Sources};
use footplate_testkit::{haproxy_program, nats_server_program, repository_root};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// What the command line and telemetry read from the environment beside the settings.
const OTHER_VARIABLES: [&str; 4] = ["FOOTPLATE_SERVICE_CONFIG", "FOOTPLATE_LOG_FORMAT", "FOOTPLATE_LOG", "XDG_CONFIG_HOME"];
/// Where the images have the binary.
const BINARY: &str = "/usr/local/bin/footplate";

/// `init.sh`, with the binary of this build instead of the image.
pub(super) fn init(to: &Path) -> Command {
    let mut command = Command::new(folder().join("init.sh"));
    command.env("FOOTPLATE", env!("CARGO_BIN_EXE_footplate")).arg(to);
    command
}

/// `init.sh` into a folder of its own.
fn secrets() -> tempfile::TempDir {
    let made = tempfile::tempdir().unwrap();
    let output = init(made.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    made
}

/// The settings that a container's process ends up with: its file of secrets, then its variables.
fn settings(service: &file::Service, secrets: &Path) -> Config {
    let config = service.environment.get("FOOTPLATE_SERVICE_CONFIG").unwrap();
    let (mount, file) = service.mounted(config).unwrap();
    let text = std::fs::read_to_string(secrets.join(mount.secret().unwrap()).join(file)).unwrap();
    let sources = Sources::default().text(config, text).variables(service.environment.clone());
    sources.load(knobs::ALL).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn every_service_is_there_with_a_command_that_the_binary_takes() {
    let compose = Compose::read();
    let mut serves = BTreeSet::new();
    for (name, service) in compose.footplates() {
        let words = || std::iter::once("footplate").chain(service.command.iter().map(String::as_str));
        if name == "cli" {
            assert!(service.command.is_empty() && service.profiles == ["cli"], "{service:?}");
            continue;
        }
        Cli::try_parse_from(words()).unwrap_or_else(|error| panic!("{name}: {error}"));
        if let ["serve", served] = service.command.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            assert_eq!(served, name, "a container is called like its service");
            serves.insert(name.as_str());
        }
        let health: Vec<&str> = service.health.iter().map(String::as_str).collect();
        let ["CMD", BINARY, check @ ..] = health.as_slice() else { panic!("{name}: {health:?}") };
        Cli::try_parse_from(std::iter::once("footplate").chain(check.iter().copied())).unwrap();
    }
    assert_eq!(serves, Platform::ALL.map(Platform::as_str).into());
    assert_eq!(compose.services["agent"].command[0], "agent");
}

#[test]
fn every_variable_is_one_that_the_process_reads_and_its_settings_hold_together() {
    let (compose, secrets) = (Compose::read(), secrets());
    let mut known: BTreeSet<String> = knobs::ALL.iter().map(|knob| knob.variable()).collect();
    known.extend(OTHER_VARIABLES.map(str::to_owned));
    let mut of_flags = BTreeSet::new();
    let command = Cli::command();
    for verb in ["serve", "agent"] {
        let verb = command.find_subcommand(verb).unwrap();
        of_flags.extend(verb.get_arguments().filter_map(|argument| argument.get_env()).map(|env| env.to_string_lossy().into_owned()));
    }
    assert!(of_flags.contains("FOOTPLATE_SERVICE_CONFIG"));
    for (name, service) in compose.footplates() {
        for variable in service.environment.keys() {
            assert!(known.contains(variable), "{name}: nobody reads {variable}");
        }
        if name == "cli" {
            continue;
        }
        let config = settings(service, secrets.path());
        let is = |knob: &dyn AnyKnob, value: &str| service.environment.get(&knob.variable()).map(String::as_str) == Some(value);
        assert!(is(&knobs::ADMIN, "0.0.0.0:7451") && is(&knobs::NATS_URL, "nats://nats:4222"), "{name}");
        assert_eq!(name != "agent", is(&knobs::LISTEN, "0.0.0.0:7450"), "{name}");
        // Without the word no service starts there.
        assert_eq!(name != "agent", config.get(&knobs::LISTEN_INSECURE), "{name}");
        // The data folder outlives the container.
        let data = config.get(&knobs::DATA);
        assert!(service.mounts.iter().any(|mount| mount.target == data && !mount.is_bind()), "{name}: {data} is no volume");
        // Each signs in as itself.
        let credentials = config.get(&knobs::NATS_CREDENTIALS);
        let (mount, file) = service.mounted(&credentials).unwrap();
        assert!(mount.secret() == Some(name) && secrets.path().join(name).join(file).is_file(), "{name}");
        assert_eq!(name == "registry", !config.get(&knobs::NATS_OPERATOR).is_empty(), "{name}");
        assert!(!config.get(&knobs::BLOBS_SECRET_KEY).is_empty());
        assert_eq!(name == "agent", !config.get(&knobs::AGENT_TOKEN).is_empty(), "{name}");
        assert_eq!(name == "registry", !config.get(&knobs::BOOTSTRAP).is_empty(), "{name}");
        if name == "registry" {
            let vouched = config.get(&knobs::BOOTSTRAP);
            let (mount, file) = service.mounted(&vouched).unwrap();
            assert!(secrets.path().join(mount.secret().unwrap()).join(file).is_file(), "{name}");
            let keys = config.get(&knobs::NATS_OPERATOR);
            assert!(service.mounts.iter().any(|mount| mount.target == keys && mount.secret() == Some("operator")), "{keys}");
        }
        assert_eq!(name == "tracker", !config.get(&knobs::SERIES).is_empty(), "{name}");
        // Whatever it is told to talk to is a container of this file, and it waits for it.
        for knob in [&knobs::NATS_URL, &knobs::NATS_MONITOR, &knobs::SERIES, &knobs::BLOBS_ENDPOINT, &knobs::AGENT_API] {
            let value = config.get(knob);
            let host = value.rsplit("//").next().unwrap().split(':').next().unwrap();
            if service.environment.contains_key(&knob.variable()) {
                assert!(compose.services.contains_key(host), "{name}: {} is {value}", knob.key());
            }
        }
        assert!(service.depends_on.is_superset(&["nats", "s3"].map(str::to_owned).into()), "{name}");
    }
    assert!(compose.services["tracker"].depends_on.contains("scylla"));
}

#[test]
fn mounts_ports_and_health_checks_are_of_what_is_there() {
    let (compose, secrets) = (Compose::read(), secrets());
    let mut used = BTreeSet::new();
    for (name, service) in &compose.services {
        for mount in &service.mounts {
            let found = match mount.secret() {
                Some(secret) => secrets.path().join(secret).exists(),
                None if mount.is_bind() => folder().join(&mount.source).exists(),
                None => used.insert(mount.source.clone()),
            };
            // A file that is replaced is another file, which its container would not see.
            assert!(mount.secret().is_none_or(|secret| secrets.path().join(secret).is_dir()), "{name}: {mount:?}");
            assert!(found, "{name}: {mount:?} is not there, or of two containers");
        }
        for file in &service.env_files {
            assert!(secrets.path().join(file.strip_prefix("./secrets/").unwrap()).exists(), "{name}: {file}");
        }
        for on in &service.depends_on {
            assert!(!compose.services[on].health.is_empty(), "{name} waits for {on}, which has no health check");
        }
        // Nothing is open to other machines unless somebody asks for it.
        assert!(service.ports.iter().all(|port| port.starts_with("127.0.0.1:")), "{name}: {:?}", service.ports);
    }
    assert_eq!(used, compose.volumes);
    let port_of = |name: &str| compose.services[name].health.last().unwrap().split("127.0.0.1:").nth(1).unwrap().to_owned();
    let nats = std::fs::read_to_string(repository_root().join("deploy/nats/nats.conf")).unwrap();
    assert!(nats.contains("\nhttp_port: 8222\n") && nats.contains("\nport: 4222\n") && port_of("nats") == "8222/healthz");
    assert!(routes::text().contains("    monitor-uri /readyz\n") && port_of("proxy") == "7451/readyz");
    let s3 = compose.services["s3"].command.join(" ");
    assert!(s3.contains("--port 0.0.0.0:7070 --health /health") && port_of("s3") == "7070/health", "{s3}");
    assert_eq!(compose.services["proxy"].ports, ["127.0.0.1:7450:7450"]);
}

#[test]
fn secrets_are_made_once_each_other_and_for_their_owner_alone() {
    let (one, other) = (secrets(), secrets());
    let read = |folder: &tempfile::TempDir, name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(one.path()), mode(&one.path().join("token"))), (0o700, 0o600));
    for name in [
        "registry/bootstrap",
        "token",
        "nats/auth.conf",
        "operator/operator.seed",
        "agent/nats.creds",
        "scheduler/nats.creds",
        "s3.env",
        "grafana.env",
        "agent/settings.toml",
        "tracker/settings.toml",
        "cli/config.toml",
    ] {
        assert_ne!(read(&one, name), read(&other, name), "{name}");
    }
    let before = read(&one, "token");
    let again = init(one.path()).output().unwrap();
    assert!(again.status.success() && read(&one, "token") == before);
    assert!(!read(&one, "registry/bootstrap").contains(before.trim()), "a digest is kept, not the token");
    let seed = read(&one, "operator/operator.seed");
    assert!(!read(&one, "nats/auth.conf").contains(seed.trim()), "the broker needs no key of the operator's");
    // The container's user is another.
    for (name, least) in [("operator", 0o777), ("operator/operator.seed", 0o666), ("registry/nats.creds", 0o444)] {
        assert_eq!(mode(&one.path().join(name)) & least, least, "{name}");
    }
}

#[test]
fn images_are_built_of_pinned_versions_and_run_as_nobody_in_particular() {
    let (compose, versions) = (Compose::read(), versions());
    let text = std::fs::read_to_string(folder().join("Dockerfile")).unwrap();
    let stages = stages(&text);
    for (name, service) in &compose.services {
        let Some((target, args)) = &service.build else {
            let version = service.image.rsplit_once(':').unwrap().1;
            assert!(version.starts_with(|c: char| c == 'v' || c.is_ascii_digit()), "{name}: {}", service.image);
            continue;
        };
        let stage = &stages[target.as_str()];
        assert!(stage.contains("LABEL org.opencontainers.image.title=") && stage.contains("\nUSER 65532:65532\n"), "{target}");
        let binary = if target == "s3" { "/usr/local/bin/versitygw" } else { BINARY };
        assert!(stage.ends_with(&format!("ENTRYPOINT [\"{binary}\"]\n")) && stage.contains(&format!(" {binary}\n")), "{target}");
        for (argument, value) in args {
            assert!(versions.values().any(|version| version == value), "{name}: {argument}");
            assert!(text.contains(&format!("\nARG {argument}\n")), "{name}: the Dockerfile does not know {argument}");
        }
        // Every argument of the stages that this target is made of is given.
        let build = if target == "s3" { "build-s3" } else { "build" };
        for needed in arguments(stage).chain(arguments(&stages[build])) {
            assert!(args.contains_key(needed), "{name}: {needed} is not given");
        }
    }
    for source in text.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from=") && *line != "COPY . .") {
        let source = source.split_whitespace().nth(1).unwrap();
        assert!(repository_root().join(source).exists(), "{source}");
    }
    assert!(stages["s3"].contains(" /data/footplate\n"), "the bucket is there from the beginning");
    assert_eq!(compose.services["tracker"].environment["FOOTPLATE_BLOBS"], "s3://footplate");
    let toolchain = std::fs::read_to_string(repository_root().join("rust-toolchain.toml")).unwrap();
    assert!(toolchain.contains(&format!("channel = \"{}\"", versions["RUST_VERSION"])), "{toolchain}");
    assert_eq!(versions["FOOTPLATE_VERSION"], env!("CARGO_PKG_VERSION"));
    let example = &compose.services["cli"].working_dir;
    assert!(stages["agent"].contains(&format!("COPY docs/examples/digits {example}\n")));
}

/// The stages of a Dockerfile by name, each from its `FROM` on.
fn stages(text: &str) -> BTreeMap<&str, String> {
    let parts = text.split("\nFROM ").skip(1);
    parts.map(|part| (part.lines().next().unwrap().rsplit(' ').next().unwrap(), format!("FROM {}\n", part.trim_end()))).collect()
}

/// What a stage wants to be given: its own arguments, and those in the name of what it is made from.
fn arguments(stage: &str) -> impl Iterator<Item = &str> {
    let from = stage.lines().next().unwrap().split("${").skip(1).map(|rest| rest.split('}').next().unwrap());
    stage.lines().filter_map(|line| line.strip_prefix("ARG ")).chain(from)
}

#[test]
fn every_grpc_service_has_one_route_and_every_route_a_service() {
    let services = footplate_api::descriptors::pool().services().map(|service| service.name().to_owned());
    let known: BTreeSet<String> = services.collect();
    let routes = routes::routes();
    assert_eq!(routes.keys().cloned().collect::<BTreeSet<_>>(), known, "deploy/proxy/haproxy.cfg and proto/footplate/api/v1");
    for backend in routes.values() {
        assert!(Platform::parse(backend).is_some(), "{backend}");
    }
}

#[test]
fn the_proxy_and_the_broker_take_their_files() {
    let mut proxy = Command::new(haproxy_program().unwrap());
    for service in Platform::ALL {
        proxy.env(format!("FOOTPLATE_{}_HOST", service.as_str().to_uppercase().replace('-', "_")), "127.0.0.1");
    }
    let output = proxy.arg("-c").arg("-f").arg(routes::file()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !told.to_lowercase().contains("warning"), "{told}");

    let (made, there) = (secrets(), tempfile::tempdir().unwrap());
    std::fs::copy(repository_root().join("deploy/nats/nats.conf"), there.path().join("nats.conf")).unwrap();
    std::fs::create_dir(there.path().join("auth")).unwrap();
    std::fs::copy(made.path().join("nats/auth.conf"), there.path().join("auth/auth.conf")).unwrap();
    let output = Command::new(nats_server_program().unwrap()).arg("-t").arg("-c").arg(there.path().join("nats.conf")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("is valid"), "{told}");
}

#[test]
fn a_stream_may_be_silent_for_long_and_nothing_is_held_back() {
    let text = routes::text();
    for line in ["timeout client 24h", "timeout server 24h", "option http-no-delay"] {
        assert!(text.contains(&format!("    {line}\n")), "{line}");
    }
    assert!(!text.contains("http-buffer-request") && !text.contains("timeout tunnel"));
}
