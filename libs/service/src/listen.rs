//! Binding a port, with an error that says what to do.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// A port that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Something else listens there.
    #[error("port {port} on {host} is taken, so {what} cannot listen there; see who has it with `ss -ltnp sport = :{port}`, or set {knob}", port = .address.port(), host = .address.ip())]
    Taken {
        /// What wanted to listen.
        what: String,
        /// Where.
        address: SocketAddr,
        /// What sets another address.
        knob: String,
    },
    /// The address is not of this machine, or the port needs a right that the process has not.
    #[error("{what} cannot listen on {address}: {why}; set {knob} to an address of this machine and a port above 1023")]
    NotAllowed {
        /// What wanted to listen.
        what: String,
        /// Where.
        address: SocketAddr,
        /// What sets another address.
        knob: String,
        /// What the system said.
        why: String,
    },
}

/// Listens on `address` for `what` ("the admin pages"); `knob` is how a person sets another address ("admin.listen or --admin").
///
/// # Errors
/// When the port is taken or may not be had.
pub async fn listen(what: &str, address: SocketAddr, knob: &str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|error| {
        let (what, knob) = (what.to_owned(), knob.to_owned());
        match error.kind() {
            ErrorKind::AddrInUse => ListenError::Taken { what, address, knob },
            _ => ListenError::NotAllowed { what, address, knob, why: error.to_string() },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_says_who_wanted_it_and_what_to_set() {
        let first = listen("the first", "127.0.0.1:0".parse().unwrap(), "first.listen").await.unwrap();
        let address = first.local_addr().unwrap();
        let error = listen("the admin pages", address, "admin.listen").await.unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, ListenError::Taken { .. }));
        assert!(
            told.contains(&format!("port {} on 127.0.0.1 is taken", address.port())) && told.ends_with("or set admin.listen"),
            "{told}"
        );
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_told_as_such() {
        let error = listen("the pages", "192.0.2.1:0".parse().unwrap(), "listen").await.unwrap_err();
        assert!(matches!(error, ListenError::NotAllowed { .. }), "{error}");
    }
}
