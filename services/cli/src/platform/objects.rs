//! The object store, from the settings: a bucket where one is named, else a folder.

use super::knobs;
use super::services::StartError;
use crate::output::Exit;
use footplate_blobs::{BlobError, Blobs, S3Options};
use footplate_service::Context;
use footplate_service::config::{AnyKnob as _, Config};
use footplate_types::Invalid;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often what uploads cut short have left behind is looked for, the first time after a start too: at once, it would meet those that are
/// about to be gone on with.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// How long nobody must have touched it: longer than any upload pauses, and than a node may be away and still come back with its files.
const SWEEP_IDLE: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// Where objects lie when no bucket is named: the folder that is set, else one in the data folder.
pub fn folder(config: &Config, data: &Path) -> PathBuf {
    let set = config.get(&knobs::OBJECTS);
    if set.is_empty() { data.join("objects") } else { PathBuf::from(set) }
}

/// The bucket that the settings name.
///
/// # Errors
/// A URL that is none, or half of a key.
pub fn bucket(config: &Config) -> Result<Option<S3Options>, Invalid> {
    let url = config.get(&knobs::BLOBS);
    if url.is_empty() {
        return Ok(None);
    }
    let set = |text: String| (!text.is_empty()).then_some(text);
    let mut options = S3Options::parse(&url)?;
    options.endpoint = set(config.get(&knobs::BLOBS_ENDPOINT));
    options.region = set(config.get(&knobs::BLOBS_REGION));
    options.allow_http = config.get(&knobs::BLOBS_ALLOW_HTTP);
    options.retry_for = config.get(&knobs::BLOBS_RETRY);
    let (access, secret) = (knobs::BLOBS_ACCESS_KEY, knobs::BLOBS_SECRET_KEY);
    options.key = match (set(config.get(&access)), set(config.get(&secret))) {
        (None, None) => None,
        (Some(key), Some(its_secret)) => Some((key, its_secret)),
        (Some(_), None) => return Err(Invalid::new(secret.key(), "", format!("the secret of {}", access.key()))),
        (None, Some(_)) => return Err(Invalid::new(access.key(), "", format!("the key whose secret {} is", secret.key()))),
    };
    Ok(Some(options))
}

/// Opens the object store; a folder is made when absent. A bucket is asked nothing yet.
///
/// # Errors
/// Settings that cannot be used, a folder that cannot be written.
pub fn open(config: &Config, data: &Path) -> Result<Blobs, StartError> {
    let opened = match bucket(config).map_err(BlobError::Setting) {
        Ok(Some(options)) => Blobs::s3(&options),
        Ok(None) => Blobs::local(&folder(config, data)),
        Err(error) => Err(error),
    };
    opened.map_err(|error| unusable(config, data, &error))
}

/// Looks whether the object store can be used, before anything depends on it.
///
/// # Errors
/// What is wrong with it.
pub async fn check(blobs: &Blobs, config: &Config, data: &Path) -> Result<(), StartError> {
    blobs.check().await.map_err(|error| unusable(config, data, &error))
}

/// Where the objects are, for people.
pub fn place(config: &Config, data: &Path) -> String {
    match bucket(config) {
        Ok(Some(options)) => options.to_string(),
        Ok(None) => folder(config, data).display().to_string(),
        Err(_) => config.get(&knobs::BLOBS),
    }
}

fn unusable(config: &Config, data: &Path, error: &BlobError) -> StartError {
    let exit = match error {
        BlobError::Setting(_) => Exit::Usage,
        // A later start may succeed without anybody doing anything.
        error if error.is_passing() => Exit::Unavailable,
        _ => Exit::Failed,
    };
    StartError::Objects { place: place(config, data), reason: error.to_string(), exit }
}

/// Removes now and then what uploads cut short have left behind. Any instance may, and several at once do no harm.
pub(super) fn keep_swept(blobs: &Blobs, context: &Context) {
    let (blobs, shutdown) = (blobs.clone(), context.shutdown.clone());
    context.supervisor.spawn_infallible("sweep of interrupted uploads", async move {
        while shutdown.or(tokio::time::sleep(SWEEP_EVERY)).await.is_some() {
            match shutdown.or(blobs.sweep_staged(SWEEP_IDLE)).await {
                Some(Ok(0)) | None => {}
                Some(Ok(swept)) => tracing::info!(swept, "what interrupted uploads left behind is removed"),
                Some(Err(error)) => tracing::warn!(%error, "what interrupted uploads left behind stays for now"),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_service::config::Sources;

    fn with(settings: &[(&'static str, &str)]) -> Config {
        settings.iter().fold(Sources::default(), |sources, (key, value)| sources.flag(*key, *value)).load(knobs::ALL).unwrap()
    }

    #[test]
    fn half_a_key_and_a_url_that_is_none_are_refused_by_their_setting() {
        let refused = |settings: &[(&'static str, &str)]| bucket(&with(settings)).unwrap_err().field;
        assert_eq!(refused(&[("blobs", "models")]), "blobs");
        assert_eq!(refused(&[("blobs", "s3://models"), ("blobs.access-key", "k")]), "blobs.secret-key");
        assert_eq!(refused(&[("blobs", "s3://models"), ("blobs.secret-key", "s")]), "blobs.access-key");
        assert!(bucket(&with(&[])).unwrap().is_none());
    }

    #[test]
    fn keys_are_shown_nowhere() {
        let config = with(&[("blobs", "s3://models/x"), ("blobs.access-key", "the-key"), ("blobs.secret-key", "the-secret")]);
        let shown = format!("{} {:?} {}", config.show(), bucket(&config).unwrap(), place(&config, Path::new("/data")));
        assert!(shown.contains("s3://models/x") && !shown.contains("the-key") && !shown.contains("the-secret"), "{shown}");
    }
}
