//! Limits that apply to every request, as layers of tower and tower-http.
#![allow(clippy::result_large_err, reason = "tower-http wants a refusal as an Err")]

use std::future::ready;
use std::sync::Arc;

use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::http::{StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Router};
use tokio::sync::Semaphore;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;

use trtllm_page::metrics::own::{HttpMetrics, HttpRefusal};

/// No handler reads a body; a longer one is refused, not drained.
const MAX_BODY: usize = 64 << 10;

/// The layers for all routes.
pub(super) fn limited(routes: Router, metrics: Arc<HttpMetrics>) -> Router {
    // One stack, first layer first: each call of `Router::layer` would box every request and response again.
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(RequestBodyLimitLayer::new(MAX_BODY))
        .layer(ValidateRequestHeaderLayer::custom(move |request: &mut Request<_>| require_host(&metrics, request)));
    routes.layer(stack)
}

/// At most `limit` requests are handled at once, and further ones are refused; 0 means no limit. A request no longer counts when its
/// response is ready: unread responses have a limit of their own.
pub(super) fn limit_requests(routes: Router, limit: usize, metrics: Arc<HttpMetrics>) -> Router {
    if limit == 0 {
        return routes;
    }
    let refuse = move |_: BoxError| {
        metrics.refused(HttpRefusal::Overloaded);
        ready((StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests\n"))
    };
    let limit = GlobalConcurrencyLimitLayer::new(limit.min(Semaphore::MAX_PERMITS));
    routes.layer(ServiceBuilder::new().layer(HandleErrorLayer::new(refuse)).load_shed().layer(limit))
}

/// HTTP/1.1 requires one `Host` (RFC 9112, 3.2). A proxy in between could understand any other request differently.
fn require_host<B>(metrics: &HttpMetrics, request: &Request<B>) -> Result<(), Response> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    if request.version() == Version::HTTP_11 && hosts != 1 {
        metrics.refused(HttpRefusal::BadRequest);
        return Err((StatusCode::BAD_REQUEST, "a request must have exactly one Host header\n").into_response());
    }
    Ok(())
}
