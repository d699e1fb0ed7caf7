//! A program on an interface with its socket: what is taken from the kernel, until it is dropped or the process ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::bpf::{self, AttachMode};
use crate::interface::{InterfaceFacts, SSH_PORT, XdpError};
use crate::port::Port;
use crate::program::{RULES_MAX, Rule, assemble};

pub use crate::mode::XdpMode;

/// Socket of one queue of an interface, with the program that all its queues share.
#[derive(Debug)]
pub struct Attachment {
    // Fields are dropped in their order: with the last queue the kernel first gets its packets back.
    _program: Arc<AttachedProgram>,
    port: Port,
    mode: XdpMode,
}

/// Program of an interface, until the last of its queues is closed.
#[derive(Debug)]
struct AttachedProgram {
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
    _held_ports: Vec<OwnedFd>,
}

impl Attachment {
    /// Takes the packets of `rules` (at most [`RULES_MAX`]) on all queues; returns one value for each, in their order. A
    /// kernel socket without a listener holds each of the `held` addresses, so that no other program gets it meanwhile.
    ///
    /// # Errors
    /// The port is 22 or in use; another program is attached; not permitted; a call failed. Then nothing is taken.
    pub fn open(facts: &InterfaceFacts, rules: &[Rule], held: &[SocketAddr]) -> Result<Vec<Self>, XdpError> {
        if rules.iter().any(|rule| rule.ports.contains(&SSH_PORT)) {
            return Err(XdpError::Ssh);
        }
        if rules.len() > RULES_MAX {
            return Err(XdpError::TooManyRules(rules.len()));
        }
        let held_ports = held.iter().map(|address| hold_port(*address)).collect::<Result<_, _>>()?;
        let failed = |what| move |error| XdpError::from_io(what, error);
        let map = bpf::create_socket_map(facts.queues).map_err(failed("creating the map of sockets"))?;
        let code = assemble(rules, std::os::fd::AsRawFd::as_raw_fd(&map));
        let program = bpf::load_program(&code).map_err(failed("loading the XDP program"))?;
        let mut ports = Vec::new();
        for queue in 0..facts.queues {
            let port = Port::open(facts.index, queue, facts.mtu).map_err(|error| {
                match (error.raw_os_error(), attached_program(facts)) {
                    (Some(libc::EBUSY), Some(id)) => XdpError::program_attached(&facts.name, id),
                    (Some(libc::EBUSY), None) => XdpError::QueueUsed { name: facts.name.clone(), queue },
                    _ => XdpError::from_io("opening the AF_XDP socket", error),
                }
            })?;
            bpf::set_socket(map.as_fd(), queue, port.as_fd())
                .map_err(failed("entering the socket into the map"))?;
            ports.push(port);
        }
        let (link, attached) =
            bpf::attach(program.as_fd(), facts.index).map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    XdpError::program_attached(&facts.name, attached_program(facts).unwrap_or(0))
                }
                _ => XdpError::from_io("attaching the XDP program", error),
            })?;
        let mode = |port: &Port| match attached {
            AttachMode::Generic => XdpMode::Generic,
            AttachMode::Driver if port.is_zero_copy() => XdpMode::ZeroCopy,
            AttachMode::Driver => XdpMode::Copy,
        };
        let program =
            Arc::new(AttachedProgram { _link: link, _program: program, _map: map, _held_ports: held_ports });
        let attachment = |port: Port| Self { _program: Arc::clone(&program), mode: mode(&port), port };
        Ok(ports.into_iter().map(attachment).collect())
    }

    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Returns the socket.
    #[must_use]
    pub fn port(&self) -> &Port {
        &self.port
    }
}

/// Returns the id of the program that an interface has now; 0: not known.
fn attached_program(facts: &InterfaceFacts) -> Option<u32> {
    InterfaceFacts::read(&facts.name).ok()?.program
}

/// Checks that no socket of the kernel has an address and port.
///
/// # Errors
/// One has. Other reasons, such as a missing permission, are those of [`Attachment::open`].
pub fn check_port(address: SocketAddr) -> Result<(), XdpError> {
    match hold_port(address) {
        Err(error @ XdpError::PortUsed(_)) => Err(error),
        _ => Ok(()),
    }
}

/// Binds a kernel socket that does not listen to an address and port.
fn hold_port(address: SocketAddr) -> Result<OwnedFd, XdpError> {
    let hold = |shares: bool| -> io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, shares)?;
        bind(&socket, &address)?;
        Ok(socket)
    };
    // Connections in TIME_WAIT are no reason to fail: they share the port, and a listener does not.
    hold(false).or_else(|_| hold(true)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => XdpError::PortUsed(address),
        _ => XdpError::from_io("holding the port", error),
    })
}

impl crate::stack::Link for Attachment {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.port.receive(buffer)
    }

    fn end_receive(&mut self) {
        self.port.end_receive();
    }

    #[inline]
    fn has_space(&mut self) -> bool {
        self.port.has_space()
    }

    #[inline]
    fn transmit<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.port.transmit(length, fill)
    }

    fn flush(&mut self) {
        self.port.flush();
    }
}
