//! Where a run stands, as its users see it.

use serde::{Deserialize, Serialize};

/// The states of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for a place, also between attempts.
    Pending,
    /// It is placed; its nodes prepare it.
    Preparing,
    /// Its workers run, or its notebook logs.
    Running,
    /// A stop was asked for; its workers are ending.
    Stopping,
    /// It has ended; what it logged is still being stored.
    Ending,
    /// Sealed: its record is fixed.
    Sealed,
}

impl Status {
    /// All, in the order of a run's life.
    pub const ALL: [Self; 6] = [Self::Pending, Self::Preparing, Self::Running, Self::Stopping, Self::Ending, Self::Sealed];

    /// The word of the API and of filters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ending => "ending",
            Self::Sealed => "sealed",
        }
    }
}
