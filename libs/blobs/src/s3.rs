//! Blobs in a bucket of S3, or of a server that speaks its protocol.

use crate::{BlobError, Blobs};
use footplate_types::Invalid;
use object_store::{
    BackoffConfig, ClientOptions, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    path::Path as Key,
    prefix::PrefixStore,
};
use std::{fmt, time::Duration};

/// How long a connection may take to be there.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How long an answer, or the next piece of one, may take: as long as a large part may take to be sent.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// Pauses between tries of one request; each is random below a bound that doubles.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// Tries of one request, whatever time is left.
const TRIES: usize = 20;

/// How long a request is tried again where nobody says otherwise.
const RETRY_FOR: Duration = Duration::from_secs(20);

/// What the URL of a bucket may look like.
const URL_ALLOWED: &str = "s3://BUCKET or s3://BUCKET/PREFIX, the bucket 3 to 63 characters of a-z, 0-9, dots and -";

/// Where a bucket is and how it is spoken to. Keys are never shown.
#[derive(Clone)]
pub struct S3Options {
    bucket: String,
    prefix: String,
    /// http(s)://host:port of the store; none: that of AWS in the region, or what `AWS_ENDPOINT_URL` says.
    pub endpoint: Option<String>,
    /// The region of the bucket; none: what `AWS_REGION` says, else us-east-1.
    pub region: Option<String>,
    /// Whether an endpoint without TLS is allowed.
    pub allow_http: bool,
    /// The access key and its secret; none: what the usual AWS variables say, else the role of the machine.
    pub key: Option<(String, String)>,
    /// How long a request is tried again after an answer of overload, or none.
    pub retry_for: Duration,
}

impl fmt::Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Options").field("place", &self.to_string()).field("region", &self.region).finish_non_exhaustive()
    }
}

/// The place alone: bucket, prefix, endpoint.
impl fmt::Display for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        self.endpoint.as_ref().map_or(Ok(()), |endpoint| write!(f, " at {endpoint}"))
    }
}

impl S3Options {
    /// Reads `s3://bucket/prefix`; everything else as on AWS, from its usual variables.
    pub fn parse(url: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("blobs", url, URL_ALLOWED);
        let rest = url.strip_prefix("s3://").ok_or_else(refused)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte))
            && bucket
                .bytes()
                .next()
                .zip(bucket.bytes().last())
                .is_some_and(|(first, last)| [first, last].iter().all(u8::is_ascii_alphanumeric));
        let prefix = prefix.trim_end_matches('/');
        let is_key = prefix.is_empty() || Key::parse(prefix).is_ok_and(|key| key.as_ref() == prefix);
        if !is_name || !is_key {
            return Err(refused());
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: None,
            region: None,
            allow_http: false,
            key: None,
            retry_for: RETRY_FOR,
        })
    }

    fn builder(&self) -> Result<AmazonS3Builder, BlobError> {
        let environment = AmazonS3Builder::from_env();
        let told = |key| environment.get_config_value(&key).filter(|value| !value.is_empty());
        let endpoint = self.endpoint.clone().or_else(|| told(AmazonS3ConfigKey::S3Endpoint)).or_else(|| told(AmazonS3ConfigKey::Endpoint));
        let region = self.region.clone().or_else(|| told(AmazonS3ConfigKey::Region));
        let mut builder = match &self.key {
            // Nothing else of the environment: its token belongs to its own key.
            Some((access, secret)) => AmazonS3Builder::new().with_access_key_id(access).with_secret_access_key(secret),
            None => environment,
        };
        builder = builder.with_bucket_name(&self.bucket);
        if let Some(endpoint) = endpoint {
            self.check_endpoint(&endpoint)?;
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        let client = ClientOptions::new()
            .with_allow_http(self.allow_http)
            .with_timeout_disabled()
            .with_connect_timeout(CONNECT_WITHIN)
            .with_read_timeout(ANSWER_WITHIN);
        let backoff = BackoffConfig { init_backoff: PAUSE.0, max_backoff: PAUSE.1, base: 2.0 };
        let retry = RetryConfig { backoff, max_retries: TRIES, retry_timeout: self.retry_for };
        Ok(builder.with_client_options(client).with_retry(retry))
    }

    fn check_endpoint(&self, endpoint: &str) -> Result<(), BlobError> {
        let refused = |allowed: &str| Err(BlobError::Setting(Invalid::new("blobs.endpoint", endpoint, allowed)));
        match endpoint.split_once("://") {
            Some(("https", host)) if !host.is_empty() => Ok(()),
            Some(("http", host)) if !host.is_empty() && self.allow_http => Ok(()),
            Some(("http", _)) => refused("https://; http:// only with blobs.allow-http=true, since keys are safe on it and content is not"),
            _ => refused("https://host or https://host:port"),
        }
    }
}

impl Blobs {
    /// Blobs in a bucket, below its prefix. Asks nothing of the store yet: see [`Blobs::check`].
    pub fn s3(options: &S3Options) -> Result<Self, BlobError> {
        // One provider of TLS in the whole program; a binary has installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = options.builder()?.build()?;
        Ok(if options.prefix.is_empty() {
            Self::in_bucket(store)
        } else {
            Self::in_bucket(PrefixStore::new(store, options.prefix.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_by_its_url() {
        for (url, shown) in [
            ("s3://models", "s3://models"),
            ("s3://models/", "s3://models"),
            ("s3://my.models-1/team/vision/", "s3://my.models-1/team/vision"),
        ] {
            assert_eq!(S3Options::parse(url).unwrap().to_string(), shown);
        }
        for url in [
            "models",
            "s3://",
            "s3://ab",
            "s3://Models",
            "s3://-models",
            "s3://models//x",
            "s3://models/../x",
            "http://models",
            "s3://a b c",
        ] {
            let refused = S3Options::parse(url).unwrap_err();
            assert!(refused.field == "blobs" && refused.to_string().contains("s3://BUCKET"), "{url}: {refused}");
        }
    }

    #[test]
    fn an_endpoint_without_tls_needs_a_word_and_a_key_is_never_shown() {
        let mut options = S3Options::parse("s3://models/x").unwrap();
        options.key = Some(("the-access-key".to_owned(), "the-secret-key".to_owned()));
        options.endpoint = Some("http://store:9000".to_owned());
        let refused = Blobs::s3(&options).unwrap_err().to_string();
        assert!(refused.contains("blobs.endpoint") && refused.contains("blobs.allow-http"), "{refused}");
        options.allow_http = true;
        let blobs = Blobs::s3(&options).unwrap();
        let shown = format!("{blobs:?} {options:?} {options}");
        assert!(shown.contains("s3://models/x at http://store:9000") && !shown.contains("the-secret-key"), "{shown}");
        for endpoint in ["store:9000", "ftp://store", "http://"] {
            options.endpoint = Some(endpoint.to_owned());
            assert!(matches!(Blobs::s3(&options), Err(BlobError::Setting(invalid)) if invalid.field == "blobs.endpoint"), "{endpoint}");
        }
    }
}
