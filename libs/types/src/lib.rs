//! The words of the platform as types: ids, names, resources, topology, timestamps.
//!
//! Every value of these types is valid by construction: the only way in is a checked constructor (serde uses the same one).
//! This crate knows no wire format, reads no clock and draws no randomness; ids are minted by `footplate-clock`.

mod bearer;
mod gpu;
mod id;
mod invalid;
mod name;
mod resource;
mod role;
mod taint;
mod text_form;
mod time;

pub use bearer::Bearer;
pub use gpu::{GpuMilli, MigProfile};
pub use id::{
    AttemptId, AttemptNumber, Digest, Epoch, EventId, ExperimentId, MemberIndex, ModelId, ModelVersionId, Rank, RequestId, RunId,
    SessionId, SpoolId, SweepId, TokenId, TrialId, TrialNumber, VersionNumber,
};
pub use invalid::Invalid;
pub use name::{
    AliasName, ArtifactPath, DisplayName, MetricName, ModelName, NodeName, PRINCIPAL_FORMS, ParamKey, PrincipalId, PrincipalKind,
    ProjectName, QueueName, ServiceName, SubscriptionName, WebhookName,
};
pub use resource::{ByteSize, Gpu, GpuModel, GpuUuid, Millis, NodeShape, NvlinkIsland, SlotIndex};
pub use role::Role;
pub use taint::{Taint, Toleration};
pub use time::Timestamp;
