//! Where a redirect leads. A client follows it once, and only on the same server: a token must not go to another one.

use http::header::LOCATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode, Uri};

/// What a redirect names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The same server, and the path there.
    Here(PathAndQuery),
    /// An address that is not followed, without user, password and query.
    Elsewhere(String),
}

/// Paths whose reading removes statistics from the server. A redirect from another path must not cause that.
const DRAINING: [&str; 3] = ["/metrics", "/perf_metrics", "/kv_cache_events"];

/// The redirect in an answer to a read of `from`. `None` if the answer is not a redirect.
pub(super) fn redirect(from: &Uri, status: StatusCode, headers: &HeaderMap) -> Option<Redirect> {
    if !matches!(status.as_u16(), 301..=303 | 307 | 308) {
        return None;
    }
    let location = headers.get(LOCATION)?.to_str().ok()?;
    let location = location.split('#').next().unwrap_or_default();
    let to = resolve(from, location);
    let here = to.filter(|to| is_same_server(from, to) && !drains_more(from, to));
    Some(match here.as_ref().and_then(Uri::path_and_query) {
        Some(path) => Redirect::Here(path.clone()),
        None => Redirect::Elsewhere(without_secrets(location)),
    })
}

fn resolve(from: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let is_absolute = location.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
    let text = match location {
        _ if is_absolute => location.to_owned(),
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ if location.starts_with('?') => format!("{scheme}://{authority}{}{location}", from.path()),
        // Such a path is legal and rare. The error names it, and it is not followed.
        _ if location.split('/').any(|part| part.starts_with('.')) => return None,
        _ => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{location}")
        }
    };
    text.parse().ok()
}

fn is_same_server(one: &Uri, other: &Uri) -> bool {
    let key = |uri: &Uri| {
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let scheme = uri.scheme_str()?.to_owned();
        let port = super::server::port_of(authority).ok()?.unwrap_or(if scheme == "https" { 443 } else { 80 });
        Some((scheme, authority.host().to_ascii_lowercase(), port))
    };
    key(one).is_some_and(|key_of_one| Some(key_of_one) == key(other))
}

fn drains_more(from: &Uri, to: &Uri) -> bool {
    let (from, to) = (from.path().trim_end_matches('/'), to.path().trim_end_matches('/'));
    from != to && DRAINING.iter().any(|path| to.ends_with(path)) && !to.ends_with("/prometheus/metrics")
}

/// The address without what may be secret: user, password and query.
fn without_secrets(location: &str) -> String {
    let (address, query) = location.split_once('?').map_or((location, ""), |(address, _)| (address, "?…"));
    let host_at = address.find("//").map_or(0, |at| at + 2);
    let (scheme, rest) = address.split_at(host_at);
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => rest.to_owned(),
    };
    let text: String =
        format!("{scheme}{rest}{query}").chars().filter(|letter| !letter.is_control()).take(200).collect();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, location: &str) -> Option<Redirect> {
        let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
        let from = Uri::from_static("http://gpu7:8000/base/version");
        redirect(&from, StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn a_redirect_on_the_same_server_has_a_path_and_any_other_is_told_without_secrets() {
        for (location, path) in [
            ("/base/version/", "/base/version/"),
            ("http://gpu7:8000/v2/version", "/v2/version"),
            ("http://GPU7:8000/x?a=b#c", "/x?a=b"),
            ("//gpu7:8000/x", "/x"),
            ("other", "/base/other"),
            ("?page=2", "/base/version?page=2"),
        ] {
            assert_eq!(of(307, location), Some(Redirect::Here(path.parse().unwrap())), "{location}");
        }
        for (location, told) in [
            ("http://gpu8:8000/version", "http://gpu8:8000/version"),
            ("https://gpu7:8000/version", "https://gpu7:8000/version"),
            ("http://gpu7/version", "http://gpu7/version"),
            ("//login.example/", "//login.example/"),
            ("http://u:hunter2@gpu7:8000/version", "http://…@gpu7:8000/version"),
            ("https://login.example/?token=hunter2", "https://login.example/?…"),
            ("../version", "../version"),
            ("mailto:x", "mailto:x"),
            // Such a read would take statistics from the engine.
            ("/metrics", "/metrics"),
            ("/base/perf_metrics/", "/base/perf_metrics/"),
        ] {
            assert_eq!(of(302, location), Some(Redirect::Elsewhere(told.to_owned())), "{location}");
        }
    }

    #[test]
    fn only_five_statuses_are_redirects() {
        for status in [301, 302, 303, 307, 308] {
            assert!(matches!(of(status, "/x"), Some(Redirect::Here(_))), "{status}");
        }
        for status in [200, 300, 304, 305, 404, 503] {
            assert_eq!(of(status, "/x"), None, "{status}");
        }
    }
}
