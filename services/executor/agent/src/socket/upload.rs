//! From the agent's staging to the object store, and only then the report. One member's files go in the order in which they were acknowledged.

use super::{Intake, desk::Desk, uploads::Uploads};
use crate::{
    blob::{BlobAccess, BlobError},
    durable,
    record::StoredReport,
    stage::{self, StagedManifest},
};
use footplate_events::{
    facts::{AttemptCheckpointed, DocumentRef, LoggedArtifact},
    messages::{ExecutorReport, ReportBody, TrackerReport},
};
use footplate_types::{ArtifactPath, Digest, Rank, SessionId};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// First and longest pause between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// Files named by one report.
const FILES_A_REPORT: usize = 200;
pub(super) const OP_FILE: &str = "op.json";
pub(super) const DONE_FILE: &str = "done";

/// One staged op; its file is the moment from which it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StagedOp {
    pub(crate) rank: Rank,
    pub(crate) session: SessionId,
    pub(crate) n: u64,
    pub(crate) manifest: StagedManifest,
    pub(crate) what: StagedAs,
}

/// What the staged files are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StagedAs {
    Artifact { name: ArtifactPath },
    Checkpoint { step: Option<i64>, metadata: String },
}

/// What is handed to a member's uploader.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) dir: PathBuf,
    pub(crate) op: StagedOp,
}

impl StagedOp {
    /// The staged op counts from here on.
    pub(crate) fn write(&self, dir: &Path) -> std::io::Result<()> {
        durable::write_json(&dir.join(OP_FILE), self)
    }

    fn artifacts(&self, name: &ArtifactPath, attempt: footplate_types::AttemptNumber) -> Vec<LoggedArtifact> {
        let logged = |path: String, blob: DocumentRef| {
            let path = ArtifactPath::parse(&path).ok()?;
            Some(LoggedArtifact { path, digest: blob.digest, bytes: blob.bytes, attempt, rank: self.rank })
        };
        let single = self.manifest.single().is_some();
        let named = |inner: &str| if single { name.to_string() } else { format!("{name}/{inner}") };
        self.manifest.files().filter_map(|(inner, blob)| logged(named(inner), blob)).collect()
    }
}

/// Everything that was staged before a restart, oldest first, and whether it is uploaded.
pub(crate) fn staged(desk: &Desk) -> Vec<(Upload, bool)> {
    let mut found: Vec<(std::time::SystemTime, Upload, bool)> = Vec::new();
    for entry in fs::read_dir(desk.staged()).into_iter().flatten().filter_map(Result::ok) {
        let dir = entry.path();
        let written = fs::metadata(dir.join(OP_FILE)).and_then(|metadata| metadata.modified());
        match (durable::read_json::<StagedOp>(&dir.join(OP_FILE)), written) {
            (Ok(Some(op)), Ok(written)) => {
                let done = dir.join(DONE_FILE).exists();
                found.push((written, Upload { dir, op }, done));
            }
            // Staged in part and never acknowledged.
            _ => drop(fs::remove_dir_all(&dir)),
        }
    }
    found.sort_by_key(|(written, upload, _)| (*written, upload.op.n));
    found.into_iter().map(|(_, upload, done)| (upload, done)).collect()
}

/// A member's uploader; ends when its desk is dropped.
pub(crate) async fn run(intake: Arc<Intake>, desk: std::sync::Weak<Desk>, uploads: Arc<Uploads>) {
    let mut previous_checkpoint: Option<PathBuf> = None;
    while let Some(upload) = uploads.next().await {
        let Some(desk) = desk.upgrade() else { return };
        match store(&intake, &desk, &upload).await {
            Ok(()) => {
                report(&intake, &desk, &upload).await;
                let dir = upload.dir.clone();
                put_away(&desk, upload, &mut previous_checkpoint).await;
                // A disk that takes no mark and gives nothing back: in this life it is known all the same that it is stored.
                if counts(&dir).await {
                    uploads.stays(dir);
                }
            }
            // It was acknowledged: its files stay, and so does the checkpoint before it.
            Err(error) => {
                tracing::error!(%error, run = %desk.config.of.run, dir = %upload.dir.display(), "staged files are refused for good");
                desk.lacks(format!("{} ({error})", spoken(&upload.op)));
                uploads.stays(upload.dir);
            }
        }
        uploads.ended();
    }
}

/// Whether what is staged in `dir` would be taken for something that is not stored.
async fn counts(dir: &Path) -> bool {
    let exists = async |name: &str| tokio::fs::try_exists(dir.join(name)).await.unwrap_or(true);
    exists(OP_FILE).await && !exists(DONE_FILE).await
}

/// What a person calls it.
fn spoken(op: &StagedOp) -> String {
    match &op.what {
        StagedAs::Artifact { name } => format!("artifact {name}"),
        StagedAs::Checkpoint { step: Some(step), .. } => format!("checkpoint of step {step}"),
        StagedAs::Checkpoint { step: None, .. } => "checkpoint".to_owned(),
    }
}

/// What is stored is no longer staged; of checkpoints the newest stays, for who resumes here.
async fn put_away(desk: &Desk, upload: Upload, previous_checkpoint: &mut Option<PathBuf>) {
    match &upload.op.what {
        StagedAs::Artifact { .. } => remove(upload.dir).await,
        StagedAs::Checkpoint { .. } => {
            let done = upload.dir.join(DONE_FILE);
            let _ = tokio::task::spawn_blocking(move || durable::write(&done, b"")).await;
            // The one before goes only now that this one is stored.
            if let Some(previous) = previous_checkpoint.replace(upload.dir).filter(|previous| !desk.was_given(previous)) {
                remove(previous).await;
            }
        }
    }
}

async fn remove(dir: PathBuf) {
    let _ = tokio::task::spawn_blocking(move || fs::remove_dir_all(dir)).await;
}

async fn store(intake: &Intake, desk: &Desk, upload: &Upload) -> Result<(), BlobError> {
    let project = &desk.config.of.project;
    let content = stage::content(&upload.dir);
    for (path, blob) in upload.op.manifest.files() {
        put(intake.blobs.as_ref(), project, blob, &content.join(path)).await?;
    }
    if matches!(upload.op.what, StagedAs::Checkpoint { .. }) {
        let path = upload.dir.join("manifest.json");
        let bytes = upload.op.manifest.to_bytes();
        tokio::fs::write(&path, &bytes).await.map_err(|error| BlobError::Refused(error.to_string()))?;
        put(intake.blobs.as_ref(), project, manifest_ref(&upload.op.manifest), &path).await?;
    }
    Ok(())
}

fn manifest_ref(manifest: &StagedManifest) -> DocumentRef {
    let bytes = manifest.to_bytes();
    DocumentRef { digest: Digest::of(&bytes), bytes: bytes.len() as u64 }
}

/// Puts one file, as often as the store is away: the agent holds the bytes and gives them up to nobody else.
async fn put(blobs: &dyn BlobAccess, project: &footplate_types::ProjectName, blob: DocumentRef, file: &Path) -> Result<(), BlobError> {
    let mut pause = PAUSE.0;
    loop {
        match blobs.put(project, blob, file).await {
            Err(BlobError::Unavailable(why)) => tracing::warn!(%why, digest = %blob.digest, "upload waits"),
            other => return other,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn report(intake: &Intake, desk: &Desk, upload: &Upload) {
    let of = desk.config.of.clone();
    let bodies: Vec<ReportBody> = match &upload.op.what {
        StagedAs::Artifact { name } => {
            let logged = upload.op.artifacts(name, of.attempt);
            let some = |artifacts: &[LoggedArtifact]| TrackerReport::Artifacts { of: of.clone(), artifacts: artifacts.to_vec() };
            logged.chunks(FILES_A_REPORT).map(|part| ReportBody::Tracker(some(part))).collect()
        }
        StagedAs::Checkpoint { step, metadata } => {
            let checkpointed = AttemptCheckpointed {
                step: step.unwrap_or(0),
                rank: upload.op.rank,
                manifest: manifest_ref(&upload.op.manifest),
                bytes: upload.op.manifest.bytes(),
                metadata: metadata.clone(),
            };
            vec![ReportBody::Executor(ExecutorReport::Checkpointed { of, checkpointed })]
        }
    };
    for body in bodies {
        let spool = if matches!(body, ReportBody::Executor(_)) { &intake.spools.executor } else { &intake.spools.tracker };
        let stored = StoredReport { epoch: intake.epoch(), body, traceparent: desk.config.traceparent.clone(), origin: None };
        if super::patiently(|| spool.append(stored.to_bytes())).await.is_none() {
            desk.lacks(format!("the report of {}", spoken(&upload.op)));
        }
    }
}
