//! CPU profiler: functions on CPUs, sampled by the kernel's clock (perf_event_open(2)), and call
//! rates, counted for short times.
//!
//! It works without the program `perf`, and gives the names that `perf` would give. A note explains
//! what the machine does not allow. Without permission for the kernel's part, only user space is
//! sampled; if sampling is denied, the profile has the CPU time of each thread.
//!
//! Callers interpret the fractions.

mod allocator;
mod calibrate;
pub mod call_counter;
mod elf;
mod event;
mod folded;
mod haproxy;
mod kallsyms;
mod maps;
mod process_file;
mod profile;
pub mod profile_report;
mod records;
mod ring;
mod sampler;
mod stacks;
mod symbols;
mod thread_cpu;
mod tracefs;

pub use allocator::AllocatorCall;
pub use calibrate::HitCost;
pub use folded::{FoldedParseError, FoldedStacks, FunctionChange, diff};
pub use haproxy::{HaproxyProfiling, TaskRow, parse as parse_haproxy_tasks};
pub use profile::Profile;
pub use sampler::{FREQUENCY, FREQUENCY_MAX, Profiler};
pub use symbols::Function;
