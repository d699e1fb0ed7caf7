//! Tests of `--check`, `--explain` and `--schema`: reports about a config without running it.

use std::fs;

use serde_json::Value;

use crate::support::{RunOutput, run_weir, shared_machine, start, temp_dir};

/// Runs `weir proxy` on a file with this text.
fn run_check(config: &str, flags: &[&str]) -> RunOutput {
    let directory = temp_dir();
    let path = directory.path().join("weir.toml");
    fs::write(&path, config).unwrap();
    let mut all = vec!["proxy", "--config", path.to_str().unwrap()];
    all.extend(flags);
    start(crate::support::WEIR, &all).finish()
}

const VALID_CONFIG: &str = r#"
threads = 2
connections-max = "20k"
drain-timeout = "30s"
admin = "127.0.0.1:0"

[privileges]
user = "nobody"

[[log]]
to = "stdout"
format = "combined"
sample = 0.5

[listener.web]
bind = ["127.0.0.1:0", "[::1]:0"]
trusted = ["10.0.0.0/8", "127.0.0.1"]
limits = { head = "16k", headers = 100, target = "8k" }
forwarding = { x-forwarded = true, forwarded = false, via = false, request-id = "x-id" }
timeouts = { head = "10s", body-idle = "30s", body-progress = "30s", body-progress-bytes = "4k" }

[listener.raw]
bind = "127.0.0.1:0"
mode = "tcp"
pool = "app"

[[route]]
name = "api"
listener = "web"
host = ["example.org", "*.example.org"]
path-prefix = "/api"
method = ["GET", "HEAD"]
header = { x-a = "value", x-b = true, x-c = false, x-d = { regex = "^v" } }
query = { debug = "1" }
source = ["10.0.0.0/8"]
rewrite-prefix = "/v1"
set-request-header = { x-env = "prod" }
rate-limit = { rate = 100, burst = 20, key = "source" }
pool = "app"

[[route]]
path-regex = "^/v[0-9]+/"
redirect = { status = 308, location = "https://{host}{path}{query}" }

[[route]]
deny = true

[pool.app]
servers = ["127.0.0.1:9001", { address = "127.0.0.1:9002", name = "b", weight = 2, maxconn = 10 }]
balance = "round-robin"
queue = { limit = 10, timeout = "100ms" }
"#;

#[test]
fn a_valid_config_passes_and_nothing_listens() {
    let _shared = shared_machine();
    let output = run_check(VALID_CONFIG, &["--check"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!output.stdout.contains("listening on"), "{}", output.stdout);
}

/// Lines with a mistake, each with a required part of its error message.
const CONFIG_ERRORS: &[(&str, &str)] = &[
    ("threads = 0", "threads"),
    ("drain-timeout = \"30 parsecs\"", "parsecs"),
    ("colour = \"red\"", "colour"),
    ("[[log]]\nformat = \"xml\"", "xml"),
    ("[[log]]\nto = \"file:/tmp/x\"\nsample = 7.0", "sample"),
    ("[listener.web]\nbind = \"127.0.0.1:99999\"", "99999"),
    ("[listener.two]\nbind = \"127.0.0.1:0\"\ntimeouts = { head = \"10\" , foot = \"1s\" }", "foot"),
    ("[listener.raw]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"", "pool"),
    ("[[route]]\nlistener = \"nowhere\"\ndeny = true", "nowhere"),
    ("[[route]]\npool = \"nothing\"", "nothing"),
    ("[[route]]\npool = \"app\"\ndeny = true", "action"),
    ("[[route]]\npath-prefix = \"/x\"", "no action"),
    ("[[route]]\npath-regex = \"(\"\ndeny = true", "("),
    ("[[route]]\nrewrite-prefix = \"/x\"\npool = \"app\"", "path-prefix"),
    ("[[route]]\nsource = [\"10.0.0.0/99\"]\ndeny = true", "10.0.0.0/99"),
    ("[[route]]\nredirect = { status = 200, location = \"/\" }", "301 to 308"),
    ("[[route]]\nset-request-header = { \"a b\" = \"x\" }\ndeny = true", "a b"),
    ("[[route]]\nset-response-header = { a = \"x\\r\\ny: z\" }\ndeny = true", "\"a\""),
    ("[[route]]\nset-request-header = { a = \"x {hots}\" }\ndeny = true", "did you mean 'host'"),
    ("[[route]]\nset-request-header = { a = \"{status}\" }\ndeny = true", "fields of responses"),
    ("[[route]]\nset-response-header = { a = '{\"b\":1}' }\ndeny = true", "{{"),
    ("[[route]]\nredirect = { location = \"/{1}\" }", "exactly one path-regex"),
    ("[[route]]\nwhen = { any = [] }\ndeny = true", "empty"),
    ("[[route]]\nwhen = { percent = 10, key = \"cookies.a\" }\ndeny = true", "cookies.a"),
    ("[pool.empty]\nservers = []", "server"),
    ("[pool.odd]\nservers = [\"127.0.0.1:1\"]\nbalance = \"luck\"", "luck"),
    ("[pool.far]\nservers = [\"127.0.0.1:1\"]\nsource = [\"127.0.0.2\", \"192.0.2.1\"]", "192.0.2.1"),
    ("[pool.odder]\nservers = [\"127.0.0.1:1\"]\nsend-proxy-protocol = \"v3\"", "v3"),
];

/// Parses `LINE:COLUMN: text` after the file's name; returns both numbers.
fn error_position(line: &str) -> Option<(usize, usize)> {
    let mut parts = line.split_once("weir.toml:")?.1.splitn(3, ':');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[test]
fn each_error_is_reported_with_its_position() {
    let _shared = shared_machine();
    for (mistake, part) in CONFIG_ERRORS {
        let base = "[pool.app]\nservers = [\"127.0.0.1:1\"]\n";
        // Top-level keys come before any table.
        let config = if mistake.starts_with('[') {
            format!("{base}{mistake}\n")
        } else {
            format!("{mistake}\n{base}")
        };
        let output = run_check(&config, &["--check"]);
        assert_eq!(output.code, 2, "{mistake}: {output:?}");
        let lines = config.lines().count();
        let positioned = output.stderr.lines().filter_map(|line| Some((error_position(line)?, line)));
        let positioned: Vec<_> = positioned.collect();
        let right = positioned.iter().any(|((line, column), text)| {
            (1..=lines).contains(line)
                && *column >= 1
                && (text.contains(part) || text.contains(part.trim_matches('"')))
        });
        assert!(right, "{mistake}: {}", output.stderr);
    }
}

#[test]
fn all_errors_of_a_file_are_reported_at_once() {
    let _shared = shared_machine();
    let config = "threads = 0\nfoo = 1\n\n[listener.web]\nbind = \"x\"\n\n[[route]]\npool = \"y\"\n";
    for flags in [&["--check"][..], &[]] {
        let output = run_check(config, flags);
        assert_eq!(output.code, 2, "{output:?}");
        let mut lines: Vec<usize> =
            output.stderr.lines().filter_map(error_position).map(|(line, _)| line).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines, [1, 2, 5, 8], "{}", output.stderr);
    }
}

#[test]
fn invalid_toml_and_a_missing_file_are_reported() {
    let _shared = shared_machine();
    let output = run_check("[listener.web\nbind = 1\n", &["--check"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("weir.toml:1:"), "{}", output.stderr);
    let output = run_weir(&["proxy", "--config", "/nowhere/weir.toml", "--check"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("/nowhere/weir.toml"), "{}", output.stderr);
    let output = run_weir(&["proxy", "--check", "/nowhere/weir.toml"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("--config /nowhere/weir.toml"), "{}", output.stderr);
}

#[test]
fn flags_that_belong_into_the_config_are_rejected_beside_it() {
    let _shared = shared_machine();
    let output = run_weir(&["proxy", "--config", "/nowhere/weir.toml", "--to", "127.0.0.1:1", "-t", "1"]);
    assert_eq!(output.code, 2, "{output:?}");
    // The file is not read, so its content is not mentioned.
    for flag in ["--to: not allowed with --config", "--threads: not allowed with --config"] {
        assert!(output.stderr.contains(flag), "{}", output.stderr);
    }
}

const EXPLAINED_CONFIG: &str = r#"
[listener.web]
bind = "127.0.0.1:0"

[[route]]
name = "admin"
path-prefix = "/admin"
source = ["10.0.0.0/8"]
pool = "app"

[[route]]
name = "api"
path-prefix = "/api"
method = ["POST"]
header = { x-key = true }
rewrite-prefix = "/v1"
set-request-header = { x-env = "prod" }
pool = "app"

[[route]]
name = "rest"
deny = true

[pool.app]
servers = ["127.0.0.1:9001", { address = "127.0.0.1:9002", name = "second" }]
"#;

#[test]
fn a_request_is_explained_route_by_route() {
    let _shared = shared_machine();
    let explain = |flags: &[&str]| {
        let output = run_check(EXPLAINED_CONFIG, &[&["--explain"], flags].concat());
        assert_eq!(output.code, 0, "{flags:?}: {output:?}");
        output.stdout
    };
    let explanation = explain(&["POST http://example.org/api/users", "--header", "x-key: 1"]);
    for part in ["web", "admin", "api", "/v1/users", "x-env", "prod", "app", "9001", "second"] {
        assert!(explanation.contains(part), "{part}: {explanation}");
    }
    assert!(!explanation.contains("rest"), "routes after the match are not tried: {explanation}");
    let explanation = explain(&["http://example.org/api/users"]);
    for part in ["admin", "api", "method", "rest", "403"] {
        assert!(explanation.contains(part), "{part}: {explanation}");
    }
    // The source decides, and the path counts in its normalised form.
    let url = "http://example.org/x/../%61dmin";
    let explanation = explain(&[url, "--source", "10.1.2.3"]);
    assert!(explanation.contains("9001") && !explanation.contains("rest"), "{explanation}");
    let explanation = explain(&[url, "--source", "192.0.2.1"]);
    assert!(explanation.contains("source") && explanation.contains("rest"), "{explanation}");
    let tcp = run_weir(&["proxy", "--mode", "tcp", "--to", "127.0.0.1:1", "--explain", "/"]);
    assert_eq!((tcp.code, tcp.stdout.as_str()), (2, ""), "{tcp:?}");
    assert!(tcp.stderr.contains("--explain: "), "{tcp:?}");
}

/// Collects every property name of a schema, at any depth.
fn collect_properties(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                if let ("properties", Value::Object(own)) = (key.as_str(), value) {
                    names.extend(own.keys().cloned());
                }
                collect_properties(value, names);
            }
        }
        Value::Array(members) => members.iter().for_each(|member| collect_properties(member, names)),
        _ => {}
    }
}

#[rustfmt::skip]
const SCHEMA_KEYS: &[&str] = &[
    "threads", "pin", "connections-max", "drain-timeout", "admin",
    "privileges", "user", "group", "no-new-privileges", "landlock",
    "log", "to", "format", "sample", "only-errors",
    "listener", "bind", "mode", "pool", "namespace", "proxy-protocol", "trusted", "requests-max",
    "body-max", "connect", "half-close", "limits", "head", "headers", "target", "forwarding",
    "x-forwarded", "forwarded", "via", "request-id", "timeouts", "body-idle", "body-progress",
    "body-progress-bytes", "write", "keep-alive",
    "route", "name", "host", "path", "path-prefix", "path-regex", "method", "header", "query",
    "source", "rewrite-prefix", "rewrite-path", "set-request-header", "add-request-header",
    "remove-request-header", "set-response-header", "add-response-header",
    "remove-response-header", "rate-limit", "rate", "burst", "key", "status", "keys-max",
    "redirect", "location", "return", "content-type", "body", "deny", "tarpit", "delay",
    "servers", "address", "weight", "maxconn", "balance", "reuse", "idle-max", "idle-timeout",
    "queue", "limit", "timeout", "connect", "first-byte", "idle", "tunnel", "retries",
    "send-proxy-protocol",
];

#[test]
fn the_schema_is_json_and_names_every_key() {
    let _shared = shared_machine();
    let output = run_weir(&["proxy", "--schema"]);
    assert_eq!(output.code, 0, "{output:?}");
    let schema: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert!(schema["$schema"].as_str().is_some_and(|url| url.contains("json-schema.org")));
    let mut names = Vec::new();
    collect_properties(&schema, &mut names);
    let missing: Vec<&&str> =
        SCHEMA_KEYS.iter().filter(|key| !names.iter().any(|name| name == **key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_check_finds_what_would_keep_the_proxy_from_starting_or_serving() {
    let _shared = shared_machine();
    let with = |log: &str, server: &str| {
        format!(
            "[[log]]\nto = \"{log}\"\n[listener.web]\nbind = \"127.0.0.1:8099\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{server}\"]\n"
        )
    };
    for (config, expected) in [
        (with("file:/no/such/place/log", "127.0.0.1:1"), "missing directory: /no/such/place"),
        (with("file:/dev", "127.0.0.1:1"), "log file:/dev: "),
        (with("stdout", "127.0.0.1:8099"), "weir.toml:7:11: "),
        (
            with("stdout", "127.0.0.1:8099").replace("bind = \"127.0.0.1", "bind = \"0.0.0.0"),
            "listener 'web'",
        ),
    ] {
        let output = run_check(&config, &["--check"]);
        assert_eq!(output.code, 2, "{expected}: {output:?}");
        assert!(output.stderr.contains(expected), "{expected}: {output:?}");
    }
    let output = run_check(&with("stdout", "127.0.0.1:8098"), &["--check"]);
    assert_eq!(output.code, 0, "{output:?}");
}
