//! AF_XDP socket of one queue of an interface: its memory of frames, its four rings, and how they are kept full and empty.

mod queues;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use self::queues::{Descriptor, FrameMemory, Queues, Rings};
use crate::packet::ETHERNET_BYTES;
use crate::ring::RingPointers;
use crate::stack::Link;

/// Entries of the ring of received frames.
const RECEIVE_ENTRIES: u32 = 4_096;
/// Entries of the fill ring, and frames to receive into: as many as fit, so that a burst of 1,000 connections with
/// several segments each loses nothing.
const FILL_ENTRIES: u32 = 8_192;
/// Entries of the transmit and completion rings, and frames to send from.
const TRANSMIT_ENTRIES: u32 = 4_096;
/// Bytes of a frame for an MTU up to [`SMALL_MTU_MAX`], with the headroom of the kernel.
const SMALL_FRAME_BYTES: u32 = 2_048;
const LARGE_FRAME_BYTES: u32 = 4_096;
/// Maximum MTU for small frames: 2,048 bytes less 256 of headroom and the Ethernet header.
const SMALL_MTU_MAX: u32 = 1_500;
/// Maximum MTU: a frame has to fit into a page with the headroom and the tail that drivers need.
pub const MTU_MAX: u32 = 3_498;
/// Time for which a queue stays busy after its last socket was closed, with some room.
const BUSY_RETRIES: u32 = 50;
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(4);
/// Maximum number of calls to send what was queued: in copy mode each call sends a part (32 frames).
const SEND_CALLS_MAX: u32 = 2 * TRANSMIT_ENTRIES / 32;

const SOL_XDP: libc::c_int = 283;
const OPTION_MMAP_OFFSETS: libc::c_int = 1;
const OPTION_RX_RING: libc::c_int = 2;
const OPTION_TX_RING: libc::c_int = 3;
const OPTION_UMEM_REG: libc::c_int = 4;
const OPTION_FILL_RING: libc::c_int = 5;
const OPTION_COMPLETION_RING: libc::c_int = 6;
const OPTION_STATISTICS: libc::c_int = 7;
const OFFSET_RX: i64 = 0;
const OFFSET_TX: i64 = 0x8000_0000;
const OFFSET_FILL: i64 = 0x1_0000_0000;
const OFFSET_COMPLETION: i64 = 0x1_8000_0000;
const BIND_COPY: u16 = 1 << 1;
const BIND_ZERO_COPY: u16 = 1 << 2;
const BIND_NEED_WAKEUP: u16 = 1 << 3;

/// Returns the bytes of the memory of a socket's frames.
#[must_use]
pub fn frame_memory_bytes(mtu: u32) -> usize {
    (FILL_ENTRIES + TRANSMIT_ENTRIES) as usize * frame_bytes(mtu) as usize
}

fn frame_bytes(mtu: u32) -> u32 {
    if mtu <= SMALL_MTU_MAX { SMALL_FRAME_BYTES } else { LARGE_FRAME_BYTES }
}

/// Counters of the kernel for one socket (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Packets dropped for reasons other than those below.
    pub dropped: u64,
    /// Packets dropped because the receive ring was full.
    pub ring_full: u64,
    /// Packets dropped because the fill ring was empty.
    pub fill_empty: u64,
    /// Frames that we queued with a wrong descriptor.
    pub invalid: u64,
}

/// Anonymous or shared memory, unmapped when it is dropped.
#[derive(Debug)]
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

#[allow(unsafe_code)]
impl Mapping {
    fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn from_ring(bytes: usize, socket: BorrowedFd<'_>, offset: i64) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset)
    }

    fn map(bytes: usize, flags: libc::c_int, fd: libc::c_int, offset: i64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), bytes })
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are those of one mapping, which nobody uses any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Socket of one queue.
#[derive(Debug)]
pub struct Port {
    // The socket is closed before its memory is unmapped: fields are dropped in their order.
    socket: OwnedFd,
    queues: Queues,
    is_zero_copy: bool,
    send_calls: u64,
    _memory: Mapping,
    _rings: [Mapping; 4],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Received frames.
    pub received: u64,
    /// Sent frames.
    pub sent: u64,
    /// Frames that were not sent because no frame was free.
    pub unsent: u64,
    /// Received descriptors outside of the memory, or too long.
    pub invalid: u64,
    /// System calls to send.
    pub send_calls: u64,
}

// SAFETY: the pointers of `queues` are to mappings that the value owns, and only methods with `&mut self` write through them.
#[allow(unsafe_code)]
unsafe impl Send for Port {}

impl Port {
    /// Opens a socket for a queue of an interface: with zero-copy if its driver has it, or else in copy mode. A queue that
    /// was just closed is busy for some milliseconds; that is waited for.
    ///
    /// # Errors
    /// Not permitted; no such queue; the queue has another socket (`ResourceBusy`); not enough lockable memory.
    pub fn open(interface: u32, queue: u32, mtu: u32) -> io::Result<Self> {
        let mut attempt = 0;
        loop {
            // A socket that failed to bind cannot be used again.
            let opened = match Self::open_once(interface, queue, mtu, BIND_ZERO_COPY) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(error),
                Err(_) => Self::open_once(interface, queue, mtu, BIND_COPY),
                opened => opened,
            };
            attempt += 1;
            match opened {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempt < BUSY_RETRIES => {
                    std::thread::sleep(BUSY_RETRY_INTERVAL);
                }
                opened => return opened,
            }
        }
    }

    #[allow(unsafe_code)]
    fn open_once(interface: u32, queue: u32, mtu: u32, mode: u16) -> io::Result<Self> {
        let frame_bytes = frame_bytes(mtu);
        let memory = Mapping::anonymous(frame_memory_bytes(mtu))?;
        let socket = open_socket()?;
        register_memory(&socket, &memory, frame_bytes)?;
        let sizes = [
            (OPTION_FILL_RING, FILL_ENTRIES),
            (OPTION_COMPLETION_RING, TRANSMIT_ENTRIES),
            (OPTION_RX_RING, RECEIVE_ENTRIES),
            (OPTION_TX_RING, TRANSMIT_ENTRIES),
        ];
        for (option, entries) in sizes {
            set_option(&socket, option, &entries.to_ne_bytes())?;
        }
        // Four times the offsets of the producer, the consumer, the entries and the flags: of the receive ring, the
        // transmit ring, the fill ring and the completion ring (`struct xdp_mmap_offsets`).
        let offsets = ring_offsets(&socket)?;
        let fd = socket.as_fd();
        let (rx, receive) = map_ring::<Descriptor>(fd, OFFSET_RX, &offsets[..4], RECEIVE_ENTRIES)?;
        let (tx, transmit) = map_ring::<Descriptor>(fd, OFFSET_TX, &offsets[4..8], TRANSMIT_ENTRIES)?;
        let (fr, fill) = map_ring::<u64>(fd, OFFSET_FILL, &offsets[8..12], FILL_ENTRIES)?;
        let (cr, completion) = map_ring::<u64>(fd, OFFSET_COMPLETION, &offsets[12..], TRANSMIT_ENTRIES)?;
        let rings = Rings { receive, transmit, fill, completion };
        let frames = FrameMemory { start: memory.start, bytes: memory.bytes, frame_bytes };
        // SAFETY: `map_ring` returns pointers into the mappings, which the value keeps until its end, as it does the memory of
        // the frames, which is new and has their number. The socket is new, so nobody else uses its rings.
        let queues = unsafe { Queues::new(rings, frames) };
        let is_zero_copy = mode == BIND_ZERO_COPY;
        let rings = [rx, tx, fr, cr];
        let port = Self { socket, queues, is_zero_copy, send_calls: 0, _memory: memory, _rings: rings };
        bind(&port.socket, interface, queue, mode | BIND_NEED_WAKEUP)?;
        Ok(port)
    }

    /// Returns whether the driver writes into the frames itself.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    #[must_use]
    pub fn counters(&self) -> PortCounters {
        PortCounters { send_calls: self.send_calls, ..self.queues.counters }
    }

    /// Returns the counters of the kernel.
    #[must_use]
    pub fn statistics(&self) -> PortStatistics {
        let mut bytes = [0; 48];
        if get_option(&self.socket, OPTION_STATISTICS, &mut bytes).is_err() {
            return PortStatistics::default();
        }
        let value = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_ne_bytes(word)
        };
        PortStatistics { dropped: value(0), invalid: value(2), ring_full: value(3), fill_empty: value(4) }
    }

    /// Lets the kernel send what is queued, until it has taken all or can take no more now.
    fn send_queued(&mut self) {
        self.queues.publish();
        for _ in 0..SEND_CALLS_MAX {
            if !self.queues.needs_send_call() {
                break;
            }
            self.send_calls += 1;
            match wake_transmit(&self.socket) {
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    // A part was sent, or the queue of the device is full for now.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => self.queues.complete(),
                    _ => break,
                },
            }
        }
        self.queues.complete();
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for Port {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.queues.receive(buffer)
    }

    fn end_receive(&mut self) {
        if self.queues.end_receive() {
            // The result says nothing about the fill ring.
            let _ = wake_receive(&self.socket);
        }
    }

    #[inline]
    fn has_space(&mut self) -> bool {
        if !self.queues.has_free() {
            self.send_queued();
        }
        self.queues.has_free()
    }

    #[inline]
    fn transmit<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.has_space();
        self.queues.transmit(length, fill)
    }

    fn flush(&mut self) {
        if self.queues.has_unsent() {
            self.send_queued();
        }
    }
}

#[allow(unsafe_code)]
fn open_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers; a descriptor that it returns is new.
    unsafe {
        match libc::socket(libc::AF_XDP, kind, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[allow(unsafe_code)]
fn set_option(socket: &OwnedFd, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of `value`.
    let result = unsafe {
        let length = value.len() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), SOL_XDP, option, value.as_ptr().cast(), length)
    };
    check(result)
}

#[allow(unsafe_code)]
fn get_option(socket: &OwnedFd, option: libc::c_int, value: &mut [u8]) -> io::Result<()> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has as many.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), SOL_XDP, option, value.as_mut_ptr().cast(), &raw mut length)
    };
    check(result)
}

/// Registers the memory of frames (`struct xdp_umem_reg`).
fn register_memory(socket: &OwnedFd, memory: &Mapping, frame_bytes: u32) -> io::Result<()> {
    let mut value = [0; 32];
    value[..8].copy_from_slice(&(memory.start as usize as u64).to_ne_bytes());
    value[8..16].copy_from_slice(&(memory.bytes as u64).to_ne_bytes());
    value[16..20].copy_from_slice(&frame_bytes.to_ne_bytes());
    set_option(socket, OPTION_UMEM_REG, &value)
}

fn ring_offsets(socket: &OwnedFd) -> io::Result<[u64; 16]> {
    let mut bytes = [0; 128];
    get_option(socket, OPTION_MMAP_OFFSETS, &mut bytes)?;
    let mut offsets = [0; 16];
    for (offset, word) in offsets.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *offset = u64::from_ne_bytes(*word);
    }
    Ok(offsets)
}

/// Maps a ring: `offsets` are those of its producer, its consumer, its entries and its flags.
#[allow(unsafe_code)]
fn map_ring<T>(
    socket: BorrowedFd<'_>,
    page_offset: i64,
    offsets: &[u64],
    entries: u32,
) -> io::Result<(Mapping, RingPointers<T>)> {
    let bytes = offsets[2] as usize + entries as usize * size_of::<T>();
    let mapping = Mapping::from_ring(bytes, socket, page_offset)?;
    let [producer, consumer, first, flags] = [offsets[0], offsets[1], offsets[2], offsets[3]];
    if [producer, consumer, flags].iter().any(|offset| *offset as usize + size_of::<AtomicU32>() > bytes) {
        return Err(io::Error::other("the kernel reports a ring outside of its memory"));
    }
    // SAFETY: the offsets are within the mapping, as just checked.
    let at = |offset: u64| unsafe { mapping.start.add(offset as usize) };
    let pointers = RingPointers {
        producer: at(producer).cast(),
        consumer: at(consumer).cast(),
        flags: at(flags).cast(),
        entries: at(first).cast(),
        size: entries,
    };
    Ok((mapping, pointers))
}

/// Binds the socket to a queue (`struct sockaddr_xdp`).
#[allow(unsafe_code)]
fn bind(socket: &OwnedFd, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let mut address = [0_u8; 16];
    address[..2].copy_from_slice(&(libc::AF_XDP as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&flags.to_ne_bytes());
    address[4..8].copy_from_slice(&interface.to_ne_bytes());
    address[8..12].copy_from_slice(&queue.to_ne_bytes());
    // SAFETY: the kernel reads 16 bytes of the address.
    check(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), 16) })
}

#[allow(unsafe_code)]
fn wake_transmit(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: there is no data and no address.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    check(sent as libc::c_int)
}

#[allow(unsafe_code)]
fn wake_receive(socket: &OwnedFd) -> io::Result<()> {
    let (none, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: there is no buffer and no address.
    let received = unsafe {
        libc::recvfrom(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT, none, no_length)
    };
    check(received as libc::c_int)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const _: () = assert!(SMALL_MTU_MAX as usize + ETHERNET_BYTES + 256 <= SMALL_FRAME_BYTES as usize);
