//! The name of an engine, which becomes the labels of its series.

use super::objectives::Objectives;

/// The identity of an engine: the labels of its series, and the objectives that its users were promised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineName {
    pub model: String,
    pub version: String,
    /// Static labels from the configuration, and those of the engine's pod, which tell replicas apart. Their names are valid and differ
    /// from the exporter's own.
    pub labels: Vec<(String, String)>,
    /// The kind of source, e.g. `trtllm-serve`; never a URL.
    pub source: &'static str,
    pub objectives: Objectives,
}

impl EngineName {
    /// An engine without configured labels and objectives.
    #[must_use]
    pub fn new(model: &str, version: &str, source: &'static str) -> Self {
        let (model, version) = (model.to_owned(), version.to_owned());
        Self { model, version, labels: Vec::new(), source, objectives: Objectives::default() }
    }

    /// NAMESPACE/POD of an engine with the label `pod`.
    #[must_use]
    pub fn pod(&self) -> Option<String> {
        pod(self.labels())
    }

    /// The name by which people choose the engine: [`full_name`] with colons.
    #[must_use]
    pub fn full(&self) -> String {
        full_name(":", &self.model, &self.version, self.labels())
    }

    /// The name in texts for people.
    #[must_use]
    pub fn words(&self) -> String {
        full_name(" ", &self.model, &self.version, self.labels())
    }

    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Model and version, and of an engine with the label `pod` also NAMESPACE/POD: `llama:1` or `llama:1:prod/llama-0`.
pub fn full_name<'a>(
    separator: &str,
    model: &str,
    version: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let pod = pod(labels).map_or(String::new(), |pod| format!("{separator}{pod}"));
    format!("{model}{separator}{version}{pod}")
}

fn pod<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let (mut namespace, mut pod) = ("", None);
    for (name, value) in labels {
        match name {
            "namespace" => namespace = value,
            "pod" => pod = Some(value),
            _ => {}
        }
    }
    let slash = if namespace.is_empty() { "" } else { "/" };
    pod.map(|pod| format!("{namespace}{slash}{pod}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_of_an_engine_is_a_part_of_its_name() {
        let mut name = EngineName::new("llama", "1", "trtllm-serve");
        assert_eq!(name.full(), "llama:1");
        name.labels.push(("pod".to_owned(), "llama-0".to_owned()));
        assert_eq!(name.full(), "llama:1:llama-0");
        name.labels.insert(0, ("namespace".to_owned(), "prod".to_owned()));
        assert_eq!((name.full(), name.words()), ("llama:1:prod/llama-0".to_owned(), "llama 1 prod/llama-0".to_owned()));
    }
}
