//! Every path and its handler, and the limits that apply to every request, as layers of tower and tower-http.
#![allow(clippy::result_large_err, reason = "tower-http wants a refusal as an Err")]

use std::fmt;
use std::future::ready;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use axum::error_handling::HandleErrorLayer;
use axum::extract::{RawQuery, Request, State as Shared};
use axum::http::uri::Authority;
use axum::http::{StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use axum::{BoxError, Router};
use tokio::sync::Semaphore;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;

use crate::views::api::{self, InvalidQuery};
use crate::views::html::HtmlPage;
use trtllm_engines::State;
use trtllm_page::metrics::catalog::Profile;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::{HttpMetrics, HttpRefusal};
use trtllm_page::pages::Pages;
use trtllm_service::supervise::Heartbeats;

use super::handlers;

/// Path of trtllm-serve's own Prometheus page.
const TRTLLM_SERVE_PATH: &str = "/prometheus/metrics";

/// Every browser requests this path.
const FAVICON_PATH: &str = "/favicon.ico";

/// Limit of a request's body in bytes. No handler reads a body, so a longer one is refused without reading it.
const MAX_BODY: usize = 64 << 10;

/// Options of the command line that the routes need.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    pub telemetry_path: TelemetryPath,
    pub compat: CompatSets,
    pub profile: Profile,
    /// Limit of the requests that are handled at once; 0 means no limit. Requests for health do not count.
    pub max_requests: usize,
    /// The host names that clients may use. Empty: all names.
    pub allowed_hosts: Vec<AllowedHost>,
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
                "the path must begin with /, must not be /, /healthz, /readyz, /favicon.ico or below /api/, and must need no escapes; correct it",
            );
        }
        Ok(Self(path.to_owned()))
    }
}

/// A host name that clients may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost(String);

impl FromStr for AllowedHost {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_part) {
            return Err("this is not the name of a host; write it without port and path, as in exporter.example.org");
        }
        Ok(Self(name.trim_end_matches('.').to_ascii_lowercase()))
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
    let RouterOptions { telemetry_path, compat, profile, max_requests, allowed_hosts } = options;
    let pages_with = |compat| Arc::new(Pages::new(Arc::clone(state), compat, profile, Arc::clone(metrics)));
    // The path may have segments that begin with `:`, which axum 0.7 took for parameters.
    let pages = Router::new().without_v07_checks().route(&format!("{telemetry_path}/gateway"), get(handlers::gateway));
    let pages = match telemetry_path.0 == TRTLLM_SERVE_PATH {
        true => pages,
        false => pages.route(&telemetry_path.0, get(handlers::metrics)),
    };
    // Tools made for trtllm-serve read this path, even if it is that of the metrics page.
    let of_trtllm_serve = Router::new()
        .route(TRTLLM_SERVE_PATH, get(handlers::metrics))
        .with_state(pages_with(CompatSets { trtllm: true, ..compat }));
    let pages = pages.with_state(pages_with(compat)).merge(of_trtllm_serve);
    let page = HtmlPage::new(&telemetry_path.0);
    let views = Router::new()
        .route("/", get(async move || handlers::html_page(&page)))
        .route(FAVICON_PATH, get(async || StatusCode::NO_CONTENT))
        .route("/api/v1/engines", json(api::engines))
        .route("/api/v1/iterations", json_of_query(api::iterations))
        .route("/api/v1/history", json_of_query(api::history))
        .route("/api/v1/findings", json(|state| api::findings(state).to_string()))
        .route("/api/v1/gpus", json(|state| api::gpus(state).to_string()))
        .route("/api/v1/model", json_of_query(|state, query| Ok(api::model(state, query)?.to_string())))
        .route("/api/v1/discovery", json(|state| api::discovery(state).to_string()))
        .with_state(Arc::clone(state));
    let restricted = restrict_hosts(pages.merge(views), allowed_hosts, Arc::clone(metrics));
    let limited_routes = limit_requests(restricted, max_requests, Arc::clone(metrics));
    // Probes must get an answer even if the server is busy.
    limited(limited_routes.merge(health_routes(state, heartbeats)), Arc::clone(metrics))
}

/// A route whose answer needs only the state.
fn json(view: fn(&State) -> String) -> MethodRouter<Arc<State>> {
    get(async move |Shared(state): Shared<Arc<State>>| handlers::json(view(&state)))
}

/// A route whose answer also needs the query of the URL.
fn json_of_query(view: fn(&State, &str) -> Result<String, InvalidQuery>) -> MethodRouter<Arc<State>> {
    get(async move |Shared(state): Shared<Arc<State>>, RawQuery(query): RawQuery| {
        view(&state, &query.unwrap_or_default()).map(handlers::json)
    })
}

/// Only the routes for health checks.
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

/// The layers for all routes.
fn limited(routes: Router, metrics: Arc<HttpMetrics>) -> Router {
    // One stack, outermost layer first: each call of `Router::layer` would box every request and response again.
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(RequestBodyLimitLayer::new(MAX_BODY))
        .layer(ValidateRequestHeaderLayer::custom(move |request: &mut Request<_>| require_host(&metrics, request)));
    routes.layer(stack)
}

/// At most `limit` requests are handled at once, and further ones are refused; 0 means no limit. A request no longer counts
/// when its response is ready: unread responses have a limit of their own.
fn limit_requests(routes: Router, limit: usize, metrics: Arc<HttpMetrics>) -> Router {
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

/// Refuses requests with another host name than those of `allowed`; all names are allowed if there are none. A page of the
/// internet can make a browser read a server in its network (DNS rebinding). Such a request has the page's own name.
fn restrict_hosts(routes: Router, allowed: Vec<AllowedHost>, metrics: Arc<HttpMetrics>) -> Router {
    if allowed.is_empty() {
        return routes;
    }
    let check = move |request: &mut Request<_>| require_allowed_host(&allowed, &metrics, request);
    routes.layer(ValidateRequestHeaderLayer::custom(check))
}

fn require_allowed_host<B>(
    allowed: &[AllowedHost],
    metrics: &HttpMetrics,
    request: &Request<B>,
) -> Result<(), Response> {
    let header = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    // The host of an absolute URL has priority over the header (RFC 9112, 3.2.2).
    let given = request.uri().authority().map(Authority::as_str).or(header);
    // Only HTTP/1.0 allows a request without a host. No browser sends one.
    if given.is_none_or(|given| allowed_host(allowed, given)) {
        return Ok(());
    }
    metrics.refused(HttpRefusal::BadRequest);
    let why = "the host name of this request is not in --web.allowed-hosts; use one of its names, or an IP address\n";
    Err((StatusCode::MISDIRECTED_REQUEST, why).into_response())
}

/// Whether `HOST[:PORT]` may be used. An IP address and `localhost` are always allowed: an attacker cannot own such a name,
/// and Prometheus reads pods by their addresses.
fn allowed_host(allowed: &[AllowedHost], given: &str) -> bool {
    let Ok(authority) = given.parse::<Authority>() else { return false };
    let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address || host == "localhost" || allowed.iter().any(|name| name.0 == host)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_names_localhost_and_addresses_are_allowed() {
        let allowed = ["Exporter.example.org.", "gpu7"].map(|name| name.parse().unwrap());
        for given in [
            "exporter.example.org",
            "EXPORTER.example.org:8002",
            "exporter.example.org.:8002",
            "gpu7:8002",
            "10.0.0.1:8002",
            "[::1]:8002",
            "localhost:8002",
        ] {
            assert!(allowed_host(&allowed, given), "{given}");
        }
        for given in [
            "evil.example",
            "exporter.example.org.evil.example",
            "evil.exporter.example.org",
            "10.0.0.1.evil.example:8002",
            "localhost.evil.example",
            "gpu7@evil.example",
            "",
            "a b",
        ] {
            assert!(!allowed_host(&allowed, given), "{given}");
        }
        for wrong in ["", "http://gpu7", "gpu7:8002", "*.example.org", "a b", "[::1]"] {
            assert!(wrong.parse::<AllowedHost>().is_err(), "{wrong}");
        }
    }
}
