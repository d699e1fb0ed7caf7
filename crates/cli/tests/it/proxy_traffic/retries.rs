//! Retries of requests that a server may have received.

use super::{CONFIG_HEAD, ObedientServer, get, hello, log_line, send};
use crate::support::hostile_client::read_response;
use crate::support::metrics::RETRIES;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

fn start(first: &ObedientServer, second: &ObedientServer, route: &str) -> ProxyUnderTest {
    let servers = [first.authority(), second.authority()];
    ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[[route]]\npath = \"/without\"\npool = \"app\"\n[[route]]\npool = \"app\"\n{route}\n\
         [pool.app]\nbalance = \"first\"\nservers = {servers:?}\noutlier = {{ failures = 0 }}\n"
    ))
}

fn post(proxy: &ProxyUnderTest, target: &str, field: &str) -> std::net::TcpStream {
    let head = format!("POST {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n");
    send(proxy.authority(), &format!("{head}{field}\r\nabc"))
}

#[test]
fn a_connection_that_ends_before_the_response_is_retried_if_the_route_says_so() {
    let _shared = shared_machine();
    let (first, second) = (ObedientServer::start(), ObedientServer::start());
    let proxy = start(&first, &second, "retry-on = \"reset\"\nidempotent = \"header:idempotency-key\"");
    for (target, is_retried) in [("/get", true), ("/without", false)] {
        let mut client = get(proxy.authority(), target);
        first.next_request();
        first.close();
        if is_retried {
            assert_eq!(second.next_request().target(), target);
            second.reply(hello());
        }
        let response = read_response(&mut client);
        assert_eq!(response.status, Some(if is_retried { 200 } else { 502 }), "{target}");
        assert_eq!(log_line(&proxy, target)["retries"], u8::from(is_retried));
    }
    // A mark makes other methods idempotent.
    for (target, field, is_retried) in [("/post", "", false), ("/marked", "Idempotency-Key: 1\r\n", true)] {
        let mut client = post(&proxy, target, field);
        assert_eq!(first.next_request().body, b"abc");
        first.close();
        if is_retried {
            assert_eq!(second.next_request().body, b"abc");
            second.reply(hello());
        }
        assert_eq!(read_response(&mut client).status, Some(if is_retried { 200 } else { 502 }), "{target}");
    }
    assert!(second.has_no_request());
    assert_eq!(proxy.metrics().sum_known(RETRIES, &[]), 2.0);
    proxy.assert_all_returned();
}

#[test]
fn statuses_timeouts_and_resets_share_the_retries() {
    let _shared = shared_machine();
    let (first, second) = (ObedientServer::start(), ObedientServer::start());
    let route = "retries = 2\nretry-on = [\"503\", \"reset\", \"timeout\"]\ntimeouts = { per-try = \"300ms\" }\n\
                 idempotent = \"all\"";
    let proxy = start(&first, &second, route);
    let mut client = post(&proxy, "/all", "");
    first.next_request();
    first.reply_status(503);
    second.next_request();
    second.close();
    // No response within `per-try`; there is no further retry.
    first.next_request();
    first.wait_for_end();
    assert_eq!(read_response(&mut client).status, Some(504));
    assert_eq!(log_line(&proxy, "/all")["retries"], 2);
    proxy.assert_all_returned();
}
