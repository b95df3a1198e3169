//! Where to, as whom, for which project.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use tonic::transport::Endpoint;

use super::{ApiError, DEFAULT_DEADLINE};
use crate::refusal::{Refusal, reason};

/// Where the platform listens when nobody says otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7450";
/// How long a connection may take to be made.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How often an idle connection is asked whether it lives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Where to, as whom, for which project.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, `http://host:port` or `https://host:port`.
    pub address: String,
    /// The caller's token.
    pub token: Option<String>,
    /// The project that calls are for.
    pub project: Option<String>,
    /// The file of the authorities that alone are trusted, in PEM; this machine's when there is none.
    pub ca: Option<PathBuf>,
}

impl Target {
    /// The platform at `address`, without token and project.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), token: None, project: None, ca: None }
    }

    /// Calls with this token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Calls for this project.
    #[must_use]
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.project = Some(project.into());
        self
    }

    /// Trusts the authorities of this file alone, where the address asks for TLS.
    #[must_use]
    pub fn ca(mut self, ca: Option<PathBuf>) -> Self {
        self.ca = ca;
        self
    }

    /// Whether calls go within TLS.
    pub fn speaks_tls(&self) -> bool {
        self.uri().is_ok_and(|uri| uri.scheme_str() == Some("https"))
    }

    /// Whether others on the way could read what is sent: in the clear, to what is not known to be this machine.
    pub fn is_readable_on_the_way(&self) -> bool {
        let Ok(uri) = self.uri() else { return false };
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let here = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || address.is_unspecified());
        !here && uri.scheme_str() != Some("https")
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, ApiError> {
        let uri = self.uri()?;
        let endpoint = Endpoint::from(uri)
            .connect_timeout(CONNECT_DEADLINE)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(DEFAULT_DEADLINE)
            .tcp_nodelay(true);
        let agent = concat!("footplate/", env!("CARGO_PKG_VERSION"));
        endpoint.user_agent(agent).map_err(|error| self.not_allowed(&error.to_string()))
    }

    fn uri(&self) -> Result<Uri, ApiError> {
        let written = self.address.trim().trim_end_matches('/');
        let full = if written.contains("://") { written.to_owned() } else { format!("http://{written}") };
        let uri: Uri = full.parse().map_err(|_| self.not_allowed("is no address"))?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            _ => return Err(self.not_allowed("is neither host:port nor an http or https URL")),
        }
        if uri.port_u16().is_none() && !written.contains("://") {
            return Err(self.not_allowed("has no port"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(self.not_allowed("has a path"));
        }
        Ok(uri)
    }

    fn not_allowed(&self, problem: &str) -> ApiError {
        let told = format!("the address {:?} {problem}", self.address);
        let refusal = Refusal::new(&reason::INVALID_FIELD, told).field("FOOTPLATE_ADDR").value(&self.address);
        refusal
            .allowed("host:port, http://host:port, or https://host:port")
            .next(format!("write an address such as {DEFAULT_ADDRESS}"))
            .into()
    }
}

/// Without the token, which must reach no log.
impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("address", &self.address).field("project", &self.project).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_and_urls_are_read() {
        for good in [
            "127.0.0.1:7450",
            "localhost:7450",
            "http://example.org",
            "http://[::1]:7450/",
            " host:1 ",
            "https://example.org",
            "https://[::1]:7450",
        ] {
            assert!(Target::new(good).endpoint().is_ok(), "{good}");
        }
        for (bad, told) in [
            ("", "is no address"),
            ("localhost", "has no port"),
            ("http://h:1/path", "has a path"),
            ("nats://h:1", "neither"),
            ("a b:1", "is no address"),
        ] {
            let error = Target::new(bad).endpoint().unwrap_err();
            assert!(error.to_string().contains(told), "{bad}: {error}");
            assert_eq!(error.exit(), footplate_service::Exit::Usage);
        }
    }

    #[test]
    fn what_others_could_read_is_known() {
        for (address, readable) in [
            ("127.0.0.1:1", false),
            ("localhost:1", false),
            ("[::1]:1", false),
            ("http://127.3.2.1:1", false),
            ("https://lab", false),
            ("10.0.0.7:1", true),
            ("http://lab", true),
            ("no address", false),
        ] {
            assert_eq!(Target::new(address).is_readable_on_the_way(), readable, "{address}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", Target::new("h:1").token("hunter2")).contains("hunter2"));
    }
}
