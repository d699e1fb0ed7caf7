//! Kernel facilities for experiments that the standard library lacks: processes in a network
//! namespace, a control group and on given CPUs; TUN devices; listening sockets with a short queue.
//!
//! The experiment decides what to create, and removes it again with its journal.

pub mod cgroup;
pub mod launch;
pub mod link_settings;
pub mod listen;
pub mod namespace;
pub mod programs;
pub mod tun;
