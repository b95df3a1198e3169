//! The whole command line: nouns singular, one verb a file, each with an example in its help.

use crate::{commands, output::Format};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 refused, 5 unavailable, 6 timed out, 7 the run itself failed, 8 cancelled, 9 falls short.
Ids may be given by a unique prefix. NO_COLOR is honoured. Data goes to standard output, talk to standard error.";

/// Footplate queues, runs, records, compares and reproduces model trainings on shared GPUs.
#[derive(Debug, Parser)]
#[command(name = "footplate", version, about, after_help = AFTER_HELP, max_term_width = 100, propagate_version = false, disable_help_subcommand = true)]
pub struct Cli {
    /// What every verb understands.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What is to be done.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What every verb understands.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct GlobalArgs {
    /// Address of the platform: host:port or a URL
    #[arg(long, global = true, env = "FOOTPLATE_ADDR", value_name = "ADDR", hide_env_values = true)]
    pub addr: Option<String>,
    /// Project to work in
    #[arg(short = 'p', long, global = true, env = "FOOTPLATE_PROJECT", value_name = "PROJECT", hide_env_values = true)]
    pub project: Option<String>,
    /// Token that says who calls
    #[arg(long, global = true, env = "FOOTPLATE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Context of ~/.config/footplate/config.toml to take address, project, token and authorities from
    #[arg(long, global = true, env = "FOOTPLATE_CONTEXT", value_name = "NAME", hide_env_values = true)]
    pub context: Option<String>,
    /// Certificates of the authorities that alone are trusted at an https address, in PEM
    #[arg(long, global = true, env = "FOOTPLATE_CA", value_name = "FILE", hide_env_values = true)]
    pub ca: Option<String>,
    /// Form of the output
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORM")]
    pub output: Format,
    /// Print bare ids, and no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run everything on this machine: all services, an agent, and a nats-server of its own
    Up(commands::up::Args),
    /// Run one service
    Serve(commands::serve::Args),
    /// Run the agent of a GPU node
    Agent(commands::agent::Args),
    /// Look whether everything that the platform needs is there and set as it should be
    Doctor(commands::doctor::Args),
    /// Ask a service or an agent on this machine whether it is ready
    Health(commands::health::Args),
    /// Submit a job: a job file, or a command after --
    Submit(Box<commands::submit::Args>),
    /// List what is waiting and running
    Ps(commands::ps::Args),
    /// Say why a job stands where it stands
    Why(commands::why::Args),
    /// Say whether a run's metrics are good enough: against numbers, runs, models
    Gate(commands::gate::Args),
    /// Recorded trainings
    #[command(subcommand)]
    Run(RunVerb),
    /// Claims on compute
    #[command(subcommand)]
    Job(JobVerb),
    /// Queues, their weights and quotas
    #[command(subcommand)]
    Queue(QueueVerb),
    /// Jobs that come after each other
    #[command(subcommand)]
    Pipeline(PipelineVerb),
    /// Searches over a space of params
    #[command(subcommand)]
    Sweep(SweepVerb),
    /// Machines and their GPUs
    #[command(subcommand)]
    Node(NodeVerb),
    /// Who may connect to the broker of a deployment
    #[command(subcommand)]
    Nats(NatsVerb),
    /// Files of runs and of model versions
    #[command(subcommand)]
    Artifact(ArtifactVerb),
    /// Models: versions of what runs made, who approved them, what serves
    #[command(subcommand)]
    Model(ModelVerb),
    /// Events of the ledger
    #[command(subcommand)]
    Event(EventVerb),
    /// A project's events, posted to an address and signed
    #[command(subcommand)]
    Webhook(WebhookVerb),
    /// Projects, and who has which role in them
    #[command(subcommand)]
    Project(ProjectVerb),
    /// Principals: people and programs
    #[command(subcommand)]
    User(UserVerb),
    /// Tokens: what principals show
    #[command(subcommand)]
    Token(TokenVerb),
    /// Who follows a project's events at the broker, with a NATS client of their own
    #[command(subcommand)]
    Subscription(SubscriptionVerb),
    /// Keep a platform's address and your token
    Login(commands::login::Args),
    /// Say whom your token stands for
    Whoami(commands::whoami::Args),
    /// The platforms and projects that this command line knows
    #[command(subcommand)]
    Context(ContextVerb),
    /// Show what a run stands on and what stands on it, rebuilt from the ledger
    Lineage(commands::lineage::Args),
    /// Rebuild views from the ledger
    Replay(commands::replay::Args),
    /// Say how a workload would fare on a cluster, under one policy or several side by side
    Simulate(Box<commands::simulate::Args>),
    /// Print completions for a shell
    Completions(commands::completions::Args),
}

/// Verbs of `run`.
#[derive(Debug, Subcommand)]
pub enum RunVerb {
    /// List runs
    List(commands::run::list::Args),
    /// Show a run
    Show(commands::run::show::Args),
    /// Wait until runs are sealed
    Wait(commands::run::wait::Args),
    /// Print the log of a run
    Logs(commands::run::logs::Args),
    /// Cancel runs
    Cancel(commands::run::cancel::Args),
    /// Show in what runs differ
    Compare(commands::run::compare::Args),
    /// Set or remove tags of a run
    Tag(commands::run::tag::Args),
    /// Write down a hypothesis, a conclusion or a note
    Note(commands::run::note::Args),
    /// Submit the same again: same code, same config, unless set otherwise
    Rerun(commands::run::rerun::Args),
}

/// Verbs of `job`.
#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// Print what the scheduler has decided about jobs, and follow it
    Decisions(commands::job::decisions::Args),
    /// Keep pending jobs from starting
    Hold(commands::job::hold::Args),
    /// Let held jobs start again
    Release(commands::job::release::Args),
}

/// Verbs of `queue`.
#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    /// Show what is asked, what lies idle, and which nodes would help what waits
    Capacity(commands::queue::capacity::Args),
    /// List queues
    List(commands::queue::list::Args),
    /// Make a queue, or change it
    Set(commands::queue::set::Args),
}

/// Verbs of `pipeline`.
#[derive(Debug, Subcommand)]
pub enum PipelineVerb {
    /// Submit the jobs of a pipeline file: all of them, or none
    Submit(commands::pipeline::submit::Args),
}

/// Verbs of `sweep`.
#[derive(Debug, Subcommand)]
pub enum SweepVerb {
    /// Begin a sweep that a file describes
    Run(Box<commands::sweep::run::Args>),
    /// List sweeps
    List(commands::sweep::list::Args),
    /// Show a sweep, its best trial, and its trials
    Show(commands::sweep::show::Args),
    /// Suggest no more trials; those under way run to their end, or are cancelled
    Stop(commands::sweep::stop::Args),
    /// Go on after a stop, or with more trials
    Resume(commands::sweep::resume::Args),
}

/// Verbs of `node`.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// List nodes
    List(commands::node::list::Args),
    /// Let nothing new start on nodes
    Cordon(commands::node::cordon::Args),
    /// Let new work start on nodes again
    Uncordon(commands::node::uncordon::Args),
    /// Keep off a node jobs that do not tolerate a taint; what runs there goes on
    Taint(commands::node::taint::Args),
    /// Take taints off a node that operators have set
    Untaint(commands::node::untaint::Args),
    /// Move all work off nodes
    Drain(commands::node::drain::Args),
    /// Make the file that a node joins with
    Token(commands::node::token::Args),
}

/// Verbs of `nats`.
#[derive(Debug, Subcommand)]
pub enum NatsVerb {
    /// Make the keys of a broker's operator, and the part of a nats-server's configuration that says who may connect
    Init(commands::nats::init::Args),
    /// Make credentials for a service or a node, with what it may do at the broker
    Creds(commands::nats::creds::Args),
    /// Void the credentials of a service or a node, and end its connections
    Revoke(commands::nats::revoke::Args),
    /// Make the platform's streams, or bring them in line with the settings
    Streams(commands::nats::streams::Args),
}

/// Verbs of `artifact`.
#[derive(Debug, Subcommand)]
pub enum ArtifactVerb {
    /// List the files of a run, or of what a reference names
    List(commands::artifact::list::Args),
    /// Download what a reference names: an artifact of a run, or a version of a model
    Download(commands::artifact::download::Args),
}

/// Verbs of `model`.
#[derive(Debug, Subcommand)]
pub enum ModelVerb {
    /// Make a version of an artifact of a sealed run
    Register(commands::model::register::Args),
    /// List models, or the versions of one
    List(commands::model::list::Args),
    /// Show a model, or one version of it
    Show(commands::model::show::Args),
    /// Keep figures of a version
    Evaluate(commands::model::evaluate::Args),
    /// Propose that a version may serve
    Propose(commands::model::propose::Args),
    /// Approve the proposal of a version
    Approve(commands::model::approve::Args),
    /// Reject the proposal of a version, or withdraw your own
    Reject(commands::model::reject::Args),
    /// Have an approved version serve, or move a version to another stage
    Promote(commands::model::promote::Args),
    /// Have serve again what served before
    Rollback(commands::model::rollback::Args),
    /// Retire a version
    Archive(commands::model::archive::Args),
    /// Have an alias name a version, or nothing
    Alias(commands::model::alias::Args),
    /// Show what a version stands on and what was done with it
    Lineage(commands::model::lineage::Args),
}

/// Verbs of `event`.
#[derive(Debug, Subcommand)]
pub enum EventVerb {
    /// Print the newest events, and follow them
    Tail(commands::event::tail::Args),
    /// Show one event whole
    Show(commands::event::show::Args),
}

/// Verbs of `webhook`.
#[derive(Debug, Subcommand)]
pub enum WebhookVerb {
    /// Have the project's events posted to an address
    Create(commands::webhook::create::Args),
    /// List the project's webhooks
    List(commands::webhook::list::Args),
    /// Show a webhook and its newest deliveries
    Show(commands::webhook::show::Args),
    /// Post a test event at once
    Test(commands::webhook::test::Args),
    /// Send again from a sequence on
    Replay(commands::webhook::replay::Args),
    /// Send again after a pause
    Resume(commands::webhook::resume::Args),
    /// Take a webhook away
    Delete(commands::webhook::delete::Args),
}

/// Verbs of `project`.
#[derive(Debug, Subcommand)]
pub enum ProjectVerb {
    /// Make a project
    Create(commands::project::create::Args),
    /// List the projects in which you have a role
    List(commands::project::list::Args),
    /// Show a project and the roles in it
    Show(commands::project::show::Args),
    /// Give someone a role in a project
    Grant(commands::project::grant::Args),
    /// Take someone's role in a project
    Revoke(commands::project::revoke::Args),
}

/// Verbs of `user`.
#[derive(Debug, Subcommand)]
pub enum UserVerb {
    /// Make a principal, a person or a program
    Create(commands::user::create::Args),
    /// List principals
    List(commands::user::list::Args),
    /// Shut principals out
    Disable(commands::user::disable::Args),
    /// Let principals in again
    Enable(commands::user::enable::Args),
}

/// Verbs of `token`.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token, for yourself or for a program
    Create(commands::token::create::Args),
    /// List tokens
    List(commands::token::list::Args),
    /// Take tokens back
    Revoke(commands::token::revoke::Args),
}

/// Verbs of `subscription`.
#[derive(Debug, Subcommand)]
pub enum SubscriptionVerb {
    /// Give a team credentials and a durable consumer of the project's events
    Create(commands::subscription::create::Args),
    /// List the subscriptions to the project's events
    List(commands::subscription::list::Args),
    /// Take subscriptions back
    Delete(commands::subscription::delete::Args),
}

/// Verbs of `context`.
#[derive(Debug, Subcommand)]
pub enum ContextVerb {
    /// List the contexts of this command line
    List(commands::context::list::Args),
    /// Make a context the one that is used when none is named
    Use(commands::context::r#use::Args),
    /// Change the project of a context
    Set(commands::context::set::Args),
    /// Forget a context
    Delete(commands::context::delete::Args),
}

/// What to tell of a command line that could not be read because what it asks is known but not built yet; `None` for any other fault.
pub fn not_built(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let told = |what: &str| format!("`{what}` is known but not built yet; `footplate --help` lists what there is");
    match error.kind() {
        ErrorKind::UnknownArgument => text(ContextKind::InvalidArg).filter(|word| *word == "--at").map(|_| told("replay --at")),
        _ => None,
    }
}

/// A run, as every verb takes it.
#[derive(Clone, Debug, Args)]
pub struct RunArg {
    /// Id of the run, or a unique prefix of it
    #[arg(value_name = "RUN")]
    pub run: String,
}

/// The configuration of a service, an agent or `up`.
#[derive(Clone, Debug, Args)]
pub struct ServiceArgs {
    /// TOML file with settings
    #[arg(long, env = "FOOTPLATE_SERVICE_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// One setting over file and environment; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Address of the broker; without it `up` starts one of its own
    #[arg(long, env = "FOOTPLATE_NATS", value_name = "URL", hide_env_values = true)]
    pub nats: Option<String>,
    /// Bucket of artifacts and logs: s3://bucket/prefix
    #[arg(long, env = "FOOTPLATE_BLOBS", value_name = "URL", hide_env_values = true)]
    pub blobs: Option<String>,
    /// Folder for everything that is stored
    #[arg(long, env = "FOOTPLATE_DATA", value_name = "FOLDER", hide_env_values = true)]
    pub data: Option<PathBuf>,
}

/// Where a service or `up` serves the API, and how.
#[derive(Clone, Debug, Args)]
pub struct ListenArgs {
    /// Address to serve gRPC, JSON and pages on; beyond this machine with a certificate, or with --insecure
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Certificate for that address in PEM, with those that lead to its authority
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// Key of that certificate in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Serve other machines without TLS: behind a proxy, or in a private network
    #[arg(long)]
    pub insecure: bool,
}

impl ListenArgs {
    /// The settings that were given, by their keys.
    pub fn settings(self) -> Vec<(&'static str, String)> {
        let file = |file: PathBuf| file.display().to_string();
        let given = [
            ("listen", self.listen),
            ("tls.certificate", self.tls_certificate.map(file)),
            ("tls.key", self.tls_key.map(file)),
            ("listen.insecure", self.insecure.then(|| "true".to_owned())),
        ];
        given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &[&str]) -> Option<String> {
        not_built(&Cli::try_parse_from([&["footplate"], words].concat()).unwrap_err())
    }

    #[test]
    fn what_is_known_and_not_built_is_refused_by_its_name() {
        let words = ["replay", "--at", "7"];
        assert!(told(&words).is_some_and(|text| text.contains("`replay --at` is known")), "{words:?}: {:?}", told(&words));
        assert_eq!((told(&["modle"]), told(&["run", "list", "--filtre", "x"])), (None, None));
    }
}
