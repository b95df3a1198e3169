//! The pure domain of the tracker service.
