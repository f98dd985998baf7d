//! The page and the gateway's: asked for all the time, so they are answered before axum's routes are tried.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};

use crate::exposition::cache::{Cache, Form};
use crate::exposition::negotiate::{self, Encoding, Format};
use crate::exposition::{openmetrics, pack, protobuf, text};
use crate::metrics::catalog::Group;
use crate::metrics::compat::CompatSets;
use crate::metrics::exporter::PageCounts;
use crate::metrics::page::Page;
use crate::metrics::page_builder::{PageBuilder, Section, Selection};
use crate::state::State;

/// What stands under the telemetry path.
#[derive(Debug)]
pub(super) struct Pages {
    state: Arc<State>,
    builder: PageBuilder,
    counts: Arc<PageCounts>,
    cache: Cache<Selection>,
    telemetry_path: String,
}

impl Pages {
    pub(super) fn new(state: Arc<State>, telemetry_path: &str, compat: CompatSets, counts: Arc<PageCounts>) -> Self {
        Self {
            builder: PageBuilder::new(&state, compat),
            state,
            counts,
            cache: Cache::new(),
            telemetry_path: telemetry_path.to_owned(),
        }
    }

    /// The answer to a request for a page; `None` to one for anything else.
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Option<Response<Bytes>> {
        let gateway = match request.uri().path().strip_prefix(self.telemetry_path.as_str())? {
            "" => false,
            "/gateway" => true,
            _ => return None,
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, Bytes::new());
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
            return Some(response);
        }
        let selection = match gateway {
            true => Ok(Selection::Gateway),
            false => selection(request.uri().query().unwrap_or_default()),
        };
        Some(match selection {
            Ok(selection) => self.page(selection, request),
            Err(unknown) => {
                let known: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
                let text = format!("unknown group {unknown:?} in collect[]; the groups are {}\n", known.join(", "));
                refusal(StatusCode::BAD_REQUEST, text.into())
            }
        })
    }

    fn page<B>(&self, selection: Selection, request: &Request<B>) -> Response<Bytes> {
        let (accept, accept_encoding) = (list(request, header::ACCEPT), list(request, header::ACCEPT_ENCODING));
        let offer = negotiate::format(accept.as_deref());
        let encoding = negotiate::encoding(accept_encoding.as_deref());
        let form = Form { selection, format: offer.format, encoding };
        let begun = Instant::now();
        let body = self.cache.get(form, self.state.generation(), || self.sections(selection, offer.format));
        self.counts.scraped(begun.elapsed());
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.reserve(4);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(offer.content_type));
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

    /// What the page is made of in `format`.
    fn sections(&self, selection: Selection, format: Format) -> Vec<pack::Section<impl FnOnce(&mut Vec<u8>)>> {
        let part = |section, version| pack::Section {
            version,
            write: move |out: &mut Vec<u8>| match section {
                Some(section) => {
                    let page = self.builder.section(section, &self.state, &self.counts, selection);
                    write(&page, format, out);
                }
                None => out.extend_from_slice(openmetrics::END.as_bytes()),
            },
        };
        // Versions are read before what they are versions of.
        let engines = part(Some(Section::Engines), Some(self.state.engine_changes()));
        let gpus = part(Some(Section::Gpus), Some(self.state.gpu_changes()));
        let exporter = part(Some(Section::Exporter), None);
        let end = (format == Format::OpenMetrics).then(|| part(None, None));
        [engines, gpus, exporter].into_iter().chain(end).collect()
    }
}

/// Appends the page, but for what ends it.
fn write(page: &Page, format: Format, out: &mut Vec<u8>) {
    if format == Format::Protobuf {
        if protobuf::render(page, out).is_err() {
            tracing::error!("the page could not be written as protobuf");
        }
        return;
    }
    // What is there already is text.
    let mut text = String::from_utf8(std::mem::take(out)).unwrap_or_default();
    match format {
        Format::OpenMetrics => openmetrics::families(page, &mut text),
        Format::Text | Format::Protobuf => text::render(page, &mut text),
    }
    *out = text.into_bytes();
}

/// A header that is a list, which may stand in several lines.
fn list<B>(request: &Request<B>, name: HeaderName) -> Option<Cow<'_, str>> {
    let mut lines = request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
    let first = Cow::Borrowed(lines.next()?);
    Some(lines.fold(first, |list, line| format!("{list},{line}").into()))
}

/// The groups of every `collect[]`, or the one that is none.
fn selection(query: &str) -> Result<Selection, String> {
    let mut groups = Vec::new();
    for (_, value) in form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "collect[]") {
        groups.push(Group::from_name(&value).ok_or(value)?);
    }
    Ok(Selection::of(&groups))
}

/// An answer that is no page: `text` says why.
pub(super) fn refusal(status: StatusCode, text: Bytes) -> Response<Bytes> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
