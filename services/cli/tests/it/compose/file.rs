//! `deploy/docker/docker-compose.yml` as data: merges done, variables filled in from `deploy/versions.env`.

use footplate_testkit::repository_root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The folder that relative paths in the file start from.
pub fn folder() -> PathBuf {
    repository_root().join("deploy/docker")
}

/// The whole file.
pub struct Compose {
    pub services: BTreeMap<String, Service>,
    pub volumes: BTreeSet<String>,
}

/// One container.
#[derive(Debug)]
pub struct Service {
    pub image: String,
    pub command: Vec<String>,
    pub hostname: String,
    pub working_dir: String,
    pub environment: BTreeMap<String, String>,
    pub env_files: Vec<String>,
    pub mounts: Vec<Mount>,
    /// Published, as written.
    pub ports: Vec<String>,
    pub health: Vec<String>,
    pub depends_on: BTreeSet<String>,
    /// The Dockerfile's target, and the arguments given to it.
    pub build: Option<(String, BTreeMap<String, String>)>,
    pub profiles: Vec<String>,
}

/// What lies at a path of a container.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    /// A named volume, or a path that begins with a dot.
    pub source: String,
    pub target: String,
}

impl Mount {
    /// Whether it is a file or folder of this machine.
    pub fn is_bind(&self) -> bool {
        self.source.starts_with('.')
    }

    /// What `init.sh` makes for it, by its name in the folder of secrets.
    pub fn secret(&self) -> Option<&str> {
        self.source.strip_prefix("./secrets/")
    }
}

/// `NAME=value` lines.
pub fn variables(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once('=').unwrap()).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The pinned versions.
pub fn versions() -> BTreeMap<String, String> {
    variables(&std::fs::read_to_string(repository_root().join("deploy/versions.env")).unwrap())
}

impl Compose {
    /// Reads the file, with what `docker compose` finds in `.env`.
    pub fn read() -> Self {
        Self::read_with(&[])
    }

    /// The same in a shell with these variables.
    pub fn read_with(shell: &[(&str, &str)]) -> Self {
        let text = std::fs::read_to_string(folder().join("docker-compose.yml")).unwrap();
        let mut env = variables(&std::fs::read_to_string(folder().join(".env")).unwrap());
        env.extend(shell.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
        // A map that is merged in may itself merge another in.
        for _ in 0..3 {
            value.apply_merge().unwrap();
        }
        let mut value: Value = serde_json::to_value(value).unwrap();
        fill_in(&mut value, &env);
        let services = value["services"].as_object().unwrap();
        let services = services.iter().map(|(name, service)| (name.clone(), Service::of(service))).collect();
        let volumes = value["volumes"].as_object().unwrap().keys().cloned().collect();
        Self { services, volumes }
    }

    /// The containers that run this repository's binary.
    pub fn footplates(&self) -> impl Iterator<Item = (&String, &Service)> {
        self.services.iter().filter(|(_, service)| service.image.starts_with("footplate:") || service.image.starts_with("footplate-agent:"))
    }
}

impl Service {
    /// The mount that a path of the container lies in, and the rest of the path.
    pub fn mounted<'a>(&self, path: &'a str) -> Option<(&Mount, &'a str)> {
        let inside = |mount: &'_ Mount| path.strip_prefix(mount.target.as_str()).and_then(|rest| rest.strip_prefix('/'));
        self.mounts.iter().find_map(|mount| Some((mount, inside(mount)?)))
    }

    fn of(value: &Value) -> Self {
        let known = [
            "image",
            "build",
            "command",
            "hostname",
            "working_dir",
            "environment",
            "env_file",
            "volumes",
            "ports",
            "healthcheck",
            "depends_on",
            "profiles",
            "restart",
            "read_only",
            "cap_drop",
            "security_opt",
            "tmpfs",
            "stop_grace_period",
            "init",
        ];
        for key in value.as_object().unwrap().keys() {
            assert!(known.contains(&key.as_str()), "{key} is not looked at by this test");
        }
        let environment = value["environment"].as_object().cloned().unwrap_or_default();
        let build = value.get("build").map(|build| {
            assert_eq!((build["context"].as_str(), build["dockerfile"].as_str()), (Some("../.."), Some("deploy/docker/Dockerfile")));
            let args = build["args"].as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect();
            (text(&build["target"]), args)
        });
        Self {
            image: text(&value["image"]),
            command: list(&value["command"]),
            hostname: text(&value["hostname"]),
            working_dir: text(&value["working_dir"]),
            environment: environment.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            env_files: list(&value["env_file"]),
            mounts: list(&value["volumes"]).iter().map(|mount| mount_of(mount)).collect(),
            ports: list(&value["ports"]),
            health: list(&value["healthcheck"]["test"]),
            depends_on: value["depends_on"].as_object().map(|on| on.keys().cloned().collect()).unwrap_or_default(),
            build,
            profiles: list(&value["profiles"]),
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => panic!("{other} wants quotes: what it is as text depends on who reads it"),
    }
}

fn list(value: &Value) -> Vec<String> {
    value.as_array().map(|items| items.iter().map(text).collect()).unwrap_or_default()
}

fn mount_of(written: &str) -> Mount {
    let mut parts = written.split(':');
    let (source, target, mode) = (parts.next().unwrap(), parts.next().unwrap(), parts.next());
    assert!(target.starts_with('/') && parts.next().is_none(), "{written}");
    // The registry writes down who is revoked beside the keys that it signs with.
    let wanted = if source == "./secrets/operator" { "rw" } else { "ro" };
    assert_eq!(mode, source.starts_with('.').then_some(wanted), "what is mounted from this machine may only be read: {written}");
    Mount { source: source.to_owned(), target: target.to_owned() }
}

/// Fills in `${NAME}` and `${NAME:-default}`; a name that is neither given nor has a default is a fault of the file.
fn fill_in(value: &mut Value, env: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => *text = filled_in(text, env),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, env)),
        Value::Object(map) => map.values_mut().for_each(|item| fill_in(item, env)),
        _ => {}
    }
}

fn filled_in(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}').unwrap();
        let (name, default) = inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        let given = env.get(name).map(String::as_str).or(default);
        out.push_str(before);
        out.push_str(given.unwrap_or_else(|| panic!("${{{name}}} is neither in versions.env nor has it a default")));
        rest = behind;
    }
    out.push_str(rest);
    out
}
