//! Heads, bodies and trailers: their translation, and the refusal of those that HTTP/1.1 could read in
//! another way.

use super::*;
use crate::support::shared_machine;

#[test]
fn interim_responses_trailers_and_expectations_are_forwarded() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("", &server.authority, "");
    let text = run_client(&proxy, "exchange", &["/interim"]);
    assert_eq!(text, "200 5 end interim ['103'] trailers None\n");
    let text = run_client(&proxy, "trailers", &[]);
    // The server learns that trailers are accepted, gets the client's, and its own arrive.
    assert_eq!(text, "200 8 end trailers {'x-sum': '5', 'x-answer': '1'}\n");
    // A length behind the content has no meaning: it is dropped.
    for length in ["content-length=5", "content-length=999", "content-length=x", "content-length="] {
        assert_eq!(run_client(&proxy, "trailers", &[length]), text, "{length}");
    }
    assert_eq!(run_client(&proxy, "trailers", &["content-length=0", "content-length=1"]), text);
    let text = run_client(&proxy, "trailers", &["host=a"]);
    assert!(text.starts_with("None 0 open reset PROTOCOL_ERROR"), "{text}");
    assert_eq!(run_client(&proxy, "expect", &[]), "200 4 end ['100'] body\n");
    let text = run_client(&proxy, "exchange", &["/until-close"]);
    assert_eq!(text, "200 13 end interim [] trailers None\n");
}

#[test]
fn servers_learn_the_origin_of_a_request() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("trusted = []", &server.authority, "");
    let head = run_client(&proxy, "body", &["/head", "cookie=a=1", "cookie=b=2", "x-forwarded-for=1.1.1.1"]);
    for line in [
        "GET /head HTTP/1.1\r\n",
        "\r\nHost: test\r\n",
        "\r\ncookie: a=1; b=2\r\n",
        "\r\nX-Forwarded-For: 127.0.0.1\r\n",
        "\r\nX-Forwarded-Proto: http\r\n",
        "\r\nVia: 2.0 weir\r\n",
    ] {
        assert!(head.contains(line), "{line:?} is not in {head:?}");
    }
    assert!(!head.contains("1.1.1.1"), "{head}");
    let text = run_client(&proxy, "fields", &["/connection"]);
    assert!(text.contains("'x-kept': '1'"), "{text}");
    for gone in ["x-hop", "keep-alive", "connection", "transfer-encoding"] {
        assert!(!text.contains(&format!("'{gone}'")), "{gone}: {text}");
    }
}

#[test]
fn incomplete_responses_reset_their_stream() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("", &server.authority, "retries = 0");
    for (path, expected, end) in [
        ("/truncated", "200 4 open reset INTERNAL_ERROR", "server_closed"),
        ("/bad-chunk", "502", "bad_response"),
        ("/garbage", "502", "bad_response"),
    ] {
        let text = run_client(&proxy, "exchange", &[path]);
        assert!(text.starts_with(expected), "{path}: {text}");
        let line = &json_lines(&proxy, path, 1)[0];
        assert_eq!(line["end"], end, "{line}");
    }
    let sent = [("from", "proxy"), ("code", "internal_error")];
    assert_eq!(proxy.metrics().sum_known(RESETS, &sent), 1.0);
    proxy.assert_all_returned();
}

#[test]
fn an_early_response_ends_the_request() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("", &server.authority, "");
    let text = run_client(&proxy, "early", &[]);
    assert_eq!(text, "200 2 end reset NO_ERROR\nafter 200 0 end\n");
    let line = &json_lines(&proxy, "/early", 1)[0];
    assert_eq!((&line["end"], &line["status"]), (&"done".into(), &200.into()), "{line}");
    proxy.assert_all_returned();
}

#[test]
fn a_client_that_goes_on_sending_after_the_response_gets_no_reset() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let routes = "[[route]]\npath = \"/deny\"\ndeny = 403\n\
                  [[route]]\npath = \"/return\"\nreturn = { status = 404, body = \"no\" }\n\
                  [[route]]\npath = \"/redirect\"\nredirect = { location = \"/x\" }\n\
                  [[route]]\npath = \"/limited\"\nrate-limit = { rate = 0.001, burst = 1 }\npool = \"app\"\n\
                  [[route]]\npool = \"app\"\n";
    let plain = config("body-max = '1m'", &server.authority, "").replace("\npool = \"app\"\n", "\n");
    let proxy = ProxyUnderTest::weir(&format!("{plain}{routes}"));
    // The only token of its route.
    assert_eq!(proxy.get("/limited").status, 200);
    let text = run_client(&proxy, "early_answers", &["/deny", "/return", "/redirect", "/early", "/limited"]);
    for line in text.lines() {
        assert!(line.contains(" end after 200 "), "{text}");
    }
    assert_eq!(text.lines().count(), 10, "{text}");
    assert_eq!(proxy.metrics().sum_known(RESETS, &[("from", "proxy")]), 0.0);
    proxy.assert_all_returned();
}

/// Sizes of bodies around the windows of a stream, and of a connection.
const BLIND_SIZES: [&str; 4] = ["100000", "200000", "1000000", "3000000"];

/// Starts a proxy with answers of its own, one pool of HTTP/1.1, and one of HTTP/2.
fn start_early_proxy(server: &str, origin: &str) -> ProxyUnderTest {
    let plain = config("body-max = '17m'", server, "").replace("\npool = \"app\"\n", "\n");
    ProxyUnderTest::weir(&format!(
        "{plain}[pool.h2]\nservers = [\"{origin}\"]\nhttp = \"2\"\n\
         [[route]]\npath = \"/deny\"\ndeny = 403\n\
         [[route]]\npath = \"/return\"\nreturn = {{ status = 200, body = \"hello\" }}\n\
         [[route]]\npath = \"/empty\"\nreturn = {{ status = 204 }}\n\
         [[route]]\npath = \"/redirect\"\nredirect = {{ location = \"/x\" }}\n\
         [[route]]\npath = \"/h2\"\npool = \"h2\"\n\
         [[route]]\npool = \"app\"\n"
    ))
}

/// Early answers: each target and its status.
const EARLY: [(&str, &str); 11] = [
    ("/deny", "403"),
    ("/return", "200"),
    ("/empty", "204"),
    ("/redirect", "302"),
    ("/early", "200"),
    ("/early-chunked", "200"),
    ("/early-trailers", "200"),
    ("/early-close", "200"),
    ("/early-413", "413"),
    ("/h2?B=0&s=100", "200"),
    ("/h2?B=0&r=413", "413"),
];

#[test]
fn a_client_that_reads_nothing_behind_an_early_response_can_send_the_rest() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let origin = crate::support::OriginProcess::start(&["-t", "1"]);
    let proxy = start_early_proxy(&server.authority, &origin.authority);
    // Responses without length end behind the request.
    let is_held =
        |target: &str| ["/empty", "/early-chunked", "/early-trailers", "/early-close"].contains(&target);
    for (target, status) in EARLY.into_iter().filter(|(target, _)| !is_held(target)) {
        for (length, known) in BLIND_SIZES.into_iter().flat_map(|size| [(size, "known"), (size, "unknown")]) {
            let text = run_client(&proxy, "blind_upload", &[target, length, known]);
            assert_eq!(text, format!("{status} complete 200\n"), "{target} {length} {known}");
        }
    }
    let (_, port) = origin.authority.rsplit_once(':').unwrap();
    for (length, known) in BLIND_SIZES.into_iter().flat_map(|size| [(size, "known"), (size, "unknown")]) {
        let text = python(CLIENT, &["blind_upload", port, "/?B=0&s=100", length, known]);
        assert_eq!(text, "200 complete 200\n", "serve {length} {known}");
    }
    // What does not fit into the windows ends at once, the response is complete.
    for (target, length) in [("/return", "16777217"), ("/early", "16777217"), ("/h2?B=0&s=100", "17000000")] {
        let text = run_client(&proxy, "huge_upload", &[target, length]);
        assert!(text.contains(" end reset NO_ERROR 200"), "{target} {text}");
    }
    let text = python(CLIENT, &["huge_upload", port, "/?B=0&s=100", "30000000"]);
    assert_eq!(text, "200 100 end reset NO_ERROR 200\n");
    proxy.assert_all_returned();
}

#[test]
fn curl_does_not_wait_after_an_early_response() {
    let _shared = shared_machine();
    let server = scripted_server();
    let origin = crate::support::OriginProcess::start(&["-t", "1"]);
    let proxy = start_early_proxy(&server.authority, &origin.authority);
    let directory = crate::support::temp_dir();
    let file = directory.path().join("upload");
    let data = format!("@{}", file.display());
    let post = |authority: &str, target: &str| {
        let format = ["--http2-prior-knowledge", "-w", "%{http_code}", "-o", "/dev/null"];
        let url = format!("http://{authority}{target}");
        crate::support::tls_peers::curl(&[&format[..], &["--data-binary", &data, &url]].concat())
    };
    for size in BLIND_SIZES {
        std::fs::write(&file, vec![b'x'; size.parse().unwrap()]).unwrap();
        for (target, status) in EARLY {
            let (code, stdout) = post(proxy.authority(), target);
            assert_eq!((code, &*String::from_utf8_lossy(&stdout)), (0, status), "{target} {size}");
        }
        let (code, stdout) = post(&origin.authority, "/?B=0&s=100");
        assert_eq!((code, &*String::from_utf8_lossy(&stdout)), (0, "200"), "serve {size}");
    }
    // It drops the response that ends with a reset.
    std::fs::write(&file, vec![b'x'; 17_000_000]).unwrap();
    for target in ["/return", "/early"] {
        let (code, _) = post(proxy.authority(), target);
        assert!(matches!(code, 0 | 92), "{target} {code}");
    }
    proxy.assert_all_returned();
}

#[test]
fn requests_that_could_be_read_differently_are_refused() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("", &server.authority, "");
    let text = run_client(&proxy, "malformed", &[]);
    assert_eq!(text.lines().count(), 26, "{text}");
    for line in text.lines() {
        assert!(line.ends_with(" reset PROTOCOL_ERROR") || line.ends_with(" response 400"), "{line}");
    }
    let text = run_client(&proxy, "lengths", &[]);
    assert_eq!(text, "3 ['PROTOCOL_ERROR']\n7 ['PROTOCOL_ERROR']\n");
    // Only bodies are found when the server may have the head already.
    let targets = proxy.wait_for_lines_with("access.json", "/length", 2);
    assert_eq!(targets.len(), 2);
    let log = std::fs::read_to_string(proxy.file("access.json")).unwrap();
    let mut lines = log.lines().filter(|line| line.contains("/malformed"));
    assert!(lines.all(|line| line.contains("\"status\":400") && line.contains("\"server\":null")), "{log}");
    assert!(proxy.metrics().sum_known(FAULTS, &[]) >= 26.0);
}

#[test]
fn a_head_over_the_limits_is_answered() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("limits = { head = '4k', headers = 20 }", &server.authority, "");
    assert_eq!(run_client(&proxy, "large_head", &["2000"]), "200 0 end\n200 0 end\n");
    let text = run_client(&proxy, "large_head", &["8000"]);
    assert!(text.starts_with("431 ") && text.ends_with("\n200 0 end\n"), "{text}");
    let line = &json_lines(&proxy, "\"status\":431", 1)[0];
    assert_eq!((&line["end"], &line["refusal"]), (&"bad_request".into(), &"head_too_large".into()), "{line}");
    // A head of more than twice the limit ends the connection.
    assert_eq!(run_client(&proxy, "large_head", &["12000"]), "None 0 open\nNone 0 open\n");
    assert_eq!(proxy.metrics().sum_known(FAULTS, &[("fault", "block_too_large")]), 1.0);
}

#[test]
fn heads_that_are_answered_are_logged_with_what_could_be_read() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let limits = "limits = { head = '4k', headers = 20, target = '2k' }";
    let proxy = start_proxy(limits, &server.authority, "");
    let text = run_client(&proxy, "rejected_heads", &[]);
    assert_eq!(text, "431 200\n431 200\n400 200\n417 200\n414 200\n431 200\n431 200\n");
    let lines = json_lines(&proxy, "\"end\":\"bad_request\"", 7);
    for (at, line) in lines.iter().enumerate() {
        assert_eq!((&line["method"], &line["version"]), (&"PUT".into(), &"HTTP/2.0".into()), "{line}");
        // The path of the last one comes behind a field that is over the limit.
        let has_path = line["target"].as_str().is_some_and(|target| target.starts_with("/rejected"));
        assert_eq!(has_path, at < 6, "{line}");
    }
}

#[test]
fn windows_stop_an_upload_and_a_slow_reader_stops_only_itself() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let (server, origin) = (scripted_server(), crate::support::OriginProcess::start(&["-t", "1"]));
    let proxy = start_proxy("", &server.authority, "");
    assert_eq!(run_client(&proxy, "upload", &["100000000"]), "bounded True\n");
    let proxy = start_proxy("", &origin.authority, "");
    let text = run_client(&proxy, "slow_reader", &[]);
    assert_eq!(text, "other 200 10 end\nblocked 1\nblocked 200 204800 end\n");
    proxy.assert_all_returned();
}
