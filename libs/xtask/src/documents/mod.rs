//! Documents made from tables in the code: the event catalogue, its AsyncAPI form, the error catalogue.

mod asyncapi;
mod catalogue;
mod errors;
mod schema;

use std::path::Path;

use anyhow::Result;

use crate::generated::Generated;

/// The first lines of every made Markdown page.
const MADE: &str = "<!-- Made by `cargo xtask generate`; change the table in the code instead. -->\n\n";

/// All made documents, as they should be.
pub(crate) fn render(_root: &Path) -> Result<Generated> {
    let mut generated = Generated::default();
    generated.add("docs/events/README.md", format!("{MADE}{}", catalogue::page()));
    generated.add("docs/events/asyncapi.yaml", asyncapi::document()?);
    generated.add("docs/errors/README.md", format!("{MADE}{}", errors::page()));
    Ok(generated)
}
