//! What keeps a bucket from doing what it is asked for, told by who has to mend it.

use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;

/// What keeps a bucket from doing what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketFault {
    /// The store does not know the access key, or the secret does not fit it.
    #[error("the object store does not accept the access key and its secret")]
    WrongKey,
    /// No key was given, and this machine has none of its own.
    #[error("there is no access key for the object store")]
    NoKey,
    /// The key is known and may not do this.
    #[error("the access key may not do this in the bucket")]
    Denied,
    /// There is no such bucket.
    #[error("the bucket does not exist")]
    NoBucket,
    /// The bucket lies elsewhere.
    #[error("the bucket is of another region")]
    WrongRegion,
    /// The clocks of this machine and of the store differ too much for a signature to count.
    #[error("the clock of this machine differs too much from the object store's")]
    ClockSkew,
    /// The store answers and cannot keep up, or fails by itself; it was asked again as long as that is set.
    #[error("the object store is overloaded or fails")]
    Busy,
    /// Nothing answers; it was asked again as long as that is set.
    #[error("the object store does not answer")]
    Away,
}

impl BucketFault {
    /// Whether asking again later may help without anybody doing anything.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Busy | Self::Away)
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::WrongKey => "set the access key and the secret that the object store knows",
            Self::NoKey => "set the access key and its secret",
            Self::Denied => "let the key list, read, write and delete in this bucket, below this prefix",
            Self::NoBucket => "make the bucket, or mend its name and the endpoint; what was stored is gone with it unless it comes back",
            Self::WrongRegion => "set the region that the bucket lies in",
            Self::ClockSkew => "set this machine's clock right (NTP)",
            Self::Busy => "wait; if it lasts, look at the object store's own health and limits",
            Self::Away => "look whether it runs, and whether the endpoint, its scheme and its port are right",
        }
    }

    /// What an error of an object store is, where it is one of these.
    pub(crate) fn of(error: &object_store::Error) -> Option<Self> {
        let text = error.to_string();
        if let Some(fault) = code_in(&text).and_then(Self::of_code) {
            return Some(fault);
        }
        if let Some(kind) = transport(error) {
            let asks_the_machine = text.contains("//169.254.");
            return match kind {
                _ if asks_the_machine => Some(Self::NoKey),
                HttpErrorKind::Decode => None,
                _ => Some(Self::Away),
            };
        }
        if text.contains("redirect without LOCATION") {
            return Some(Self::WrongRegion);
        }
        match status_in(&text)? {
            401 | 403 => Some(Self::Denied),
            429 | 500 | 502 | 503 | 504 => Some(Self::Busy),
            _ => None,
        }
    }

    fn of_code(code: &str) -> Option<Self> {
        match code {
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "ExpiredToken" | "TokenRefreshRequired" => {
                Some(Self::WrongKey)
            }
            // What versitygw says of a key that it does not know.
            "XAdminUserNotFound" => Some(Self::WrongKey),
            "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "NotSignedUp" => Some(Self::Denied),
            "NoSuchBucket" => Some(Self::NoBucket),
            "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IncorrectEndpoint" => Some(Self::WrongRegion),
            "RequestTimeTooSkewed" => Some(Self::ClockSkew),
            "SlowDown" | "ServiceUnavailable" | "InternalError" | "RequestTimeout" | "OperationAborted" | "Throttling" => Some(Self::Busy),
            _ => None,
        }
    }
}

/// The code by which S3 names an error.
pub(crate) fn code_of(error: &object_store::Error) -> Option<String> {
    code_in(&error.to_string()).map(str::to_owned)
}

fn code_in(text: &str) -> Option<&str> {
    let between = |begin: &str, end: &str| Some(text.split_once(begin)?.1.split_once(end)?.0);
    between("<Code>", "</Code>").or_else(|| between("(code: ", ")"))
}

fn status_in(text: &str) -> Option<u16> {
    text.split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// How the way to the store failed.
fn transport(error: &object_store::Error) -> Option<HttpErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(at) = cause {
        if let Some(http) = at.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        cause = at.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<BucketFault> {
        BucketFault::of(&object_store::Error::Generic { store: "S3", source: text.into() })
    }

    fn answered(status: &str, code: &str) -> String {
        format!(
            "Error performing PUT http://h/b/k in 3ms - Server returned non-2xx status code: {status}: <Error><Code>{code}</Code></Error>"
        )
    }

    #[test]
    fn what_s3_says_is_told_by_who_has_to_mend_it() {
        for (status, code, fault) in [
            ("403 Forbidden", "InvalidAccessKeyId", BucketFault::WrongKey),
            ("403 Forbidden", "SignatureDoesNotMatch", BucketFault::WrongKey),
            ("403 Forbidden", "AccessDenied", BucketFault::Denied),
            ("403 Forbidden", "RequestTimeTooSkewed", BucketFault::ClockSkew),
            ("404 Not Found", "NoSuchBucket", BucketFault::NoBucket),
            ("301 Moved Permanently", "PermanentRedirect", BucketFault::WrongRegion),
            ("503 Service Unavailable", "SlowDown", BucketFault::Busy),
            ("503 Service Unavailable", "", BucketFault::Busy),
        ] {
            assert_eq!(told(&answered(status, code)), Some(fault), "{code}");
            assert!(!fault.advice().is_empty());
        }
        assert_eq!(told("DeleteObjects request failed for key k: no (code: AccessDenied)"), Some(BucketFault::Denied));
        assert_eq!(told(&answered("404 Not Found", "NoSuchKey")), None);
        assert_eq!(told("Is a directory (os error 21)"), None);
    }

    #[test]
    fn a_way_that_fails_is_no_fault_of_the_bucket() {
        let failed = |kind, text: &'static str| object_store::Error::Generic {
            store: "S3",
            source: Box::new(HttpError::new(kind, std::io::Error::other(text))),
        };
        assert_eq!(BucketFault::of(&failed(HttpErrorKind::Connect, "refused")), Some(BucketFault::Away));
        assert_eq!(BucketFault::of(&failed(HttpErrorKind::Timeout, "http://h/b")), Some(BucketFault::Away));
        assert_eq!(BucketFault::of(&failed(HttpErrorKind::Connect, "http://169.254.169.254/latest/api/token")), Some(BucketFault::NoKey));
        assert!(BucketFault::Away.is_passing() && BucketFault::Busy.is_passing() && !BucketFault::NoBucket.is_passing());
    }
}
