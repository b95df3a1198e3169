//! Exit codes: the same for every verb, and for every verb that waits.

use std::fmt;

/// How a command ended. The numbers are documented and stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done; of a wait: the run succeeded.
    Done,
    /// 1: it failed, for a reason that no other code names.
    Failed,
    /// 2: it was asked for wrongly: an argument, a job file.
    Usage,
    /// 3: what was named is not there.
    NotFound,
    /// 4: it was refused: permission, quota, a conflict, a snapshot that may not leave this machine.
    Refused,
    /// 5: the platform cannot be reached or is not ready.
    Unavailable,
    /// 6: it took longer than it was given.
    TimedOut,
    /// 7: the run itself failed.
    RunFailed,
    /// 8: the run was cancelled.
    Cancelled,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Refused,
        Self::Unavailable,
        Self::TimedOut,
        Self::RunFailed,
        Self::Cancelled,
    ];

    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Unavailable => 5,
            Self::TimedOut => 6,
            Self::RunFailed => 7,
            Self::Cancelled => 8,
        }
    }

    /// What it means, in a few words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NotFound => "not found",
            Self::Refused => "refused (permission, quota, conflict)",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed out",
            Self::RunFailed => "the run itself failed",
            Self::Cancelled => "the run was cancelled",
        }
    }
}

/// A failure with its exit code and what to do next. Travels inside an [`anyhow::Error`] to `main`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// What happened and what to do next.
    pub message: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A wrong use.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something that is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
