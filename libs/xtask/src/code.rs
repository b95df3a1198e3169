//! The gRPC code of `libs/api`, from the protos: compiled by protox and tonic inside this program, without protoc or a build script.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use prost::Message;
use prost_reflect::{DynamicMessage, Value};

use crate::generated::Generated;

/// Where the made code lies.
const FOLDER: &str = "libs/api/src/generated";
/// Where the protos lie.
const PROTO: &str = "proto";

/// All made code, as it should be.
pub(crate) fn render(root: &Path) -> Result<Generated> {
    let compiler = compile(&root.join(PROTO))?;
    let made = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut config = tonic_prost_build::Config::new();
    // Sorted maps: the same message gives the same bytes, so a body can be told by its digest.
    config.btree_map(["."]).enable_type_names();
    tonic_prost_build::configure()
        .out_dir(made.path())
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(compiler.file_descriptor_set(), config)
        .context("the protos compile, but no code can be made of them")?;

    let mut generated = Generated::default();
    generated.owns(FOLDER);
    for entry in fs::read_dir(made.path())? {
        let entry = entry?;
        generated.add(Path::new(FOLDER).join(entry.file_name()), fs::read(entry.path())?);
    }
    generated.add(Path::new(FOLDER).join("descriptors.binpb"), descriptors(&compiler)?);
    Ok(generated)
}

fn compile(folder: &Path) -> Result<protox::Compiler> {
    let mut files = Vec::new();
    protos(folder, &mut files)?;
    files.sort();
    ensure!(!files.is_empty(), "no .proto file under {}", folder.display());
    let mut compiler = protox::Compiler::new([folder]).context("cannot read the folder of the protos")?;
    compiler.include_source_info(true).include_imports(true);
    // The error's own text points at file, line and column.
    compiler.open_files(&files).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    Ok(compiler)
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

/// The descriptors that every binary carries: with the options of the methods, which only a dynamic message keeps; without comments, which make
/// the code's documentation and no more.
fn descriptors(compiler: &protox::Compiler) -> Result<Vec<u8>> {
    let pool = compiler.descriptor_pool();
    let set = pool.get_message_by_name("google.protobuf.FileDescriptorSet").context("protox knows google/protobuf/descriptor.proto")?;
    let mut set = DynamicMessage::decode(set, compiler.encode_file_descriptor_set().as_slice())?;
    if let Some(files) = set.get_field_by_name_mut("file").and_then(Value::as_list_mut) {
        files.iter_mut().filter_map(Value::as_message_mut).for_each(|file| file.clear_field_by_name("source_code_info"));
    }
    Ok(set.encode_to_vec())
}
