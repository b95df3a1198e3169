//! From a job file and a snapshot to what is sent: the documents (masked, and the sealed one), the spec, the uploads.

mod documents;
mod source;
mod spec;
mod upload;

pub use documents::{Documents, Origin};
pub use source::{capture_request, source_ref};
pub use spec::{Refs, job_spec};
pub use upload::{get, put, put_archive};
