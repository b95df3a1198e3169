//! The tracker's gRPC services but that of webhooks: each reads its request, asks the parts, and writes the answer. Nothing is decided here.

mod artifacts;
mod blobs;
mod convert;
mod events;
mod experiments;
mod lineage;
mod metrics;
mod runs;
mod search;
mod views;

pub(crate) use artifacts::Artifacts;
pub(crate) use blobs::BlobDoor;
pub(crate) use events::Events;
pub(crate) use experiments::Experiments;
pub(crate) use metrics::MetricDoor;
pub(crate) use runs::Runs;
pub(crate) use views::Views;

use footplate_api::{Refusal, reason};
use footplate_types::{PrincipalId, ProjectName};
use tonic::{Request, Status};

/// The most entries of a page.
const PAGE_MAX: usize = 1_000;

/// The project of a request; where it names none, the one of the call's header.
pub(crate) fn project_of<T>(request: &Request<T>, named: &str) -> Result<ProjectName, Refusal> {
    let name = if named.is_empty() { footplate_api::server::project(request).unwrap_or_default() } else { named };
    footplate_api::server::named_project(name)
}

/// Who calls; a server without an authenticator (tests) knows everyone as `anonymous`.
pub(crate) fn actor_of<T>(request: &Request<T>) -> PrincipalId {
    let anonymous = || PrincipalId::parse("anonymous").expect("a literal that is valid");
    footplate_api::server::principal(request).unwrap_or_else(|_| anonymous())
}

/// What a call learns that an ending instance cuts short.
fn stopping() -> Status {
    Refusal::new(&reason::STOPPING, "this instance is stopping").into()
}

/// How many entries a page has.
fn page_size(asked: u32, default: usize) -> usize {
    if asked == 0 { default } else { (asked as usize).min(PAGE_MAX) }
}
