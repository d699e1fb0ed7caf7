//! Tests of TLS in `weir proxy`, with peers that share no code with weir: openssl makes the
//! certificates; curl, Python and nginx are the other ends.

mod acme;
mod acme_dns;
mod acme_replicas;
mod authority;
mod client;
mod fairness;
mod listeners;
mod origin;
mod pools;
mod reloads;
mod revocation;
mod settings;
mod sni;
mod tunnels;
mod upgrades;

use serde_json::Value;

use crate::support::proxy_under_test::ProxyUnderTest;

/// TLS handshakes of clients; labels `listener` and `result`.
const HANDSHAKES: &str = "weir_tls_handshakes_total";
/// TLS handshakes with servers; labels `pool`, `server` and `result`.
const SERVER_HANDSHAKES: &str = "weir_server_tls_handshakes_total";

/// First lines of every config here.
const CONFIG_HEAD: &str = "threads = 1\nadmin = \"127.0.0.1:0\"\n\
                           [[log]]\nto = \"file:HOME/access.json\"\n\
                           [[log]]\nto = \"file:HOME/access.haproxy\"\nformat = \"haproxy\"\n";

/// Starts a proxy with a listener and one pool; the texts are further lines of both.
fn start_proxy(listener: &str, servers: &[&str], pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config(listener, servers, pool))
}

fn config(listener: &str, servers: &[&str], pool: &str) -> String {
    format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
         [pool.app]\nservers = {servers:?}\n{pool}\n"
    )
}

/// Returns the lines of the JSON log that contain a text, as soon as there are so many.
fn json_lines(proxy: &ProxyUnderTest, part: &str, count: usize) -> Vec<Value> {
    let lines = proxy.wait_for_lines_with("access.json", part, count);
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}
