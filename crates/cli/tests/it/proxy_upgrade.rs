//! Tests of replacing a proxy by a new process without a lost request, of the connections of a
//! removed listener, and of the notifications to the service manager. `proxy_config::life` tests
//! the other effects of a reload.

mod manager;
mod process;

use std::path::Path;
use std::time::Duration;

use crate::support::client::Client;
use crate::support::faulty_origins::RefusingPort;
use crate::support::hostile_client::{connect, read_response};
use crate::support::proxy_under_test::{ProxyUnderTest, StartOptions};
use crate::support::{shared_machine, within};

/// Maximum time a process may take to end, including its drain.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Formats a config with a control socket in `directory` that responds to every request with this
/// text.
fn config(directory: &Path, threads: usize, body: &str) -> String {
    format!(
        "threads = {threads}\nadmin = \"127.0.0.1:0\"\ncontrol = \"{}\"\ndrain-timeout = \"10s\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nreturn = {{ status = 200, body = \"{body}\" }}\n",
        control_socket(directory)
    )
}

fn control_socket(directory: &Path) -> String {
    directory.join("weir.sock").to_str().unwrap().to_owned()
}

/// Starts the next process; it is ready when this returns.
fn start_successor(directory: &Path, config: &str) -> ProxyUnderTest {
    let flags = ["--upgrade-from", &control_socket(directory)];
    ProxyUnderTest::weir_with_options(config, &StartOptions { flags: &flags, ..StartOptions::default() })
}

fn get_body(client: &mut Client) -> String {
    let response = client.get("/");
    assert_eq!(response.status, 200, "{}", response.head);
    String::from_utf8(response.body).unwrap()
}

#[test]
fn connections_of_a_removed_listener_get_their_responses() {
    let _shared = shared_machine();
    let extra = "[listener.extra]\nbind = \"127.0.0.1:0\"\nconnections-max = 2\n";
    let with = |extra: &str, route: &str| {
        format!(
            "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{extra}\
             [[route]]\nname = \"all\"\nreturn = {{ status = 200, body = \"{route}\" }}\n"
        )
    };
    let mut proxy = ProxyUnderTest::weir(&with(extra, "before"));
    let address = proxy.wait_for_listener("extra");
    let mut persistent = Client::connect(&address);
    assert_eq!(get_body(&mut persistent), "before");
    let mut second = Client::connect(&address);
    assert_eq!(get_body(&mut second), "before");
    // These wait in the kernel, or for a slot.
    let mut waiting: Vec<_> = (0..5).map(|_| connect(&address)).collect();
    for stream in &mut waiting {
        let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(stream, request).unwrap();
    }
    proxy.reload(&with("", "after"));
    let read = within(EXIT_TIMEOUT, || get_body(&mut proxy.client()) == "after");
    assert!(read, "{}", proxy.stderr());
    // They get a response by the plan of their listener, and no further one.
    for client in [&mut persistent, &mut second] {
        let response = client.get("/");
        assert_eq!((response.status, &response.body[..]), (200, &b"before"[..]));
        assert!(response.head.to_ascii_lowercase().contains("connection: close"), "{}", response.head);
        assert!(client.read_to_end().is_empty());
    }
    for stream in &mut waiting {
        let response = read_response(stream);
        assert_eq!((response.status, response.text().as_str()), (Some(200), "before"), "{}", response.head);
    }
    assert!(within(EXIT_TIMEOUT, || !proxy.listens_at(&address)), "it still accepts");
}

#[test]
fn a_listener_that_goes_and_comes_back_at_once_keeps_its_port() {
    let _shared = shared_machine();
    // This socket keeps other processes from the port while the proxy does not have it.
    let reserved = RefusingPort::with_reuse_addr();
    let address = &reserved.authority;
    let with = |extra: bool, number: u32| {
        let bind = format!("[listener.extra]\nbind = \"{address}\"\n");
        let extra = if extra { bind.as_str() } else { "" };
        format!(
            "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{extra}\
             [[route]]\nreturn = {{ status = 200, body = \"{number}\" }}\n"
        )
    };
    let proxy = ProxyUnderTest::weir(&with(true, 0));
    for number in 1..=10 {
        proxy.reload(&with(number % 2 == 0, number));
        let applied = || get_body(&mut proxy.client()) == number.to_string();
        assert!(within(EXIT_TIMEOUT, applied), "{number}: {}", proxy.stderr());
        // The other core may still close the previous listener.
        let extra_applied = || get_body(&mut Client::connect(address)) == number.to_string();
        assert!(number % 2 == 1 || within(EXIT_TIMEOUT, extra_applied), "{number}: {}", proxy.stderr());
    }
    assert_eq!(proxy.stderr(), "");
}

#[test]
fn sigterm_serves_clients_that_have_just_connected() {
    let _shared = shared_machine();
    let directory = crate::support::temp_dir();
    // The drain timeout exceeds the time that this test waits.
    let config = config(directory.path(), 1, "here").replace("\"10s\"", "\"200s\"");
    let mut proxy = ProxyUnderTest::weir(&config);
    // Until the core has closed its socket, new connections are served.
    let mut clients: Vec<_> = (0..20).map(|_| connect(proxy.authority())).collect();
    for client in &mut clients {
        std::io::Write::write_all(client, b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    }
    proxy.process.signal(rustix::process::Signal::TERM);
    for client in &mut clients {
        assert_eq!(read_response(client).status, Some(200));
    }
    assert_eq!(proxy.process.wait(EXIT_TIMEOUT), 0, "{}", proxy.stderr());
    assert!(!Path::new(&control_socket(directory.path())).exists(), "the control socket is left behind");
}
