//! Service manager notifications (sd_notify(3)): one datagram of lines to the socket named by
//! `NOTIFY_SOCKET`. A missing or unresponsive manager is no error of ours: its timeouts detect
//! missing notifications.
//!
//! The socket is opened once, while its file is accessible; the caller decides when to notify.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::clock::now_ns;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// The start, or a reload, is complete.
    Ready,
    Reloading,
    Stopping,
    /// The process is alive.
    Watchdog,
    /// Another process is the service from now on.
    MainPid(u32),
}

impl ServiceState {
    /// Returns the lines of its datagram, at the time `now_ns` of `CLOCK_MONOTONIC`.
    fn datagram(self, now_ns: u64) -> String {
        match self {
            Self::Ready => "READY=1".to_owned(),
            // The manager compares it with the time of its signal.
            Self::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}", now_ns / 1_000),
            Self::Stopping => "STOPPING=1".to_owned(),
            Self::Watchdog => "WATCHDOG=1".to_owned(),
            Self::MainPid(id) => format!("MAINPID={id}"),
        }
    }
}

#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

/// Environment variables of a manager, as in sd_notify(3) and sd_watchdog_enabled(3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagerEnvironment {
    pub socket: Option<OsString>,
    pub watchdog_us: Option<OsString>,
    pub watchdog_pid: Option<OsString>,
}

impl ManagerEnvironment {
    #[must_use]
    pub fn read() -> Self {
        Self {
            socket: std::env::var_os("NOTIFY_SOCKET"),
            watchdog_us: std::env::var_os("WATCHDOG_USEC"),
            watchdog_pid: std::env::var_os("WATCHDOG_PID"),
        }
    }

    /// Returns the manager's watchdog timeout for the process `own_pid`.
    fn watchdog(&self, own_pid: u32) -> Option<Duration> {
        let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
        let applies = match &self.watchdog_pid {
            Some(pid) => number(pid) == Some(u64::from(own_pid)),
            None => true,
        };
        let timeout_us = self.watchdog_us.as_ref().and_then(number)?;
        (applies && timeout_us > 0).then(|| Duration::from_micros(timeout_us))
    }
}

impl ServiceManager {
    /// Connects to the manager that the environment names; without one, notifications do nothing.
    ///
    /// # Errors
    /// The environment names a socket that cannot be reached; its name is in the message.
    pub fn connect(environment: &ManagerEnvironment) -> io::Result<Self> {
        let Some(name) = environment.socket.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let with_socket_name = |error: io::Error| {
            io::Error::new(error.kind(), format!("NOTIFY_SOCKET {}: {error}", name.display()))
        };
        let socket = open(name).map_err(with_socket_name)?;
        let watchdog = environment.watchdog(std::process::id());
        Ok(Self { socket: Some(socket), watchdog })
    }

    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Returns the interval for [`ServiceState::Watchdog`], if any: half of the manager's timeout.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|timeout| timeout / 2)
    }

    /// Sends the state. A manager that cannot receive it now is not waited for.
    pub fn notify(&self, state: ServiceState) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(state.datagram(now_ns()).as_bytes());
        }
    }
}

/// Opens a path, or an abstract name behind an `@` (unix(7)).
fn open(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.as_bytes() {
        [b'/', ..] => socket.connect(name)?,
        [b'@', rest @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(rest)?)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "write /path or @name")),
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(socket: &str) -> ManagerEnvironment {
        ManagerEnvironment { socket: Some(socket.into()), ..ManagerEnvironment::default() }
    }

    fn receive_datagram(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_is_notified_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify").display().to_string();
        let at_path = UnixDatagram::bind(&path).unwrap();
        // As an abstract name it is also unique.
        let address = SocketAddr::from_abstract_name(&path).unwrap();
        let abstracted = UnixDatagram::bind_addr(&address).unwrap();
        for (text, socket) in [(path.clone(), &at_path), (format!("@{path}"), &abstracted)] {
            let manager = ServiceManager::connect(&environment(&text)).unwrap();
            manager.notify(ServiceState::Ready);
            assert_eq!(receive_datagram(socket), "READY=1");
            manager.notify(ServiceState::MainPid(7));
            assert_eq!(receive_datagram(socket), "MAINPID=7");
        }
    }

    #[test]
    fn a_reload_says_when_it_began_in_microseconds() {
        assert_eq!(ServiceState::Reloading.datagram(5_000_999), "RELOADING=1\nMONOTONIC_USEC=5000");
        assert_eq!(ServiceState::Stopping.datagram(0), "STOPPING=1");
    }

    #[test]
    fn no_manager_is_no_error_and_one_out_of_reach_is() {
        let none = ServiceManager::connect(&ManagerEnvironment::default()).unwrap();
        none.notify(ServiceState::Ready);
        assert!(!none.is_connected() && none.watchdog_interval().is_none());
        assert!(!ServiceManager::connect(&environment("")).unwrap().is_connected());
        for name in ["/no/such/socket", "relative", "@no-such-weir"] {
            let error = ServiceManager::connect(&environment(name)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("NOTIFY_SOCKET {name}: ")), "{error}");
        }
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let watchdog_timeout = |us: &str, pid: Option<&str>| {
            ManagerEnvironment {
                socket: None,
                watchdog_us: Some(us.into()),
                watchdog_pid: pid.map(Into::into),
            }
            .watchdog(42)
        };
        assert_eq!(watchdog_timeout("3000000", None), Some(Duration::from_secs(3)));
        assert_eq!(watchdog_timeout("3000000", Some("42")), Some(Duration::from_secs(3)));
        assert_eq!(watchdog_timeout("3000000", Some("43")), None);
        assert_eq!(watchdog_timeout("0", None), None);
        assert_eq!(watchdog_timeout("x", None), None);
    }
}
