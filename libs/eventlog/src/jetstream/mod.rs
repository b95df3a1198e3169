//! The broker on NATS JetStream.
//!
//! Everything goes over one connection that reconnects by itself. What JetStream answers is turned into the port's words here; nothing
//! above knows NATS. It never decides, never retries a publication whose outcome is unknown, and never deletes a stream.

mod api;
mod config;
mod permissions;
mod probe;
mod publish;
mod read;
mod streams;
mod tail;

pub use config::{Credentials, JetStreamConfig, StreamBytes};
pub use permissions::{Permissions, SHARED_INBOX_PREFIX, node_inbox_prefix, service_inbox_prefix};
pub use probe::{Probe, StreamProbe, SyncProbe};

use crate::port::{Bounds, Broker, Expect, Message, Page, PublishError, ReadError, Stored, StreamName, TailItem};
use api::ApiError;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The oldest nats-server that this build works with.
const SERVER_MIN: (i64, i64) = (2, 14);
/// How often the broker is asked whether it lives.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Commands that may wait for the connection before publishers wait.
const COMMANDS_MAX: usize = 2_048;
/// Messages that may wait in one subscription.
const SUBSCRIPTION_MAX: usize = 8_192;
/// The longest pause between two attempts to reconnect; a fifth of it is jitter.
const RECONNECT_MAX: Duration = Duration::from_secs(4);
/// The pause between two attempts of the first connection.
const FIRST_CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Why the broker cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers there.
    #[error("no NATS server at {servers}: {reason}; start one or set its address")]
    Unreachable {
        /// Where it was looked for.
        servers: String,
        /// Why it failed.
        reason: String,
    },
    /// The server does not take our credentials.
    #[error("the NATS server at {servers} does not let us in: {reason}; set the credentials that it knows")]
    NotPermitted {
        /// Where.
        servers: String,
        /// Why it failed.
        reason: String,
    },
    /// A server that lacks what the platform needs.
    #[error("nats-server {version} is too old: {}.{} or newer is needed", SERVER_MIN.0, SERVER_MIN.1)]
    TooOld {
        /// What it calls itself.
        version: String,
    },
    /// The server has no JetStream for us.
    #[error("the NATS server at {servers} offers no JetStream: {reason}; start it with `jetstream` enabled")]
    NoJetStream {
        /// Where.
        servers: String,
        /// Why it failed.
        reason: String,
    },
    /// A stream could not be made or differs in what cannot be changed.
    #[error("stream {stream} cannot be used: {reason}")]
    Stream {
        /// Which.
        stream: &'static str,
        /// Why.
        reason: String,
    },
    /// The configuration is not usable.
    #[error("the broker's configuration cannot be used: {0}")]
    Config(String),
}

/// A broker on NATS JetStream. Clones share the connection.
#[derive(Clone)]
pub struct JetStreamBroker {
    core: Arc<Core>,
}

/// What the parts of the back end share.
struct Core {
    client: Client,
    context: async_nats::jetstream::Context,
    config: JetStreamConfig,
    connections: watch::Sender<u64>,
    disconnections: watch::Sender<u64>,
    nudges: BTreeMap<StreamName, watch::Sender<u64>>,
}

impl std::fmt::Debug for JetStreamBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JetStreamBroker").field("servers", &self.core.config.servers).finish_non_exhaustive()
    }
}

impl JetStreamBroker {
    /// Connects, checks the server's version and (unless told otherwise) brings the streams in line.
    pub async fn connect(config: JetStreamConfig) -> Result<Self, ConnectError> {
        let (connections, _) = watch::channel(0);
        let (disconnections, _) = watch::channel(0);
        let nudges = StreamName::ALL.into_iter().map(|stream| (stream, watch::channel(0).0)).collect();
        let client = first_connection(&config, &connections, &disconnections).await?;
        if !client.is_server_compatible(SERVER_MIN.0, SERVER_MIN.1, 0) {
            return Err(ConnectError::TooOld { version: client.server_info().version });
        }
        let context = async_nats::jetstream::context::ContextBuilder::new().timeout(api::API_WITHIN).build(client.clone());
        let core = Arc::new(Core { client, context, config, connections, disconnections, nudges });
        if core.config.manage_streams {
            core.ensure_streams().await?;
        }
        Ok(Self { core })
    }

    /// The connection, for what the port does not cover (a request to another service's subject).
    pub fn client(&self) -> &Client {
        &self.core.client
    }

    /// Whether the connection stands at this moment.
    pub fn is_connected(&self) -> bool {
        self.core.is_connected()
    }

    /// Looks whether the broker is set as the protocol demands.
    pub async fn probe(&self) -> Result<Probe, ReadError> {
        probe::probe(&self.core).await
    }
}

impl Core {
    fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    async fn ensure_streams(&self) -> Result<(), ConnectError> {
        let deadline = tokio::time::Instant::now() + self.config.connect_within;
        for stream in StreamName::ALL {
            loop {
                match streams::ensure(&self.client, stream, &self.config).await {
                    Ok(()) => break,
                    // A server that has just started offers JetStream a moment later.
                    Err(ApiError::Away(_)) if tokio::time::Instant::now() < deadline => tokio::time::sleep(FIRST_CONNECT_PAUSE).await,
                    Err(ApiError::Away(reason)) => {
                        if let Some(differing) = self.differing(stream).await {
                            let reason = format!(
                                "{differing}; the broker does not answer a request to change it, which credentials of a service do not allow: \
                                 bring it in line with `footplate nats streams`"
                            );
                            return Err(ConnectError::Stream { stream: stream.as_str(), reason });
                        }
                        return Err(ConnectError::NoJetStream { servers: self.config.servers.join(", "), reason });
                    }
                    Err(ApiError::Refused(refusal)) if api::code::FULL.contains(&refusal.err_code) => {
                        let wanted = self.config.bytes.sum();
                        let reason =
                            format!("{}; the streams reserve {wanted} bytes: give the broker more, or them less", refusal.description);
                        return Err(ConnectError::Stream { stream: stream.as_str(), reason });
                    }
                    Err(refused @ ApiError::Refused(_)) => {
                        return Err(ConnectError::Stream { stream: stream.as_str(), reason: refused.to_string() });
                    }
                }
            }
        }
        Ok(())
    }
}

impl Core {
    /// Where a stream that is there differs from what it must be.
    async fn differing(&self, stream: StreamName) -> Option<String> {
        let found = streams::info(&self.client, stream).await.ok()?;
        let differing = streams::differences(&streams::wanted(stream, &self.config), &found["config"]);
        (!differing.is_empty()).then(|| differing.join("; "))
    }
}

async fn first_connection(
    config: &JetStreamConfig,
    connections: &watch::Sender<u64>,
    disconnections: &watch::Sender<u64>,
) -> Result<Client, ConnectError> {
    let deadline = tokio::time::Instant::now() + config.connect_within;
    loop {
        let options = options(config, connections.clone(), disconnections.clone()).await?;
        match options.connect(config.servers.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) if matches!(error.kind(), ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication) => {
                return Err(ConnectError::NotPermitted { servers: config.servers.join(", "), reason: error.to_string() });
            }
            Err(error) if tokio::time::Instant::now() >= deadline => {
                return Err(ConnectError::Unreachable { servers: config.servers.join(", "), reason: error.to_string() });
            }
            Err(_) => tokio::time::sleep(FIRST_CONNECT_PAUSE).await,
        }
    }
}

async fn options(
    config: &JetStreamConfig,
    connections: watch::Sender<u64>,
    disconnections: watch::Sender<u64>,
) -> Result<ConnectOptions, ConnectError> {
    let unusable = |what: &str, error: &dyn std::fmt::Display| ConnectError::Config(format!("{what}: {error}"));
    let mut options = ConnectOptions::new()
        .name(&config.name)
        .ping_interval(PING_EVERY)
        .client_capacity(COMMANDS_MAX)
        .subscription_capacity(SUBSCRIPTION_MAX)
        .request_timeout(Some(api::API_WITHIN))
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            match event {
                Event::Connected => connections.send_modify(|count| *count += 1),
                Event::Disconnected => disconnections.send_modify(|count| *count += 1),
                other => tracing::warn!(event = %other, "the connection to the broker"),
            }
            std::future::ready(())
        });
    options = match &config.credentials {
        Credentials::None => options,
        Credentials::File(path) => options.credentials_file(path).await.map_err(|error| unusable("credentials file", &error))?,
        Credentials::User { name, password } => options.user_and_password(name.clone(), password.clone()),
        Credentials::Token(token) => options.token(token.clone()),
    };
    if let Some(prefix) = &config.inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    if let Some(ca) = &config.ca_file {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &config.client_certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
    }
    Ok(options)
}

/// Doubling from 2 ms, at most [`RECONNECT_MAX`], with a fifth of jitter so that a fleet does not come back at one instant.
fn reconnect_delay(attempts: usize) -> Duration {
    if attempts <= 1 {
        return Duration::ZERO;
    }
    let doubled = Duration::from_millis(1 << attempts.min(12)).min(RECONNECT_MAX);
    let [jitter] = footplate_clock::entropy::<1>();
    doubled.mul_f64(0.8 + f64::from(jitter) / 255.0 * 0.2)
}

impl Broker for JetStreamBroker {
    fn publish(&self, stream: StreamName, message: Message, expect: Expect) -> BoxFuture<'_, Result<u64, PublishError>> {
        publish::single(&self.core, stream, message, expect).boxed()
    }

    fn publish_batch(&self, stream: StreamName, messages: Vec<(Message, Expect)>) -> BoxFuture<'_, Result<u64, PublishError>> {
        publish::batch(&self.core, stream, messages).boxed()
    }

    fn read<'a>(&'a self, stream: StreamName, filter: &'a str, from: u64, most: usize) -> BoxFuture<'a, Result<Page, ReadError>> {
        read::page(&self.core, stream, filter, from, most).boxed()
    }

    fn last<'a>(&'a self, stream: StreamName, subject: &'a str) -> BoxFuture<'a, Result<Option<Stored>, ReadError>> {
        read::last(&self.core, stream, subject).boxed()
    }

    fn bounds(&self, stream: StreamName) -> BoxFuture<'_, Result<Bounds, ReadError>> {
        read::bounds(&self.core, stream).boxed()
    }

    fn tail(&self, stream: StreamName, filters: Vec<String>, from: u64) -> BoxStream<'static, TailItem> {
        tail::tail(self.core.clone(), stream, filters, from)
    }

    fn purge(&self, stream: StreamName, filter: Option<String>, below: u64) -> BoxFuture<'_, Result<(), ReadError>> {
        read::purge(&self.core, stream, filter, below).boxed()
    }

    fn listen(&self, subject: &str) -> BoxFuture<'_, Result<BoxStream<'static, Stored>, ReadError>> {
        read::listen(&self.core, subject.to_owned()).boxed()
    }

    fn nudge(&self, stream: StreamName) {
        if let Some(nudges) = self.core.nudges.get(&stream) {
            nudges.send_modify(|count| *count += 1);
        }
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.core.connections.subscribe()
    }
}
