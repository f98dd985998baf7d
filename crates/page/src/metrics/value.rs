//! The value of one sample.

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as proto;

use trtllm_fold::histogram::Histogram;

/// Integers stay integers up to the rendered text, because Triton's readers match digits.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Integer(i64),
    Count(u64),
    /// Always finite, because a page drops other values.
    Float(f64),
    Histogram(Box<Histogram>),
    /// A histogram of prometheus-client: one of the exporter's own metrics.
    ClientHistogram(Box<proto::Histogram>),
}

/// A number or a histogram that may be absent.
pub(super) trait OrAbsent {
    fn or_absent(self) -> Option<Value>;
}

impl<V: Into<Value>> OrAbsent for V {
    fn or_absent(self) -> Option<Value> {
        Some(self.into())
    }
}

impl<V: Into<Value>> OrAbsent for Option<V> {
    fn or_absent(self) -> Option<Value> {
        self.map(Into::into)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<f64> for Value {
    /// Negative zero becomes zero: text would show it as `-0`, and protobuf as 0.
    fn from(value: f64) -> Self {
        Self::Float(value + 0.0)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Count(u64::from(value))
    }
}

impl From<&Histogram> for Value {
    fn from(value: &Histogram) -> Self {
        Self::Histogram(Box::new(value.clone()))
    }
}

impl From<Histogram> for Value {
    fn from(value: Histogram) -> Self {
        Self::Histogram(Box::new(value))
    }
}

impl From<proto::Histogram> for Value {
    fn from(value: proto::Histogram) -> Self {
        Self::ClientHistogram(Box::new(value))
    }
}

/// A histogram that only some engines feed: absent until its first observation.
pub(super) fn seen(histogram: &Histogram) -> Option<&Histogram> {
    (histogram.count() > 0).then_some(histogram)
}

/// A counter that is absent until its first increase.
pub(super) fn increased<N: Default + PartialOrd>(count: N) -> Option<N> {
    (count > N::default()).then_some(count)
}

#[cfg(test)]
mod tests {
    use trtllm_records::iteration::KvCacheStats;

    use super::*;

    #[test]
    fn negative_zero_has_no_sign_in_any_format() {
        let Value::Float(value) = Value::from(-0.0) else { panic!("not a float") };
        assert!(value.is_sign_positive());
    }

    #[test]
    fn the_used_fraction_of_a_kv_cache_without_blocks_is_0() {
        let kv = KvCacheStats { max_num_blocks: Some(0), used_num_blocks: Some(0), ..KvCacheStats::default() };
        assert_eq!(kv.used_fraction(), Some(0.0));
    }
}
