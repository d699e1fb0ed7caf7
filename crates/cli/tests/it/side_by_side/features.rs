//! The examples of `docs/features.md` that have a counterpart in HAProxy or nginx: both get the same requests.

use std::fs;
use std::path::Path;

use crate::support::proxies::is_installed;
use crate::support::tls_peers::Certificates;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

use super::pairs::Steps;
use super::sides::{COPIED, Origins, Program, Side};
use super::steps;

/// A section of the page, with the requests to both programs.
struct Feature {
    title: &'static str,
    fields: &'static [&'static str],
    requests: &'static [(&'static str, &'static str)],
    /// Other steps, and their result.
    steps: Option<Steps>,
}

const EMPTY: Feature = Feature { title: "", fields: &[], requests: &[], steps: None };

const FEATURES: &[Feature] = &[
    Feature {
        title: "Values of a request in fields",
        fields: &["x-real-ip", "x-tenant", "x-served-by"],
        requests: &[("/", "200 a"), ("/ -H X-Tenant:~t1 -H X-Real-IP:~10.0.0.1", "200 a")],
        ..EMPTY
    },
    Feature {
        title: "Groups of a regular expression",
        requests: &[
            ("/u/ann/a/b?c=1", "308 https://ann.example.org/a/b?c=1"),
            ("/u/ann/", "308 https://ann.example.org/"),
            ("/u/ann", "200 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Combined and negated conditions",
        requests: &[
            ("/ -H Host:~a.example", "403"),
            ("/ -X POST -d x", "403"),
            ("/ -H Host:~b.example", "200 a"),
            ("/ -H Host:~A.example -X PUT -d x", "403"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Networks from a file",
        requests: &[("/", "200 a"), ("/ --interface 127.0.0.2", "403")],
        ..EMPTY
    },
    Feature {
        title: "Lists from files",
        requests: &[
            ("/ -H X-Key:~secret-1", "200 a"),
            ("/ -H X-Key:~secret-2", "401"),
            ("/ -H X-Key:~Secret-1", "401"),
            ("/", "401"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Values by a map",
        fields: &["x-tenant"],
        requests: &[
            ("/ -H Host:~a.example.org", "200 a"),
            ("/ -H Host:~www.A.example.org:8080", "200 a"),
            ("/ -H Host:~b.example.org", "200 a"),
            ("/ -H Host:~aa.example.org -H X-Tenant:~own", "200 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Error pages",
        fields: &["body"],
        requests: &[
            ("/shop/status/500", "500"),
            ("/shop/status/503", "503"),
            ("/shop/status/404", "404 a"),
            ("/shop/x", "200 a"),
            ("/other/status/500", "500 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Requests of other origins",
        fields: &["access-control-allow-origin", "access-control-allow-methods", "vary"],
        requests: &[
            (
                "/ -X OPTIONS -H Origin:~https://shop.example.org -H Access-Control-Request-Method:~POST",
                "204",
            ),
            (
                "/ -X OPTIONS -H Origin:~https://evil.example.com -H Access-Control-Request-Method:~POST",
                "200 a",
            ),
            ("/ -X OPTIONS -H Origin:~https://shop.example.org", "200 a"),
            ("/ -H Origin:~https://www.example.org", "200 a"),
            ("/ -H Origin:~https://www.example.org.evil.com", "200 a"),
            ("/", "200 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "A cache of responses",
        requests: &[
            ("/fixed", "200 a"),
            ("/fixed -r 0-2", "206 a"),
            ("/fixed -I", "200 a"),
            ("/status/404", "404 a"),
        ],
        steps: Some((
            |side| {
                let target = format!("/copied/cached-by-{:?}", side.program);
                let statuses = ["", " -r 0-2", ""]
                    .map(|flags| side.request(&format!("{target}{flags}"), &[])[0].clone());
                let requests = COPIED.lock().unwrap().iter().filter(|line| line.contains(&target)).count();
                format!("{}, {requests} at the origin", statuses.join(", "))
            },
            "200 a, 206 a, 200 a, 1 at the origin",
        )),
        ..EMPTY
    },
    Feature {
        title: "Names and passwords",
        fields: &["x-user", "authorization", "www-authenticate"],
        requests: &[
            ("/", "200 a"),
            ("/staff -u ann:secret", "200 a"),
            ("/staff -u ann:secret -H X-User:~root", "200 a"),
            ("/staff -u ann:secret -d x", "200 a"),
        ],
        steps: Some((
            |side| {
                ["/staff", "/staff -u ann:wrong", "/staff -u bob:secret"]
                    .map(|request| side.request(request, &[])[0].clone())
                    .join(", ")
            },
            "401, 401, 401",
        )),
    },
    Feature {
        title: "Users of a list",
        fields: &["authorization"],
        requests: &[
            ("/public", "200 a"),
            ("/", "401"),
            ("/ -u ann:secret", "200 a"),
            ("/ -u ann:Secret", "401"),
            ("/ -u ann:", "401"),
            ("/ -H Authorization:~Basic~%%%", "401"),
        ],
        ..EMPTY
    },
    Feature {
        title: "A service that decides",
        fields: &["x-user"],
        requests: &[
            ("/", "200 a"),
            ("/shop -H X-User:~root", "200 a"),
            ("/shop -d content", "200 a"),
            ("/closed", "403"),
            ("/broken", "401"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Content from a file",
        fields: &["content-type"],
        requests: &[("/robots.txt", "200"), ("/robots.txt.old", "200 a")],
        ..EMPTY
    },
    Feature {
        title: "Copies of requests",
        steps: Some((steps::copies, "200 a, 200 a; a GET / 0, a POST / 5, b GET / 0, b POST / 5")),
        ..EMPTY
    },
    Feature {
        title: "Limit of bodies of a route",
        requests: &[
            ("/upload/x -X POST -d small", "200 a"),
            ("/upload/x -X POST -H Content-Length:~1100000000 -H Expect:~100-continue", "413"),
            ("/other -d @{long}", "200 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Fields of forwarding of a route",
        fields: &["x-forwarded-for", "via"],
        requests: &[("/ -H Host:~partner.example", "200 a"), ("/ -H Host:~other.example", "200 a")],
        ..EMPTY
    },
    Feature {
        title: "Fields by the status",
        fields: &["cache-control"],
        requests: &[
            ("/", "200 a"),
            ("/status/404", "404 a"),
            ("/status/503", "503 a"),
            ("/status/302", "302 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Format of a log",
        requests: &[
            ("/fixed?b=1", "200 a"),
            ("/fixed/status/404", "404 a"),
            ("/fixed -X PUT -d small", "200 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Compression",
        fields: &["content-encoding", "vary", "etag"],
        requests: &[
            ("/style --compressed", "200 a"),
            ("/style --compressed -H Cookie:~a=b", "200 a"),
            ("/style/status/404 --compressed", "404 a"),
            ("/style", "200 a"),
            ("/style -H Accept-Encoding:~gzip;q=0", "200 a"),
            ("/other --compressed", "200 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Files of a directory",
        fields: &["content-range"],
        requests: &[
            ("/assets/robots.txt", "200"),
            ("/assets/robots.txt -r 0-3", "206"),
            ("/assets/", "200"),
            ("/other", "200 a"),
        ],
        ..EMPTY
    },
    Feature {
        title: "Several files",
        requests: &[("/ -H Host:~a.example", "403"), ("/ -H Host:~b.example", "200 a")],
        ..EMPTY
    },
    Feature {
        title: "Entries changed at run time",
        fields: &["x-tenant"],
        requests: &[("/ -H Host:~a.example.org", "200 a")],
        steps: Some((
            steps::changed_entries,
            "gold, none; added gold, silver; changed gold, bronze; deleted gold, none",
        )),
    },
    Feature {
        title: "Sessions by a text",
        steps: Some((steps::sessions, "each session has one server; all sessions have two; others have two")),
        ..EMPTY
    },
    Feature {
        title: "A stable percentage",
        steps: Some((steps::percentage, "about a tenth; the same again")),
        ..EMPTY
    },
    Feature { title: "Pools by weight", steps: Some((steps::division, "about a tenth")), ..EMPTY },
    Feature {
        title: "Limits of bytes per second",
        steps: Some((steps::limited_bytes, "300000 bytes, not at once")),
        ..EMPTY
    },
    Feature {
        title: "Servers added at run time",
        steps: Some((steps::added_server, "4 x 200 a; then both")),
        ..EMPTY
    },
    Feature {
        title: "A switch for maintenance",
        steps: Some((steps::maintenance, "503, then 200 a")),
        ..EMPTY
    },
    Feature {
        title: "Environment variables",
        fields: &["x-site", "x-region"],
        requests: &[("/", "200 a")],
        steps: Some((
            |side| side.request("/", &["x-site", "x-region"]).split_off(2).join(", "),
            "< x-site: north, < x-region: unknown",
        )),
    },
];

/// Returns the code of a language in a section of the page.
fn code(page: &str, title: &str, language: &str) -> Option<String> {
    let section = page.split("\n## ").find(|section| section.starts_with(&format!("{title}\n")))?;
    let (_, rest) = section.split_once(&format!("```{language}\n"))?;
    Some(rest.split("```").next()?.to_owned())
}

/// Returns the complete config of an example of weir.
fn weir_config(example: &str) -> String {
    format!(
        "{example}\n[listener.web]\nbind = \":80\"\npool = \"app\"\n\
         [pool.app]\nservers = [{{ address = \"10.0.0.11:8080\", name = \"a\" }}]\n"
    )
}

/// Returns the program and the complete config of an example of it.
fn peer_config(page: &str, title: &str) -> Option<(Program, String)> {
    if let Some(lines) = code(page, title, "haproxy") {
        let proxies = if lines.starts_with("frontend") {
            lines
        } else {
            format!(
                "frontend web\n    bind :80\n{lines}    default_backend app\n\
                 backend app\n    server a 10.0.0.11:8080\n"
            )
        };
        let config = format!(
            "defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n{proxies}"
        );
        return Some((Program::Haproxy, config));
    }
    code(page, title, "nginx").map(|config| (Program::Nginx, config))
}

/// Returns the lines of a log whose dates and durations are masked, when there are so many.
fn log_lines(side: &Side, count: usize) -> Vec<String> {
    let read = || -> Vec<String> { side.file("access.log").lines().map(str::to_owned).collect() };
    within(EVENT_TIMEOUT, || read().len() >= count);
    let mask = |line: String| {
        let (start, rest) = line.split_once('[').unwrap_or((&line, ""));
        let (date, rest) = rest.split_once(']').unwrap_or((rest, ""));
        let date: String =
            date.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
        let (rest, duration) = rest.rsplit_once(' ').unwrap_or((rest, ""));
        let has_form = duration.split_once('.').is_some_and(|(_, part)| part.len() == 3);
        format!("{start}[{date}]{rest} {has_form}")
    };
    read().into_iter().map(mask).collect()
}

#[test]
fn features_are_the_same_as_in_their_peers() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let Some(certificates) = Certificates::create() else { return };
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/features.md")).unwrap();
    let origins = Origins::start();
    let mut problems = Vec::new();
    let peers = ["haproxy", "nginx"].map(|language| page.matches(&format!("```{language}\n")).count());
    assert_eq!(peers.iter().sum::<usize>(), FEATURES.len(), "each example of a peer is compared");
    for Feature { title, fields, requests, steps } in FEATURES {
        let (program, config) =
            peer_config(&page, title).unwrap_or_else(|| panic!("{title}: no example of a peer"));
        if !program.is_installed() {
            continue;
        }
        let example = code(&page, title, "toml").unwrap();
        let weir = Side::start(Program::Weir, &weir_config(&example), &origins, &certificates);
        let peer = Side::start(program, &config, &origins, &certificates);
        for (request, expected) in *requests {
            let (found, peer_response) = (weir.request(request, fields), peer.request(request, fields));
            if found[0] != *expected || found != peer_response {
                problems.push(format!(
                    "{title}: {request}: {peer_response:?}, weir: {found:?}, expected {expected}"
                ));
            }
        }
        if let Some((steps, expected)) = steps {
            for side in [&weir, &peer] {
                let found = steps(side);
                if found != *expected {
                    problems.push(format!("{title}: {:?}: {found}, not {expected}", side.program));
                }
            }
        }
        if *title == "Format of a log" {
            let (found, peer_lines) = (log_lines(&weir, requests.len()), log_lines(&peer, requests.len()));
            let is_complete =
                found.len() == requests.len() && found.iter().all(|line| line.ends_with(" true"));
            if found != peer_lines || !is_complete {
                problems.push(format!("{title}: {peer_lines:?}, weir: {found:?}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
