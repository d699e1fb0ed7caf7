//! Telling the service manager how we are (sd_notify(3)): one datagram of lines to the socket that
//! `NOTIFY_SOCKET` names. A manager that is not there, or does not listen, is no error of ours: what it
//! is not told it finds out by its time-outs.
//!
//! The socket is opened once, while its file is within reach; what is told when is for the caller.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::clock::now_ns;

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The start, or a reload, is done.
    Ready,
    /// A reload has begun.
    Reloading,
    /// The end has begun.
    Stopping,
    /// Still at work.
    Watchdog,
    /// Another process is the service from now on.
    MainProcess(u32),
}

impl State {
    /// The lines of its datagram, at this time of `CLOCK_MONOTONIC`.
    fn lines(self, now_ns: u64) -> String {
        match self {
            Self::Ready => "READY=1".to_owned(),
            // The manager compares it with when it sent its signal.
            Self::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}", now_ns / 1_000),
            Self::Stopping => "STOPPING=1".to_owned(),
            Self::Watchdog => "WATCHDOG=1".to_owned(),
            Self::MainProcess(id) => format!("MAINPID={id}"),
        }
    }
}

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

/// What the environment says about a manager, as sd_notify(3) and sd_watchdog_enabled(3) have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `NOTIFY_SOCKET`.
    pub socket: Option<OsString>,
    /// `WATCHDOG_USEC`.
    pub watchdog_us: Option<OsString>,
    /// `WATCHDOG_PID`.
    pub watchdog_process: Option<OsString>,
}

impl Environment {
    /// This process's.
    #[must_use]
    pub fn read() -> Self {
        Self {
            socket: std::env::var_os("NOTIFY_SOCKET"),
            watchdog_us: std::env::var_os("WATCHDOG_USEC"),
            watchdog_process: std::env::var_os("WATCHDOG_PID"),
        }
    }

    /// How long the manager waits for a sign of life of the process `own`.
    fn watchdog(&self, own: u32) -> Option<Duration> {
        let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
        let is_meant = match &self.watchdog_process {
            Some(process) => number(process) == Some(u64::from(own)),
            None => true,
        };
        let most_us = self.watchdog_us.as_ref().and_then(number)?;
        (is_meant && most_us > 0).then(|| Duration::from_micros(most_us))
    }
}

impl Manager {
    /// Connects to the manager that the environment names; none there: one that hears nothing.
    ///
    /// # Errors
    /// The environment names a socket that cannot be reached, with its name in the message.
    pub fn connect(environment: &Environment) -> io::Result<Self> {
        let Some(name) = environment.socket.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("NOTIFY_SOCKET {}: {error}", name.display()))
        };
        let socket = open(name).map_err(named)?;
        let watchdog = environment.watchdog(std::process::id());
        Ok(Self { socket: Some(socket), watchdog })
    }

    /// Whether there is a manager to tell.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// How often to send [`State::Watchdog`], if at all: half of the time that the manager waits.
    #[must_use]
    pub fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|most| most / 2)
    }

    /// Tells it. One that does not take it now is not waited for.
    pub fn tell(&self, state: State) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(state.lines(now_ns()).as_bytes());
        }
    }
}

/// A path, or a name without a file behind an `@` (unix(7), abstract).
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

    fn environment(socket: &str) -> Environment {
        Environment { socket: Some(socket.into()), ..Environment::default() }
    }

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_hears_it_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").display().to_string();
        let at_path = UnixDatagram::bind(&path).unwrap();
        // As an abstract name it is nobody else's either.
        let address = SocketAddr::from_abstract_name(&path).unwrap();
        let abstracted = UnixDatagram::bind_addr(&address).unwrap();
        for (text, socket) in [(path.clone(), &at_path), (format!("@{path}"), &abstracted)] {
            let manager = Manager::connect(&environment(&text)).unwrap();
            manager.tell(State::Ready);
            assert_eq!(heard(socket), "READY=1");
            manager.tell(State::MainProcess(7));
            assert_eq!(heard(socket), "MAINPID=7");
        }
    }

    #[test]
    fn a_reload_says_when_it_began_in_microseconds() {
        assert_eq!(State::Reloading.lines(5_000_999), "RELOADING=1\nMONOTONIC_USEC=5000");
        assert_eq!(State::Stopping.lines(0), "STOPPING=1");
    }

    #[test]
    fn no_manager_is_no_error_and_one_out_of_reach_is() {
        let none = Manager::connect(&Environment::default()).unwrap();
        none.tell(State::Ready);
        assert!(!none.is_there() && none.watchdog_every().is_none());
        assert!(!Manager::connect(&environment("")).unwrap().is_there());
        for name in ["/no/such/socket", "relative", "@no-such-weir"] {
            let error = Manager::connect(&environment(name)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("NOTIFY_SOCKET {name}: ")), "{error}");
        }
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let asked = |us: &str, process: Option<&str>| {
            Environment {
                socket: None,
                watchdog_us: Some(us.into()),
                watchdog_process: process.map(Into::into),
            }
            .watchdog(42)
        };
        assert_eq!(asked("3000000", None), Some(Duration::from_secs(3)));
        assert_eq!(asked("3000000", Some("42")), Some(Duration::from_secs(3)));
        assert_eq!(asked("3000000", Some("43")), None);
        assert_eq!(asked("0", None), None);
        assert_eq!(asked("x", None), None);
    }
}
