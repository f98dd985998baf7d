//! Writes numbers as short texts with their unit, and fits texts into a fixed width.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplayUnit {
    Count,
    Seconds,
    /// A share from 0 to 1.
    Share,
}

impl DisplayUnit {
    /// The number with its unit, in at most six columns up to 999 billion. `-` if it is not known.
    #[must_use]
    pub fn text(self, value: impl Into<Option<f64>>) -> String {
        match (self, value.into().filter(|value| value.is_finite())) {
            (_, None) => "-".to_owned(),
            (Self::Count, Some(value)) => count(value),
            (Self::Seconds, Some(value)) => seconds(value),
            (Self::Share, Some(value)) => format!("{}%", digits(value * 100.0)),
        }
    }
}

/// Whole numbers below 10000 are exact.
fn count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 10_000.0 {
        return format!("{value:.0}");
    }
    let scaled = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match scaled.into_iter().find(|(size, _)| value.abs() >= *size * 0.9995) {
        Some((size, letter)) if value.abs() >= 9_999.5 => format!("{}{letter}", digits(value / size)),
        _ if value.abs() >= 100.0 => format!("{value:.0}"),
        _ => digits(value),
    }
}

fn seconds(value: f64) -> String {
    match value {
        value if value <= 0.0 => "0s".to_owned(),
        value if value < 0.000_999_5 => format!("{}µs", digits(value * 1e6)),
        value if value < 0.999_5 => format!("{}ms", digits(value * 1e3)),
        value => format!("{}s", digits(value)),
    }
}

/// Three digits, or more if there are more before the decimal point.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The text in exactly `columns` columns: cut with `…`, or padded on the right.
#[must_use]
pub fn left(text: &str, columns: usize) -> String {
    let cut = cut(text, columns);
    let padding = columns.saturating_sub(cut.width());
    cut + &" ".repeat(padding)
}

/// The text in exactly `columns` columns: cut with `…`, or padded on the left.
#[must_use]
pub fn right(text: &str, columns: usize) -> String {
    let cut = cut(text, columns);
    " ".repeat(columns.saturating_sub(cut.width())) + &cut
}

/// The text, cut if it is wider than `columns`.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 1);
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used > columns {
            break;
        }
        kept.push(character);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_whole_numbers_below_10000_are_exact() {
        for (unit, value, text) in [
            (DisplayUnit::Count, 0.0, "0"),
            (DisplayUnit::Count, 9999.0, "9999"),
            (DisplayUnit::Count, 10_000.0, "10.0k"),
            (DisplayUnit::Count, 999_960.0, "1.00M"),
            (DisplayUnit::Count, 1.234e9, "1.23G"),
            (DisplayUnit::Count, 0.333, "0.33"),
            (DisplayUnit::Count, 1234.5, "1234"),
            (DisplayUnit::Count, 9999.7, "10.0k"),
            (DisplayUnit::Seconds, 0.0, "0s"),
            (DisplayUnit::Seconds, 0.000_012_3, "12.3µs"),
            (DisplayUnit::Seconds, 0.999_9, "1.00s"),
            (DisplayUnit::Seconds, 0.0123, "12.3ms"),
            (DisplayUnit::Seconds, 83.25, "83.2s"),
            (DisplayUnit::Share, 1.0, "100%"),
            (DisplayUnit::Share, 0.057, "5.70%"),
            (DisplayUnit::Share, 0.0, "0%"),
        ] {
            assert_eq!(unit.text(value), text, "{unit:?} {value}");
        }
    }

    #[test]
    fn a_text_has_the_width_of_its_column() {
        assert_eq!((left("ab", 4), right("ab", 4)), ("ab  ".to_owned(), "  ab".to_owned()));
        assert_eq!(cut("abcdef", 4), "abc…");
        // Each of these characters takes two columns.
        assert_eq!((cut("模型模型", 4), left("模型模型", 4)), ("模…".to_owned(), "模… ".to_owned()));
        assert_eq!(cut("abc", 0), "");
    }
}
