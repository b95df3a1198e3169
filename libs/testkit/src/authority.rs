//! A certificate authority of a test's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// How long a certificate is good that nobody gave a shorter life.
const LIFE: Duration = Duration::from_secs(3600);

/// An authority whose certificate lies in a folder of its own; both are gone when it is dropped.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// Where a certificate and its key lie, in PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// A fresh authority.
    ///
    /// # Panics
    /// When a key cannot be made or a file cannot be written.
    pub fn new() -> Self {
        Self::make().expect("an authority of the test's own")
    }

    fn make() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "an authority of a test");
        let certificate = params.self_signed(&key)?;
        std::fs::write(folder.path().join("ca.pem"), certificate.pem())?;
        Ok(Self { folder, issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate, in PEM.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Signs a certificate for these names and addresses, good for an hour, and puts it into files called `name.pem` and `name.key`.
    ///
    /// # Panics
    /// When a key cannot be made or a file cannot be written.
    pub fn sign(&self, name: &str, subjects: &[&str]) -> CertificateFiles {
        self.sign_until(name, subjects, SystemTime::now() + LIFE)
    }

    /// [`Authority::sign`] with an end of its own.
    ///
    /// # Panics
    /// When a key cannot be made or a file cannot be written.
    pub fn sign_until(&self, name: &str, subjects: &[&str], not_after: SystemTime) -> CertificateFiles {
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        let files = CertificateFiles { certificate: path("pem"), key: path("key") };
        self.sign_into(&files, subjects, not_after).expect("a certificate of the test's own");
        files
    }

    /// Writes another certificate and key over these, each whole.
    ///
    /// # Errors
    /// A key that cannot be made, a file that cannot be written.
    pub fn sign_into(&self, files: &CertificateFiles, subjects: &[&str], not_after: SystemTime) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(subjects.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        params.not_before = (not_after - 48 * LIFE).into();
        params.not_after = not_after.into();
        params.distinguished_name.push(DnType::CommonName, subjects.first().copied().unwrap_or("nobody"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        replace(&files.key, &key.serialize_pem())?;
        replace(&files.certificate, &certificate.pem())
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("file", &self.file()).finish_non_exhaustive()
    }
}

/// Nobody ever reads half of a file.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, path)).with_context(|| path.display().to_string())
}
