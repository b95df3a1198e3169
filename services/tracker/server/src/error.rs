//! How the tracker's parts say no, in the words of the API.

use footplate_api::{Refusal, reason};
use footplate_blobs::BlobError;
use footplate_eventlog::{Behind, PublishError};
use footplate_series::SeriesError;
use footplate_tracker_core::{ExperimentRefusal, RunRefusal};

pub(crate) fn behind(error: Behind) -> Refusal {
    Refusal::new(&reason::VIEW_BEHIND, error.to_string())
}

pub(crate) fn publish_failed(error: PublishError) -> Refusal {
    match error {
        PublishError::Full(_) => Refusal::new(&reason::DISK_FULL, error.to_string()),
        PublishError::Stuck(_) => {
            Refusal::new(&reason::DISK_FULL, error.to_string()).next("free space, then send the batch again under its number")
        }
        PublishError::Unavailable(_) => Refusal::new(&reason::BROKER_AWAY, error.to_string()),
        PublishError::Unknown(_) => Refusal::new(&reason::OUTCOME_UNKNOWN, error.to_string()).next("send the batch again under its number"),
        PublishError::Conflict | PublishError::Refused(_) => Refusal::internal(error),
    }
}

pub(crate) fn series_failed(error: SeriesError) -> Refusal {
    match error {
        SeriesError::DiskFull { .. } => Refusal::new(&reason::DISK_FULL, error.to_string()),
        SeriesError::Invalid(message) => Refusal::new(&reason::INVALID_PAGE_TOKEN, message),
        SeriesError::InUse { .. }
        | SeriesError::Io { .. }
        | SeriesError::Closed
        | SeriesError::Away { .. }
        | SeriesError::Elsewhere { .. }
        | SeriesError::Refused { .. } => Refusal::new(&reason::STORE_AWAY, error.to_string()),
        SeriesError::Corrupted { .. } | SeriesError::TooNew { .. } | SeriesError::Schema { .. } => Refusal::internal(error),
    }
}

pub(crate) fn blob_failed(error: BlobError) -> Refusal {
    match error {
        BlobError::NotFound { digest } => Refusal::new(&reason::BLOB_NOT_FOUND, error.to_string()).field("digest").value(digest),
        BlobError::Mismatch { expected, .. } => Refusal::new(&reason::DIGEST_MISMATCH, error.to_string()).field("digest").value(expected),
        BlobError::TooLarge { .. } => Refusal::new(&reason::TOO_LARGE, error.to_string()),
        BlobError::DiskFull => Refusal::new(&reason::DISK_FULL, error.to_string()),
        BlobError::Source(_) => Refusal::new(&reason::MALFORMED_REQUEST, error.to_string()),
        BlobError::Interrupted { digest } => {
            Refusal::new(&reason::STORE_AWAY, error.to_string()).field("digest").value(digest).next("send it again")
        }
        BlobError::Bucket { fault, .. } => Refusal::new(&reason::STORE_AWAY, fault.to_string()).next(fault.advice()),
        BlobError::Store(_) | BlobError::Io { .. } => Refusal::new(&reason::STORE_AWAY, error.to_string()),
        BlobError::Damaged { .. }
        | BlobError::Setting(_)
        | BlobError::Refused { .. }
        | BlobError::Changed { .. }
        | BlobError::Exists { .. }
        | BlobError::InUse { .. }
        | BlobError::Manifest(_) => Refusal::internal(error),
    }
}

pub(crate) fn run_refused(refusal: RunRefusal) -> Refusal {
    let message = refusal.to_string();
    match refusal {
        RunRefusal::NotFound(run) => Refusal::new(&reason::RUN_NOT_FOUND, message).field("run_id").value(run),
        RunRefusal::Exists { run } => Refusal::new(&reason::IDEMPOTENCY_KEY_REUSED, message).field("request_id").value(run),
        RunRefusal::EndsWithItsJob(_) => Refusal::new(&reason::RUN_HAS_JOB, message),
        RunRefusal::AlreadyEnded { .. } => Refusal::new(&reason::RUN_ENDED, message).next("nothing: the first end stands"),
        RunRefusal::Invalid(invalid) => invalid.into(),
    }
}

pub(crate) fn experiment_refused(refusal: ExperimentRefusal) -> Refusal {
    let message = refusal.to_string();
    match refusal {
        ExperimentRefusal::NotFound(_) => Refusal::new(&reason::EXPERIMENT_NOT_FOUND, message).field("experiment"),
        ExperimentRefusal::Invalid(invalid) => invalid.into(),
    }
}
