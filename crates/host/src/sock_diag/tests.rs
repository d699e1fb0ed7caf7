//! Tests of the parser on captured rows, and a snapshot of the own sockets.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use record::observed::ConnectionEnd;

use super::tcp_socket::{SocketMemory, TcpInfo};
use super::*;
use crate::netlink::message::testing::{for_each_corruption, parse_hex};

const ESTABLISHED: &str = include_str!("captured/established.hex");
const ESTABLISHED_IPV6: &str = include_str!("captured/established_ipv6.hex");
const LISTENING: &str = include_str!("captured/listening.hex");
const SYN_RECEIVED: &str = include_str!("captured/syn_recv.hex");
const TIME_WAIT: &str = include_str!("captured/time_wait.hex");

// Captured on Linux 6.18, x86-64.
#[cfg(target_endian = "little")]
#[test]
fn a_connection_is_read_with_its_figures() {
    let expected = TcpSocket {
        local: "127.0.0.1:18999".parse().unwrap(),
        remote: "127.0.0.1:54172".parse().unwrap(),
        state: TcpState::Established,
        recv_queue: 2000,
        send_queue: 0,
        inode: 77390,
        cookie: 10_029,
        info: Some(TcpInfo {
            rtt_us: 24,
            rtt_min_us: 24,
            application_limited: true,
            retransmitted_bytes: Some(0),
            duplicates: Some(0),
            reorderings: Some(0),
            last_data_sent_ms: 164,
            last_data_recv_ms: 120,
            bytes_received: 2000,
            segments_received: 18,
            ..TcpInfo::default()
        }),
        memory: Some(SocketMemory { bytes: 3664 + 432, drops: 0 }),
    };
    assert_eq!(tcp_socket::parse(&parse_hex(ESTABLISHED)), Some(expected));
    let ipv6 = tcp_socket::parse(&parse_hex(ESTABLISHED_IPV6)).unwrap();
    assert_eq!((ipv6.local, ipv6.recv_queue), ("[::1]:18998".parse().unwrap(), 5));
    assert_eq!((ipv6.state, ipv6.info.unwrap().rtt_us), (TcpState::Established, 13));
}

#[cfg(target_endian = "little")]
#[test]
fn a_listener_and_what_is_no_full_socket_are_read() {
    let listener = tcp_socket::parse(&parse_hex(LISTENING)).unwrap();
    assert_eq!((listener.state, listener.local.port()), (TcpState::Listen, 18999));
    assert_eq!((listener.recv_queue, listener.send_queue), (1, 128));
    let waiting = tcp_socket::parse(&parse_hex(TIME_WAIT)).unwrap();
    assert_eq!((waiting.state, waiting.inode, waiting.info), (TcpState::TimeWait, 0, None));
    let half_open = tcp_socket::parse(&parse_hex(SYN_RECEIVED)).unwrap();
    assert_eq!((half_open.state, half_open.memory), (TcpState::SynReceived, None));
    assert_eq!(half_open.remote, "10.99.1.77:40000".parse().unwrap());
}

/// Offset of a field of `tcp_info` in a captured row.
#[cfg(target_endian = "little")]
fn info_at(row: &[u8]) -> usize {
    // The header of the attribute: 284 bytes long, of kind 2.
    row.windows(4).position(|four| four == [28, 1, 2, 0]).unwrap() + 4
}

#[cfg(target_endian = "little")]
#[test]
fn every_figure_of_tcp_info_stands_where_the_kernel_puts_it() {
    let mut row = parse_hex(ESTABLISHED);
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
    for (offset, value) in [(160, 5_u64), (168, 6), (176, 7), (184, 8), (208, 9), (120, 16), (128, 17)] {
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
        last_data_sent_ms: 12,
        last_data_recv_ms: 13,
        segments_received: 14,
        segments_sent: 15,
        bytes_acked: 16,
        bytes_received: 17,
    };
    assert_eq!(tcp_socket::parse(&row).unwrap().info, Some(expected));
}

#[cfg(target_endian = "little")]
#[test]
fn a_kernel_with_less_or_more_of_tcp_info_is_read_as_far_as_it_goes() {
    let original = parse_hex(ESTABLISHED);
    let at = info_at(&original);
    let info = |length: usize| {
        let mut row = original[..at - 4].to_vec();
        let mut value = original[at..at + 280].to_vec();
        value.resize(length, 0xff);
        crate::netlink::message::push_attribute(&mut row, 2, &value);
        tcp_socket::parse(&row).unwrap().info.unwrap()
    };
    assert_eq!(info(400), info(280));
    // Linux 2.6.32 ended at tcpi_total_retrans.
    assert_eq!((info(104).rtt_us, info(104).rtt_min_us), (24, 0));
    // Linux 4.18 ends before tcpi_bytes_sent, and one between has a part of the last three.
    assert_eq!((info(200).retransmitted_bytes, info(200).reorderings), (None, None));
    assert_eq!((info(220).duplicates, info(220).reorderings), (Some(0), None));
    assert_eq!(info(0), TcpInfo::default());
}

#[test]
fn rows_that_are_cut_or_garbage_are_refused_or_read_but_never_a_panic() {
    for text in [ESTABLISHED, ESTABLISHED_IPV6, LISTENING, SYN_RECEIVED, TIME_WAIT] {
        for_each_corruption(&parse_hex(text), |row| {
            let parsed = tcp_socket::parse(row);
            assert!(row.len() >= 72 || parsed.is_none());
        });
    }
    let mut row = parse_hex(TIME_WAIT);
    for state in [0, 12, 255] {
        row[1] = state;
        assert_eq!(tcp_socket::parse(&row), None);
    }
    row[..2].copy_from_slice(&[1, 6]);
    assert_eq!(tcp_socket::parse(&row), None, "neither IPv4 nor IPv6");
}

#[test]
fn own_sockets_are_read_live() {
    let mut diag = match SockDiag::open(None) {
        Ok(diag) => diag,
        Err(error) => return test_needs::skip(test_needs::KERNEL, error),
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
            return test_needs::skip(test_needs::KERNEL, error);
        }
        let established = |end: &EndQueues| end.states.get("established") == Some(&3);
        let waiting = listeners.iter().any(|listener| listener.waiting == 2);
        if waiting && ends.iter().all(established) && ends.iter().any(|end| end.with_unread == 1) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(listeners.len(), 1);
    assert_eq!((listeners[0].port, listeners[0].waiting, listeners[0].sockets), (port, 2, 1));
    let server = ends.iter().find(|end| end.end == ConnectionEnd::Server).unwrap();
    let client = ends.iter().find(|end| end.end == ConnectionEnd::Client).unwrap();
    assert_eq!((server.states["established"], client.states["established"]), (3, 3));
    assert_eq!((server.with_unread, server.unread_bytes, server.unread_bytes_max), (1, 6, 6));
    assert!(!diag.is_truncated());
    let mut connections = vec![];
    diag.other_sockets(&[port], &mut connections).unwrap();
    connections.retain(|(kind, _)| *kind == OtherSocketKind::Established);
    let connections: Vec<Connection> = connections.into_iter().map(|(_, connection)| connection).collect();
    let ours = |connection: &&Connection| connection.remote.port() == port;
    assert_eq!(connections.iter().filter(ours).count(), 3);
    assert!(connections.iter().filter(ours).all(|connection| connection.inode != 0));
    assert!(connections.iter().all(|connection| connection.local.port() != port));
    drop((accepted, clients));
}

#[test]
fn no_port_is_no_socket() {
    let Ok(mut diag) = SockDiag::open(None) else {
        return test_needs::skip(test_needs::KERNEL, "no netlink");
    };
    let (mut listeners, mut ends) = (vec![], vec![]);
    diag.snapshot(1.0, &[], &mut listeners, &mut ends).unwrap();
    assert_eq!((listeners, ends), (vec![], vec![]));
}

#[test]
fn very_many_in_time_wait_are_counted_in_every_tenth_snapshot() {
    let mut time_wait = TimeWaitSampling::default();
    let mut request = |ports: &[u16], count| {
        let requested = time_wait.is_due(ports);
        time_wait.record_request(requested, ports, count);
        requested
    };
    assert!(request(&[80], 5) && request(&[80], TIME_WAIT_LARGE + 1));
    assert_eq!((0..20).filter(|_| request(&[80], 2000)).count(), 2);
    // Other ports are a different request.
    assert!(request(&[81], 2000) && !request(&[81], 0) && request(&[80], 5) && request(&[80], 5));
}
