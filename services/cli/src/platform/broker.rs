//! The connection to the broker, from the settings.

use super::{knobs, nats_server::NatsServer};
use footplate_credentials::user_of;
use footplate_eventlog::jetstream::{ConnectError, Credentials, JetStreamBroker, JetStreamConfig, StreamBytes};
use footplate_service::config::Config;
use footplate_types::NodeName;
use std::path::{Path, PathBuf};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Nobody said where it is.
    #[error("no broker is named; give one with --nats nats://host:port (`footplate up` starts one of its own)")]
    NotNamed,
    /// Half of what a certificate of our own takes.
    #[error("of nats.certificate and nats.key one is set and the other is not; a certificate of our own takes both")]
    HalfCertificate,
    /// It cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// How the broker is reached: the own one when there is one, else what the settings name.
///
/// # Errors
/// When nothing is named.
pub fn jetstream(config: &Config, own: Option<&NatsServer>, name: &str, manage_streams: bool) -> Result<JetStreamConfig, BrokerError> {
    let url = own.map_or_else(|| config.get(&knobs::NATS_URL), |server| server.url.clone());
    if url.is_empty() {
        return Err(BrokerError::NotNamed);
    }
    let mut jetstream = JetStreamConfig::single(url, name);
    jetstream.manage_streams = manage_streams;
    jetstream.replicas = config.get(&knobs::NATS_REPLICAS);
    jetstream.bytes = StreamBytes::of_disk(config.get(&knobs::NATS_DISK).0);
    let trusted = trust(config)?;
    if own.is_none() {
        (jetstream.ca_file, jetstream.client_certificate) = trusted;
    }
    let (user, file, monitor) = (config.get(&knobs::NATS_USER), config.get(&knobs::NATS_CREDENTIALS), config.get(&knobs::NATS_MONITOR));
    if let Some(server) = own {
        with_file(&mut jetstream, &server.credentials);
        jetstream.monitor = Some(server.monitor.clone());
    } else {
        if !user.is_empty() {
            jetstream.credentials = Credentials::User { name: user, password: config.get(&knobs::NATS_PASSWORD) };
        } else if !file.is_empty() {
            with_file(&mut jetstream, Path::new(&file));
        }
        jetstream.monitor = (!monitor.is_empty()).then_some(monitor);
    }
    Ok(jetstream)
}

/// A file of authorities, and our certificate and its key.
type Trust = (Option<PathBuf>, Option<(PathBuf, PathBuf)>);

/// Whom to take for the broker, and who we are to it within TLS, as the settings say.
///
/// # Errors
/// A certificate without its key, or the other way round.
pub(super) fn trust(config: &Config) -> Result<Trust, BrokerError> {
    let file = |knob| Some(config.get(knob)).filter(|path: &String| !path.is_empty()).map(PathBuf::from);
    match (file(&knobs::NATS_CERTIFICATE), file(&knobs::NATS_KEY)) {
        (Some(certificate), Some(key)) => Ok((file(&knobs::NATS_CA), Some((certificate, key)))),
        (None, None) => Ok((file(&knobs::NATS_CA), None)),
        _ => Err(BrokerError::HalfCertificate),
    }
}

/// Connects with a credentials file, and asks for answers where its user may hear them. A file that cannot be read is told of when it is
/// used.
pub fn with_file(jetstream: &mut JetStreamConfig, file: &Path) {
    jetstream.inbox_prefix = std::fs::read_to_string(file).ok().and_then(|text| user_of(&text).ok()?.inbox_prefix);
    jetstream.credentials = Credentials::File(file.to_owned());
}

/// Connects as the agent of a node: it makes no stream, and reads what its credentials let it read, a subject at a time.
///
/// # Errors
/// When nothing is named, or it cannot be used.
pub async fn connect_node(config: &Config, node: &NodeName) -> Result<JetStreamBroker, BrokerError> {
    let mut jetstream = jetstream(config, None, &format!("footplate agent {node}"), false)?;
    jetstream.direct_reads = true;
    Ok(JetStreamBroker::connect(jetstream).await?)
}

/// Connects.
///
/// # Errors
/// When nothing is named, or it cannot be used.
pub async fn connect(config: &Config, own: Option<&NatsServer>, name: &str, manage_streams: bool) -> Result<JetStreamBroker, BrokerError> {
    Ok(JetStreamBroker::connect(jetstream(config, own, name, manage_streams)?).await?)
}
