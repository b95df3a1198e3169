//! Who calls, for which project, and until when they wait.

use footplate_types::{Bearer, Invalid, PrincipalId, ProjectName};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::time::Instant;
use tonic::Request;

use crate::refusal::{Refusal, reason};

/// The header that names the project a call is for, where the request itself does not.
pub const PROJECT_HEADER: &str = "footplate-project";

/// Who calls: set by the front before a method runs.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Bearer);

/// Until when the caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDeadline(pub(crate) Instant);

/// Who calls.
///
/// # Errors
/// When the server has no gate and so knows nobody.
pub fn principal<T>(request: &Request<T>) -> Result<PrincipalId, Refusal> {
    bearer(request).map(|bearer| bearer.principal.clone())
}

/// Who calls, within the limits of their token.
///
/// # Errors
/// As [`principal`].
pub fn bearer<T>(request: &Request<T>) -> Result<&Bearer, Refusal> {
    let caller = request.extensions().get::<Caller>().map(|caller| &caller.0);
    caller.ok_or_else(|| Refusal::new(&reason::TOKEN_MISSING, "the call has no principal"))
}

/// The project that the call's header names.
pub fn project<T>(request: &Request<T>) -> Option<&str> {
    request.metadata().get(PROJECT_HEADER)?.to_str().ok().filter(|name| !name.is_empty())
}

/// The project that a request names.
///
/// # Errors
/// When it names none, or what is no name of a project; `_` is the platform's own.
pub fn named_project(text: &str) -> Result<ProjectName, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no project is named").field("project").allowed("the name of a project"));
    }
    let project = ProjectName::parse(text).map_err(|invalid| invalid.of("project"))?;
    if project.is_platform() {
        return Err(Invalid::new("project", text, "a project's own name; _ is the platform's").into());
    }
    Ok(project)
}

/// Until when the caller waits; `None` when it has not said.
pub fn deadline<T>(request: &Request<T>) -> Option<Instant> {
    request.extensions().get::<CallDeadline>().map(|deadline| deadline.0)
}

/// The bearer token of a call.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_named_and_is_not_the_platforms() {
        assert_eq!(named_project("vision").unwrap().as_str(), "vision");
        for (text, word) in [("", "MISSING_FIELD"), ("_", "INVALID_FIELD"), ("Vision!", "INVALID_FIELD")] {
            let refusal = named_project(text).unwrap_err();
            assert_eq!((refusal.reason, refusal.field.as_deref()), (word, Some("project")), "{text}");
            assert!(refusal.allowed.is_some(), "{text}");
        }
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
        let headers = |text: &str| HeaderMap::from_iter([(AUTHORIZATION, text.parse().unwrap())]);
        assert_eq!(token(&headers("Bearer abc")), Some("abc"));
        assert_eq!(token(&headers("bearer  abc ")), Some("abc"));
        assert_eq!(token(&headers("Basic abc")), None);
        assert_eq!(token(&headers("Bearer ")), None);
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
