//! One file a verb. Each has its arguments and a `run` that asks the platform and prints; none decides what a service decides.

pub mod agent;
pub mod artifact;
pub mod completions;
pub mod context;
pub mod doctor;
pub mod event;
pub mod gate;
pub mod health;
pub mod job;
pub mod lineage;
pub mod login;
pub mod model;
pub mod nats;
pub mod node;
pub mod pipeline;
pub mod project;
pub mod ps;
pub mod queue;
pub mod replay;
pub mod run;
pub mod serve;
pub mod simulate;
pub mod submit;
pub mod subscription;
pub mod sweep;
pub mod token;
pub mod up;
pub mod user;
pub mod webhook;
pub mod whoami;
pub mod why;

use crate::{
    args::{
        ArtifactVerb, Cli, ContextVerb, EventVerb, JobVerb, ModelVerb, NatsVerb, NodeVerb, PipelineVerb, ProjectVerb, QueueVerb, RunVerb,
        SubscriptionVerb, SweepVerb, TokenVerb, UserVerb, Verb, WebhookVerb,
    },
    context::Context,
    output::{Exit, Failure, Format},
};

/// Does what the command line asks.
///
/// # Errors
/// Everything that `main` turns into a message and an exit code.
pub async fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let ctx = Context::new(&cli.global)?;
    if ctx.output.format == Format::Dot && !matches!(cli.verb, Verb::Lineage(_) | Verb::Model(ModelVerb::Lineage(_))) {
        return Err(Failure::usage("-o dot is for `footplate lineage` and `footplate model lineage` alone").into());
    }
    match cli.verb {
        Verb::Up(args) => up::run(args, ctx).await,
        Verb::Serve(args) => serve::run(args, ctx).await,
        Verb::Agent(args) => agent::run(args, ctx).await,
        Verb::Doctor(args) => doctor::run(args, ctx).await,
        Verb::Health(args) => health::run(args, ctx).await,
        Verb::Submit(args) => submit::run(*args, ctx).await,
        Verb::Ps(args) => ps::run(args, ctx).await,
        Verb::Why(args) => why::run(args, ctx).await,
        Verb::Gate(args) => gate::run(args, ctx).await,
        Verb::Run(verb) => match verb {
            RunVerb::List(args) => run::list::run(args, ctx).await,
            RunVerb::Show(args) => run::show::run(args, ctx).await,
            RunVerb::Wait(args) => run::wait::run(args, ctx).await,
            RunVerb::Logs(args) => run::logs::run(args, ctx).await,
            RunVerb::Cancel(args) => run::cancel::run(args, ctx).await,
            RunVerb::Compare(args) => run::compare::run(args, ctx).await,
            RunVerb::Tag(args) => run::tag::run(args, ctx).await,
            RunVerb::Note(args) => run::note::run(args, ctx).await,
            RunVerb::Rerun(args) => run::rerun::run(args, ctx).await,
        },
        Verb::Job(verb) => match verb {
            JobVerb::Decisions(args) => job::decisions::run(args, ctx).await,
            JobVerb::Hold(args) => job::hold::run(args, ctx).await,
            JobVerb::Release(args) => job::release::run(args, ctx).await,
        },
        Verb::Queue(verb) => match verb {
            QueueVerb::Capacity(args) => queue::capacity::run(args, ctx).await,
            QueueVerb::List(args) => queue::list::run(args, ctx).await,
            QueueVerb::Set(args) => queue::set::run(args, ctx).await,
        },
        Verb::Pipeline(verb) => match verb {
            PipelineVerb::Submit(args) => pipeline::submit::run(args, ctx).await,
        },
        Verb::Sweep(verb) => match verb {
            SweepVerb::Run(args) => sweep::run::run(*args, ctx).await,
            SweepVerb::List(args) => sweep::list::run(args, ctx).await,
            SweepVerb::Show(args) => sweep::show::run(args, ctx).await,
            SweepVerb::Stop(args) => sweep::stop::run(args, ctx).await,
            SweepVerb::Resume(args) => sweep::resume::run(args, ctx).await,
        },
        Verb::Node(verb) => match verb {
            NodeVerb::List(args) => node::list::run(args, ctx).await,
            NodeVerb::Cordon(args) => node::cordon::run(args, ctx).await,
            NodeVerb::Taint(args) => node::taint::run(args, ctx).await,
            NodeVerb::Untaint(args) => node::untaint::run(args, ctx).await,
            NodeVerb::Uncordon(args) => node::uncordon::run(args, ctx).await,
            NodeVerb::Token(args) => node::token::run(args, ctx).await,
            NodeVerb::Drain(args) => node::drain::run(args, ctx).await,
        },
        Verb::Nats(verb) => match verb {
            NatsVerb::Init(args) => nats::init::run(args, ctx).await,
            NatsVerb::Creds(args) => nats::creds::run(args, ctx).await,
            NatsVerb::Revoke(args) => nats::revoke::run(args, ctx).await,
            NatsVerb::Streams(args) => nats::streams::run(args, ctx).await,
        },
        Verb::Artifact(verb) => match verb {
            ArtifactVerb::List(args) => artifact::list::run(args, ctx).await,
            ArtifactVerb::Download(args) => artifact::download::run(args, ctx).await,
        },
        Verb::Model(verb) => match verb {
            ModelVerb::Register(args) => model::register::run(args, ctx).await,
            ModelVerb::List(args) => model::list::run(args, ctx).await,
            ModelVerb::Show(args) => model::show::run(args, ctx).await,
            ModelVerb::Evaluate(args) => model::evaluate::run(args, ctx).await,
            ModelVerb::Propose(args) => model::propose::run(args, ctx).await,
            ModelVerb::Approve(args) => model::approve::run(args, ctx).await,
            ModelVerb::Reject(args) => model::reject::run(args, ctx).await,
            ModelVerb::Promote(args) => model::promote::run(args, ctx).await,
            ModelVerb::Rollback(args) => model::rollback::run(args, ctx).await,
            ModelVerb::Archive(args) => model::archive::run(args, ctx).await,
            ModelVerb::Alias(args) => model::alias::run(args, ctx).await,
            ModelVerb::Lineage(args) => model::lineage::run(args, ctx).await,
        },
        Verb::Event(verb) => match verb {
            EventVerb::Tail(args) => event::tail::run(args, ctx).await,
            EventVerb::Show(args) => event::show::run(args, ctx).await,
        },
        Verb::Project(verb) => match verb {
            ProjectVerb::Create(args) => project::create::run(args, ctx).await,
            ProjectVerb::List(args) => project::list::run(args, ctx).await,
            ProjectVerb::Show(args) => project::show::run(args, ctx).await,
            ProjectVerb::Grant(args) => project::grant::run(args, ctx).await,
            ProjectVerb::Revoke(args) => project::revoke::run(args, ctx).await,
        },
        Verb::User(verb) => match verb {
            UserVerb::Create(args) => user::create::run(args, ctx).await,
            UserVerb::List(args) => user::list::run(args, ctx).await,
            UserVerb::Disable(args) => user::disable::run(args, ctx).await,
            UserVerb::Enable(args) => user::enable::run(args, ctx).await,
        },
        Verb::Token(verb) => match verb {
            TokenVerb::Create(args) => token::create::run(args, ctx).await,
            TokenVerb::List(args) => token::list::run(args, ctx).await,
            TokenVerb::Revoke(args) => token::revoke::run(args, ctx).await,
        },
        Verb::Subscription(verb) => match verb {
            SubscriptionVerb::Create(args) => subscription::create::run(args, ctx).await,
            SubscriptionVerb::List(args) => subscription::list::run(args, ctx).await,
            SubscriptionVerb::Delete(args) => subscription::delete::run(args, ctx).await,
        },
        Verb::Webhook(verb) => match verb {
            WebhookVerb::Create(args) => webhook::create::run(args, ctx).await,
            WebhookVerb::List(args) => webhook::list::run(args, ctx).await,
            WebhookVerb::Show(args) => webhook::show::run(args, ctx).await,
            WebhookVerb::Test(args) => webhook::test::run(args, ctx).await,
            WebhookVerb::Replay(args) => webhook::replay::run(args, ctx).await,
            WebhookVerb::Resume(args) => webhook::resume::run(args, ctx).await,
            WebhookVerb::Delete(args) => webhook::delete::run(args, ctx).await,
        },
        Verb::Login(args) => login::run(args, ctx).await,
        Verb::Whoami(args) => whoami::run(args, ctx).await,
        Verb::Context(verb) => match verb {
            ContextVerb::List(args) => context::list::run(args, ctx).await,
            ContextVerb::Use(args) => context::r#use::run(args, ctx).await,
            ContextVerb::Set(args) => context::set::run(args, ctx).await,
            ContextVerb::Delete(args) => context::delete::run(args, ctx).await,
        },
        Verb::Lineage(args) => lineage::run(args, ctx).await,
        Verb::Replay(args) => replay::run(args, ctx).await,
        Verb::Simulate(args) => simulate::run(*args, ctx),
        Verb::Completions(args) => completions::run(args),
    }
}
