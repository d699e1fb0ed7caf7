//! A fleet and its NATS server: starts in any order, lost servers and coordinators, TLS and JWTs.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fleet::{Machines, Nats, agent_rows, free_port, nats_program, spawn};
use crate::support::tls_peers::Certificates;
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, RunOutput, RunningProcess, WEIR, run_weir, shared_machine, start, temp_dir,
    within,
};

#[test]
fn agents_and_coordinators_wait_for_a_server_that_starts_later() {
    let _shared = shared_machine();
    let port = free_port();
    let url = format!("nats://127.0.0.1:{port}");
    let agent = |name: &str| start(WEIR, &["fleet", "agent", "--nats", &url, "--name", name]);
    let (waiting, ended) = (agent("a"), agent("b"));
    let has_reported = |process: &RunningProcess| process.stderr().contains("trying again");
    assert!(within(EVENT_TIMEOUT, || has_reported(&waiting) && has_reported(&ended)));
    // SIGTERM ends the wait.
    ended.process.signal(Signal::TERM);
    let ended = ended.finish();
    assert_eq!((ended.code, ended.stderr.matches("trying again").count()), (0, 1), "{ended:?}");
    // A signal ends the wait of a coordinator, too.
    let load = |url: &str| {
        start(
            WEIR,
            &[
                "fleet",
                "load",
                "--nats",
                url,
                "--json",
                "RECORD",
                "-n",
                "10",
                "-c",
                "2",
                "http://127.0.0.1:1/",
            ],
        )
    };
    let stopped = load(&url);
    assert!(within(EVENT_TIMEOUT, || has_reported(&stopped)));
    stopped.process.signal(Signal::INT);
    let stopped = stopped.finish();
    assert!(stopped.code == 1 && stopped.stderr.contains("stopped before"), "{stopped:?}");
    let Some(program) = nats_program() else { return };

    let listed = start(WEIR, &["fleet", "ls", "--nats", &url, "--json", "RECORD"]);
    assert!(within(EVENT_TIMEOUT, || has_reported(&listed)));
    let arguments = ["--addr", "127.0.0.1", "--port", &port.to_string()].map(str::to_owned);
    let _server = spawn(&program, &arguments);
    assert_eq!(listed.finish().code, 0);
    let names = || {
        let list = run_weir(&["fleet", "ls", "--nats", &url, "--json", "-"]);
        let list: Value = serde_json::from_str(&list.stdout).unwrap_or_default();
        list["agents"].as_array().map_or(0, Vec::len)
    };
    assert!(within(EVENT_TIMEOUT, || names() == 1), "the agent has connected");
    assert_eq!(waiting.stderr().matches("trying again").count(), 1);
}

#[test]
fn a_coordinator_without_a_server_fails_after_a_bounded_wait() {
    let _shared = shared_machine();
    let url = format!("nats://127.0.0.1:{}", free_port());
    let failed = run_weir(&["fleet", "ls", "--nats", &url]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("waited 10 s") && failed.stderr.contains("--nats"), "{}", failed.stderr);
}

/// Starts a run with a load of a minute.
fn start_run(machines: &Machines) -> RunningProcess {
    machines.run(&machines.plan(&["--no-baseline", "-R", "200", "-d", "1m"]), &[])
}

/// Waits until the load has started, and returns after some of its requests.
fn wait_for_requests(machines: &Machines) {
    let origin = format!("http://127.0.0.1:{}/stats", machines.ports[1]);
    // Each read of the counters is a request, too.
    let mut polls = 0;
    let mut has_load = || {
        polls += 1;
        let (_, body) = crate::support::tls_peers::curl(&[&origin]);
        let stats = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        stats["requests"].as_u64().is_some_and(|requests| requests > polls + 100)
    };
    assert!(within(EVENT_TIMEOUT, &mut has_load), "no load");
}

#[test]
fn ctrl_c_of_a_run_ends_its_programs_and_marks_its_result() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let machines = Nats::start(program, "").machines();
    let stopped = start_run(&machines);
    wait_for_requests(&machines);
    stopped.process.signal(Signal::INT);
    let stopped = stopped.finish();
    assert_eq!(stopped.record["partial"], true, "{stopped:?}");
    assert!(stopped.code != 1 && stopped.reasons().contains(&"partial"), "{stopped:?}");
    assert!(stopped.total("responses") > 50, "{stopped:?}");
    assert_eq!(stopped.record["observed"].as_array().unwrap().len(), 3, "all machines were observed");
    assert!(machines.have_ended(), "no program is left");
}

#[test]
fn a_run_without_its_server_ends_and_its_programs_end_after_it() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let machines = Nats::start(program, "").machines();
    let stopped = start_run(&machines);
    wait_for_requests(&machines);
    machines.nats.signal(Signal::STOP);
    // Three signals: nothing is waited for.
    for _ in 0..3 {
        stopped.process.signal(Signal::INT);
        crate::support::pause_ms(300);
    }
    let stopped = stopped.finish();
    assert_eq!(stopped.code, 1, "there is no record: {stopped:?}");
    machines.nats.signal(Signal::CONT);
    // An agent that is stopped ends its program, with the server or without it.
    // Signals that are pending at the same time count once.
    let has_ended = || {
        machines.agents.iter().for_each(|agent| agent.process.signal(Signal::TERM));
        machines.have_ended()
    };
    assert!(within(EVENT_TIMEOUT, has_ended), "no program is left");
}

#[test]
fn a_killed_agent_leaves_no_program_behind() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let machines = Nats::start(program, "").machines();
    let stopped = start_run(&machines);
    wait_for_requests(&machines);
    machines.agents[1].process.signal(Signal::KILL);
    assert!(within(EVENT_TIMEOUT, || TcpStream::connect(("127.0.0.1", machines.ports[0])).is_err()));
    stopped.process.signal(Signal::INT);
    let stopped = stopped.finish();
    assert!(stopped.reasons().contains(&"machine_lost"), "{stopped:?}");
    assert!(within(EVENT_TIMEOUT, || machines.have_ended()), "no program is left");
}

/// Key pairs and tokens of an operator, an account and its users.
struct Tokens {
    operator: KeyPair,
    account: KeyPair,
}

impl Tokens {
    fn new() -> Self {
        Self { operator: KeyPair::new_operator(), account: KeyPair::new_account() }
    }

    /// Returns a signed token (JWT of version 2 of NATS).
    fn token(issuer: &KeyPair, subject: &str, name: &str, claims: Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
        let body = json!({
            "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject, "name": name,
            "nats": claims,
        });
        let text = format!("{}.{}", encode(&header), encode(&body));
        let signature = URL_SAFE_NO_PAD.encode(issuer.sign(text.as_bytes()).unwrap());
        format!("{text}.{signature}")
    }

    fn config(&self) -> String {
        let operator = Self::token(
            &self.operator,
            &self.operator.public_key(),
            "operator",
            json!({"type": "operator", "version": 2}),
        );
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1,
        });
        let account = Self::token(
            &self.operator,
            &self.account.public_key(),
            "fleet",
            json!({"type": "account", "version": 2, "limits": limits}),
        );
        let public = self.account.public_key();
        format!(
            "operator: \"{operator}\"\nresolver: MEMORY\nresolver_preload: {{ {public}: \"{account}\" }}\n"
        )
    }

    /// Writes the credentials of a user that may publish and subscribe to these subjects.
    fn write_credentials(&self, path: &Path, publish: &[&str], subscribe: &[&str]) {
        let user = KeyPair::new_user();
        let claims = json!({
            "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
            "pub": {"allow": publish}, "sub": {"allow": subscribe},
        });
        let token = Self::token(&self.account, &user.public_key(), "user", claims);
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(path, text).unwrap();
    }
}

#[test]
fn credentials_with_a_jwt_carry_a_load_and_their_permissions() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let tokens = Tokens::new();
    let nats = Nats::start(program, &tokens.config());
    let directory = temp_dir();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (agent, coordinator) = (file("agent.creds"), file("coordinator.creds"));
    tokens.write_credentials(
        Path::new(&agent),
        &["weir.fleet.report.a", "weir.fleet.clock.a", "weir.fleet.live.a.*", "weir.fleet.record.a.*.*"],
        &["weir.fleet.command", "weir.fleet.command.a"],
    );
    tokens.write_credentials(
        Path::new(&coordinator),
        &["weir.fleet.command", "weir.fleet.command.>", "weir.fleet.echo.>"],
        &[
            "weir.fleet.report.*",
            "weir.fleet.clock.*",
            "weir.fleet.live.>",
            "weir.fleet.record.>",
            "weir.fleet.echo.>",
        ],
    );
    let _agent = nats.agent("a", &["--creds", &agent]);
    // The name of the agent is in its permissions.
    let impostor = nats.agent("b", &["--creds", &agent]);
    assert!(within(EVENT_TIMEOUT, || impostor.stderr().contains("rejects this agent")));
    let origin = OriginProcess::start(&["-t", "1"]);
    let run = nats.load(&["--creds", &coordinator, "-n", "100", "-c", "4", &origin.url("/")]).finish();
    assert_eq!(run.total("responses"), 100, "{run:?}");
    assert_eq!(agent_rows(&run).len(), 1);
    // A rejection is final, and no reason to wait.
    let anonymous = run_weir(&["fleet", "ls", "--nats", &nats.url]);
    assert!(anonymous.code == 1 && anonymous.stderr.contains("authorization"), "{anonymous:?}");
    let broken = file("broken.creds");
    fs::write(&broken, "no token").unwrap();
    for path in [broken, file("missing.creds")] {
        let wrong = run_weir(&["fleet", "agent", "--nats", &nats.url, "--creds", &path]);
        assert!(wrong.code == 1 && wrong.stderr.contains(&path), "{wrong:?}");
    }
}

#[test]
fn a_fleet_uses_tls_with_certificates_of_both_sides() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let Some(certificates) = Certificates::create() else { return };
    let Some(others) = Certificates::create() else { return };
    let [certificate, key, authority] =
        ["leaf.pem", "leaf.key", "ca.pem"].map(|name| certificates.file(name));
    let config = format!(
        "tls {{ cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{authority}\", verify: true }}\n"
    );
    let mut nats = Nats::start(program, &config);
    nats.url = nats.url.replace("nats://", "tls://");
    let tls = ["--nats-ca", &authority, "--nats-cert", &certificate, "--nats-key", &key];
    let _agent = nats.agent("a", &tls);
    let origin = OriginProcess::start(&["-t", "1"]);
    let run = |flags: &[&str]| -> RunOutput {
        let mut arguments = flags.to_vec();
        let url = origin.url("/");
        arguments.extend(["-n", "100", "-c", "4", "--agents", "1", &url]);
        nats.load(&arguments).finish()
    };
    let complete = run(&tls);
    assert_eq!(complete.total("responses"), 100, "{complete:?}");
    // The server's certificate is of another authority: that is final.
    let untrusted =
        run(&["--nats-ca", &others.file("ca.pem"), "--nats-cert", &certificate, "--nats-key", &key]);
    assert_eq!(untrusted.code, 1, "{untrusted:?}");
    assert!(untrusted.stderr.contains("certificate not trusted"), "{untrusted:?}");
    assert!(!untrusted.stderr.contains("trying again"), "{untrusted:?}");
    // The server accepts no client without a certificate of its authority.
    let anonymous = run(&["--nats-ca", &authority]);
    assert_eq!((anonymous.code, &anonymous.record), (1, &Value::Null), "{anonymous:?}");
    let half = run(&["--nats-ca", &authority, "--nats-cert", &certificate]);
    assert!(half.code == 2 && half.stderr.contains("--nats-key"), "{half:?}");
    let missing = run(&["--nats-ca", "/nonexistent.pem"]);
    assert!(missing.code == 1 && missing.stderr.contains("/nonexistent.pem"), "{missing:?}");
}
