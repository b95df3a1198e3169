//! What every command is given: the platform's address, the project, the token, whom to trust, the form of the output; and the connection, made when first
//! needed. Flags win over the environment, the environment over the context file.

mod file;

pub use file::{ContextFile, NamedContext, default_path};

use crate::{
    args::GlobalArgs,
    output::{Failure, Format, Output, Progress, tell},
};
use footplate_api::{Client, Target, client::DEFAULT_ADDRESS, types, v1};
use footplate_types::{ProjectName, RunId};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The project used when none is given.
pub const PROJECT_DEFAULT: &str = "default";

/// How long a view may take to show what was written.
pub const SEEN: Duration = Duration::from_secs(5);

/// Calls a method that may be repeated (a read, or a write with a request id): `call!(client, runs.get_run(message))`, with a deadline of
/// its own where the usual one does not fit: `call!(client, within LONG, runs.wait_run(message))`.
#[macro_export]
macro_rules! call {
    ($client:expr, $service:ident.$method:ident($message:expr)) => {
        $crate::call!($client, within footplate_api::client::DEFAULT_DEADLINE, $service.$method($message))
    };
    ($client:expr, within $deadline:expr, $service:ident.$method:ident($message:expr)) => {{
        let client: &footplate_api::Client = &$client;
        let message = $message;
        client
            .safely_within($deadline, || {
                let mut service = client.$service();
                let mut request = tonic::Request::new(message.clone());
                request.set_timeout($deadline);
                async move { service.$method(request).await }
            })
            .await
    }};
}

/// What every command is given.
#[derive(Debug)]
pub struct Context {
    /// The form of the output.
    pub output: Output,
    /// The platform's address, as given.
    pub addr: String,
    token: Option<String>,
    project: Option<String>,
    /// Whether the address comes from this command, not from a context that was kept once.
    addr_is_given: bool,
    noted: AtomicBool,
    /// The file of the authorities that alone are trusted, as given with this command.
    pub ca_given: Option<PathBuf>,
    ca: Option<PathBuf>,
    /// The data folder of the platform, where the context says that `up` runs on this machine.
    pub data: Option<String>,
}

impl Context {
    /// Puts flags, environment and the context file together.
    ///
    /// # Errors
    /// A context file that cannot be understood, or a context that is not in it.
    pub fn new(global: &GlobalArgs) -> Result<Self, Failure> {
        let file = default_path().map(|path| ContextFile::read(&path)).transpose()?.unwrap_or_default();
        let named = file.choose(global.context.as_deref())?;
        let given = |flag: &Option<String>| flag.clone().filter(|text| !text.is_empty());
        // A token belongs to its platform: the file's is not sent to an address from elsewhere.
        let same_place = given(&global.addr).is_none_or(|addr| named.addr.as_ref() == Some(&addr));
        Ok(Self {
            output: Output::new(global.output, global.quiet),
            data: named.data.filter(|_| same_place),
            addr: given(&global.addr).or(named.addr).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
            addr_is_given: given(&global.addr).is_some(),
            noted: AtomicBool::new(false),
            ca: given(&global.ca).or(named.ca.filter(|_| same_place)).map(PathBuf::from),
            ca_given: given(&global.ca).map(PathBuf::from),
            token: given(&global.token).or(named.token.filter(|_| same_place)),
            project: given(&global.project).or(named.project),
        })
    }

    /// The project to work in.
    ///
    /// # Errors
    /// A name that is none.
    pub fn project(&self) -> Result<String, Failure> {
        self.project_or(None)
    }

    /// The project to work in, where a job file may name one; flags, environment and context win.
    ///
    /// # Errors
    /// A name that is none.
    pub fn project_or(&self, of_file: Option<&ProjectName>) -> Result<String, Failure> {
        let name = self.project.clone().or_else(|| of_file.map(ToString::to_string)).unwrap_or_else(|| PROJECT_DEFAULT.to_owned());
        ProjectName::parse(&name).map_err(|invalid| Failure::usage(invalid.to_string()))?;
        Ok(name)
    }

    /// The connection to the platform, for the project in use. Nothing is sent before the first call.
    ///
    /// # Errors
    /// An address, a token or a project that cannot be one.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.client_for(self.project()?)
    }

    /// The same for another project.
    ///
    /// # Errors
    /// An address, a token or a project that cannot be one.
    pub fn client_for(&self, project: String) -> anyhow::Result<Client> {
        let target = Target { address: self.addr.clone(), token: self.token.clone(), project: Some(project), ca: self.ca.clone() };
        if self.addr_is_given {
            self.note_if_readable(&target);
        }
        Ok(Client::connect(target)?)
    }

    /// The authorities that alone are trusted at the platform's address, in PEM; nothing where these are the machine's own.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn authorities(&self) -> Result<String, Failure> {
        let Some(file) = &self.ca else { return Ok(String::new()) };
        std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))
    }

    /// Says once that a token goes where others may read it. Private networks are no fault, so the call is made all the same.
    pub fn note_if_readable(&self, target: &Target) {
        if target.token.is_some() && target.is_readable_on_the_way() && !self.noted.swap(true, Ordering::Relaxed) {
            let address = &target.address;
            self.note(format!(
                "note: the token goes to {address} in the clear; where the platform speaks TLS, write https:// before the address"
            ));
        }
    }

    /// Says something that is worth knowing and is no fault, unless quiet was asked for.
    pub fn note(&self, message: impl std::fmt::Display) {
        if !self.output.quiet {
            tell(message);
        }
    }

    /// A line of progress, for a person who did not ask for quiet and does not read JSON.
    pub fn progress(&self) -> Progress {
        Progress::new(self.output.quiet || matches!(self.output.format, Format::Json | Format::Yaml))
    }
}

/// The run that an id, a unique prefix of one, or `run:` and either names.
///
/// # Errors
/// No such run, or more than one.
pub async fn find_run(client: &Client, named: &str) -> anyhow::Result<types::Run> {
    let run_id = bare_id(named)?;
    let answer =
        call!(client, runs.get_run(v1::GetRunRequest { project: client.project().to_owned(), run_id: run_id.clone(), at_least: 0 }))?;
    answer.run.ok_or_else(|| Failure::not_found(format!("no run {named}")).into())
}

/// The whole id of a run; a whole one is taken as it is, without asking.
///
/// # Errors
/// No such run, or more than one.
pub async fn find_run_id(client: &Client, named: &str) -> anyhow::Result<String> {
    let bare = bare_id(named)?;
    if RunId::parse(&bare).is_ok() {
        return Ok(bare);
    }
    find_run(client, named).await.map(|run| run.run_id)
}

/// Waits until the view of runs shows what was just written, so that whoever asks next sees it. A view that is away or late is told, since the
/// write stands.
pub async fn seen(ctx: &Context, client: &Client, run_id: &str, sequence: u64) {
    let asked = v1::GetRunRequest { project: client.project().to_owned(), run_id: run_id.to_owned(), at_least: sequence };
    if let Err(error) = call!(client, within SEEN, runs.get_run(asked)) {
        ctx.note(format!("note: it is written, and will be shown a little later ({error})"));
    }
}

pub(crate) fn bare_id(named: &str) -> Result<String, Failure> {
    let bare = named.strip_prefix("run:").unwrap_or(named).to_ascii_lowercase();
    if bare.is_empty() || bare.len() > 32 || !bare.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::not_found(format!(
            "no run called {named:?}; name it by its id or the beginning of it (see `footplate run list`)"
        )));
    }
    Ok(bare)
}
