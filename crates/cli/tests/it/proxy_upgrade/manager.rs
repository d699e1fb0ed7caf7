//! Notifications to a service manager (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::Signal;

use super::{EXIT_TIMEOUT, config, control_socket, get_body};
use crate::support::proxy_under_test::{ProxyUnderTest, StartOptions};
use crate::support::{shared_machine, temp_dir, within};

/// Socket of a service manager.
struct ManagerSocket {
    socket: UnixDatagram,
    name: String,
}

impl ManagerSocket {
    fn at_path(path: &std::path::Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        Self::with_socket(socket, path.to_str().unwrap().to_owned())
    }

    fn abstract_socket() -> Self {
        let name = format!("weir-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self::with_socket(UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
    }

    fn with_socket(socket: UnixDatagram, name: String) -> Self {
        socket.set_read_timeout(Some(EXIT_TIMEOUT)).unwrap();
        Self { socket, name }
    }

    /// Returns the next notification that is no watchdog signal.
    fn next(&self) -> String {
        loop {
            let mut bytes = [0; 256];
            let length = self.socket.recv(&mut bytes).expect("something to hear");
            let notification = String::from_utf8(bytes[..length].to_vec()).unwrap();
            if notification != "WATCHDOG=1" {
                return notification;
            }
        }
    }
}

#[test]
fn a_manager_hears_of_start_reload_and_stop() {
    let _shared = shared_machine();
    let directory = temp_dir();
    for manager in
        [ManagerSocket::at_path(&directory.path().join("notify")), ManagerSocket::abstract_socket()]
    {
        let environment = [("NOTIFY_SOCKET", &*manager.name)];
        let start = StartOptions { environment: &environment, ..StartOptions::default() };
        let mut proxy = ProxyUnderTest::weir_with_options(&config(directory.path(), 1, "one"), &start);
        assert_eq!(manager.next(), "READY=1");
        for text in [config(directory.path(), 1, "two"), "nonsense".to_owned()] {
            proxy.reload(&text);
            let reloading = manager.next();
            let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
            assert!(since.is_some_and(|us| us.parse::<u64>().is_ok()), "{reloading}");
            // With the previous config when the new one is invalid.
            assert_eq!(manager.next(), "READY=1");
            assert_eq!(get_body(&mut proxy.client()), "two");
        }
        proxy.process.signal(Signal::TERM);
        assert_eq!(manager.next(), "STOPPING=1");
        assert_eq!(proxy.process.wait(EXIT_TIMEOUT), 0);
    }
}

#[test]
fn a_manager_hears_signs_of_life_when_it_wants_them() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let manager = ManagerSocket::at_path(&directory.path().join("notify"));
    let environment = [("NOTIFY_SOCKET", &*manager.name), ("WATCHDOG_USEC", "200000")];
    let start = StartOptions { environment: &environment, ..StartOptions::default() };
    let _proxy = ProxyUnderTest::weir_with_options(&config(directory.path(), 2, "one"), &start);
    let mut signs = 0;
    let enough = within(EXIT_TIMEOUT, || {
        let mut bytes = [0; 256];
        let length = manager.socket.recv(&mut bytes).expect("something to hear");
        signs += usize::from(&bytes[..length] == b"WATCHDOG=1");
        signs == 3
    });
    assert!(enough, "{signs} signs");
}

#[test]
fn a_manager_hears_who_is_the_service_after_an_upgrade() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let manager = ManagerSocket::at_path(&directory.path().join("notify"));
    let environment = [("NOTIFY_SOCKET", &*manager.name)];
    let start = StartOptions { environment: &environment, ..StartOptions::default() };
    let mut old = ProxyUnderTest::weir_with_options(&config(directory.path(), 1, "old"), &start);
    assert_eq!(manager.next(), "READY=1");
    let flags = ["--upgrade-from", &control_socket(directory.path())];
    let start = StartOptions { flags: &flags, ..start };
    let new = ProxyUnderTest::weir_with_options(&config(directory.path(), 1, "new"), &start);
    // Both processes notify it at the same time.
    let mut notifications = [manager.next(), manager.next()];
    notifications.sort();
    let has_groups = std::fs::read_to_string("/proc/self/cgroup")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("0::")));
    let old_notification = match has_groups {
        true => format!("MAINPID={}", new.process.id()),
        false => "STOPPING=1".to_owned(),
    };
    let mut expected = ["READY=1".to_owned(), old_notification];
    expected.sort();
    assert_eq!(notifications, expected);
    assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
}

#[test]
fn a_manager_that_is_not_there_is_a_warning() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let environment = [("NOTIFY_SOCKET", "/no/such/socket")];
    let start = StartOptions { environment: &environment, ..StartOptions::default() };
    let proxy = ProxyUnderTest::weir_with_options(&config(directory.path(), 1, "here"), &start);
    assert_eq!(get_body(&mut proxy.client()), "here");
    proxy.wait_for_lines_with("stderr", "NOTIFY_SOCKET /no/such/socket", 1);
}
