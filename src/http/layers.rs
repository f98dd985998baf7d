//! What stands between a connection and the routes, in the toolkit's order: the configuration as it is now, rate limit,
//! headers, password; then room for one more request. Knows no path but those of health.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::exporter::{PageCounts, Refusal};

use super::connections::{ANSWER, Answer, Connection, Connections, Stalled};
use super::handlers::refusal;
use super::router::{Reply, Routes};
use crate::web::basic_auth::{Doorkeeper, Verdict};
use crate::web::rate_limit::Bucket;
use crate::web::reload::Live;

/// A request body nobody reads may be announced up to this length.
const MAX_BODY: u64 = 64 << 10;
/// How long room is sought where somebody who has it takes nothing.
const MAKE_ROOM: Duration = Duration::from_secs(1);
/// A peer that has read all of its answer may ask again before this side has noticed that it left.
const NOTICE: Duration = Duration::from_millis(50);
/// An HTTP/2 answer is handed over in pieces of its own, so that a reader that stops holds one piece and not a page.
const PIECE: usize = 16 << 10;

/// What one set of listeners serves, and on what terms.
#[derive(Debug)]
pub struct Gate {
    pub(super) live: Live,
    pub(super) counts: Arc<PageCounts>,
    pub(super) connections: Arc<Connections>,
    routes: Routes,
    door: Doorkeeper,
    bucket: Bucket,
    /// As many requests for a page are answered at once; `None` is no limit.
    room: Option<Arc<Semaphore>>,
}

impl Gate {
    /// `max_requests` 0 is no limit.
    #[must_use]
    pub fn new(routes: Routes, live: Live, counts: Arc<PageCounts>, max_requests: usize) -> Arc<Self> {
        let room = (max_requests > 0).then(|| Arc::new(Semaphore::new(max_requests.min(Semaphore::MAX_PERMITS))));
        Arc::new(Self {
            live,
            counts,
            connections: Arc::default(),
            routes,
            door: Doorkeeper::new(),
            bucket: Bucket::default(),
            room,
        })
    }

    /// Answers one request of `connection`, come what may.
    pub(super) async fn answer<B>(&self, connection: &Arc<Connection>, request: Request<B>) -> Response<Guarded>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let mut answer = Answer::begin(connection, time_for(request.headers()));
        let head = request.method() == Method::HEAD;
        let mut response = self.respond(&mut answer, request).await;
        // HEAD is answered with the headers of GET, its length included, and no body.
        if head && let Reply::Whole(bytes) = response.body_mut() {
            let length = std::mem::take(bytes).len();
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
        let pieces = connection.speaks_http2();
        response.map(|body| {
            let (body, rest) = match body {
                Reply::Whole(bytes) => (None, bytes),
                Reply::Stream(body) => (Some(body), Bytes::new()),
            };
            Guarded { body, pieces, rest, answer }
        })
    }

    async fn respond<B>(&self, answer: &mut Answer, request: Request<B>) -> Response<Reply>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let Ok(settings) = self.live.settings().await else {
            return self.refuse(StatusCode::INTERNAL_SERVER_ERROR, Refusal::WebConfig);
        };
        // As every other server has it: what stands between could understand such a request otherwise than we do.
        if request.version() == Version::HTTP_11 && request.headers().get_all(header::HOST).iter().count() != 1 {
            return self.refuse(StatusCode::BAD_REQUEST, Refusal::BadRequest);
        }
        if settings.rate.is_some_and(|rate| !self.bucket.allows(rate, Instant::now())) {
            return self.refuse(StatusCode::TOO_MANY_REQUESTS, Refusal::RateLimited);
        }
        let mut response = self.admitted(answer, &settings.users, request).await;
        for (name, value) in &settings.headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }

    async fn admitted<B>(
        &self,
        answer: &mut Answer,
        users: &crate::web::basic_auth::Users,
        request: Request<B>,
    ) -> Response<Reply>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        if !users.is_empty() {
            match self.door.judge(users, request.headers().get(header::AUTHORIZATION)).await {
                Verdict::Welcome => {}
                Verdict::Busy => return self.refuse(StatusCode::SERVICE_UNAVAILABLE, Refusal::Overloaded),
                Verdict::Unauthorized => {
                    let mut response = self.refuse(StatusCode::UNAUTHORIZED, Refusal::Unauthorized);
                    let challenge = HeaderValue::from_static("Basic");
                    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                    return response;
                }
            }
        }
        if request.body().size_hint().exact().is_some_and(|length| length > MAX_BODY) {
            return self.refuse(StatusCode::PAYLOAD_TOO_LARGE, Refusal::BadRequest);
        }
        // Health is asked most when there is no room.
        let health = matches!(request.uri().path(), "/healthz" | "/readyz");
        if let Some(room) = self.room.as_ref().filter(|_| !health && !answer.is_permitted()) {
            match self.room_for_one(room).await {
                Some(permit) => answer.permit(permit),
                None => return self.refuse(StatusCode::SERVICE_UNAVAILABLE, Refusal::Overloaded),
            }
        }
        self.routes.answer(request).await
    }

    /// Leave to be answered, taken if need be from a reader that does not read.
    async fn room_for_one(&self, room: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
            return Some(permit);
        }
        let mut turn = pin!(Arc::clone(room).acquire_owned());
        let begun = Instant::now();
        loop {
            let stalled = self.connections.cut_stalled(&self.counts);
            if let Ok(permit) = tokio::time::timeout(NOTICE, &mut turn).await {
                return permit.ok();
            }
            if stalled == Stalled::Nobody || begun.elapsed() > MAKE_ROOM {
                return None;
            }
        }
    }

    fn refuse(&self, status: StatusCode, reason: Refusal) -> Response<Reply> {
        self.counts.refused(reason);
        plain(status)
    }
}

/// Nobody waits for an answer longer than it says.
fn time_for(headers: &HeaderMap) -> Duration {
    let given = headers.get("x-prometheus-scrape-timeout-seconds").and_then(|value| value.to_str().ok()?.parse().ok());
    let given = given.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    given.map_or(ANSWER, |given| given.clamp(Duration::from_secs(1), ANSWER))
}

fn plain(status: StatusCode) -> Response<Reply> {
    let text = format!("{}\n", status.canonical_reason().unwrap_or_default());
    refusal(status, text.into()).map(Reply::Whole)
}

/// An answer's body.
#[derive(Debug)]
pub(super) struct Guarded {
    /// What is to be asked for more.
    body: Option<Body>,
    pieces: bool,
    /// What is there.
    rest: Bytes,
    answer: Answer,
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let Some(body) = &mut this.body else { return Poll::Ready(None) };
            let frame = std::task::ready!(Pin::new(body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        if !this.pieces {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.rest)))));
        }
        // The last byte goes alone: the answer ends when there is room for it, and by then all others have left.
        let length = this.rest.len().saturating_sub(1).clamp(1, PIECE);
        let piece = this.rest.split_to(length);
        this.answer.moves();
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref().map_or(Some(0), |body| body.size_hint().exact());
        match body {
            Some(length) => SizeHint::with_exact(length + self.rest.len() as u64),
            None => SizeHint::new(),
        }
    }
}
