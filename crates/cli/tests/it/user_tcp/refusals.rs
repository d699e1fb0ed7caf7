//! Refusals of what cannot be taken from the kernel: each says what to do, and `--check` says it before the start.

use super::{EVENT_TIMEOUT, Pair, XDP_SERVER, ip, within};

impl Pair {
    /// Runs weir, and checks its exit code and that the output has a part.
    fn assert_refused(&self, end: usize, arguments: &[&str], code: i32, part: &str) {
        let run = self.weir(end, arguments);
        let text = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code == code && text.contains(part), "{arguments:?}: {} {text}", run.code);
    }
}

fn serve(more: &[&'static str]) -> Vec<&'static str> {
    [&["serve"][..], more].concat()
}

#[test]
fn what_a_server_cannot_take_is_refused_with_what_to_do() {
    let Some(pair) = Pair::create() else { return };
    let refuses = |arguments: &[&str], code: i32, part: &str| pair.assert_refused(0, arguments, code, part);
    refuses(&serve(&["--xdp", "no-such", "-l", "10.79.0.1:80"]), 1, "no interface 'no-such'");
    refuses(&serve(&["--xdp", "lo", "-l", "127.0.0.1:80"]), 1, "no Ethernet interface");
    refuses(&serve(&["--xdp", "x0"]), 2, "needs an address of the interface");
    refuses(&serve(&["--xdp", "x0", "-l", "10.79.0.9:80"]), 1, "it has 10.79.0.1");
    refuses(&serve(&["--xdp", "x0", "-l", "10.79.0.1:22"]), 1, "port 22 stays with the kernel");
    refuses(&serve(&["--xdp", "x0", "-l", "10.79.0.1:80", "-t", "2"]), 1, "x0 has 1 for 2: -t 1");
    let check = [&XDP_SERVER[..], &["--check"]].concat();
    let kernel = pair.serve(&["--listen", "10.79.0.1:80"]);
    refuses(&serve(&XDP_SERVER), 1, "10.79.0.1:80 is used by a socket of the kernel");
    refuses(&serve(&check), 1, "xdp problem: 10.79.0.1:80 is used by a socket of the kernel");
    drop(kernel);
    // The check holds the port no longer than it runs.
    assert_eq!(pair.weir(0, &serve(&check)).code, 0);
    let first = pair.serve(&XDP_SERVER);
    refuses(&serve(&["--xdp", "x0", "-l", "10.79.0.1:90"]), 1, "has an XDP program (id ");
    refuses(
        &serve(&["--xdp", "x0", "-l", "10.79.0.1:90", "--check"]),
        1,
        "xdp problem: x0 has an XDP program",
    );
    drop(first);
    assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    assert!(ip(&["-n", &pair.0[0], "route", "add", "default", "dev", "x0"]));
    refuses(&serve(&XDP_SERVER), 1, "--xdp-exposed");
    let check = pair.weir(0, &serve(&["--xdp", "x0", "-l", "10.79.0.1:80", "--xdp-exposed", "--check"]));
    assert_eq!(check.code, 0, "{check:?}");
    for part in
        ["xdp: x0 (driver veth, MTU 1500, receiving queues: 1)", "xdp mode: ", "TCP to 10.79.0.1 port 80"]
    {
        assert!(check.stdout.contains(part), "{}", check.stdout);
    }
}

#[test]
fn what_a_load_and_a_search_cannot_take_is_refused_with_what_to_do() {
    let Some(pair) = Pair::create() else { return };
    let url = "http://10.79.0.1/";
    let refuses = |arguments: &[&str], code: i32, part: &str| pair.assert_refused(1, arguments, code, part);
    refuses(&["load", "--xdp", "x1", "http://127.0.0.1/"], 1, "no route to 127.0.0.1 through x1");
    refuses(&["load", "--xdp", "x1"], 2, "needs a URL");
    // Each line of a check is one that the run itself would fail with.
    let all_refuse = |more: &[&str], part: &str| {
        for command in [&["load"][..], &["load", "--check"], &["edge"], &["edge", "--check"]] {
            refuses(&[command, &["--xdp", "x1"], more, &[url]].concat(), 1, part);
        }
    };
    all_refuse(&["-t", "2"], "x1 has 1 for 2: -t 1");
    for command in ["load", "edge"] {
        let missing = [command, "--xdp", "x1", "--source", "10.79.0.9", "--check", url];
        refuses(&missing, 1, "x1 does not have the address 10.79.0.9: it has 10.79.0.2");
    }
    let other = pair.serve_at(1, &["--xdp", "x1", "--listen", "10.79.0.2:80"]);
    all_refuse(&[], "x1 has an XDP program (id ");
    drop(other);
    assert!(within(EVENT_TIMEOUT, || !pair.has_program(1, "x1")));
    let namespace = &pair.0[1];
    assert!(ip(&["-n", namespace, "route", "add", "default", "dev", "x1"]));
    all_refuse(&[], "a default route leads through x1");
    assert!(ip(&["-n", namespace, "route", "del", "default", "dev", "x1"]));
    assert!(ip(&["-n", namespace, "link", "set", "x1", "mtu", "9000"]));
    all_refuse(&[], "x1 has an MTU of 9000, and 3498 fit into a frame");
    assert!(ip(&["-n", namespace, "link", "set", "x1", "mtu", "1500"]));
    for command in ["load", "edge"] {
        let check = pair.weir(1, &[command, "--xdp", "x1", "--check", url]);
        assert_eq!(check.code, 0, "{check:?}");
        for part in ["TCP to 10.79.0.2 port 10000 to ", "xdp mode: ", "xdp record will not know"] {
            assert!(check.stdout.contains(part), "{part}: {}", check.stdout);
        }
        assert!(!check.stdout.contains("leaves to the kernel"), "{}", check.stdout);
    }
}

#[test]
fn ports_with_sockets_of_the_kernel_stay_with_it() {
    let Some(pair) = Pair::create() else { return };
    let url = "http://10.79.0.1/?s=100";
    let set_ports = |first: &str| {
        let range = format!("net.ipv4.ip_local_port_range={first} 65535");
        assert!(pair.run(1, "sysctl", &["-qw", &range]).status.success());
    };
    set_ports("11000");
    let check = || pair.weir(1, &["load", "--xdp", "x1", "--check", url]);
    // Loopback has another address.
    let local = pair.serve_at(1, &["--listen", "127.0.0.1:10200"]);
    assert!(check().stdout.contains("port 10000 to 10999 from"), "{:?}", check());
    let own = pair.serve_at(1, &["--listen", "10.79.0.2:10700"]);
    let any = pair.serve_at(1, &["--listen", "0.0.0.0:10000"]);
    let text = check().stdout;
    for part in [
        "xdp takes from the kernel: TCP to 10.79.0.2 port 10001 to 10699 from 10.79.0.1:80",
        "xdp leaves to the kernel: its sockets have 2 of the ports 10000 to 10999: 10000, 10700",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let server = pair.serve(&XDP_SERVER);
    let load = |connections: &str| {
        let fixed = ["load", "--no-baseline", "--json", "RECORD", "--xdp", "x1", "-n", "2000", "-r", "1"];
        pair.weir(1, &[&fixed[..], &["-c", connections, url]].concat())
    };
    let run = load("20");
    run.assert_sums();
    // Each of the ports is used several times.
    assert_eq!((run.count("totals.responses"), run.errors()), (2_000, 0), "{} {}", run.stdout, run.stderr);
    let run = load("700");
    assert!(run.code == 1 && run.stderr.contains("699 ports between two addresses"), "{run:?}");
    // The only port.
    set_ports("10001");
    pair.assert_refused(
        1,
        &["load", "--xdp", "x1", url],
        1,
        "sockets of the kernel have all ports of 10.79.0.2, from 10000 to 10000",
    );
    drop((local, own, any, server));
}
