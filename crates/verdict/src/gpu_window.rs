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
    /// The power limit is below the default of the GPU. Absent if the driver does not tell it.
    pub has_lowered_limit: Option<bool>,
    /// Counters of the seconds in which power, heat or hardware limited the clocks. Absent while the GPU does not tell them.
    pub throttled_by_power: Option<f64>,
    pub throttled_by_heat: Option<f64>,
    pub throttled_by_hardware: Option<f64>,
    /// Counters of errors. ECC errors are the uncorrected ones.
    pub xids: f64,
    pub ecc_errors: Option<f64>,
    /// False if the GPU is lost, needs a reset or hangs.
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
    pub has_lowered_limit: Option<bool>,
    /// Shares of the span in which power, heat or hardware limited the clocks.
    pub throttled_by_power: f64,
    pub throttled_by_heat: f64,
    pub throttled_by_hardware: f64,
    pub xids: f64,
    pub ecc_errors: f64,
    pub is_ok: bool,
}

impl GpuWindow {
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
        // Counters are as old as the driver, so one that appears has not grown.
        let increase = |of: fn(&GpuMark) -> Option<f64>| {
            let mut known = marks.iter().filter_map(|mark| of(mark));
            let first = known.next();
            first.zip(known.next_back()).map_or(0.0, |(first, last)| last - first)
        };
        let share = |of: fn(&GpuMark) -> Option<f64>| (increase(of) / seconds).clamp(0.0, 1.0);
        Some(GpuSpan {
            utilization: mean(|mark| mark.utilization),
            watts: mean(|mark| mark.watts),
            clock_share: mean(|mark| mark.clock_share),
            has_lowered_limit: last.has_lowered_limit,
            throttled_by_power: share(|mark| mark.throttled_by_power),
            throttled_by_heat: share(|mark| mark.throttled_by_heat),
            throttled_by_hardware: share(|mark| mark.throttled_by_hardware),
            xids: last.xids - first.xids,
            ecc_errors: increase(|mark| mark.ecc_errors).max(0.0),
            is_ok: last.is_ok,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(marks: &[GpuMark]) -> GpuSpan {
        let mut window = GpuWindow::new("GPU-a".to_owned());
        for (slot, mark) in marks.iter().enumerate() {
            window.push(GpuMark { at: 5.0 * slot as f64, ..*mark });
        }
        window.span(60.0).unwrap()
    }

    #[test]
    fn a_counter_that_appears_has_not_grown_and_one_that_was_absent_has_grown_by_the_difference() {
        let at = |heat: f64, errors: f64| GpuMark {
            throttled_by_heat: Some(heat),
            ecc_errors: Some(errors),
            ..GpuMark::default()
        };
        let absent = GpuMark::default();
        let appeared = span(&[absent, absent, at(5000.0, 7.0), at(5000.0, 7.0)]);
        assert_eq!((appeared.throttled_by_heat, appeared.ecc_errors), (0.0, 0.0));
        let back = span(&[at(5000.0, 7.0), absent, at(5003.0, 8.0)]);
        assert_eq!((back.throttled_by_heat, back.ecc_errors), (0.3, 1.0));
    }
}
