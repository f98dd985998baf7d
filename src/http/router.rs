//! Paths and answers (contract, section 3).

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::{MethodFilter, on};
use bytes::Bytes;
use tower::ServiceExt as _;

use crate::metrics::compat::CompatSets;
use crate::metrics::exporter::PageCounts;
use crate::state::State;

use super::api;
use super::handlers::Pages;
use crate::views::page as landing;

/// All that is served on one set of listeners.
#[derive(Debug)]
pub struct Routes {
    pages: Option<Pages>,
    others: Router,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Reply {
    Whole(Bytes),
    Stream(Body),
}

/// The routes over `state`.
pub fn all(state: Arc<State>, telemetry_path: &str, compat: CompatSets, counts: Arc<PageCounts>) -> Routes {
    let read = MethodFilter::GET.or(MethodFilter::HEAD);
    let (of, path) = (Arc::clone(&state), telemetry_path.to_owned());
    let landing =
        async move || ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], landing::page(&of, &path)).into_response();
    let others = Router::new()
        .route("/", on(read, landing))
        .merge(api::api(Arc::clone(&state)))
        .merge(health(Arc::clone(&state)).others);
    Routes { pages: Some(Pages::new(state, telemetry_path, compat, counts)), others }
}

/// The two routes that say how this process is.
pub fn health(state: Arc<State>) -> Routes {
    let read = MethodFilter::GET.or(MethodFilter::HEAD);
    let others = Router::new()
        .route("/healthz", on(read, || async { "ok\n" }))
        .route("/readyz", on(read, async move || ready(&state)));
    Routes { pages: None, others }
}

impl Routes {
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Response<Reply>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        if let Some(page) = self.pages.as_ref().and_then(|pages| pages.answer(&request)) {
            return page.map(Reply::Whole);
        }
        match self.others.clone().oneshot(request.map(Body::new)).await {
            Ok(response) => response.map(Reply::Stream),
        }
    }
}

/// 200 once every source has been polled successfully once: never un-ready because of an engine, or the sidecar of a
/// starting engine would take its pod out of service.
fn ready(state: &State) -> axum::response::Response {
    let missing: Vec<String> = state
        .engines()
        .filter(|(_, snapshot)| !snapshot.source.ready)
        .map(|(name, snapshot)| {
            let why = snapshot.source.last_error.as_deref().unwrap_or("not polled yet");
            format!("{} {} ({}): {why}\n", name.model, name.version, name.source)
        })
        .collect();
    if missing.is_empty() {
        return (StatusCode::OK, "ready\n").into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, missing.concat()).into_response()
}
