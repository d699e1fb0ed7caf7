//! Resource shortages of the proxy: a full disk for a log, no free descriptors. Other clients must
//! not notice, lost lines are counted, and the proxy recovers. `limits` tests the limits of the
//! config.

use std::net::TcpStream;

use super::{CONFIG_HEAD, HeldResources};
use crate::support::client::Client;
use crate::support::faulty_origins::{ok_response, respond_to_each};
use crate::support::hostile_client::BackgroundClients;
use crate::support::metrics::{CONNECTIONS_OPEN, LOG_LINES, REFUSED};
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest, StartOptions};
use crate::support::{shared_machine, within};

#[test]
fn a_full_disk_costs_log_lines_and_nothing_else() {
    let _shared = shared_machine();
    let origin = respond_to_each(|_, _| Some(ok_response(b"small")));
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[[log]]\nto = \"file:/dev/full\"\nformat = \"json\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
        origin.authority
    ));
    let baseline = HeldResources::measure(&proxy);
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    background.wait_for(2_000);
    let responses = background.finish();
    let full = ("target", "file:/dev/full");
    let metrics = proxy.metrics_until("each line for the full disk is lost, and counted", |metrics| {
        let lost = ["overflow", "failed", "backoff"];
        let lost = lost.map(|result| metrics.sum(LOG_LINES, &[full, ("result", result)]));
        lost.iter().sum::<f64>() == responses as f64
    });
    assert_eq!(metrics.sum(LOG_LINES, &[full, ("result", "written")]), 0.0);
    // The other logs are complete.
    assert_eq!(proxy.wait_for_lines("access.json", responses as usize).len() as u64, responses);
    assert!(!proxy.wait_for_lines_with("stderr", "file:/dev/full", 1).is_empty());
    // The message appears once in ten seconds, not once per line.
    assert!(proxy.stderr().lines().count() < 20, "{}", proxy.stderr());
    baseline.wait_until_returned(&proxy);
}

/// Descriptor limit of the process.
const DESCRIPTORS: &str = "96";

#[test]
fn where_descriptors_are_few_clients_wait_until_there_are_some_again() {
    let _shared = shared_machine();
    let origin = respond_to_each(|_, _| Some(ok_response(b"small")));
    let limit = format!("ulimit -n {DESCRIPTORS} && exec \"$@\"");
    let prefix = ["sh", "-c", &limit, "sh"];
    let proxy = ProxyUnderTest::weir_with_options(
        &format!(
            "connections-max = 10000\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
            origin.authority
        ),
        &StartOptions { prefix: &prefix, ..StartOptions::default() },
    );
    let baseline = HeldResources::measure(&proxy);
    // More clients than the process has descriptors for, and none sends anything.
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(proxy.authority()).unwrap()).collect();
    // Cores count in their own table, so that the admin page still responds.
    proxy.metrics_until("it is counted that some had to wait", |metrics| {
        metrics.sum_known(REFUSED, &[("reason", "process_full")]) > 0.0
    });
    let open = proxy.metrics().sum_known(CONNECTIONS_OPEN, &[("listener", "web")]);
    assert!(open < 96.0, "{open} connections with {DESCRIPTORS} descriptors");
    // A connected client still gets a descriptor for its server.
    let mut client = Client::from_stream(idle[0].try_clone().unwrap());
    assert_eq!(client.get("/").status, 200);
    drop((client, idle));
    let served = within(EVENT_TIMEOUT, || proxy.get("/").status == 200);
    assert!(served, "{}", proxy.stderr());
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    background.wait_for(200);
    background.finish();
    baseline.wait_until_returned(&proxy);
}

/// The limit of connections exceeds the descriptors. Accepted connections are served, the others
/// wait, and the start reports the lowered limit.
#[test]
fn connections_max_above_the_descriptors_is_lowered() {
    let _shared = shared_machine();
    let origin = respond_to_each(|_, _| Some(ok_response(b"small")));
    let start = StartOptions { prefix: &["prlimit", "--nofile=256:256"], ..StartOptions::default() };
    let config = format!(
        "threads = 1\nconnections-max = 5000\nadmin = \"127.0.0.1:0\"\n[listener.web]\n\
         bind = \"127.0.0.1:0\"\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\nreuse = \"never\"\n",
        origin.authority
    );
    let proxy = ProxyUnderTest::weir_with_options(&config, &start);
    let warning = proxy.wait_for_lines_with("stderr", "connections-max", 1).remove(0);
    assert!(warning.contains(" 5000 "), "{warning}");
    let clients: Vec<_> = (0..300).map(|_| proxy.client()).collect();
    // Each gets its response and then leaves its slot to another one.
    for mut client in clients {
        assert_eq!(client.get("/").status, 200);
    }
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum("weir_requests_total", &[("end", "no_descriptor")]), 0.0, "{metrics}");
}
