//! Reads the state of a Linux machine: CPUs, processes and their threads, limits, sockets, and
//! facts about the host.
//!
//! Purpose: a load run reports the resource use of its own process, of the process under test and of
//! all other processes. It also checks that the machine has the descriptors and ports
//! that the run needs.
//!
//! Only [`tuning`] changes the host's settings, and [`sandbox`] starts programs and creates devices for
//! experiments. It does not interpret figures: thresholds and verdicts live with their users. It
//! reads no clock: every time is an argument.
//!
//! Every collector has two halves. A pure parser turns text into values; it is tested on captured
//! text. A reader keeps its file open and reads it again from the start into the same buffer, so
//! that a sample costs one or two system calls and allocates nothing.
//!
//! A figure that a machine does not provide is a [`NotObservable`] with the reason, never a zero and never
//! a panic.

#![deny(unsafe_code)]

pub mod budget;
pub mod cgroup;
pub mod clock_sync;
pub mod conntrack;
pub mod cpu;
pub mod cpu_window;
pub mod facts;
pub mod free_port;
pub mod interrupts;
pub mod journal;
mod kernel_file;
pub mod limits;
pub mod links;
pub mod namespace;
mod netlink;
pub mod observe;
pub mod perf;
pub mod pressure;
pub mod process;
pub mod process_tree;
pub mod sandbox;
pub mod settings;
pub mod snmp;
pub mod sock_diag;
pub mod sockets;
pub mod softnet;
pub mod trusted_dir;
pub mod tuning;
pub mod wakeup_probe;

pub use kernel_file::NotObservable;
