//! Who may do what. A state that every service folds from the ledger for its front, and the decisions by which the registry changes it.
//!
//! Roles are held in projects; those held in the platform's own project, `_`, hold in every one. A token is shown by a bearer, who may what its
//! principal may within the limits of the token. What is not allowed here is denied.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod decide;
mod refusal;
mod state;
#[cfg(test)]
mod tests;

pub use decide::{Command, Facts};
pub use refusal::{Refusal, Unknown};
pub use state::{Access, Mark, Principal, Project, Subscription, Token};

use footplate_events::{Aggregate, Subject};

/// The service that owns these facts.
pub const SERVICE: &str = "registry";

/// The filters of the ledger that an [`Access`] folds.
pub fn filters() -> Vec<String> {
    [Aggregate::Project, Aggregate::Principal, Aggregate::Token, Aggregate::Subscription]
        .map(|kind| Subject::filter(None, Some(kind)))
        .to_vec()
}
