//! The documents of a job: the resolved job file, the program's config, the launch document; each masked, with the real values sealed apart.

use crate::{
    jobfile::{JobFile, Resolved, RoleSection, Run, canonical},
    scrub,
};
use footplate_events::{
    facts::DocumentRef,
    messages::{LaunchDocument, RoleLaunch, RunCommand, SEALED_PREFIX, SealedDocument},
};
use footplate_types::Digest;
use serde_json::Value;
use std::collections::BTreeMap;

/// Who submits, from where, with what; for the record.
pub type Origin = BTreeMap<String, String>;

/// The documents of one job, ready to be stored.
#[derive(Debug)]
pub struct Documents {
    /// The typed job file with secrets masked: the spec is made from this one.
    pub file: JobFile,
    /// The masked resolved job file, canonical JSON.
    pub document: Vec<u8>,
    /// The masked config, canonical JSON; absent when the job has none.
    pub config: Option<Vec<u8>>,
    /// The real values of what is masked; absent when nothing is.
    pub sealed: Option<Vec<u8>>,
    /// The paths of what is masked.
    pub masked: Vec<String>,
    launch: LaunchDocument,
}

impl Documents {
    /// The documents of a job.
    ///
    /// # Errors
    /// A masked document that is no job file any more, which would be a fault of the masking.
    pub fn of(job: &Resolved, origin: Origin) -> Result<Self, serde_json::Error> {
        let mut masked = Vec::new();
        let document = masked_document(&job.document, &mut masked);
        let file: JobFile = serde_json::from_value(document.clone())?;
        let launch = LaunchDocument {
            run: command(&file.run),
            setup: file.setup.clone().unwrap_or_default(),
            env: file.env.vars.clone(),
            pass: file.env.pass.clone(),
            roles: file.roles.iter().filter_map(role_launch).collect(),
            origin,
            sealed: None,
        };
        let sealed = sealed(&job.file, &file);
        Ok(Self {
            document: canonical(&document).into_bytes(),
            config: file.config.as_ref().map(|config| canonical(&Value::Object(config.clone())).into_bytes()),
            sealed: (sealed != SealedDocument::default()).then(|| sealed_bytes(&sealed)).transpose()?,
            masked,
            launch,
            file,
        })
    }

    /// The launch document, naming the sealed one where it is stored.
    ///
    /// # Errors
    /// None in practice: the document is plain text.
    pub fn launch(&self, sealed: Option<DocumentRef>) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&LaunchDocument { sealed, ..self.launch.clone() })
    }

    /// The digest and size that some bytes will be stored under.
    pub fn reference(bytes: &[u8]) -> DocumentRef {
        DocumentRef { digest: Digest::of(bytes), bytes: bytes.len() as u64 }
    }
}

fn masked_document(document: &Value, masked: &mut Vec<String>) -> Value {
    let mut document = document.clone();
    scrub::scrub_json(&mut document, "", masked);
    let known = masked.clone();
    let mut tell = |path: String| {
        if !known.contains(&path) {
            masked.push(path);
        }
    };
    for key in ["run", "setup"] {
        if let Some(command) = document.get_mut(key) {
            mask_command(command, key, &mut tell);
        }
    }
    for (at, role) in document.get_mut("roles").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        if let Some(command) = role.get_mut("run") {
            mask_command(command, &format!("roles[{at}].run"), &mut tell);
        }
    }
    document
}

/// Masks what is secret in a line or in a program's arguments.
fn mask_command(command: &mut Value, path: &str, tell: &mut impl FnMut(String)) {
    match command {
        Value::String(line) => {
            if let Some(clean) = scrub::scrub_line(line) {
                *line = clean;
                tell(path.to_owned());
            }
        }
        Value::Array(words) => {
            let texts: Vec<String> = words.iter().map(|word| word.as_str().unwrap_or_default().to_owned()).collect();
            let (clean, places) = scrub::scrub_argv(&texts);
            *words = clean.into_iter().map(Value::String).collect();
            places.into_iter().for_each(|at| tell(format!("{path}[{at}]")));
        }
        _ => {}
    }
}

/// What the members of a role are started with, where it differs from what all are.
fn role_launch(role: &RoleSection) -> Option<(String, RoleLaunch)> {
    let launch = RoleLaunch { run: role.run.as_ref().map(command), env: role.env.vars.clone() };
    (launch != RoleLaunch::default()).then(|| (role.name.clone(), launch))
}

/// The same as it really is, of a role in which something is masked.
fn sealed_role((real, masked): (&RoleSection, &RoleSection)) -> Option<(String, RoleLaunch)> {
    let vars = real.env.vars.iter().filter(|(name, value)| masked.env.vars.get(*name) != Some(value));
    let launch = RoleLaunch {
        run: real.run.as_ref().filter(|run| masked.run.as_ref() != Some(run)).map(command),
        env: vars.map(|(name, value)| (name.clone(), value.clone())).collect(),
    };
    (launch != RoleLaunch::default()).then(|| (real.name.clone(), launch))
}

/// What differs between the real job file and the masked one.
fn sealed_bytes(sealed: &SealedDocument) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = SEALED_PREFIX.to_vec();
    serde_json::to_writer(&mut bytes, sealed)?;
    Ok(bytes)
}

fn sealed(real: &JobFile, masked: &JobFile) -> SealedDocument {
    let vars = real.env.vars.iter().filter(|(name, value)| masked.env.vars.get(*name) != Some(value));
    SealedDocument {
        run: (real.run != masked.run).then(|| command(&real.run)),
        setup: if real.setup == masked.setup { None } else { real.setup.clone() },
        env: vars.map(|(name, value)| (name.clone(), value.clone())).collect(),
        roles: real.roles.iter().zip(&masked.roles).filter_map(sealed_role).collect(),
        config: if real.config == masked.config { None } else { real.config.clone().map(|config| canonical(&Value::Object(config))) },
    }
}

fn command(run: &Run) -> RunCommand {
    match run {
        Run::Shell(line) => RunCommand::Shell(line.clone()),
        Run::Argv(words) => RunCommand::Argv(words.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile;
    use serde_json::json;

    fn documents(extra: Value) -> Documents {
        let mut document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": ["python", "t.py", "--token=abc"]});
        document.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let job = jobfile::resolve(document.as_object().unwrap().clone(), &[]).unwrap();
        Documents::of(&job, Origin::new()).unwrap()
    }

    #[test]
    fn secrets_stand_in_the_sealed_document_alone_and_come_back_whole() {
        let config = json!({"api_key": "k-123", "db": "postgres://u:pw@h/x", "use_cls_token": true, "num_memory_tokens": 4});
        let made =
            documents(json!({"config": config, "env": {"vars": {"HF_TOKEN": "hf-secret", "A": "1"}}, "setup": "login --password hunter2"}));
        assert_eq!(made.masked, ["config.api_key", "config.db", "env.vars.HF_TOKEN", "run[2]", "setup"]);
        let launch = made.launch(None).unwrap();
        for text in [made.document.clone(), made.config.clone().unwrap(), launch.clone()] {
            let text = String::from_utf8(text).unwrap();
            for secret in ["abc", "k-123", "u:pw", "hf-secret", "hunter2"] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
        let launch: LaunchDocument = serde_json::from_slice(&launch).unwrap();
        let (real, real_config) =
            launch.unsealed(serde_json::from_slice(made.sealed.as_ref().unwrap().strip_prefix(SEALED_PREFIX).unwrap()).unwrap());
        assert_eq!(real.run, RunCommand::Argv(vec!["python".into(), "t.py".into(), "--token=abc".into()]));
        assert_eq!((real.env["HF_TOKEN"].as_str(), real.env["A"].as_str()), ("hf-secret", "1"));
        assert_eq!(real.setup, "login --password hunter2");
        assert_eq!(serde_json::from_str::<Value>(&real_config.unwrap()).unwrap(), config);
    }

    #[test]
    fn the_secrets_of_a_role_come_back_where_its_members_are_started() {
        let made = documents(json!({"roles": {
            "worker": {"run": ["python", "w.py", "--token=xyz"], "env": {"vars": {"HF_TOKEN": "hf-other", "B": "2"}}},
            "ps": {},
        }}));
        assert_eq!(made.masked, ["roles[0].env.vars.HF_TOKEN", "run[2]", "roles[0].run[2]"]);
        let launch = made.launch(None).unwrap();
        for text in [made.document.clone(), launch.clone()] {
            let text = String::from_utf8(text).unwrap();
            assert!(!text.contains("xyz") && !text.contains("hf-other"), "{text}");
        }
        let launch: LaunchDocument = serde_json::from_slice(&launch).unwrap();
        let sealed = serde_json::from_slice(made.sealed.as_ref().unwrap().strip_prefix(SEALED_PREFIX).unwrap()).unwrap();
        let (real, _) = launch.unsealed(sealed);
        let worker = real.clone().of_role(Some("worker"));
        assert_eq!(worker.run, RunCommand::Argv(vec!["python".into(), "w.py".into(), "--token=xyz".into()]));
        assert_eq!((worker.env["HF_TOKEN"].as_str(), worker.env["B"].as_str()), ("hf-other", "2"));
        let ps = real.of_role(Some("ps"));
        assert_eq!((ps.run, ps.env.len()), (RunCommand::Argv(vec!["python".into(), "t.py".into(), "--token=abc".into()]), 0));
    }

    #[test]
    fn without_secrets_nothing_is_sealed() {
        let mut document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": "python t.py", "config": {"lr": 3.0}});
        let job = jobfile::resolve(document.as_object_mut().unwrap().clone(), &[]).unwrap();
        let made = Documents::of(&job, Origin::new()).unwrap();
        assert_eq!((made.sealed, made.masked.len()), (None, 0));
        assert_eq!(made.config.unwrap(), b"{\"lr\":3.0}");
    }
}
