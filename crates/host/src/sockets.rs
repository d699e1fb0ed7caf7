//! Sockets of this network namespace: their number, the connections to one target, and the
//! processes that listen at an address.
//!
//! [`crate::sock_diag`] has the state of connections. Only [`SockStatReader`] is cheap enough for
//! every second; the tables are walked once, before a run.
//!
//! Sources: `/proc/net/sockstat`, `/proc/net/tcp` and `tcp6`
//! (`Documentation/networking/proc_net_tcp.rst`), `/proc/net/unix` (proc_net(5)).

mod listeners;

use crate::kernel_file::{KernelFile, NotObservable};
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) use listeners::{
    collect_socket_inodes, find_listeners_at_port, find_listeners_in, find_socket_holders, is_local_address,
};
pub use listeners::{find_listeners, find_unix_listeners, listening_ports};

/// Counts of sockets from `/proc/net/sockstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SockStat {
    /// Sockets of all kinds.
    pub used: u64,
    /// TCP sockets over IPv4 that are bound or connected; from a reader, over IPv6 too.
    pub tcp_inuse: u64,
    /// TCP sockets that no process holds any more.
    pub tcp_orphan: u64,
    /// Connections in TIME_WAIT, IPv4 and IPv6.
    pub tcp_time_wait: u64,
    /// TCP sockets allocated on the complete machine.
    pub tcp_alloc: u64,
    /// Memory of TCP sockets on the complete machine, in pages.
    pub tcp_mem_pages: u64,
}

/// Parses `/proc/net/sockstat`.
pub fn parse_sockstat(text: &str) -> Option<SockStat> {
    let line = |name| text.lines().find_map(|line| line.strip_prefix(name));
    let tcp = line("TCP:")?;
    Some(SockStat {
        used: find_value(line("sockets:")?, "used")?,
        tcp_inuse: find_value(tcp, "inuse")?,
        tcp_orphan: find_value(tcp, "orphan")?,
        tcp_time_wait: find_value(tcp, "tw")?,
        tcp_alloc: find_value(tcp, "alloc")?,
        tcp_mem_pages: find_value(tcp, "mem")?,
    })
}

/// Parses `/proc/net/sockstat6`: TCP sockets over IPv6 that are bound or connected.
pub fn parse_sockstat6(text: &str) -> Option<u64> {
    find_value(text.lines().find_map(|line| line.strip_prefix("TCP6:"))?, "inuse")
}

/// Open `sockstat` and `sockstat6` of a network namespace.
#[derive(Debug)]
pub struct SockStatReader {
    file: KernelFile,
    /// `None` on a kernel without IPv6.
    file6: Option<KernelFile>,
}

impl SockStatReader {
    /// Opens the files of this process's namespace.
    pub fn open() -> Result<Self, NotObservable> {
        Self::open_pid(std::process::id().cast_signed())
    }

    /// Opens the files of the network namespace of process `pid`.
    pub fn open_pid(pid: i32) -> Result<Self, NotObservable> {
        let open = |file: &str| KernelFile::open("counts of sockets", format!("/proc/{pid}/net/{file}"));
        Ok(Self { file: open("sockstat")?, file6: open("sockstat6").ok() })
    }

    pub fn sample(&mut self) -> Result<SockStat, NotObservable> {
        let parsed = parse_sockstat(&self.file.read()?);
        let mut counts = parsed.ok_or_else(|| self.file.bad_format())?;
        if let Some(file6) = &mut self.file6 {
            let parsed = parse_sockstat6(&file6.read()?);
            counts.tcp_inuse += parsed.ok_or_else(|| file6.bad_format())?;
        }
        Ok(counts)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TargetConnections {
    /// In TIME_WAIT: each holds a local port for a minute, or until the port is reused.
    pub time_wait: u64,
    pub established: u64,
    /// True if the table was longer than [`MAX_ROWS`]; there may be more.
    pub truncated: bool,
}

/// Counts connections to `remote`. Walks the complete table, at about a microsecond per socket.
pub fn count_connections_to(remote: SocketAddr) -> Result<TargetConnections, NotObservable> {
    let remote = canonical(remote);
    let mut counts = TargetConnections::default();
    counts.truncated = scan_tcp(|row| {
        if canonical(row.remote) == remote {
            match row.state {
                ESTABLISHED => counts.established += 1,
                TIME_WAIT => counts.time_wait += 1,
                _ => {}
            }
        }
        true
    })?;
    Ok(counts)
}

/// Maximum number of rows read from one table.
pub const MAX_ROWS: usize = 2_000_000;

/// One row of `/proc/net/tcp` or `tcp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpRow {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: u8,
    pub(crate) inode: u64,
}

/// States of `include/net/tcp_states.h`.
pub(crate) const ESTABLISHED: u8 = 1;
pub(crate) const TIME_WAIT: u8 = 6;
pub(crate) const LISTEN: u8 = 10;

/// Parses one row; `None` for the heading.
pub(crate) fn parse_tcp_row(line: &str) -> Option<TcpRow> {
    let mut fields = line.split_ascii_whitespace();
    fields.next()?.strip_suffix(':')?;
    Some(TcpRow {
        local: parse_address(fields.next()?)?,
        remote: parse_address(fields.next()?)?,
        state: u8::from_str_radix(fields.next()?, 16).ok()?,
        inode: fields.nth(5)?.parse().ok()?,
    })
}

/// Calls `each` with the rows of both tables; stops in a table when it returns `false`. Returns
/// true if a table was too long.
pub(crate) fn scan_tcp(each: impl FnMut(TcpRow) -> bool) -> Result<bool, NotObservable> {
    scan_tcp_at("/proc/net", each)
}

/// Does the same for the tables of another network namespace: `/proc/PID/net` of a process in it.
pub(crate) fn scan_tcp_at(
    directory: &str,
    mut each: impl FnMut(TcpRow) -> bool,
) -> Result<bool, NotObservable> {
    let figure = "table of TCP sockets";
    let (ipv4, ipv6) = (format!("{directory}/tcp"), format!("{directory}/tcp6"));
    // A line that is no row, like the heading, is skipped.
    let mut row = |line: &str| parse_tcp_row(line).is_none_or(&mut each);
    let ipv4_truncated = scan_lines(figure, &ipv4, &mut row)?;
    match scan_lines(figure, &ipv6, &mut row) {
        Ok(truncated) => Ok(truncated || ipv4_truncated),
        // A kernel without IPv6 lacks this file.
        Err(_) if !std::path::Path::new(&ipv6).exists() => Ok(ipv4_truncated),
        Err(error) => Err(error),
    }
}

/// Calls `each` with the lines of a file until it returns `false`, at most [`MAX_ROWS`], in one
/// reused buffer. Returns true if there were more.
fn scan_lines(
    figure: &'static str,
    path: &str,
    mut each: impl FnMut(&str) -> bool,
) -> Result<bool, NotObservable> {
    let failed = |error| NotObservable::io(figure, path, &error);
    let mut file = BufReader::with_capacity(64 * 1024, File::open(path).map_err(failed)?);
    let mut line = Vec::with_capacity(256);
    for _ in 0..MAX_ROWS {
        line.clear();
        match file.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(false),
            Ok(_) if each(String::from_utf8_lossy(&line).trim_end_matches('\n')) => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(true)
}

/// Converts an IPv4-mapped IPv6 address to IPv4; drops flow and scope.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Parses "0100007F:1F90": words of four bytes in native byte order, then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns the figure after `name` in "inuse 1 orphan 0 …".
fn find_value(line: &str, name: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    fields.find(|field| *field == name)?;
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockstat_is_read() {
        let text = "sockets: used 11\nTCP: inuse 1 orphan 2 tw 3 alloc 4 mem 76\n\
            UDP: inuse 0 mem 0\nFRAG: inuse 0 memory 0\n";
        let expected = SockStat {
            used: 11,
            tcp_inuse: 1,
            tcp_orphan: 2,
            tcp_time_wait: 3,
            tcp_alloc: 4,
            tcp_mem_pages: 76,
        };
        assert_eq!(parse_sockstat(text), Some(expected));
        assert_eq!(parse_sockstat("TCP6: inuse 0\n"), None);
        assert_eq!(parse_sockstat6("TCP6: inuse 7\nUDP6: inuse 1\n"), Some(7));
        assert_eq!(parse_sockstat6("UDP6: inuse 1\n"), None);
    }

    // The addresses below were captured on a little-endian machine.
    #[cfg(target_endian = "little")]
    #[test]
    fn rows_of_both_tables_are_read() {
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(parse_tcp_row(heading), None);
        let listening = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1665 1 000000005aad9e04 100 0 0 10 0";
        let expected = TcpRow {
            local: "127.0.0.1:8080".parse().unwrap(),
            remote: "0.0.0.0:0".parse().unwrap(),
            state: LISTEN,
            inode: 1665,
        };
        assert_eq!(parse_tcp_row(listening), Some(expected));
        let waiting = "  12: 0100007F:8124 0A000002:0050 06 00000000:00000000 03:00001504 00000000     0        0 0 3 00000000f7a1a1f9";
        let row = parse_tcp_row(waiting).unwrap();
        assert_eq!((row.state, row.inode), (TIME_WAIT, 0));
        assert_eq!(row.remote, "2.0.0.10:80".parse().unwrap());
        let mapped = "   1: 0000000000000000FFFF00000100007F:0050 0000000000000000FFFF00000100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2001 1 0000000000000000 20 4 30 10 -1";
        let row = parse_tcp_row(mapped).unwrap();
        assert_eq!(row.state, ESTABLISHED);
        assert_eq!(canonical(row.local), "127.0.0.1:80".parse().unwrap());
        let v6 = "   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 5 1 0";
        assert_eq!(parse_tcp_row(v6).unwrap().local, "[::1]:8080".parse().unwrap());
    }

    #[test]
    fn broken_rows_are_refused() {
        for line in [
            "",
            "0:",
            "0: 0100007F 0:0 0A",
            "0: 0100007:1F90 00000000:0000 0A a b c d e 5",
            "0: 0100007F:1F90 00000000:0000 0A a b c d e x",
            "0: \u{e9}\u{e9}\u{e9}\u{e9}:1F90 00000000:0000 0A a b c d e 5",
        ] {
            assert_eq!(parse_tcp_row(line), None, "{line:?}");
        }
    }

    #[test]
    fn the_live_tables_are_walked() {
        assert!(SockStatReader::open().unwrap().sample().unwrap().used > 0);
        // A unique address: earlier TIME_WAIT sockets at the same port must not count.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let own = [127, 64 | high, middle, low];
        let listener = std::net::TcpListener::bind((Ipv4Addr::from(own), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let _clients = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
        let counts = count_connections_to(address).unwrap();
        assert_eq!((counts.established, counts.time_wait, counts.truncated), (2, 0, false));
    }
}
