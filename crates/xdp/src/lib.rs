//! TCP in user space over AF_XDP (`Documentation/networking/af_xdp.rst` of Linux): an XDP program gives the packets of
//! some addresses and ports to a socket, and [`stack::Stack`] has their connections.
//!
//! ```text
//! interface -> program (exact addresses and ports) -> receive ring -> Stack -> one smoltcp socket a connection
//!                 | all else                                            |
//!                 v                                                     v
//!              kernel                                 transmit ring (replies go to the MAC that asked)
//! ```
//! The crate has no runtime and reads no clock: `rt::user_tcp` drives it. [`packet`], [`program`], [`stack`] and [`steering`] are pure;
//! unsafe code is in [`bpf`], `ethtool`, `ring` and [`port`] only.

#![deny(unsafe_code)]

pub mod attachment;
pub mod bpf;
mod checksum;
mod ethtool;
mod features;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod interface;
mod mode;
mod netlink;
pub mod packet;
pub mod port;
pub mod program;
mod ring;
pub mod sockets;
pub mod stack;
pub mod steering;
mod timers;
