//! Retries at other servers, and the budget that keeps them from multiplying the load.

use super::{CONFIG_HEAD, end_of, retry_after};
use crate::support::faulty_origins::{RefusingPort, echoing_server};
use crate::support::hostile_client::exchange_raw;
use crate::support::metrics::RETRIES;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

const DENIED: &str = "weir_retries_denied_total";

#[test]
fn retries_end_with_their_budget() {
    let _shared = shared_machine();
    let refusing = RefusingPort::new();
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 2\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\nretries = 3\n\
         retry-budget = {{ ratio = 0, min = 2, window = \"24h\" }}\n",
        refusing.authority
    ));
    for number in 1..=4 {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        let response = exchange_raw(proxy.authority(), request.as_bytes());
        assert_eq!(response.status, Some(503));
        retry_after(&response);
        assert_eq!(end_of(&proxy, &format!("\"/{number}\"")), "connect_failed");
    }
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(RETRIES, &[("pool", "app")]), 2.0);
    // The first request was denied its third retry, the others their first.
    assert_eq!(metrics.sum_known(DENIED, &[("pool", "app")]), 4.0);
}

#[test]
fn a_request_goes_to_another_server_when_one_cannot_be_reached() {
    let _shared = shared_machine();
    let (refusing, fine) = (RefusingPort::new(), echoing_server("fine"));
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nbalance = \"round-robin\"\nservers = [\"{}\", \"{}\"]\n\
         retry-budget = {{ ratio = 1.0 }}\n",
        refusing.authority, fine.authority
    ));
    for _ in 0..10 {
        assert_eq!(proxy.get("/").status, 200);
    }
    let metrics = proxy.metrics();
    assert!(metrics.sum_known(RETRIES, &[]) >= 1.0 && metrics.sum_known(DENIED, &[]) == 0.0);
}
