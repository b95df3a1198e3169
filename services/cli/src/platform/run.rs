//! A process with services: settings, telemetry, broker, services, port, stop.

use super::broker_door::OperatorDoor;
use super::port::Serving;
use super::services::{Service, Wiring};
use super::{DataFolder, knobs, principals, services};
use crate::output::{Exit, Failure, tell};
use footplate_api::server::{Port, serve_ports};
use footplate_eventlog::Broker;
use footplate_registry_server::Bootstrap;
use footplate_service::config::Config;
use footplate_service::{Context, RunError, RunOptions, Telemetry, TelemetryOptions};
use std::path::Path;
use std::sync::Arc;

/// A failure of a setting, a port, a folder or a broker as the command line tells it.
pub fn failure(exit: Exit, error: impl std::fmt::Display) -> anyhow::Error {
    Failure::new(exit, error.to_string()).into()
}

/// Starts telemetry for a process called `name`.
///
/// # Errors
/// Telemetry settings that cannot be used.
pub fn telemetry(name: &str, config: &Config) -> anyhow::Result<Telemetry> {
    let options = TelemetryOptions::from_environment(name, &knobs::instance(config)).map_err(|error| failure(Exit::Usage, error))?;
    Telemetry::start(&options).map_err(|error| failure(Exit::Failed, error))
}

/// The options of a process, from the settings.
pub fn options(config: &Config) -> RunOptions {
    RunOptions { grace: config.get(&knobs::GRACE), admin: Some(config.get(&knobs::ADMIN)), config: config.show(), pages: Vec::new() }
}

/// Runs some services until told to stop.
///
/// # Errors
/// Everything that keeps them from starting, or from stopping in good order.
pub async fn run_services(config: Config, chosen: &[Service], name: &str) -> anyhow::Result<Exit> {
    let serving = Serving::of(&config)?;
    let folder = knobs::data_folder(&config).map_err(|error| failure(Exit::Usage, error))?;
    let data = DataFolder::take(&folder).map_err(|error| failure(Exit::Refused, error))?;
    let bootstrap = if chosen.contains(&Service::Registry) { vouched(&config)? } else { Vec::new() };
    let door = if chosen.contains(&Service::Registry) { OperatorDoor::of_settings(&config) } else { Ok(None) };
    let door = door.map_err(|error| failure(Exit::Usage, error))?;
    let telemetry = telemetry(name, &config)?;
    let open = serving.open().await?;
    let ended = footplate_service::run(options(&config), async |context: Context| {
        let broker =
            super::connect(&config, None, &format!("footplate {name}"), true).await.map_err(|error| failure(Exit::Unavailable, error))?;
        let broker: Arc<dyn Broker> = Arc::new(broker);
        let lease = config.get(&knobs::LEADER_LEASE);
        let wiring = Wiring {
            config: &config,
            broker,
            data: data.path(),
            context: &context,
            leader_lease: lease,
            door,
            bootstrap: bootstrap.into_iter().collect(),
        };
        start_and_serve(&wiring, chosen, open.ports).await?;
        tracing::info!(address = open.public, services = name, "serving");
        Ok::<(), anyhow::Error>(())
    })
    .await;
    telemetry.flush();
    exit_of(ended)
}

/// The principals that the settings vouch for.
///
/// # Errors
/// A file that vouches for nobody, or for no token that is hard to guess.
pub fn vouched(config: &Config) -> anyhow::Result<Vec<Bootstrap>> {
    let file = config.get(&knobs::BOOTSTRAP);
    if file.is_empty() {
        return Ok(Vec::new());
    }
    principals::vouched_in(Path::new(&file)).map_err(|error| failure(Exit::Usage, error))
}

/// Starts services under a context and serves them on ports.
///
/// # Errors
/// Services that do not start.
pub async fn start_and_serve(wiring: &Wiring<'_>, chosen: &[Service], ports: Vec<Port>) -> anyhow::Result<()> {
    let started = services::start(chosen, wiring).await.map_err(|error| failure(error.exit(), error))?;
    let shutdown = wiring.context.shutdown.clone();
    wiring.context.supervisor.spawn("API", async move { serve_ports(ports, started.parts, shutdown).await });
    Ok(())
}

/// The exit code of a process that ended.
///
/// # Errors
/// What kept it from starting, or from stopping in good order.
pub fn exit_of(ended: Result<(), RunError<anyhow::Error>>) -> anyhow::Result<Exit> {
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(RunError::Start(error)) => Err(error),
        Err(error) => {
            tell(format!("footplate: {error}"));
            Ok(error.exit())
        }
    }
}
