//! Every row of the flag tables: what it calls right is taken, what it calls wrong is refused with
//! a problem that names the flag.

use ::load::plan::Plan;

use super::*;

fn typed(command: &str, arguments: &[&str]) -> ArgMatches {
    let words = command.split(' ');
    let line = ["weir"].into_iter().chain(words.clone()).chain(arguments.iter().copied());
    let matches = program().try_get_matches_from(line).unwrap();
    words.fold(matches, |matches, _| matches.subcommand().unwrap().1.clone())
}

/// The places of the problems that a command line has.
fn problems(command: &str, arguments: &[&str]) -> Vec<String> {
    let matches = typed(command, arguments);
    let typed = Typed(&matches);
    let url = "http://127.0.0.1:1/".to_owned();
    let result = match command {
        "load" => load_text(typed).and_then(|mut text| {
            text.urls = vec![url];
            Plan::parse(&text, 4).map(|_| ())
        }),
        "proxy" => ::proxy::config::from_flags(&proxy_text(typed)).map(|_| ()),
        "lab profile" => crate::commands::check_lab_profile(typed),
        "lab run" | "lab compare" | "lab serve" => {
            crate::commands::check_lab_experiment(command, typed)
        }
        "watch" => crate::commands::check_watch(typed),
        "calibrate" => crate::commands::check_calibrate(typed, url),
        "edge" => crate::commands::check_edge(typed, url),
        _ => ::serve::plan::Plan::parse(&serve_text(typed)).map(|_| ()),
    };
    result.err().unwrap_or_default().into_iter().map(|problem| problem.place).collect()
}

#[test]
fn every_row_takes_what_is_right_and_refuses_what_is_wrong() {
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
        &watch::WATCH,
    ] {
        for flag in row.flags {
            let long = format!("--{}", flag.long);
            // A flag that only an open loop has is tried in one.
            let rate: &[&str] = match (row.name, flag.long) {
                ("load", "arrivals" | "line") => &["--rate", "10"],
                // A proxy has somewhere to carry requests to.
                ("proxy", "to") => &[],
                ("proxy", "log-format") => &["--to", "127.0.0.1:1", "--access-log", "-"],
                ("lab profile", "pid" | "port") => &[],
                ("lab profile", _) => &["--pid", "1"],
                ("proxy", _) => &["--to", "127.0.0.1:1"],
                _ => &[],
            };
            for value in flag.right {
                // The examples name two processors; this machine may have one for us.
                if flag.long == "pin" && rt::cores::parse_cpus(value).is_err() {
                    assert_eq!(rt::cores::available().len(), 1, "{value}");
                    continue;
                }
                let line = [&[long.as_str(), value], rate].concat();
                assert_eq!(problems(row.name, &line), [""; 0], "{} {long} {value}", row.name);
            }
            for value in flag.wrong {
                let line = [&[long.as_str(), value], rate].concat();
                let found = problems(row.name, &line);
                assert!(found.contains(&long), "{} {long} '{value}': {found:?}", row.name);
            }
        }
    }
}

#[test]
fn every_command_to_a_proxy_has_an_example() {
    // That one is said by a new process, and refused when somebody types it.
    for name in ::proxy::ctl::names().filter(|&name| name != "upgrade") {
        let is_of = |line: &str| line.split(' ').any(|word| word == name);
        assert!(ctl::CTL.examples.iter().any(|(line, _)| is_of(line)), "{name}");
    }
}

#[test]
fn the_command_line_is_consistent() {
    program().debug_assert();
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
fn every_key_of_an_illness_is_a_flag_of_the_sick_server() {
    use ::lab::scenario::keys::{Form, SCENARIO};

    let row = SCENARIO.iter().find(|key| key.name == "illness").unwrap();
    let Form::Table(keys) = row.form else { panic!("it is a table") };
    let of_file: Vec<&str> = keys.iter().map(|key| key.name).filter(|name| *name != "at").collect();
    // Files of it are the run's own.
    let of_flags = lab::SICK.flags.iter().map(|flag| flag.long);
    let of_flags: Vec<&str> = of_flags.filter(|name| !["listen", "data"].contains(name)).collect();
    assert_eq!(of_file, of_flags);

    let text = "[scenario.illness]\nthreads = 2\nburn = \"1.5us\"\nsyscalls = 3\nlock = \"4us\"\n\
        allocations = 5\ndata-bytes = \"6k\"\npages = 7\nlog-dsync = true\nlog-pipe = \"8k\"\n\
        split-write = true\nbacklog = 9\naccept-delay = \"10ms\"\ndelay = \"11ms\"\n\
        fail-share = \"12%\"\ndrop-share = 0.13\nbody = 14\nclose-each = true\n\
        ignore-close = true\n[load]\nflags = \"u\"\n";
    let words = ::lab::scenario::setup::Setup::parse("a", text).unwrap().subject.command;
    let words: Vec<&str> = words[5..].iter().map(|word| word.as_str()).collect();
    let typed = typed("lab sick", &words);
    let ill = crate::commands::check_lab_sick(Typed(&typed)).unwrap();
    let expected = ::lab::sick::Illness {
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
        fail_share: 0.12,
        drop_share: 0.13,
        body_bytes: 14,
        close_each: true,
        ignore_close: true,
    };
    assert_eq!(ill, expected);
}

#[test]
fn what_a_search_sets_itself_cannot_be_asked_for_and_levels_are_whole() {
    let connections = ["--find", "connections"];
    let each = ["--find", "connections-per-second"];
    let of = |find: &[&str], more: &[&str]| problems("edge", &[find, more].concat());
    assert_eq!(of(&connections, &["-c", "8"]), ["--connections"]);
    assert_eq!(of(&each, &["-r", "8"]), ["--requests-per-connection"]);
    assert_eq!(of(&connections, &["-r", "8"]), [""; 0]);
    assert_eq!(of(&each, &["-c", "8"]), [""; 0]);
    assert_eq!(of(&connections, &["--from", "1.5", "--to", "3.7"]), ["--from", "--to"]);
}
