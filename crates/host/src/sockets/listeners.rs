//! Finds the processes of this machine that hold the listening socket of an address. So a run
//! against a local server can separate the server's CPU time from everything else's.
//!
//! For remote servers the result is empty. Another network namespace has its own tables, which are
//! read through a process in it.

use super::{LISTEN, MAX_ROWS, TcpRow, canonical, scan_lines, scan_tcp_at};
use crate::kernel_file::NotObservable;
use crate::process::fd_tables;
use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

/// Returns the processes that hold the socket listening at `address`, in ascending order: a
/// server's parent and all workers that inherited it. Empty if nothing on this machine listens
/// there.
///
/// As in the kernel, a socket bound to the address itself takes precedence over one bound to all
/// addresses. Fails if there is such a socket but its processes are not visible.
pub fn find_listeners(address: SocketAddr) -> Result<Vec<i32>, NotObservable> {
    let address = canonical(address);
    if !is_local_address(address.ip()) {
        return Ok(Vec::new());
    }
    find_listeners_in(std::process::id().cast_signed(), address)
}

/// Returns the same for the network namespace of process `pid`, without checking that the address
/// is local.
pub(crate) fn find_listeners_in(pid: i32, address: SocketAddr) -> Result<Vec<i32>, NotObservable> {
    let address = canonical(address);
    let mut best_match = BestMatches::default();
    // Each table lists its listening sockets first, and the many others are of no interest.
    scan_tcp_at(&format!("/proc/{pid}/net"), |row| {
        best_match.consider(&row, address);
        row.state == LISTEN
    })?;
    find_socket_holders(&best_match.inodes, &address)
}

/// Returns the processes that listen at `port` of any address, in the network namespace of process
/// `pid`.
pub(crate) fn find_listeners_at_port(pid: i32, port: u16) -> Result<Vec<i32>, NotObservable> {
    let mut inodes = HashSet::new();
    scan_tcp_at(&format!("/proc/{pid}/net"), |row| {
        if row.state == LISTEN && row.local.port() == port {
            inodes.insert(row.inode);
        }
        row.state == LISTEN
    })?;
    find_socket_holders(&inodes, &format_args!("port {port}"))
}

/// Returns the TCP ports at which any of `pids` listens, in ascending order.
///
/// # Errors
/// The socket tables cannot be read.
pub fn listening_ports(pids: &[i32]) -> Result<Vec<u16>, NotObservable> {
    const DESCRIPTORS_MAX: usize = 100_000;
    let mut inodes = HashSet::new();
    let mut descriptors_left = DESCRIPTORS_MAX;
    let mut ports = Vec::new();
    for &pid in pids {
        for tid in fd_tables(pid) {
            collect_socket_inodes(pid, tid, &mut inodes, &mut descriptors_left);
        }
        scan_tcp_at(&format!("/proc/{pid}/net"), |row| {
            if row.state == LISTEN && inodes.contains(&row.inode) {
                ports.push(row.local.port());
            }
            row.state == LISTEN
        })?;
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

/// Returns the processes that hold the unix socket listening at `path`. The bound path is compared
/// with the given path and with its resolved form; `@name` is an abstract one.
pub fn find_unix_listeners(path: &Path) -> Result<Vec<i32>, NotObservable> {
    let given = path.to_string_lossy().into_owned();
    let resolved = fs::canonicalize(path).map(|real| real.to_string_lossy().into_owned());
    let mut inodes = HashSet::new();
    scan_lines("table of unix sockets", "/proc/net/unix", |line| {
        if let Some((inode, bound)) = parse_unix_listener(line)
            && (bound == given || resolved.as_ref().is_ok_and(|real| bound == real))
        {
            inodes.insert(inode);
        }
        true
    })?;
    find_socket_holders(&inodes, &path.display())
}

/// Best matching sockets so far.
#[derive(Debug, Default)]
struct BestMatches {
    rank: u8,
    inodes: HashSet<u64>,
}

impl BestMatches {
    fn consider(&mut self, row: &TcpRow, address: SocketAddr) {
        let rank = rank(row, address);
        if rank > self.rank {
            self.rank = rank;
            self.inodes.clear();
        }
        if rank > 0 && rank == self.rank {
            self.inodes.insert(row.inode);
        }
    }
}

/// Ranks the match of a socket with `address`: 3 the address itself, 2 all addresses of its family,
/// 1 all IPv6 addresses for an IPv4 one (an IPv6-only socket looks the same), 0 no match.
fn rank(row: &TcpRow, address: SocketAddr) -> u8 {
    if row.state != LISTEN || row.local.port() != address.port() {
        return 0;
    }
    // A client that connects to "all addresses" reaches the loopback address.
    let target_ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    match (row.local.ip().to_canonical(), target_ip) {
        (bound, target) if bound == target => 3,
        (bound, target) if !bound.is_unspecified() || (bound.is_ipv4() && target.is_ipv6()) => 0,
        (bound, target) if bound.is_ipv4() == target.is_ipv4() => 2,
        _ => 1,
    }
}

/// Returns true if the address is local, that is, a socket can be bound to it. No packet is sent.
pub(crate) fn is_local_address(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Parses inode and name of a listening socket in `/proc/net/unix`.
fn parse_unix_listener(line: &str) -> Option<(u64, &str)> {
    const ACCEPTS_CONNECTIONS: u32 = 0x1_0000;
    let mut rest = line;
    let mut fields = [""; 7];
    for field in &mut fields {
        (*field, rest) = rest.trim_start().split_once(' ')?;
    }
    let flags = u32::from_str_radix(fields[3], 16).ok()?;
    if flags & ACCEPTS_CONNECTIONS == 0 {
        return None;
    }
    Some((fields[6].parse().ok()?, rest))
}

/// Returns the processes with one of `inodes` among their descriptors.
pub(crate) fn find_socket_holders(
    inodes: &HashSet<u64>,
    address: &dyn std::fmt::Display,
) -> Result<Vec<i32>, NotObservable> {
    const FIGURE: &str = "processes that listen at the target";
    if inodes.is_empty() {
        return Ok(Vec::new());
    }
    let processes = fs::read_dir("/proc").map_err(|error| NotObservable::io(FIGURE, "/proc", &error))?;
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut pids = Vec::new();
    let mut unreadable = 0;
    let mut descriptors_left = MAX_ROWS;
    for pid in ids {
        match holds_any_socket(pid, inodes, &mut descriptors_left) {
            Some(true) => pids.push(pid),
            Some(false) => {}
            None => unreadable += 1,
        }
    }
    if pids.is_empty() {
        let why = format!(
            "{address} has a listening socket, but no process was seen to hold it \
             ({unreadable} processes did not let us read their descriptors)"
        );
        return Err(NotObservable::new(FIGURE, why));
    }
    pids.sort_unstable();
    Ok(pids)
}

/// Returns whether process `pid` has one of the sockets; `None` if its descriptors cannot be read.
fn holds_any_socket(pid: i32, inodes: &HashSet<u64>, descriptors_left: &mut usize) -> Option<bool> {
    for link in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        if *descriptors_left == 0 {
            return None;
        }
        *descriptors_left -= 1;
        let target = link.ok().and_then(|link| fs::read_link(link.path()).ok());
        let inode = target.as_deref().and_then(Path::to_str).and_then(parse_socket_link);
        if inode.is_some_and(|inode| inodes.contains(&inode)) {
            return Some(true);
        }
    }
    Some(false)
}

/// Adds the sockets in a thread's descriptor table to `inodes`, reading at most
/// `descriptors_left` descriptors.
pub(crate) fn collect_socket_inodes(
    pid: i32,
    tid: i32,
    inodes: &mut HashSet<u64>,
    descriptors_left: &mut usize,
) {
    let links = fs::read_dir(format!("/proc/{pid}/task/{tid}/fd")).into_iter().flatten();
    for link in links {
        if *descriptors_left == 0 {
            return;
        }
        *descriptors_left -= 1;
        let target = link.ok().and_then(|link| fs::read_link(link.path()).ok());
        inodes.extend(target.as_deref().and_then(Path::to_str).and_then(parse_socket_link));
    }
}

/// Parses "socket:[1665]".
fn parse_socket_link(target: &str) -> Option<u64> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(local: &str, state: u8, inode: u64) -> TcpRow {
        TcpRow { local: local.parse().unwrap(), remote: "0.0.0.0:0".parse().unwrap(), state, inode }
    }

    fn best(address: &str, rows: &[TcpRow]) -> Vec<u64> {
        let mut best = BestMatches::default();
        for row in rows {
            best.consider(row, canonical(address.parse().unwrap()));
        }
        let mut inodes: Vec<u64> = best.inodes.into_iter().collect();
        inodes.sort_unstable();
        inodes
    }

    #[test]
    fn the_closest_socket_wins_and_equals_are_all_returned() {
        let rows = [
            row("[::]:80", LISTEN, 1),
            row("0.0.0.0:80", LISTEN, 2),
            row("127.0.0.1:80", LISTEN, 3),
            row("127.0.0.1:80", LISTEN, 4),
            row("127.0.0.1:80", 1, 5),
            row("127.0.0.1:81", LISTEN, 6),
            row("[::1]:81", LISTEN, 7),
            row("[::]:82", LISTEN, 8),
            row("0.0.0.0:83", LISTEN, 9),
            row("[::ffff:127.0.0.1]:84", LISTEN, 10),
        ];
        let check = |wanted: &str, inodes: &[u64]| assert_eq!(best(wanted, &rows), inodes);
        check("127.0.0.1:80", &[3, 4]);
        check("[::ffff:127.0.0.1]:80", &[3, 4]);
        check("0.0.0.0:80", &[3, 4]);
        check("10.0.0.1:80", &[2]);
        check("[::1]:80", &[1]);
        check("10.0.0.1:82", &[8]);
        check("[::1]:83", &[]);
        check("127.0.0.1:84", &[10]);
        check("[::]:81", &[7]);
        check("127.0.0.1:85", &[]);
    }

    #[test]
    fn only_listening_unix_sockets_count_and_a_path_may_hold_spaces() {
        let check = |line: &str, expected| assert_eq!(parse_unix_listener(line), expected);
        check("Num       RefCount Protocol Flags    Type St Inode Path", None);
        check("00000000c6b4b97b: 00000003 00000000 00000000 0001 03  1662", None);
        check(
            "0000000012345678: 00000002 00000000 00010000 0001 01 20481 /run/a b.sock",
            Some((20481, "/run/a b.sock")),
        );
        check(
            "0000000012345678: 00000002 00000000 00010000 0001 01   481 @abstract",
            Some((481, "@abstract")),
        );
        check("0000000012345678: 00000003 00000000 00000000 0001 03 20481 /run/a.sock", None);
    }

    #[test]
    fn a_descriptor_link_names_its_socket() {
        assert_eq!(parse_socket_link("socket:[1665]"), Some(1665));
        assert_eq!(parse_socket_link("pipe:[15485]"), None);
        assert_eq!(parse_socket_link("/dev/null"), None);
    }

    #[test]
    fn this_process_is_found_live() {
        let own = std::process::id() as i32;
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(find_listeners(([127, 0, 0, 1], port).into()).unwrap().contains(&own));
        assert!(listening_ports(&[own]).unwrap().contains(&port));
        let setting = fs::read_to_string("/proc/sys/net/ipv4/ip_nonlocal_bind");
        match setting.is_ok_and(|text| text.trim() != "0") {
            true => test_needs::skip(
                test_needs::KERNEL,
                "with net.ipv4.ip_nonlocal_bind any address can be bound",
            ),
            // An address of the documentation block belongs to no machine.
            false => assert_eq!(find_listeners(([192, 0, 2, 1], port).into()), Ok(vec![])),
        }
        drop(listener);
        let path = std::env::temp_dir().join(format!("host listeners {own}.sock"));
        let _unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(find_unix_listeners(&path).unwrap().contains(&own));
        fs::remove_file(path).unwrap();
    }
}
