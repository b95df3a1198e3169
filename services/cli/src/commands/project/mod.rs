//! Verbs of `project`: tenants, and who has which role in them.

pub mod create;
pub mod grant;
pub mod list;
pub mod revoke;
pub mod show;
