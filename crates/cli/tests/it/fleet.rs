//! A fleet of real processes: a NATS server, agents, an origin that counts, and `weir fleet load`.

mod edge;
mod lab;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::timing::assert_timing;
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, Process, RunOutput, RunningProcess, WEIR, command, run_weir,
    shared_machine, start, temp_dir, within,
};

/// Returns the program of the NATS server; `None` with a message if it is missing.
pub(crate) fn nats_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let go = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join("go/bin");
    let program = std::env::split_paths(&path)
        .chain([go])
        .map(|directory| directory.join("nats-server"))
        .find(|directory| directory.is_file());
    if program.is_none() {
        test_needs::skip(test_needs::NATS_SERVER, "the program nats-server is missing");
    }
    program
}

/// A NATS server on a port that it keeps when it is started again.
pub(crate) struct Nats {
    program: PathBuf,
    process: Option<Process>,
    pub(crate) url: String,
    arguments: Vec<String>,
    _directory: TempDir,
}

impl Nats {
    pub(crate) fn start(program: PathBuf, config: &str) -> Self {
        let directory = temp_dir();
        let config_path = directory.path().join("nats.conf");
        let ports = directory.path().join("ports");
        fs::create_dir(&ports).unwrap();
        let text = format!("listen: \"127.0.0.1:-1\"\nports_file_dir: \"{}\"\n{config}", ports.display());
        fs::write(&config_path, text).unwrap();
        let mut process = spawn(&program, &["-c".to_owned(), config_path.display().to_string()]);
        let port = || {
            let file = fs::read_dir(&ports).unwrap().next()?.unwrap().path();
            let text = fs::read_to_string(file).ok()?;
            let value: Value = serde_json::from_str(&text).ok()?;
            value["nats"][0].as_str()?.rsplit(':').next()?.parse::<u16>().ok()
        };
        let is_up = within(EVENT_TIMEOUT, || port().is_some() || process.has_ended());
        assert!(is_up && !process.has_ended(), "nats-server did not start: {config}");
        let port = port().unwrap();
        // For a restart: the same config, on the port that the kernel chose.
        fs::write(&config_path, format!("listen: \"127.0.0.1:{port}\"\n{config}")).unwrap();
        Self {
            program,
            process: Some(process),
            url: format!("nats://127.0.0.1:{port}"),
            arguments: vec!["-c".to_owned(), config_path.display().to_string()],
            _directory: directory,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.as_ref().unwrap().signal(signal);
    }

    /// Kills the server, and starts it again after `meanwhile`.
    pub(crate) fn restart(&mut self, meanwhile: impl FnOnce()) {
        drop(self.process.take());
        meanwhile();
        self.process = Some(spawn(&self.program, &self.arguments));
    }

    pub(crate) fn agent(&self, name: &str, more: &[&str]) -> RunningProcess {
        let mut arguments = vec!["fleet", "agent", "--nats", &self.url, "--name", name];
        arguments.extend(more);
        start(WEIR, &arguments)
    }

    pub(crate) fn load(&self, arguments: &[&str]) -> RunningProcess {
        let mut all = vec!["fleet", "load", "--nats", &self.url, "--json", "RECORD", "--no-watch"];
        all.extend(arguments);
        start(WEIR, &all)
    }

    /// Starts the agents of three machines, and waits for them.
    pub(crate) fn machines(self) -> Machines {
        let agents = vec![
            self.agent("client", &[]),
            self.agent("edge", &["--allow", "proxy"]),
            self.agent("back", &["--allow", "serve"]),
        ];
        assert!(within(EVENT_TIMEOUT, || self.agents().len() == 3));
        Machines { nats: self, agents, ports: [free_port(), free_port()], directory: temp_dir() }
    }

    pub(crate) fn agents(&self) -> Vec<Value> {
        let list = run_weir(&["fleet", "ls", "--nats", &self.url, "--json", "-"]);
        let list: Value = serde_json::from_str(&list.stdout).unwrap();
        list["agents"].as_array().unwrap().clone()
    }
}

/// A NATS server with the agents of a client, an edge and a back.
pub(crate) struct Machines {
    pub(crate) nats: Nats,
    pub(crate) agents: Vec<RunningProcess>,
    /// Ports of the subject on the edge, and of the origin on the back.
    pub(crate) ports: [u16; 2],
    pub(crate) directory: TempDir,
}

impl Machines {
    /// Returns a plan with a proxy, an origin, and a load of four connections with these arguments.
    pub(crate) fn plan(&self, load: &[&str]) -> String {
        let [subject, origin] = self.ports;
        let url = format!("http://127.0.0.1:{subject}/?s=100");
        let load = [&["-c", "4", "-t", "1"][..], load, &[&url[..]]].concat();
        format!(
            "[machine.proxy]\nagent = \"name=edge\"\nproxy = [\"-l\", \"127.0.0.1:{subject}\", \"--to\", \
             \"127.0.0.1:{origin}\", \"-t\", \"1\"]\n[machine.store]\nagent = \"name=back\"\n\
             serve = [\"-l\", \"127.0.0.1:{origin}\", \"-t\", \"1\"]\n[load]\nagents = \"name=client\"\n\
             arguments = {load:?}\n"
        )
    }

    pub(crate) fn run(&self, plan: &str, more: &[&str]) -> RunningProcess {
        let path = self.directory.path().join("plan.toml");
        fs::write(&path, plan).unwrap();
        let all = ["fleet", "run", "--nats", &self.nats.url, "--json", "RECORD", path.to_str().unwrap()];
        start(WEIR, &[&all[..], more].concat())
    }

    /// Returns whether no program listens.
    pub(crate) fn have_ended(&self) -> bool {
        self.ports.iter().all(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_err())
    }
}

pub(crate) fn spawn(program: &Path, arguments: &[String]) -> Process {
    let directory = std::env::temp_dir();
    let mut server = command(program.to_str().unwrap(), &directory);
    Process::spawn(server.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()))
}

pub(crate) fn agent_rows(output: &RunOutput) -> &Vec<Value> {
    output.record["fleet"]["agents"].as_array().unwrap_or_else(|| panic!("{output:?}"))
}

/// Waits until the load runs: the origin serves requests.
pub(crate) fn wait_for_load(origin: &OriginProcess) {
    assert!(within(EVENT_TIMEOUT, origin.has_served_more(20)), "no load");
}

#[test]
fn a_fleet_counts_what_the_origin_counts_and_marks_what_is_missing() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let nats = Nats::start(program, "");
    let origin = OriginProcess::start(&["-t", "1"]);
    let mut agents = vec![
        nats.agent("a", &["--label", "zone=eu"]),
        nats.agent("b", &[]),
        nats.agent("server", &["--allow", "observe"]),
    ];
    assert!(within(EVENT_TIMEOUT, || nats.agents().len() == 3));
    let url = origin.url("/?s=100");

    // The parts add up, and the origin counts the same.
    let before = origin.stats()["requests"].as_u64().unwrap();
    let whole = nats.load(&["--agents", "2", "-n", "20001", "-c", "9", &url]).finish();
    whole.assert_sums();
    assert_eq!((whole.total("responses"), whole.errors()), (20_001, 0), "{whole:?}");
    let served = origin.stats()["requests"].as_u64().unwrap() - before;
    // The two requests of the counters themselves are not part of the load.
    assert_eq!(served - u64::from(served > 20_001), 20_001);
    let rows = agent_rows(&whole);
    assert_eq!(rows.iter().map(|row| row["figures"]["requests"].as_u64().unwrap()).sum::<u64>(), 20_001);
    assert_eq!(whole.count("totals.connections.requested"), 9);
    // On a slow machine, the load is longer than a second, and the rest of the last one has no percentiles.
    let in_tail = whole.count("window.excluded_tail");
    assert_eq!(whole.count("latency.last_byte.response.count") + in_tail, 20_001);
    assert!(
        rows.iter()
            .all(|row| row["outcome"] == "complete" && row["clock"]["round_trips"].as_u64() > Some(10))
    );
    let skew_ns = whole.count("fleet.start_skew_ns");
    assert_timing(skew_ns < 5_000_000, "a synchronous start within 5 ms", skew_ns);

    // Problems of the plan are those of the command line, and of the agents.
    let refused = nats.load(&["-R", "x", "--hdr", "f", "--data", "@/etc/passwd", &url]).finish();
    assert_eq!(refused.code, 2);
    for flag in ["--rate", "--hdr", "--data"] {
        assert!(refused.stderr.contains(flag), "{}", refused.stderr);
    }
    let too_many = nats.load(&["--agents", "3", "-d", "1s", &url]).finish();
    assert!(too_many.code == 1 && too_many.stderr.contains("2 of 3 may load"), "{too_many:?}");
    let unreachable = nats.load(&["--agents", "2", "-d", "1s", "http://127.0.0.1:1/"]).finish();
    assert!(unreachable.code == 1 && unreachable.stderr.contains(": cannot connect to"), "{unreachable:?}");

    // Ctrl-C ends the load everywhere, and the rest is a result.
    let stopped = nats.load(&["--agents", "2", "-R", "200", "-d", "1m", &url]);
    wait_for_load(&origin);
    stopped.process.signal(Signal::INT);
    let stopped = stopped.finish();
    assert!(stopped.record["partial"] == true && stopped.total("responses") > 0, "{stopped:?}");
    assert!(stopped.reasons().contains(&"partial"));

    // A killed agent is in the verdict; its child process ends with it.
    let killed = nats.load(&["--agents", "2", "-R", "200", "-d", "7s", "--wait", "0", &url]);
    wait_for_load(&origin);
    agents[0].process.signal(Signal::KILL);
    let killed = killed.finish();
    assert_eq!(killed.code, 4, "{killed:?}");
    assert!(killed.reasons().contains(&"agent_lost"), "{killed:?}");
    assert_eq!(agent_rows(&killed)[0]["outcome"], "lost");
    assert!(killed.total("responses") > 500 && killed.total("responses") < 1_000, "{killed:?}");

    // SIGTERM ends an idle agent in order.
    agents[1].process.signal(Signal::TERM);
    assert_eq!(agents.remove(1).finish().code, 0);
}

#[test]
fn a_server_that_stops_and_restarts_in_the_middle_changes_no_result() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let mut nats = Nats::start(program, "");
    let origin = OriginProcess::start(&["-t", "1"]);
    let _agents = [nats.agent("a", &[]), nats.agent("b", &[])];
    assert!(within(EVENT_TIMEOUT, || nats.agents().len() == 2));
    let before = origin.stats()["requests"].as_u64().unwrap();
    let run = nats.load(&["--agents", "2", "-R", "100", "-n", "500", &origin.url("/")]);
    wait_for_load(&origin);
    nats.signal(Signal::STOP);
    assert!(within(EVENT_TIMEOUT, origin.has_served_more(50)), "the load goes on without a server");
    nats.signal(Signal::CONT);
    nats.restart(|| assert!(within(EVENT_TIMEOUT, origin.has_served_more(50))));
    let run = run.finish();
    run.assert_sums();
    assert!(agent_rows(&run).iter().all(|row| row["outcome"] == "complete"), "{run:?}");
    assert_eq!((run.total("responses"), run.errors()), (500, 0), "{run:?}");
    let served = origin.stats()["requests"].as_u64().unwrap() - before;
    assert!(served >= 500, "{served}");
    let stored = || {
        nats.agents().iter().map(|agent| agent["status"]["stored"].as_array().unwrap().len()).sum::<usize>()
    };
    assert_eq!(stored(), 0, "every record was acknowledged");
}

/// Sends lines of the protocol of NATS, and returns the errors of the server.
fn nats_errors(url: &str, user: &str, lines: &[&str]) -> Vec<String> {
    use std::io::{BufRead, BufReader, Write};
    let stream = std::net::TcpStream::connect(url.trim_start_matches("nats://")).unwrap();
    stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    let connect = format!("CONNECT {{\"user\":\"{user}\",\"pass\":\"secret\",\"verbose\":false}}\r\n");
    let text = format!("{connect}{}\r\nPING\r\n", lines.join("\r\n"));
    (&stream).write_all(text.as_bytes()).unwrap();
    let answers = BufReader::new(stream).lines().map_while(Result::ok);
    let answers = answers.take_while(|line| line != "PONG");
    answers.filter(|line| line.starts_with("-ERR")).collect()
}

#[test]
fn an_agent_with_the_documented_permissions_commands_no_other_agent() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleet.md")).unwrap();
    let block =
        text.split("<!-- nats-config: begin -->").nth(1).unwrap().split("<!-- nats-config: end -->").next();
    let config: String =
        block.unwrap().lines().filter(|line| !line.starts_with("```")).collect::<Vec<_>>().join("\n");
    // The example pair of the NATS documentation.
    let public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let config = config.replace("nkey: $A", "user: a, password: secret").replace("$C", public);
    let nats = Nats::start(program, &config);
    let directory = temp_dir();
    let seed = directory.path().join("coordinator.nk");
    fs::write(&seed, "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n").unwrap();
    let seed = seed.to_str().unwrap();
    let with_password = nats.url.replace("nats://", "nats://a:secret@");
    let _agent = start(WEIR, &["fleet", "agent", "--nats", &with_password, "--name", "a"]);
    let _impostor = start(WEIR, &["fleet", "agent", "--nats", &with_password, "--name", "b"]);

    let listed = || {
        let list = run_weir(&["fleet", "ls", "--nats", &nats.url, "--nkey", seed, "--json", "-"]);
        let list: Value = serde_json::from_str(&list.stdout).unwrap_or_default();
        let agents = list["agents"].as_array().cloned().unwrap_or_default();
        agents.iter().map(|agent| agent["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(within(EVENT_TIMEOUT, || listed() == ["a"]), "{:?}", listed());
    let origin = OriginProcess::start(&["-t", "1"]);
    let run = nats.load(&["--nkey", seed, "-n", "100", "-c", "4", &origin.url("/")]).finish();
    assert_eq!(run.total("responses"), 100, "{run:?}");

    // With the credentials of an agent: its own subjects, and no others.
    let allowed = ["SUB weir.fleet.command.a 1", "SUB weir.fleet.command 2", "PUB weir.fleet.report.a 0\r\n"];
    assert!(nats_errors(&nats.url, "a", &allowed).is_empty());
    for refused in [
        "SUB weir.fleet.command.b 1",
        "SUB weir.fleet.> 1",
        "SUB weir.fleet.record.b.> 1",
        "PUB weir.fleet.command.b 0\r\n",
        "PUB weir.fleet.command.a 0\r\n",
        "PUB weir.fleet.command 0\r\n",
        "PUB weir.fleet.report.b 0\r\n",
        "PUB weir.fleet.record.b.r.0 0\r\n",
    ] {
        let errors = nats_errors(&nats.url, "a", &[refused]);
        assert!(errors.iter().any(|error| error.contains("Permissions Violation")), "{refused}: {errors:?}");
    }
    let anonymous = run_weir(&["fleet", "ls", "--nats", &nats.url]);
    assert!(anonymous.code == 1 && anonymous.stderr.contains("authorization"), "{anonymous:?}");
}

#[test]
fn the_examples_of_a_fleet_work() {
    let _shared = shared_machine();
    if nats_program().is_none() {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    // The program is found on the path of a user.
    let go = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join("go/bin");
    let path = format!("{}:{}", std::env::var("PATH").unwrap(), go.display());
    let mut serve = command(WEIR, directory.path());
    serve.args(["fleet", "serve", "--embedded", "--agents", "2", "--port", "0"]).env("PATH", path);
    let mut serve = Process::spawn(serve.stdout(Stdio::piped()).stderr(Stdio::null()));
    let line = serve.first_line();
    let url =
        line.split_whitespace().find(|word| word.starts_with("nats://")).unwrap_or_else(|| panic!("{line}"));
    // Only the user of the server has its token; a command of the same user finds it.
    let (_, port) = url.rsplit_once(':').unwrap();
    let data = directory.path().join("weir/fleet/nats");
    let token = data.join(format!("{port}.token"));
    for secret in [&token, &data.join(format!("{port}.conf"))] {
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(secret).unwrap());
        assert_eq!(mode & 0o7777, 0o600, "{}", secret.display());
    }
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", nats_pid(&line))).unwrap();
    assert!(!arguments.contains(fs::read_to_string(&token).unwrap().trim()), "{arguments}");
    let stranger = start(WEIR, &["fleet", "ls", "--nats", url]).finish();
    assert!(stranger.code == 1 && stranger.stderr.contains("authorization violation"), "{stranger:?}");
    let mut same_user = command(WEIR, directory.path());
    let same_user = same_user.args(["fleet", "ls", "--nats", url]).output().unwrap();
    assert_eq!(same_user.status.code(), Some(0), "{same_user:?}");
    for example in crate::examples::examples().iter().filter(|line| line.starts_with("weir fleet")) {
        // `run` needs a plan, `role` an agent, and `runs` a stored run: other tests have them.
        if [" serve ", " agent ", " run ", " role ", " runs"].iter().any(|command| example.contains(command))
        {
            continue;
        }
        let line = example.replace("127.0.0.1:8000", &origin.authority).replace("zone=eu", "2");
        let words = line.split_whitespace().skip(1).filter(|word| !word.starts_with("nats:"));
        let mut words: Vec<&str> = words.map(|word| word.trim_matches('\'')).collect();
        words.retain(|word| *word != "--nats");
        let is_record = |word: &&mut &str| ["fleet.json", "edge.json"].contains(*word);
        words.iter_mut().filter(is_record).for_each(|word| *word = "RECORD");
        if ["ls", "load", "edge"].contains(&words[1]) {
            words.splice(2..2, ["--nats", url, "--nats-token", token.to_str().unwrap()]);
        }
        let output = start(WEIR, &words).finish();
        assert!([0, 4].contains(&output.code), "{line}: {output:?}");
    }
    serve.signal(Signal::TERM);
    assert_eq!(serve.wait(EVENT_TIMEOUT), 0);
    assert!(!token.exists());
}

/// Returns the process in the first line of `weir fleet serve`.
fn nats_pid(line: &str) -> &str {
    line.split_once("(process ").and_then(|(_, rest)| rest.split_once(';')).unwrap().0
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn programs_run_on_their_machines_and_are_observed_there() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let machines = Nats::start(program, "").machines();
    let text = machines.plan(&["-d", "1s"]);
    let kept = machines.directory.path().join("kept");
    let output = machines.run(&text, &["--output", kept.to_str().unwrap()]).finish();
    output.assert_sums();
    assert!(output.total("responses") > 0 && output.errors() == 0, "{output:?}");
    let observed = output.record["observed"].as_array().unwrap();
    for (machine, role) in [("client", "generator"), ("proxy", "subject"), ("store", "origin")] {
        let roles_of = |observation: &Value| {
            observation["roles"].as_array().unwrap().iter().any(|observed_role| observed_role["name"] == role)
        };
        let found = observed.iter().find(|observation| observation["host"] == machine);
        assert!(
            found.is_some_and(|observation| roles_of(observation) && observation["samples"][0].is_object()),
            "{machine}: {observed:?}"
        );
    }
    assert!(output.record["diagnosis"]["verdict"].is_string());
    // The files have what the command has.
    let run = kept.join(output.record["fleet"]["run"].as_str().unwrap());
    let merged: Value = serde_json::from_slice(&fs::read(run.join("merged.json")).unwrap()).unwrap();
    assert_eq!(
        (&merged["observed"], &merged["diagnosis"]),
        (&output.record["observed"], &output.record["diagnosis"])
    );
    assert!(run.join("agents/client.json").is_file());
    // The programs have ended with the run, and each agent starts only what it allows.
    assert!(machines.have_ended());
    let without_agent = machines.run(&text.replace("name=back", "zone=y"), &[]).finish();
    assert!(without_agent.code == 1 && without_agent.stderr.contains("plan.toml:4:10"), "{without_agent:?}");
    let refused = text.replace("\"-t\", \"1\"]\n[load]", "\"--access-log=/tmp/x\"]\n[load]");
    let refused = machines.run(&refused, &[]).finish();
    assert!(refused.code == 2 && refused.stderr.contains("--access-log"), "{refused:?}");
    let other_server = text.replace("[\"-c\"", "[\"--nats\", \"nats://127.0.0.1:1\", \"-c\"");
    let other_server = machines.run(&other_server, &[]).finish();
    assert!(other_server.code == 2 && other_server.stderr.contains("--nats"), "{other_server:?}");
}
