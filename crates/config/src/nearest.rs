//! Finds the known word that was probably meant.

/// The known word that is most like `word`, if one is.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    fn the_nearest_word_is_named_if_it_is_near() {
        let known = ["source", "model", "version", "objectives"];
        for (word, meant) in [("sorce", "source"), ("Model", "model"), ("modle", "model"), ("objective", "objectives")]
        {
            assert_eq!(nearest(word, known), Some(meant));
        }
        assert_eq!(remedy("speed", &known), "use one of source, model, version, objectives");
    }
}
