//! TCP sockets whose reads tell when the kernel received the bytes (`SO_TIMESTAMPNS`, socket(7), and
//! Documentation/networking/timestamping.rst). A program that reads late, because it had no CPU, knows then by how much.

use std::cell::Cell;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::time::ClockId;
use tokio::net::TcpStream;

thread_local! {
    /// Lag of the latest read with a timestamp on this core. Kept here, a socket with timestamps has the layout of any
    /// other, and reads and writes of all sockets are the same code.
    static LATEST_LAG_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Memory for the one control message that carries a timestamp, aligned as its header.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

/// Returns the time between the arrival of the last bytes of the latest read and that read; `None` if the kernel gave no
/// timestamp, or the wall clock was set meanwhile.
#[inline]
pub(crate) fn latest_lag_ns() -> Option<u64> {
    LATEST_LAG_NS.get()
}

/// Receives into `buffer`, as recv(2), and stores the lag.
#[allow(unsafe_code)]
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let mut control = ControlBuffer([0; 64]);
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a header of zeros is valid: it has no name, no slices and no control messages.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control.0).cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: the descriptor is open as long as it is borrowed; the kernel writes at most the given lengths to
    // `buffer` and `control`, which outlive the call.
    let received = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, 0) };
    let Ok(bytes) = usize::try_from(received) else {
        // SAFETY: the C library gives every thread an errno.
        return Err(rustix::io::Errno::from_raw_os_error(unsafe { *libc::__errno_location() }));
    };
    if bytes > 0 {
        LATEST_LAG_NS.set(received_at(&header).and_then(lag_since));
    }
    Ok(bytes)
}

/// Switches timestamps on. Returns false if the kernel has none.
#[allow(unsafe_code)]
pub(crate) fn enable(tcp: &TcpStream) -> bool {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    result == 0
}

/// Returns the timestamp of a received message, in ns since 1970.
#[allow(unsafe_code)]
fn received_at(header: &libc::msghdr) -> Option<i128> {
    // SAFETY: recvmsg filled the header; its control buffer is as long as it says, and outlives this function.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: CMSG_FIRSTHDR returns a complete header or null.
    let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
    if (level, kind) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return None;
    }
    // SAFETY: a message of this kind has one timespec, which need not be aligned.
    let at: libc::timespec = unsafe { libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned() };
    Some(i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec))
}

fn lag_since(received_ns: i128) -> Option<u64> {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(now_ns - received_ns).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use crate::address::Address;
    use crate::clock::now_ns;
    use crate::dial::connect;
    use crate::stream::Stream;

    /// Receives bytes that wait for `delay` before they are read.
    async fn read_after(delay: Duration, peer: &mut std::net::TcpStream, stream: &mut Stream) {
        peer.write_all(b"hello").unwrap();
        // The thread sleeps, as one that gets no CPU.
        std::thread::sleep(delay);
        let mut buffer = [0; 16];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 5);
        assert_eq!(&buffer[..5], b"hello");
    }

    /// Returns the lag of a read of bytes that wait for `delay`.
    fn lag_of_read_after(delay: Duration, has_timestamps: bool) -> Option<u64> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let mut stream = connect(&address, None).await.unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            if has_timestamps {
                stream = stream.with_receive_timestamps();
                // The kernel begins to stamp a moment after the first socket asked for it (net_enable_timestamp).
                let deadline_ns = now_ns() + 10_000_000_000;
                while stream.receive_lag_ns().is_none() {
                    assert!(now_ns() < deadline_ns, "no timestamp");
                    read_after(Duration::ZERO, &mut peer, &mut stream).await;
                }
            }
            read_after(delay, &mut peer, &mut stream).await;
            stream.receive_lag_ns()
        })
    }

    #[test]
    fn a_late_read_knows_its_lag() {
        let lag_ns = lag_of_read_after(Duration::from_millis(60), true).unwrap();
        assert!(lag_ns >= 60_000_000, "{lag_ns}");
        assert!(lag_ns < 30_000_000_000, "{lag_ns}");
    }

    #[test]
    fn a_socket_without_timestamps_has_no_lag() {
        assert_eq!(lag_of_read_after(Duration::ZERO, false), None);
    }
}
