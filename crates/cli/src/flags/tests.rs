//! Tests of every row of the flag tables: its valid values are accepted, and its invalid ones are
//! rejected with a problem that names the flag.

use ::load::plan::{LoadFlags, RunPlan};

use super::*;

fn typed(command: &str, arguments: &[&str]) -> ArgMatches {
    let words = command.split(' ');
    let line = ["weir"].into_iter().chain(words.clone()).chain(arguments.iter().copied());
    let matches = build_command_line().try_get_matches_from(line).unwrap();
    words.fold(matches, |matches, _| matches.subcommand().unwrap().1.clone())
}

/// Flags that only a load with TLS has.
const TLS_FLAGS: &[&str] = &[
    "--cacert",
    "--insecure",
    "--cert",
    "--key",
    "--tls-min",
    "--tls-max",
    "--tls-resume",
    "--tls-new",
    "--tls-ciphers",
    "--tls-groups",
    "--tls-key-log",
];

/// Returns the locations of the problems of a command line.
fn problems(command: &str, arguments: &[&str]) -> Vec<String> {
    let matches = typed(command, arguments);
    let args = CommandArgs(&matches);
    let is_of_tls = |flag: &&str| TLS_FLAGS.contains(flag);
    let scheme = if arguments.iter().any(is_of_tls) { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:1/");
    let result = match command {
        "load" => {
            let text = LoadFlags { urls: vec![url], ..load_flags(args) };
            RunPlan::parse(&text, 4).and_then(|_| crate::commands::check_regressions(args))
        }
        "proxy" => proxy_config::config::from_flags(&proxy_flags(args)).map(|_| ()),
        "lab profile" => crate::commands::check_lab_profile(args),
        "lab run" | "lab compare" | "lab serve" => crate::commands::check_lab_experiment(command, args),
        "tune check" | "tune apply" | "tune trial" => crate::commands::check_tune(command, args),
        "plan" => crate::commands::check_plan(args),
        "watch" => crate::commands::check_watch(args),
        "fleet serve" | "fleet agent" | "fleet role" | "fleet runs" => {
            crate::commands::check_fleet(command, args)
        }
        "calibrate" => crate::commands::check_calibrate(args, url),
        "edge" => crate::commands::check_edge(args, url),
        _ => ::serve::plan::OriginPlan::parse(&serve_flags(args)).map(|_| ()),
    };
    result.err().unwrap_or_default().into_iter().map(|problem| problem.location).collect()
}

#[test]
fn every_flag_accepts_its_valid_and_rejects_its_invalid_values() {
    for row in [
        &serve::SERVE,
        &proxy::PROXY,
        &load::LOAD,
        &calibrate::CALIBRATE,
        &edge::EDGE,
        &lab_profile::PROFILE,
        &lab_experiment::RUN,
        &lab_experiment::COMPARE,
        &lab_experiment::SERVE,
        &plan::PLAN,
        &watch::WATCH,
        &fleet::SERVE,
        &fleet::AGENT,
        &fleet_run::ROLE,
        &tune::CHECK,
        &tune::APPLY,
        &tune::TRIAL,
    ] {
        for flag in row.flags {
            let long = format!("--{}", flag.long);
            // A flag that only an open loop has is tested in one.
            let rate: &[&str] = match (row.name, flag.long) {
                ("load", "arrivals" | "max-pending") => &["--rate", "10"],
                ("load", "proxy-source") => &["--proxy-protocol", "v2"],
                (
                    "calibrate",
                    "tls-min" | "tls-max" | "tls-resume" | "tls-new" | "tls-ciphers" | "tls-groups",
                ) => &["--tls"],
                ("serve", "access-log-format") => &["--access-log", "-"],
                (
                    "serve",
                    "index" | "header" | "cache-control" | "cors" | "basic-auth" | "compress"
                    | "compress-min" | "compress-memory" | "etag" | "file-cache" | "file-cache-valid",
                ) => &["."],
                ("serve", "tls-ciphers" | "tls-groups" | "tls-key-log") => &["--tls-self-signed"],
                (_, "streams" | "window" | "connection-window") => &["--http", "2"],
                // A proxy needs a destination for requests.
                ("proxy", "to") => &[],
                ("proxy", "log-format") => &["--to", "127.0.0.1:1", "--access-log", "-"],
                ("fleet role", _) => &["--", "serve"],
                ("plan", "rate") => &[],
                ("plan", _) => &["--rate", "10"],
                ("lab profile", "pid" | "port") => &[],
                ("lab profile", _) => &["--pid", "1"],
                ("proxy", _) => &["--to", "127.0.0.1:1"],
                _ => &[],
            };
            for value in flag.valid {
                // The examples name two CPUs; this process may have only one.
                if flag.long == "pin" && rt::cores::parse_cpus(value).is_err() {
                    assert_eq!(rt::cores::available_cpus().len(), 1, "{value}");
                    continue;
                }
                let line = [&[long.as_str(), value], rate].concat();
                assert_eq!(problems(row.name, &line), [""; 0], "{} {long} {value}", row.name);
            }
            for value in flag.invalid {
                let line = [&[long.as_str(), value], rate].concat();
                let problem_flags = problems(row.name, &line);
                assert!(problem_flags.contains(&long), "{} {long} '{value}': {problem_flags:?}", row.name);
            }
        }
    }
}

#[test]
fn flags_of_tls_are_rejected_where_nothing_uses_tls() {
    for (command, flag) in
        [("load", "--tls-min=1.2"), ("edge", "--tls-min=1.2"), ("calibrate", "--tls-max=1.2")]
    {
        let matches = typed(command, &[flag]);
        let (args, url) = (CommandArgs(&matches), "http://127.0.0.1:1/".to_owned());
        let problems = match command {
            "load" => {
                let text = LoadFlags { urls: vec![url], ..load_flags(args) };
                RunPlan::parse(&text, 4).unwrap_err()
            }
            "edge" => crate::commands::check_edge(args, url).unwrap_err(),
            _ => crate::commands::check_calibrate(args, url).unwrap_err(),
        };
        let locations: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
        assert_eq!(locations, [flag.split('=').next().unwrap()], "{command}");
    }
    let urls = ["--insecure", "--direct", "https://127.0.0.1:1/"];
    assert_eq!(problems("edge", &urls), [""; 0]);
    let matches = typed("edge", &urls);
    let direct = crate::commands::check_edge(CommandArgs(&matches), "http://127.0.0.1:1/".to_owned());
    assert_eq!(direct, Ok(()), "the flags may be those of --direct");
}

#[test]
fn defaults_in_the_help_are_those_of_the_values() {
    for problems in [
        CalibrateFlags::default_problems(),
        WatchFlags::default_problems(),
        TuneCheckFlags::default_problems(),
        ApplyFlags::default_problems(),
        CompareFlags::default_problems(),
    ] {
        assert_eq!(problems, [""; 0]);
    }
}

#[test]
fn every_command_to_a_proxy_has_an_example() {
    // A new process sends that command; it is rejected when a user types it.
    for name in proxy_control::ctl::command_names().filter(|&name| name != "upgrade") {
        let is_of = |line: &str| line.split(' ').any(|word| word == name);
        assert!(ctl::CTL.examples.iter().any(|(line, _)| is_of(line)), "{name}");
    }
}

#[test]
fn the_command_line_is_consistent() {
    build_command_line().debug_assert();
}

#[test]
fn every_flag_has_a_doc_and_every_command_an_example() {
    for row in COMMANDS {
        assert!(!row.examples.is_empty(), "{}", row.name);
        for flag in row.flags {
            assert!(!flag.doc.is_empty() && !flag.doc.ends_with('.'), "{}", flag.long);
        }
    }
}

#[test]
fn every_key_of_a_fault_is_a_flag_of_the_faulty_server() {
    use experiment::scenario::keys::SCENARIO;
    use record::document::table::ValueForm;

    let row = SCENARIO.iter().find(|key| key.name == "fault").unwrap();
    let ValueForm::Table(keys) = row.form else { panic!("it is a table") };
    let file_keys: Vec<&str> = keys.iter().map(|key| key.name).filter(|name| *name != "at").collect();
    // Files of the fault belong to the run.
    let flag_names = lab::FAULTY_SERVER.flags.iter().map(|flag| flag.long);
    let flag_names: Vec<&str> = flag_names.filter(|name| !["listen", "data"].contains(name)).collect();
    assert_eq!(file_keys, flag_names);

    let text = "[scenario.fault]\nthreads = 2\nburn = \"1.5us\"\nsyscalls = 3\nlock = \"4us\"\n\
                allocations = 5\ndata-bytes = \"6k\"\npages = 7\nlog-dsync = true\nlog-pipe = \"8k\"\n\
                split-write = true\nbacklog = 9\naccept-delay = \"10ms\"\ndelay = \"11ms\"\n\
                error-fraction = \"12%\"\ndrop-fraction = 0.13\nbody = 14\nclose-after-response = true\n\
                ignore-close = true\n[load]\nflags = \"u\"\n";
    let words = experiment::scenario::setup::LabSetup::parse("a", text).unwrap().subject.command;
    let words: Vec<&str> = words[5..].iter().map(|word| word.as_str()).collect();
    let args = typed("lab faulty-server", &words);
    let fault = crate::commands::check_lab_faulty_server(CommandArgs(&args)).unwrap();
    let expected = proving_ground::faulty_server::FaultConfig {
        listen: "127.0.0.1:8000".parse().unwrap(),
        threads: Some(2),
        burn_ns: 1_500,
        syscalls: 3,
        lock_ns: 4_000,
        allocations: 5,
        data: Some(("{dir}/data".into(), 6144)),
        pages: 7,
        log: Some("{dir}/access.log".into()),
        log_dsync: true,
        log_pipe_bytes_per_s: Some(8192),
        split_write: true,
        backlog: 9,
        accept_delay_ns: 10_000_000,
        delay_ns: 11_000_000,
        error_fraction: 0.12,
        drop_fraction: 0.13,
        body_bytes: 14,
        close_after_response: true,
        ignore_close: true,
    };
    assert_eq!(fault, expected);
}

#[test]
fn the_faulty_server_listens_on_a_name_too() {
    let parse = |address: &str| {
        let args = typed("lab faulty-server", &["--listen", address]);
        crate::commands::check_lab_faulty_server(CommandArgs(&args))
    };
    let listen = parse("localhost:8000").unwrap().listen;
    assert!(listen.ip().is_loopback() && listen.port() == 8000, "{listen}");
    for wrong in ["8000", "unix:/tmp/x"] {
        assert_eq!(parse(wrong).unwrap_err()[0].location, "--listen", "{wrong}");
    }
}

#[test]
fn flags_that_a_search_sets_are_rejected_and_levels_are_integers() {
    let connections = ["--find", "connections"];
    let new_connections = ["--find", "connections-per-second"];
    let problem_flags = |find: &[&str], more: &[&str]| problems("edge", &[find, more].concat());
    assert_eq!(problem_flags(&connections, &["-c", "8"]), ["--connections"]);
    assert_eq!(problem_flags(&new_connections, &["-r", "8"]), ["--requests-per-connection"]);
    assert_eq!(problem_flags(&connections, &["-r", "8"]), [""; 0]);
    assert_eq!(problem_flags(&new_connections, &["-c", "8"]), [""; 0]);
    assert_eq!(problem_flags(&connections, &["--from", "1.5", "--to", "3.7"]), ["--from", "--to"]);
}
