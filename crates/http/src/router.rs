//! Every path and its handler.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::views::page::HtmlPage;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::pages::Pages;
use trtllm_page::state::State;
use trtllm_service::supervise::Heartbeats;

use super::handlers;
use super::layers::{limit_requests, limited};

/// Path of trtllm-serve's own Prometheus page.
const TRTLLM_SERVE_PATH: &str = "/prometheus/metrics";

/// Every browser asks for it.
const FAVICON_PATH: &str = "/favicon.ico";

/// What the routes need to know of the command line.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    pub telemetry_path: TelemetryPath,
    pub compat: CompatSets,
    /// Requests handled at once, health excepted; 0 means no limit.
    pub max_requests: usize,
}

/// Path of the metrics page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryPath(String);

impl FromStr for TelemetryPath {
    type Err = &'static str;

    fn from_str(path: &str) -> Result<Self, Self::Err> {
        let taken = ["/", "/healthz", "/readyz", FAVICON_PATH].contains(&path) || path.starts_with("/api/");
        // A client would percent-encode any other character, so the route would never match.
        let literal = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()+,;=:@".contains(&byte);
        if !path.starts_with('/') || path.ends_with('/') || !path.bytes().all(literal) || taken {
            return Err(
                "the path must begin with /, must not be /, /healthz, /readyz, /favicon.ico or below /api/, and must need no escapes",
            );
        }
        Ok(Self(path.to_owned()))
    }
}

impl fmt::Display for TelemetryPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// All routes.
pub fn all(
    state: &Arc<State>,
    options: RouterOptions,
    metrics: &Arc<HttpMetrics>,
    heartbeats: &Arc<Heartbeats>,
) -> Router {
    let RouterOptions { telemetry_path, compat, max_requests } = options;
    let all_pages = Arc::new(Pages::new(Arc::clone(state), compat, Arc::clone(metrics)));
    let pages = Router::new()
        // The path may have segments that begin with `:`, which axum 0.7 took for parameters.
        .without_v07_checks()
        .route(&telemetry_path.0, get(handlers::metrics))
        .route(&format!("{telemetry_path}/gateway"), get(handlers::gateway));
    // Where readers of trtllm-serve look, unless it is the path of the metrics page.
    let pages = match telemetry_path.0 == TRTLLM_SERVE_PATH {
        true => pages,
        false => pages.route(TRTLLM_SERVE_PATH, get(handlers::trtllm_serve)),
    };
    let pages = pages.with_state(all_pages);
    let live_page = HtmlPage::new(&telemetry_path.0, state.recorder.get().is_some());
    let views = Router::new()
        .route("/", get(async move || handlers::live_page(&live_page)))
        .route(FAVICON_PATH, get(async || StatusCode::NO_CONTENT))
        .route("/api/v1/engines", get(handlers::engines))
        .route("/api/v1/iterations", get(handlers::iterations))
        .route("/api/v1/history", get(handlers::history))
        .route("/api/v1/findings", get(handlers::findings))
        .route("/api/v1/gpus", get(handlers::gpus))
        .route("/api/v1/model", get(handlers::model))
        .route("/api/v1/discovery", get(handlers::discovery))
        .with_state(Arc::clone(state));
    let limited_routes = limit_requests(pages.merge(views), max_requests, Arc::clone(metrics));
    // Probes must get an answer also when the server is busy.
    limited(limited_routes.merge(health_routes(state, heartbeats)), Arc::clone(metrics))
}

/// Only the health routes.
pub fn health(state: &Arc<State>, metrics: &Arc<HttpMetrics>, heartbeats: &Arc<Heartbeats>) -> Router {
    limited(health_routes(state, heartbeats), Arc::clone(metrics))
}

fn health_routes(state: &Arc<State>, heartbeats: &Arc<Heartbeats>) -> Router {
    let heartbeats = Arc::clone(heartbeats);
    Router::new()
        .route("/healthz", get(async move || handlers::healthy(&heartbeats)))
        .route("/readyz", get(handlers::ready))
        .with_state(Arc::clone(state))
}
