//! Who a token stands for and what they may: told by whoever follows the ledger, asked by the front.

use std::future::Future;
use std::pin::Pin;

use footplate_types::{Bearer, PrincipalId, ProjectName, Role};

use crate::refusal::Refusal;

/// What [`Gate::changed`] gives.
pub type Changed = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// Tells who calls and what they may.
pub trait Gate: Send + Sync + 'static {
    /// Whom a token stands for; `None` is a call without one.
    ///
    /// # Errors
    /// A token that is missing or not taken, or that nobody can tell now.
    fn bearer(&self, token: Option<&str>) -> Result<Bearer, Refusal>;

    /// Their role in a project; in `_`, for what belongs to none.
    fn role(&self, bearer: &Bearer, project: &ProjectName) -> Option<Role>;

    /// Waits until somebody's roles or tokens have changed, so that what a bearer may is to be looked at again; with an error as soon as the
    /// bearer's own token is not taken any more, which may be at once. Nothing that happens after this call is missed.
    fn changed(&self, bearer: &Bearer) -> Changed;
}

/// A gate for servers with one purpose, and for tests: whoever is known may everything.
pub(crate) struct Open<T>(pub(crate) T);

impl<T: Fn(Option<&str>) -> Result<PrincipalId, Refusal> + Send + Sync + 'static> Gate for Open<T> {
    fn bearer(&self, token: Option<&str>) -> Result<Bearer, Refusal> {
        (self.0)(token).map(Bearer::of)
    }

    fn role(&self, _: &Bearer, _: &ProjectName) -> Option<Role> {
        Some(Role::Admin)
    }

    fn changed(&self, _: &Bearer) -> Changed {
        Box::pin(std::future::pending())
    }
}
