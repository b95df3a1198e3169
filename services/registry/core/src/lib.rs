//! The pure domain of the registry: what a model and its versions are, who may say that one serves, and what a name resolves to.
//!
//! A model says which of its versions stands where; a version says what it is and whether it was approved. What is said of a version only
//! accrues (it is registered once, approved once and for ever), so that a decision about the model never stands on what was taken back
//! meanwhile. No async, no I/O, no clock: who asks, how many members a project has and what a run recorded come in as facts.

mod decide;
mod evolve;
pub mod lineage;
mod model;
mod reference;
mod refusal;
mod registry;
mod source;

pub use decide::{ALIASES_MAX, Command, FIGURES_MAX, FIGURES_SHOWN_MAX, Facts};
pub use model::{
    Alias, Answer, Approval, EVALUATIONS_MAX, Evaluation, HISTORY_MAX, Mark, Model, Proposal, RECENT_MAX, Remembered, Version,
};
pub use reference::{ModelUri, Pick, Reference, RunUri};
pub use refusal::Refusal;
pub use registry::Registry;
pub use source::{Allowed, FILES_MAX, RunRecord, Source, SourceRefusal};

/// The name of the service.
pub const SERVICE: &str = "registry";
