//! Where the broker is, and whom to take for it.

use async_nats::ConnectOptions;
use std::path::PathBuf;

/// The servers of a broker. A text is their addresses, separated by commas, reached with this machine's own authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// `nats://host:port` or `tls://host:port`, separated by commas.
    pub addresses: String,
    /// A file of authorities besides the system's, for TLS.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and key, where the broker asks for one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl From<&str> for Servers {
    fn from(addresses: &str) -> Self {
        Self { addresses: addresses.to_owned(), ca_file: None, client_certificate: None }
    }
}

impl From<&String> for Servers {
    fn from(addresses: &String) -> Self {
        addresses.as_str().into()
    }
}

impl From<&Servers> for Servers {
    fn from(servers: &Servers) -> Self {
        servers.clone()
    }
}

impl Servers {
    pub(crate) fn list(&self) -> Vec<String> {
        self.addresses.split(',').map(|server| server.trim().to_owned()).collect()
    }

    /// Whom to take for the broker, added to how it is connected to.
    pub(crate) fn trusted(&self, mut options: ConnectOptions) -> ConnectOptions {
        if let Some(ca) = &self.ca_file {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &self.client_certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
        }
        options
    }
}
