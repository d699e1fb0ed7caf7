//! The part of a core that a connection of HTTP/2 to a server uses. The core is above the pools, which keep
//! these connections.

use std::cell::RefMut;

use rt::byte_channel::ChannelBuffers;
use rt::clock::MonotonicTime;
use rt::deadlines::Deadlines;
use rt::timers::Timers;

/// Time, timers and memory of a core.
pub(crate) trait CoreServices: std::fmt::Debug + 'static {
    /// Returns the time of the last tick.
    fn now(&self) -> MonotonicTime;

    fn is_draining(&self) -> bool;

    fn timers(&self) -> &Timers;

    fn deadlines(&self) -> &Deadlines;

    fn channel_buffers(&self) -> &ChannelBuffers;

    /// Returns the memory for one read. It is unused between two polls.
    fn read_buffer(&self) -> RefMut<'_, [u8]>;
}
