//! Config, telemetry, readiness, shutdown and the admin listener of a process.
