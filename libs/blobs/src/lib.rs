//! Content-addressed blobs over an object store.
