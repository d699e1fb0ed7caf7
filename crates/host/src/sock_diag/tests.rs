//! The parser on captured rows, and a look at sockets of our own.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use record::observed::End;

use super::row::{Memory, TcpInfo};
use super::*;
use crate::netlink::message::testing::{bytes, mangled};

const ESTABLISHED: &str = include_str!("captured/established.hex");
const ESTABLISHED_IPV6: &str = include_str!("captured/established_ipv6.hex");
const LISTENING: &str = include_str!("captured/listening.hex");
const SYN_RECEIVED: &str = include_str!("captured/syn_recv.hex");
const TIME_WAIT: &str = include_str!("captured/time_wait.hex");

// Captured on Linux 6.18, x86-64.
#[cfg(target_endian = "little")]
#[test]
fn a_connection_is_read_with_its_figures() {
    let expected = Row {
        local: "127.0.0.1:18999".parse().unwrap(),
        remote: "127.0.0.1:54172".parse().unwrap(),
        state: State::Established,
        received: 2000,
        unacknowledged: 0,
        inode: 77390,
        cookie: 10_029,
        info: Some(TcpInfo {
            rtt_us: 24,
            rtt_min_us: 24,
            application_limited: true,
            retransmitted_bytes: Some(0),
            duplicates: Some(0),
            reorderings: Some(0),
            sent_ms_ago: 164,
            received_ms_ago: 120,
            bytes_received: 2000,
            segments_received: 18,
            ..TcpInfo::default()
        }),
        memory: Some(Memory { bytes: 3664 + 432, drops: 0 }),
    };
    assert_eq!(row::parse(&bytes(ESTABLISHED)), Some(expected));
    let ipv6 = row::parse(&bytes(ESTABLISHED_IPV6)).unwrap();
    assert_eq!((ipv6.local, ipv6.received), ("[::1]:18998".parse().unwrap(), 5));
    assert_eq!((ipv6.state, ipv6.info.unwrap().rtt_us), (State::Established, 13));
}

#[cfg(target_endian = "little")]
#[test]
fn a_listener_and_what_is_no_full_socket_are_read() {
    let listener = row::parse(&bytes(LISTENING)).unwrap();
    assert_eq!((listener.state, listener.local.port()), (State::Listen, 18999));
    assert_eq!((listener.received, listener.unacknowledged), (1, 128));
    let waiting = row::parse(&bytes(TIME_WAIT)).unwrap();
    assert_eq!((waiting.state, waiting.inode, waiting.info), (State::TimeWait, 0, None));
    let half_open = row::parse(&bytes(SYN_RECEIVED)).unwrap();
    assert_eq!((half_open.state, half_open.memory), (State::SynReceived, None));
    assert_eq!(half_open.remote, "10.99.1.77:40000".parse().unwrap());
}

/// The place of a field of `tcp_info` in a captured row.
#[cfg(target_endian = "little")]
fn info_at(row: &[u8]) -> usize {
    // The header of the attribute: 284 bytes long, of kind 2.
    row.windows(4).position(|four| four == [28, 1, 2, 0]).unwrap() + 4
}

#[cfg(target_endian = "little")]
#[test]
fn every_figure_of_tcp_info_stands_where_the_kernel_puts_it() {
    let mut row = bytes(ESTABLISHED);
    let at = info_at(&row);
    row[at + 7] = 0xfe;
    for (offset, value) in [
        (68, 1_u32),
        (100, 2),
        (144, 3),
        (148, 4),
        (216, 10),
        (220, 11),
        (44, 12),
        (52, 13),
        (152, 14),
        (156, 15),
    ] {
        row[at + offset..at + offset + 4].copy_from_slice(&value.to_ne_bytes());
    }
    for (offset, value) in
        [(160, 5_u64), (168, 6), (176, 7), (184, 8), (208, 9), (120, 16), (128, 17)]
    {
        row[at + offset..at + offset + 8].copy_from_slice(&value.to_ne_bytes());
    }
    let expected = TcpInfo {
        rtt_us: 1,
        retransmitted: 2,
        not_sent_bytes: 3,
        rtt_min_us: 4,
        application_limited: false,
        delivery_bytes_per_s: 5,
        busy_us: 6,
        receive_window_limited_us: 7,
        send_buffer_limited_us: 8,
        retransmitted_bytes: Some(9),
        duplicates: Some(10),
        reorderings: Some(11),
        sent_ms_ago: 12,
        received_ms_ago: 13,
        segments_received: 14,
        segments_sent: 15,
        bytes_acked: 16,
        bytes_received: 17,
    };
    assert_eq!(row::parse(&row).unwrap().info, Some(expected));
}

#[cfg(target_endian = "little")]
#[test]
fn a_kernel_with_less_or_more_of_tcp_info_is_read_as_far_as_it_goes() {
    let whole = bytes(ESTABLISHED);
    let at = info_at(&whole);
    let info = |length: usize| {
        let mut row = whole[..at - 4].to_vec();
        let mut value = whole[at..at + 280].to_vec();
        value.resize(length, 0xff);
        crate::netlink::message::push_attribute(&mut row, 2, &value);
        row::parse(&row).unwrap().info.unwrap()
    };
    assert_eq!(info(400), info(280));
    // Linux 2.6.32 ended at tcpi_total_retrans.
    assert_eq!((info(104).rtt_us, info(104).rtt_min_us), (24, 0));
    // Linux 4.18 ended before tcpi_bytes_sent, and one between has a part of the last three.
    assert_eq!((info(200).retransmitted_bytes, info(200).reorderings), (None, None));
    assert_eq!((info(220).duplicates, info(220).reorderings), (Some(0), None));
    assert_eq!(info(0), TcpInfo::default());
}

#[test]
fn rows_that_are_cut_or_garbage_are_refused_or_read_but_never_a_panic() {
    for text in [ESTABLISHED, ESTABLISHED_IPV6, LISTENING, SYN_RECEIVED, TIME_WAIT] {
        mangled(&bytes(text), |row| {
            let parsed = row::parse(row);
            assert!(row.len() >= 72 || parsed.is_none());
        });
    }
    let mut row = bytes(TIME_WAIT);
    for state in [0, 12, 255] {
        row[1] = state;
        assert_eq!(row::parse(&row), None);
    }
    row[..2].copy_from_slice(&[1, 6]);
    assert_eq!(row::parse(&row), None, "neither IPv4 nor IPv6");
}

#[test]
fn sockets_of_our_own_are_seen_live() {
    let mut diag = match SockDiag::open(None) {
        Ok(diag) => diag,
        Err(error) => return println!("skipped: {error}"),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut clients = [(); 3].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    clients[0].write_all(b"unread").unwrap();
    let (mut listeners, mut ends) = (vec![], vec![]);
    // The kernel may be a moment behind.
    for _ in 0..3000 {
        (listeners, ends) = (vec![], vec![]);
        if let Err(error) = diag.snapshot(1.0, &[port], &mut listeners, &mut ends) {
            return println!("skipped: {error}");
        }
        let established = |end: &EndQueues| end.states.get("established") == Some(&3);
        let waiting = listeners.iter().any(|one| one.waiting == 2);
        if waiting && ends.iter().all(established) && ends.iter().any(|end| end.with_unread == 1) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(listeners.len(), 1);
    assert_eq!((listeners[0].port, listeners[0].waiting, listeners[0].sockets), (port, 2, 1));
    let server = ends.iter().find(|end| end.end == End::Server).unwrap();
    let client = ends.iter().find(|end| end.end == End::Client).unwrap();
    assert_eq!((server.states["established"], client.states["established"]), (3, 3));
    assert_eq!((server.with_unread, server.unread_bytes, server.unread_bytes_max), (1, 6, 6));
    assert!(!diag.truncated());
    let mut connections = vec![];
    diag.others(&[port], &mut connections).unwrap();
    connections.retain(|(kind, _)| *kind == Kind::Established);
    let connections: Vec<Connection> = connections.into_iter().map(|(_, one)| one).collect();
    let ours = |one: &&Connection| one.remote.port() == port;
    assert_eq!(connections.iter().filter(ours).count(), 3);
    assert!(connections.iter().filter(ours).all(|one| one.inode != 0));
    assert!(connections.iter().all(|one| one.local.port() != port));
    drop((accepted, clients));
}

#[test]
fn no_port_is_no_socket() {
    let Ok(mut diag) = SockDiag::open(None) else { return println!("skipped: no netlink") };
    let (mut listeners, mut ends) = (vec![], vec![]);
    diag.snapshot(1.0, &[], &mut listeners, &mut ends).unwrap();
    assert_eq!((listeners, ends), (vec![], vec![]));
}

#[test]
fn very_many_in_time_wait_are_counted_in_every_tenth_look() {
    let mut time_wait = TimeWait::default();
    let mut look = |ports: &[u16], count| {
        let wanted = time_wait.is_wanted(ports);
        time_wait.asked(wanted, ports, count);
        wanted
    };
    assert!(look(&[80], 5) && look(&[80], TIME_WAIT_MANY + 1));
    assert_eq!((0..20).filter(|_| look(&[80], 2000)).count(), 2);
    // Other ports are another question.
    assert!(look(&[81], 2000) && !look(&[81], 0) && look(&[80], 5) && look(&[80], 5));
}
