//! GPU monitoring through a real dlopen of the stand-in for NVML, and the GPU page of the real binary. Each test has
//! its own copy of the stand-in.

mod energy;
mod life;
mod monitor;
mod monitoring;
mod page;
mod pods;
mod readings;
mod recorded;
