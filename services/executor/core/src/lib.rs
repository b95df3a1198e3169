//! The pure domain of the executor service.
