//! Keeps a call within the project that its caller may act in: reads the project out of every message of the request as it passes, before the
//! method sees it, and ends the call when what the caller may has changed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use footplate_types::{Bearer, ProjectName};
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as _, Frame, SizeHint};
use tonic::Status;
use tower::Service;

use super::caller::PROJECT_HEADER;
use super::deadline::Until;
use super::front::grpc_refusal;
use super::gate::Gate;
use super::need::{Need, Scope};
use crate::refusal::{Refusal, reason};

/// The longest message that is looked into; no method takes a longer one.
const MESSAGE_MAX: usize = 8 << 20;
/// How long the only message of a request may take to come: until then it is held, for someone who may turn out not to be let in.
const FIRST_WITHIN: Duration = Duration::from_secs(60);
/// The head of a gRPC message: a flag and its length.
const HEAD: usize = 5;

/// What a call is held to: set by the front, kept here.
#[derive(Clone)]
pub(crate) struct Check {
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) bearer: Bearer,
    pub(crate) need: Arc<Need>,
}

impl Check {
    fn admit(&self, project: Option<&ProjectName>) -> Result<(), Refusal> {
        self.need.admit(self.gate.as_ref(), &self.bearer, project)
    }

    /// Ends when the caller may not any more what it was let in for.
    async fn lapse(self, admitted: Admitted) -> Refusal {
        loop {
            // It watches from here on, so that what changed since the caller was let in is seen by the look that follows.
            let changed = self.gate.changed(&self.bearer);
            // A stream that has said nothing yet was let in for nothing yet.
            let looked = admitted.get().map_or(Ok(()), |project| self.admit(project.as_ref()));
            if let Err(refusal) = looked {
                return refusal;
            }
            if let Err(refusal) = changed.await {
                return refusal;
            }
        }
    }
}

/// For which project a call was let in, once it has said it.
type Admitted = Arc<OnceLock<Option<ProjectName>>>;

/// The methods, behind the guard.
#[derive(Clone)]
pub(crate) struct Guarded(pub(crate) Router);

impl Service<Request<Body>> for Guarded {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut router = self.0.clone();
        Box::pin(async move {
            // Health and reflection alone are not checked.
            let Some(check) = request.extensions_mut().remove::<Check>() else { return router.call(request).await };
            let admitted = Admitted::default();
            if check.need.looks_into_the_request() {
                let named = header(request.headers());
                let (parts, body) = request.into_parts();
                let mut watched = Watched::new(body, check.clone(), named, admitted.clone());
                // A method with one request runs only for whom it is let in. One with a stream may have to answer before it comes, and gets no
                // message that was not looked into.
                if !check.need.is_stream {
                    let refused = match tokio::time::timeout(FIRST_WITHIN, watched.first()).await {
                        Ok(looked) => looked.err(),
                        Err(_) => Some(Box::new(super::deadline::passed())),
                    };
                    if let Some(refusal) = refused {
                        return Ok(grpc_refusal(*refusal));
                    }
                }
                request = Request::from_parts(parts, Body::new(watched));
            } else {
                // The front has let it in for what belongs to no project.
                admitted.get_or_init(|| None);
            }
            let mut lapse: Pin<Box<dyn Future<Output = Refusal> + Send>> = Box::pin(check.lapse(admitted));
            // First whether the caller still may: a token can have been revoked while its request was on the way.
            let response = tokio::select! {
                biased;
                refusal = &mut lapse => return Ok(grpc_refusal(refusal)),
                response = router.call(request) => response?,
            };
            Ok(response.map(|body| Body::new(Until::new(body, lapse))))
        })
    }
}

fn header(headers: &HeaderMap) -> Option<String> {
    headers.get(PROJECT_HEADER)?.to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// A request's body, of which no message passes unseen.
struct Watched {
    inner: Body,
    check: Check,
    /// The project of the call's header, for a first message that names none.
    header: Option<String>,
    /// Set with the first message.
    admitted: Admitted,
    /// A message that has come in part.
    part: BytesMut,
    passed: VecDeque<Bytes>,
    ended: bool,
}

impl Watched {
    fn new(inner: Body, check: Check, header: Option<String>, admitted: Admitted) -> Self {
        Self { inner, check, header, admitted, part: BytesMut::new(), passed: VecDeque::new(), ended: false }
    }

    /// Waits until the first message has been looked into. A request without any is held to its header.
    async fn first(&mut self) -> Result<(), Box<Refusal>> {
        while self.admitted.get().is_none() && !self.ended {
            let frame = poll_fn(|context| Pin::new(&mut self.inner).poll_frame(context)).await;
            match frame {
                Some(Ok(frame)) => self.take(frame)?,
                Some(Err(error)) => {
                    return Err(Box::new(Refusal::new(&reason::MALFORMED_REQUEST, format!("the request broke off: {error}"))));
                }
                None => self.ended = true,
            }
        }
        if self.admitted.get().is_none() { self.see(None) } else { Ok(()) }
    }

    fn take(&mut self, frame: Frame<Bytes>) -> Result<(), Box<Refusal>> {
        let Ok(mut data) = frame.into_data() else {
            // A request has no trailers that mean anything.
            return Ok(());
        };
        while !data.is_empty() || !self.part.is_empty() {
            if self.part.is_empty() {
                let Some(whole) = whole(&data)? else {
                    self.part.extend_from_slice(&data);
                    return Ok(());
                };
                let message = data.split_to(whole);
                self.look_into(&message[HEAD..])?;
                self.passed.push_back(message);
            } else {
                let length = self.part.len();
                self.part.extend_from_slice(&data);
                let Some(whole) = whole(&self.part)? else { return Ok(()) };
                // What is beyond this message is not copied a second time.
                let rest = data.split_off(whole - length);
                data = rest;
                self.part.truncate(whole);
                let message = std::mem::take(&mut self.part).freeze();
                self.look_into(&message[HEAD..])?;
                self.passed.push_back(message);
            }
        }
        Ok(())
    }

    fn look_into(&mut self, message: &[u8]) -> Result<(), Box<Refusal>> {
        let named = text_at(message, &self.check.need.path)
            .map_err(|Broken| Refusal::new(&reason::MALFORMED_REQUEST, "the request is no message of its method"))?;
        self.see(named)
    }

    fn see(&mut self, named: Option<&str>) -> Result<(), Box<Refusal>> {
        let named = named.filter(|name| !name.is_empty());
        let is_known = match (self.admitted.get(), named) {
            // Later messages of a stream need not name it again.
            (Some(_), None) => true,
            (Some(Some(known)), Some(named)) => known.as_str() == named,
            _ => false,
        };
        if is_known {
            return Ok(());
        }
        let or_header = if self.check.need.scope == Scope::Project { named.or(self.header.as_deref()) } else { named };
        let project = match (or_header, self.check.need.scope) {
            (Some(name), _) => Some(ProjectName::parse(name).map_err(|invalid| Refusal::from(invalid.of("project")))?),
            (None, Scope::ProjectOrPlatform) => None,
            (None, _) => {
                let refusal = Refusal::new(&reason::MISSING_FIELD, "no project is named");
                return Err(Box::new(refusal.field("project").allowed("the name of a project")));
            }
        };
        self.check.admit(project.as_ref())?;
        self.admitted.get_or_init(|| project);
        Ok(())
    }
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(message) = self.passed.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            if self.ended {
                // What is left is no whole message, and is told as what it is.
                let part = std::mem::take(&mut self.part);
                return Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part.freeze()))));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Err(refusal) = self.take(frame) {
                        (self.ended, self.part) = (true, BytesMut::new());
                        self.passed.clear();
                        return Poll::Ready(Some(Err(Status::from(*refusal))));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(Status::unavailable(format!("the request broke off: {error}"))))),
                None => self.ended = true,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.passed.is_empty() && self.part.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The bytes of the message that `data` begins with, head and all; `None` while not all of it is there.
fn whole(data: &[u8]) -> Result<Option<usize>, Box<Refusal>> {
    let Some((head, _)) = data.split_at_checked(HEAD) else { return Ok(None) };
    if head[0] != 0 {
        let refusal = Refusal::new(&reason::NOT_SUPPORTED_YET, "compressed messages are not taken here").field("grpc-encoding");
        return Err(Box::new(refusal.allowed("identity")));
    }
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > MESSAGE_MAX {
        let refusal = Refusal::new(&reason::TOO_LARGE, format!("a message of {length} bytes"));
        return Err(Box::new(refusal.allowed(format!("at most {MESSAGE_MAX} bytes"))));
    }
    Ok(Some(HEAD + length).filter(|whole| *whole <= data.len()))
}

/// What is no protobuf message.
#[derive(Debug, PartialEq, Eq)]
struct Broken;

/// The text of the field that `path` leads to. As every decoder does, it takes the last one where a field comes twice, and joins messages that do.
fn text_at<'a>(mut message: &'a [u8], path: &[u32]) -> Result<Option<&'a str>, Broken> {
    let mut found = None;
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let number = key >> 3;
        let length = match key & 7 {
            0 => {
                varint(&mut message)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).map_err(|_| Broken)?,
            5 => 4,
            _ => return Err(Broken),
        };
        let (value, rest) = message.split_at_checked(length).ok_or(Broken)?;
        message = rest;
        if key & 7 == 2 && path.first().is_some_and(|wanted| u64::from(*wanted) == number) {
            found = match path {
                [_] => Some(std::str::from_utf8(value).map_err(|_| Broken)?),
                [_, within @ ..] => text_at(value, within)?.or(found),
                [] => None,
            };
        }
    }
    Ok(found)
}

fn varint(message: &mut &[u8]) -> Result<u64, Broken> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = message.split_first().ok_or(Broken)?;
        *message = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{EventFilter, IngestRequest, ListRunsRequest, WatchEventsRequest};
    use prost::Message;

    #[test]
    fn a_project_is_found_as_a_decoder_finds_it() {
        let request = ListRunsRequest { project: "vision".to_owned(), page_size: 7, ..ListRunsRequest::default() }.encode_to_vec();
        assert_eq!(text_at(&request, &[1]), Ok(Some("vision")));
        let twice = [request, ListRunsRequest { project: "secret".to_owned(), ..ListRunsRequest::default() }.encode_to_vec()].concat();
        assert_eq!(text_at(&twice, &[1]), Ok(Some("secret")));
        assert_eq!(ListRunsRequest::decode(twice.as_slice()).unwrap().project, "secret");
        // An empty text that is written out takes away the one before it.
        let emptied = [twice, vec![0x0a, 0]].concat();
        assert_eq!(text_at(&emptied, &[1]), Ok(Some("")));
        assert_eq!(ListRunsRequest::decode(emptied.as_slice()).unwrap().project, "");
        assert_eq!(text_at(&[], &[1]), Ok(None));
    }

    #[test]
    fn a_project_within_a_filter_is_found_where_filters_are_joined() {
        let of = |project: &str, run: &str| WatchEventsRequest {
            filter: Some(EventFilter { project: project.to_owned(), run_id: run.to_owned(), ..EventFilter::default() }),
            from_sequence: 9,
            ..WatchEventsRequest::default()
        };
        let joined = [of("vision", "").encode_to_vec(), of("", "abc").encode_to_vec()].concat();
        assert_eq!(text_at(&joined, &[1, 1]), Ok(Some("vision")));
        assert_eq!(WatchEventsRequest::decode(joined.as_slice()).unwrap().filter.unwrap().project, "vision");
    }

    #[test]
    fn what_is_no_message_is_broken_and_never_read_beyond() {
        for broken in [&[0x0a, 5, b'a'][..], &[0x0b], &[0x80], &[0xff; 11], &[0x0a, 2, 0xff, 0xfe], &[0x09, 1, 2]] {
            assert_eq!(text_at(broken, &[1]), Err(Broken), "{broken:?}");
        }
        let request = IngestRequest { project: "vision".to_owned(), run_id: "x".repeat(300), n: 1 << 60, ..IngestRequest::default() };
        let whole = request.encode_to_vec();
        for cut in 0..whole.len() {
            // Cut anywhere, it is read or refused.
            let _ = text_at(&whole[..cut], &[1]);
        }
    }
}
