//! Which format and encoding a reader asked for, from its headers. Pure; built from what real scrapers send.

/// Formats of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics text 1.0.0.
    OpenMetrics,
}

/// Content encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    Identity,
    Gzip,
}

/// The format with the highest `q` that we have; the earlier one in the header between equals. Text 0.0.4 without
/// `Accept`, for `*/*`, and for anything we do not have: the gateway's picker and AIPerf parse nothing else.
#[must_use]
pub fn format(accept: Option<&str>) -> Format {
    let mut best = (Format::Text, 0.0);
    for range in accept.unwrap_or_default().split(',') {
        let (media_type, parameters) = range.split_once(';').unwrap_or((range, ""));
        let (mut q, mut version) = (1.0, None);
        for (name, value) in parameters.split(';').filter_map(|parameter| parameter.split_once('=')) {
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => q = value.trim().parse().unwrap_or(0.0),
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        let format = match media_type.trim().to_ascii_lowercase().as_str() {
            "application/openmetrics-text" if matches!(version, None | Some("1.0.0")) => Format::OpenMetrics,
            "text/plain" if matches!(version, None | Some("0.0.4")) => Format::Text,
            "*/*" | "text/*" => Format::Text,
            _ => continue,
        };
        if q > best.1 {
            best = (format, q);
        }
    }
    best.0
}

/// gzip where it is accepted, by name or by `*`, with a `q` above 0.
#[must_use]
pub fn encoding(accept_encoding: Option<&str>) -> Encoding {
    let mut any = None;
    for coding in accept_encoding.unwrap_or_default().split(',') {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let q = parameters.split_once('=').map_or(1.0, |(_, q)| q.trim().parse().unwrap_or(0.0));
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => {
                return if q > 0.0 { Encoding::Gzip } else { Encoding::Identity };
            }
            "*" => any = Some(q),
            _ => {}
        }
    }
    if any.is_some_and(|q| q > 0.0) { Encoding::Gzip } else { Encoding::Identity }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_scrapers_get_what_they_ask_for() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let with_protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1";
        for accept in [prometheus_2, prometheus_3, with_protobuf] {
            assert_eq!(format(Some(accept)), Format::OpenMetrics, "{accept}");
        }
        for accept in [None, Some("*/*"), Some("text/plain"), Some("text/html,*/*;q=0.8"), Some(""), Some("\u{7f};;q=")]
        {
            assert_eq!(format(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn q_decides_and_0_refuses() {
        assert_eq!(format(Some("application/openmetrics-text;q=0.1, text/plain;q=0.9")), Format::Text);
        assert_eq!(format(Some("application/openmetrics-text;q=0, */*;q=0.1")), Format::Text);
        assert_eq!(format(Some("application/openmetrics-text; version=0.0.1")), Format::Text);
    }

    #[test]
    fn gzip_only_where_accepted() {
        assert_eq!(encoding(Some("gzip, deflate")), Encoding::Gzip);
        assert_eq!(encoding(Some("deflate, *;q=0.5")), Encoding::Gzip);
        assert_eq!(encoding(Some("gzip;q=0, *")), Encoding::Identity);
        assert_eq!(encoding(Some("identity")), Encoding::Identity);
        assert_eq!(encoding(None), Encoding::Identity);
    }
}
