//! What a service manager is told (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::Signal;

use super::{PATIENCE, body, config, control};
use crate::support::door::{Door, Start};
use crate::support::{beside_others, folder, within};

/// A manager's socket.
struct Listening {
    socket: UnixDatagram,
    name: String,
}

impl Listening {
    fn at_path(path: &std::path::Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        Self::of(socket, path.to_str().unwrap().to_owned())
    }

    fn abstracted() -> Self {
        let name = format!("weir-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self::of(UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
    }

    fn of(socket: UnixDatagram, name: String) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, name }
    }

    /// The next thing that is said but signs of life.
    fn next(&self) -> String {
        loop {
            let mut bytes = [0; 256];
            let length = self.socket.recv(&mut bytes).expect("something to hear");
            let said = String::from_utf8(bytes[..length].to_vec()).unwrap();
            if said != "WATCHDOG=1" {
                return said;
            }
        }
    }
}

#[test]
fn a_manager_hears_of_start_reload_and_stop() {
    let _shared = beside_others();
    let folder = folder();
    for manager in [Listening::at_path(&folder.path().join("notify")), Listening::abstracted()] {
        let environment = [("NOTIFY_SOCKET", &*manager.name)];
        let start = Start { environment: &environment, ..Start::default() };
        let mut door = Door::weir_as(&config(folder.path(), 1, "one"), &start);
        assert_eq!(manager.next(), "READY=1");
        for text in [config(folder.path(), 1, "two"), "nonsense".to_owned()] {
            door.reload(&text);
            let reloading = manager.next();
            let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
            assert!(since.is_some_and(|us| us.parse::<u64>().is_ok()), "{reloading}");
            // With the config that there was before, when the new one is bad.
            assert_eq!(manager.next(), "READY=1");
            assert_eq!(body(&mut door.client()), "two");
        }
        door.process.signal(Signal::TERM);
        assert_eq!(manager.next(), "STOPPING=1");
        assert_eq!(door.process.wait(PATIENCE), 0);
    }
}

#[test]
fn a_manager_hears_signs_of_life_when_it_wants_them() {
    let _shared = beside_others();
    let folder = folder();
    let manager = Listening::at_path(&folder.path().join("notify"));
    let environment = [("NOTIFY_SOCKET", &*manager.name), ("WATCHDOG_USEC", "200000")];
    let start = Start { environment: &environment, ..Start::default() };
    let _door = Door::weir_as(&config(folder.path(), 2, "one"), &start);
    let mut signs = 0;
    let enough = within(PATIENCE, || {
        let mut bytes = [0; 256];
        let length = manager.socket.recv(&mut bytes).expect("something to hear");
        signs += usize::from(&bytes[..length] == b"WATCHDOG=1");
        signs == 3
    });
    assert!(enough, "{signs} signs");
}

#[test]
fn a_manager_hears_who_is_the_service_after_an_upgrade() {
    let _shared = beside_others();
    let folder = folder();
    let manager = Listening::at_path(&folder.path().join("notify"));
    let environment = [("NOTIFY_SOCKET", &*manager.name)];
    let start = Start { environment: &environment, ..Start::default() };
    let mut old = Door::weir_as(&config(folder.path(), 1, "old"), &start);
    assert_eq!(manager.next(), "READY=1");
    let flags = ["--upgrade-from", &control(folder.path())];
    let start = Start { flags: &flags, ..start };
    let new = Door::weir_as(&config(folder.path(), 1, "new"), &start);
    // Both tell it at the same time.
    let mut said = [manager.next(), manager.next()];
    said.sort();
    let has_groups = std::fs::read_to_string("/proc/self/cgroup")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("0::")));
    let leaving = match has_groups {
        true => format!("MAINPID={}", new.process.id()),
        false => "STOPPING=1".to_owned(),
    };
    let mut wanted = ["READY=1".to_owned(), leaving];
    wanted.sort();
    assert_eq!(said, wanted);
    assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
}

#[test]
fn a_manager_that_is_not_there_is_a_warning() {
    let _shared = beside_others();
    let folder = folder();
    let environment = [("NOTIFY_SOCKET", "/no/such/socket")];
    let start = Start { environment: &environment, ..Start::default() };
    let door = Door::weir_as(&config(folder.path(), 1, "here"), &start);
    assert_eq!(body(&mut door.client()), "here");
    assert!(door.stderr().contains("NOTIFY_SOCKET /no/such/socket"), "{}", door.stderr());
}
