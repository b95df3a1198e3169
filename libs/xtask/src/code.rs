//! The gRPC code of `libs/api`, from the protos: compiled by protox and tonic inside this program, without protoc or a build script.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use prost::Message;
use prost_types::FileDescriptorSet;

use crate::generated::Generated;

/// Where the made code lies.
const FOLDER: &str = "libs/api/src/generated";
/// Where the protos lie.
const PROTO: &str = "proto";

/// All made code, as it should be.
pub(crate) fn render(root: &Path) -> Result<Generated> {
    let descriptors = compile(&root.join(PROTO))?;
    let made = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut config = tonic_prost_build::Config::new();
    // Sorted maps: the same message gives the same bytes, so a body can be told by its digest.
    config.btree_map(["."]).enable_type_names();
    tonic_prost_build::configure()
        .out_dir(made.path())
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors.clone(), config)
        .context("the protos compile, but no code can be made of them")?;

    let mut generated = Generated::default();
    generated.owns(FOLDER);
    for entry in fs::read_dir(made.path())? {
        let entry = entry?;
        generated.add(Path::new(FOLDER).join(entry.file_name()), fs::read(entry.path())?);
    }
    generated.add(Path::new(FOLDER).join("descriptors.binpb"), without_source(descriptors).encode_to_vec());
    Ok(generated)
}

fn compile(folder: &Path) -> Result<FileDescriptorSet> {
    let mut files = Vec::new();
    protos(folder, &mut files)?;
    files.sort();
    ensure!(!files.is_empty(), "no .proto file under {}", folder.display());
    let mut compiler = protox::Compiler::new([folder]).context("cannot read the folder of the protos")?;
    compiler.include_source_info(true).include_imports(true);
    // The error's own text points at file, line and column.
    compiler.open_files(&files).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    Ok(compiler.file_descriptor_set())
}

fn protos(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            protos(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    Ok(())
}

/// Comments make the code's documentation; the descriptors that every binary carries go without.
fn without_source(mut descriptors: FileDescriptorSet) -> FileDescriptorSet {
    descriptors.file.iter_mut().for_each(|file| file.source_code_info = None);
    descriptors
}
