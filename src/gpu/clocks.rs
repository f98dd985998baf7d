//! The clocks of a GPU: their current frequency at every poll, their maximum at every slow poll.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;

use super::probe::Probe;
use super::units::hertz_from_megahertz;
use crate::model::gpu::Clocks;

pub(super) fn current_hertz(device: &Device<'_>, probe: &mut Probe<'_>) -> Clocks {
    let mut hertz = |call, clock| probe.call(call, || device.clock_info(clock)).map(hertz_from_megahertz);
    Clocks {
        graphics: hertz("clock_graphics", Clock::Graphics),
        sm: hertz("clock_sm", Clock::SM),
        memory: hertz("clock_memory", Clock::Memory),
        video: hertz("clock_video", Clock::Video),
    }
}

pub(super) fn max_hertz(device: &Device<'_>, probe: &mut Probe<'_>) -> Clocks {
    let mut hertz = |call, clock| probe.call(call, || device.max_clock_info(clock)).map(hertz_from_megahertz);
    Clocks {
        graphics: hertz("max_clock_graphics", Clock::Graphics),
        sm: hertz("max_clock_sm", Clock::SM),
        memory: hertz("max_clock_memory", Clock::Memory),
        video: hertz("max_clock_video", Clock::Video),
    }
}
