//! What the proxy is short of: a disk that takes no line, descriptors. Others must not notice, what is
//! lost is counted, and it recovers. Not for limits that the config sets (`limits`).

use std::net::TcpStream;
use std::time::Duration;

use super::{HEAD, Held};
use crate::support::client::Client;
use crate::support::door::{Door, PATIENCE, Start};
use crate::support::faulty::{answering_each, ok};
use crate::support::metrics::{CONNECTIONS_OPEN, LOG_LINES, REFUSED};
use crate::support::rude::Crowd;
use crate::support::{beside_others, within};

#[test]
fn a_full_disk_costs_log_lines_and_nothing_else() {
    let _shared = beside_others();
    let origin = answering_each(|_, _| Some(ok(b"small")));
    let door = Door::weir(&format!(
        "{HEAD}[[log]]\nto = \"file:/dev/full\"\nformat = \"json\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
        origin.authority
    ));
    let held = Held::of(&door);
    let crowd = Crowd::start(door.authority(), "/", 4);
    crowd.wait_for(2_000);
    let answered = crowd.finish();
    let full = ("target", "file:/dev/full");
    let metrics =
        door.metrics_until("each line for the full disk is lost, and counted", |metrics| {
            let lost = ["behind", "failed", "waiting"];
            let lost = lost.map(|result| metrics.sum(LOG_LINES, &[full, ("result", result)]));
            lost.iter().sum::<f64>() == answered as f64
        });
    assert_eq!(metrics.sum(LOG_LINES, &[full, ("result", "written")]), 0.0);
    // The other logs have all of theirs.
    assert_eq!(door.wait_for_lines("access.json", answered as usize).len() as u64, answered);
    assert!(door.stderr().contains("lines are lost"), "{}", door.stderr());
    // Once in ten seconds, not once a line.
    assert!(door.stderr().lines().count() < 20, "{}", door.stderr());
    held.wait_for_all_back(&door);
}

/// Descriptors that the process may have.
const DESCRIPTORS: &str = "96";

#[test]
fn where_descriptors_are_few_clients_wait_until_there_are_some_again() {
    let _shared = beside_others();
    let origin = answering_each(|_, _| Some(ok(b"small")));
    let limit = format!("ulimit -n {DESCRIPTORS} && exec \"$@\"");
    let prefix = ["sh", "-c", &limit, "sh"];
    let door = Door::weir_as(
        &format!(
            "connections-max = 10000\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
            origin.authority
        ),
        &Start { prefix: &prefix, ..Start::default() },
    );
    let held = Held::of(&door);
    // More than it has descriptors for, and nobody says anything.
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(door.authority()).unwrap()).collect();
    // Cores count in a table of their own, so that the admin page still answers.
    door.metrics_until("it is counted that some had to wait", |metrics| {
        metrics.known(REFUSED, &[("reason", "process_full")]) > 0.0
    });
    let open = door.metrics().known(CONNECTIONS_OPEN, &[("listener", "web")]);
    assert!(open < 96.0, "{open} connections with {DESCRIPTORS} descriptors");
    // There is a descriptor for the server of one that is connected already.
    let mut client = Client::over(idle[0].try_clone().unwrap());
    assert_eq!(client.ask("/").status, 200);
    drop((client, idle));
    let served = within(PATIENCE, || {
        let mut client = door.client();
        client.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        client.ask("/").status == 200
    });
    assert!(served, "{}", door.stderr());
    let crowd = Crowd::start(door.authority(), "/", 4);
    crowd.wait_for(200);
    crowd.finish();
    held.wait_for_all_back(&door);
}

/// More connections are allowed than there are descriptors for: those that are taken on are served, the
/// others wait, and the start says that the limit is lowered.
#[test]
fn connections_max_above_the_descriptors_is_lowered() {
    let _shared = beside_others();
    let origin = answering_each(|_, _| Some(ok(b"small")));
    let start = Start { prefix: &["prlimit", "--nofile=256:256"], ..Start::default() };
    let config = format!(
        "threads = 1\nconnections-max = 5000\nadmin = \"127.0.0.1:0\"\n[listener.web]\n\
         bind = \"127.0.0.1:0\"\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\nreuse = \"never\"\n",
        origin.authority
    );
    let door = Door::weir_as(&config, &start);
    let said = door.stderr();
    assert!(said.contains("connections-max is lowered from 5000 to "), "{said}");
    let clients: Vec<_> = (0..300).map(|_| door.client()).collect();
    // Each gets its answer and then leaves its place to another one.
    for mut client in clients {
        assert_eq!(client.ask("/").status, 200);
    }
    let metrics = door.metrics();
    assert_eq!(metrics.sum("weir_requests_total", &[("end", "no_descriptor")]), 0.0, "{metrics}");
}
