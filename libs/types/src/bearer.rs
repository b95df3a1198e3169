//! Who shows a token, and within which limits.

use crate::{PrincipalId, ProjectName, Role, Timestamp, TokenId};

/// Whoever shows a token: the principal that it stands for, and the limits of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// Who.
    pub principal: PrincipalId,
    /// The token; `None` where no token is needed to be known (a process that speaks for its own user).
    pub token: Option<TokenId>,
    /// The one project that the token is good for.
    pub only: Option<ProjectName>,
    /// The most that the token may.
    pub most: Option<Role>,
    /// When the token ends.
    pub expires: Option<Timestamp>,
}

impl Bearer {
    /// A principal without any limit.
    pub const fn of(principal: PrincipalId) -> Self {
        Self { principal, token: None, only: None, most: None, expires: None }
    }
}
