//! GPU monitoring through a real dlopen of the stand-in NVML, and the page of the real binary with it. Each test has a library of
//! its own.

mod energy;
mod life;
mod monitor;
mod monitoring;
mod page;
mod pods;
mod readings;
mod recorded;
