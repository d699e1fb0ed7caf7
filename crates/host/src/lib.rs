//! Reads the machine, as Linux tells it: processors, processes and their threads, limits, sockets,
//! and what kind of host this is.
//!
//! For: a load run that has to say what its own process, the program under test and everything
//! else on the machine did meanwhile, and whether the machine has the descriptors and the ports
//! that the run needs.
//!
//! Not for: changing the host's settings ([`setup`] starts programs and makes devices for experiments),
//! deciding what a figure means (thresholds and verdicts
//! live with their users), or reading a clock: every time comes in as an argument.
//!
//! Every collector has two halves. A pure parser takes text and gives values; it is tested on
//! captured text. A reader holds its file open and reads it again from the start into the same
//! buffer, so that a sample costs one or two system calls and allocates nothing.
//!
//! What a machine does not offer is a [`NotObservable`] with the reason, never a zero and never a
//! panic.

#![deny(unsafe_code)]

pub mod budget;
pub mod canary;
pub mod cgroup;
pub mod conntrack;
pub mod cpu;
pub mod facts;
pub mod family;
pub mod interrupts;
pub mod limits;
pub mod links;
pub mod namespace;
mod netlink;
pub mod observe;
pub mod perf;
pub mod pressure;
pub mod process;
pub mod settings;
pub mod setup;
pub mod snmp;
pub mod sock_diag;
pub mod sockets;
pub mod softnet;
mod source;
pub mod watch;

pub use source::NotObservable;
