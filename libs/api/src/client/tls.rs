//! Connections within TLS: whom we trust, and what is told of a server that cannot be trusted.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::Service as _;

use super::ApiError;
use crate::refusal::{Refusal, reason};
use crate::server::{read_bounded, time_problem};

/// A lazy connection within TLS to a server whose certificate leads to an authority in the file, or to one of this machine's when none is named.
pub(super) fn connect(endpoint: &Endpoint, ca: Option<&Path>) -> Result<Channel, ApiError> {
    let roots = match ca {
        Some(file) => of_file(file)?,
        None => of_this_machine()?,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks what is spoken by default")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsConnector::from(Arc::new(config));
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // The endpoint's own deadline is over both: TCP and TLS.
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
        let (mut tcp, tls) = (tcp.clone(), tls.clone());
        async move {
            let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            std::future::poll_fn(|task| tcp.poll_ready(task)).await?;
            let stream = tcp.call(uri).await?.into_inner();
            Ok::<_, Box<dyn Error + Send + Sync>>(TokioIo::new(tls.connect(name, stream).await?))
        }
    })))
}

fn of_file(file: &Path) -> Result<RootCertStore, ApiError> {
    let wrong = |why: String| -> ApiError {
        let refusal = Refusal::new(&reason::INVALID_FIELD, format!("the file of authorities {} {why}", file.display()));
        let refusal = refusal.field("FOOTPLATE_CA").value(file.display().to_string());
        refusal.allowed("certificates of authorities in PEM").next("name the file that whoever runs the platform gave you").into()
    };
    let text = read_bounded(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| wrong(format!("is no PEM: {error}")))?;
        roots.add(certificate).map_err(|error| wrong(format!("holds a certificate that cannot be used: {error}")))?;
    }
    if roots.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    Ok(roots)
}

fn of_this_machine() -> Result<RootCertStore, ApiError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "an authority of this machine was not read");
    }
    let (taken, left) = roots.add_parsable_certificates(found.certs);
    tracing::trace!(taken, left, "authorities of this machine");
    if roots.is_empty() {
        let told = "this machine trusts no authority, so no certificate can be looked at";
        let next = "name the platform's own with --ca FILE or FOOTPLATE_CA, or install this system's ca-certificates";
        return Err(Refusal::new(&reason::CERTIFICATE_UNTRUSTED, told).next(next).into());
    }
    Ok(roots)
}

/// What a call tells that did not get through TLS; `None` when that was not what kept it.
pub(super) fn told(status: &Status, address: &str) -> Option<ApiError> {
    let fault = std::iter::successors(status.source(), |&error| error.source()).find_map(rustls_error)?;
    let refusal = match fault {
        rustls::Error::InvalidCertificate(error) => of_certificate(error, address),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            let refusal = Refusal::new(&reason::TLS_FAILED, format!("{address} does not speak TLS"));
            refusal.next("write http:// if it is meant to be in the clear, or name the port that speaks TLS")
        }
        error => Refusal::new(&reason::TLS_FAILED, format!("no TLS with {address}: {error}")),
    };
    Some(refusal.into())
}

fn of_certificate(error: &CertificateError, address: &str) -> Refusal {
    if let Some(why) = time_problem(error) {
        return Refusal::new(&reason::CERTIFICATE_EXPIRED, format!("the certificate of {address} {why}"));
    }
    match error {
        CertificateError::NotValidForName => {
            Refusal::new(&reason::CERTIFICATE_NAME, format!("the certificate of {address} is for another name"))
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names = presented.iter().map(|name| bare_name(name)).collect::<Vec<_>>().join(", ");
            Refusal::new(&reason::CERTIFICATE_NAME, format!("the certificate of {address} is for another name"))
                .allowed(names.clone())
                .next(if names.is_empty() {
                    "have one made that names the host".to_owned()
                } else {
                    format!("call it by a name of its certificate: {names}")
                })
        }
        // An authority that was made anew has the name of the former, and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Refusal::new(
            &reason::CERTIFICATE_UNTRUSTED,
            format!("the certificate of {address} comes from an authority that is not trusted here"),
        ),
        error => Refusal::new(&reason::CERTIFICATE_UNTRUSTED, format!("the certificate of {address} is not taken: {error}")),
    }
}

/// `DnsName("a.b")` as `a.b`, `IpAddress(127.0.0.1)` as `127.0.0.1`.
fn bare_name(shown: &str) -> &str {
    let inner = shown.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(shown);
    inner.trim_matches('"')
}

/// An error of the system may carry one of TLS, and then does not count it among its causes.
fn rustls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    let inner: &(dyn Error + 'static) = inner;
    rustls_error(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_certificates_are_told_as_people_write_them() {
        for (shown, told) in [("DnsName(\"a.b\")", "a.b"), ("IpAddress(127.0.0.1)", "127.0.0.1"), ("odd", "odd")] {
            assert_eq!(bare_name(shown), told);
        }
    }
}
