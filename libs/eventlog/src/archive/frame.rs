//! What a sealed object is made of: a line that names the form, a line that says what is in it, a compressed body, and the SHA-256 of all that
//! stands before. Pure: it reads and writes bytes, never a store.

use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use footplate_types::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};

/// The bytes of a digest at the end.
const DIGEST: usize = 32;

/// Why bytes are no sealed object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    /// They do not begin with the form's name.
    #[error("its form is not {0:?}")]
    Form(&'static str),
    /// Bytes were changed, lost or added.
    #[error("its digest is {found}, and its bytes have {computed}")]
    Digest {
        /// What stands at its end.
        found: Digest,
        /// What it should be.
        computed: Digest,
    },
    /// Its digest is right and yet it does not mean anything: another build wrote something else.
    #[error("it cannot be read: {0}")]
    Content(String),
}

/// Seals a head and a body. Answers with the bytes and their digest (of all but the digest itself).
pub(super) fn seal<H: Serialize>(form: &'static str, head: &H, body: &[u8]) -> Result<(Bytes, Digest), FrameError> {
    let content = |error: &dyn std::fmt::Display| FrameError::Content(error.to_string());
    let mut bytes = form.as_bytes().to_vec();
    serde_json::to_writer(&mut bytes, head).map_err(|error| content(&error))?;
    bytes.push(b'\n');
    let mut packed = DeflateEncoder::new(bytes, Compression::fast());
    packed.write_all(body).map_err(|error| content(&error))?;
    let mut bytes = packed.finish().map_err(|error| content(&error))?;
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    Ok((bytes.into(), digest))
}

/// Reads what [`seal`] wrote: head, body and digest. A body longer than `most` is none of ours.
pub(super) fn open<H: DeserializeOwned>(form: &'static str, bytes: &[u8], most: usize) -> Result<(H, Bytes, Digest), FrameError> {
    let content = |error: &dyn std::fmt::Display| FrameError::Content(error.to_string());
    if !bytes.starts_with(form.as_bytes()) || bytes.len() < form.len() + DIGEST {
        return Err(FrameError::Form(form));
    }
    let (covered, end) = bytes.split_at(bytes.len() - DIGEST);
    let found = Digest::from_bytes(end.try_into().map_err(|error| content(&error))?);
    let computed = Digest::of(covered);
    if found != computed {
        return Err(FrameError::Digest { found, computed });
    }
    let rest = covered.get(form.len()..).unwrap_or_default();
    let line = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| content(&"its head has no end"))?;
    let head = serde_json::from_slice(&rest[..line]).map_err(|error| content(&error))?;
    let mut body = Vec::new();
    let mut unpacked = DeflateDecoder::new(&rest[line + 1..]).take(most as u64 + 1);
    unpacked.read_to_end(&mut body).map_err(|error| content(&error))?;
    if body.len() > most {
        return Err(content(&format!("its body is longer than {most} bytes")));
    }
    Ok((head, body.into(), computed))
}
