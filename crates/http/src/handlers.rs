//! One handler per path. Handlers read the state and never wait for an engine or a GPU.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;

use crate::views::api::{self, InvalidQuery};
use crate::views::html::HtmlPage;
use trtllm_engines::State;
use trtllm_page::exposition::negotiate::{self, Encoding};
use trtllm_page::metrics::catalog::Group;
use trtllm_page::metrics::page_builder::Selection;
use trtllm_page::pages::Pages;
use trtllm_service::supervise::Heartbeats;

/// The metrics page, or the groups that `collect[]` names.
pub(super) async fn metrics(Shared(pages): Shared<Arc<Pages>>, request: Request) -> Response {
    match selection(request.uri().query().unwrap_or_default()) {
        Ok(selection) => scrape(&pages, selection, request.headers()),
        Err(unknown) => {
            let known: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
            let text = format!("unknown group {unknown:?} in collect[]; the groups are {}\n", known.join(", "));
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}

/// The page that a Kubernetes gateway reads.
pub(super) async fn gateway(Shared(pages): Shared<Arc<Pages>>, request: Request) -> Response {
    scrape(&pages, Selection::Gateway, request.headers())
}

/// 200 while the exporter's own tasks make progress. Failures of engines and GPUs do not change it.
pub(super) fn healthy(heartbeats: &Heartbeats) -> Response {
    match heartbeats.stalled() {
        None => "ok\n".into_response(),
        Some(task) => (StatusCode::SERVICE_UNAVAILABLE, format!("{task} makes no progress\n")).into_response(),
    }
}

/// 200 once every source was polled successfully once. The body lists problems that occurred later.
pub(super) async fn ready(Shared(state): Shared<Arc<State>>) -> Response {
    match api::not_ready(&state) {
        None => format!("ready\n{}", api::current_problems(&state)).into_response(),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing).into_response(),
    }
}

/// The page for people.
pub(super) fn html_page(page: &HtmlPage) -> Response {
    let headers = [(header::CONTENT_SECURITY_POLICY, page.policy.as_str())];
    (headers, Html(page.html.clone())).into_response()
}

impl IntoResponse for InvalidQuery {
    fn into_response(self) -> Response {
        let Self { parameter, error, status } = self;
        (status, json(json!({"parameter": parameter, "error": error}).to_string())).into_response()
    }
}

pub(super) fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}

fn scrape(pages: &Pages, selection: Selection, request: &HeaderMap) -> Response {
    let offer = negotiate::format(list(request, header::ACCEPT).as_deref());
    let encoding = negotiate::encoding(list(request, header::ACCEPT_ENCODING).as_deref());
    let mut response = Response::new(pages.scrape(selection, offer.format, encoding).into());
    let headers = response.headers_mut();
    headers.reserve(4);
    headers.extend(HeaderValue::try_from(offer.content_type()).map(|value| (header::CONTENT_TYPE, value)));
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    match encoding {
        Encoding::Identity => {}
        Encoding::Gzip => _ = headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip")),
        Encoding::Zstd => _ = headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("zstd")),
    }
    response
}

/// The value of a list header, whose elements may be spread over several header lines.
fn list(headers: &HeaderMap, name: HeaderName) -> Option<Cow<'_, str>> {
    let mut lines = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let first = Cow::Borrowed(lines.next()?);
    Some(lines.fold(first, |list, line| format!("{list},{line}").into()))
}

/// The groups of all `collect[]` parameters. Fails with the name of the first unknown group.
fn selection(query: &str) -> Result<Selection, String> {
    let mut groups = Vec::new();
    for (_, value) in form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "collect[]") {
        groups.push(Group::from_name(&value).ok_or(value)?);
    }
    Ok(Selection::of(&groups))
}
