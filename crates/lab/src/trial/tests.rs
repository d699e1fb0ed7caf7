//! Trials that are really run, by the drivers that this machine has, against nginx; and command lines.

use std::path::Path;

use super::*;
use crate::scenario::plan::{Network, Scenario};
use crate::scenario::setup::Program;

const NGINX: &str = "
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server {
    listen {subject}:{port} backlog=1024;
    location / { return 200 \"0123456789\"; }
    location /missing { return 404; }
  }
}
";

fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let there = folders.into_iter().any(|folder| Path::new(folder).join(name).is_file());
    if !there {
        println!("skipped: {name} is not installed");
    }
    there
}

fn setup(tool: Tool, load: &str) -> Setup {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    Setup {
        scenario: Scenario { network: Network::Loopback, ..Scenario::default() },
        subject: Program {
            command: words("nginx -c {dir}/nginx.conf -e {dir}/early.log"),
            ready: "{subject}:{port}".to_owned(),
            env: BTreeMap::from([("A_FOLDER".to_owned(), "{dir}".to_owned())]),
            ..Program::default()
        },
        tool,
        load: words(load),
        files: BTreeMap::from([("nginx.conf".to_owned(), NGINX.to_owned())]),
        ..Setup::default()
    }
}

fn trial(setup: &Setup) -> Result<Done, TrialError> {
    let folder = tempfile::tempdir().unwrap();
    let journals = folder.path().to_owned();
    let context = Context { journals, allow_global: false, clock };
    run(
        setup,
        Tools {
            weir: Path::new("/no/such/weir"),
            build: &Weir { version: "0".to_owned(), commit: "c".to_owned() },
            context: &context,
            wall_ns: record::file::wall_clock_ns,
            duration_ns: 2_000_000_000,
            show: false,
            stop: &|| false,
        },
    )
}

/// A delay that is this machine's: wrk calls answers that take 2 s errors.
const STALL_NS: f64 = 5e8;

/// Whether a trial's own record shows that this machine stood still meanwhile.
fn was_held_up(trial: &Trial) -> bool {
    let samples = trial.observed.iter().flat_map(|observed| &observed.samples);
    let lags = samples.flat_map(|sample| &sample.canaries).map(|one| one.lag_max_ns as f64);
    lags.chain(trial.metrics.get("max_ns").copied()).any(|ns| ns >= STALL_NS)
}

/// A trial, and how many seconds it took at most; made again while this machine holds it up.
fn undisturbed(setup: &Setup) -> (Done, f64) {
    let timed = || {
        let began_ns = clock();
        let done = trial(setup).unwrap();
        (done, (clock() - began_ns) as f64 / 1e9)
    };
    let mut last = timed();
    for _ in 1..5 {
        if !was_held_up(&last.0.trial) {
            break;
        }
        println!("held up: {:?}", last.0.trial.metrics);
        last = timed();
    }
    last
}

#[test]
fn other_programs_drive_a_load() {
    let loads = [
        (Tool::Wrk, "-t 1 -c 4 -d {duration} http://{subject}:{port}/"),
        (Tool::Ab, "-k -c 4 -t {duration} http://{subject}:{port}/"),
        (Tool::H2load, "--h1 -c 4 -D {duration} http://{subject}:{port}/"),
        (Tool::H1load, "-c 4 -d {duration} http://{subject}:{port}/"),
        (Tool::Oha, "--no-tui -c 4 -z {duration} http://{subject}:{port}/"),
    ];
    for (tool, load) in loads {
        let row = driver::row(tool);
        if !is_installed("nginx") || !is_installed(row.program) {
            continue;
        }
        let mut setup = setup(tool, load);
        setup.profile = tool == Tool::Wrk;
        setup.calls = (tool == Tool::Ab).then(|| "epoll_wait".to_owned());
        let (done, took_s) = undisturbed(&setup);
        let trial = &done.trial;
        println!("{:#?}\n{:?} {:?}", trial.metrics, trial.covariates, trial.steady);
        println!("{:?}\n{:?}\n{:?}", trial.commands, trial.driver, trial.not_observable);
        println!("{:?}", trial.calls);
        assert_eq!((done.exit, &done.left), (0, &Vec::new()));
        let value = |name: &str| trial.metrics.get(name).copied().unwrap_or_default();
        assert!(value("responses_per_s") > 100.0 && value("subject_us_per_response") > 0.1);
        assert!(value("mean_ns") > 1e3);
        // A percentile is told where enough responses were counted for it.
        let reading = (row.parse)(trial.driver.output.as_ref().unwrap()).unwrap();
        let printed = reading.values.get("p99_ns");
        // Newer versions of h2load print some.
        assert!(printed.is_some() || tool == Tool::H2load);
        let p99_ns = trial.metrics.get("p99_ns");
        assert_eq!(p99_ns, printed.filter(|_| reading.responses >= 1e4));
        assert!(p99_ns.is_none_or(|ns| *ns > 1e3));
        assert_eq!(value("error_share"), 0.0);
        assert!((1.8..=took_s).contains(&trial.duration_s), "{} {took_s}", trial.duration_s);
        // What it used before it ended is not lost with it.
        assert!(value("generator_cpus") > value("generator_cpu_max_share") * 0.7);
        assert!(trial.commands["subject"].starts_with("A_FOLDER=/var/tmp/"));
        assert!(trial.commands["driver"].starts_with(row.program));
        let is_told = !trial.driver.version.contains("not told");
        assert!(is_told || tool == Tool::H1load, "{:?}", trial.driver);
        assert!(trial.covariates.steal_share.is_some() && trial.observed.is_some());
        assert!(trial.steady.text.starts_with("not told: "), "two seconds are too few");
        let diagnosis = trial.diagnosis.as_ref().unwrap();
        assert!(
            !diagnosis.verdict.is_empty() && !diagnosis.next_limits.is_empty(),
            "{diagnosis:?}"
        );
        let run = record_of(trial).unwrap();
        let all = trial.observed.iter().flat_map(|observed| &observed.not_observable);
        let all = all.chain(&trial.not_observable).map(|one| one.what.as_str());
        let missing = |what: &str| all.clone().any(|one| one.contains(what));
        assert!(
            (1..=4).contains(&run.totals.connections.obtained) || missing("sock_diag"),
            "{:?}",
            run.totals
        );
        assert!(!setup.profile || done.folded.is_some() || missing("functions"));
        assert!(setup.calls.is_none() || trial.calls.is_some() || missing("calls"));
    }
}

#[test]
fn a_driver_that_fails_is_told_with_what_it_said() {
    if !is_installed("nginx") || !is_installed("wrk") {
        return;
    }
    let wrong = trial(&setup(Tool::Wrk, "--no-such-flag http://{subject}:{port}/"));
    let why = wrong.unwrap_err();
    assert!(matches!(&why, TrialError::Load(why) if why.contains("no-such-flag")), "{why}");
}

/// Listens where its arguments say, after a while, and answers each request with the status that they say.
const SLOW: &str = "
import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
print('starting up', flush=True)
while True:
    stream, _ = listener.accept()
    if stream.recv(4096):
        status = sys.argv[3].encode()
        stream.sendall(b'HTTP/1.1 ' + status + b' x\\r\\nContent-Length: 0\\r\\n\\r\\n')
    stream.close()
";

/// A trial of it, or of the program's own command; `program` says when it is ready.
fn slow(program: Program, within_ms: u64) -> Result<Done, TrialError> {
    let words = ["sh", "-c", "sleep 0.3; exec python3 -c \"$0\" {subject} {port} 503", SLOW];
    let mut setup = setup(Tool::Wrk, "-t 1 -c 1 -d {duration} http://{subject}:{port}/");
    let command = match program.command.is_empty() {
        true => words.map(str::to_owned).to_vec(),
        false => program.command.clone(),
    };
    setup.subject = Program {
        command,
        ready: "{subject}:{port}".to_owned(),
        ready_within_ns: Some(within_ms * 1_000_000),
        ..program
    };
    trial(&setup)
}

#[test]
fn a_program_is_waited_for_as_its_file_says() {
    if !is_installed("python3") {
        return;
    }
    let wrong = |program, within_ms| slow(program, within_ms).unwrap_err().to_string();
    let command = |line: &str| Program {
        ready_command: ["sh", "-c", line].map(str::to_owned).to_vec(),
        ..Program::default()
    };
    let silent = ["sh", "-c", "exec sleep 60"].map(str::to_owned).to_vec();
    let late = wrong(Program { command: silent, ..Program::default() }, 50);
    assert!(late.contains("'sh' is not ready within 50.0ms: it does not listen on 127."), "{late}");
    let unwell = Program { ready_path: "/health".to_owned(), ..Program::default() };
    let failing = command("echo not yet {port}; exit 4");
    // Long enough for a busy machine to start them, and all at once.
    let never = [unwell, failing, command("sleep 60")];
    let told = std::thread::scope(|scope| {
        let trials = never.map(|program| scope.spawn(|| wrong(program, 10_000)));
        trials.map(|trial| trial.join().unwrap())
    });
    let parts = [
        &["is not ready within 10.0s", "answers /health with 503", "starting up"][..],
        &["exit status: 4 (not yet "],
        &["`sh -c 'sleep 60'` does not end"],
    ];
    for (said, parts) in told.iter().zip(parts) {
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!said.contains("{port}"), "{said}");
    }
    if is_installed("wrk") {
        let third = command("echo once more >> tries; test $(wc -l < tries) -gt 2");
        assert_eq!(slow(third, 20_000).unwrap().exit, 0);
    }
}

#[test]
fn doubled_braces_and_variables_are_no_placeholders_of_a_trial() {
    let mut setup = setup(Tool::Wrk, "-d {duration} http://{subject}:{port}/");
    let line = "dir=/data; port=7; echo \"<${dir}> <${port}> <{{port}}>\" $(cat words); exit 1";
    setup.subject.command = ["sh", "-c", line].map(str::to_owned).to_vec();
    setup.files = BTreeMap::from([("words".to_owned(), "${origin} {{dir}} {client}".to_owned())]);
    let why = trial(&setup).unwrap_err().to_string();
    assert!(why.contains("</data> <7> <{port}> ${origin} {dir} 127.0.0.1"), "{why}");
}

#[test]
fn a_program_without_the_library_of_its_arm_does_not_run() {
    if !is_installed("nginx") {
        return;
    }
    let mut setup = setup(Tool::Wrk, "-d {duration} http://{subject}:{port}/");
    setup.subject.env.insert("LD_PRELOAD".to_owned(), "libno-such.so.1".to_owned());
    let why = trial(&setup).unwrap_err().to_string();
    assert!(why.contains("libno-such.so.1") && why.contains("cannot be preloaded"), "{why}");
}

#[test]
fn a_command_line_can_be_typed_again() {
    let words = ["nginx", "-g", "daemon off;", "it's", ""].map(str::to_owned);
    let env = BTreeMap::from([("LD_PRELOAD".to_owned(), "/usr/lib/a.so".to_owned())]);
    let line = line_of(&env, &words);
    assert_eq!(line, r"LD_PRELOAD=/usr/lib/a.so nginx -g 'daemon off;' 'it'\''s' ''");
}
