//! The system call perf_event_open(2): its attributes, and operations on its descriptors. This is
//! the only module of the profiler with numbers of `include/uapi/linux/perf_event.h`, except the
//! record format.
//!
//! It is written by hand: the newest of the available bindings is from 2023 and needs a build
//! script, for one structure whose layout the kernel promises never to change.
//!
//! Callers decide which events to open, and parse the records of a ring.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// `struct perf_event_attr` as of Linux 4.8 (`PERF_ATTR_SIZE_VER5`): later fields are not needed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PerfEventAttr {
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
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
/// `_IO('$', n)`.
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
const PERF_EVENT_IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// Counted or sampled event.
#[derive(Clone, Debug)]
pub(super) enum PerfEvent {
    /// Call chains at a rate per second of CPU time, with the mappings made meanwhile.
    CpuClock {
        /// Samples per second.
        frequency: u32,
        /// True to include the kernel's part.
        kernel: bool,
    },
    /// Hits of a tracepoint, by its number in tracefs.
    Tracepoint(u64),
    /// Hits of an instruction in a file.
    Uprobe {
        /// `/sys/bus/event_source/devices/uprobe/type`.
        kind: u32,
        path: CString,
        offset: u64,
    },
}

impl PerfEvent {
    /// Returns the attributes; the path that they point to belongs to `self`.
    fn attributes(&self) -> PerfEventAttr {
        let size = size_of::<PerfEventAttr>() as u32;
        let common = PerfEventAttr { size, flags: DISABLED | INHERIT, ..PerfEventAttr::default() };
        match self {
            Self::CpuClock { frequency, kernel } => {
                let exclude_kernel = if *kernel { 0 } else { EXCLUDE_KERNEL | EXCLUDE_CALLCHAIN_KERNEL };
                let task_records = MMAP | MMAP2 | COMM | COMM_EXEC | TASK;
                PerfEventAttr {
                    kind: TYPE_SOFTWARE,
                    config: COUNT_SW_CPU_CLOCK,
                    sample_period_or_frequency: u64::from(*frequency),
                    sample_type: SAMPLE_IP | SAMPLE_TID | SAMPLE_CALLCHAIN,
                    flags: common.flags | FREQUENCY | EXCLUDE_HYPERVISOR | task_records | exclude_kernel,
                    ..common
                }
            }
            Self::Tracepoint(id) => PerfEventAttr { kind: TYPE_TRACEPOINT, config: *id, ..common },
            Self::Uprobe { kind, path, offset } => {
                PerfEventAttr { kind: *kind, config1: path.as_ptr() as u64, config2: *offset, ..common }
            }
        }
    }
}

/// Opens a disabled event of one thread and the threads that it starts: on one CPU, or on all of
/// them for -1 (which cannot have a ring).
///
/// # Errors
/// Those of the system call. EACCES and EPERM: not allowed; ESRCH: no such thread; EMFILE: too
/// many.
#[allow(unsafe_code)]
pub(super) fn open(event: &PerfEvent, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
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
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

pub(super) fn enable(event: &OwnedFd) -> io::Result<()> {
    event_ioctl(event, PERF_EVENT_IOC_ENABLE, 0)
}

pub(super) fn disable(event: &OwnedFd) -> io::Result<()> {
    event_ioctl(event, PERF_EVENT_IOC_DISABLE, 0)
}

/// Redirects the output of `event` into the ring of `other`, an event on the same CPU.
pub(super) fn redirect_output(event: &OwnedFd, other: &OwnedFd) -> io::Result<()> {
    event_ioctl(event, PERF_EVENT_IOC_SET_OUTPUT, other.as_raw_fd() as libc::c_ulong)
}

/// Returns the count of an event, including the events that inherited it.
pub(super) fn count(event: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match rustix::io::read(event, &mut bytes)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Closes events, in parallel as far as the kernel allows. Each close takes some 80 ms, and a
/// breakpoint slows the process until the last event at it begins to close.
pub(super) fn close_all(events: Vec<OwnedFd>) {
    std::thread::scope(|scope| {
        for event in events {
            let close = std::thread::Builder::new().spawn_scoped(scope, move || drop(event));
            // If no thread could be started, the event is dropped with the closure, which closes it
            // here.
            drop(close);
        }
    });
}

#[allow(unsafe_code)]
fn event_ioctl(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these three requests take a number and touch no memory of ours.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_kernels_form() {
        assert_eq!(size_of::<PerfEventAttr>(), 112);
        assert_eq!(std::mem::offset_of!(PerfEventAttr, config1), 56);
        assert_eq!(std::mem::offset_of!(PerfEventAttr, sample_max_stack), 108);
    }

    #[test]
    fn a_path_is_pointed_to() {
        let path = c"/bin/x".to_owned();
        let event = PerfEvent::Uprobe { kind: 8, path: path.clone(), offset: 7 };
        let PerfEvent::Uprobe { path: held, .. } = &event else { unreachable!() };
        assert_eq!(event.attributes().config1, held.as_ptr() as u64);
    }
}
