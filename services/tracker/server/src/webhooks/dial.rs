//! Posting: one request to an address that was looked at, and what came of it.
//!
//! A name is resolved here and nowhere else, and the connection goes to the very addresses that were found allowed: a name that answers otherwise the
//! next time is looked at the next time. Redirects are not followed, proxies of the environment not used: both would go where nobody looked.

use super::address::AllowedInside;
use bytes::Bytes;
use footplate_clock::SharedClock;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, StatusCode, Url, redirect};
use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long one delivery may take, from the look-up of the name to the end of the answer.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);
/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// How long a connection that is not used is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Addresses of a name that are looked at; one with more is refused.
const ADDRESSES_MAX: usize = 64;
/// Characters of what went wrong that are kept.
const ERROR_MAX: usize = 300;

/// Finds the addresses of a host.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of `host`, now.
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's own way.
#[derive(Debug)]
pub(crate) struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).take(ADDRESSES_MAX + 1).collect())
        }
        .boxed()
    }
}

/// An address that may not be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is at {address}, which is {why}: an address inside")]
pub(crate) struct Denied {
    host: String,
    address: IpAddr,
    why: &'static str,
}

/// Why a URL is not posted to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// It is none that a webhook can have.
    #[error("{0}")]
    Form(&'static str),
    /// Its host has no address.
    #[error("{0}")]
    Unknown(String),
    /// It leads inside.
    #[error(transparent)]
    Denied(#[from] Denied),
}

/// Looks names up, and lets only those through whose every address is allowed.
#[derive(Clone)]
struct Guard {
    lookup: Arc<dyn Lookup>,
    allowed: Arc<AllowedInside>,
}

impl Guard {
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Unfit> {
        let unknown = |why: String| Unfit::Unknown(format!("{host} cannot be looked up: {why}"));
        let found = self.lookup.lookup(host.to_owned()).await.map_err(|error| unknown(error.to_string()))?;
        if found.is_empty() || found.len() > ADDRESSES_MAX {
            return Err(unknown(format!("{} addresses; allowed: 1 to {ADDRESSES_MAX}", found.len())));
        }
        found.iter().try_for_each(|address| self.look_at(host, *address))?;
        Ok(found)
    }

    fn look_at(&self, host: &str, address: IpAddr) -> Result<(), Denied> {
        self.allowed.denies(address).map_or(Ok(()), |why| Err(Denied { host: host.to_owned(), address, why }))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = guard.addresses(name.as_str()).await?;
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// What is posted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parcel {
    /// The headers, the signature among them.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// What came of one try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The HTTP status; 0 when there was no answer.
    pub status: u16,
    /// How long it took.
    pub took: Duration,
    /// What went wrong; `None` when it was taken.
    pub error: Option<String>,
    /// Whether it was not even sent, because the address is inside.
    pub denied: bool,
    /// The beginning of what was answered.
    pub body: String,
}

impl Outcome {
    /// A try that came to nothing before it was sent.
    pub(crate) fn unsent(error: String) -> Self {
        Self { error: Some(cut(error)), ..Self::default() }
    }

    /// Whether the receiver says that it is gone for ever.
    pub(crate) fn is_gone(&self) -> bool {
        self.status == StatusCode::GONE.as_u16()
    }
}

fn cut(mut text: String) -> String {
    if text.len() > ERROR_MAX {
        text.truncate(text.floor_char_boundary(ERROR_MAX));
        text.push('…');
    }
    text
}

/// Posts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dialer {
    guard: Guard,
    client: Client,
    clock: SharedClock,
    within: Duration,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("allowed", &self.guard.allowed).finish_non_exhaustive()
    }
}

impl Dialer {
    /// Posts to what is not inside, or allowed all the same.
    ///
    /// # Errors
    /// When there is nothing to verify certificates with.
    pub(crate) fn new(lookup: Arc<dyn Lookup>, allowed: AllowedInside, within: Duration, clock: SharedClock) -> Result<Self, String> {
        // The process has ring as its provider; whoever embeds this alone (a test) may have chosen none yet.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let guard = Guard { lookup, allowed: Arc::new(allowed) };
        let client = Client::builder()
            .dns_resolver(guard.clone())
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .timeout(within)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .user_agent(concat!("footplate/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| format!("no HTTP client can be made: {}", chain(&error)))?;
        Ok(Self { guard, client, clock, within })
    }

    /// The URL that a text is, if it is one that a webhook can have. An address in it is looked at; a name only when it is dialled.
    fn form(&self, text: &str) -> Result<Url, Unfit> {
        let url = Url::parse(text).map_err(|_| Unfit::Form("it is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Unfit::Form("its scheme is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Unfit::Form("it names a user, and whoever may see the webhook would see the password"));
        }
        if url.fragment().is_some() {
            return Err(Unfit::Form("it has a fragment, which no server sees"));
        }
        let host = url.host_str().unwrap_or_default();
        // The client asks the resolver about names alone, so that an address is looked at here. The URL's own reader has brought each of its
        // spellings (octal, hexadecimal, one number) into this form.
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            self.guard.look_at(host, address)?;
        }
        Ok(url)
    }

    /// Looks whether a URL may be posted to now, its name included.
    pub(crate) async fn check(&self, text: &str) -> Result<Url, Unfit> {
        let url = self.form(text)?;
        if let Some(host) = url.domain() {
            let looked = tokio::time::timeout(self.within, self.guard.addresses(host)).await;
            looked.map_err(|_| Unfit::Unknown(format!("{host} cannot be looked up: no answer in time")))??;
        }
        Ok(url)
    }

    /// Posts once.
    pub(crate) async fn post(&self, text: &str, parcel: Parcel) -> Outcome {
        let url = match self.form(text) {
            Ok(url) => url,
            Err(unfit) => return Outcome { denied: matches!(unfit, Unfit::Denied(_)), ..Outcome::unsent(unfit.to_string()) },
        };
        let mut request = self.client.post(url).body(parcel.body);
        for (name, value) in parcel.headers {
            request = request.header(name, value);
        }
        let began = self.clock.elapsed();
        let answered = request.send().await;
        let mut outcome = match answered {
            Ok(answer) => {
                let status = answer.status();
                let error = (!status.is_success()).then(|| format!("answered {status}"));
                Outcome { status: status.as_u16(), error, body: beginning(answer).await, ..Outcome::default() }
            }
            Err(error) => failed(&error, self.within),
        };
        outcome.took = self.clock.elapsed().saturating_sub(began);
        outcome
    }
}

fn failed(error: &reqwest::Error, within: Duration) -> Outcome {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(unfit) = error.downcast_ref::<Unfit>() {
            return Outcome { denied: matches!(unfit, Unfit::Denied(_)), ..Outcome::unsent(unfit.to_string()) };
        }
        source = error.source();
    }
    if error.is_timeout() {
        return Outcome::unsent(format!("no answer within {} s", within.as_secs_f32()));
    }
    Outcome::unsent(chain(error))
}

/// An error with what is behind it, without the URL: that stands beside it wherever this is shown.
fn chain(error: &reqwest::Error) -> String {
    let mut told = if error.is_connect() { "cannot connect".to_owned() } else { "the connection broke".to_owned() };
    let mut source = error.source();
    while let Some(error) = source {
        told = format!("{told}: {error}");
        source = error.source();
    }
    told
}

/// The beginning of an answer's body. What breaks while it is read is no fault of the delivery: the status was there.
async fn beginning(mut answer: reqwest::Response) -> String {
    let mut body = Vec::new();
    while body.len() < ANSWER_BYTES_MAX {
        match answer.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - body.len())]),
            Ok(None) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}
