//! Ratios of counts that an engine may not report.

/// The part divided by the whole. `None` if a number is absent, the part is negative or the whole is not positive.
#[must_use]
pub fn ratio(part: Option<i64>, whole: Option<i64>) -> Option<f64> {
    let (part, whole) = part.zip(whole)?;
    (part >= 0 && whole > 0).then(|| part as f64 / whole as f64)
}

/// Like [`ratio`], but also `None` if the part exceeds the whole: then the two do not count the same things.
#[must_use]
pub fn share(part: Option<i64>, whole: Option<i64>) -> Option<f64> {
    ratio(part, whole).filter(|share| *share <= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_from_0_to_1_or_absent() {
        assert_eq!((share(Some(4), Some(4)), share(Some(5), Some(4))), (Some(1.0), None));
        assert_eq!(
            (share(Some(-1), Some(4)), ratio(Some(-1), Some(4)), ratio(Some(5), Some(4))),
            (None, None, Some(1.25))
        );
        assert_eq!((ratio(Some(1), Some(0)), ratio(Some(1), Some(4))), (None, Some(0.25)));
    }
}
