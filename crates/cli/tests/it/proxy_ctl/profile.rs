//! Tests of `weir ctl profile`: rows that add up, and no rows when it is off.

use super::*;
use crate::support::client::Client;
use crate::support::faulty_origins::echoing_server;
use crate::support::shared_machine;

/// Number of requests while it is on.
const REQUESTS: u64 = 200;

fn phase_row(profile: &Value, name: &str) -> Value {
    find_row(&profile["phases"], "phase", name)
}

/// Returns the sum of all rows but the total, and the total.
fn cpu_ns_sums(profile: &Value) -> (u64, u64) {
    let rows = profile["phases"].as_array().unwrap();
    let time = |row: &Value| row["cpu_tot_ns"].as_u64().unwrap();
    let (total, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["phase"] == "--total--");
    (others.into_iter().map(time).sum(), time(total[0]))
}

#[test]
fn rows_add_up_to_the_time_that_it_was_on() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let proxy = start_proxy(&[&a]);
    let off = ctl_json(&proxy, "profile show");
    assert_eq!(off["profile"]["profiling"], "off");
    assert_eq!(cpu_ns_sums(&off), (0, 0));
    ctl_output(&proxy, "profile on");
    let mut client = Client::connect(proxy.authority());
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/").status, 200);
    }
    let on = ctl_json(&proxy, "profile show");
    assert_eq!(on["profile"]["profiling"], "on");
    let (rows_ns, total_ns) = cpu_ns_sums(&on);
    assert_eq!(rows_ns, total_ns, "{on:#}");
    // At least the time that it was on, on both threads.
    assert!(total_ns >= on["profile"]["time_ns"].as_u64().unwrap(), "{on:#}");
    assert!(total_ns >= 2 * (on["profile"]["duration_ns"].as_u64().unwrap() - 1), "{on:#}");
    // Each request was routed, sent, responded to, logged and counted once.
    for name in ["route", "log", "metrics"] {
        let calls = phase_row(&on, name)["calls"].as_u64().unwrap();
        assert!(calls >= REQUESTS, "{name}: {calls}");
    }
    assert_eq!(phase_row(&on, "route")["calls"], REQUESTS);
    assert_eq!(phase_row(&on, "metrics")["calls"], REQUESTS);
    for name in ["accept", "read_head", "queue", "connect", "forward_request", "read_response"] {
        assert!(phase_row(&on, name)["calls"].as_u64() > Some(0), "{name}");
    }
    // The consecutive phases of requests add up to all of their time.
    let waited: u64 = on["phases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["phase"] != "--total--")
        .filter_map(|row| row["lat_tot_ns"].as_u64())
        .sum();
    assert_eq!(phase_row(&on, "--total--")["lat_tot_ns"], waited);
    assert!(waited > 0);
    // Sorted by time, with the rows that are no phases last.
    let names: Vec<_> = on["phases"].as_array().unwrap().iter().map(|row| &row["phase"]).collect();
    assert_eq!(names[names.len() - 3..], ["runtime", "idle", "--total--"]);
    assert!(on["profile"]["section_cost_ns"].as_u64() > Some(0));
    ctl_output(&proxy, "profile on exact");
    for _ in 0..10 {
        assert_eq!(client.get("/").status, 200);
    }
    let exact = ctl_json(&proxy, "profile");
    assert_eq!(exact["profile"]["preempted_ns"], 0);
    assert_eq!(phase_row(&exact, "route")["calls"], 10);
    let (rows_ns, total_ns) = cpu_ns_sums(&exact);
    assert_eq!(rows_ns, total_ns, "{exact:#}");
    ctl_output(&proxy, "profile off");
    let final_profile = ctl_json(&proxy, "profile");
    assert_eq!(final_profile["profile"]["profiling"], "off");
    for _ in 0..10 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(ctl_json(&proxy, "profile"), final_profile, "it goes on when it is off");
    let text = ctl_output(&proxy, "profile");
    assert!(text.contains("cpu_avg") && text.contains("\n--total--"), "{text}");
}
