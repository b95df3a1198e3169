//! The suite that every object store passes.
