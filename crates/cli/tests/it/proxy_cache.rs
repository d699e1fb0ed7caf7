//! Tests of `weir proxy` with a cache: what is stored and shared, what is not, and its bounds. Responses are made stale
//! by their `Age`, so that no test waits for time to pass.

#![expect(clippy::disallowed_types, reason = "threads of the test share what they have seen")]

mod bounds;
mod coalescing;
mod disk;
mod parts;
mod purges;
mod sending;
mod stale;
mod storing;

use std::sync::{Arc, Mutex};

use crate::support::client::Response;
use crate::support::faulty_origins::{LaxMessage, field, respond_to_each};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::run_weir;

const RESULTS: &str = "weir_cache_requests_total";
const NOT_STORED: &str = "weir_cache_not_stored_total";
const RESPONSES: &str = "weir_cache_responses";
const BYTES: &str = "weir_cache_bytes";
const WAITING: &str = "weir_cache_waiting_requests";

/// First lines of every config here.
const CONFIG_HEAD: &str = "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
    [privileges]\nlandlock = false\n\
    [[log]]\nto = \"file:HOME/access.json\"\nformat = \"json\"\n\
    [listener.web]\nbind = \"127.0.0.1:0\"\n";

/// Returns a config with a route that has a cache; the texts follow the keys of the cache, of its use, and of the route.
fn config(server: &str, cache: &str, in_use: &str, route: &str) -> String {
    format!(
        "{CONFIG_HEAD}[cache.main]\n{cache}\n[[route]]\nname = \"main\"\npool = \"app\"\n{route}\n\
         cache = {{ use = \"main\"{in_use} }}\n[pool.app]\nservers = [\"{server}\"]\nretries = 0\n"
    )
}

fn start(server: &ScriptedServer, in_use: &str, route: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config(&server.authority, "", in_use, route))
}

/// A server that keeps the heads of its requests.
struct RecordingServer {
    server: ScriptedServer,
    heads: Arc<Mutex<Vec<String>>>,
}

impl RecordingServer {
    /// Starts a server; `respond` gets each request and its number, from 1.
    fn start(respond: impl Fn(&LaxMessage, usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&heads);
        let server = respond_to_each(move |request, _| {
            let number = {
                let mut heads = kept.lock().unwrap();
                heads.push(request.head.clone());
                heads.len()
            };
            Some(respond(request, number))
        });
        Self { server, heads }
    }

    /// Starts a server whose responses have these fields, and their number as content.
    fn with_fields(fields: &'static str) -> Self {
        Self::start(move |_, number| response(fields, &format!("response {number}")))
    }

    fn requests(&self) -> usize {
        self.heads.lock().unwrap().len()
    }

    fn head(&self, index: usize) -> String {
        self.heads.lock().unwrap()[index].clone()
    }
}

/// Returns a response with these lines and this content.
fn response(fields: &str, content: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{content}", content.len()).into_bytes()
}

fn get(proxy: &ProxyUnderTest, target: &str, fields: &str) -> Response {
    proxy.client().get_with_fields(target, &format!("Host: h\r\n{fields}"))
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).unwrap()
}

fn cache_status(response: &Response) -> String {
    field(&response.head, "cache-status").unwrap_or_default()
}

/// Runs a command of `weir ctl` to its success; returns its output.
fn ctl(proxy: &ProxyUnderTest, command: &[&str]) -> String {
    let socket = proxy.file("weir.sock");
    let run = run_weir(&[&["ctl", "--socket", socket.to_str().unwrap()], command].concat());
    assert_eq!(run.code, 0, "{command:?}: {}", run.stderr);
    run.stdout
}
