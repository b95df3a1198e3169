//! One port for everything: gRPC over HTTP/2, the JSON door over HTTP/1.1 and HTTP/2, reflection, health and plain pages; in the clear, or
//! within TLS.
//!
//! Every call passes the same front: a span that continues the caller's trace, the caller's principal, whether they may, its deadline. What a
//! method takes of its caller the protos say, and who may what is told by a [`Gate`]; what a method does is its service's.

mod caller;
mod deadline;
mod front;
mod gate;
mod guard;
mod lines;
mod listener;
mod measure;
mod need;
mod parts;
mod tls;

pub use caller::{PROJECT_HEADER, bearer, deadline, named_project, principal, project};
pub(crate) use deadline::passed as deadline_passed;
pub use gate::{Changed, Gate};
pub(crate) use guard::Guarded;
pub use lines::{Lines, Turn};
pub use listener::{Port, serve, serve_ports};
pub use need::{Need, Scope};
pub use parts::ServerParts;
pub use tls::{ServerTls, TlsError};
pub(crate) use tls::{read_bounded, time_problem};
