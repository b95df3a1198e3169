//! CI on a real platform: the guide's lines in one shell, with the binary, grpcurl and Python's grpcio; and the steps of the GitHub Actions
//! workflow, each with what a pipeline would give it.

use crate::up::{Up, clean};
use footplate_service::Exit;
use footplate_testkit::repository_root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a shell of a pipeline has: the three variables, the binary on its path, and a home of its own with nothing in it.
struct Pipeline<'a> {
    up: &'a Up,
    folder: tempfile::TempDir,
    variables: BTreeMap<String, String>,
}

impl<'a> Pipeline<'a> {
    fn new(up: &'a Up) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(example()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        let token = std::fs::read_to_string(up.folder.path().join("data/token")).unwrap();
        let proto = repository_root().join("proto").display().to_string();
        let variables = [
            ("PROTO", proto.as_str()),
            ("FOOTPLATE_ADDR", up.addr.as_str()),
            ("FOOTPLATE_PROJECT", "default"),
            ("FOOTPLATE_TOKEN", token.trim()),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { up, folder, variables }
    }

    fn shell(&self, script: &str) -> Output {
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_footplate"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        clean(&mut command);
        command.args(["--noprofile", "--norc", "-e", "-c", script]).current_dir(self.folder.path());
        let clients = repository_root().join(".tools/grpc/bin");
        assert!(clients.join("grpcurl").exists() && clients.join("python3").exists(), "no gRPC clients in .tools: run `make setup-grpc`");
        command.env("PATH", format!("{}:{}:{path}", binary.parent().unwrap().display(), clients.display()));
        let home = self.up.folder.path().join("home-of-the-pipeline");
        command.env("HOME", &home).env("XDG_CONFIG_HOME", &home).envs(&self.variables).output().unwrap()
    }
}

fn example() -> PathBuf {
    repository_root().join("docs/examples/ci")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_guide_on_ci_does_what_it_says_and_so_does_the_workflow() {
    let up = Up::start(&[]);
    follow_the_guide(&up);
    let mut workflow = Workflow::read(&up);
    // As if nothing had ever served: the guide's champion is in the way.
    up.done(&["model", "alias", "clouds", "champion", "--remove"]);
    assert_eq!(workflow.run("1", true), Ok(()));
    assert_eq!(champion(&up), 3);
    // A pull request is judged and registers nothing.
    assert_eq!(workflow.run("2", false), Ok(()));
    assert_eq!(champion(&up), 3);
    assert_eq!(workflow.run("3", true), Ok(()));
    assert_eq!(champion(&up), 4);

    let job = workflow.pipeline.folder.path().join("job.yaml");
    let text = std::fs::read_to_string(&job).unwrap();
    assert!(text.contains("epochs: 20"));
    std::fs::write(&job, text.replace("epochs: 20", "epochs: 1")).unwrap();
    assert_eq!(workflow.run("4", true), Err(("Gate on the champion".to_owned(), Some(i32::from(Exit::FallsShort.code())))));
    assert_eq!(champion(&up), 4);
    std::fs::write(&job, text.replace("python3 train.py", "exit 5")).unwrap();
    assert_eq!(workflow.run("5", true), Err(("Wait".to_owned(), Some(i32::from(Exit::WorkFailed.code())))));

    a_baseline_names_its_version_and_an_unknown_alias_is_no_verdict(&up, &workflow.pipeline.variables["RUN_OF_3"]);
}

fn champion(up: &Up) -> u64 {
    up.json(&["model", "show", "models:/clouds@champion"])["version"].as_u64().unwrap()
}

fn follow_the_guide(up: &Up) {
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/ci.md")).unwrap();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(lines.len() >= 10, "{lines:?}");
    let pipeline = Pipeline::new(up);
    let output = pipeline.shell(&lines.join("\n"));
    let out = told(&output);
    assert!(output.status.success(), "{out}\n{}", up.process.stderr());
    let ends: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("ended with ")).collect();
    let codes = [Exit::FallsShort, Exit::NotFound, Exit::FallsShort].map(|exit| exit.code().to_string());
    assert_eq!(ends, codes, "{out}");
    assert!(out.contains("SERIES_NOT_FOUND") && out.contains("it has: val/acc, val/loss"), "{out}");
    assert!(out.contains("\"verdict\": \"passed\"") && out.contains("\"named\": \"models:/clouds@champion\""), "{out}");
    assert!(out.contains("footplate.api.v1.RunService\n") && out.contains("\"done\": true"), "{out}");
    assert!(out.contains("grpcurl ended with 69") && out.contains("Code: NotFound"), "{out}");
    assert!(out.contains("models:/clouds/2 is champion"), "{out}");
    assert_eq!(champion(up), 2);
}

fn a_baseline_names_its_version_and_an_unknown_alias_is_no_verdict(up: &Up, run: &str) {
    let gate = |baseline: &str| {
        let output = up.run(&["gate", run, "--metric", "val/acc", "--direction", "maximize", "--baseline", baseline, "-o", "json"]);
        let data: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().and_then(|code| u8::try_from(code).ok()).and_then(Exit::from_code), data["conditions"][0].clone())
    };
    let (exit, condition) = gate("models:/clouds@champion");
    let baseline = &condition["baseline"];
    assert_eq!((exit, baseline["model"].as_str(), baseline["version"].as_u64()), (Some(Exit::Done), Some("clouds"), Some(4)));
    assert_eq!((baseline["runId"].as_str(), &baseline["value"]), (Some(run), &condition["value"]), "a version's run is the run itself");
    for (named, reason) in [
        ("models:/clouds@nobody", "ALIAS_NOT_FOUND"),
        ("models:/cluods@champion", "MODEL_NOT_FOUND"),
        ("models:/clouds/99", "VERSION_NOT_FOUND"),
    ] {
        let (exit, condition) = gate(named);
        assert_eq!(
            (exit, condition["verdict"].as_str(), condition["refusal"]["reason"].as_str()),
            (Some(Exit::NotFound), Some("unknown"), Some(reason))
        );
        assert!(condition["refusal"]["next"].as_str().is_some_and(|next| !next.is_empty()), "{condition}");
    }
}

/// The workflow file, run as GitHub's runner does: step by step, in a fresh shell each, with the job's variables and what steps before wrote
/// into `GITHUB_ENV`.
struct Workflow<'a> {
    pipeline: Pipeline<'a>,
    steps: Vec<Step>,
}

struct Step {
    name: String,
    on_main_alone: bool,
    script: String,
}

impl<'a> Workflow<'a> {
    fn read(up: &'a Up) -> Self {
        let mut pipeline = Pipeline::new(up);
        let text = std::fs::read_to_string(example().join("github-actions.yml")).unwrap();
        let file: Value = serde_yaml_ng::from_str(&text).unwrap();
        let job = &file["jobs"]["train"];
        let stored = std::mem::take(&mut pipeline.variables);
        for (name, value) in job["env"].as_object().unwrap() {
            // A variable or a secret of the repository, under its own name.
            let inner = value.as_str().unwrap().strip_prefix("${{ ").and_then(|text| text.strip_suffix(" }}")).unwrap();
            let (_, key) = inner.split_once('.').unwrap();
            pipeline.variables.insert(name.clone(), stored[key].clone());
        }
        let text_of = |step: &Value, key: &str| step[key].as_str().map(str::to_owned);
        let steps = job["steps"].as_array().unwrap().iter().filter_map(|step| {
            let condition = text_of(step, "if");
            assert!(condition.is_none() || condition.as_deref() == Some("github.ref == 'refs/heads/main'"), "{condition:?}");
            Some(Step { script: text_of(step, "run")?, name: text_of(step, "name")?, on_main_alone: condition.is_some() })
        });
        let steps: Vec<Step> = steps.collect();
        assert!(steps.len() >= 5 && steps.iter().all(|step| !step.script.contains("${{")), "an expression is not expanded here");
        Self { pipeline, steps }
    }

    /// Runs every step; the first that fails, with its exit code. The run's id stays as `RUN_OF_<number>`.
    fn run(&mut self, number: &str, on_main: bool) -> Result<(), (String, Option<i32>)> {
        let written = self.pipeline.up.folder.path().join(format!("github-env-{number}"));
        std::fs::write(&written, "").unwrap();
        let given =
            [("GITHUB_RUN_ID", number), ("GITHUB_RUN_ATTEMPT", "1"), ("GITHUB_SHA", "5bd1c04"), ("GITHUB_ENV", written.to_str().unwrap())];
        self.pipeline.variables.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for step in self.steps.iter().filter(|step| on_main || !step.on_main_alone) {
            let output = self.pipeline.shell(&step.script);
            if !output.status.success() {
                println!("step {:?} ended with {}:\n{}", step.name, output.status, told(&output));
                return Err((step.name.clone(), output.status.code()));
            }
            self.pipeline.variables.extend(variables_in(&written));
        }
        let run = self.pipeline.variables["RUN"].clone();
        self.pipeline.variables.insert(format!("RUN_OF_{number}"), run);
        Ok(())
    }
}

fn variables_in(file: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| line.split_once('=').unwrap()).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_protos_and_stubs_that_are_packed_can_be_used_without_a_checkout() {
    let folder = tempfile::tempdir().unwrap();
    let packed = std::process::Command::new(repository_root().join("deploy/stubs.sh")).arg(folder.path()).output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    for archive in std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let unpacked = std::process::Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status().unwrap();
        assert!(unpacked.success(), "{}", archive.display());
    }
    assert!(folder.path().join("footplate/api/v1/token.proto").is_file());
    let script = "from footplate.api.v1 import access_pb2 as access, token_pb2 as token, token_pb2_grpc as stubs\n\
                  method = token.DESCRIPTOR.services_by_name['TokenService'].methods_by_name['CreateNodeToken']\n\
                  print(method.GetOptions().Extensions[access.access].role, stubs.TokenServiceStub.__name__)";
    let mut python = std::process::Command::new(repository_root().join(".tools/grpc/bin/python"));
    let ran = python.args(["-c", script]).env("PYTHONPATH", folder.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout).trim(),
        "4 TokenServiceStub",
        "what a method takes of its caller is said in the stubs too"
    );
}
