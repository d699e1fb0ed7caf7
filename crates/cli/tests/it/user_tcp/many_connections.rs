//! More connections than a pair of addresses has ports: several source addresses and several targets. `bench/run
//! user-tcp-connections` has the same with 64,000.

use super::{Pair, ip};

/// Ports of the kernel in both namespaces, which leave 1,000 to TCP in user space: 10,000 to 10,999.
const KERNEL_PORTS: &str = "net.ipv4.ip_local_port_range=11000 65535";
const SOURCES: &str = "10.79.0.2-10.79.0.4";

#[test]
fn several_addresses_have_more_connections_than_ports() {
    let Some(pair) = Pair::create() else { return };
    assert!(pair.run(1, "sysctl", &["-qw", KERNEL_PORTS]).status.success());
    for address in ["10.79.0.3/24", "10.79.0.4/24"] {
        assert!(ip(&["-n", &pair.0[1], "address", "add", address, "dev", "x1"]));
    }
    assert!(ip(&["-n", &pair.0[0], "address", "add", "10.79.0.11/24", "dev", "x0"]));
    let listen = ["--xdp", "x0", "--listen", "10.79.0.1:80", "--listen", "10.79.0.11:80"];
    let server = pair.serve(&listen);
    let load = |connections: &str, sources: &[&str], urls: &[&str]| {
        let fixed = ["load", "--no-baseline", "--no-watch", "--json", "RECORD", "--xdp", "x1", "-n", "12000"];
        pair.weir(1, &[&fixed[..], &["-c", connections], sources, urls].concat())
    };
    let (one_url, two_urls) =
        (&["http://10.79.0.1/?s=100"][..], &["http://10.79.0.1/?s=100", "http://10.79.0.11/?s=100"][..]);
    let mut served = 0;
    for (connections, sources, urls) in [
        (1_000, &[][..], one_url),
        (2_000, &[], two_urls),
        (3_000, &["--source", SOURCES], one_url),
        (6_000, &["--source", SOURCES], two_urls),
    ] {
        let run = load(&connections.to_string(), sources, urls);
        run.assert_sums();
        let found = (run.count("totals.responses"), run.errors(), run.count("totals.connections.opened"));
        assert_eq!(found, (12_000, 0, connections), "{} {}", run.stdout, run.stderr);
        assert_eq!(run.count("transport.connections_peak"), connections);
        assert_eq!(run.count("transport.connections_memory_bytes_max"), connections * 33 * 1_024);
        served += 12_000;
        assert_eq!(pair.stats()["requests"].as_u64(), Some(served));
    }
    for (connections, sources, urls) in
        [("1001", &[][..], one_url), ("2001", &[], two_urls), ("6001", &["--source", SOURCES], two_urls)]
    {
        let run = load(connections, sources, urls);
        assert!(run.code == 1 && run.stderr.contains("1000 ports between two addresses"), "{run:?}");
    }
    let run = load("10", &["--source", "10.79.0.9"], one_url);
    assert!(run.code != 0 && run.stderr.contains("10.79.0.9"), "{run:?}");
    let check = ["load", "--xdp", "x1", "--check", "-c", "3000", "--source", SOURCES];
    let check = pair.weir(1, &[&check[..], one_url].concat());
    assert!(check.stdout.contains("xdp memory: at most 96.7 MiB for 3000 connections"), "{}", check.stdout);
    drop(server);
}

#[test]
fn more_than_eight_own_addresses_serve_and_load() {
    let Some(pair) = Pair::create() else { return };
    let (served, sources) = (11..=20, 31..=40);
    for (end, device, addresses) in [(0, "x0", served.clone()), (1, "x1", sources)] {
        for last in addresses {
            let address = format!("10.79.0.{last}/24");
            assert!(ip(&["-n", &pair.0[end], "address", "add", &address, "dev", device]));
        }
    }
    let mut listen: Vec<String> = ["--xdp", "x0", "--listen", "10.79.0.1:80"].map(str::to_owned).into();
    listen.extend(served.clone().map(|last| format!("--listen=10.79.0.{last}:80")));
    let server = pair.serve(&listen.iter().map(String::as_str).collect::<Vec<_>>());
    let urls: Vec<String> = served.map(|last| format!("http://10.79.0.{last}/?s=100")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let xdp = ["--xdp", "x1", "--source", "10.79.0.31-10.79.0.40"];
    for (transport, targets) in [(&[][..], &urls[..]), (&xdp, &urls[9..])] {
        let fixed = ["load", "--no-baseline", "--json", "RECORD", "-n", "1000", "-c", "20"];
        let run = pair.weir(1, &[&fixed[..], transport, targets].concat());
        run.assert_sums();
        let found = (run.count("totals.responses"), run.errors(), run.count("totals.connections.opened"));
        assert_eq!(found, (1_000, 0, 20), "{} {}", run.stdout, run.stderr);
    }
    assert_eq!(pair.stats()["requests"].as_u64(), Some(2_000));
    drop(server);
    let further: Vec<String> = (100..117).map(|port| format!("--listen=10.79.0.1:{port}")).collect();
    let further: Vec<&str> = further.iter().map(String::as_str).collect();
    let check = pair.weir(0, &[&["serve", "--xdp", "x0", "--check"], &further[..]].concat());
    assert!(check.code == 1 && check.stdout.contains("17 addresses: --xdp takes at most 16"), "{check:?}");
}

#[test]
fn ports_are_used_again_while_the_kernel_has_old_connections_in_time_wait() {
    let Some(pair) = Pair::create() else { return };
    assert!(pair.run(1, "sysctl", &["-qw", KERNEL_PORTS]).status.success());
    let server = pair.serve(&["--listen", "10.79.0.1:80"]);
    let load =
        ["load", "--no-baseline", "--no-watch", "--json", "RECORD", "--xdp", "x1", "-n", "6000", "-c", "20"];
    let run = pair.weir(1, &[&load[..], &["-r", "1", "http://10.79.0.1/?s=100"]].concat());
    run.assert_sums();
    assert_eq!((run.count("totals.responses"), run.errors()), (6_000, 0), "{} {}", run.stdout, run.stderr);
    assert_eq!(pair.stats()["requests"].as_u64(), Some(6_000));
    // Each of the 1,000 ports is used six times. A SYN that waited for its timer of 1 s is not among the handshakes.
    let handshakes = run.count("transport.handshakes.count");
    assert!(run.count("transport.restarted") > 100 && handshakes > 5_500, "{:#}", run.record["transport"]);
    drop(server);
}
