//! Where lines go in the end: one open target. It writes, and says how far it came; when to try
//! again is not its business.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::plan::LogTarget;

/// How long a datagram may wait for room with a syslog daemon of this machine.
const SYSLOG_WAIT: Duration = Duration::from_millis(100);

/// An open target.
#[derive(Debug)]
pub(super) enum Output {
    /// A file, or standard output without the buffer in front of it.
    Lines(File),
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Written {
    /// Lines that are wholly out.
    pub(super) lines: u64,
    /// Whether a part of one more is out.
    pub(super) mid_line: bool,
    pub(super) result: io::Result<()>,
}

impl Output {
    /// Opens `target`; the error names it.
    pub(super) fn open(target: &LogTarget) -> io::Result<Self> {
        let opened = match target {
            LogTarget::Stdout => {
                io::stdout().as_fd().try_clone_to_owned().map(|fd| Self::Lines(fd.into()))
            }
            LogTarget::File(path) => {
                OpenOptions::new().append(true).create(true).open(path).map(Self::Lines)
            }
            LogTarget::SyslogUdp(server) => udp(*server).map(Self::Udp),
            LogTarget::SyslogUnix(path) => UnixDatagram::unbound().and_then(|socket| {
                socket.connect(path)?;
                socket.set_write_timeout(Some(SYSLOG_WAIT))?;
                Ok(Self::Unix(socket))
            }),
        };
        opened.map_err(|error| {
            io::Error::new(error.kind(), format!("log {}: {error}", describe(target)))
        })
    }

    /// Writes whole lines, as far as it goes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Written {
        match self {
            Self::Lines(file) => write_lines(file, bytes),
            Self::Udp(socket) => send_lines(bytes, |line| socket.send(line)),
            Self::Unix(socket) => send_lines(bytes, |line| socket.send(line)),
        }
    }
}

/// As the config has it.
pub(super) fn describe(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "stdout".to_owned(),
        LogTarget::File(path) => format!("file:{}", path.display()),
        LogTarget::SyslogUdp(server) => format!("syslog:{server}"),
        LogTarget::SyslogUnix(path) => format!("syslog:{}", path.display()),
    }
}

fn udp(server: SocketAddr) -> io::Result<UdpSocket> {
    let own: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own)?;
    socket.connect(server)?;
    Ok(socket)
}

pub(super) fn write_lines(output: &mut impl Write, bytes: &[u8]) -> Written {
    let mut at = 0;
    let mut result = Ok(());
    while at < bytes.len() {
        match output.write(&bytes[at..]) {
            Ok(0) => {
                result = Err(io::ErrorKind::WriteZero.into());
                break;
            }
            Ok(moved) => at += moved,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    let lines = memchr::memchr_iter(b'\n', &bytes[..at]).count() as u64;
    Written { lines, mid_line: at > 0 && bytes[at - 1] != b'\n', result }
}

/// A datagram a line, without its line feed. No line has one inside: they are escaped.
fn send_lines(bytes: &[u8], mut send: impl FnMut(&[u8]) -> io::Result<usize>) -> Written {
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
            return Written { lines, mid_line: false, result: Err(error) };
        }
        lines += 1;
    }
    Written { lines, mid_line: false, result: Ok(()) }
}
