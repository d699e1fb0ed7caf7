//! The parser on captured rows, and a look at sockets of our own.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use record::observed::End;

use super::*;

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
    if let Err(error) = diag.snapshot(&[port], &mut listeners, &mut ends) {
        return println!("skipped: {error}");
    }
    assert_eq!(listeners.len(), 1);
    assert_eq!((listeners[0].port, listeners[0].waiting, listeners[0].sockets), (port, 2, 1));
    let server = ends.iter().find(|end| end.end == End::Server).unwrap();
    let client = ends.iter().find(|end| end.end == End::Client).unwrap();
    assert_eq!((server.states["established"], client.states["established"]), (3, 3));
    assert_eq!((server.with_unread, server.unread_bytes, server.unread_bytes_max), (1, 6, 6));
    assert!(!diag.truncated());
    let mut connections = vec![];
    diag.connections_of(&[port], &mut connections).unwrap();
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
    diag.snapshot(&[], &mut listeners, &mut ends).unwrap();
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

#[test]
fn who_looks_often_waits_for_as_long_as_it_costs() {
    assert_eq!(interval_ns(100_000, 200_000_000), 200_000_000);
    assert_eq!(interval_ns(2_000_000, 200_000_000), 500_000_000);
}
