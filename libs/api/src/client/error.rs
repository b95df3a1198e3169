//! What a call that failed tells its caller.

use std::error::Error;
use std::fmt;

use footplate_service::Exit;
use tonic::{Code, Status};

use super::tls;
use crate::refusal::{Kind, Refusal, code_name, reason, wire};

/// A call that failed: what kind, why, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// What kind of failure.
    pub kind: Kind,
    /// The stable reason, upper case.
    pub reason: String,
    /// What happened: lower case, no full stop.
    pub message: String,
    /// The path of the field that is to blame.
    pub field: Option<String>,
    /// Its value.
    pub value: Option<String>,
    /// What would be accepted.
    pub allowed: Option<String>,
    /// What to do next.
    pub advice: Option<String>,
}

impl ApiError {
    /// Reads a status that came from `address`.
    pub fn from_status(status: &Status, address: &str) -> Self {
        if let Some(info) = wire::decode(status.details()) {
            let mut metadata = info.metadata;
            let mut take = |key: &str| metadata.remove(key).filter(|text| !text.is_empty());
            return Self {
                kind: Kind::of_code(status.code()),
                reason: info.reason,
                message: status.message().to_owned(),
                field: take("field"),
                value: take("value"),
                allowed: take("allowed"),
                advice: take("next"),
            };
        }
        if let Some(told) = tls::told(status, address) {
            return told;
        }
        match status.code() {
            Code::Unavailable => Refusal::new(&reason::UNREACHABLE, format!("cannot reach {address}: {}", root_cause(status))).into(),
            // It was reached, and the connection ended before an answer: so does a port within TLS that is spoken to in the clear.
            Code::Unknown if status.source().is_some_and(|source| source.is::<tonic::transport::Error>()) => {
                let told = format!("the connection to {address} ended without an answer: {}", root_cause(status));
                let refusal = Refusal::new(&reason::UNREACHABLE, told);
                let in_the_clear = !address.trim_start().starts_with("https://");
                let speaks = "ask again; if the platform speaks TLS there, write https:// before the address";
                if in_the_clear { refusal.next(speaks) } else { refusal.next("ask again in a moment") }.into()
            }
            // The client's own clock: tonic calls it cancelled.
            Code::Cancelled if status.message().contains("imeout expired") => late(address),
            Code::DeadlineExceeded => late(address),
            code => {
                let message =
                    if status.message().is_empty() { format!("{address} answered {code:?}") } else { status.message().to_owned() };
                let kind = Kind::of_code(code);
                Self { kind, reason: code_name(code).to_owned(), message, field: None, value: None, allowed: None, advice: None }
            }
        }
    }

    /// The code that a command ends with.
    pub fn exit(&self) -> Exit {
        match self.kind {
            Kind::Invalid => Exit::Usage,
            Kind::NotFound => Exit::NotFound,
            Kind::Conflict | Kind::Denied | Kind::Unauthenticated | Kind::Exhausted | Kind::Unimplemented => Exit::Refused,
            Kind::Unavailable => Exit::Unavailable,
            Kind::DeadlineExceeded => Exit::TimedOut,
            Kind::Internal => Exit::Failed,
        }
    }

    /// Whether the same call may succeed in a moment.
    pub fn is_worth_another_try(&self) -> bool {
        // A server that cannot be trusted will not be in a moment either.
        let untrusted = [&reason::CERTIFICATE_UNTRUSTED, &reason::CERTIFICATE_NAME, &reason::CERTIFICATE_EXPIRED, &reason::TLS_FAILED];
        self.kind == Kind::Unavailable && !untrusted.iter().any(|reason| reason.word == self.reason)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ApiError {}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { kind, reason, message, field, value, allowed, next } = refusal;
        Self { kind, reason: reason.to_owned(), message, field, value, allowed, advice: next }
    }
}

pub(super) fn late(address: &str) -> ApiError {
    Refusal::new(&reason::DEADLINE_PASSED, format!("{address} did not answer in time")).into()
}

/// The innermost cause: the outer ones say only "transport error".
fn root_cause(status: &Status) -> String {
    let causes = std::iter::successors(status.source(), |&error| error.source());
    causes.last().map_or_else(|| status.message().to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_comes_through_whole() {
        let refusal = Refusal::new(&reason::RUN_NOT_FOUND, "no run ab12 in vision").field("run_id").value("ab12");
        let error = ApiError::from_status(&refusal.clone().into(), "h:1");
        assert_eq!(error, ApiError::from(refusal));
        assert_eq!(error.exit(), Exit::NotFound);
    }

    #[test]
    fn a_bare_status_is_told_by_what_a_caller_can_do() {
        let error = ApiError::from_status(&Status::unavailable("transport error"), "h:1");
        assert_eq!((error.reason.as_str(), error.exit()), ("UNREACHABLE", Exit::Unavailable));
        assert!(error.message.contains("h:1") && error.advice.is_some());
        let error = ApiError::from_status(&Status::cancelled("Timeout expired"), "h:1");
        assert_eq!((error.reason.as_str(), error.exit()), ("DEADLINE_PASSED", Exit::TimedOut));
        let error = ApiError::from_status(&Status::new(Code::DataLoss, ""), "h:1");
        assert_eq!((error.reason.as_str(), error.exit()), ("DATA_LOSS", Exit::Failed));
    }
}
