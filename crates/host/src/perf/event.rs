//! The system call perf_event_open(2): its attributes, and what is done with the descriptors that it
//! gives. The only place of the profiler with numbers of `include/uapi/linux/perf_event.h`, except
//! the form of records.
//!
//! By hand: of the bindings there are, the newest is from 2023 and needs a build script, for one
//! structure whose form the kernel promises never to change.
//!
//! Not for deciding what to open, nor for what comes out of a ring.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// `struct perf_event_attr` as of Linux 4.8 (`PERF_ATTR_SIZE_VER5`): later fields are not needed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period_or_frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock_id: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const COUNT_SW_CPU_CLOCK: u64 = 0;
const SAMPLE_IP: u64 = 1;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const FREQUENCY: u64 = 1 << 10;
const TASK: u64 = 1 << 13;
const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `_IO('$', n)`.
const IOCTL_ENABLE: libc::c_ulong = 0x2400;
const IOCTL_DISABLE: libc::c_ulong = 0x2401;
const IOCTL_SET_OUTPUT: libc::c_ulong = 0x2405;

/// What an event counts or samples.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Call chains so many times per second of processor time, with what is mapped meanwhile.
    CpuClock {
        /// Samples per second.
        frequency: u32,
        /// Whether the kernel's part is wanted.
        kernel: bool,
    },
    /// Passes of a tracepoint, by its number in tracefs.
    Tracepoint(u64),
    /// Passes of an instruction of a file.
    Uprobe {
        /// `/sys/bus/event_source/devices/uprobe/type`.
        kind: u32,
        /// The file.
        path: CString,
        /// Where the instruction is in it.
        offset: u64,
    },
}

impl Event {
    /// The path that is pointed to belongs to `self`.
    fn attributes(&self) -> Attributes {
        let size = size_of::<Attributes>() as u32;
        let common = Attributes { size, flags: DISABLED | INHERIT, ..Attributes::default() };
        match self {
            Self::CpuClock { frequency, kernel } => {
                let without = if *kernel { 0 } else { EXCLUDE_KERNEL | EXCLUDE_CALLCHAIN_KERNEL };
                let mapped = MMAP | MMAP2 | COMM | COMM_EXEC | TASK;
                Attributes {
                    kind: TYPE_SOFTWARE,
                    config: COUNT_SW_CPU_CLOCK,
                    sample_period_or_frequency: u64::from(*frequency),
                    sample_type: SAMPLE_IP | SAMPLE_TID | SAMPLE_CALLCHAIN,
                    flags: common.flags | FREQUENCY | EXCLUDE_HYPERVISOR | mapped | without,
                    ..common
                }
            }
            Self::Tracepoint(id) => Attributes { kind: TYPE_TRACEPOINT, config: *id, ..common },
            Self::Uprobe { kind, path, offset } => Attributes {
                kind: *kind,
                config1: path.as_ptr() as u64,
                config2: *offset,
                ..common
            },
        }
    }
}

/// An event of one thread and those that it starts, not yet counting: on one processor, or on all
/// of them for -1 (which cannot have a ring).
///
/// # Errors
/// As of the system call. EACCES and EPERM: not allowed; ESRCH: no such thread; EMFILE: too many.
#[allow(unsafe_code)]
pub(super) fn open(event: &Event, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let attributes = event.attributes();
    // SAFETY: the kernel reads `size` bytes of the attributes, which are as long, and the path that
    // they point to, which `event` holds until the call is over.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            tid,
            cpu,
            -1 as libc::c_long,
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Lets an event count.
pub(super) fn enable(event: &OwnedFd) -> io::Result<()> {
    control(event, IOCTL_ENABLE, 0)
}

/// Lets it count no more.
pub(super) fn disable(event: &OwnedFd) -> io::Result<()> {
    control(event, IOCTL_DISABLE, 0)
}

/// Lets `event` write into the ring of `other`, an event on the same processor.
pub(super) fn write_into(event: &OwnedFd, other: &OwnedFd) -> io::Result<()> {
    control(event, IOCTL_SET_OUTPUT, other.as_raw_fd() as libc::c_ulong)
}

/// What an event has counted, with what those counted that inherited it.
pub(super) fn count(event: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match rustix::io::read(event, &mut bytes)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Closes events, at the same time as far as the kernel lets us. Each takes it some 80 ms, and a
/// breakpoint stays in the program's way until the last of those that want it begins to close.
pub(super) fn close_all(events: Vec<OwnedFd>) {
    std::thread::scope(|scope| {
        for event in events {
            let close = std::thread::Builder::new().spawn_scoped(scope, move || drop(event));
            // Without another thread it has been closed here, with what was to run in it.
            drop(close);
        }
    });
}

#[allow(unsafe_code)]
fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these three requests take a number and touch no memory of ours.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_kernels_form() {
        assert_eq!(size_of::<Attributes>(), 112);
        assert_eq!(std::mem::offset_of!(Attributes, config1), 56);
        assert_eq!(std::mem::offset_of!(Attributes, sample_max_stack), 108);
    }

    #[test]
    fn a_path_is_pointed_to() {
        let path = c"/bin/x".to_owned();
        let event = Event::Uprobe { kind: 8, path: path.clone(), offset: 7 };
        let Event::Uprobe { path: held, .. } = &event else { unreachable!() };
        assert_eq!(event.attributes().config1, held.as_ptr() as u64);
    }
}
