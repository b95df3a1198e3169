//! The API's port, from the settings: in the clear on this machine, within TLS beyond it, unless somebody says otherwise.

use super::knobs;
use super::run::failure;
use crate::output::Exit;
use footplate_api::server::{Port, ServerTls};
use footplate_service::config::Config;
use footplate_service::listen;
use std::net::SocketAddr;
use std::time::Duration;

/// Settings that no port is opened with.
#[derive(Debug, thiserror::Error)]
pub(super) enum PortError {
    /// Others would reach it, and read what goes over the network.
    #[error(
        "listen is {0}, which other machines reach, and tokens would go to it in the clear; give --tls-certificate FILE and --tls-key FILE, or say \
         --insecure where a proxy or a private network keeps it"
    )]
    InTheClear(SocketAddr),
    /// Half of what TLS takes.
    #[error("{set} is set and {missing} is not; TLS takes both, so name the file of {missing} as well")]
    Half {
        /// What is set.
        set: &'static str,
        /// What is not.
        missing: &'static str,
    },
}

/// How the API is to be served.
pub(super) struct Serving {
    address: SocketAddr,
    tls: Option<(ServerTls, Duration)>,
    local: SocketAddr,
}

/// The ports that are open.
pub(super) struct Open {
    /// The API's, and that of this machine's own where there is one.
    pub(super) ports: Vec<Port>,
    /// Where the API is, as it is written: `host:port`, or a URL.
    pub(super) public: String,
    /// Where this machine's own reach it.
    pub(super) own: String,
}

impl Serving {
    /// Reads the settings, and the certificate where one is named.
    ///
    /// # Errors
    /// An address that others reach in the clear, and a certificate that no client would take.
    pub(super) fn of(config: &Config) -> anyhow::Result<Self> {
        let refused = |error: PortError| failure(Exit::Usage, error);
        let address = config.get(&knobs::LISTEN);
        let (certificate, key) = (config.get(&knobs::TLS_CERTIFICATE), config.get(&knobs::TLS_KEY));
        let tls = match (certificate.is_empty(), key.is_empty()) {
            (true, true) => None,
            (false, true) => return Err(refused(PortError::Half { set: "tls.certificate", missing: "tls.key" })),
            (true, false) => return Err(refused(PortError::Half { set: "tls.key", missing: "tls.certificate" })),
            (false, false) => {
                let tls = ServerTls::read(certificate, key).map_err(|error| failure(Exit::Usage, error))?;
                Some((tls, config.get(&knobs::TLS_REREAD)))
            }
        };
        if tls.is_none() && !address.ip().is_loopback() && !config.get(&knobs::LISTEN_INSECURE) {
            return Err(refused(PortError::InTheClear(address)));
        }
        Ok(Self { address, tls, local: config.get(&knobs::LISTEN_LOCAL) })
    }

    /// Opens the port of a service.
    ///
    /// # Errors
    /// A port that is taken or may not be had.
    pub(super) async fn open(self) -> anyhow::Result<Open> {
        let listener = listen("the API", self.address, "listen").await.map_err(|error| failure(Exit::Refused, error))?;
        let address = listener.local_addr()?.to_string();
        let (port, public) = match self.tls {
            None => (Port::plain(listener), address.clone()),
            Some((tls, every)) => (Port::tls(listener, tls, every), format!("https://{address}")),
        };
        Ok(Open { ports: vec![port], public, own: address })
    }

    /// Opens the port of `up`, and where that speaks TLS, one more: this machine's own agent, workers and command line call the platform by an
    /// address of this machine, for which no certificate is made, and nobody else reaches them there.
    ///
    /// # Errors
    /// A port that is taken or may not be had.
    pub(super) async fn open_with_own(self) -> anyhow::Result<Open> {
        let (local, within) = (self.local, self.tls.is_some());
        let mut open = self.open().await?;
        if within {
            let listener = listen("this machine's own", local, "listen.local").await.map_err(|error| failure(Exit::Refused, error))?;
            open.own = listener.local_addr()?.to_string();
            open.ports.push(Port::plain(listener));
        }
        Ok(open)
    }
}
