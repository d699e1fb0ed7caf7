//! Tests of traces: the context that servers get, and the spans that a collector reads by the published messages of
//! OTLP. Collectors that are slow, or gone, cost spans and nothing else.

#![expect(clippy::disallowed_types, reason = "threads of the test share what they have seen")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use serde_json::Value;

use crate::proxy_interop::go_program;
use crate::support::client::Client;
use crate::support::faulty_origins::{RefusingPort, ok_response, respond_to_each, take_pipes};
use crate::support::metrics::Metrics;
use crate::support::peers::ScriptedServer;
use crate::support::proxies::succeeds;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, Process, shared_machine, within};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PARENT_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A server that answers `/fail` with 500, and the rest with the trace fields that it got.
fn telling_server() -> ScriptedServer {
    respond_to_each(|request, _| {
        let field = |name| request.field(name).unwrap_or_else(|| "-".to_owned());
        Some(match request.target() {
            "/fail" => b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => ok_response(format!("{} {}", field("traceparent"), field("tracestate")).as_bytes()),
        })
    })
}

fn config(tracing: &str, trusted: &str, servers: &[&str]) -> String {
    format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\n[tracing]\n{tracing}\n[[log]]\nto = \"file:HOME/log\"\n\
         format = \"{{trace.id}} {{trace.span}} {{target}}\"\n[[log]]\nto = \"file:HOME/json\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\n{trusted}\n[[route]]\nname = \"main\"\npool = \"app\"\n\
         [pool.app]\nservers = {servers:?}\nretries = 2\n"
    )
}

/// Reloads another config, and waits until it is in force.
fn reload(proxy: &ProxyUnderTest, config: &str) {
    let reloads = |metrics: &Metrics| metrics.sum("weir_reloads_total", &[]);
    let before = reloads(&proxy.metrics());
    proxy.reload(config);
    proxy.metrics_until("a reload", |metrics| reloads(metrics) > before);
}

fn counted(proxy: &ProxyUnderTest, result: &str) -> f64 {
    proxy.metrics().sum_known("weir_trace_spans_total", &[("result", result)])
}

/// A collector by the messages of OTLP's authors.
struct GoCollector {
    _process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
    _stdin: ChildStdin,
}

impl GoCollector {
    fn start(program: &std::path::Path) -> Self {
        let mut command = Command::new(program);
        command.arg("collect-traces").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let (stdin, stdout) = take_pipes(&mut process);
        let mut lines = BufReader::new(stdout).lines();
        let url = format!("http://127.0.0.1:{}", lines.next().unwrap().unwrap());
        Self { _process: process, lines, url, _stdin: stdin }
    }

    /// Returns the spans up to the one with this name, which is the last of its request.
    fn spans_until(&mut self, last: &str) -> Vec<Value> {
        let mut spans: Vec<Value> = Vec::new();
        while spans.last().is_none_or(|span| span["name"] != last) {
            spans.push(serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap());
        }
        spans
    }
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

#[test]
fn a_collector_gets_the_spans_of_a_request_and_its_server_the_context() {
    let _shared = shared_machine();
    let Some(program) = go_program() else { return };
    let (server, mut collector) = (telling_server(), GoCollector::start(program));
    let tracing = format!(
        "collector = \"{}\"\nsample = 1.0\nservice-name = \"edge\"\n\
         headers = {{ x-api-key = \"k1\" }}\nattributes = {{ \"service.namespace\" = \"shop\" }}",
        collector.url
    );
    let trusted = "trusted = [\"127.0.0.1\"]";
    let proxy = ProxyUnderTest::weir(&config(&tracing, trusted, &[&server.authority]));
    let fields = format!("Host: h\r\ntraceparent: {PARENT}\r\ntracestate: a=1\r\nuser-agent: test\r\n");
    let response = proxy.client().get_with_fields("/x?token=geheim", &fields);
    let spans = collector.spans_until("body");
    let own = named(&spans, "GET main")[0];
    assert_eq!((&own["trace"], &own["parent"]), (&PARENT_TRACE.into(), &"b7ad6b7169203331".into()));
    assert_eq!((&own["kind"], &own["status"]), (&"SPAN_KIND_SERVER".into(), &"STATUS_CODE_UNSET".into()));
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/x"),
        ("url.query", "token=***"),
        ("http.response.status_code", "200"),
        ("user_agent.original", "test"),
        ("weir.end", "done"),
    ] {
        assert_eq!(own["attributes"][key], value, "{own}");
    }
    assert_eq!(own["resource"]["service.name"], "edge");
    assert_eq!((&own["resource"]["service.namespace"], &own["key"]), (&"shop".into(), &"k1".into()));
    let attempt = named(&spans, "attempt")[0];
    assert_eq!(attempt["parent"], own["span"]);
    assert_eq!(named(&spans, "body")[0]["parent"], attempt["span"]);
    // The server's spans are below that of the proxy.
    let context = format!("00-{PARENT_TRACE}-{}-01 a=1", own["span"].as_str().unwrap());
    assert_eq!(String::from_utf8(response.body).unwrap(), context);
    let line = format!("{PARENT_TRACE} {} /x?token=***", own["span"].as_str().unwrap());
    assert_eq!(proxy.wait_for_lines("log", 1), [line]);
    let json: Value = serde_json::from_str(&proxy.wait_for_lines("json", 1)[0]).unwrap();
    assert_eq!(json["trace_id"], PARENT_TRACE);
}

#[test]
fn attempts_that_failed_and_failures_have_spans_without_a_sample() {
    let _shared = shared_machine();
    let Some(program) = go_program() else { return };
    let (server, refusing) = (telling_server(), RefusingPort::new());
    let mut collector = GoCollector::start(program);
    let tracing = format!("collector = \"{}\"\nsample = 0.0", collector.url);
    let proxy = ProxyUnderTest::weir(&config(&tracing, "", &[&server.authority]));
    for _ in 0..4 {
        // Strangers decide nothing, and their ids are not taken over.
        let context = proxy.client().get_with_fields("/", &format!("Host: h\r\ntraceparent: {PARENT}\r\n"));
        let context = String::from_utf8(context.body).unwrap();
        assert!(context.ends_with("-00 -") && !context.contains(PARENT_TRACE), "{context}");
    }
    assert_eq!(proxy.get("/fail").status, 500);
    let spans = collector.spans_until("body");
    let own = named(&spans, "GET main")[0];
    assert_eq!(
        (&own["status"], &own["attributes"]["error.type"]),
        (&"STATUS_CODE_ERROR".into(), &"500".into())
    );
    let budget = "retry-budget = { ratio = 1.0 }\n";
    let failing = config(&tracing, "", &[&refusing.authority]) + budget;
    reload(&proxy, &failing);
    assert_eq!(proxy.get("/").status, 503);
    // Three attempts, of which none connected.
    let mut spans = collector.spans_until("attempt");
    (0..2).for_each(|_| spans.extend(collector.spans_until("attempt")));
    let failed: Vec<&Value> =
        named(&spans, "attempt").into_iter().filter(|span| span["status"] == "STATUS_CODE_ERROR").collect();
    assert_eq!(failed.len(), 3, "the first try and two retries: {spans:?}");
    assert_eq!(failed[0]["attributes"]["error.type"], "connect_failed");
    assert_eq!(named(&spans, "GET main")[0]["attributes"]["http.request.resend_count"], "2");
}

#[test]
fn a_collector_that_does_not_answer_delays_no_request_and_no_end() {
    let _shared = shared_machine();
    let server = telling_server();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let stuck = ScriptedServer::start(move |peer| {
        peer.request()?;
        // Until the test ends.
        let _ = gate.lock().unwrap().recv();
        Ok(())
    });
    let tracing = format!("collector = \"{}\"\nsample = 1.0\nrequests-rate = \"100k/s\"", stuck.url());
    let proxy = ProxyUnderTest::weir(&config(&tracing, "", &[&server.authority]));
    let mut client = proxy.client();
    // More than may wait.
    let lost = within(EVENT_TIMEOUT, || {
        (0..2_000).for_each(|_| assert_eq!(client.get("/").status, 200));
        counted(&proxy, "overflow") > 0.0
    });
    assert!(lost, "nothing was dropped");
    assert_eq!(counted(&proxy, "exported"), 0.0);
    drop((client, proxy, release));
}

#[test]
fn a_busy_collector_gets_the_spans_later_and_a_missing_one_costs_them() {
    let _shared = shared_machine();
    let server = telling_server();
    let requests = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&requests);
    let busy = respond_to_each(move |_, _| {
        Some(match seen.fetch_add(1, Ordering::Relaxed) {
            0 => b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => ok_response(b""),
        })
    });
    let tracing = |authority: &str| format!("collector = \"http://{authority}\"\nsample = 1.0");
    let proxy = ProxyUnderTest::weir(&config(&tracing(&busy.authority), "", &[&server.authority]));
    proxy.get("/");
    assert!(within(EVENT_TIMEOUT, || counted(&proxy, "exported") > 0.0));
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    let missing = RefusingPort::new();
    reload(&proxy, &config(&tracing(&missing.authority), "", &[&server.authority]));
    proxy.get("/");
    assert!(within(EVENT_TIMEOUT, || counted(&proxy, "failed") > 0.0), "{}", proxy.stderr());
    assert!(proxy.stderr().contains("spans are lost"), "{}", proxy.stderr());
    // Without the table, fields pass unchanged.
    let without = config("", "", &[&server.authority]).replace("[tracing]\n", "");
    reload(&proxy, &without);
    let response = proxy.client().get_with_fields("/", &format!("Host: h\r\ntraceparent: {PARENT}\r\n"));
    assert_eq!(response.body, format!("{PARENT} -").as_bytes());
}

#[test]
fn requests_over_the_rate_have_no_spans() {
    let _shared = shared_machine();
    let (server, collector) = (telling_server(), respond_to_each(|_, _| Some(ok_response(b""))));
    let tracing = format!("collector = \"{}\"\nsample = 1.0\nrequests-rate = \"1/h\"", collector.url());
    let proxy = ProxyUnderTest::weir(&config(&tracing, "", &[&server.authority]));
    let mut client = proxy.client();
    (0..20).for_each(|_| drop(client.get("/")));
    // A core has one token from its start.
    assert!(counted(&proxy, "rate") >= 18.0);
}

/// Reads OpenMetrics with the parser of the Prometheus client; prints the exemplars, and the families by type.
const READ_OPENMETRICS: &str = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
found, types = [], {}
for family in text_string_to_metric_families(sys.stdin.read()):
    types[family.name] = family.type
    for sample in family.samples:
        if sample.exemplar:
            found.append({"name": sample.name, "labels": sample.labels, "exemplar": sample.exemplar.labels,
                          "value": sample.exemplar.value, "time": float(sample.exemplar.timestamp)})
print(json.dumps({"exemplars": found, "types": types}))
"#;

/// Returns the head and the content of the metrics in OpenMetrics.
fn openmetrics(proxy: &ProxyUnderTest) -> (String, String) {
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let fields = format!("Host: localhost\r\nAccept: {accept}\r\n");
    let response = Client::connect(proxy.admin()).get_with_fields("/metrics", &fields);
    assert_eq!(response.status, 200, "{}", response.head);
    (response.head, String::from_utf8(response.body).unwrap())
}

/// Returns what the parser found; `None`: it is not here.
fn parsed(text: &str) -> Option<Value> {
    let check = ["-c", "import prometheus_client.openmetrics.parser"];
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(|python| succeeds(python, &check))
    else {
        test_needs::skip("prometheus-client", "no Python with prometheus_client here");
        return None;
    };
    let mut command = Command::new(python);
    command
        .args(["-c", READ_OPENMETRICS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn buckets_have_the_traces_of_recorded_requests_as_exemplars() {
    let _shared = shared_machine();
    let (server, collector) = (telling_server(), respond_to_each(|_, _| Some(ok_response(b""))));
    let tracing = |sample: &str| format!("collector = \"{}\"\nsample = {sample}", collector.url());
    let proxy = ProxyUnderTest::weir(&config(&tracing("0.0"), "", &[&server.authority]));
    // A request that is not recorded is no exemplar; one that failed is recorded whatever the sample.
    assert_eq!(proxy.get("/").status, 200);
    assert!(!openmetrics(&proxy).1.contains(" # {"));
    let first: Value = serde_json::from_str(&proxy.wait_for_lines("json", 1)[0]).unwrap();
    assert_eq!(proxy.get("/fail").status, 500);
    reload(&proxy, &config(&tracing("1.0"), "", &[&server.authority]));
    (0..5).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let lines = proxy.wait_for_lines("json", 7);
    let rows: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (head, text) = openmetrics(&proxy);
    assert!(
        head.to_ascii_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    let Some(found) = parsed(&text) else { return };
    assert_eq!(
        (&found["types"]["weir_requests"], &found["types"]["weir_request_seconds"]),
        (&"counter".into(), &"histogram".into())
    );
    let exemplars = found["exemplars"].as_array().unwrap();
    let count =
        |class: &str| exemplars.iter().filter(|exemplar| exemplar["labels"]["class"] == class).count();
    assert!(count("2xx") >= 1 && count("5xx") == 1, "{exemplars:#?}");
    for exemplar in exemplars {
        assert_eq!(
            (&exemplar["name"], &exemplar["labels"]["route"]),
            (&"weir_request_seconds_bucket".into(), &"main".into())
        );
        let row = rows.iter().find(|row| row["trace_id"] == exemplar["exemplar"]["trace_id"]);
        let row = row.unwrap_or_else(|| panic!("a trace of no request: {exemplar} {rows:#?}"));
        let status = row["status"].to_string();
        assert!(exemplar["labels"]["class"].as_str().unwrap().starts_with(&status[..1]), "{exemplar} {row}");
        let (value, bound) =
            (exemplar["value"].as_f64().unwrap(), exemplar["labels"]["le"].as_str().unwrap());
        assert_eq!((value * 1e6) as u64, row["total_us"].as_u64().unwrap(), "{exemplar} {row}");
        assert!(bound == "+Inf" || value <= bound.parse().unwrap(), "{exemplar}");
        assert!(exemplar["time"].as_f64().unwrap() > 1.6e9, "{exemplar}");
    }
    // The first request was not recorded.
    assert!(exemplars.iter().all(|exemplar| exemplar["exemplar"]["trace_id"] != first["trace_id"]));
    // Neither the other format nor a proxy without traces has any.
    let plain = Client::connect(proxy.admin()).get_with_fields("/metrics", "Host: localhost\r\n");
    assert!(!String::from_utf8(plain.body).unwrap().contains(" # {"));
    reload(&proxy, &config("", "", &[&server.authority]).replace("[tracing]\n", ""));
    let (_, text) = openmetrics(&proxy);
    assert!(!text.contains(" # {"));
    assert!(parsed(&text).unwrap()["exemplars"].as_array().unwrap().is_empty());
}
