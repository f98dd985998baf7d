//! The clocks of a GPU: their current frequency at every poll, their maximum at every slow poll.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;

use super::probe::Probe;
use super::units::hertz_from_megahertz;

/// In the order of `clock_hertz` and `clock_max_hertz`: the clock and the call names under which errors are counted.
const CLOCKS: [(Clock, &str, &str); 4] = [
    (Clock::Graphics, "clock_graphics", "max_clock_graphics"),
    (Clock::SM, "clock_sm", "max_clock_sm"),
    (Clock::Memory, "clock_memory", "max_clock_memory"),
    (Clock::Video, "clock_video", "max_clock_video"),
];

pub(super) fn current_hertz(device: &Device<'_>, probe: &mut Probe<'_>) -> [Option<u64>; 4] {
    CLOCKS.map(|(clock, call, _)| probe.call(call, || device.clock_info(clock)).map(hertz_from_megahertz))
}

pub(super) fn max_hertz(device: &Device<'_>, probe: &mut Probe<'_>) -> [Option<u64>; 4] {
    CLOCKS.map(|(clock, _, call)| probe.call(call, || device.max_clock_info(clock)).map(hertz_from_megahertz))
}
