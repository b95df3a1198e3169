//! The event contract: every fact, its envelope, its subject and its versions.
