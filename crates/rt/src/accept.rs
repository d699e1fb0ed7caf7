//! Accept loop: the connection balancer distributes the connections of a listening socket to the cores.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{SocketFlags, acceptfrom_with};

use crate::async_fd;
use crate::clock::{MILLISECOND_NS, now_ns};
use crate::conn_balancer::{AcceptedConnection, ConnectionBalancer};
use crate::listen::Listener;
use crate::timers::Timers;

#[derive(Debug)]
pub enum AcceptEvent {
    Connection(AcceptedConnection),
    /// accept4(2) failed, usually because no descriptor or memory was left. The loop waits and tries
    /// again; meanwhile the connections stay in the accept queue.
    AcceptFailed(io::Error),
}

/// Maximum number of connections accepted in one turn, before other tasks run.
const ACCEPT_BATCH: usize = 64;
/// Waiting time of the accept loop after a failed accept4(2).
const ACCEPT_RETRY_NS: u64 = 20 * MILLISECOND_NS;

/// Accepts the connections of `listener` forever; `handle` gets those that `balancer` assigns to this
/// core.
///
/// # Errors
/// The socket cannot be registered with the core's runtime, or the runtime is shutting down. A
/// failed accept4(2) is an [`AcceptEvent::AcceptFailed`].
pub async fn accept_forever(
    listener: Listener,
    balancer: &ConnectionBalancer,
    core: usize,
    timers: &Timers,
    mut handle: impl FnMut(AcceptEvent),
) -> io::Result<()> {
    let (family, listener_index) = (listener.family(), listener.index());
    let socket = async_fd::register_readable(listener.into())?;
    loop {
        let mut guard = socket.readable().await?;
        for accepted_count in 0.. {
            if accepted_count == ACCEPT_BATCH {
                tokio::task::yield_now().await;
                break;
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(socket.as_fd(), flags) {
                Ok((fd, peer)) => {
                    let peer = peer.and_then(|peer| peer.try_into().ok());
                    let accepted = AcceptedConnection { fd, family, listener_index, peer };
                    if let Some(connection) = balancer.assign(core, accepted) {
                        handle(AcceptEvent::Connection(connection));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => {
                    guard.clear_ready();
                    break;
                }
                // The connection was reset in the accept queue (ECONNABORTED, EPROTO: accept(2)), or
                // a signal interrupted the call.
                Err(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR | rustix::io::Errno::PROTO) => {}
                Err(error) => {
                    handle(AcceptEvent::AcceptFailed(error.into()));
                    timers.sleep_until(now_ns() + ACCEPT_RETRY_NS).await;
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) async fn accept_one(listener: Listener) -> AcceptedConnection {
        let (balancer, _inboxes) = ConnectionBalancer::new(1).unwrap();
        let timers = Timers::start().unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let accepting = accept_forever(listener, &balancer, 0, &timers, |accepted| {
            let _ = sender.send(accepted);
        });
        tokio::select! {
            _ = accepting => unreachable!("it accepts for ever"),
            accepted = receiver.recv() => match accepted {
                Some(AcceptEvent::Connection(connection)) => connection,
                other => panic!("{other:?}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::testing::accept_one;
    use crate::address::Address;
    use crate::listen::BoundAddress;

    /// Returns a local address: with IPv6 if the machine has it.
    fn any_port() -> Address {
        let missing = [Some(libc::EADDRNOTAVAIL), Some(libc::EAFNOSUPPORT)];
        match std::net::TcpListener::bind("[::1]:0") {
            Err(error) if missing.contains(&error.raw_os_error()) => {
                test_needs::skip(test_needs::KERNEL, format!("IPv6: {error}"));
                "127.0.0.1:0".parse().unwrap()
            }
            _ => "[::1]:0".parse().unwrap(),
        }
    }

    #[test]
    fn the_peer_is_known_without_asking_and_a_unix_peer_has_no_address() {
        crate::cores::block_on(async {
            let mut bound = BoundAddress::new(&any_port(), 1).unwrap();
            let Address::Tcp(target) = *bound.address() else { unreachable!("it is TCP") };
            let client = std::net::TcpStream::connect(target).unwrap();
            let accepted = accept_one(bound.take_listener(0, 0).unwrap()).await;
            assert_eq!(accepted.peer, Some(client.local_addr().unwrap()));
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let mut bound = BoundAddress::new(&Address::Unix(path.clone()), 1).unwrap();
            let _client = UnixStream::connect(&path).unwrap();
            assert_eq!(accept_one(bound.take_listener(0, 0).unwrap()).await.peer, None);
        });
    }
}
