//! Tests each row of the table. Its default must be a value of its kind, its valid example must be
//! accepted, and its invalid one must be rejected at its position. Schema and reference must list
//! it.

use serde_json::Value as Json;

use super::directives::{DIRECTIVES, DefaultValue, Directive, find_directive};
use super::schema::table_json;
use super::test_certificates::TestCertificates;
use super::value::Section;
use super::{parse, reference, schema};

const LISTENER: &str = "[listener.web]\nbind = '127.0.0.1:0'\n";
/// An existing file with enough bytes for a key.
const KEY_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
const POOL: &str = "[pool.app]\nservers = ['127.0.0.1:9001']\n";
const CACHE: &str = "[cache.c]\nmemory = '1m'\n";

/// Returns a config with `line` in the table of `row`, and everything else that makes it valid.
fn config(row: &Directive, line: &str) -> String {
    // Examples refer to files and CPUs that must exist.
    let mut line = line.replace("/etc/weir/sticky.key", KEY_FILE);
    if row.key == "pin" {
        line = line.replace("'0'", &format!("'{}'", rt::cores::available_cpus()[0]));
    }
    let listener = |inside: &str| format!("[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n{inside}");
    let route = |inside: &str| format!("{LISTENER}[[route]]\npath-prefix = '/api'\npool = 'app'\n{inside}");
    let pool = |inside: &str| format!("[pool.app]\nservers = ['127.0.0.1:9001']\n{inside}");
    let complete = match row.table {
        "" => match row.key {
            "listener" => POOL.to_owned(),
            "pool" => LISTENER.to_owned(),
            _ => format!("{LISTENER}{POOL}"),
        },
        "map.*" => {
            let entries = if row.key == "file" { "" } else { "entries = { a = '1' }\n" };
            format!("[map.m]\nkey = 'path'\n{entries}@\n{LISTENER}{POOL}")
        }
        "cache.*" => format!("[cache.c]\n@\n{LISTENER}{POOL}"),
        "cache.*.disk" => format!("[cache.c.disk]\ndirectory = '/etc/weir/certs'\n@\n{LISTENER}{POOL}"),
        "privileges" => format!("[privileges]\n@\n{LISTENER}{POOL}"),
        "tracing" => format!("[tracing]\ncollector = 'https://127.0.0.1:4318'\n@\n{LISTENER}{POOL}"),
        "log[]" => format!("[[log]]\nto = 'file:/tmp/x'\n@\n{LISTENER}{POOL}"),
        "listener.*" if row.key == "sni" => format!("{}{POOL}", listener("mode = 'tcp'\n@\n")),
        "listener.*" => format!("{}{POOL}", listener("@\n")),
        "listener.*.per-source" => {
            format!("{}{POOL}", listener("[listener.web.per-source]\n@\n"))
        }
        "listener.*.tls" => {
            format!("{}{POOL}", listener("[listener.web.tls]\nself-signed = true\nclient-ca = 'SITE'\n@\n"))
        }
        "listener.*.tls.acme" => {
            let table = "[listener.web.tls.acme]\ndirectory = 'https://localhost/dir'\ndomains = 'a.test'\n\
                         storage = '/tmp'\nagree-to-terms = true\n@\n";
            format!("{}{POOL}", listener(table))
        }
        "listener.*.tls.acme.dns" => {
            let start = match row.key {
                "hook" | "hook-timeout" => "hook = ['/bin/true']",
                "key-name" | "algorithm" | "secret-file" => {
                    "server = '127.0.0.1'\nkey-name = 'weir'\nsecret-file = '/etc/weir/tsig.secret'"
                }
                _ => "server = '127.0.0.1'\nkey-file = '/etc/weir/tsig.key'",
            };
            let table = format!(
                "[listener.web.tls.acme]\ndirectory = 'https://localhost/dir'\ndomains = '*.test'\n\
                 storage = '/tmp'\nagree-to-terms = true\nchallenge = 'dns-01'\n[listener.web.tls.acme.dns]\n{start}\n@\n"
            );
            format!("[privileges]\nlandlock = false\n{}{POOL}", listener(&table))
        }
        "listener.*.tls.certificates[]" => {
            let entry = "[[listener.web.tls.certificates]]\ncertificate = 'SITE'\n@\n";
            format!("{}{POOL}", listener(entry))
        }
        "listener.*.http2" => format!("{}{POOL}", listener("[listener.web.http2]\n@\n")),
        "listener.*.sni[]" => {
            let entry = "mode = 'tcp'\n[[listener.web.sni]]\npool = 'app'\n@\n";
            format!("{LISTENER}{entry}{POOL}")
        }
        "listener.*.compression" => format!("{}{POOL}", listener("[listener.web.compression]\n@\n")),
        "listener.*.compression.level" => {
            format!("{}{POOL}", listener("[listener.web.compression.level]\n@\n"))
        }
        "listener.*.auth" => {
            let method = "basic = { users-file = '/etc/weir/users' }";
            let method = if ["basic", "jwt", "request"].contains(&row.key) { "" } else { method };
            format!("{}{POOL}", listener(&format!("[listener.web.auth]\n{method}\n@\n")))
        }
        "listener.*.auth.basic" => {
            format!("{}{POOL}", listener("[listener.web.auth.basic]\nusers-file = '/etc/weir/users'\n@\n"))
        }
        "listener.*.auth.jwt" => {
            let is_source = ["keys-file", "public-key-file", "secret-file"].contains(&row.key);
            let source = if is_source { "" } else { "keys-url = 'https://localhost/jwks.json'\n" };
            format!("{}{POOL}", listener(&format!("[listener.web.auth.jwt]\n{source}@\n")))
        }
        "listener.*.auth.request" => {
            let table = "[route.auth.request]\npool = 'app'\npath = '/verify'\n@\n";
            format!("{LISTENER}[[route]]\nreturn = {{}}\n{table}{POOL}")
        }
        "listener.*.cors" => {
            format!("{}{POOL}", listener("[listener.web.cors]\norigins = 'https://a.example'\n@\n"))
        }
        "listener.*.limits" => format!("{}{POOL}", listener("[listener.web.limits]\n@\n")),
        "listener.*.forwarding" => format!("{}{POOL}", listener("[listener.web.forwarding]\n@\n")),
        "listener.*.timeouts" => format!("{}{POOL}", listener("[listener.web.timeouts]\n@\n")),
        "route[]" => format!("{}{POOL}{CACHE}", route("@\n")),
        "route[].when" if row.key == "claim" => {
            let rule = "[[route.response]]\nadd-header = { x-a = '1' }\n[route.response.when]\n@\n";
            format!("{LISTENER}[[route]]\nreturn = {{}}\n{rule}")
        }
        "route[].when" => {
            let map = "[map.m]\nkey = 'path'\nentries = { a = '1' }\n";
            format!("{LISTENER}[[route]]\ndeny = true\n[route.when]\n@\n{map}")
        }
        "route[].response[]" => {
            format!("{}{POOL}", route("[[route.response]]\nadd-header = { x-a = '1' }\n@\n"))
        }
        "error-page[]" => {
            let page = "[[error-page]]\nstatus = '5xx'\nhtml = '/etc/weir/networks.txt'\n@\n";
            format!("{page}{LISTENER}{POOL}")
        }
        "route[].timeouts" => format!("{}{POOL}", route("[route.timeouts]\n@\n")),
        "route[].hedge" => format!("{}{POOL}", route("[route.hedge]\n@\n")),
        "route[].mirror" => {
            // The first line with a key is the tested one.
            format!("{LISTENER}[[route]]\n  pool = 'app'\n[route.mirror]\npool = 'app'\n@\n{POOL}")
        }
        "route[].cache" => format!("{}{POOL}{CACHE}", route("[route.cache]\nuse = 'c'\n@\n")),
        "route[].cache.valid[]" => {
            let entry = "[route.cache]\nuse = 'c'\n[[route.cache.valid]]\nstatus = '200'\nfor = '1s'\n@\n";
            format!("{}{POOL}{CACHE}", route(entry))
        }
        "route[].compression" => format!("{}{POOL}", route("[route.compression]\n@\n")),
        "route[].compression.level" => format!("{}{POOL}", route("[route.compression.level]\n@\n")),
        "route[].forwarding" => format!("{}{POOL}", route("[route.forwarding]\n@\n")),
        "route[].rate-limit" => format!("{}{POOL}", route("[route.rate-limit]\nrate = 1\n@\n")),
        "route[].files" => {
            format!("{LISTENER}[[route]]\n[route.files]\nroot = '/etc/weir/certs'\n@\n{POOL}")
        }
        "route[].split" => {
            format!("{LISTENER}[[route]]\n[route.split]\npools = {{ app = 1 }}\n@\n{POOL}")
        }
        "route[].redirect" => {
            format!("{LISTENER}[[route]]\n[route.redirect]\nlocation = '/'\n@\n{POOL}")
        }
        "route[].return" => format!("{LISTENER}[[route]]\n[route.return]\n@\n{POOL}"),
        "route[].tarpit" => format!("{LISTENER}[[route]]\n[route.tarpit]\n@\n{POOL}"),
        "pool.*" => format!("{LISTENER}{}", pool("@\n")),
        "pool.*.tls" => {
            format!("{LISTENER}{}", pool("[pool.app.tls]\nca = 'SITE'\ncertificate = 'SITE'\n@\n"))
        }
        "pool.*.http2" => format!("{LISTENER}{}", pool("http = '2'\n[pool.app.http2]\n@\n")),
        "pool.*.servers[]" if row.key == "srv" => format!("{LISTENER}[[pool.app.servers]]\n@\n"),
        "pool.*.servers[]" => {
            format!("{LISTENER}[[pool.app.servers]]\naddress = '127.0.0.1:9001'\n@\n")
        }
        "pool.*.hash" => format!("{LISTENER}{}", pool("[pool.app.hash]\n@\n")),
        "pool.*.sticky" if ["on", "entries-max", "expire"].contains(&row.key) => {
            format!("{LISTENER}{}", pool("[pool.app.sticky]\non = 'cookie.id'\n@\n"))
        }
        "pool.*.sticky" => {
            // A key is either given in the config or in a file.
            let key = if row.key == "key-file" { "" } else { "key = '0123456789abcdef'\n" };
            format!("{LISTENER}{}", pool(&format!("[pool.app.sticky]\ncookie = 'SRV'\n{key}@\n")))
        }
        "pool.*.check" => {
            format!("{LISTENER}{}", pool("[pool.app.check]\ntype = 'http'\n@\n"))
        }
        "pool.*.outlier" => format!("{LISTENER}{}", pool("[pool.app.outlier]\n@\n")),
        "pool.*.resolve" => format!("{LISTENER}{}", pool("[pool.app.resolve]\n@\n")),
        "pool.*.queue" => format!("{LISTENER}{}", pool("[pool.app.queue]\n@\n")),
        "pool.*.adaptive" => format!("{LISTENER}{}", pool("[pool.app.adaptive]\n@\n")),
        "pool.*.retry-budget" => format!("{LISTENER}{}", pool("[pool.app.retry-budget]\n@\n")),
        "pool.*.timeouts" => format!("{LISTENER}{}", pool("[pool.app.timeouts]\n@\n")),
        "pool.*.limits" => format!("{LISTENER}{}", pool("[pool.app.limits]\n@\n")),
        other => panic!("no config for a row of {other}"),
    };
    let complete = if row.table.is_empty() { format!("@\n{complete}") } else { complete };
    // The tested line replaces the line with the same key in its table.
    let (before, after) = complete.split_once('@').unwrap();
    let table_start = before.rfind("\n[").map_or(0, |newline| newline + 1);
    let is_action =
        ["split", "files", "redirect", "return", "deny", "silent-drop", "tarpit"].contains(&row.key);
    let mut text = before[..table_start].to_owned();
    for other in before[table_start..].lines() {
        let key = other.split(' ').next().unwrap_or_default();
        if key != row.key && !(is_action && row.table == "route[]" && key == "pool") {
            text += other;
            text.push('\n');
        }
    }
    let (site, directory) = TestCertificates::shared();
    let text = text + &line + after;
    let (ticket_key, ocsp) = TestCertificates::shared_extras();
    let text = text
        .replace("/etc/weir/clients.crl", TestCertificates::shared_revocation_list())
        .replace("/etc/weir/tsig.key", TestCertificates::shared_tsig_files().0)
        .replace("/etc/weir/tsig.secret", TestCertificates::shared_tsig_files().1)
        .replace("/etc/weir/ticket.key", ticket_key)
        .replace("/etc/weir/networks.txt", empty_file())
        .replace("/etc/weir/hosts.map", empty_file())
        .replace("/etc/weir/users", auth_file("users"))
        .replace("/etc/weir/jwks.json", auth_file("jwks.json"))
        .replace("/etc/weir/key.pub", auth_file("key.pub"))
        .replace("/etc/weir/site.ocsp", ocsp);
    text.replace("/etc/weir/site.pem", "SITE").replace("SITE", site).replace("/etc/weir/certs", directory)
}

/// Returns the path of an empty file.
fn empty_file() -> &'static str {
    static FILE: std::sync::OnceLock<tempfile::NamedTempFile> = std::sync::OnceLock::new();
    FILE.get_or_init(|| tempfile::NamedTempFile::new().unwrap()).path().to_str().unwrap()
}

/// Returns the path of a file with users or keys.
fn auth_file(name: &str) -> &'static str {
    static DIRECTORY: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in crate::auth::jwks::fixtures::FILES {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        directory
    });
    directory.path().join(name).into_os_string().into_string().unwrap().leak()
}

#[test]
fn every_default_is_of_its_kind() {
    for row in DIRECTIVES {
        if let DefaultValue::Literal(text) = row.default {
            let section = Section::empty(row.table);
            let is_there = section.integer(row.key).is_some()
                || section.float(row.key).is_some()
                || section.text(row.key).is_some()
                || !section.texts(row.key).is_empty()
                || text == "true" && section.flag(row.key)
                || text == "false" && !section.flag(row.key);
            assert!(is_there, "{} {}: {text}", row.table, row.key);
        }
    }
}

#[test]
fn every_valid_example_is_accepted() {
    for row in DIRECTIVES {
        let text = config(row, &format!("{} = {}", row.key, row.valid_example));
        if let Err(problems) = parse("t", &text) {
            panic!("{} {}: {problems:?}\n{text}", row.table, row.key);
        }
    }
}

#[test]
fn every_invalid_example_is_rejected_at_its_position() {
    for row in DIRECTIVES {
        let text = config(row, &format!("{} = {}", row.key, row.invalid_example));
        let Err(problems) = parse("t", &text) else {
            panic!("{} {} = {}: accepted", row.table, row.key, row.invalid_example);
        };
        let line = text.lines().position(|line| line.starts_with(&format!("{} = ", row.key)));
        let position = format!("t:{}:", line.unwrap() + 1);
        let count = problems.iter().filter(|problem| problem.location.starts_with(&position)).count();
        assert!(count > 0, "{} {}: {problems:?}\n{text}", row.table, row.key);
    }
}

#[test]
fn keys_are_unique_and_documented() {
    let reference = reference();
    for (index, row) in DIRECTIVES.iter().enumerate() {
        let twice = DIRECTIVES[..index].iter().any(|other| (other.table, other.key) == (row.table, row.key));
        assert!(!twice, "{} {}", row.table, row.key);
        assert!(row.doc.ends_with('.') && !row.doc.contains('|'), "{} {}", row.table, row.key);
        assert!(reference.contains(&format!("| `{}` |", row.key)) && reference.contains(row.doc));
    }
    assert!(reference.contains("## `[route.rate-limit]`"), "{reference}");
    assert!(reference.contains("## `[listener.NAME.timeouts]`"), "{reference}");
}

/// Validates against the part of JSON Schema that our schema uses.
fn matches_schema(root: &Json, schema: &Json, value: &Json) -> bool {
    let Json::Object(rules) = schema else {
        return schema == &Json::Bool(true);
    };
    rules.iter().all(|(rule, expected)| match rule.as_str() {
        "$ref" => {
            let name = expected.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
            matches_schema(root, &root["$defs"][name], value)
        }
        "type" => match expected.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64(),
            "number" => value.is_number(),
            other => panic!("{other}"),
        },
        "anyOf" => expected.as_array().unwrap().iter().any(|option| matches_schema(root, option, value)),
        "allOf" => expected.as_array().unwrap().iter().all(|option| matches_schema(root, option, value)),
        "enum" => expected.as_array().unwrap().contains(value),
        "const" => expected == value,
        "minimum" => value.as_f64().is_none_or(|value| value >= expected.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|value| value <= expected.as_f64().unwrap()),
        "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > expected.as_f64().unwrap()),
        "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= expected.as_u64().unwrap()),
        "pattern" => value
            .as_str()
            .is_none_or(|text| regex::Regex::new(expected.as_str().unwrap()).unwrap().is_match(text)),
        "items" => {
            value.as_array().is_none_or(|list| list.iter().all(|entry| matches_schema(root, expected, entry)))
        }
        "required" => value.as_object().is_none_or(|table| {
            expected.as_array().unwrap().iter().all(|key| table.contains_key(key.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|table| {
            table.iter().all(|(key, inner)| {
                expected.get(key).is_none_or(|schema| matches_schema(root, schema, inner))
            })
        }),
        "additionalProperties" => value.as_object().is_none_or(|table| {
            table.iter().all(|(key, inner)| {
                let known = rules.get("properties").and_then(|known| known.get(key)).is_some();
                known || matches_schema(root, expected, inner)
            })
        }),
        "$schema" | "$defs" | "title" | "description" | "default" | "examples" => true,
        other => panic!("the schema has a rule that this test does not know: {other}"),
    })
}

fn conforms_to_schema(value: &Json) -> bool {
    let schema = schema();
    matches_schema(&schema, &schema, value)
}

fn json(text: &str) -> Json {
    let value = toml::de::DeTable::parse(text).unwrap();
    table_json(value.get_ref())
}

#[test]
fn the_schema_accepts_every_valid_example_and_no_unknown_key() {
    for row in DIRECTIVES {
        let text = config(row, &format!("{} = {}", row.key, row.valid_example));
        assert!(conforms_to_schema(&json(&text)), "{} {}\n{text}", row.table, row.key);
        if !row.table.contains("servers") {
            let text = config(row, &format!("{}x = {}", row.key, row.valid_example));
            assert!(!conforms_to_schema(&json(&text)), "{} {}x\n{text}", row.table, row.key);
        }
    }
}

#[test]
fn every_default_is_in_the_schema() {
    let schema = schema();
    assert_eq!(schema["$defs"]["listener-timeouts"]["properties"]["head"]["default"], "10s");
    assert_eq!(schema["$defs"]["map"]["required"], serde_json::json!(["key"]));
    assert!(find_directive("pool.*", "retries").is_some());
}
