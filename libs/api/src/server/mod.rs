//! One port for everything: gRPC over HTTP/2, the JSON door over HTTP/1.1 and HTTP/2, reflection, health and plain pages.
//!
//! Every call passes the same front: a span that continues the caller's trace, the caller's principal, its deadline. The front decides
//! nothing else; what a method does is its service's.

mod caller;
mod deadline;
mod front;
mod lines;
mod listener;
mod measure;
mod parts;

pub use caller::{Authenticator, PROJECT_HEADER, deadline, named_project, principal, project};
pub(crate) use deadline::passed as deadline_passed;
pub use lines::{Lines, Turn};
pub use listener::serve;
pub use parts::ServerParts;
