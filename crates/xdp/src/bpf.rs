//! Calls of bpf(2): the map of sockets, the program, and the link that attaches it. The link ends with its descriptor, so
//! that nothing is left after a crash.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::program::Instruction;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// Bytes of `union bpf_attr` that are passed: more than any of these calls uses, and zero.
const ATTRIBUTE_BYTES: usize = 120;
const VERIFIER_LOG_BYTES: usize = 16 * 1024;

/// Flag of an attachment to the driver (`XDP_FLAGS_DRV_MODE`).
const DRIVER_MODE: u32 = 1 << 2;
/// Flag of an attachment behind the driver, in the network stack (`XDP_FLAGS_SKB_MODE`).
const GENERIC_MODE: u32 = 1 << 1;

/// Argument of a call.
#[repr(C, align(8))]
struct Attributes([u8; ATTRIBUTE_BYTES]);

impl Attributes {
    fn new(fields: &[(usize, u32)]) -> Self {
        let mut attributes = Self([0; ATTRIBUTE_BYTES]);
        for (at, value) in fields {
            attributes.0[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        attributes
    }

    fn with_pointer<T>(mut self, at: usize, pointer: *const T) -> Self {
        self.0[at..at + 8].copy_from_slice(&(pointer as usize as u64).to_ne_bytes());
        self
    }

    /// Makes the call. The pointers among the attributes must be valid for it.
    #[allow(unsafe_code)]
    fn call(&self, command: libc::c_int) -> io::Result<i64> {
        // SAFETY: the kernel reads `ATTRIBUTE_BYTES` of the attributes, which are as many. Each function of this
        // module passes pointers to memory that it borrows until the call returns, with the lengths of that memory.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), ATTRIBUTE_BYTES as libc::c_uint)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    #[allow(unsafe_code)]
    fn call_for_fd(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        let fd = self.call(command)?;
        // SAFETY: these commands return a new descriptor, which nobody else has.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// Mode in which a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// By the driver of the interface.
    Driver,
    /// By the network stack, after it has made its own buffer: works everywhere, and costs more.
    Generic,
}

/// Creates a map of AF_XDP sockets for some queues.
///
/// # Errors
/// Not permitted, or no memory.
pub fn create_socket_map(queues: u32) -> io::Result<OwnedFd> {
    Attributes::new(&[(0, MAP_TYPE_XSKMAP), (4, 4), (8, 4), (12, queues)]).call_for_fd(MAP_CREATE)
}

/// Enters a socket, which must be bound, for a queue.
///
/// # Errors
/// The socket is bound to another queue or interface.
pub fn set_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let (key, value) = (queue.to_ne_bytes(), socket.as_raw_fd().to_ne_bytes());
    Attributes::new(&[(0, map.as_raw_fd() as u32)])
        .with_pointer(8, key.as_ptr())
        .with_pointer(16, value.as_ptr())
        .call(MAP_UPDATE_ELEM)
        .map(drop)
}

/// Loads a program.
///
/// # Errors
/// Not permitted; or the kernel rejects it, with the end of its log in the message.
pub fn load_program(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let code: Vec<u64> =
        instructions.iter().map(|instruction| u64::from_ne_bytes(instruction.encode())).collect();
    let license = b"MIT\0";
    let load = |log: &mut [u8]| {
        let level = u32::from(!log.is_empty());
        let mut attributes = Attributes::new(&[
            (0, PROG_TYPE_XDP),
            (4, code.len() as u32),
            (24, level),
            (28, log.len() as u32),
            (68, ATTACH_TYPE_XDP),
        ])
        .with_pointer(8, code.as_ptr())
        .with_pointer(16, license.as_ptr());
        if level > 0 {
            attributes = attributes.with_pointer(32, log.as_mut_ptr());
        }
        attributes.0[48..56].copy_from_slice(b"weir_xdp");
        attributes.call_for_fd(PROG_LOAD)
    };
    load(&mut []).or_else(|error| {
        if error.raw_os_error() != Some(libc::EACCES) && error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        let mut log = vec![0; VERIFIER_LOG_BYTES];
        load(&mut log).map_err(|error| {
            let text = String::from_utf8_lossy(&log);
            let last = text.trim_end_matches('\0').lines().rev().take(3).collect::<Vec<_>>().join("; ");
            io::Error::new(error.kind(), format!("{error}: {last}"))
        })
    })
}

/// Attaches a program to an interface until the returned link is closed: by its driver, or else generic.
///
/// # Errors
/// `ResourceBusy`: another program is attached. Not permitted, or the interface has no support.
pub fn attach(program: BorrowedFd<'_>, interface: u32) -> io::Result<(OwnedFd, AttachMode)> {
    let link = |mode: u32| {
        let fields = [(0, program.as_raw_fd() as u32), (4, interface), (8, ATTACH_TYPE_XDP), (12, mode)];
        Attributes::new(&fields).call_for_fd(LINK_CREATE)
    };
    match link(DRIVER_MODE) {
        Ok(fd) => Ok((fd, AttachMode::Driver)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            link(GENERIC_MODE).map(|fd| (fd, AttachMode::Generic))
        }
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
            Err(io::Error::from_raw_os_error(libc::EBUSY))
        }
        Err(error) => Err(error),
    }
}
