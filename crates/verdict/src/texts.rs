//! Texts that people edit, in documents beside the code that shows them.

/// A document with a section for each name: the heading `## name`, a sentence, and items such as `- **When:** text`.
/// Each text is one line.
#[derive(Debug, Clone, Copy)]
pub struct Texts(pub &'static str);

impl Texts {
    /// The sentence of a section. Empty if the document has no such section, for which a test fails.
    pub fn sentence(self, name: &str) -> &'static str {
        self.lines(name).next().unwrap_or_default()
    }

    /// An item of a section. Empty if the section has no such item.
    pub fn item(self, name: &str, key: &str) -> &'static str {
        let text = |line: &'static str| line.strip_prefix("- **")?.strip_prefix(key)?.strip_prefix(":** ");
        self.lines(name).find_map(text).unwrap_or_default()
    }

    fn lines(self, name: &str) -> impl Iterator<Item = &'static str> {
        let mut sections = self.0.split("\n## ").filter_map(|section| section.split_once('\n'));
        let texts = sections.find(|(heading, _)| *heading == name).map_or("", |(_, texts)| texts);
        texts.lines().filter(|line| !line.is_empty())
    }
}
