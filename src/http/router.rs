//! Paths and answers (contract, section 3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};

use crate::exposition::cache::{Cache, Form};
use crate::exposition::negotiate::{self, Encoding, Format};
use crate::exposition::{openmetrics, protobuf, text};
use crate::metrics::catalog::Group;
use crate::metrics::compat::CompatSets;
use crate::metrics::exporter::PageCounts;
use crate::metrics::whole::{PageBuilder, Selection};
use crate::state::State;

use super::{api, landing};

/// What every handler reads.
#[derive(Debug)]
pub struct Site {
    state: Arc<State>,
    pages: PageBuilder,
    counts: Arc<PageCounts>,
    cache: Cache<Selection>,
    telemetry_path: String,
    /// Bytes of the last page, and some.
    page_length: AtomicUsize,
}

/// The routes over `state`.
pub fn router(state: Arc<State>, telemetry_path: &str, compat: CompatSets, counts: Arc<PageCounts>) -> Router {
    let health = health(Arc::clone(&state));
    let site = Arc::new(Site {
        pages: PageBuilder::new(&state, compat),
        state: Arc::clone(&state),
        counts,
        cache: Cache::new(),
        telemetry_path: telemetry_path.to_owned(),
        page_length: AtomicUsize::new(64 << 10),
    });
    let read = MethodFilter::GET.or(MethodFilter::HEAD);
    Router::new()
        .route("/", on(read, landing))
        .route(telemetry_path, on(read, metrics))
        .route(&format!("{telemetry_path}/gateway"), on(read, gateway))
        .with_state(site)
        .merge(api::api(state))
        .merge(health)
}

/// The two routes that say how this process is.
pub fn health(state: Arc<State>) -> Router {
    let read = MethodFilter::GET.or(MethodFilter::HEAD);
    Router::new()
        .route("/healthz", on(read, || async { "ok\n" }))
        .route("/readyz", on(read, async move || ready(&state)))
}

async fn metrics(Shared(site): Shared<Arc<Site>>, request: Request) -> Response {
    match selection(request.uri().query().unwrap_or_default()) {
        Ok(selection) => site.answer(selection, &request),
        Err(unknown) => {
            let known: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
            let text = format!("unknown group {unknown:?} in collect[]; the groups are {}\n", known.join(", "));
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}

async fn gateway(Shared(site): Shared<Arc<Site>>, request: Request) -> Response {
    site.answer(Selection::Gateway, &request)
}

/// 200 once every source has been polled successfully once: never un-ready because of an engine, or the sidecar of a
/// starting engine would take its pod out of service.
fn ready(state: &State) -> Response {
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

async fn landing(Shared(site): Shared<Arc<Site>>) -> Response {
    let page = landing::page(&site.state, &site.telemetry_path);
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

/// The groups of every `collect[]`, or the one that is none.
fn selection(query: &str) -> Result<Selection, String> {
    let mut groups = Vec::new();
    for (_, value) in form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "collect[]") {
        groups.push(Group::from_name(&value).ok_or(value)?);
    }
    Ok(Selection::of(&groups))
}

impl Site {
    fn answer(&self, selection: Selection, request: &Request) -> Response {
        let text_of = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let offer = negotiate::format(text_of(header::ACCEPT));
        let encoding = negotiate::encoding(text_of(header::ACCEPT_ENCODING));
        let form = Form { selection, format: offer.format, encoding };
        let begun = Instant::now();
        let body = self.cache.get(form, self.state.generation(), || self.render(selection, offer.format));
        self.counts.scraped(begun.elapsed());
        let length = body.len();
        // HEAD is answered with the headers of GET, its length included, and no body.
        let mut response =
            Response::new(if request.method() == Method::HEAD { Body::empty() } else { Body::from(body) });
        let headers = response.headers_mut();
        headers.reserve(4);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(offer.content_type));
        headers.insert(header::CONTENT_LENGTH, length.into());
        headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        let packed = match encoding {
            Encoding::Identity => None,
            Encoding::Gzip => Some("gzip"),
            Encoding::Zstd => Some("zstd"),
        };
        if let Some(packed) = packed {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(packed));
        }
        response
    }

    fn render(&self, selection: Selection, format: Format) -> Vec<u8> {
        let page = self.pages.page(&self.state, &self.counts, selection);
        // As long as the last page was: a body is kept while it is new, and what it does not fill with it.
        let whole = selection != Selection::Gateway;
        let room = if whole { self.page_length.load(Ordering::Relaxed) } else { 1 << 10 };
        let mut out = String::with_capacity(room);
        let out = match format {
            Format::Text => {
                text::render(&page, &mut out);
                out.into_bytes()
            }
            Format::OpenMetrics => {
                openmetrics::render(&page, &mut out);
                out.into_bytes()
            }
            Format::Protobuf => {
                let mut out = out.into_bytes();
                if protobuf::render(&page, &mut out).is_err() {
                    tracing::error!("the page could not be written as protobuf");
                }
                out
            }
        };
        if whole {
            // A number grows by a digit now and then.
            self.page_length.store(out.len() + out.len() / 64, Ordering::Relaxed);
        }
        out
    }
}
