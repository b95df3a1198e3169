//! `submit`: a job file, or a command. Captures the code, resolves the config, masks secrets, stores the documents, and asks for the job.

mod array;

use crate::{
    call,
    capture::{self, Plan, Snapshot},
    context::{Context, find_run_id, seen},
    jobfile::{self, Problem, Problems, Resolved},
    output::Exit,
    scrub,
    submission::{Documents, Origin, Refs, capture_request, job_spec, put, put_archive, source_ref},
    view,
    waiting::{Wait, wait},
};
use footplate_api::{
    Client, json,
    types::{self, Run},
    v1,
};
use footplate_types::{ByteSize, Millis};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  footplate submit job.yaml
  footplate submit job.yaml --set config.lr=0.05 --wait
  footplate submit job.yaml --dry-run
  footplate submit --gpus 8 --nodes 2 --launcher torchrun -- torchrun train.py --epochs 90
  id=$(footplate submit -q job.yaml) && footplate run logs -f $id
  footplate submit --after $id -- python report.py
  footplate submit --array 0-99%10 job.yaml
  footplate submit --gpu-share 250 -- python small.py

The job file's keys: docs/reference/job-file.md. Exit codes of --wait: 0 the run succeeded, 7 it failed, 8 it was cancelled,
6 the time-out came first, 5 the platform went away: the run goes on, and `footplate run wait` waits for it again.";

/// Submit a job: a job file, or a command after --
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Job file
    #[arg(value_name = "FILE", required_unless_present = "command")]
    pub file: Option<PathBuf>,
    /// Command, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Change a value of the job file, such as config.lr=0.05; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Check everything, send nothing that stays, print the resolved job
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the run is sealed
    #[arg(short, long)]
    pub wait: bool,
    /// With --wait: give up after this long
    #[arg(long, value_name = "DURATION", value_parser = Millis::parse, requires = "wait")]
    pub timeout: Option<Millis>,
    /// Idempotency key: the same key gives the same run
    #[arg(long, value_name = "KEY")]
    pub request_id: Option<String>,
    /// Queue it even if no node that is there now could ever take it
    #[arg(long)]
    pub queue_anyway: bool,
    /// Capture no code: the command needs none
    #[arg(long)]
    pub no_source: bool,
    /// Name of the run
    #[arg(long, value_name = "NAME", help_heading = "Instead of the job file's")]
    pub name: Option<String>,
    /// Experiment of the run
    #[arg(long, value_name = "NAME", help_heading = "Instead of the job file's")]
    pub experiment: Option<String>,
    /// Nodes
    #[arg(long, value_name = "COUNT", help_heading = "Instead of the job file's")]
    pub nodes: Option<u32>,
    /// GPUs of each node
    #[arg(long, value_name = "COUNT", help_heading = "Instead of the job file's", conflicts_with = "slots")]
    pub gpus: Option<u32>,
    /// MIG profile: --gpus counts slices of it
    #[arg(long, value_name = "PROFILE", help_heading = "Instead of the job file's", requires = "gpus", conflicts_with = "gpu_share")]
    pub mig: Option<String>,
    /// Share of one GPU, in thousandths
    #[arg(long, value_name = "THOUSANDTHS", help_heading = "Instead of the job file's", conflicts_with = "slots")]
    pub gpu_share: Option<u32>,
    /// CPU slots of each node
    #[arg(long, value_name = "COUNT", help_heading = "Instead of the job file's")]
    pub slots: Option<u32>,
    /// How the workers of a node are started: direct or torchrun
    #[arg(long, value_name = "LAUNCHER", help_heading = "Instead of the job file's")]
    pub launcher: Option<String>,
    /// Queue
    #[arg(long, value_name = "QUEUE", help_heading = "Instead of the job file's")]
    pub queue: Option<String>,
    /// Priority; inside its queue a larger one goes first
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, help_heading = "Instead of the job file's")]
    pub priority: Option<i32>,
    /// Let a more urgent job of its queue stop it, or another queue that asks its own back
    #[arg(long, help_heading = "Instead of the job file's")]
    pub preemptible: bool,
    /// Start only when this run has succeeded; RUN:failure when it has failed, RUN:any when it has ended; may be given many times
    #[arg(long, value_name = "RUN", help_heading = "Instead of the job file's")]
    pub after: Vec<String>,
    /// Many runs, each with a number of its own in FOOTPLATE_ARRAY_INDEX: 7, 0-99, 0-99:3, 1,3,5-7; %10 behind it for at most 10 at a time
    #[arg(long, value_name = "INDICES", help_heading = "Instead of the job file's")]
    pub array: Option<String>,
    /// Environment variable; may be given many times
    #[arg(long = "env", value_name = "NAME=VALUE", help_heading = "Instead of the job file's")]
    pub env: Vec<String>,
    /// Label; may be given many times
    #[arg(long = "label", value_name = "KEY=VALUE", help_heading = "Instead of the job file's")]
    pub labels: Vec<String>,
    /// What is expected, and so tested
    #[arg(long, value_name = "TEXT", help_heading = "Instead of the job file's")]
    pub hypothesis: Option<String>,
}

/// Submits it.
///
/// # Errors
/// A job file with faults, a snapshot that may not be taken, a refusal, no answer, or the time-out.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let job = resolve(&args)?;
    let client = ctx.client_for(ctx.project_or(job.file.project.as_ref())?)?;
    let current = std::env::current_dir()?;
    let mut progress = ctx.progress();
    let plan = if args.no_source { None } else { Some(survey(&args, &job, &current)?) };
    for warning in plan.iter().flat_map(|plan| &plan.warnings) {
        ctx.note(format!("note: {warning}"));
    }
    if args.dry_run {
        return dry_run(&ctx, &client, &args, &job, plan).await;
    }
    progress.step("capturing the code");
    let snapshot = plan.map(Plan::pack).transpose()?;
    let documents = Documents::of(&job, origin(&current, snapshot.as_ref(), args.request_id.is_some()))?;
    progress.step("storing what the job needs");
    let baseline = baseline(&client, &job).await?;
    let source = match &snapshot {
        Some(snapshot) => Some(store_source(&client, snapshot).await?),
        None => None,
    };
    let refs = Refs { source, baseline, after: after(&client, &job).await?, ..store(&client, &documents).await? };
    if !documents.masked.is_empty() {
        ctx.note(format!("note: masked in the record: {}", documents.masked.join(", ")));
    }
    progress.step("submitting");
    if let Some(array) = &documents.file.array {
        let spec = job_spec(&documents.file, refs);
        return array::submit(&ctx, &client, &args, array, spec, &documents.masked).await;
    }
    let message = v1::SubmitJobRequest {
        project: client.project().to_owned(),
        spec: Some(job_spec(&documents.file, refs)),
        // One id for every try of this call: a lost answer gives the same run.
        request_id: args.request_id.clone().unwrap_or_else(|| footplate_clock::request_id().to_string()),
        // A key of the user's fixes the run's id; else ids of one machine sort by time.
        run_id: if args.request_id.is_some() { String::new() } else { footplate_clock::run_id().to_string() },
        queue_anyway: args.queue_anyway,
        ..v1::SubmitJobRequest::default()
    };
    let answer = call!(client, jobs.submit_job(message))?;
    seen(&ctx, &client, &answer.run_id, answer.sequence).await;
    progress.clear();
    if !answer.remark.is_empty() {
        ctx.note(format!("note: {}", answer.remark));
    }
    let data = serde_json::json!({"runId": answer.run_id, "sequence": answer.sequence, "masked": documents.masked});
    ctx.output.one(&answer.run_id, &data, &format!("{} submitted\n", answer.run_id))?;
    if !args.wait {
        return Ok(Exit::Done);
    }
    let ended = wait(&ctx, &client, &answer.run_id, Wait { ended_is_enough: false, timeout: args.timeout.map(Millis::duration) }).await?;
    told_end(&ctx, &ended);
    Ok(view::exit_of(&ended))
}

/// Tells how a run that was waited for ended.
pub(crate) fn told_end(ctx: &Context, run: &Run) {
    let reason = view::reason(run);
    let colon = if reason.is_empty() { "" } else { ": " };
    ctx.note(format!("{} {}{colon}{reason}", run.run_id, view::standing_with_seal(run)));
}

/// The job file (or one made of the command), with everything set on the command line.
fn resolve(args: &Args) -> Result<Resolved, Problems> {
    let sets = sets(args)?;
    let Some(path) = &args.file else { return jobfile::resolve(document_of(&args.command), &sets) };
    if !args.command.is_empty() {
        return Err(Problem::new("", "takes a job file or a command after --, not both").into());
    }
    jobfile::load(path, &sets)
}

fn document_of(command: &[String]) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("apiVersion".to_owned(), jobfile::API_VERSION.into());
    document.insert("kind".to_owned(), "Job".into());
    document.insert("name".to_owned(), name_of(command).into());
    document.insert("run".to_owned(), command.iter().cloned().map(Value::String).collect());
    document
}

/// What a command is called: its script or module without folder and ending, else its program.
fn name_of(command: &[String]) -> String {
    let module = command.iter().position(|word| word == "-m").and_then(|at| command.get(at + 1));
    let script = command.iter().skip(1).find(|word| [".py", ".sh"].iter().any(|end| word.ends_with(end)));
    let chosen = module.or(script).or(command.first()).map_or("job", String::as_str);
    let stem = Path::new(chosen).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = [".py", ".sh"].iter().fold(stem.as_str(), |stem, end| stem.strip_suffix(end).unwrap_or(stem));
    if stem.trim().is_empty() { "job".to_owned() } else { stem.trim().to_owned() }
}

/// Flags as assignments; those of `--set` come last and win.
fn sets(args: &Args) -> Result<Vec<String>, Problems> {
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let mut sets = Vec::new();
    for (key, text) in [
        ("name", &args.name),
        ("experiment", &args.experiment),
        ("launcher", &args.launcher),
        ("queue.name", &args.queue),
        ("why.hypothesis", &args.hypothesis),
        ("array", &args.array),
        ("resources.gpu.mig", &args.mig),
    ] {
        sets.extend(text.as_deref().map(|text| format!("{key}={}", quoted(text))));
    }
    for (key, number) in [
        ("resources.nodes", args.nodes),
        // A share is of one GPU.
        ("resources.gpus", args.gpus.or(args.gpu_share.map(|_| 1))),
        ("resources.gpu.share", args.gpu_share),
        ("resources.slots", args.slots),
    ] {
        sets.extend(number.map(|number| format!("{key}={number}")));
    }
    sets.extend(args.priority.map(|priority| format!("queue.priority={priority}")));
    sets.extend(args.preemptible.then(|| "queue.preemptible=true".to_owned()));
    if !args.after.is_empty() {
        sets.push(format!("after={}", Value::from(args.after.clone())));
    }
    for (flag, section, pairs) in [("--env", "env.vars", &args.env), ("--label", "labels", &args.labels)] {
        for pair in pairs {
            let (key, text) = pair
                .split_once('=')
                .filter(|(key, _)| !key.is_empty() && !key.contains('"'))
                .ok_or_else(|| Problem::new(flag, "takes NAME=VALUE"))?;
            sets.push(format!("{section}.{}={}", quoted(key), quoted(text)));
        }
    }
    sets.extend(args.sets.iter().cloned());
    Ok(sets)
}

fn survey(args: &Args, job: &Resolved, current: &Path) -> Result<Plan, capture::CaptureError> {
    let folder = args.file.as_deref().and_then(Path::parent).map_or_else(|| current.to_owned(), |folder| current.join(folder));
    capture::survey(&capture_request(&job.file.source, current, &folder))
}

/// Who submits, from where, with what. Under a key of the user's the place is left out: the same submission from another machine must be the
/// same body.
pub(crate) fn origin(current: &Path, snapshot: Option<&Snapshot>, keyed: bool) -> Origin {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let (words, _) = scrub::scrub_argv(&words);
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    let mut origin =
        Origin::from([("client".to_owned(), concat!("footplate ", env!("CARGO_PKG_VERSION")).to_owned()), ("user".to_owned(), user)]);
    if !keyed {
        origin.insert("host".to_owned(), rustix::system::uname().nodename().to_string_lossy().into_owned());
        origin.insert("folder".to_owned(), current.to_string_lossy().into_owned());
        origin.insert("argv".to_owned(), Value::from(words).to_string());
    }
    if let Some(plan) = snapshot.map(|snapshot| &snapshot.plan) {
        origin.extend(plan.git.as_ref().map(|git| ("source.commit_on_remote".to_owned(), git.commit_on_remote.to_string())));
        let recorded = [
            ("source.submodules", serde_json::to_string(&plan.submodules), plan.submodules.is_empty()),
            ("source.lfs", serde_json::to_string(&plan.lfs), plan.lfs.is_empty()),
        ];
        for (key, text, empty) in recorded {
            origin.extend(text.ok().filter(|_| !empty).map(|text| (key.to_owned(), text)));
        }
    }
    origin
}

pub(crate) async fn baseline(client: &Client, job: &Resolved) -> anyhow::Result<String> {
    match &job.file.why.baseline {
        Some(named) => find_run_id(client, named).await,
        None => Ok(String::new()),
    }
}

/// The runs that a job comes after, by their whole ids.
pub(crate) async fn after(client: &Client, job: &Resolved) -> anyhow::Result<Vec<types::AfterJob>> {
    let mut all = Vec::with_capacity(job.file.after.len());
    for after in &job.file.after {
        all.push(types::AfterJob { run_id: find_run_id(client, &after.run).await?, when: after.when.wire().into() });
    }
    Ok(all)
}

/// Stores the documents of a job; refers to them.
pub(crate) async fn store(client: &Client, documents: &Documents) -> anyhow::Result<Refs> {
    let sealed = match &documents.sealed {
        Some(sealed) => {
            put(client, sealed).await?;
            Some(Documents::reference(sealed))
        }
        None => None,
    };
    let config = match &documents.config {
        Some(config) => Some(put(client, config).await?),
        None => None,
    };
    Ok(Refs {
        launch: put(client, &documents.launch(sealed)?).await?,
        config,
        document: Some(put(client, &documents.document).await?),
        masked: documents.masked.clone(),
        ..Refs::default()
    })
}

pub(crate) async fn store_source(client: &Client, snapshot: &Snapshot) -> anyhow::Result<types::SourceRef> {
    let source = source_ref(snapshot);
    let reference = source.archive.clone().unwrap_or_default();
    put_archive(client, snapshot.archive.path(), &reference).await?;
    Ok(source)
}

/// Checks everything that can be checked: the file, what would be captured, and (where it answers) what the scheduler says.
async fn dry_run(ctx: &Context, client: &Client, args: &Args, job: &Resolved, plan: Option<Plan>) -> anyhow::Result<Exit> {
    let captured = plan.as_ref().map(|plan| {
        serde_json::json!({
            "root": plan.root.to_string_lossy(), "cwd": plan.cwd, "files": plan.files(), "bytes": plan.bytes(), "untrackedFiles": plan.untracked_files,
            "untrackedBytes": plan.untracked_bytes, "git": plan.git, "submodules": plan.submodules, "lfs": plan.lfs, "warnings": plan.warnings,
        })
    });
    let snapshot = plan.map(Plan::pack).transpose()?;
    let documents = Documents::of(job, Origin::new())?;
    let refs = Refs {
        source: snapshot.as_ref().map(source_ref),
        baseline: baseline(client, job).await?,
        after: after(client, job).await?,
        ..Refs::unstored(&documents)?
    };
    let spec = job_spec(&documents.file, refs);
    let message = v1::SubmitJobRequest {
        project: client.project().to_owned(),
        spec: Some(spec.clone()),
        dry_run: true,
        queue_anyway: args.queue_anyway,
        ..v1::SubmitJobRequest::default()
    };
    let asked = match &documents.file.array {
        Some(array) => {
            let message = array::request(client, args, array, spec.clone());
            call!(client, jobs.submit_array(message)).map(|answer| answer.remark)
        }
        None => call!(client, jobs.submit_job(message)).map(|answer| answer.remark),
    };
    let remark = match asked {
        Ok(remark) => remark,
        Err(error) if error.is_worth_another_try() => format!("the platform was not asked: {error}"),
        Err(error) => return Err(error.into()),
    };
    let document: Value = serde_json::from_slice(&documents.document)?;
    let tree = snapshot.as_ref().map(|snapshot| snapshot.tree.to_string());
    let data = serde_json::json!({"document": document, "spec": json::to_value(&spec), "captured": captured, "tree": tree, "masked": documents.masked, "remark": remark});
    let mut text = serde_yaml_ng::to_string(&document)?;
    if let (Some(captured), Some(snapshot)) = (&captured, &snapshot) {
        let size = ByteSize(snapshot.archive.bytes);
        text.push_str(&format!(
            "# would capture {} files of {} ({size} packed), tree {}\n",
            captured["files"],
            snapshot.plan.root.display(),
            snapshot.tree
        ));
    }
    if let Some(array) = &documents.file.array {
        text.push_str(&format!("# an array of {}\n", array.told()));
    }
    if !documents.masked.is_empty() {
        text.push_str(&format!("# masked in the record: {}\n", documents.masked.join(", ")));
    }
    text.push_str(&format!("# {}\n", if remark.is_empty() { "it could start now" } else { &remark }));
    ctx.output.one("", &data, &text)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser as _;

    fn args(words: &[&str]) -> Args {
        let cli = Cli::try_parse_from(["footplate", "submit"].iter().chain(words)).unwrap();
        match cli.verb {
            Verb::Submit(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_becomes_a_job_with_what_the_flags_say() {
        let job = resolve(&args(&[
            "--slots",
            "2",
            "--priority",
            "-5",
            "--env",
            "A=010",
            "--label",
            "a.b=x=y",
            "--set",
            "config.lr=1e-4",
            "--",
            "python",
            "src/train.py",
            "--lr=1",
        ]));
        let job = job.unwrap();
        assert_eq!((job.file.name.as_str(), job.file.resources.slots, job.file.queue.priority), ("train", Some(2), -5));
        assert_eq!((job.file.env.vars["A"].as_str(), job.file.labels["a.b"].as_str()), ("010", "x=y"));
        assert_eq!(job.file.run, jobfile::Run::Argv(vec!["python".into(), "src/train.py".into(), "--lr=1".into()]));
        assert_eq!(job.document["config"]["lr"], Value::from(1e-4));
    }

    #[test]
    fn a_command_is_named_after_its_script_or_module() {
        for (command, name) in
            [(&["python", "-m", "pkg.train"][..], "pkg.train"), (&["./run.sh"], "run"), (&["bash", "a/b.sh", "x"], "b"), (&["/"], "job")]
        {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(name_of(&command), name);
        }
    }
}
