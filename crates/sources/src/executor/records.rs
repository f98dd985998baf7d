//! Converts the structs of the C++ Executor, as the bridge has them, to those of the schema.

use trtllm_bridge::{self as bridge, Known as _};
use trtllm_records::iteration::{
    InflightBatchingStats, IterationStats, KvCacheStats, SpecDecodingStats, StaticBatchingStats,
};
use trtllm_records::perf_metrics::{
    FinishReason, RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};
use trtllm_records::statistics::DisServingRequestStats;
use trtllm_records::timestamp::{RecordTime, parse_timestamp};
use trtllm_records::{PerfMetricsEntry, RequestStage, RequestStats, RequestStatsPerIteration, executor_statistics};

/// A value of the C++ Executor. `cpp` returns it as the schema has it: `None` if it is absent.
pub(super) trait Value<T> {
    fn cpp(&self) -> Option<T>;
}

/// Converts each member that the schema marks with `@cpp`. It does not compile until the bridge has the member.
macro_rules! convert {
    ($TABLE:ident: $(
        $(#[$about:meta])*
        pub struct $Struct:ident: $when:ident $(, $part:ident <= $whole:ident)* { $(
            $(#[$doc:meta])*
            $(@$cpp:ident)? $member:ident: $type:ty = $key:literal $(| $also:literal)? [$($property:tt)*];
        )* }
    )*) => { $(
        impl Value<$Struct> for bridge::$Struct {
            #[inline]
            fn cpp(&self) -> Option<$Struct> {
                #[allow(clippy::needless_update, reason = "some structs have members that the C++ Executor never has")]
                self.is_present().then(|| $Struct { $($($member: self.$member.$cpp(),)?)* ..$Struct::default() })
            }
        }
    )* };
}
executor_statistics!(convert);

/// A struct of the bridge. Those in another struct can be absent.
trait Present {
    fn is_present(&self) -> bool {
        true
    }
}

impl Present for bridge::IterationStats {}
impl Present for bridge::RequestStats {}

macro_rules! parts {
    ($($Struct:ident)*) => { $(impl Present for bridge::$Struct {
        fn is_present(&self) -> bool {
            self.present
        }
    })* };
}
parts! {
    KvCacheStats InflightBatchingStats StaticBatchingStats SpecDecodingStats DisServingRequestStats RequestPerfMetrics
    TimingMetrics RequestKvCacheMetrics SpeculativeDecodingMetrics
}

macro_rules! numbers {
    ($($from:ty => $to:ty),*) => { $(impl Value<$to> for $from {
        #[inline]
        fn cpp(&self) -> Option<$to> {
            self.known()
        }
    })* };
}
numbers! { i64 => i64, i64 => u64, i64 => bool, f64 => f64 }

/// A text in UTF-8, padded with zeros.
impl Value<RecordTime> for [u8; 32] {
    fn cpp(&self) -> Option<RecordTime> {
        let text = self.split(|byte| *byte == 0).next()?;
        parse_timestamp(std::str::from_utf8(text).ok()?)
    }
}

impl Value<RequestStage> for bridge::RequestStage {
    fn cpp(&self) -> Option<RequestStage> {
        Some(match *self {
            Self::Queued => RequestStage::Queued,
            Self::EncoderInProgress => RequestStage::Encoder,
            Self::ContextInProgress => RequestStage::Context,
            Self::GenerationInProgress => RequestStage::Generation,
            Self::GenerationComplete => RequestStage::Complete,
            _ => RequestStage::Unknown,
        })
    }
}

impl Value<FinishReason> for bridge::FinishReason {
    fn cpp(&self) -> Option<FinishReason> {
        Some(match *self {
            Self::Absent => return None,
            Self::EndId | Self::StopWords => FinishReason::Stop,
            Self::Length => FinishReason::Length,
            Self::TimedOut => FinishReason::Timeout,
            Self::Cancelled => FinishReason::Cancelled,
            _ => FinishReason::Other,
        })
    }
}

pub fn iteration(from: &bridge::IterationStats) -> IterationStats {
    from.cpp().unwrap_or_default()
}

pub fn requests(from: &bridge::RequestStatsPerIteration) -> RequestStatsPerIteration {
    let requests = from.request_stats.iter().filter_map(Value::cpp).collect();
    RequestStatsPerIteration { iter: Some(from.iter), request_stats: Some(requests) }
}

pub fn finished(from: &bridge::FinishedRequest) -> PerfMetricsEntry {
    PerfMetricsEntry {
        request_id: Some(from.request_id),
        executor_id: Some(from.request_id),
        finish_reason: from.finish_reason.cpp(),
        prompt_tokens: from.prompt_tokens.cpp(),
        output_tokens: from.output_tokens.cpp(),
        perf_metrics: from.perf_metrics.cpp(),
        ..PerfMetricsEntry::default()
    }
}
