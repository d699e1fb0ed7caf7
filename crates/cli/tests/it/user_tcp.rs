//! TCP in user space with the real binary, between two namespaces: counts, bytes, refusals, and what is left after a kill.

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
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let pair = Self(["a", "b"].map(|end| format!("weirut{}-{number}{end}", std::process::id())));
        for name in &pair.0 {
            if !ip(&["netns", "add", name]) {
                test_needs::skip(test_needs::ROOT, "ip netns add takes root");
                return None;
            }
        }
        assert!(ip(&[
            "-n", &pair.0[0], "link", "add", "x0", "type", "veth", "peer", "x1", "netns", &pair.0[1]
        ]));
        for (name, device, address) in
            [(&pair.0[0], "x0", "10.79.0.1/24"), (&pair.0[1], "x1", "10.79.0.2/24")]
        {
            assert!(ip(&["-n", name, "address", "add", address, "dev", device]));
            assert!(ip(&["-n", name, "link", "set", device, "up"]));
            assert!(ip(&["-n", name, "link", "set", "lo", "up"]));
        }
        Some(pair)
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
        let directory = temp_dir();
        let mut exec = command("ip", directory.path());
        exec.args(["netns", "exec", &self.0[0], WEIR, "serve"]).args(arguments);
        let mut process = Process::spawn(exec.stdout(Stdio::piped()).stderr(Stdio::null()));
        let line = process.first_line();
        assert!(line.starts_with("listening on http://10.79.0.1:80/"), "{line}");
        process
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
    Command::new("ip").args(arguments).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
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
fn what_cannot_be_taken_is_refused_with_what_to_do() {
    let Some(pair) = Pair::create() else { return };
    let refuses = |end: usize, arguments: &[&str], code: i32, part: &str| {
        let run = pair.weir(end, arguments);
        let text = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code == code && text.contains(part), "{arguments:?}: {} {text}", run.code);
    };
    let serve = |more: &[&'static str]| [&["serve"][..], more].concat();
    refuses(0, &serve(&["--xdp", "no-such", "-l", "10.79.0.1:80"]), 1, "no interface 'no-such'");
    refuses(0, &serve(&["--xdp", "lo", "-l", "127.0.0.1:80"]), 1, "no Ethernet interface");
    refuses(0, &serve(&["--xdp", "x0"]), 2, "needs an address of the interface");
    refuses(0, &serve(&["--xdp", "x0", "-l", "10.79.0.9:80"]), 1, "it has 10.79.0.1");
    refuses(0, &serve(&["--xdp", "x0", "-l", "10.79.0.1:22"]), 1, "port 22 stays with the kernel");
    refuses(0, &serve(&["--xdp", "x0", "-l", "10.79.0.1:80", "-t", "2"]), 2, "one thread");
    refuses(0, &serve(&["--xdp", "x0", "-l", "10.79.0.1:80", "--tls-self-signed"]), 2, "no TLS");
    refuses(1, &["load", "--xdp", "x1", "http://127.0.0.1/"], 1, "no route to 127.0.0.1 through x1");
    refuses(1, &["load", "--xdp", "x1"], 2, "needs a URL");
    refuses(1, &["load", "--xdp", "x1", "https://10.79.0.1/"], 2, "no TLS");
    let kernel = pair.serve(&["--listen", "10.79.0.1:80"]);
    refuses(0, &serve(&XDP_SERVER), 1, "used by a socket of the kernel");
    drop(kernel);
    let first = pair.serve(&XDP_SERVER);
    refuses(0, &serve(&["--xdp", "x0", "-l", "10.79.0.1:90"]), 1, "has an XDP program");
    refuses(
        0,
        &serve(&["--xdp", "x0", "-l", "10.79.0.1:90", "--check"]),
        1,
        "xdp problem: x0 has an XDP program",
    );
    drop(first);
    assert!(ip(&["-n", &pair.0[0], "route", "add", "default", "dev", "x0"]));
    refuses(0, &serve(&XDP_SERVER), 1, "--xdp-exposed");
    let check = pair.weir(0, &serve(&["--xdp", "x0", "-l", "10.79.0.1:80", "--xdp-exposed", "--check"]));
    assert_eq!(check.code, 0, "{check:?}");
    for part in ["xdp: x0 (driver veth, MTU 1500, receiving queues: 1)", "TCP to 10.79.0.1 port 80"] {
        assert!(check.stdout.contains(part), "{}", check.stdout);
    }
    let check = pair.weir(1, &["load", "--xdp", "x1", "--check", "http://10.79.0.1/"]);
    assert!(check.code == 0 && check.stdout.contains("from 10.79.0.1:80"), "{check:?}");
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
