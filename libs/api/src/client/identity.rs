//! What every call carries: token, project, trace context, and a deadline when it has none.

use footplate_service::current_traceparent;
use http::header::AUTHORIZATION;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{GrpcMethod, Request, Status};

use super::{ApiError, DEFAULT_DEADLINE, Target};
use crate::descriptors::{method_in, pool};
use crate::refusal::{Refusal, reason};
use crate::server::PROJECT_HEADER;

/// Adds the caller's identity to each call.
#[derive(Clone, Debug)]
pub struct Identity {
    authorization: Option<MetadataValue<Ascii>>,
    project: Option<MetadataValue<Ascii>>,
}

impl Identity {
    pub(super) fn of(target: &Target) -> Result<Self, ApiError> {
        let header = |text: String, field: &str| {
            let refused =
                |_| ApiError::from(Refusal::new(&reason::INVALID_FIELD, format!("{field} has characters that no header can carry")));
            MetadataValue::try_from(text).map_err(refused)
        };
        let mut authorization = target.token.as_ref().map(|token| header(format!("Bearer {token}"), "the token")).transpose()?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let project = target.project.as_ref().map(|project| header(project.clone(), "the project's name")).transpose()?;
        Ok(Self { authorization, project })
    }
}

impl Interceptor for Identity {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if !request.metadata().contains_key("grpc-timeout") && is_unary(&request) {
            request.set_timeout(DEFAULT_DEADLINE);
        }
        let metadata = request.metadata_mut();
        if let Some(authorization) = &self.authorization {
            metadata.insert(AUTHORIZATION.as_str(), authorization.clone());
        }
        if let Some(project) = &self.project {
            metadata.insert(PROJECT_HEADER, project.clone());
        }
        if let Some(traceparent) = current_traceparent().and_then(|header| header.parse().ok()) {
            metadata.insert("traceparent", traceparent);
        }
        Ok(request)
    }
}

/// A stream lasts as long as it likes.
fn is_unary(request: &Request<()>) -> bool {
    let Some(method) = request.extensions().get::<GrpcMethod<'_>>() else { return false };
    let path = format!("/{}/{}", method.service(), method.method());
    method_in(pool(), &path).is_some_and(|method| !method.is_client_streaming() && !method.is_server_streaming())
}
