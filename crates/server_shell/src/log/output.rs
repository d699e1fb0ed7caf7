//! An open log target. It writes lines and reports its progress. Retries are the caller's task.

use std::fs::{File, FileType};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use rt::append_file::open_append;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::LogTarget;

/// Timeout for sending a datagram to a local syslog daemon whose buffer is full.
const SYSLOG_SEND_TIMEOUT: Duration = Duration::from_millis(100);
/// Timeout for a write to a FIFO or a device that accepts nothing: it delays the other targets.
const FIFO_WRITE_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// An open target.
#[derive(Debug)]
pub(super) enum LogOutput {
    /// A file, or standard output without its buffer.
    Stream(File),
    /// A FIFO or a device, opened without blocking.
    Fifo(Fifo),
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// Result of writing a batch.
#[derive(Debug)]
pub(super) struct WriteOutcome {
    /// Lines that were written completely.
    pub(super) lines: u64,
    /// True if one more line was written in part.
    pub(super) is_mid_line: bool,
    pub(super) result: io::Result<()>,
}

impl LogOutput {
    /// Opens `target`; the error names it.
    pub(super) fn open(target: &LogTarget) -> io::Result<Self> {
        let result = match target {
            LogTarget::Stdout => io::stdout().as_fd().try_clone_to_owned().map(|fd| Self::Stream(fd.into())),
            LogTarget::File(path) => open_file(path),
            LogTarget::SyslogUdp(server) => connect_udp(*server).map(Self::Udp),
            LogTarget::SyslogUnix(path) => UnixDatagram::unbound().and_then(|socket| {
                socket.connect(path)?;
                socket.set_write_timeout(Some(SYSLOG_SEND_TIMEOUT))?;
                Ok(Self::Unix(socket))
            }),
        };
        result.map_err(|error| io::Error::new(error.kind(), format!("log {target}: {error}")))
    }

    /// Writes as many complete lines as possible.
    pub(super) fn write(&mut self, bytes: &[u8]) -> WriteOutcome {
        match self {
            Self::Stream(file) => write_lines(file, bytes),
            Self::Fifo(fifo) => write_lines(fifo, bytes),
            Self::Udp(socket) => send_lines(bytes, |line| socket.send(line)),
            Self::Unix(socket) => send_lines(bytes, |line| socket.send(line)),
        }
    }
}

/// Opens a file, a FIFO or a device. The open of a FIFO without a reader fails at once, instead of waiting
/// for the reader.
fn open_file(path: &Path) -> io::Result<LogOutput> {
    let file = match open_append(path) {
        Ok(file) => file,
        Err(error) => {
            return Err(match std::fs::metadata(path) {
                Ok(metadata) => explain_open_error(error, metadata.file_type()),
                Err(_) => error,
            });
        }
    };
    let file_type = file.metadata()?.file_type();
    if file_type.is_block_device() {
        let text = "it is a block device: write the path of a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(if file_type.is_file() { LogOutput::Stream(file) } else { LogOutput::Fifo(Fifo(file)) })
}

/// Names the kind of a path that cannot be opened, and the remedy.
fn explain_open_error(error: io::Error, file_type: FileType) -> io::Error {
    let text = if file_type.is_fifo() && error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
    {
        NO_READER
    } else if file_type.is_socket() {
        "it is a socket: write syslog:PATH for a syslog socket, or the path of a file"
    } else if file_type.is_dir() {
        "it is a directory: write the path of a file"
    } else {
        return error;
    };
    let kind = if text == NO_READER { io::ErrorKind::BrokenPipe } else { error.kind() };
    io::Error::new(kind, text)
}

/// Text of the error for a FIFO that nobody reads.
const NO_READER: &str = "no process reads this FIFO (start its reader)";

/// A FIFO or a device whose writes wait for a limited time.
#[derive(Debug)]
pub(super) struct Fifo(File);

impl Write for Fifo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.0).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_until_writable()?,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(io::Error::new(error.kind(), NO_READER));
                }
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Fifo {
    fn wait_until_writable(&self) -> io::Result<()> {
        let mut poll_fds = [PollFd::new(&self.0, PollFlags::OUT)];
        match poll(&mut poll_fds, Some(&FIFO_WRITE_TIMEOUT)) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "its reader does not read")),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn connect_udp(server: SocketAddr) -> io::Result<UdpSocket> {
    let local_address: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local_address)?;
    socket.connect(server)?;
    Ok(socket)
}

pub(super) fn write_lines(output: &mut impl Write, bytes: &[u8]) -> WriteOutcome {
    let mut written = 0;
    let mut result = Ok(());
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => {
                result = Err(io::ErrorKind::WriteZero.into());
                break;
            }
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    let lines = memchr::memchr_iter(b'\n', &bytes[..written]).count() as u64;
    WriteOutcome { lines, is_mid_line: written > 0 && bytes[written - 1] != b'\n', result }
}

/// Sends one datagram per line, without the line feed. Lines contain no line feeds, as these are
/// escaped.
fn send_lines(bytes: &[u8], mut send: impl FnMut(&[u8]) -> io::Result<usize>) -> WriteOutcome {
    let mut lines = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let result = loop {
            match send(line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        if let Err(error) = result {
            return WriteOutcome { lines, is_mid_line: false, result: Err(error) };
        }
        lines += 1;
    }
    WriteOutcome { lines, is_mid_line: false, result: Ok(()) }
}
