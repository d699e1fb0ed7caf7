//! Tries at other servers, and the budget that keeps them from multiplying the load.

use super::{HEAD, end_of, retry_after};
use crate::support::beside_others;
use crate::support::door::Door;
use crate::support::faulty::{Refusing, telling};
use crate::support::metrics::RETRIES;
use crate::support::rude::ask_raw;

const DENIED: &str = "weir_retries_denied_total";

#[test]
fn retries_end_with_their_budget() {
    let _shared = beside_others();
    let refusing = Refusing::new();
    let door = Door::weir(&format!(
        "threads = 2\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nretries = 3\n\
         retry-budget = {{ share = 0, min = 2, window = \"24h\" }}\n",
        refusing.authority
    ));
    for number in 1..=4 {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        let seen = ask_raw(door.authority(), request.as_bytes());
        assert_eq!(seen.status, Some(503));
        retry_after(&seen);
        assert_eq!(end_of(&door, &format!("\"/{number}\"")), "connect_failed");
    }
    let metrics = door.metrics();
    assert_eq!(metrics.known(RETRIES, &[("pool", "app")]), 2.0);
    // The first asked for a third, the others for their first.
    assert_eq!(metrics.known(DENIED, &[("pool", "app")]), 4.0);
}

#[test]
fn a_request_goes_to_another_server_when_one_cannot_be_reached() {
    let _shared = beside_others();
    let (refusing, fine) = (Refusing::new(), telling("fine"));
    let door = Door::weir(&format!(
        "threads = 1\n{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nbalance = \"round-robin\"\nservers = [\"{}\", \"{}\"]\n\
         retry-budget = {{ share = 1.0 }}\n",
        refusing.authority, fine.authority
    ));
    for _ in 0..10 {
        assert_eq!(door.get("/").status, 200);
    }
    let metrics = door.metrics();
    assert!(metrics.known(RETRIES, &[]) >= 1.0 && metrics.known(DENIED, &[]) == 0.0);
}
