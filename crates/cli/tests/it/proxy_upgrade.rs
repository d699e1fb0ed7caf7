//! A proxy that is replaced by a new process without a lost request, what becomes of connections at a
//! listener that goes, and what the service manager is told. Not for what else a reload does
//! (`proxy_config::life`).

mod manager;
mod process;

use std::path::Path;
use std::time::Duration;

use crate::support::client::Client;
use crate::support::door::{Door, Start};
use crate::support::faulty::Refusing;
use crate::support::rude::{connect, see};
use crate::support::{beside_others, within};

/// How long a process may take to end, beyond its drain.
const PATIENCE: Duration = Duration::from_secs(20);

/// A config with a control socket in `folder`, whose answers to everything are this text.
fn config(folder: &Path, threads: usize, body: &str) -> String {
    format!(
        "threads = {threads}\nadmin = \"127.0.0.1:0\"\ncontrol = \"{}\"\ndrain-timeout = \"10s\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nanswer = {{ status = 200, body = \"{body}\" }}\n",
        control(folder)
    )
}

fn control(folder: &Path) -> String {
    folder.join("weir.sock").to_str().unwrap().to_owned()
}

/// Starts the next process; it is ready when this returns.
fn replace(folder: &Path, config: &str) -> Door {
    let flags = ["--upgrade-from", &control(folder)];
    Door::weir_as(config, &Start { flags: &flags, ..Start::default() })
}

fn body(client: &mut Client) -> String {
    let answer = client.ask("/");
    assert_eq!(answer.status, 200, "{}", answer.head);
    String::from_utf8(answer.body).unwrap()
}

#[test]
fn connections_of_a_listener_that_a_reload_removes_get_their_answers() {
    let _shared = beside_others();
    let extra = "[listener.extra]\nbind = \"127.0.0.1:0\"\nconnections-max = 2\n";
    let with = |extra: &str, route: &str| {
        format!(
            "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{extra}\
             [[route]]\nname = \"all\"\nanswer = {{ status = 200, body = \"{route}\" }}\n"
        )
    };
    let mut door = Door::weir(&with(extra, "before"));
    let address = door.wait_for_listener("extra");
    let mut kept = Client::connect(&address);
    assert_eq!(body(&mut kept), "before");
    let mut second = Client::connect(&address);
    assert_eq!(body(&mut second), "before");
    // These wait in the kernel, or for room.
    let mut waiting: Vec<_> = (0..5).map(|_| connect(&address)).collect();
    for stream in &mut waiting {
        let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(stream, request).unwrap();
    }
    door.reload(&with("", "after"));
    let read = within(PATIENCE, || body(&mut door.client()) == "after");
    assert!(read, "{}", door.stderr());
    // By the plan that had their listener, and no further.
    for client in [&mut kept, &mut second] {
        let answer = client.ask("/");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"before"[..]));
        assert!(answer.head.to_ascii_lowercase().contains("connection: close"), "{}", answer.head);
        assert!(client.rest().is_empty());
    }
    for stream in &mut waiting {
        let seen = see(stream);
        assert_eq!((seen.status, seen.text().as_str()), (Some(200), "before"), "{}", seen.head);
    }
    let refused = || std::net::TcpStream::connect(&address).is_err();
    assert!(within(PATIENCE, refused), "it still accepts");
}

#[test]
fn a_listener_that_goes_and_comes_back_at_once_keeps_its_port() {
    let _shared = beside_others();
    // Nobody else gets it while the proxy does not have it.
    let held = Refusing::shared();
    let address = &held.authority;
    let with = |extra: bool, number: u32| {
        let bind = format!("[listener.extra]\nbind = \"{address}\"\n");
        let extra = if extra { bind.as_str() } else { "" };
        format!(
            "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{extra}\
             [[route]]\nanswer = {{ status = 200, body = \"{number}\" }}\n"
        )
    };
    let door = Door::weir(&with(true, 0));
    for number in 1..=10 {
        door.reload(&with(number % 2 == 0, number));
        let applied = || body(&mut door.client()) == number.to_string();
        assert!(within(PATIENCE, applied), "{number}: {}", door.stderr());
        if number % 2 == 0 {
            assert_eq!(body(&mut Client::connect(address)), number.to_string());
        }
    }
    assert_eq!(door.stderr(), "");
}

#[test]
fn sigterm_answers_who_has_just_connected() {
    let _shared = beside_others();
    let folder = crate::support::folder();
    // To wait for the drain time-out would take longer than the patience of this test.
    let config = config(folder.path(), 1, "here").replace("\"10s\"", "\"200s\"");
    let mut door = Door::weir(&config);
    // Until the core has closed its socket, those that connect are served.
    let mut clients: Vec<_> = (0..20).map(|_| connect(door.authority())).collect();
    for client in &mut clients {
        std::io::Write::write_all(client, b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    }
    door.process.signal(rustix::process::Signal::TERM);
    for client in &mut clients {
        assert_eq!(see(client).status, Some(200));
    }
    assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
    assert!(!Path::new(&control(folder.path())).exists(), "the control socket is left behind");
}
