//! How a service says no: a kind, a stable reason, a sentence, the field, and what to do next.
//!
//! On the wire it is a gRPC status with one `google.rpc.ErrorInfo` (`reason`, domain `footplate`, metadata `field`, `value`, `allowed`,
//! `next`), so that any gRPC client can read it; the JSON door shows the same.

pub mod reason;
pub(crate) mod wire;

use std::fmt;

use footplate_types::Invalid;
use tonic::{Code, Status};

pub use reason::Reason;

/// The most bytes of each text of a refusal on the wire.
const TEXT_MAX: usize = 700;

/// What kind of no it is: it fixes the gRPC code, the HTTP status and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The request cannot be understood or is not allowed as it stands.
    Invalid,
    /// What was named does not exist.
    NotFound,
    /// It does not fit the state that things are in.
    Conflict,
    /// The caller is known and may not.
    Denied,
    /// The caller is not known.
    Unauthenticated,
    /// A quota or limit is used up.
    Exhausted,
    /// Something that is needed is away; the same request may work later.
    Unavailable,
    /// It was not done in time; it may still happen.
    DeadlineExceeded,
    /// It is not built here.
    Unimplemented,
    /// A fault of ours.
    Internal,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Invalid,
        Self::NotFound,
        Self::Conflict,
        Self::Denied,
        Self::Unauthenticated,
        Self::Exhausted,
        Self::Unavailable,
        Self::DeadlineExceeded,
        Self::Unimplemented,
        Self::Internal,
    ];

    /// The gRPC code.
    pub fn code(self) -> Code {
        match self {
            Self::Invalid => Code::InvalidArgument,
            Self::NotFound => Code::NotFound,
            Self::Conflict => Code::FailedPrecondition,
            Self::Denied => Code::PermissionDenied,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Exhausted => Code::ResourceExhausted,
            Self::Unavailable => Code::Unavailable,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Unimplemented => Code::Unimplemented,
            Self::Internal => Code::Internal,
        }
    }

    /// The kind of a gRPC code; codes that we never send are read by what a caller can do.
    pub fn of_code(code: Code) -> Self {
        match code {
            Code::InvalidArgument | Code::OutOfRange => Self::Invalid,
            Code::NotFound => Self::NotFound,
            Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => Self::Conflict,
            Code::PermissionDenied => Self::Denied,
            Code::Unauthenticated => Self::Unauthenticated,
            Code::ResourceExhausted => Self::Exhausted,
            Code::Unavailable | Code::Cancelled => Self::Unavailable,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            Code::Unimplemented => Self::Unimplemented,
            Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => Self::Internal,
        }
    }
}

/// A code as gRPC writes it: the reason of a status that carries none, and a label of metrics.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// A no, told so that a person or a program can act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of no.
    pub kind: Kind,
    /// The stable reason, upper case: programs go by it.
    pub reason: &'static str,
    /// What happened, in one sentence part: lower case, no full stop.
    pub message: String,
    /// The path of the field that is to blame.
    pub field: Option<String>,
    /// Its value, cut when long.
    pub value: Option<String>,
    /// What would be accepted.
    pub allowed: Option<String>,
    /// What to do next.
    pub next: Option<String>,
}

impl Refusal {
    /// A refusal for a reason of the table, with the table's advice.
    pub fn new(reason: &Reason, message: impl Into<String>) -> Self {
        Self {
            kind: reason.kind,
            reason: reason.word,
            message: message.into(),
            field: None,
            value: None,
            allowed: None,
            next: Some(reason.advice.to_owned()),
        }
    }

    /// Names the field that is to blame.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Shows the value that was refused.
    #[must_use]
    pub fn value(mut self, value: impl fmt::Display) -> Self {
        self.value = Some(value.to_string());
        self
    }

    /// Says what would be accepted.
    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// Says what to do next, better than the table can.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Long texts cut: a status travels in headers, of which peers take 8 KiB at times.
    fn fits_headers(mut self) -> Self {
        let texts = [Some(&mut self.message), self.field.as_mut(), self.value.as_mut(), self.allowed.as_mut(), self.next.as_mut()];
        texts.into_iter().flatten().for_each(|text| {
            if text.len() > TEXT_MAX {
                text.truncate(text.floor_char_boundary(TEXT_MAX));
                text.push('…');
            }
        });
        self
    }

    /// A fault of ours: the caller is told that it happened, the log is told what.
    pub fn internal(error: impl fmt::Display) -> Self {
        tracing::error!(%error, "a request failed by a fault of ours");
        Self::new(&reason::INTERNAL, "something went wrong on our side")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        let message = invalid.to_string();
        let refusal = Self::new(&reason::INVALID_FIELD, message).field(invalid.field).value(invalid.value).allowed(invalid.allowed);
        Self { next: None, ..refusal }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let refusal = refusal.fits_headers();
        let details = wire::encode(&refusal);
        Status::with_details(refusal.kind.code(), refusal.message, details.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_its_code() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_code(kind.code()), kind);
        }
    }

    #[test]
    fn a_refusal_with_long_texts_still_fits_into_headers() {
        let long = "ä".repeat(100_000);
        let refusal = Refusal::new(&reason::INVALID_FIELD, long.clone()).field(long.clone()).value(&long).allowed(long.clone()).next(long);
        let status = Status::from(refusal);
        let mut headers = http::HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        let bytes: usize = headers.values().map(http::HeaderValue::len).sum();
        assert!(bytes < 8 << 10, "{bytes}");
        assert!(status.message().ends_with('…') && status.message().len() < 710);
    }

    #[test]
    fn a_refusal_is_read_back_from_its_status_whole() {
        let refusal =
            Refusal::new(&reason::QUEUE_NOT_FOUND, "no queue called nihgt").field("spec.queue").value("nihgt").allowed("night, default");
        let status = Status::from(refusal.clone());
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no queue called nihgt"));
        let info = wire::decode(status.details()).unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("QUEUE_NOT_FOUND", "footplate"));
        assert_eq!(info.metadata["field"], "spec.queue");
        assert_eq!(info.metadata["value"], "nihgt");
        assert_eq!(info.metadata["allowed"], "night, default");
        assert_eq!(info.metadata["next"], refusal.next.unwrap());
    }

    #[test]
    fn a_value_that_was_refused_names_its_field() {
        let refusal = Refusal::from(Invalid::new("project", "..", "a-z, 0-9 and -"));
        assert_eq!((refusal.kind, refusal.field.as_deref(), refusal.value.as_deref()), (Kind::Invalid, Some("project"), Some("..")));
    }

    #[test]
    fn details_that_are_none_of_ours_are_passed_over() {
        assert_eq!(wire::decode(b""), None);
        assert_eq!(wire::decode(b"\xff\xff\xff"), None);
    }
}
