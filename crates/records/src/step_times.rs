//! When each token of a request was computed, and how long the GPU took. The PyTorch engine sends this as
//! `time_breakdown_metrics`. A request may have a hundred thousand steps, so they are parsed one by one and unused
//! values are dropped.

use serde::de::{DeserializeSeed as _, Deserializer, SeqAccess};
use serde::ser::{Serialize, SerializeSeq as _, Serializer};

use super::kind::{Kind, Milliseconds, Seconds};
use super::lenient::{Any, Lenient, Number as _, Scalar};
use super::schema::{Element, Rejected, Schema as _};
use super::structs::schema;

schema! { STEPS:
    /// The steps of one request on one engine.
    pub struct StepTimes: Entries {
        /// Chunks of the prompt. Only the last chunk yields a token.
        ctx_chunk_metrics: Steps = "ctxChunkMetrics" [StepList];
        /// Decoding steps.
        step_metrics: Steps = "stepMetrics" [StepList];
    }

    /// One step in the form that TensorRT-LLM sends.
    pub struct Step: Entries {
        token_time: f64 = "tokenTime" [Seconds];
        gpu_forward_time: f64 = "gpuForwardTime" [Milliseconds];
        gpu_sample_time: f64 = "gpuSampleTime" [Milliseconds];
    }
}

/// Steps of one phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Steps {
    /// Seconds on the steady clock of the engine's process. The other times of the request use another clock.
    pub token_times: Vec<f64>,
    /// Total time in milliseconds of the batches that contained the steps. All requests of a batch have the same time.
    pub gpu_forward_ms: Option<f64>,
    pub gpu_sample_ms: Option<f64>,
}

impl StepTimes {
    /// Seconds from each token to the next one. With speculative decoding, seconds from each step to the next one.
    /// Negative if the times are out of order.
    pub fn between_tokens(&self) -> impl Iterator<Item = f64> {
        let times = |steps| Option::iter(steps).flat_map(|steps: &Steps| steps.token_times.iter().copied());
        let last_of_prompt = times(&self.ctx_chunk_metrics).next_back();
        let mut times = last_of_prompt.into_iter().chain(times(&self.step_metrics));
        let mut before = times.next();
        times.map(move |time| before.replace(time).map_or(0.0, |before| time - before))
    }
}

impl Steps {
    /// Stands for a value that is not a list.
    fn unreadable() -> Self {
        Self { token_times: vec![f64::UNREADABLE], ..Self::default() }
    }

    fn has_possible_times(&self) -> bool {
        self.token_times.iter().all(|time| Seconds::is_possible(&Some(*time)))
    }

    fn add(&mut self, step: &Step) {
        // 0 means that the engine did not measure the time.
        let add = |sum: &mut Option<f64>, more: Option<f64>| {
            if let Some(more) = more.filter(|more| *more > 0.0) {
                *sum = Some(sum.unwrap_or(0.0) + more);
            }
        };
        if *step == Step::wrong_type_sentinel() {
            self.token_times.push(f64::UNREADABLE);
            return;
        }
        self.token_times.extend(step.token_time.filter(|time| *time > 0.0));
        add(&mut self.gpu_forward_ms, step.gpu_forward_time);
        add(&mut self.gpu_sample_ms, step.gpu_sample_time);
    }
}

/// The steps of one phase of a request. If one time is invalid, the list is dropped: a gap would span two steps.
#[derive(Debug)]
pub struct StepList;

impl Kind<Steps> for StepList {
    fn read<'de, D: Deserializer<'de>>(steps: D) -> Result<Option<Steps>, D::Error> {
        struct Each;
        impl<'de> Lenient<'de> for Each {
            type Value = Steps;

            fn scalar(self, _: Scalar<'_>) -> Option<Steps> {
                Some(Steps::unreadable())
            }

            fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<Steps>, A::Error> {
                let mut steps = Steps::default();
                while let Some(Element(step)) = array.next_element::<Element<Step>>()? {
                    steps.add(&step);
                }
                Ok(Some(steps))
            }
        }
        Any(Each).deserialize(steps).map(|steps| Some(steps.unwrap_or_default()))
    }

    fn wrong_type_sentinel() -> Option<Steps> {
        Some(Steps { gpu_forward_ms: Some(f64::UNREADABLE), ..Steps::unreadable() })
    }

    fn is_possible(steps: &Option<Steps>) -> bool {
        steps.as_ref().is_none_or(|steps| {
            steps.has_possible_times()
                && Milliseconds::is_possible(&steps.gpu_forward_ms)
                && Milliseconds::is_possible(&steps.gpu_sample_ms)
        })
    }

    fn repair(steps: &mut Option<Steps>, _: &'static str, rejected: &mut Rejected) {
        let Some(steps) = steps else { return };
        if !steps.has_possible_times() {
            steps.token_times = Vec::new();
            rejected.value("tokenTime");
        }
        Milliseconds::repair(&mut steps.gpu_forward_ms, "gpuForwardTime", rejected);
        Milliseconds::repair(&mut steps.gpu_sample_ms, "gpuSampleTime", rejected);
    }

    fn weight(steps: &Option<Steps>) -> usize {
        steps.as_ref().map_or(0, |steps| steps.token_times.capacity() * size_of::<f64>())
    }
}

/// Writes an array. Parsing it gives the same steps again.
impl Serialize for Steps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let times = self.token_times.iter().map(|time| Step { token_time: Some(*time), ..Step::default() });
        let gpu = Step { token_time: None, gpu_forward_time: self.gpu_forward_ms, gpu_sample_time: self.gpu_sample_ms };
        let mut array = serializer.serialize_seq(None)?;
        for step in times.chain([gpu]) {
            array.serialize_element(&step)?;
        }
        array.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &str = r#"{"ctx_chunk_metrics":[{"token_time":10.5,"gpu_forward_time":48.0,"gpu_sample_time":0},{"forward_start_time":1,
        "token_time":11.0,"gpu_forward_time":52.0,"gpu_sample_time":0.5}],"ctx_gpu_forward_time":100.0,
        "step_metrics":[{"token_time":11.25,"iter":1,"gpu_forward_time":8.0},{"token_time":null},{"token_time":11.75}]}"#;

    #[test]
    fn the_first_token_follows_the_last_chunk_of_the_prompt() {
        let steps: StepTimes = serde_json::from_str(STEPS).unwrap();
        assert_eq!(steps.between_tokens().collect::<Vec<_>>(), [0.25, 0.5]);
        let gpu = |steps: &Option<Steps>| steps.as_ref().map(|steps| (steps.gpu_forward_ms, steps.gpu_sample_ms));
        assert_eq!(gpu(&steps.ctx_chunk_metrics), Some((Some(100.0), Some(0.5))));
        assert_eq!(gpu(&steps.step_metrics), Some((Some(8.0), None)));
        // A generation server has no chunks of the prompt.
        let steps = StepTimes { ctx_chunk_metrics: None, ..steps };
        assert_eq!(steps.between_tokens().collect::<Vec<_>>(), [0.5]);
    }

    #[test]
    fn steps_are_read_as_they_were_written() {
        for text in [STEPS, "{}", r#"{"step_metrics":null,"ctx_chunk_metrics":[]}"#] {
            let steps: StepTimes = serde_json::from_str(text).unwrap();
            let written = serde_json::to_string(&steps).unwrap();
            assert_eq!(serde_json::from_str::<StepTimes>(&written).unwrap(), steps, "{written}");
        }
    }

    #[test]
    fn steps_without_content_take_no_memory() {
        let text = format!("{{\"step_metrics\":[{}]}}", vec!["{}"; 100_000].join(","));
        let steps: StepTimes = serde_json::from_str(&text).unwrap();
        assert_eq!(steps.weight(), 0);
    }
}
