//! `weir ctl profile`: rows that add up, and nothing when it is off.

use super::*;
use crate::support::beside_others;
use crate::support::client::Client;
use crate::support::faulty::telling;

/// Requests that are asked while it is on.
const REQUESTS: u64 = 200;

fn phase(profile: &Value, name: &str) -> Value {
    row(&profile["phases"], "phase", name)
}

/// All rows but the total, and the total.
fn cpu(profile: &Value) -> (u64, u64) {
    let rows = profile["phases"].as_array().unwrap();
    let time = |row: &Value| row["cpu_tot_ns"].as_u64().unwrap();
    let (total, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row["phase"] == "--total--");
    (others.into_iter().map(time).sum(), time(total[0]))
}

#[test]
fn rows_add_up_to_the_time_that_it_was_on() {
    let _shared = beside_others();
    let a = telling("a");
    let door = before(&[&a]);
    let off = shown(&door, "profile show");
    assert_eq!(off["profile"]["profiling"], "off");
    assert_eq!(cpu(&off), (0, 0));
    let said = done(&door, "profile on");
    assert!(said.starts_with("profiling is on; each section costs "), "{said}");
    let mut client = Client::connect(door.authority());
    for _ in 0..REQUESTS {
        assert_eq!(client.ask("/").status, 200);
    }
    let on = shown(&door, "profile show");
    assert_eq!(on["profile"]["profiling"], "on");
    let (rows_ns, total_ns) = cpu(&on);
    assert_eq!(rows_ns, total_ns, "{on:#}");
    // Not less than the time that it was on, on both threads.
    assert!(total_ns >= on["profile"]["time_ns"].as_u64().unwrap(), "{on:#}");
    assert!(total_ns >= 2 * (on["profile"]["duration_ns"].as_u64().unwrap() - 1), "{on:#}");
    // Each request was routed, sent, answered, logged and counted once.
    for name in ["route", "log", "metrics"] {
        let calls = phase(&on, name)["calls"].as_u64().unwrap();
        assert!(calls >= REQUESTS, "{name}: {calls}");
    }
    assert_eq!(phase(&on, "route")["calls"], REQUESTS);
    assert_eq!(phase(&on, "metrics")["calls"], REQUESTS);
    for name in ["accept", "read_head", "queue", "connect", "forward_request", "read_response"] {
        assert!(phase(&on, name)["calls"].as_u64() > Some(0), "{name}");
    }
    // What requests were in, one after the other, is all of their time.
    let waited: u64 = on["phases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["phase"] != "--total--")
        .filter_map(|row| row["lat_tot_ns"].as_u64())
        .sum();
    assert_eq!(phase(&on, "--total--")["lat_tot_ns"], waited);
    assert!(waited > 0);
    // By the time in them, and what is no phase last.
    let names: Vec<_> = on["phases"].as_array().unwrap().iter().map(|row| &row["phase"]).collect();
    assert_eq!(names[names.len() - 3..], ["runtime", "idle", "--total--"]);
    assert!(on["profile"]["section_cost_ns"].as_u64() > Some(0));
    done(&door, "profile on exact");
    for _ in 0..10 {
        assert_eq!(client.ask("/").status, 200);
    }
    let exact = shown(&door, "profile");
    assert_eq!(exact["profile"]["preempted_ns"], 0);
    assert_eq!(phase(&exact, "route")["calls"], 10);
    let (rows_ns, total_ns) = cpu(&exact);
    assert_eq!(rows_ns, total_ns, "{exact:#}");
    done(&door, "profile off");
    let kept = shown(&door, "profile");
    assert_eq!(kept["profile"]["profiling"], "off");
    for _ in 0..10 {
        assert_eq!(client.ask("/").status, 200);
    }
    assert_eq!(shown(&door, "profile"), kept, "it goes on when it is off");
    let text = done(&door, "profile");
    assert!(text.contains("cpu_avg") && text.contains("\n--total--"), "{text}");
}
