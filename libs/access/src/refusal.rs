//! How a token is not taken, and how a change is refused.

use footplate_types::{Invalid, PrincipalId, ProjectName, Role, SubscriptionName, Timestamp, TokenId};

/// Why a token is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Nobody has it.
    #[error("the token is not known here")]
    Nobody,
    /// It was taken back.
    #[error("the token was revoked{}", because(.0))]
    Revoked(String),
    /// Its time is over.
    #[error("the token ended at {0}")]
    Over(Timestamp),
    /// Its principal is shut out.
    #[error("{0} is disabled")]
    Disabled(PrincipalId),
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// A "no" to a change, told so that the caller knows what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field is not allowed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The caller may not.
    #[error("{who} may not {what}; it takes {needs}")]
    Denied {
        /// Who asked.
        who: PrincipalId,
        /// What.
        what: String,
        /// Who may.
        needs: String,
    },
    /// Nobody shuts themselves out.
    #[error("{who} may not {what} for themselves, so that the platform is never without an admin; another admin may")]
    OneSelf {
        /// Who asked.
        who: PrincipalId,
        /// What.
        what: &'static str,
    },
    /// No such principal.
    #[error("there is no principal {0}")]
    NoSuchPrincipal(PrincipalId),
    /// There is such a principal, called otherwise.
    #[error("there is a principal {0} already")]
    PrincipalExists(PrincipalId),
    /// The principal is shut out.
    #[error("{0} is disabled")]
    PrincipalDisabled(PrincipalId),
    /// No such project.
    #[error("there is no project {0}")]
    NoSuchProject(ProjectName),
    /// There is such a project.
    #[error("there is a project {0} already")]
    ProjectExists(ProjectName),
    /// The principal has no role there.
    #[error("{principal} has no role in project {project}")]
    NoRole {
        /// Who.
        principal: PrincipalId,
        /// Where.
        project: ProjectName,
    },
    /// No such subscription.
    #[error("there is no subscription {0} in this project")]
    NoSuchSubscription(SubscriptionName),
    /// There is such a subscription.
    #[error(
        "there is a subscription {0} in this project already; its credentials were told once, so delete it and make it again if they are lost"
    )]
    SubscriptionExists(SubscriptionName),
    /// No such token.
    #[error("there is no token {0}")]
    NoSuchToken(TokenId),
    /// A token cannot make one that may more than it does.
    #[error("a token that is limited to {limit} makes none beyond it")]
    Beyond {
        /// The limit of the token that was shown.
        limit: String,
    },
    /// As many as there may be.
    #[error("there are {most} {what} already, the most there may be")]
    TooMany {
        /// Of what.
        what: String,
        /// How many there may be.
        most: usize,
    },
}

impl Refusal {
    pub(crate) fn denied(who: &PrincipalId, what: impl Into<String>, needs: impl Into<String>) -> Self {
        Self::Denied { who: who.clone(), what: what.into(), needs: needs.into() }
    }
}

/// Who may make and shut out a principal, in words.
pub(crate) fn makers(project: Option<&ProjectName>) -> String {
    let platform = format!("the role {} in the platform's own project, _", Role::Admin);
    project.map_or_else(|| platform.clone(), |project| format!("{platform}, or in {project}"))
}
