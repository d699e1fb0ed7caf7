//! Tests that run real trials against nginx, with the drivers installed on this machine; and tests
//! of command lines.

use std::collections::BTreeMap;
use std::path::Path;

use record::run::WeirVersion;

use super::*;
use crate::scenario::plan::{Network, Scenario};
use crate::scenario::program::ProgramSetup;
use crate::scenario::setup::LoadTool;
use crate::scenario::system_commands::shell_command_line;
use crate::scenario::testbed::TestbedContext;

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
    let directories = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let there = directories.into_iter().any(|directory| Path::new(directory).join(name).is_file());
    if !there {
        test_needs::skip(name, "it is not installed");
    }
    there
}

fn setup(tool: LoadTool, load: &str) -> LabSetup {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    LabSetup {
        scenario: Scenario { network: Network::Loopback, ..Scenario::default() },
        subject: ProgramSetup {
            command: words("nginx -c {dir}/nginx.conf -e {dir}/early.log"),
            ready: "{subject}:{port}".to_owned(),
            env: BTreeMap::from([("A_FOLDER".to_owned(), "{dir}".to_owned())]),
            ..ProgramSetup::default()
        },
        tool,
        load: words(load),
        files: BTreeMap::from([("nginx.conf".to_owned(), NGINX.to_owned())]),
        ..LabSetup::default()
    }
}

fn run_trial(setup: &LabSetup) -> Result<TrialResult, TrialError> {
    let directory = tempfile::tempdir().unwrap();
    let journals = directory.path().to_owned();
    let context = TestbedContext { journals, allow_global: false, clock };
    run(
        setup,
        TrialTools {
            load_prefix: &[],
            weir: Path::new("/no/such/weir"),
            build: &WeirVersion { version: "0".to_owned(), commit: "c".to_owned() },
            context: &context,
            wall_ns: record::file::wall_clock_ns,
            duration_ns: 2_000_000_000,
            shows_output: false,
            should_stop: &|| false,
            fleet: None,
        },
    )
}

/// Delay that this machine must have caused: wrk counts responses that take 2 s as errors.
const STALL_NS: f64 = 5e8;

/// Returns whether a trial's own record shows that this machine stalled meanwhile.
fn was_stalled(trial: &ExperimentTrial) -> bool {
    let samples = trial.observed.iter().flat_map(|observed| &observed.samples);
    let lags = samples.flat_map(|sample| &sample.wakeup_lags).map(|lag| lag.lag_max_ns as f64);
    lags.chain(trial.metrics.get("max_ns").copied()).any(|ns| ns >= STALL_NS)
}

/// Runs a trial, and returns it with an upper bound of its duration in seconds. Repeats it while
/// this machine stalls.
fn run_undisturbed(setup: &LabSetup) -> (TrialResult, f64) {
    let timed = || {
        let began_ns = clock();
        let done = run_trial(setup).unwrap();
        (done, (clock() - began_ns) as f64 / 1e9)
    };
    let mut last = timed();
    for _ in 1..5 {
        if !was_stalled(&last.0.trial) {
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
        (LoadTool::Wrk, "-t 1 -c 4 -d {duration} http://{subject}:{port}/"),
        (LoadTool::Ab, "-k -c 4 -t {duration} http://{subject}:{port}/"),
        (LoadTool::H2load, "--h1 -c 4 -D {duration} http://{subject}:{port}/"),
        (LoadTool::H1load, "-c 4 -d {duration} http://{subject}:{port}/"),
        (LoadTool::Oha, "--no-tui -c 4 -z {duration} http://{subject}:{port}/"),
    ];
    for (tool, load) in loads {
        let driver = driver::driver_spec(tool);
        if !is_installed("nginx") || !is_installed(driver.program) {
            continue;
        }
        let mut setup = setup(tool, load);
        setup.profile = tool == LoadTool::Wrk;
        setup.calls = (tool == LoadTool::Ab).then(|| "epoll_wait".to_owned());
        let (done, took_s) = run_undisturbed(&setup);
        let trial = &done.trial;
        println!("{:#?}\n{:?} {:?}", trial.metrics, trial.covariates, trial.steady);
        println!("{:?}\n{:?}\n{:?}", trial.commands, trial.driver, trial.not_observable);
        println!("{:?}", trial.calls);
        assert_eq!((done.exit_code, &done.leftovers), (0, &Vec::new()));
        let value = |name: &str| trial.metrics.get(name).copied().unwrap_or_default();
        assert!(value("responses_per_s") > 100.0 && value("subject_us_per_response") > 0.1);
        assert!(value("mean_ns") > 1e3);
        // A percentile exists only if enough responses were counted for it.
        let reading = (driver.parse)(trial.driver.output.as_ref().unwrap()).unwrap();
        let printed = reading.values.get("p99_ns");
        // Newer versions of h2load print some percentiles.
        assert!(printed.is_some() || tool == LoadTool::H2load);
        let p99_ns = trial.metrics.get("p99_ns");
        assert_eq!(p99_ns, printed.filter(|_| reading.responses >= 1e4));
        assert!(p99_ns.is_none_or(|ns| *ns > 1e3));
        assert_eq!(value("error_fraction"), 0.0);
        assert!((1.8..=took_s).contains(&trial.duration_s), "{} {took_s}", trial.duration_s);
        // The driver's resource use is kept after its end.
        assert!(value("generator_cpus") > value("generator_cpu_max_fraction") * 0.7);
        assert!(trial.commands["subject"].starts_with("A_FOLDER=/var/tmp/"));
        // Root starts it by its checked path.
        let started = trial.commands["driver"].split(' ').next().unwrap_or_default();
        assert!(Path::new(started).ends_with(driver.program), "{started}");
        let is_told = !trial.driver.version.contains("unknown");
        assert!(is_told || tool == LoadTool::H1load, "{:?}", trial.driver);
        assert!(trial.covariates.steal_fraction.is_some() && trial.observed.is_some());
        assert!(trial.steady.text.starts_with("undecided: "), "two seconds are too few");
        let diagnosis = trial.diagnosis.as_ref().unwrap();
        assert!(!diagnosis.verdict.is_empty() && !diagnosis.next_limits.is_empty(), "{diagnosis:?}");
        let run = load_record(trial).unwrap();
        let all = trial.observed.iter().flat_map(|observed| &observed.not_observable);
        let all = all.chain(&trial.not_observable).map(|metric| metric.figure.as_str());
        let missing = |text: &str| all.clone().any(|figure| figure.contains(text));
        assert!(
            (1..=4).contains(&run.totals.connections.max_open) || missing("sock_diag"),
            "{:?}",
            run.totals
        );
        assert!(!setup.profile || done.folded.is_some() || missing("functions"));
        assert!(setup.calls.is_none() || trial.calls.is_some() || missing("calls"));
    }
}

#[test]
fn a_failing_driver_is_reported_with_its_output() {
    if !is_installed("nginx") || !is_installed("wrk") {
        return;
    }
    let wrong = run_trial(&setup(LoadTool::Wrk, "--no-such-flag http://{subject}:{port}/"));
    let reason = wrong.unwrap_err();
    assert!(matches!(&reason, TrialError::Load(why) if why.contains("no-such-flag")), "{reason}");
}

/// Server that starts to listen at the address in its arguments after a while. It responds to each
/// request with the status in its arguments.
const SLOW_SERVER: &str = "
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

/// Runs a trial of this server, or of the program's own command; `program` has the readiness
/// conditions.
fn run_slow_server(program: ProgramSetup, within_ms: u64) -> Result<TrialResult, TrialError> {
    let words = ["sh", "-c", "sleep 0.3; exec python3 -c \"$0\" {subject} {port} 503", SLOW_SERVER];
    let mut setup = setup(LoadTool::Wrk, "-t 1 -c 1 -d {duration} http://{subject}:{port}/");
    let command = match program.command.is_empty() {
        true => words.map(str::to_owned).to_vec(),
        false => program.command.clone(),
    };
    setup.subject = ProgramSetup {
        command,
        ready: "{subject}:{port}".to_owned(),
        ready_timeout_ns: Some(within_ms * 1_000_000),
        ..program
    };
    run_trial(&setup)
}

#[test]
fn a_program_is_ready_when_its_conditions_hold() {
    if !is_installed("python3") {
        return;
    }
    // Another process may take the port before the program does.
    let wrong = |program: ProgramSetup, within_ms| {
        let fails = || run_slow_server(program.clone(), within_ms).unwrap_err().to_string();
        let is_own = |text: &String| !text.contains("another process already listens");
        std::iter::repeat_with(fails).take(5).find(is_own).unwrap()
    };
    let command = |line: &str| ProgramSetup {
        ready_command: ["sh", "-c", line].map(str::to_owned).to_vec(),
        ..ProgramSetup::default()
    };
    let silent = ["sh", "-c", "exec sleep 60"].map(str::to_owned).to_vec();
    let late = wrong(ProgramSetup { command: silent, ..ProgramSetup::default() }, 50);
    assert!(["'sh'", "50.0 ms", " 127."].iter().all(|part| late.contains(part)), "{late}");
    let unwell = ProgramSetup { ready_path: "/health".to_owned(), ..ProgramSetup::default() };
    let failing = command("echo not yet {port}; exit 4");
    // The timeout is long enough for a busy machine, and all run at once.
    let never = [unwell, failing, command("sleep 60")];
    let results = std::thread::scope(|scope| {
        let trials = never.map(|program| scope.spawn(|| wrong(program, 10_000)));
        trials.map(|trial| trial.join().unwrap())
    });
    let parts = [
        &["10.0 s", "/health", "503", "starting up"][..],
        &["exit status: 4 (not yet "],
        &["`sh -c 'sleep 60'`"],
    ];
    for (message, parts) in results.iter().zip(parts) {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(!message.contains("{port}"), "{message}");
    }
    if is_installed("wrk") {
        let third = command("echo once more >> tries; test $(wc -l < tries) -gt 2");
        assert_eq!(run_slow_server(third, 20_000).unwrap().exit_code, 0);
    }
}

#[test]
fn doubled_braces_and_variables_are_no_placeholders_of_a_trial() {
    let mut setup = setup(LoadTool::Wrk, "-d {duration} http://{subject}:{port}/");
    let line = "dir=/data; port=7; echo \"<${dir}> <${port}> <{{port}}>\" $(cat words); exit 1";
    setup.subject.command = ["sh", "-c", line].map(str::to_owned).to_vec();
    setup.files = BTreeMap::from([("words".to_owned(), "${origin} {{dir}} {client}".to_owned())]);
    let reason = run_trial(&setup).unwrap_err().to_string();
    assert!(reason.contains("</data> <7> <{port}> ${origin} {dir} 127.0.0.1"), "{reason}");
}

#[test]
fn a_program_without_the_library_of_its_arm_does_not_run() {
    if !is_installed("nginx") {
        return;
    }
    let mut setup = setup(LoadTool::Wrk, "-d {duration} http://{subject}:{port}/");
    setup.subject.env.insert("LD_PRELOAD".to_owned(), "libno-such.so.1".to_owned());
    let reason = run_trial(&setup).unwrap_err().to_string();
    assert!(reason.contains("libno-such.so.1") && reason.contains("cannot be preloaded"), "{reason}");
}

#[test]
fn a_command_line_can_be_pasted_into_a_shell() {
    let words = ["nginx", "-g", "daemon off;", "it's", ""].map(str::to_owned);
    let env = BTreeMap::from([("LD_PRELOAD".to_owned(), "/usr/lib/a.so".to_owned())]);
    let line = shell_command_line(&env, &words);
    assert_eq!(line, r"LD_PRELOAD=/usr/lib/a.so nginx -g 'daemon off;' 'it'\''s' ''");
}
