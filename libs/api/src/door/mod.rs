//! The JSON door: a unary gRPC method answers JSON (or bare protobuf) at its own path, in the Connect protocol's unary form.
//!
//! The request is transcoded by the descriptors and handed to the very same service as a gRPC call; there is no second implementation of
//! any method. Streams do not pass through here.

mod answer;
mod frame;
mod request;

use axum::body::Body;
use http::{Request, Response};
use prost_reflect::DescriptorPool;
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tower::Service;

use crate::descriptors::method_in;
use crate::refusal::Refusal;
use crate::server::{Guarded, deadline_passed};
use request::Call;

/// Answers one call with a JSON or protobuf body.
pub(crate) async fn answer(pool: &DescriptorPool, grpc: Guarded, request: Request<Body>, at: Option<Instant>) -> Response<Body> {
    let Some(method) = method_in(pool, request.uri().path()) else {
        return answer::page_not_found();
    };
    let call = match request::read(&method, request).await {
        Ok(call) => call,
        Err(early) => return early.into_response(),
    };
    let Call { request, codec } = call;
    let mut grpc = grpc;
    let called = async {
        let response = match grpc.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        answer::collect(response).await
    };
    let collected = match at {
        Some(at) => timeout_at(at, called).await.unwrap_or_else(|_| Err(deadline_passed().into())),
        None => called.await,
    };
    match collected.and_then(|collected| answer::transcode(&method, collected, codec)) {
        Ok(response) => response,
        Err(status) => answer::error(&status),
    }
}

/// A refusal in the door's form.
pub(crate) fn refusal(refusal: Refusal) -> Response<Body> {
    answer::error(&Status::from(refusal))
}
