//! The last five minutes of a GPU.

use std::collections::VecDeque;

/// The readings of one GPU at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GpuMark {
    /// Seconds on the caller's clock.
    pub at: f64,
    /// Share of the last sample period in which a kernel ran.
    pub utilization: Option<f64>,
    pub watts: Option<f64>,
    /// Clock ÷ the highest clock of this GPU.
    pub clock_share: Option<f64>,
    /// Counters of the seconds in which power, heat or hardware limited the clocks.
    pub throttled_by_power: f64,
    pub throttled_by_heat: f64,
    pub throttled_by_hardware: f64,
    /// Counters of errors. ECC errors are the uncorrected ones.
    pub xids: f64,
    pub ecc_errors: f64,
    /// Whether the GPU can be read.
    pub is_ok: bool,
}

/// The marks of one GPU, oldest first.
#[derive(Debug, Clone, Default)]
pub struct GpuWindow {
    pub uuid: String,
    marks: VecDeque<GpuMark>,
}

/// The number of marks in five minutes.
const MOST: usize = 61;

/// Means and increases of a GPU's readings in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GpuSpan {
    pub utilization: Option<f64>,
    pub watts: Option<f64>,
    pub clock_share: Option<f64>,
    /// Shares of the span in which power, heat or hardware limited the clocks.
    pub throttled_by_power: f64,
    pub throttled_by_heat: f64,
    pub throttled_by_hardware: f64,
    pub xids: f64,
    pub ecc_errors: f64,
    pub is_ok: bool,
}

impl GpuWindow {
    #[must_use]
    pub fn new(uuid: String) -> Self {
        Self { uuid, marks: VecDeque::new() }
    }

    pub fn push(&mut self, mark: GpuMark) {
        if self.marks.len() >= MOST {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    pub fn marks(&self) -> impl DoubleEndedIterator<Item = &GpuMark> {
        self.marks.iter()
    }

    /// The last `seconds`. Absent if the window has fewer than two marks in this time.
    #[must_use]
    pub fn span(&self, seconds: f64) -> Option<GpuSpan> {
        let end = self.marks.back()?.at;
        let marks: Vec<&GpuMark> = self.marks.iter().filter(|mark| end - mark.at <= seconds).collect();
        let (first, last) = (marks.first()?, marks.last()?);
        let seconds = last.at - first.at;
        if seconds <= 0.0 {
            return None;
        }
        let mean = |of: fn(&GpuMark) -> Option<f64>| {
            let values: Vec<f64> = marks.iter().skip(1).filter_map(|mark| of(mark)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let share = |of: fn(&GpuMark) -> f64| ((of(last) - of(first)) / seconds).clamp(0.0, 1.0);
        Some(GpuSpan {
            utilization: mean(|mark| mark.utilization),
            watts: mean(|mark| mark.watts),
            clock_share: mean(|mark| mark.clock_share),
            throttled_by_power: share(|mark| mark.throttled_by_power),
            throttled_by_heat: share(|mark| mark.throttled_by_heat),
            throttled_by_hardware: share(|mark| mark.throttled_by_hardware),
            xids: last.xids - first.xids,
            ecc_errors: last.ecc_errors - first.ecc_errors,
            is_ok: last.is_ok,
        })
    }
}
