//! Tests of HTTP/2 between clients and `weir proxy`, with peers that share no code with weir: Python's
//! h2, curl, nghttp and h2load as clients, scripted servers of HTTP/1.1 behind the proxy.

mod abuse;
mod clients;
mod conformance;
mod lifecycle;
mod messages;
mod tunnels;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::Process;
use crate::support::faulty_origins::{LaxReader, field, ok_response};
use crate::support::peers::ScriptedServer;
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::tls_peers::python;

/// First lines of every config here.
const CONFIG_HEAD: &str = "threads = 1\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
                           [[log]]\nto = \"file:HOME/access.json\"\n";
/// Streams of HTTP/2; label `listener`.
const STREAMS: &str = "weir_http2_streams_total";
/// Streams in progress.
const STREAMS_OPEN: &str = "weir_http2_streams_open";
/// Resets of streams; labels `listener`, `from` and `code`.
const RESETS: &str = "weir_http2_resets_total";
/// Announced ends of connections; labels `listener`, `from` and `code`.
const GOAWAYS: &str = "weir_http2_goaways_total";
/// Connections whose PING got no response; label `listener`.
const PINGS_LOST: &str = "weir_http2_pings_lost_total";
/// Violations of the protocol; labels `listener` and `fault`.
const FAULTS: &str = "weir_http2_faults_total";

/// The client: a script with one function for each scenario.
pub(crate) const CLIENT: &str = include_str!("proxy_h2/client.py");

/// Starts a proxy with a listener and one server; the texts are further lines of the listener and of the
/// pool.
fn start_proxy(listener: &str, server: &str, pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config(listener, server, pool))
}

fn config(listener: &str, server: &str, pool: &str) -> String {
    format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
         [pool.app]\nservers = [\"{server}\"]\n{pool}\n"
    )
}

/// Returns whether Python has the module h2.
pub(crate) fn has_python_h2() -> bool {
    is_installed("python3", &["-c", "import h2.connection"])
}

/// Runs a scenario of the client to its end; returns what it prints.
fn run_client(proxy: &ProxyUnderTest, scenario: &str, arguments: &[&str]) -> String {
    let port = proxy.port().to_string();
    python(CLIENT, &[&[scenario, &port], arguments].concat())
}

/// Starts a scenario of the client that waits for this test.
fn start_client(proxy: &ProxyUnderTest, scenario: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new("python3");
    command.args(["-c", CLIENT, scenario, &proxy.port().to_string()]).args(arguments);
    Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
}

/// Returns the lines of the JSON log that contain a text, as soon as there are so many.
fn json_lines(proxy: &ProxyUnderTest, part: &str, count: usize) -> Vec<Value> {
    let lines = proxy.wait_for_lines_with("access.json", part, count);
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts a server of HTTP/1.1 whose behaviour depends on the path.
fn scripted_server() -> ScriptedServer {
    ScriptedServer::start(|peer| {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        while let Some(head) = reader.read_until(b"\r\n\r\n")? {
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or("").to_owned();
            match path.as_str() {
                "/early" => {
                    peer.send(&ok_response(b"no"))?;
                    continue;
                }
                "/early-chunked" => {
                    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n";
                    peer.send(head)?;
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    peer.send(b"0\r\n\r\n")?;
                    continue;
                }
                "/early-trailers" => {
                    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                    peer.send(&[&head[..], b"2\r\nno\r\n0\r\nX-Sum: 1\r\n\r\n"].concat())?;
                    continue;
                }
                "/early-close" => {
                    peer.send(b"HTTP/1.0 200 OK\r\n\r\nno")?;
                    peer.stream.shutdown(std::net::Shutdown::Write)?;
                    crate::support::faulty_origins::wait_for_close(peer);
                    return Ok(());
                }
                "/early-204" => {
                    peer.send(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
                    crate::support::faulty_origins::wait_for_close(peer);
                    return Ok(());
                }
                "/early-413" => {
                    peer.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")?;
                    continue;
                }
                "/stuck" => {
                    crate::support::faulty_origins::wait_for_close(peer);
                    return Ok(());
                }
                _ => {}
            }
            if field(&head, "expect").is_some() {
                peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let (body, trailers) = read_body(&mut reader, &head)?;
            match path.as_str() {
                "/echo" => peer.send(&ok_response(&body))?,
                "/head" => peer.send(&ok_response(head.as_bytes()))?,
                "/interim" => {
                    peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
                    peer.send(&ok_response(b"final"))?;
                }
                "/trailers" => {
                    let te = field(&head, "te").unwrap_or_default();
                    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
                    let text = format!("{head}{:x}\r\n{te}\r\n0\r\n{trailers}X-Answer: 1\r\n\r\n", te.len());
                    peer.send(text.as_bytes())?;
                }
                "/until-close" => return peer.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the end"),
                "/truncated" => return peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"),
                "/garbage" => return peer.send(b"garbage\r\n\r\n"),
                "/bad-chunk" => {
                    let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n";
                    return peer.send(text);
                }
                "/connection" => peer.send(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x-hop\r\nX-Hop: 1\r\n\
                      Keep-Alive: timeout=5\r\nX-Kept: 1\r\n\r\n",
                )?,
                _ => peer.send(&ok_response(&body))?,
            }
        }
        Ok(())
    })
}

/// Reads the body of a request: its content, and its trailer lines.
fn read_body<S: std::io::Read>(reader: &mut LaxReader<S>, head: &str) -> std::io::Result<(Vec<u8>, String)> {
    if field(head, "transfer-encoding").is_none() {
        let length = field(head, "content-length").map_or(0, |text| text.parse().unwrap());
        return reader.read_exactly(length).map(|body| (body, String::new()));
    }
    let (mut body, mut trailers) = (Vec::new(), String::new());
    loop {
        let size = usize::from_str_radix(read_line(reader)?.trim(), 16).map_err(std::io::Error::other)?;
        if size == 0 {
            break;
        }
        body.extend(reader.read_exactly(size)?);
        reader.read_exactly(2)?;
    }
    loop {
        let line = read_line(reader)?;
        if line.trim().is_empty() {
            return Ok((body, trailers));
        }
        trailers.push_str(&line);
    }
}

fn read_line<S: std::io::Read>(reader: &mut LaxReader<S>) -> std::io::Result<String> {
    let line = reader.read_until(b"\r\n")?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&line).into_owned())
}
