//! One token bucket for the whole server: `burst` requests at once, then one request per `interval`.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// `rate_limit`. Both values are above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

/// A token bucket, full at first: the number of tokens and when they were counted. The rate is an argument because a reload may
/// change it.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket(Mutex<Option<(f64, Instant)>>);

impl TokenBucket {
    /// Takes a token. Returns false if there is none.
    pub(crate) fn allows(&self, rate: Rate, now: Instant) -> bool {
        let burst = f64::from(rate.burst);
        let mut level = self.0.lock();
        let (tokens, at) = level.unwrap_or((burst, now));
        let gained = now.saturating_duration_since(at).as_secs_f64() / rate.interval.as_secs_f64();
        let tokens = (tokens + gained).min(burst);
        let allowed = tokens >= 1.0;
        *level = Some((if allowed { tokens - 1.0 } else { tokens }, now));
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_request_per_interval() {
        let (bucket, rate) = (TokenBucket::default(), Rate { interval: Duration::from_secs(1), burst: 3 });
        let begin = Instant::now();
        let passed = |after: u64, asked: usize| {
            (0..asked).filter(|_| bucket.allows(rate, begin + Duration::from_millis(after))).count()
        };
        assert_eq!(passed(0, 10), 3);
        assert_eq!(passed(900, 10), 0);
        assert_eq!(passed(1000, 10), 1);
        assert_eq!(passed(2500, 10), 1, "half a token is not enough");
        assert_eq!(passed(3000, 10), 1, "the other half is kept");
        assert_eq!(passed(60_000, 10), 3, "the bucket holds no more than the burst");
    }
}
