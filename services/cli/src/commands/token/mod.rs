//! Verbs of `token`: what principals show. The platform keeps their digests alone.

pub mod create;
pub mod list;
pub mod revoke;
