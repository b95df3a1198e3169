//! The broker in memory, for tests and simulation.
