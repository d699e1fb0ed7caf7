//! Tables of the signals of verdicts: figures of a record, each with its name, unit and source. A signal
//! gives a value and never its meaning; `None` is "not observable". Figures of a machine are rows of
//! [`crate::figures`].
//!
//! Two signals are independent if their families differ: a verdict needs two families.

#[macro_use]
mod signal;

mod carried;
mod compute;
mod cpu;
mod crypto;
mod functions;
mod hidden;
mod http2;
mod latency_range;
mod link;
mod load;
mod loss;
mod network;
mod ports;
mod queueing;
mod rejections;
mod resources;
mod short_lived;

pub(crate) use carried::{CARRIED_MIN, carried_fraction};
pub(crate) use compute::{
    HARDLY_BUSY_CPUS, MachineCpus, is_single_threaded, machine_cpus, unaccepted_connections,
};
pub use cpu::*;
pub(crate) use hidden::hidden_cause;
pub use latency_range::LatencyRange;
pub(crate) use latency_range::quota_pause;
pub use load::*;
pub use network::*;
pub(crate) use queueing::{unloaded_latency_ns, working_ns};
pub(crate) use rejections::admitted;
pub use rejections::*;
pub use resources::*;
pub(crate) use short_lived::short_lived_cpus;
pub use signal::{Signal, SignalFamily};
