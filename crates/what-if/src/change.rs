//! The change that a question is about. Parses what people write: `max_batch_size=128`, or a rate of `1.5x`.

use crate::measured_engine::Policy;

/// New limits and a new load of an engine. Settings that are absent do not change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    pub max_batch_size: Option<u32>,
    pub max_num_tokens: Option<u32>,
    /// Tokens of the KV cache.
    pub max_tokens: Option<u64>,
    pub policy: Option<Policy>,
    pub chunked_context: Option<bool>,
    /// The opposite of `disable_overlap_scheduler`.
    pub overlap: Option<bool>,
    pub max_draft_len: Option<u32>,
    pub replicas: u32,
    /// The new rate ÷ the current rate.
    pub rate: f64,
}

impl Default for Change {
    fn default() -> Self {
        Self {
            max_batch_size: None,
            max_num_tokens: None,
            max_tokens: None,
            policy: None,
            chunked_context: None,
            overlap: None,
            max_draft_len: None,
            replicas: 1,
            rate: 1.0,
        }
    }
}

/// Maximum number of requests in a batch.
const MOST_REQUESTS: u32 = 65_536;
/// Maximum number of replicas.
const MOST_REPLICAS: u32 = 64;
/// Maximum of the new rate ÷ the current rate.
const MOST_RATE: f64 = 100.0;

impl Change {
    /// The names that can be set.
    pub const NAMES: &'static str = "max_batch_size, max_num_tokens, max_tokens, capacity_scheduler_policy, \
        enable_chunked_prefill, disable_overlap_scheduler, max_draft_len, replicas";

    /// Sets `NAME=VALUE`.
    ///
    /// # Errors
    /// If the name is unknown or the value is invalid. The message says what to write instead.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("{text:?} is not NAME=VALUE; write for example max_batch_size=128"));
        };
        let whole = || match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{name} {value:?} is not a number above 0; correct it")),
        };
        let flag = || value.parse::<bool>().map_err(|_| format!("{name} {value:?}: use true or false"));
        match name {
            "max_batch_size" => match whole()? {
                size if size <= MOST_REQUESTS => self.max_batch_size = Some(size),
                _ => return Err(format!("max_batch_size must be at most {MOST_REQUESTS}; lower it")),
            },
            "max_num_tokens" => self.max_num_tokens = Some(whole()?),
            "max_tokens" => self.max_tokens = Some(u64::from(whole()?)),
            "max_draft_len" if value == "0" => self.max_draft_len = Some(0),
            "max_draft_len" => self.max_draft_len = Some(whole()?),
            "replicas" => match whole()? {
                count if count <= MOST_REPLICAS => self.replicas = count,
                _ => return Err(format!("replicas must be at most {MOST_REPLICAS}; lower it")),
            },
            "enable_chunked_prefill" => self.chunked_context = Some(flag()?),
            "disable_overlap_scheduler" => self.overlap = Some(!flag()?),
            "capacity_scheduler_policy" => {
                self.policy = Some(match value {
                    "GUARANTEED_NO_EVICT" => Policy::GuaranteedNoEvict,
                    "MAX_UTILIZATION" => Policy::MaxUtilization,
                    _ => {
                        return Err(format!(
                            "capacity_scheduler_policy {value:?}: use GUARANTEED_NO_EVICT or MAX_UTILIZATION"
                        ));
                    }
                });
            }
            _ => return Err(format!("unknown setting {name:?}; use one of {}", Self::NAMES)),
        }
        Ok(())
    }

    /// Sets the rate: `1.5x`.
    ///
    /// # Errors
    /// If it is not a number above 0. The message says what to write instead.
    pub fn set_rate(&mut self, text: &str) -> Result<(), String> {
        let number = text.strip_suffix('x').unwrap_or(text).parse::<f64>().ok();
        self.rate = number
            .filter(|rate| *rate > 0.0 && *rate <= MOST_RATE)
            .ok_or_else(|| format!("rate {text:?} is not between 0 and {MOST_RATE}; write for example 1.5x"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_people_write_them() {
        let mut change = Change::default();
        for text in [
            "max_batch_size=128",
            "enable_chunked_prefill=true",
            "disable_overlap_scheduler=true",
            "replicas=3",
            "max_draft_len=0",
        ] {
            change.set(text).unwrap();
        }
        change.set_rate("1.5x").unwrap();
        let meant = Change {
            max_batch_size: Some(128),
            chunked_context: Some(true),
            overlap: Some(false),
            replicas: 3,
            max_draft_len: Some(0),
            rate: 1.5,
            ..Change::default()
        };
        assert_eq!(change, meant);
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let mut change = Change::default();
        for (text, says) in [
            ("max_batch_size", "NAME=VALUE"),
            ("max_batch_size=0", "above 0"),
            ("max_batch=1", "max_batch_size"),
            ("max_batch_size=100000000", "at most 65536"),
            ("replicas=100", "at most 64"),
            ("enable_chunked_prefill=yes", "true or false"),
            ("disable_overlap_scheduler=on", "true or false"),
            ("capacity_scheduler_policy=STATIC", "MAX_UTILIZATION"),
        ] {
            let error = change.set(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(change.set_rate("-1x").unwrap_err().contains("1.5x"));
    }
}
