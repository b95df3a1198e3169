//! TLS on a port: a certificate and its key from files, looked at before anybody is served, and read again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use footplate_types::Timestamp;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// What is agreed on within TLS: HTTP/2 where the client can, else HTTP/1.1.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// The most that a file with a certificate chain or a key may hold.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a certificate and a key are not served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not hold what it should.
    #[error("{} {why}; name a file with {allowed}", .file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What it should hold.
        allowed: &'static str,
    },
    /// The certificate is another key's.
    #[error("the key {} does not fit the certificate {}; name the key that the certificate was made with", .key.display(), .certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The time of the certificate is over, or has not begun.
    #[error("the certificate {} {why}, so no client would take it; renew it, or see whether this machine's clock is right", .certificate.display())]
    Time {
        /// The file of the certificate.
        certificate: PathBuf,
        /// Since when, or from when on.
        why: String,
    },
}

const CHAIN: &str = "the server's certificate in PEM, first its own, then those that lead to its authority";
const KEY: &str = "the certificate's key in PEM, not encrypted";

/// The certificate and key of a server; a cheap handle.
#[derive(Clone, Debug)]
pub struct ServerTls {
    files: Files,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
}

/// What new connections are served with.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}

impl Current {
    fn get(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, fresh: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}

impl ServerTls {
    /// Reads a certificate chain and its key from PEM files.
    ///
    /// # Errors
    /// Files that do not hold them, a key that does not fit, a certificate whose time is over.
    pub fn read(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let files = Files { certificate: certificate.into(), key: key.into(), provider: Arc::new(ring::default_provider()) };
        let current = Arc::new(Current(RwLock::new(Arc::new(files.read()?))));
        let mut config = ServerConfig::builder_with_provider(files.provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| files.wrong(&files.certificate, format!("cannot be served with: {error}"), CHAIN))?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Self { files, current, config: Arc::new(config) })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// Looks at the files every so often, so that a renewal needs no restart. What cannot be served with is warned of, and the old one stays.
    /// Never returns.
    pub(super) async fn follow(self, every: Duration) {
        let mut warned = None;
        loop {
            tokio::time::sleep(every).await;
            let files = self.files.clone();
            let read = tokio::task::spawn_blocking(move || files.read()).await;
            match read {
                Ok(Ok(fresh)) => {
                    warned = None;
                    if fresh.cert != self.current.get().cert {
                        self.current.set(Arc::new(fresh));
                        tracing::info!(certificate = %self.files.certificate.display(), "the certificate was renewed");
                    }
                }
                Ok(Err(error)) => {
                    let told = error.to_string();
                    if warned.as_ref() != Some(&told) {
                        tracing::warn!(error = told, "a changed certificate cannot be used; the one in use stays");
                        warned = Some(told);
                    }
                }
                Err(error) => tracing::warn!(%error, "the certificate could not be looked at"),
            }
        }
    }
}

impl Files {
    fn read(&self) -> Result<CertifiedKey, TlsError> {
        let text = self.bytes(&self.certificate, CHAIN)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| self.wrong(&self.certificate, format!("is no PEM: {error}"), CHAIN))?;
        let (own, authorities) = chain.split_first().ok_or_else(|| self.wrong(&self.certificate, "holds no certificate", CHAIN))?;
        self.look_at(own)?;
        for (index, authority) in authorities.iter().enumerate() {
            // Clients that find another way to an authority they trust take it all the same.
            if let Err(error) = self.look_at(authority) {
                tracing::warn!(certificate = index + 2, %error, "one of the certificates behind the server's own cannot be used");
            }
        }
        let text = self.bytes(&self.key, KEY)?;
        // Not what the parser says: it may show what it read.
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| self.wrong(&self.key, "holds no key that can be read", KEY))?;
        CertifiedKey::from_der(chain, key, &self.provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { certificate: self.certificate.clone(), key: self.key.clone() },
            error => self.wrong(&self.key, format!("holds a key that cannot be used: {error}"), KEY),
        })
    }

    /// Whether the certificate's time is now. Without authorities to ask, a certificate that is good now is of an unknown issuer.
    fn look_at(&self, certificate: &CertificateDer<'_>) -> Result<(), TlsError> {
        let parsed = ParsedCertificate::try_from(certificate)
            .map_err(|error| self.wrong(&self.certificate, format!("holds no certificate that can be read: {error}"), CHAIN))?;
        let (nobody, algorithms) = (RootCertStore::empty(), self.provider.signature_verification_algorithms.all);
        let Err(rustls::Error::InvalidCertificate(error)) =
            verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], UnixTime::now(), algorithms)
        else {
            return Ok(());
        };
        match time_problem(&error) {
            Some(why) => Err(TlsError::Time { certificate: self.certificate.clone(), why }),
            None => Ok(()),
        }
    }

    fn bytes(&self, file: &Path, allowed: &'static str) -> Result<Vec<u8>, TlsError> {
        read_bounded(file).map_err(|error| self.wrong(file, format!("cannot be read: {error}"), allowed))
    }

    fn wrong(&self, file: &Path, why: impl Into<String>, allowed: &'static str) -> TlsError {
        TlsError::File { file: file.to_owned(), why: why.into(), allowed }
    }
}

/// What is wrong with a certificate's time, if that is what is wrong: "expired at ...".
pub(crate) fn time_problem(error: &CertificateError) -> Option<String> {
    let instant = |time: &UnixTime| Timestamp::from_millis(i64::try_from(time.as_secs()).unwrap_or(i64::MAX).saturating_mul(1_000));
    match error {
        CertificateError::ExpiredContext { not_after, .. } => Some(format!("expired at {}", instant(not_after))),
        CertificateError::NotValidYetContext { not_before, .. } => Some(format!("is not valid before {}", instant(not_before))),
        CertificateError::Expired => Some("has expired".to_owned()),
        CertificateError::NotValidYet => Some("is not valid yet".to_owned()),
        _ => None,
    }
}

/// The bytes of a file that is not longer than a certificate or a key has reason to be.
pub(crate) fn read_bounded(file: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
