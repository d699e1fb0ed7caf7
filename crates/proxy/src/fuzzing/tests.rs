//! The properties, on seeded mutations of useful inputs. The seed is fixed, so failures are
//! reproducible. `WEIR_FUZZ_ROUNDS=1000000` runs more rounds and also changes the seed.

use std::path::Path;

/// Rounds of a normal run.
const ROUNDS: usize = 10_000;

/// Runs a property on mutations of the seeds. At least one in `accepted_divisor` must be valid
/// enough to test it.
fn run_mutations(seeds: &[Vec<u8>], accepted_divisor: usize, property: impl Fn(&[u8]) -> bool) {
    assert!(seeds.iter().any(|seed| property(seed)), "no seed is accepted");
    let requested_rounds = std::env::var("WEIR_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = requested_rounds.unwrap_or(ROUNDS);
    let mut rng = fastrand::Rng::with_seed(rounds as u64);
    let mut accepted = 0;
    for _ in 0..rounds {
        let mut bytes = seeds[rng.usize(..seeds.len())].clone();
        for _ in 0..rng.usize(1..5) {
            mutate(&mut bytes, seeds, &mut rng);
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(&bytes)));
        match result {
            Ok(is_accepted) => accepted += usize::from(is_accepted),
            Err(panic) => {
                eprintln!("with {}", bytes.escape_ascii());
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{accepted} of {rounds} accepted");
    assert!(accepted * accepted_divisor >= rounds, "{accepted} of {rounds} accepted");
}

/// Fragments to insert, with a meaning to one of the parsers.
const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "/",
    "//",
    "/../",
    "%2e",
    "%",
    "?",
    "#",
    "*",
    "Host: b\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Connection: close\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: host, content-length, x-a\r\n",
    "TE: trailers\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "Trailer: X-T\r\n",
    "Keep-Alive: 5\r\n",
    "Proxy-Connection: close\r\n",
    "X-Forwarded-For: 1.1.1.1\r\n",
    "X-Request-Id: mine\r\n",
    "X_Forwarded_For: 1.1.1.1\r\n",
    "X-Real-IP: 1.1.1.1\r\n",
    "True-Client-IP: 1.1.1.1\r\n",
    "X-Original-URL: /admin\r\n",
    "X-Forwarded-User: a\r\n",
    "/..;/",
    "/;/",
    "%2f",
    "%5c",
    "%252e",
    "\\",
    ";a=b",
    "Forwarded: for=a\r\n",
    "HTTP/1.0",
    "HTTP/1.1",
    "http://h",
    "CONNECT ",
    "OPTIONS ",
    "HEAD ",
    "101",
    "103",
    "204",
    "304",
    "200",
    "\"",
    "{",
    "}",
    "[",
    "]",
    "= true\n",
    "\"1s\"",
    "-1",
    "99999999999999999999",
    "PROXY TCP6 ",
    "::1",
    "::ffff:1.2.3.4",
    "é",
    "\u{7f}",
];

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut fastrand::Rng) {
    let at = rng.usize(..=bytes.len());
    // A field is most useful at the start of a line.
    let line_starts: Vec<usize> = (1..=bytes.len()).filter(|&end| bytes[end - 1] == b'\n').collect();
    match rng.u8(..7) {
        0 if at < bytes.len() => bytes[at] = rng.u8(..),
        1 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
        2 => {
            let end = (at + rng.usize(..8)).min(bytes.len());
            bytes.drain(at..end);
        }
        3 | 4 => {
            let at = match &line_starts[..] {
                [] => at,
                starts if rng.bool() => starts[rng.usize(..starts.len())],
                _ => at,
            };
            let word = WORDS[rng.usize(..WORDS.len())];
            bytes.splice(at..at, word.bytes());
        }
        5 => {
            let other = &seeds[rng.usize(..seeds.len())];
            let from = rng.usize(..=other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let end = (at + rng.usize(..24)).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

fn read_corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn to_bytes(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn what_is_accepted_of_a_client_is_one_request_to_a_server() {
    let mut seeds = read_corpus("request_head");
    seeds.extend(to_bytes(&[
        "GET http://h:81?q HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "CONNECT h:443 HTTP/1.0\r\n\r\n",
        "OPTIONS http://h HTTP/1.1\r\nHost: h\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n",
        "POST /a/b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\nTE: trailers\r\n\
         Connection: x-a, TE\r\nX-A: 1\r\nX-Forwarded-For: 1.1.1.1\r\nCookie: a\r\n\r\nhello",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n",
    ]));
    run_mutations(&seeds, 20, super::forward_request);
}

#[test]
fn what_is_accepted_of_a_server_is_one_response_to_a_client() {
    let mut seeds = read_corpus("response_head");
    seeds.extend(to_bytes(&[
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\nLink: </a>\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nConnection: content-length\r\n\r\n",
        "HTTP/1.1 405 No\r\nContent-Length: 5\r\nServer: a\r\nX-Secret: b\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ]));
    run_mutations(&seeds, 10, super::forward_response);
}

#[test]
fn a_client_hello_has_the_same_names_however_it_arrives() {
    run_mutations(&read_corpus("client_hello"), 10, super::client_hello);
}

#[test]
fn an_answer_of_a_name_server_has_only_its_own_data() {
    run_mutations(&read_corpus("dns_answer"), 20, super::dns_answer);
}

#[test]
fn a_response_to_an_update_has_only_its_own_data() {
    run_mutations(&read_corpus("dns_update"), 20, super::dns_update);
}

#[test]
fn the_file_of_a_key_is_a_key_or_has_a_fault() {
    run_mutations(&read_corpus("tsig_key"), 20, super::tsig_key);
}

#[test]
fn a_response_of_an_acme_server_is_the_same_however_it_arrives() {
    run_mutations(&read_corpus("acme_response"), 20, super::acme_response);
}

#[test]
fn a_target_has_one_normal_form_and_stays_a_target() {
    let seeds = to_bytes(&[
        "/a/./b/../c%2fd%7Ee?x=/../",
        "/a//b/%2e%2E/%zz/%",
        "http://h/a/b",
        "http://h?q",
        "/.well-known/x",
        "*",
        "h:443",
        "/a",
        "/../..",
    ]);
    run_mutations(&seeds, 10, super::target);
}

#[test]
fn a_proxy_header_says_the_same_however_it_is_cut() {
    let mut seeds = to_bytes(&[
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65535\r\nGET / HTTP/1.1\r\n",
        "PROXY TCP6 ::1 2001:db8::2 1 2\r\n",
        "PROXY UNKNOWN anything\r\n",
    ]);
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    for rest in [
        &b"\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\0\x50\x01\xbbrest"[..],
        b"\x21\x11\0\x13\x01\x02\x03\x04\x05\x06\x07\x08\0\x50\x01\xbb\x04\0\x04abcd",
        b"\x20\0\0\0",
    ] {
        seeds.push([signature, rest].concat());
    }
    run_mutations(&seeds, 20, super::proxy_header);
}

#[test]
fn a_config_is_valid_or_has_a_message() {
    let seeds = to_bytes(&[
        "threads = 2\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         limits = { head = \"16k\", headers = 100 }\nforwarding = { via = false }\n\
         [pool.app]\nservers = [\"127.0.0.1:9001\"]\nqueue = { limit = 5, timeout = \"50ms\" }\n",
        "[listener.web]\nbind = [\"127.0.0.1:0\", \"unix:/tmp/x\"]\ntrusted = [\"10.0.0.0/8\"]\n\
         [[route]]\npath-prefix = \"/a\"\nrewrite-prefix = \"/b\"\nheader = { x-a = true }\n\
         rate-limit = { rate = 1.5, key = \"source\" }\npool = \"app\"\n\
         [[route]]\nhost = [\"*.example.org\"]\nredirect = { status = 301, location = \"/{path}\" }\n\
         [[route]]\npath-regex = \"^/v[0-9]+/\"\ndeny = 403\n\
         [pool.app]\nservers = [\"127.0.0.1:9001\"]\nbalance = \"round-robin\"\n",
    ]);
    run_mutations(&seeds, 100, super::config);
}

#[test]
fn problems_of_several_files_have_a_place_in_one_of_them() {
    run_mutations(&read_corpus("proxy_sources"), 8, super::sources);
}

#[test]
fn a_text_stays_in_its_place() {
    let seeds = [
        "https://{host}{1}{query}\n/evil.example/x",
        "/{name}{2:-x}#{header.x-a}\n//evil",
        "{{\"a\":\"{path}\"}}\n\"\\\r\n\0<",
        "{cookie.a}{query.b:-c}{status}{tls.client.pem}\nv",
        "cookie.user\n7",
        "{path}",
    ];
    let seeds: Vec<Vec<u8>> = seeds.map(|text| text.as_bytes().to_vec()).to_vec();
    run_mutations(&seeds, 20, super::template);
}

#[test]
fn credentials_keys_and_tokens_of_anyone_are_handled() {
    run_mutations(&read_corpus("proxy_auth"), 200, super::auth);
}

#[test]
fn entries_of_maps_are_found_by_their_keys() {
    run_mutations(&read_corpus("proxy_map"), 50, super::map);
}

#[test]
fn a_condition_or_its_opposite_holds() {
    let seeds = [
        "{ any = [{ path-prefix = \"/x\" }, { host = \"a.example\" }], not = { source = \"10.0.0.0/8\" } }",
        "{ all = [{ cookie = { user = \"7\" } }, { query = { q = true } }, { path-glob = \"/x/*\" }] }",
        "{ percent = 50, key = \"cookie.user\", weekday = [\"mon\", \"sun\"] }",
        "{ not = { not = { method = \"GET\", tls = false, time = \"22:00-06:00\" } } }",
    ];
    let seeds: Vec<Vec<u8>> = seeds.map(|text| text.as_bytes().to_vec()).to_vec();
    run_mutations(&seeds, 50, super::condition);
}
