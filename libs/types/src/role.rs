//! What a principal may do in a project.

use crate::{Invalid, text_form::text_form};
use std::fmt;

/// What a principal may do in a project; each role may all that the ones before it may. In the platform's own project, `_`, a role holds for
/// every project, and for what belongs to none: nodes and queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Submits, logs, searches, registers, promotes what is approved.
    Member,
    /// Approves what others propose.
    Approver,
    /// Gives roles to others, and credentials to those who subscribe.
    Admin,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Approver, Self::Admin];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }

    /// Reads its word.
    ///
    /// # Errors
    /// Any other word.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| Invalid::new("role", text, "viewer, member, approver or admin"))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

text_form!(Role, Some("^(viewer|member|approver|admin)$"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_reads_back_and_holds_what_the_lesser_hold() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Ok(role));
        }
        assert!(Role::ALL.is_sorted());
        assert!(Role::parse("Admin").is_err() && Role::parse("owner").is_err());
    }
}
