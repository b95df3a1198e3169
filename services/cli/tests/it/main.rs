//! The command line's integration tests: snapshots of real git repositories, job files, and the binary itself.
mod capture;
mod jobfile;
