//! The challenge dns-01: wildcard certificates from pebble by updates of a zone of BIND (package `bind9`), and by
//! a hook; keys, zones, servers and hooks at fault. Skipped, with a message, without pebble or BIND.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use super::acme::{Pebble, orders};
use super::client::{TlsClient, connect};
use crate::support::peers::{ScriptPeer, ScriptedServer, free_port};
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, Process, listens_on, run_weir, shared_machine, temp_dir, within};

const SECRET: &str = "bm90IGEgc2VjcmV0LCBub3QgYSBzZWNyZXQsIG5vdCE=";

/// BIND with the zone `a.test`, which the key `weir` may change.
struct Bind {
    _process: Process,
    directory: TempDir,
    authority: String,
}

impl Bind {
    /// Starts it; `None`, with a message, if it is not installed.
    fn start() -> Option<Self> {
        if !is_installed("named", &["-v"]) {
            return None;
        }
        let directory = temp_dir();
        let path = |name: &str| directory.path().join(name);
        let zone =
            "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n@ A 127.0.0.1\n";
        fs::write(path("a.test.zone"), zone).unwrap();
        write_private(&path("key"), &key("weir", SECRET));
        for _ in 0..20 {
            let port = free_port();
            let config = format!(
                "options {{ directory {:?}; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
                 pid-file none; session-keyfile none; recursion no; dnssec-validation no; }};\ncontrols {{ }};\n\
                 include {:?};\nzone \"a.test\" {{ type primary; file \"a.test.zone\"; allow-update {{ key weir; }}; }};\n",
                directory.path(),
                path("key")
            );
            fs::write(path("named.conf"), config).unwrap();
            let log = fs::File::create(path("log")).unwrap();
            let mut command = Command::new("named");
            command.args(["-g", "-n", "1", "-c"]).arg(path("named.conf"));
            let mut process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log));
            let mut has_ended = false;
            let is_ready = within(EVENT_TIMEOUT, || {
                has_ended = process.has_ended();
                has_ended || listens_on(process.id(), port)
            });
            if is_ready && !has_ended {
                return Some(Self { _process: process, authority: format!("127.0.0.1:{port}"), directory });
            }
        }
        panic!("{}", fs::read_to_string(path("log")).unwrap())
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Returns the number of TXT records of the challenges of `a.test`.
    fn records(&self) -> u16 {
        let question = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x0f_acme-challenge\x01a\x04test\0\0\x10\0\x01";
        let mut stream = TcpStream::connect(&self.authority).unwrap();
        stream.write_all(&[&(question.len() as u16).to_be_bytes()[..], question].concat()).unwrap();
        let mut head = [0; 10];
        stream.read_exact(&mut head).unwrap();
        u16::from_be_bytes([head[8], head[9]])
    }
}

fn key(name: &str, secret: &str) -> String {
    format!("key \"{name}\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\n")
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Returns a config with these names, whose challenges are set by the settings in `dns`.
fn config(pebble: &Pebble, domains: &[&str], head: &str, dns: &str) -> String {
    let storage = temp_dir().keep();
    format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n{head}\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         [listener.web.tls.acme]\ndirectory = {:?}\nca = {:?}\ndomains = {domains:?}\nstorage = {storage:?}\n\
         challenge = \"dns-01\"\nagree-to-terms = true\ndns = {{ {dns}, propagation-interval = \"100ms\" }}\n\
         [[route]]\nreturn = {{ status = 200, body = \"x\" }}\n",
        pebble.directory,
        pebble.authority.file("ca.pem")
    )
}

fn wait_for(proxy: &ProxyUnderTest, text: &str) {
    assert!(within(EVENT_TIMEOUT, || proxy.stderr().contains(text)), "{text}: {}", proxy.stderr());
}

#[test]
fn a_wildcard_certificate_is_issued_by_signed_updates_of_a_zone() {
    let _shared = shared_machine();
    let Some(bind) = Bind::start() else { return };
    let Some(pebble) = Pebble::start_with_dns(free_port(), free_port(), Some(&bind.authority)) else {
        return;
    };
    write_private(Path::new(&bind.file("secret")), SECRET);
    for (more, key) in [
        ("", format!("key-file = {:?}", bind.file("key"))),
        (
            ", zone = \"a.test\", propagation-timeout = \"30s\", ttl = \"1s\"",
            format!("key-name = \"weir\", secret-file = {:?}", bind.file("secret")),
        ),
    ] {
        let dns = format!("server = {:?}, {key}{more}", bind.authority);
        // Both names have the same record, with two values.
        let proxy = ProxyUnderTest::weir(&config(&pebble, &["*.a.test", "a.test"], "", &dns));
        wait_for(&proxy, "certificate of *.a.test issued");
        let (mut client, issuer) = (TlsClient::start(), pebble.issuing_authority());
        for name in ["x.a.test", "a.test"] {
            let is_served = within(EVENT_TIMEOUT, || {
                let session = client.try_run(&connect("c", proxy.port(), &issuer, name, json!({})));
                session["error"].is_null()
            });
            assert!(is_served, "{name}: {}", proxy.stderr());
        }
        assert_eq!(bind.records(), 0, "the records are removed");
        assert!(!proxy.stderr().contains("not removed"), "{}", proxy.stderr());
    }
}

#[test]
fn faults_of_keys_zones_and_servers_are_explained_and_leave_no_record() {
    let _shared = shared_machine();
    let Some(bind) = Bind::start() else { return };
    let Some(pebble) = Pebble::start_with_dns(free_port(), free_port(), Some(&bind.authority)) else {
        return;
    };
    let secret = "YW5vdGhlciBzZWNyZXQgYW5vdGhlciBzZWNyZXQ=";
    let write = |name: &str, text: &str| {
        write_private(&bind.directory.path().join(name), text);
        format!("key-file = {:?}", bind.file(name))
    };
    let stuck = ScriptedServer::start(|peer| {
        // Reads until the client gives up.
        while peer.stream.read(&mut [0; 512])? > 0 {}
        Ok(())
    });
    let good = format!("key-file = {:?}", bind.file("key"));
    let closed = format!("127.0.0.1:{}", free_port());
    let own = bind.authority.clone();
    for (server, settings, part) in [
        (&own, write("wrong-secret", &key("weir", secret)), "(BADSIG)"),
        (
            &own,
            write("unknown-key", &key("stranger", secret)),
            "does not know the key stranger with hmac-sha256 (BADKEY)",
        ),
        (&own, format!("{good}, zone = \"b.test\""), "(NOTAUTH)"),
        (
            &own,
            format!("{good}, check-servers = [\"{closed}\"], propagation-timeout = \"300ms\""),
            "is not visible at",
        ),
        (&stuck.authority, format!("{good}, zone = \"a.test\""), "no complete response within 10 s"),
        (&closed, good.clone(), "cannot reach it: "),
    ] {
        let dns = format!("server = \"{server}\", {settings}");
        let proxy = ProxyUnderTest::weir(&config(&pebble, &["*.a.test"], "", &dns));
        wait_for(&proxy, "certificate of *.a.test not issued: ");
        assert!(proxy.stderr().contains(part), "{part}: {}", proxy.stderr());
        assert_eq!(orders(&proxy, "failed"), 1.0);
        assert_eq!(bind.records(), 0, "{part}");
    }
    let outside = format!("server = {own:?}, {good}");
    let proxy = ProxyUnderTest::weir(&config(&pebble, &["a.b.test"], "", &outside));
    wait_for(&proxy, "certificate of a.b.test not issued: ");
    assert!(proxy.stderr().contains("name server 127.0.0.1"), "{}", proxy.stderr());
}

/// A name server with the records that a hook has written to a file, one `add NAME VALUE` in a line.
fn name_server_of_hook(file: &Path) -> ScriptedServer {
    let file = file.to_owned();
    ScriptedServer::start(move |peer: &mut ScriptPeer| {
        loop {
            let mut length = [0; 2];
            peer.stream.read_exact(&mut length)?;
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            peer.stream.read_exact(&mut query)?;
            let text = fs::read_to_string(&file).unwrap_or_default();
            let values = text.lines().filter_map(|line| line.strip_prefix("add ")?.split(' ').nth(1));
            let is_txt = query.windows(4).any(|part| part == [0, 16, 0, 1]);
            let mut response = super::acme::dns_response(&query).unwrap();
            if is_txt {
                let mut count = 0;
                for value in values {
                    response.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 1, 0, value.len() as u8 + 1]);
                    response.push(value.len() as u8);
                    response.extend(value.as_bytes());
                    count += 1;
                }
                response[6..8].copy_from_slice(&[0, count]);
            }
            peer.send(&[&(response.len() as u16).to_be_bytes()[..], &response].concat())?;
        }
    })
}

fn write_hook(directory: &Path, name: &str, script: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

const UNCONFINED: &str = "privileges = { landlock = false }";

#[test]
fn a_hook_sets_and_removes_the_records() {
    let _shared = shared_machine();
    let home = temp_dir();
    let records = home.path().join("records");
    let name_server = name_server_of_hook(&records);
    let Some(pebble) = Pebble::start_with_dns(free_port(), free_port(), Some(&name_server.authority)) else {
        return;
    };
    let script =
        format!("shift\necho \"$@\" >> {records:?}\necho \"$WEIR_ACME_DOMAIN\" >> {records:?}.domains");
    let hook = write_hook(home.path(), "hook", &script);
    let dns = format!("hook = [{hook:?}, \"first\"], check-servers = {:?}", name_server.authority);
    let proxy = ProxyUnderTest::weir(&config(&pebble, &["*.a.test", "b.test"], UNCONFINED, &dns));
    wait_for(&proxy, "certificate of *.a.test issued");
    let text = fs::read_to_string(&records).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(
        lines[0].starts_with("add _acme-challenge.") && lines[1].starts_with("add _acme-challenge."),
        "{text}"
    );
    assert_eq!([lines[2], lines[3]], [lines[0], lines[1]].map(|line| line.replacen("add", "remove", 1)));
    let domains = fs::read_to_string(home.path().join("records.domains")).unwrap();
    assert!(domains.contains("a.test\n") && domains.contains("b.test\n"), "{domains}");
}

#[test]
fn a_hook_that_fails_hangs_or_writes_a_lot_ends_in_an_error() {
    let _shared = shared_machine();
    let home = temp_dir();
    let Some(pebble) = Pebble::start(free_port(), free_port()) else { return };
    for (name, script, parts) in [
        (
            "fails",
            "echo no such zone >&2; echo try another >&2; exit 3",
            vec!["add: exit code 3", "no such zone / try another"],
        ),
        ("hangs", "sleep 1000", vec!["add: it did not end within 500 ms, and was killed"]),
        (
            "writes",
            "yes 'a lot of text' >&2",
            vec!["add: it did not end within 500 ms, and was killed", "a lot of text"],
        ),
        (
            "much",
            "yes 'some text' | head -c 3000000 >&2; echo the end >&2; exit 1",
            vec!["add: exit code 1", "the end"],
        ),
        ("dies", "kill -9 $$", vec!["add: it was ended by signal 9"]),
    ] {
        let hook = write_hook(home.path(), name, script);
        let dns = format!("hook = [{hook:?}], hook-timeout = \"500ms\"");
        let dns = if name == "hangs" || name == "writes" { dns } else { format!("hook = [{hook:?}]") };
        let proxy = ProxyUnderTest::weir(&config(&pebble, &["a.test"], UNCONFINED, &dns));
        wait_for(&proxy, "certificate of a.test not issued: ");
        let stderr = proxy.stderr();
        for part in parts {
            assert!(stderr.contains(part), "{name}: {part}: {stderr}");
        }
        let line = stderr.lines().find(|line| line.contains("not issued")).unwrap();
        assert!(line.len() < 4_000, "{name}: {}", line.len());
    }
}

#[test]
fn a_config_that_no_proof_could_follow_is_rejected() {
    let _shared = shared_machine();
    let home = temp_dir();
    let hook = write_hook(home.path(), "hook", "exit 0");
    let open = write_hook(home.path(), "open", "exit 0");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let key_file = home.path().join("key");
    write_private(&key_file, &key("weir", SECRET));
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o666)).unwrap();
    for (head, domain, challenge, dns, part) in [
        ("", "*.a.test", "http-01", String::new(), "'*.a.test' needs challenge = 'dns-01'"),
        ("", "*.a.test", "dns-01", String::new(), "challenge dns-01 needs a table `dns`"),
        ("", "a.test", "dns-01", format!("dns = {{ hook = [{hook:?}] }}"), "set privileges.landlock = false"),
        (UNCONFINED, "a.test", "dns-01", format!("dns = {{ hook = [{open:?}] }}"), "others can write it"),
        (UNCONFINED, "a.test", "dns-01", "dns = { hook = ['/etc/passwd'] }".to_owned(), "is no program"),
        (
            "",
            "a.test",
            "dns-01",
            format!("dns = {{ server = '127.0.0.1', key-file = {key_file:?} }}"),
            "others can write it",
        ),
        ("", "a.test", "dns-01", "dns = { server = '127.0.0.1' }".to_owned(), "needs the key of updates"),
        (
            UNCONFINED,
            "a.test",
            "dns-01",
            format!("dns = {{ server = '127.0.0.1', hook = [{hook:?}] }}"),
            "exclude each other",
        ),
    ] {
        let path = home.path().join("weir.toml");
        let text = format!(
            "{head}\n[listener.web]\nbind = '127.0.0.1:0'\n[listener.web.tls.acme]\ndirectory = 'https://localhost/dir'\n\
             domains = '{domain}'\nstorage = {:?}\nchallenge = '{challenge}'\nagree-to-terms = true\n{dns}\n\
             [[route]]\ndeny = true\n",
            home.path()
        );
        fs::write(&path, text).unwrap();
        let output = run_weir(&["proxy", "--check", "--config", path.to_str().unwrap()]);
        assert_eq!(output.code, 2, "{part}: {output:?}");
        assert!(output.stderr.contains(part) && output.stderr.contains("weir.toml:"), "{part}: {output:?}");
    }
}
