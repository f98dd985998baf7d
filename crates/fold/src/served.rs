//! The times by which objectives judge a finished request.

use super::request_times::{Answer, Times, between};

/// The times of a finished request in seconds, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Served {
    pub time_to_first_token: Option<f64>,
    /// Seconds from the first to the last token. The tokens in `skipped` came before, but after the first one.
    pub decode: Option<f64>,
    pub skipped: u64,
    pub e2e: Option<f64>,
    pub output_tokens: Option<u64>,
    /// The request timed out or has failed.
    pub failed: bool,
}

impl Served {
    /// The times of a request that one engine served.
    #[must_use]
    pub fn of(times: &Times, output_tokens: Option<u64>) -> Self {
        let answer = Answer { first: times.first_token, ended: times.ended, skipped: 0 };
        Self::of_answer(times.in_order().and(times.arrived), &answer, output_tokens)
    }

    /// The times of a request that arrived at one engine and whose tokens another engine sent. A time is absent if it is negative,
    /// which shows that the clocks differ.
    #[must_use]
    pub fn of_answer(arrived: Option<f64>, answer: &Answer, output_tokens: Option<u64>) -> Self {
        Self {
            time_to_first_token: between(arrived, answer.first),
            decode: between(answer.first, answer.ended),
            skipped: answer.skipped,
            e2e: between(arrived, answer.ended),
            output_tokens,
            failed: false,
        }
    }
}
