//! Who may do what: principals, projects with the roles in them, tokens.
//!
//! Roles are said on the project, so that whoever changes one sees all the others; those that hold everywhere are said on the platform's own
//! project, `_`. Of a token the ledger knows the digest alone. `body` is the digest of the request's body under the client's idempotency key.

use footplate_types::{Digest, DisplayName, PrincipalId, ProjectName, Role, Timestamp, TokenId};
use serde::{Deserialize, Serialize};

/// A principal was made: a person, or a program. It may do nothing until it is given a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrincipalCreated {
    /// Who: `user:<name>`, `service:<name>`, `service:<project>:<name>`, `local:<name>` or `node:<name>`.
    pub principal: PrincipalId,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<DisplayName>,
}

/// A principal was shut out: none of its tokens is taken any more, whatever roles it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrincipalDisabled {
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A principal was let in again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrincipalEnabled {
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A project was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectCreated {
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Who may give roles in it from the start.
    pub admin: PrincipalId,
}

/// A principal was given a role in the project, in place of the one that it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectRoleGiven {
    /// Who.
    pub principal: PrincipalId,
    /// The role.
    pub role: Role,
}

/// A principal has no role in the project any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectRoleTaken {
    /// Who.
    pub principal: PrincipalId,
}

/// A token was made. Whoever shows it is the principal, within the limits of the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenCreated {
    /// Whom it stands for.
    pub principal: PrincipalId,
    /// SHA-256 of the token.
    pub digest: Digest,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The one project that it is good for; every project of the principal when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// The most that it may, whatever role the principal has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// When it ends; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The token of the same principal that it was made with: it is good as long as that one is, so that whoever takes back a token that leaked takes
    /// back what was made with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TokenId>,
    /// The broker's user that was made with it (its public key), for a node's agent and for those who subscribe: revoked together with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_user: Option<String>,
}

/// A token was taken back: it is good for nothing any more, and what is open under it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenRevoked {
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Somebody was given credentials of the broker, and a durable consumer of the project's part of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubscriptionCreated {
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The kind of aggregate whose events it is for; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<String>,
    /// The sequence of the ledger that its consumer begins at; what comes after it was made when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The broker's user that was made with it (its public key).
    pub broker_user: String,
    /// When its credentials end; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// A subscription was taken back: its credentials are void, its consumer is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubscriptionDeleted {
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
