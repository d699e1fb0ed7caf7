//! Parts of a core that its connections of HTTP/2 to servers use.

use std::cell::RefMut;

use rt::byte_channel::ChannelBuffers;
use rt::clock::MonotonicTime;
use rt::deadlines::Deadlines;
use rt::timers::Timers;

use super::Core;
use crate::server_conn::CoreServices;

impl CoreServices for Core {
    #[inline]
    fn now(&self) -> MonotonicTime {
        self.ticks.now.get()
    }

    #[inline]
    fn is_draining(&self) -> bool {
        self.drain.is_draining.get()
    }

    #[inline]
    fn timers(&self) -> &Timers {
        &self.timers
    }

    #[inline]
    fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    #[inline]
    fn channel_buffers(&self) -> &ChannelBuffers {
        &self.memory.channel_buffers
    }

    #[inline]
    fn read_buffer(&self) -> RefMut<'_, [u8]> {
        RefMut::map(self.memory.scratch.borrow_mut(), |scratch| &mut *scratch.input)
    }
}
