//! Every back end against the suite, each against bad days of its own, and store and tail read as one.
#![allow(clippy::unwrap_used)]

mod crash;
mod embedded;
mod live;
mod scylla;

use footplate_series::{SeriesStore, embedded::Embedded};

async fn fresh() -> (tempfile::TempDir, Box<dyn SeriesStore>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    (folder, Box::new(store))
}

footplate_series::series_conformance!(fresh);
