//! TCP in user space with the real binary, between two namespaces: counts, bytes, refusals, and what is left after a kill.

mod edge_and_fleet;
mod interoperability;
mod many_connections;
mod refusals;

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{EVENT_TIMEOUT, Process, RunOutput, WEIR, command, start, temp_dir, within};

/// Two namespaces with a veth pair, `x0` at 10.79.0.1 and `x1` at 10.79.0.2; removed with everything in them.
struct Pair([String; 2]);

impl Pair {
    /// Returns `None` without the permission to make it.
    fn create() -> Option<Self> {
        Self::with_queues(1)
    }

    fn with_queues(queues: u32) -> Option<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let pair = Self(["a", "b"].map(|end| format!("weirut{}-{number}{end}", std::process::id())));
        for name in &pair.0 {
            if !ip(&["netns", "add", name]) {
                test_needs::skip(test_needs::ROOT, "ip netns add takes root");
                return None;
            }
        }
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let line =
            format!("-n {} link add x0 {queues} type veth peer x1 {queues} netns {}", pair.0[0], pair.0[1]);
        assert!(ip(&line.split(' ').collect::<Vec<_>>()), "{line}");
        for (name, device, address, ipv6) in [
            (&pair.0[0], "x0", "10.79.0.1/24", "fd79::1/64"),
            (&pair.0[1], "x1", "10.79.0.2/24", "fd79::2/64"),
        ] {
            assert!(ip(&["-n", name, "address", "add", address, "dev", device]));
            assert!(ip(&["-n", name, "address", "add", ipv6, "dev", device, "nodad"]));
            assert!(ip(&["-n", name, "link", "set", device, "up"]));
            assert!(ip(&["-n", name, "link", "set", "lo", "up"]));
        }
        pair.wait_for_routes();
        Some(pair)
    }

    /// Waits until IPv6 has noticed that both ends are up: the kernel adds its routes a while after `link set up`.
    fn wait_for_routes(&self) {
        for (name, peer) in [(&self.0[0], "fd79::2"), (&self.0[1], "fd79::1")] {
            assert!(within(EVENT_TIMEOUT, || ip(&["-n", name, "route", "get", peer])), "no route to {peer}");
        }
    }

    /// Runs a program in a namespace to its end.
    fn run(&self, end: usize, program: &str, arguments: &[&str]) -> Output {
        let directory = temp_dir();
        let mut exec = command("ip", directory.path());
        exec.args(["netns", "exec", &self.0[end], program]).args(arguments).output().unwrap()
    }

    /// Runs weir in a namespace; `RECORD` stands for the path of the record.
    fn weir(&self, end: usize, arguments: &[&str]) -> RunOutput {
        let all = [&["netns", "exec", &self.0[end], WEIR][..], arguments].concat();
        start("ip", &all).finish()
    }

    /// Starts an origin in the first namespace.
    fn serve(&self, arguments: &[&str]) -> Process {
        self.serve_at(0, arguments)
    }

    /// Starts an origin in a namespace. It writes no core file when a signal ends it.
    fn serve_at(&self, end: usize, arguments: &[&str]) -> Process {
        let directory = temp_dir();
        let mut exec = command("ip", directory.path());
        exec.args(["netns", "exec", &self.0[end], "prlimit", "--core=0:0", WEIR, "serve"]).args(arguments);
        let mut process = Process::spawn(exec.stdout(Stdio::piped()).stderr(Stdio::null()));
        let line = process.first_line();
        assert!(line.starts_with("listening on http"), "{line}");
        process
    }

    /// Returns what a run may not change: an interface, the address of its neighbour, and the listeners of the kernel.
    fn state(&self, end: usize, device: &str) -> [String; 3] {
        let show = |program, arguments: &[&str]| {
            let output = self.run(end, program, arguments);
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let neighbours = show("ip", &["-4", "neighbour", "show", "dev", device]);
        let address = neighbours.split_whitespace().nth(2).unwrap_or_default();
        let link = show("ip", &["-o", "link", "show", device]);
        [link, address.to_owned(), show("ss", &["-tlnH"])]
    }

    fn curl(&self, arguments: &[&str]) -> Output {
        self.run(1, "curl", &[&["-s", "-S", "-m", "20"][..], arguments].concat())
    }

    fn stats(&self) -> Value {
        let output = self.curl(&["http://10.79.0.1/stats"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    fn has_program(&self, end: usize, device: &str) -> bool {
        let output = Command::new("ip").args(["-n", &self.0[end], "link", "show", device]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("prog/xdp")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    let status = Command::new("ip").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

const XDP_SERVER: [&str; 4] = ["--xdp", "x0", "--listen", "10.79.0.1:80"];

#[test]
fn a_server_in_user_space_answers_curl_and_leaves_nothing_after_a_kill() {
    let Some(pair) = Pair::create() else { return };
    let mut server = pair.serve(&XDP_SERVER);
    assert!(pair.has_program(0, "x0"));
    for (target, bytes) in [("/?s=100", 100), ("/?s=0", 0), ("/?s=300000", 300_000)] {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let url = format!("http://10.79.0.1{target}");
            let output = pair.curl(&[version, &url]);
            assert!(output.status.success(), "{target} {version}: {output:?}");
            assert_eq!(output.stdout.len(), bytes, "{target} {version}");
        }
    }
    let body = "x".repeat(100_000);
    let output = pair.curl(&["-d", &body, "-o", "/dev/null", "-w", "%{http_code}", "http://10.79.0.1/?s=10"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200", "{output:?}");
    // Other ports are the kernel's.
    assert!(!pair.curl(&["http://10.79.0.1:81/"]).status.success());
    server.signal(Signal::KILL);
    assert!(within(EVENT_TIMEOUT, || server.has_ended()));
    assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    assert!(!pair.curl(&["http://10.79.0.1/"]).status.success());
    // The kernel has its packets back.
    let kernel = pair.serve(&["--listen", "10.79.0.1:80"]);
    assert!(pair.curl(&["http://10.79.0.1/?s=5"]).status.success());
    drop(kernel);
}

#[test]
fn files_are_served_whole_and_a_drain_sends_the_rest() {
    let Some(pair) = Pair::create() else { return };
    let site = temp_dir();
    let content: Vec<u8> = (0..700_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(site.path().join("file"), &content).unwrap();
    let path = site.path().to_str().unwrap();
    let mut server = pair.serve(&[&XDP_SERVER[..], &[path]].concat());
    let output = pair.curl(&["http://10.79.0.1/file"]);
    assert!(output.status.success() && output.stdout == content, "{} bytes", output.stdout.len());
    let output = pair.curl(&["-r", "1000-1999", "http://10.79.0.1/file"]);
    assert!(output.stdout == content[1_000..2_000]);
    server.signal(Signal::TERM);
    assert_eq!(server.wait(EVENT_TIMEOUT), 0);
    assert!(!pair.has_program(0, "x0"));
}

/// Checks that the counts of a load are those of its origin.
fn assert_counts(run: &RunOutput, stats: &Value) {
    run.assert_sums();
    assert_eq!(run.count("totals.responses"), 3_000, "{} {}", run.stdout, run.stderr);
    assert_eq!(run.errors(), 0, "{:#}", run.record["totals"]);
    assert_eq!(stats["requests"].as_u64(), Some(3_000));
    assert_eq!(stats["in_flight"].as_u64(), Some(0));
}

#[test]
fn counts_of_the_load_are_those_of_the_origin_with_either_transport_at_either_end() {
    let Some(pair) = Pair::create() else { return };
    let kernel_server = ["--listen", "10.79.0.1:80"];
    let load =
        ["load", "--no-baseline", "--json", "RECORD", "-n", "3000", "-c", "40", "http://10.79.0.1/?s=100"];
    let per_request = ["-r", "1"];
    let http2 = ["--http", "2", "--streams", "4"];
    for (server, client, variant) in [
        (&XDP_SERVER[..], &["--xdp", "x1"][..], &[][..]),
        (&XDP_SERVER, &["--xdp", "x1"], &per_request),
        (&XDP_SERVER, &["--xdp", "x1"], &http2),
        (&XDP_SERVER, &[], &[]),
        (&kernel_server, &["--xdp", "x1"], &[]),
        (&kernel_server, &["--xdp", "x1"], &per_request),
    ] {
        let server_process = pair.serve(server);
        let run = pair.weir(1, &[&load[..], client, variant].concat());
        assert_counts(&run, &pair.stats());
        let transport = &run.record["transport"];
        if client.is_empty() {
            assert!(transport.is_null());
        } else {
            assert_eq!((&transport["kind"], &transport["interface"]), (&"xdp".into(), &"x1".into()));
            assert_eq!((&transport["driver"], &transport["mode"]), (&"veth".into(), &"copy".into()));
            // With HTTP/2 a segment has several requests.
            assert!(run.count("transport.received") >= 100 && run.count("transport.sent") >= 100);
            assert!(run.reasons().contains(&"xdp_copies"), "{:?}", run.reasons());
            assert!(!pair.has_program(1, "x1"));
        }
        drop(server_process);
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
}

#[test]
fn tls_runs_over_it_at_either_end_and_text_is_answered() {
    let Some(pair) = Pair::create() else { return };
    let secret = ["--tls-self-signed"];
    let server = pair.serve(&[&XDP_SERVER[..], &secret].concat());
    for version in ["--http1.1", "--http2"] {
        for bytes in ["0", "100", "300000"] {
            let url = format!("https://10.79.0.1:80/?s={bytes}");
            let output = pair.curl(&["-k", version, &url]);
            assert!(output.status.success(), "{version} {bytes}: {output:?}");
            assert_eq!(output.stdout.len().to_string(), bytes, "{version}");
        }
    }
    let body = "x".repeat(100_000);
    let arguments =
        ["-k", "-d", &body, "-o", "/dev/null", "-w", "%{http_code}", "https://10.79.0.1:80/?s=10"];
    assert_eq!(String::from_utf8_lossy(&pair.curl(&arguments).stdout), "200");
    // A client without TLS gets a response that it can read.
    let output = pair.curl(&["-o", "/dev/null", "-w", "%{http_code}", "http://10.79.0.1:80/"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "400", "{output:?}");
    drop(server);
    assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    let load = [
        "load",
        "--no-baseline",
        "--json",
        "RECORD",
        "-k",
        "-n",
        "3000",
        "-c",
        "40",
        "https://10.79.0.1:80/?s=100",
    ];
    let kernel_server = ["--listen", "10.79.0.1:80"];
    for (server, client) in [
        (&XDP_SERVER[..], &["--xdp", "x1"][..]),
        (&XDP_SERVER, &["--xdp", "x1", "-r", "1"]),
        (&kernel_server, &["--xdp", "x1", "-r", "5", "--tls-resume", "50%"]),
        (&kernel_server, &["--xdp", "x1", "--http", "2"]),
        (&XDP_SERVER, &["-r", "1"]),
    ] {
        let process = pair.serve(&[server, &secret].concat());
        let run = pair.weir(1, &[&load[..], client].concat());
        let stats = pair.curl(&["-k", "https://10.79.0.1:80/stats"]);
        let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
        assert_counts(&run, &stats);
        assert_eq!(stats["tls_failed"], 0, "{stats:#}");
        assert_eq!(stats["user_tcp"].is_null(), server.len() == 2, "{stats:#}");
        drop(process);
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
}

#[test]
fn each_queue_has_a_thread_and_a_peer_may_choose_any_queue() {
    let Some(pair) = Pair::with_queues(2) else { return };
    let load =
        ["load", "--no-baseline", "--json", "RECORD", "-n", "3000", "-c", "40", "http://10.79.0.1/?s=100"];
    let kernel_server = ["--listen", "10.79.0.1:80"];
    let xdp_server = [&XDP_SERVER[..], &["-t", "2"]].concat();
    let two = ["--xdp", "x1", "-t", "2"];
    for (server, client) in [
        (&xdp_server[..], &two[..]),
        (&xdp_server, &[&two[..], &["-r", "1"]].concat()),
        // The kernel chooses a queue for each of its connections.
        (&xdp_server, &[]),
        (&kernel_server, &two),
        (&kernel_server, &[&two[..], &["-r", "1"]].concat()),
    ] {
        let process = pair.serve(server);
        let run = pair.weir(1, &[&load[..], client].concat());
        let stats = pair.stats();
        assert_counts(&run, &stats);
        let is_kernel_server = server.len() == 2;
        if !is_kernel_server {
            let frames = |core: usize| stats["cores"][core]["user_tcp"]["frames_received"].as_u64();
            assert!(frames(0) > Some(100) && frames(1) > Some(100), "{stats:#}");
        }
        if !client.is_empty() {
            assert_eq!(run.count("transport.queues"), 2);
            assert_eq!(run.count("transport.receive_ring_full") + run.count("transport.dropped"), 0);
            assert_eq!(
                run.count("transport.handed_over") > 100,
                is_kernel_server,
                "{:#}",
                run.record["transport"]
            );
        }
        drop(process);
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
}

#[test]
fn ipv6_is_served_and_loaded() {
    let Some(pair) = Pair::create() else { return };
    let server = ["--xdp", "x0", "--listen", "[fd79::1]:80", "--listen", "10.79.0.1:80"];
    let process = pair.serve(&server);
    for host in ["[fd79::1]", "10.79.0.1"] {
        let output = pair.curl(&[&format!("http://{host}/?s=300000")]);
        assert!(output.status.success() && output.stdout.len() == 300_000, "{host}: {output:?}");
    }
    drop(process);
    assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    let load =
        ["load", "--no-baseline", "--json", "RECORD", "-n", "3000", "-c", "40", "http://[fd79::1]/?s=100"];
    let kernel_server = ["--listen", "[fd79::1]:80"];
    for (server, client) in [
        (&server[..], &["--xdp", "x1"][..]),
        (&kernel_server, &["--xdp", "x1", "-r", "1"]),
        (&server, &["-r", "1"]),
    ] {
        let process = pair.serve(server);
        let run = pair.weir(1, &[&load[..], client].concat());
        let stats = pair.curl(&["http://[fd79::1]/stats"]);
        assert_counts(&run, &serde_json::from_slice(&stats.stdout).unwrap());
        drop(process);
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
}

#[test]
fn a_stall_of_the_server_is_in_the_latencies_from_the_due_time() {
    let Some(pair) = Pair::create() else { return };
    for server in [&["--listen", "10.79.0.1:80"][..], &XDP_SERVER] {
        let process = pair.serve(server);
        let load =
            ["load", "--no-baseline", "--json", "RECORD", "--xdp", "x1", "-R", "300", "-d", "5", "-c", "20"];
        let exec = ["netns", "exec", &pair.0[1], WEIR];
        let running = start("ip", &[&exec[..], &load, &["http://10.79.0.1/?s=100"]].concat());
        assert!(within(EVENT_TIMEOUT, || pair.has_program(1, "x1")));
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        process.signal(Signal::STOP);
        std::thread::sleep(std::time::Duration::from_millis(1_400));
        process.signal(Signal::CONT);
        let run = running.finish();
        run.assert_sums();
        assert_eq!(
            (run.count("totals.responses"), run.errors()),
            (1_500, 0),
            "{} {}",
            run.stdout,
            run.stderr
        );
        let p99_ns = run.count("latency.last_byte.response.p99_ns");
        assert!(p99_ns >= 1_000_000_000, "{p99_ns}: {:#}", run.record["transport"]);
        drop(process);
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
}

/// Ends that are asked for, a kill, and that of a panic that aborts.
const SIGNALS: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::KILL, Signal::ABORT];

#[test]
fn a_server_that_is_stopped_or_killed_leaves_nothing() {
    let Some(pair) = Pair::create() else { return };
    let get = || pair.curl(&["http://10.79.0.1/?s=1"]).status.success();
    let kernel = pair.serve(&["--listen", "10.79.0.1:80"]);
    assert!(get());
    drop(kernel);
    let before = pair.state(0, "x0");
    for signal in SIGNALS {
        let mut server = pair.serve(&XDP_SERVER);
        assert!(pair.has_program(0, "x0") && get(), "{signal:?}");
        server.signal(signal);
        assert!(within(EVENT_TIMEOUT, || server.has_ended()), "{signal:?}");
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")), "{signal:?}");
        assert_eq!(pair.state(0, "x0"), before, "{signal:?}");
        assert!(!get(), "{signal:?}: nobody listens");
        // The port is free at once, and the kernel has its packets.
        let kernel = pair.serve(&["--listen", "10.79.0.1:80"]);
        assert!(get(), "{signal:?}");
        drop(kernel);
    }
}

#[test]
fn a_load_that_is_stopped_or_killed_leaves_nothing() {
    let Some(pair) = Pair::create() else { return };
    let server = pair.serve(&["--listen", "10.79.0.1:80"]);
    assert!(pair.curl(&["http://10.79.0.1/?s=1"]).status.success());
    let before = pair.state(1, "x1");
    for signal in SIGNALS {
        let mut exec = command("ip", temp_dir().path());
        exec.current_dir("/").args([
            "netns",
            "exec",
            &pair.0[1],
            "prlimit",
            "--core=0:0",
            WEIR,
            "load",
            "--no-baseline",
            "--xdp",
            "x1",
        ]);
        exec.args(["-d", "60", "http://10.79.0.1/?s=1"]);
        let mut load = Process::spawn(exec.stdout(Stdio::null()).stderr(Stdio::null()));
        assert!(within(EVENT_TIMEOUT, || pair.has_program(1, "x1")), "{signal:?}");
        std::thread::sleep(std::time::Duration::from_millis(500));
        load.signal(signal);
        assert!(within(EVENT_TIMEOUT, || load.has_ended()), "{signal:?}");
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(1, "x1")), "{signal:?}");
        assert_eq!(pair.state(1, "x1"), before, "{signal:?}");
        assert!(pair.curl(&["http://10.79.0.1/?s=1"]).status.success(), "{signal:?}");
    }
    drop(server);
}

#[test]
fn connections_in_user_space_need_no_descriptors() {
    let Some(pair) = Pair::create() else { return };
    let few = |end: usize, arguments: &[&str]| {
        let limited = ["netns", "exec", &pair.0[end], "prlimit", "--nofile=64:64", WEIR];
        start("ip", &[&limited[..], arguments].concat())
    };
    let server = few(0, &["serve", "--xdp", "x0", "--listen", "10.79.0.1:80", "--connections-max", "2000"]);
    assert!(within(EVENT_TIMEOUT, || pair.has_program(0, "x0")));
    let load = ["load", "--xdp", "x1", "--no-baseline", "--json", "RECORD", "-n", "3000", "-c", "1000"];
    let run = few(1, &[&load[..], &["http://10.79.0.1/?s=100"]].concat()).finish();
    assert_counts(&run, &pair.stats());
    assert_eq!(run.count("totals.connections.opened"), 1_000);
    drop(server);
}

#[test]
fn a_calibration_of_it_makes_its_own_link() {
    let Some(pair) = Pair::create() else { return };
    let run =
        pair.weir(1, &["calibrate", "--xdp", "--json", "RECORD", "--trials", "1", "--trial-time", "1s"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.record["profile"]["user_tcp"], true, "{:#}", run.record);
    assert!(run.record["per_core_per_s"].as_f64().unwrap() > 1_000.0);
    let links = pair.run(1, "ip", &["link"]);
    assert!(!String::from_utf8_lossy(&links.stdout).contains("to-origin"), "{links:?}");
}

#[test]
fn a_load_in_user_space_drives_nginx_and_due_times_hold() {
    let Some(pair) = Pair::create() else { return };
    let directory = temp_dir();
    // Without a master, so that a kill leaves no worker behind.
    let config = directory.path().join("nginx.conf");
    let path = directory.path().display();
    let text = format!(
        "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log; worker_processes 1; events {{}}\n\
         http {{ access_log off; client_body_temp_path {path}; proxy_temp_path {path}; fastcgi_temp_path {path};\n\
         uwsgi_temp_path {path}; scgi_temp_path {path}; keepalive_requests 1000000;\n\
         server {{ listen 10.79.0.1:80; location / {{ return 200 'hello'; }} }} }}"
    );
    std::fs::write(&config, text).unwrap();
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        test_needs::skip("nginx", "not on the path");
        return;
    }
    let mut exec = command("ip", directory.path());
    exec.args(["netns", "exec", &pair.0[0], "nginx", "-c", config.to_str().unwrap()]);
    let nginx = Process::spawn(exec.stderr(Stdio::null()));
    assert!(within(EVENT_TIMEOUT, || pair.curl(&["http://10.79.0.1/"]).stdout == b"hello"));
    let run = pair.weir(
        1,
        &[
            "load",
            "--no-baseline",
            "--json",
            "RECORD",
            "--xdp",
            "x1",
            "-R",
            "500",
            "-d",
            "2",
            "-c",
            "20",
            "--expect-body",
            "hello",
            "http://10.79.0.1/",
        ],
    );
    run.assert_sums();
    assert_eq!((run.count("totals.responses"), run.errors()), (1_000, 0), "{} {}", run.stdout, run.stderr);
    drop(nginx);
}
