//! What a load's record says of the servers behind its subject: every origin, unix sockets, and whose
//! turn it is on each connection. Not for what that means: verdicts are the lab's.

use serde_json::Value;

use crate::support::proxies::Proxy;
use crate::support::{Origin, Output, beside_others, folder, load};

/// The entries of one end of a port, of all snapshots.
fn ends(output: &Output, port: u64, end: &str) -> Vec<Value> {
    let queues = output.record["observed"][0]["queues"].as_array().unwrap();
    let ends = queues.iter().flat_map(|snapshot| snapshot["ends"].as_array().unwrap());
    ends.filter(|one| one["port"] == port && one["end"] == end).cloned().collect()
}

fn port(authority: &str) -> u64 {
    authority.rsplit(':').next().unwrap().parse().unwrap()
}

/// Whether this machine tells of sockets at all.
fn tells(output: &Output, what: &str) -> bool {
    let missing = output.record["observed"][0]["not_observable"].to_string();
    let told = !missing.contains(what);
    if !told {
        eprintln!("skipped: {missing}");
    }
    told
}

fn config(servers: &[String]) -> String {
    let servers: Vec<String> =
        servers.iter().map(|address| format!("{{ address = \"{address}\" }}")).collect();
    format!(
        "[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\npool = \"origins\"\n\
         [pool.origins]\nservers = [{}]\n",
        servers.join(", ")
    )
}

#[test]
fn every_origin_behind_a_proxy_is_found_and_its_requests_are_there() {
    let _shared = beside_others();
    let origins = [Origin::start(&["-t", "1"]), Origin::start(&["-t", "1"])];
    let mut proxy =
        Proxy::weir(&config(&origins.each_ref().map(|origin| origin.authority.clone())));
    // Every request waits at an origin: the proxy and the generator have next to nothing to do.
    let output = load(&["-c", "8", "-t", "1", "-d", "4s", &proxy.url("/?t=200")]);
    proxy.assert_alive();
    if !tells(&output, "sock_diag") {
        return;
    }
    let observed = &output.record["observed"][0];
    let found = observed["origins"].as_array().unwrap();
    let mut addresses: Vec<&str> =
        found.iter().map(|origin| origin["address"].as_str().unwrap()).collect();
    addresses.sort_unstable();
    let mut expected = origins.each_ref().map(|origin| origin.authority.as_str());
    expected.sort_unstable();
    assert_eq!(addresses, expected, "{observed}");
    assert!(found.iter().all(|origin| origin["depth"] == 1 && origin["used_by"] == "subject"));
    let roles = observed["roles"].as_array().unwrap();
    let origin = roles.iter().find(|role| role["name"] == "origin").unwrap();
    for one in &origins {
        assert!(origin["pids"].as_array().unwrap().contains(&one.process.id().into()), "{origin}");
        let at_client = ends(&output, port(&one.authority), "client");
        let awaiting = at_client.iter().filter(|end| end["awaiting_reply"].as_u64() > Some(0));
        assert!(awaiting.count() > 0, "{at_client:?}");
        let moved = at_client.iter().filter(|end| end["bytes_received_per_s"].as_f64() > Some(0.0));
        assert!(moved.count() > 0, "{at_client:?}");
        assert!(at_client.iter().any(|end| end["local_ports_max"].as_u64() > Some(0)));
    }
    let at_subject = ends(&output, port(&proxy.authority), "server");
    assert!(at_subject.iter().any(|end| end["owed_reply"].as_u64() > Some(0)), "{at_subject:?}");
    let named = observed["functions_of"].as_object().unwrap();
    assert!(named.contains_key("subject") || !tells(&output, "functions"), "{named:?}");
}

#[test]
fn connections_that_lie_idle_are_told_from_those_that_work() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let idle: Vec<std::net::TcpStream> =
        (0..4).map(|_| std::net::TcpStream::connect(&origin.authority).unwrap()).collect();
    let output = load(&["-c", "2", "-t", "1", "-d", "3s", &origin.url("/?t=50")]);
    if !tells(&output, "sock_diag") {
        return;
    }
    let at_server = ends(&output, port(&origin.authority), "server");
    let full = at_server.iter().filter(|end| end["states"]["established"] == 6);
    let active = full.filter(|end| end["active"] == 2);
    assert!(active.count() > 0, "{at_server:?}");
    drop(idle);
}

#[test]
fn an_origin_on_a_unix_socket_is_found_and_watched() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("origin.sock");
    let path = path.to_str().unwrap();
    let origin = Origin::start_at(&["--listen", &format!("unix:{path}"), "-t", "1"]);
    let proxy = Proxy::weir(&config(&[format!("unix:{path}")]));
    let output = load(&["-c", "4", "-t", "1", "-d", "3s", &proxy.url("/?t=50")]);
    if !tells(&output, "unix_diag") {
        return;
    }
    let observed = &output.record["observed"][0];
    let found = observed["unix"].as_array().unwrap().iter().find(|one| one["path"] == path);
    let found = found.unwrap_or_else(|| panic!("{}", observed["unix"]));
    assert_eq!((&found["served_by"], &found["used_by"]), (&"origin".into(), &"subject".into()));
    let roles = observed["roles"].as_array().unwrap();
    let role = roles.iter().find(|role| role["name"] == "origin").unwrap();
    assert_eq!(role["pids"][0], origin.process.id(), "{role}");
    let queues = observed["queues"].as_array().unwrap();
    let seen = queues.iter().filter_map(|snapshot| snapshot["unix"].as_array()?.first());
    let connected =
        seen.filter(|one| one["sockets"] == 1 && one["client"]["established"].as_u64() > Some(0));
    assert!(connected.count() > 0, "{queues:?}");
    let missing = observed["not_observable"].to_string();
    assert!(missing.contains("unix sockets have no TCP_INFO"), "{missing}");
}
