//! What an experiment needs of the kernel that the standard library does not do: programs that
//! start in a network namespace, a control group and on given processors; TUN devices; listening
//! sockets with a short queue.
//!
//! Not for deciding what is made, nor for undoing it: that is the experiment's, which keeps a journal.

pub mod group;
pub mod launch;
pub mod listen;
pub mod namespace;
pub mod tun;
