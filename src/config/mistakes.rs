//! Collects the mistakes of a configuration, so that one run names all of them.

use std::fmt;

/// Every mistake that was found. Each is one line that names the place, the problem and the remedy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<(usize, String)>);

impl Mistakes {
    pub fn add(&mut self, mistake: impl fmt::Display) {
        self.add_at(0, mistake);
    }

    /// Adds a mistake on a line of a file, unless it was added before: several checks may find the same mistake.
    pub(super) fn add_at(&mut self, line: usize, mistake: impl fmt::Display) {
        let mistake = (line, mistake.to_string());
        if !self.0.contains(&mistake) {
            self.0.push(mistake);
        }
    }

    /// Sorts the mistakes by their lines in the file.
    pub(super) fn sort(&mut self) {
        self.0.sort_by_key(|(line, _)| *line);
    }

    /// Adds the error as a mistake, or returns the value.
    pub fn take<T, E: fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|mistake| self.add(mistake)).ok()
    }

    /// Adds all mistakes of a part of the configuration, or returns the value of that part.
    pub fn take_all<T>(&mut self, result: Result<T, Self>) -> Option<T> {
        result.map_err(|mistakes| self.0.extend(mistakes.0)).ok()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// `value`, or all mistakes if there are any.
    pub fn unless_any<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl std::error::Error for Mistakes {}

/// One mistake is shown as it is. Several are listed below a line with their number.
impl fmt::Display for Mistakes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [(_, mistake)] => out.write_str(mistake),
            several => {
                write!(out, "{} mistakes:", several.len())?;
                several.iter().try_for_each(|(_, mistake)| write!(out, "\n  {mistake}"))
            }
        }
    }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|name| (strsim::jaro_winkler(&word.to_lowercase(), &name.to_lowercase()), name));
    rated.filter(|(alike, _)| *alike > 0.8).max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

/// What to do about an unknown word.
pub(crate) fn remedy(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("use one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_is_a_line_and_several_are_a_list() {
        let mut mistakes = Mistakes::default();
        assert_eq!(mistakes.clone().unless_any(5), Ok(5));
        mistakes.add("a: wrong; fix it");
        mistakes.add("a: wrong; fix it");
        assert_eq!(mistakes.to_string(), "a: wrong; fix it");
        assert_eq!(mistakes.take(Err::<u8, _>("b: wrong; fix it")), None);
        assert_eq!(mistakes.to_string(), "2 mistakes:\n  a: wrong; fix it\n  b: wrong; fix it");
    }

    #[test]
    fn the_nearest_word_is_named_if_it_is_near() {
        let known = ["source", "model", "version", "objectives"];
        for (word, meant) in [("sorce", "source"), ("Model", "model"), ("modle", "model"), ("objective", "objectives")]
        {
            assert_eq!(nearest(word, known), Some(meant));
        }
        assert_eq!(remedy("speed", &known), "use one of source, model, version, objectives");
    }
}
