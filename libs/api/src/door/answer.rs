//! From a gRPC answer to an HTTP response.

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use prost::Message;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::frame;
use super::request::Codec;
use crate::json;
use crate::refusal::{Refusal, wire};

/// The prefix of headers that stand for gRPC's trailers.
const TRAILER_PREFIX: &str = "trailer-";

/// A whole gRPC answer that was a success.
pub(crate) struct Collected {
    headers: HeaderMap,
    trailers: HeaderMap,
    message: Bytes,
}

/// Reads a gRPC answer to its end.
pub(crate) async fn collect(response: Response<Body>) -> Result<Collected, Status> {
    let (head, body) = response.into_parts();
    // An answer without a message carries its status in the headers.
    if let Some(status) = Status::from_header_map(&head.headers).filter(|status| status.code() != Code::Ok) {
        return Err(status);
    }
    let collected = body.collect().await.map_err(|error| Status::from(Refusal::internal(format_args!("an answer broke off: {error}"))))?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    match Status::from_header_map(&trailers) {
        Some(status) if status.code() != Code::Ok => return Err(status),
        Some(_) => {}
        None => return Err(Refusal::internal("an answer has no status").into()),
    }
    let message = frame::unwrap(collected.to_bytes()).ok_or_else(|| Status::from(Refusal::internal("an answer is not one message")))?;
    Ok(Collected { headers: head.headers, trailers, message })
}

/// The success as the caller's codec wants it.
pub(crate) fn transcode(method: &MethodDescriptor, collected: Collected, codec: Codec) -> Result<Response<Body>, Status> {
    let body = match codec {
        Codec::Proto => collected.message,
        Codec::Json => to_json(method, collected.message).map_err(|error| Status::from(Refusal::internal(error)))?,
    };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    let metadata = collected.headers.iter().filter(|(name, _)| !is_of_grpc(name));
    headers.extend(metadata.map(|(name, value)| (name.clone(), value.clone())));
    for (name, value) in collected.trailers.iter().filter(|(name, _)| !is_of_grpc(name)) {
        if let Ok(name) = HeaderName::try_from(format!("{TRAILER_PREFIX}{name}")) {
            headers.append(name, value.clone());
        }
    }
    headers.insert(CONTENT_TYPE, codec.content_type());
    response.extensions_mut().insert(Code::Ok);
    Ok(response)
}

fn to_json(method: &MethodDescriptor, message: Bytes) -> Result<Bytes, String> {
    let dynamic = DynamicMessage::decode(method.output(), message).map_err(|error| error.to_string())?;
    let value = json::write(&dynamic).map_err(|error| error.to_string())?;
    Ok(value.to_string().into())
}

fn is_of_grpc(name: &HeaderName) -> bool {
    name.as_str().starts_with("grpc-") || name == CONTENT_TYPE
}

/// An error in the Connect form: always JSON, whatever the codec.
pub(crate) fn error(status: &Status) -> Response<Body> {
    let mut body = json!({"code": code_word(status.code()), "message": status.message()});
    if let Some(detail) = detail(status) {
        body["details"] = json!([detail]);
    }
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = http_status(status.code());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.extensions_mut().insert(status.code());
    response
}

/// The error info: as bytes for programs that know it, and in plain words under `debug`.
fn detail(status: &Status) -> Option<Value> {
    let info = wire::decode(status.details())?;
    let value = STANDARD_NO_PAD.encode(info.encode_to_vec());
    let debug = json!({"reason": info.reason, "domain": info.domain, "metadata": info.metadata});
    Some(json!({"type": wire::ERROR_INFO_TYPE, "value": value, "debug": debug}))
}

/// A plain answer to a request that is no call.
pub(crate) fn plain(status: StatusCode, header: (HeaderName, &'static str), text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header.0, HeaderValue::from_static(header.1));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.extensions_mut().insert(Code::InvalidArgument);
    response
}

/// No such page.
pub(crate) fn page_not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, (CONTENT_TYPE, "text/plain; charset=utf-8"), "no such page\n".to_owned())
}

/// The Connect protocol's word for a code.
fn code_word(code: Code) -> &'static str {
    match code {
        Code::Ok | Code::Unknown => "unknown",
        Code::Cancelled => "canceled",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

/// The Connect protocol's HTTP status for a code.
fn http_status(code: Code) -> StatusCode {
    let number = match code {
        Code::Cancelled => 499,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => 500,
    };
    StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
