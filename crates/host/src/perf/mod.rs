//! The profiler: which functions are on processors, sampled by the kernel's own clock
//! (perf_event_open(2)); and how often some calls are made, counted for short times.
//!
//! Works without the program `perf`, with the names that `perf` would give. What the machine does not
//! allow is said in words: without leave for the kernel's part, user space is sampled alone, and where
//! nothing may be sampled, what is left is the processor time of each thread.
//!
//! Not for deciding what a share means.

mod accounts;
mod allocator;
mod calibrate;
pub mod calls;
mod elf;
mod event;
mod flame;
mod folded;
mod haproxy;
mod kernel;
mod maps;
mod profile;
mod records;
mod ring;
mod sampler;
mod stacks;
mod symbols;
mod tracefs;

pub use allocator::AllocatorCall;
pub use calibrate::HitCost;
pub use flame::{difference_svg, svg};
pub use folded::{Change, Folded, FoldedError, difference};
pub use haproxy::{HaproxyProfiling, TaskRow, parse as parse_haproxy_tasks};
pub use profile::Profile;
pub use sampler::{FREQUENCY, FREQUENCY_MAX, Profiler};
pub use symbols::Function;
