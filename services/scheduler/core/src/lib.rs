//! The pure domain of the scheduler service.
