//! The labels of one series: their text, which every scrape copies, and the pairs for formats that are not text.

use std::borrow::Cow;
use std::sync::Arc;

type Pair = (Cow<'static, str>, Cow<'static, str>);

/// Labels sorted by name. A page has thousands of such sets, so they share the pairs of a common base.
#[derive(Debug, Clone)]
pub struct Labels {
    series: Box<str>,
    base: Option<Arc<Labels>>,
    /// The pairs that these labels add to `base`, in the order given.
    own: Box<[Pair]>,
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.series == other.series
    }
}

impl Eq for Labels {}

impl Labels {
    /// Labels from pairs. Names must be valid and distinct; values may be any text.
    #[must_use]
    pub fn new<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let owned = |text: &str| Cow::Owned(text.to_owned());
        Self::build(
            None,
            pairs.into_iter().map(|(name, value)| (owned(name.as_ref()), owned(value.as_ref()))).collect(),
        )
    }

    /// The labels of `base` and further labels.
    #[must_use]
    pub fn extend<K, V>(base: &Arc<Self>, more: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<Cow<'static, str>>,
        V: Into<Cow<'static, str>>,
    {
        let own = more.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self::build(Some(Arc::clone(base)), own)
    }

    /// These labels and one more.
    #[cfg(test)]
    pub(crate) fn with(&self, name: &'static str, value: &'static str) -> Self {
        Self::extend(&Arc::new(self.clone()), [(name, value)])
    }

    fn build(base: Option<Arc<Self>>, own: Box<[Pair]>) -> Self {
        let mut labels = Self { series: Box::default(), base, own };
        labels.series = series_text(&labels.pairs());
        labels
    }

    /// All pairs, sorted by name.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        let (mut all, mut part) = (Vec::with_capacity(8), Some(self));
        while let Some(labels) = part {
            all.extend(labels.own.iter().map(|(name, value)| (&**name, &**value)));
            part = labels.base.as_deref();
        }
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// The labels as text, `{a="1",b="2"} ` with escaped values. A space if there are no labels.
    #[must_use]
    pub fn series(&self) -> &str {
        &self.series
    }

    /// Like [`Labels::series`], but it ends before the bound of a bucket: `{a="1",b="2",le="`. In two parts, so that
    /// nothing is copied.
    #[must_use]
    pub fn bucket(&self) -> [&str; 2] {
        match self.series.strip_suffix("} ") {
            Some(labels) => [labels, ",le=\""],
            None => ["", "{le=\""],
        }
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self::build(None, Box::default())
    }
}

fn series_text(pairs: &[(&str, &str)]) -> Box<str> {
    let length = |(name, value): &(&str, &str)| name.len() + value.len() + r#",="""#.len();
    // The capacity is exact unless a value is escaped.
    let mut text = String::with_capacity(pairs.iter().map(length).sum::<usize>() + 2);
    for (name, value) in pairs {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        escape(value, &mut text);
        text.push('"');
    }
    text.push_str(if text.is_empty() { " " } else { "} " });
    text.into_boxed_str()
}

fn escape(value: &str, text: &mut String) {
    if !value.contains(['\\', '"', '\n']) {
        text.push_str(value);
        return;
    }
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_escaped() {
        let base = Arc::new(Labels::new([("version", "1"), ("model", "a\"b\\c\nd")]));
        let labels = Labels::extend(&base, [("request_type", "max")]);
        assert_eq!(labels.series(), r#"{model="a\"b\\c\nd",request_type="max",version="1"} "#);
        assert_eq!(labels.bucket().concat(), r#"{model="a\"b\\c\nd",request_type="max",version="1",le=""#);
        assert_eq!((Labels::default().series(), &*Labels::default().bucket().concat()), (" ", "{le=\""));
    }

    #[test]
    fn pairs_are_sorted_and_unescaped() {
        let given = [("a", r#"x\"} ,b="y"#), ("b", "line\nline\\n"), ("c", ""), ("d", "é")];
        let labels = Arc::new(Labels::new(given.into_iter().rev()));
        assert_eq!(labels.pairs(), given);
        let extended = Labels::extend(&Arc::new(Labels::extend(&labels, [("e", "1")])), [("aa", "2")]);
        let names: Vec<&str> = extended.pairs().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "aa", "b", "c", "d", "e"]);
        assert_eq!(Labels::default().pairs(), []);
    }
}
