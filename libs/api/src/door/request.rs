//! From an HTTP request to a gRPC call.

use std::error::Error;

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use prost::Message;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use serde_json::Value;

use super::{answer, frame};
use crate::json;
use crate::refusal::{Refusal, reason};

/// The largest body: a blob of 4 MiB in base64, and room.
pub(crate) const MAX_BODY_BYTES: usize = 8 << 20;

/// How bodies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Json,
    Proto,
}

impl Codec {
    pub(crate) fn content_type(self) -> HeaderValue {
        match self {
            Codec::Json => HeaderValue::from_static("application/json"),
            Codec::Proto => HeaderValue::from_static("application/proto"),
        }
    }
}

/// A call that can be handed to the service.
pub(crate) struct Call {
    pub(crate) request: Request<Body>,
    pub(crate) codec: Codec,
}

/// Why a request does not come to a call.
pub(crate) enum Early {
    /// It speaks HTTP wrongly: the status says it, there is no call yet.
    Http(Box<Response<Body>>),
    /// It is refused in the door's form.
    Refused(Box<Refusal>),
}

impl Early {
    pub(crate) fn into_response(self) -> Response<Body> {
        match self {
            Early::Http(response) => *response,
            Early::Refused(refusal) => super::refusal(*refusal),
        }
    }
}

impl From<Refusal> for Early {
    fn from(refusal: Refusal) -> Self {
        Early::Refused(Box::new(refusal))
    }
}

/// Reads and transcodes a request for `method`.
pub(crate) async fn read(method: &MethodDescriptor, request: Request<Body>) -> Result<Call, Early> {
    if request.method() != Method::POST {
        let hint = format!("{} takes POST with a JSON body\n", request.uri().path());
        return Err(http_error(StatusCode::METHOD_NOT_ALLOWED, (ALLOW, "POST"), hint));
    }
    let Some(codec) = codec(request.headers()) else {
        let hint = "send content-type: application/json (or application/proto, or gRPC)\n".to_owned();
        let accepted = (http::header::HeaderName::from_static("accept-post"), "application/json, application/proto, application/grpc");
        return Err(http_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, accepted, hint));
    };
    if method.is_client_streaming() || method.is_server_streaming() {
        return Err(
            Refusal::new(&reason::STREAMING_ONLY, format!("{} streams, and JSON carries single messages", method.full_name())).into()
        );
    }
    if let Some(encoding) = request.headers().get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let refusal = Refusal::new(&reason::NOT_SUPPORTED_YET, "compressed bodies are not taken here").field("content-encoding");
        return Err(refusal.value(String::from_utf8_lossy(encoding.as_bytes())).allowed("identity").into());
    }
    let (head, body) = request.into_parts();
    let body = collect(body).await?;
    let message = match codec {
        Codec::Json => from_json(method, &body)?,
        Codec::Proto => body,
    };
    let framed = frame::wrap(&message).ok_or_else(too_large)?;
    let mut request = Request::new(Body::from(framed));
    *request.uri_mut() = head.uri;
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.extensions_mut() = head.extensions;
    *request.headers_mut() = passed_on(head.headers);
    Ok(Call { request, codec })
}

/// `application/json` with or without a charset of UTF-8, or `application/proto`.
fn codec(headers: &HeaderMap) -> Option<Codec> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
    let mut parts = kind.split(';').map(str::trim);
    let codec = match parts.next()? {
        "application/json" => Codec::Json,
        "application/proto" => Codec::Proto,
        _ => return None,
    };
    parts.all(|part| part.is_empty() || matches!(part, "charset=utf-8" | "charset=\"utf-8\"")).then_some(codec)
}

async fn collect(body: Body) -> Result<Bytes, Refusal> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if is_too_long(error.as_ref()) => Err(too_large()),
        Err(error) => Err(Refusal::new(&reason::MALFORMED_REQUEST, format!("the body broke off: {error}"))),
    }
}

fn is_too_long(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source()).any(|error| error.is::<LengthLimitError>())
}

fn too_large() -> Refusal {
    let told = format!("the body is larger than {} MiB", MAX_BODY_BYTES >> 20);
    Refusal::new(&reason::TOO_LARGE, told).allowed(format!("at most {MAX_BODY_BYTES} bytes"))
}

/// An empty body stands for an empty message, so that a bare `curl -X POST` works.
fn from_json(method: &MethodDescriptor, body: &[u8]) -> Result<Bytes, Refusal> {
    let input = method.input();
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(DynamicMessage::new(input).encode_to_vec().into());
    }
    let value: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::new(&reason::MALFORMED_REQUEST, format!("the body is not JSON: {error}")))?;
    Ok(json::read(&input, &value)?.encode_to_vec().into())
}

/// The headers that the call keeps: all but those of this body and this connection.
fn passed_on(mut headers: HeaderMap) -> HeaderMap {
    let of_this_hop = [CONTENT_LENGTH, CONTENT_ENCODING, ACCEPT_ENCODING, TRANSFER_ENCODING, http::header::CONNECTION, http::header::HOST];
    of_this_hop.iter().for_each(|name| {
        headers.remove(name);
    });
    for name in ["keep-alive", "upgrade", "http2-settings", "grpc-encoding", "grpc-accept-encoding", "grpc-timeout"] {
        headers.remove(name);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers
}

fn http_error(status: StatusCode, header: (http::header::HeaderName, &'static str), hint: String) -> Early {
    Early::Http(Box::new(answer::plain(status, header, hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_told_apart() {
        let of = |text: &str| codec(&HeaderMap::from_iter([(CONTENT_TYPE, text.parse().unwrap())]));
        assert_eq!(of("application/json"), Some(Codec::Json));
        assert_eq!(of("Application/JSON; charset=UTF-8"), Some(Codec::Json));
        assert_eq!(of("application/proto"), Some(Codec::Proto));
        for other in ["application/json; charset=latin1", "text/json", "application/x-www-form-urlencoded", "application/connect+json"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
