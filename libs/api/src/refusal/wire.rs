//! `google.rpc.Status` and `google.rpc.ErrorInfo` as they stand in `grpc-status-details-bin`; field numbers are Google's.

use std::collections::BTreeMap;

use prost::Message;
use tonic::Code;

use super::Refusal;

/// The domain of our reasons.
pub(crate) const DOMAIN: &str = "footplate";
/// The type of the one detail that we send.
pub(crate) const ERROR_INFO_TYPE: &str = "google.rpc.ErrorInfo";
const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

#[derive(Clone, PartialEq, Message)]
struct WireStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The machine-readable part of an error.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    #[prost(string, tag = "2")]
    pub(crate) domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// The details of a refusal.
pub(crate) fn encode(refusal: &Refusal) -> Vec<u8> {
    let Refusal { kind, reason, message, field, value, allowed, next } = refusal;
    let known = [("field", field), ("value", value), ("allowed", allowed), ("next", next)];
    let metadata = known.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.clone()?))).collect();
    let info = ErrorInfo { reason: (*reason).to_owned(), domain: DOMAIN.to_owned(), metadata };
    let detail = Any { type_url: format!("{TYPE_URL_PREFIX}{ERROR_INFO_TYPE}"), value: info.encode_to_vec() };
    WireStatus { code: Code::from(*kind) as i32, message: message.clone(), details: vec![detail] }.encode_to_vec()
}

/// The error info in a status's details; `None` when there is none.
pub(crate) fn decode(details: &[u8]) -> Option<ErrorInfo> {
    let status = WireStatus::decode(details).ok()?;
    let detail = status.details.iter().find(|detail| detail.type_url.ends_with(ERROR_INFO_TYPE))?;
    ErrorInfo::decode(detail.value.as_slice()).ok()
}

impl From<super::Kind> for Code {
    fn from(kind: super::Kind) -> Self {
        kind.code()
    }
}
