//! How a process of the platform ends: one table of exit codes, the same for every verb and every service.

use std::process::{ExitCode, Termination};

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Exit {
    /// It was done.
    Done = 0,
    /// It failed, for a reason that is no other of these.
    Failed = 1,
    /// The command line, a configuration or an input file cannot be understood.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// It was refused: permission, quota, conflict.
    Refused = 4,
    /// What it needs cannot be reached now; the same command may work later.
    Unavailable = 5,
    /// It was not done in time; it may still happen.
    TimedOut = 6,
    /// The command worked, and what it waited for failed.
    WorkFailed = 7,
    /// What it waited for was cancelled.
    Cancelled = 8,
    /// The command worked, and what it measured falls short of what was wanted.
    FallsShort = 9,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Self; 10] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Refused,
        Self::Unavailable,
        Self::TimedOut,
        Self::WorkFailed,
        Self::Cancelled,
        Self::FallsShort,
    ];

    /// The number that the process ends with.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The code with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|exit| exit.code() == code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_numbers() {
        let numbers: Vec<u8> = Exit::ALL.into_iter().map(Exit::code).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(Exit::from_code(5), Some(Exit::Unavailable));
        assert_eq!(Exit::from_code(10), None);
    }
}
