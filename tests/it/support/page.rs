//! A parsed text page: the series in page order, exactly as they are written, with their values.

use std::collections::BTreeSet;

/// A parsed page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// `name{labels}` and value, in page order.
    pub(crate) series: Vec<(String, f64)>,
    /// Family and type, in page order.
    pub(crate) families: Vec<(String, String)>,
}

impl Page {
    /// Parses text 0.0.4 or OpenMetrics, without timestamps.
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').expect("a type");
                page.families.push((name.to_owned(), kind.to_owned()));
            } else if !line.starts_with('#') {
                // An exemplar follows " # ".
                let line = line.split(" # {").next().unwrap_or(line);
                let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line:?}"));
                let value = value.parse().unwrap_or_else(|error| panic!("{error}: {line:?}"));
                page.series.push((series.to_owned(), value));
            }
        }
        page
    }

    /// The value of the only series with this name and these labels (`label=value`). The series may have further
    /// labels.
    pub(crate) fn find(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let mut found = self.series.iter().filter(|(series, _)| is(series, name, labels)).map(|(_, value)| *value);
        let first = found.next()?;
        assert!(found.next().is_none(), "{name} {labels:?} is more than one series");
        Some(first)
    }

    /// Like [`Page::find`], but panics if the series is not on the page.
    pub(crate) fn get(&self, name: &str, labels: &[&str]) -> f64 {
        self.find(name, labels).unwrap_or_else(|| panic!("{name} {labels:?} is not on the page"))
    }

    /// Like [`Page::get`], but panics if the value is not a whole number.
    pub(crate) fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let value = self.get(name, labels);
        assert!(value >= 0.0 && value.fract() == 0.0, "{name} {labels:?} is {value}");
        value as u64
    }

    /// Number of requests and connections that were refused for this reason.
    pub(crate) fn refused(&self, reason: &str) -> u64 {
        self.count("trtllm_exporter_http_refused_total", &[&format!("reason={reason}")])
    }

    /// The state of the engine: the label whose `nv_trt_llm_engine_state` is 1.
    pub(crate) fn state(&self, labels: &[&str]) -> String {
        let states = ["starting", "busy", "idle", "stalled", "unreachable"];
        let on = states.into_iter().filter(|state| {
            let state = format!("state={state}");
            let labels: Vec<&str> = labels.iter().copied().chain([state.as_str()]).collect();
            self.get("nv_trt_llm_engine_state", &labels) == 1.0
        });
        let on: Vec<&str> = on.collect();
        assert_eq!(on.len(), 1, "{on:?}");
        on[0].to_owned()
    }

    /// Every series of counters and histograms: the values that must never decrease.
    pub(crate) fn totals(&self) -> Vec<(&str, f64)> {
        let counted: BTreeSet<&str> = self
            .families
            .iter()
            .filter(|(_, kind)| kind == "counter" || kind == "histogram")
            .map(|(family, _)| family.as_str())
            .collect();
        let total = |series: &str| {
            let name = name_of(series);
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            counted.contains(name) || histogram.is_some_and(|family| counted.contains(family))
        };
        self.series
            .iter()
            .filter(|(series, _)| total(series))
            .map(|(series, value)| (series.as_str(), *value))
            .collect()
    }

    /// Panics if a total of `before` is lower or missing on this page.
    pub(crate) fn never_below(&self, before: &Self) {
        let now: std::collections::BTreeMap<&str, f64> = self.totals().into_iter().collect();
        for (series, old) in before.totals() {
            let new = now.get(series).unwrap_or_else(|| panic!("{series} has left the page"));
            assert!(*new >= old, "{series} decreased from {old} to {new}");
        }
    }
}

/// The name in `name{labels}`.
pub(crate) fn name_of(series: &str) -> &str {
    series.split('{').next().unwrap_or(series)
}

fn is(series: &str, name: &str, labels: &[&str]) -> bool {
    let Some(rest) = series.strip_prefix(name) else { return false };
    (rest.is_empty() || rest.starts_with('{'))
        && labels.iter().all(|label| {
            let (label, value) = label.split_once('=').expect("label=value");
            [format!("{{{label}=\"{value}\""), format!(",{label}=\"{value}\"")].iter().any(|pair| rest.contains(pair))
        })
}
