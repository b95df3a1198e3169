//! Job files as users write them, good and bad.

use footplate_cli::jobfile::{self, LauncherType, Problems, Resolved, Run};
use footplate_types::{ByteSize, Millis};
use serde_json::json;
use std::{fs, path::PathBuf};

const HEAD: &str = "apiVersion: footplate/v1\nkind: Job\nname: digits\nrun: python train.py\n";

fn load_text(text: &str, sets: &[&str]) -> Result<Resolved, Problems> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.yaml");
    fs::write(&path, text).unwrap();
    jobfile::load(&path, &sets.iter().map(|set| (*set).to_owned()).collect::<Vec<_>>())
}

fn with(text: &str) -> Result<Resolved, Problems> {
    load_text(&format!("{HEAD}{text}"), &[])
}

fn places(result: Result<Resolved, Problems>) -> Vec<String> {
    result.map(|_| ()).unwrap_err().0.into_iter().map(|problem| problem.place).collect()
}

fn told(result: Result<Resolved, Problems>) -> String {
    result.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_five_line_minimum_works() {
    let job = with("resources: {slots: 2}\n").unwrap();
    assert_eq!((job.file.name.as_str(), job.file.resources.nodes, job.file.resources.slots), ("digits", 1, Some(2)));
    assert_eq!(job.file.run, Run::Shell("python train.py".to_owned()));
    assert_eq!((job.file.experiment.as_str(), job.file.queue.name.as_str(), job.file.stop.grace.0), ("default", "default", Millis(30_000)));
}

#[test]
fn every_built_key_is_read() {
    let job = with(
        r#"
project: vision
experiment: 推荐模型
labels: {dataset: "imagenet@v3"}
why: {hypothesis: h, success: s, baseline: run:8f2c}
config: {optim: {lr: 1e-4}, steps: 3.0, empty: ~}
source: {git: ".", dirty: refuse, submodules: pinned, lfs: require, max_untracked: 1GiB, allow: [ca.pem]}
env: {vars: {A: "1"}, pass: [HF_HOME]}
setup: pip install -e .
launcher: {type: torchrun}
resources: {nodes: 2, gpus: 8, gpu: {model: [H100, H200], memory: ">=80GB"}, cpus: 96, memory: 1TiB, disk: 500GiB}
placement: {pool: train, nodes: [n1], exclude: [n17], labels: {net: ib}, same_rack: true, tolerations: [dedicated=vision, flaky]}
queue: {name: urgent, priority: 50, preemptible: true}
after: [{run: 8f2c, when: any}]
array: {indices: "0-9", at_once: 2}
limits: {max_duration: 24h, max_pending: 6h, min_run: 30m, deadline: 2d, deadline_missed: end}
stop: {signal: INT, notify: {signal: USR1, before: 10m}, grace: 5m}
retry: {max: 5, on: [infra, preempted, lost, failed], exit_codes: [75], backoff: 30s..10m}
data: [{name: train, snapshot: "imagenet@sha256:00"}]
checkpoints: {resume: auto}
seeds: {base: 17}
"#,
    )
    .unwrap();
    assert_eq!(job.file.resources.memory.unwrap().0, ByteSize(1 << 40));
    assert_eq!(job.file.launcher.kind, LauncherType::Torchrun);
    assert_eq!(job.document["config"], json!({"optim": {"lr": 1e-4}, "steps": 3.0, "empty": null}));
    assert_eq!(job.file.stop.notify.unwrap().before.0, Millis(600_000));
}

#[test]
fn short_forms_and_aliases_mean_the_long_ones() {
    let short = load_text("apiVersion: footplate/v1\nkind: Job\nname: x\ncommand: [python, t.py]\nlauncher: torchrun\nqueue: fast\nresources: {gpus: 1, gpu: {model: H100}}\n", &[]).unwrap();
    let long = load_text(
        "kind: Job\napiVersion: footplate/v1\nrun: [python, t.py]\nname: x\nlauncher: {type: torchrun}\nqueue: {name: fast}\nresources: {gpus: 1, gpu: {model: [H100]}}\nwhy:\n",
        &[],
    )
    .unwrap();
    assert_eq!(short.digest(), long.digest());
    let lines = load_text("apiVersion: footplate/v1\nkind: Job\nname: x\ncommands: [a, b]\n", &[]).unwrap();
    assert_eq!(lines.file.run, Run::Shell("set -e\na\nb".to_owned()));
    assert_eq!(places(with("command: x\n")), ["command"]);
}

#[test]
fn an_empty_section_is_an_absent_one() {
    let job = with("resources:\n  # all commented out\nenv:\n  vars:\nplacement: ~\n").unwrap();
    assert_eq!((job.file.resources.nodes, job.document.get("resources")), (1, None));
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let message = told(with("resuorces: {gpus: 1}\n"));
    assert!(message.contains("resuorces") && message.contains("`resources`"), "{message}");
    let message = told(with("resources: {gpu_count: 1, memroy: 1GiB}\n"));
    assert!(message.contains("resources.gpu_count") && message.contains("did you mean `memory`"), "{message}");
    assert_eq!(places(with("data: [{name: a, snapshot: b, path: c}]\n")), ["data.path"]);
}

#[test]
fn a_planned_key_or_word_is_refused_by_name() {
    for (text, name) in [
        ("elastic: {min_nodes: 1}\n", "`elastic` is known but not built yet"),
        ("env: {image: x}\n", "`image` is known but not built yet"),
        ("resources: {shm: 1GiB}\n", "`shm` is known but not built yet"),
        ("launcher: mpi\n", "`mpi` is known but not built yet"),
        ("retry: {not_on_log: [x]}\n", "`not_on_log` is known but not built yet"),
    ] {
        let message = told(with(text));
        assert!(message.contains(name), "{message}");
        assert!(!message.contains("did you mean"), "{message}");
    }
    let group = told(load_text("apiVersion: footplate/v1\nkind: Group\nname: x\nrun: y\n", &[]));
    assert!(group.contains("kind: `Group` is known but not built yet"), "{group}");
    let sweep = told(load_text("apiVersion: footplate/v1\nkind: Sweep\nname: x\nrun: y\n", &[]));
    assert!(sweep.contains("kind: a sweep file is for `footplate sweep run`"), "{sweep}");
}

#[test]
fn every_fault_is_told_at_once_with_its_path() {
    let found = places(load_text(
        "apiVersion: footplate/v2\nkind: Job\nname: ' x'\nlabels: {fold: 3}\nresources: {nodes: two, memory: 800}\nstop: {grace: 5}\nwat: 1\nqueue: {name: a.b}\nrun: [python, 1e-4]\n",
        &[],
    ));
    for place in ["apiVersion", "name", "labels.fold", "resources.nodes", "resources.memory", "stop.grace", "wat", "queue.name", "run[1]"] {
        assert_eq!(found.iter().filter(|found| *found == place).count(), 1, "{place} in {found:?}");
    }
    assert_eq!(found.len(), 9, "{found:?}");
}

#[test]
fn a_unit_is_demanded_and_offered() {
    let message = told(with("resources: {memory: 800}\nlimits: {max_duration: 24}\n"));
    assert!(message.contains("800GiB") && message.contains("24s"), "{message}");
}

#[test]
fn impossible_asks_are_refused() {
    for (text, place) in [
        ("resources: {nodes: 0}\n", "resources.nodes"),
        ("resources: {gpus: 0}\n", "resources.gpus"),
        ("resources: {gpus: 1, slots: 1}\n", "resources"),
        ("resources: {gpu: {model: H100}}\n", "resources.gpu"),
        ("source: {git: ., path: .}\n", "source"),
        ("env: {vars: {FOOTPLATE_ADDR: x}}\n", "env"),
        ("env: {pass: [\"A=B\"]}\n", "env"),
    ] {
        assert_eq!(places(with(text)), [place], "{text}");
    }
    assert!(with("resources: {memory: 1TiB}\n").is_ok(), "whether a node has it is the scheduler's to say");
}

#[test]
fn names_with_what_means_something_elsewhere_are_taken_as_text_or_refused_by_rule() {
    for name in ["val/acc", "推荐模型", "..", "*", ">"] {
        assert!(load_text(&format!("apiVersion: footplate/v1\nkind: Job\nrun: x\nname: {name:?}\n"), &[]).is_ok(), "{name}");
    }
    for (key, value) in
        [("name", "x".repeat(10_000)), ("project", "a.b".to_owned()), ("project", ">".to_owned()), ("project", "..".to_owned())]
    {
        let text =
            format!("apiVersion: footplate/v1\nkind: Job\nrun: x\n{}{key}: {value:?}\n", if key == "name" { "" } else { "name: x\n" });
        assert_eq!(places(load_text(&text, &[])), [key]);
    }
}

#[test]
fn a_value_has_one_type_in_the_file_and_by_set() {
    for text in ["1e-4", "2E5", ".5", "010", "1_000", "3.0", "12:30", "yes", "~", "7", "true"] {
        let file = with(&format!("config: {{v: {text}}}\n")).unwrap();
        let set = load_text(HEAD, &[&format!("config.v={text}")]).unwrap();
        assert_eq!((file.canonical(), file.digest()), (set.canonical(), set.digest()), "{text}");
    }
    let set = load_text(HEAD, &["resources.slots=4", "queue.preemptible=true"]).unwrap();
    assert_eq!((set.file.resources.slots, set.file.queue.preemptible), (Some(4), true));
    assert!(told(load_text(HEAD, &["resorces.slots=4"])).contains("did you mean `resources`"));
}

#[test]
fn a_broken_or_unreadable_file_is_told_with_its_place_and_never_run() {
    let tab = load_text("apiVersion: footplate/v1\nkind: Job\nresources:\n\tgpus: 1\n", &[]).map(|_| ()).unwrap_err();
    assert!(tab.0[0].place.ends_with("job.yaml, line 4, column 1"), "{tab}");
    for text in ["python train.py\n", "", "- a\n", "a: [\n", "a: 1\n---\nb: 2\n", "x: &a [*a]\n"] {
        assert!(load_text(text, &[]).is_err(), "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bytes.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    let bytes = jobfile::load(&folder.path().join("bytes.yaml"), &[]).map(|_| ()).unwrap_err();
    assert!(bytes.to_string().contains("UTF-8"), "{bytes}");
    assert!(jobfile::load(&PathBuf::from("/nonexistent/job.yaml"), &[]).is_err());
    assert!(jobfile::load(folder.path(), &[]).is_err());
}

#[test]
fn the_published_schema_is_what_the_types_say() {
    let text = serde_json::to_string_pretty(jobfile::json_schema()).unwrap() + "\n";
    footplate_testkit::golden("../../docs/schema/job.schema.json", &text);
}

#[test]
fn the_reference_page_is_what_the_types_say() {
    footplate_testkit::golden("../../docs/reference/job-file.md", &jobfile::reference_page());
}

#[test]
fn every_key_of_the_examples_is_in_the_schema() {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let mut seen = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let job = entry.unwrap().path().join("job.yaml");
        if job.exists() {
            jobfile::load(&job, &[]).unwrap_or_else(|problems| panic!("{}: {problems}", job.display()));
            seen += 1;
        }
    }
    assert!(seen > 0, "no example was found");
}
