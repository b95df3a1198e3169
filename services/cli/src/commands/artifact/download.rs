//! `artifact download`: what a reference names, onto this machine, each file whole and checked against its digest.

use super::resolve;
use crate::{
    context::Context,
    output::{Exit, Failure},
    platform::DoorBlobs,
};
use anyhow::Context as _;
use footplate_api::v1;
use footplate_events::facts::DocumentRef;
use footplate_executor_agent::blob::{BlobAccess as _, BlobError};
use footplate_registry_server::Reference;
use footplate_types::{ArtifactPath, Digest, ProjectName};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  footplate artifact download models:/digits@champion
  footplate artifact download models:/digits/Production --to serve/
  footplate artifact download runs:/0190f3a2/model.bin --to /tmp

A file lands under its own name, a folder's files under their paths in it. A file that is there already is left alone when it is the same, and
refused when it is another, unless --overwrite is given.";

/// Download what a reference names: an artifact of a run, or a version of a model
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// runs:/RUN/PATH, or models:/MODEL@ALIAS, models:/MODEL/NUMBER, models:/MODEL/STAGE, models:/MODEL/latest
    #[arg(value_name = "REFERENCE", value_parser = Reference::parse)]
    pub reference: Reference,
    /// Folder to put it into
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub to: PathBuf,
    /// Replace files that are there and differ
    #[arg(long)]
    pub overwrite: bool,
}

/// Downloads it, and prints where each file is.
///
/// # Errors
/// It names nothing, a file that is in the way, bytes that are not what their digest says, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let project = ProjectName::parse(client.project())?;
    let named = resolve(&client, &args.reference).await?;
    let blobs = DoorBlobs::new(client.clone());
    let mut progress = ctx.progress();
    let mut done = Vec::new();
    let total = named.files.len();
    for (index, file) in named.files.iter().enumerate() {
        progress.step(&format!("{} of {total}: {}", index + 1, file.path));
        let target = args.to.join(place(&named.path, &file.path)?);
        let blob = DocumentRef { digest: Digest::parse(&file.digest)?, bytes: file.bytes };
        if !is_there(&target, blob, args.overwrite).await? {
            fetch(&blobs, &project, blob, &target).await?;
        }
        done.push((file, target));
    }
    progress.clear();
    let shown: Vec<String> = done.iter().map(|(_, target)| target.display().to_string()).collect();
    let data = |(file, target): &(&v1::ModelFile, PathBuf)| serde_json::json!({ "path": file.path, "file": target.display().to_string(), "digest": file.digest, "bytes": file.bytes.to_string() });
    let data = serde_json::Value::Array(done.iter().map(data).collect());
    ctx.output.one(&shown.join("\n"), &data, &(shown.join("\n") + "\n"))?;
    Ok(Exit::Done)
}

/// Where a file goes: the named file under its own name, a folder's file under its path in it. Checked again here, since it becomes a path on
/// this machine.
fn place(named: &ArtifactPath, file: &str) -> anyhow::Result<PathBuf> {
    let file = ArtifactPath::parse(file)?;
    let below = file.as_str().strip_prefix(named.as_str()).and_then(|rest| rest.strip_prefix('/'));
    let own_name = || file.as_str().rsplit('/').next().unwrap_or_default();
    Ok(PathBuf::from(below.unwrap_or_else(own_name)))
}

/// Whether the file is there with these bytes already; another one in its place is refused or makes room.
async fn is_there(target: &Path, blob: DocumentRef, overwrite: bool) -> anyhow::Result<bool> {
    let Ok(found) = tokio::fs::symlink_metadata(target).await else { return Ok(false) };
    if found.is_dir() {
        return Err(Failure::new(Exit::Refused, format!("{} is a folder", target.display())).into());
    }
    if found.is_file() && found.len() == blob.bytes {
        let path = target.to_owned();
        let digest = tokio::task::spawn_blocking(move || digest_of(&path)).await??;
        if digest == blob.digest {
            return Ok(true);
        }
    }
    if overwrite {
        return Ok(false);
    }
    let told = format!("{} is there and differs; give --overwrite to replace it", target.display());
    Err(Failure::new(Exit::Refused, told).into())
}

fn digest_of(path: &Path) -> std::io::Result<Digest> {
    use sha2::{Digest as _, Sha256};
    let mut hasher = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path)?, &mut hasher)?;
    Ok(Digest::from_bytes(hasher.finalize().into()))
}

/// Fetches beside the target and puts it in place once it is whole.
async fn fetch(blobs: &DoorBlobs, project: &ProjectName, blob: DocumentRef, target: &Path) -> anyhow::Result<()> {
    let folder = target.parent().unwrap_or(Path::new("."));
    tokio::fs::create_dir_all(folder).await.with_context(|| format!("{} cannot be made", folder.display()))?;
    let beside = tempfile::Builder::new().prefix(".footplate-").tempdir_in(folder);
    let beside = beside.with_context(|| format!("{} cannot be written to", folder.display()))?;
    let whole = beside.path().join("whole");
    blobs.get(project, blob, &whole).await.map_err(|error| {
        let exit = match error {
            BlobError::NotFound(_) => Exit::NotFound,
            BlobError::Unavailable(_) => Exit::Unavailable,
            BlobError::Damaged(_) | BlobError::Refused(_) => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    })?;
    tokio::fs::rename(&whole, target).await.with_context(|| format!("{} cannot be put in place", target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lands_under_its_name_and_a_folders_files_under_their_paths_in_it() {
        let path = |text: &str| ArtifactPath::parse(text).unwrap();
        assert_eq!(place(&path("weights/model.bin"), "weights/model.bin").unwrap(), Path::new("model.bin"));
        assert_eq!(place(&path("weights"), "weights/a/b.bin").unwrap(), Path::new("a/b.bin"));
        assert!(place(&path("weights"), "../../etc/passwd").is_err());
        assert!(place(&path("weights"), "/etc/passwd").is_err());
    }

    #[tokio::test]
    async fn what_is_in_the_way_is_replaced_only_when_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.bin");
        let blob = |content: &[u8]| DocumentRef { digest: Digest::of(content), bytes: content.len() as u64 };
        assert!(!is_there(&file, blob(b"new"), false).await.unwrap());
        std::fs::write(&file, b"old").unwrap();
        assert!(is_there(&file, blob(b"old"), false).await.unwrap());
        let refused = is_there(&file, blob(b"new"), false).await.unwrap_err();
        assert!(refused.to_string().contains("--overwrite"), "{refused}");
        assert!(!is_there(&file, blob(b"new"), true).await.unwrap());
        assert!(is_there(folder.path(), blob(b"new"), true).await.is_err());
    }
}
