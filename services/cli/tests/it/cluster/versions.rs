//! Versions of a model, registered while the platform is struck: what was acknowledged is there once, by the number that was told.

use super::{Cluster, PATIENCE, PROJECT};
use crate::models::log_run;
use footplate_api::v1;
use footplate_service::Exit;
use footplate_testkit::eventually;
use std::collections::BTreeMap;

const MODEL: &str = "kept";
const FILE: &str = "model.bin";

/// What was registered of one run's artifact.
pub struct Versions {
    run_id: String,
    /// Note by number.
    acknowledged: BTreeMap<u32, String>,
}

impl Versions {
    /// Makes the model, and the sealed run whose artifact becomes versions.
    pub async fn begin(cluster: &Cluster) -> Self {
        let run_id = log_run(&cluster.client, &[(FILE, b"weights")]).await;
        cluster.sealed(&run_id).await;
        let asked = v1::CreateModelRequest { project: PROJECT.to_owned(), name: MODEL.to_owned(), ..v1::CreateModelRequest::default() };
        cluster.client.once(cluster.client.registry().create_model(asked)).await.unwrap();
        Self { run_id, acknowledged: BTreeMap::new() }
    }

    /// Registers one more, asked again under its key until it is acknowledged.
    pub async fn register(&mut self, cluster: &Cluster, note: &str) {
        let asked = v1::RegisterVersionRequest {
            project: PROJECT.to_owned(),
            model: MODEL.to_owned(),
            run_id: self.run_id.clone(),
            path: FILE.to_owned(),
            note: note.to_owned(),
            request_id: format!("register-{}", self.acknowledged.len()),
            ..v1::RegisterVersionRequest::default()
        };
        let ask = || async {
            match cluster.client.once(cluster.client.registry().register_version(asked.clone())).await {
                Ok(answer) => Some(answer),
                // Nobody answered, whether it was done or not; or a registry that has not read yet that the run is sealed.
                Err(error) if [Exit::Unavailable, Exit::TimedOut].contains(&error.exit()) || self.acknowledged.is_empty() => None,
                Err(error) => panic!("{error}"),
            }
        };
        let version = eventually(PATIENCE, "a version is registered", ask).await.version;
        let before = self.acknowledged.insert(version, note.to_owned());
        assert_eq!(before, None, "version {version} was told twice");
    }

    /// The registry knows these versions and no other; how many.
    pub async fn assert_kept(&self, cluster: &Cluster) -> usize {
        let asked = v1::ListVersionsRequest {
            project: PROJECT.to_owned(),
            model: MODEL.to_owned(),
            page_size: 1_000,
            ..v1::ListVersionsRequest::default()
        };
        let answer = cluster.client.safely(|| async { cluster.client.registry().list_versions(asked.clone()).await }).await.unwrap();
        let known: BTreeMap<u32, String> = answer.versions.iter().map(|version| (version.version, version.note.clone())).collect();
        assert_eq!((answer.versions.len(), &known), (known.len(), &self.acknowledged));
        assert!(known.keys().copied().eq(1..=known.len() as u32), "numbered with gaps: {known:?}");
        known.len()
    }
}
