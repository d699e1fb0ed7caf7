//! Content that the proxy makes of what servers and files have: compression, and files of a route.

mod bandwidth;
mod compression;
mod compression_flow;
mod files;

use std::process::Command;

use crate::support::faulty_origins::field;
use crate::support::temp_dir;

/// A response as curl got it.
struct Fetched {
    /// Exit code of curl.
    code: i32,
    status: u16,
    head: String,
    /// Content without its coding.
    body: Vec<u8>,
}

impl Fetched {
    fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }
}

/// Sends a request with curl, which decodes the content.
fn curl(url: &str, args: &[&str]) -> Fetched {
    let directory = temp_dir();
    let file = |name: &str| directory.path().join(name);
    let mut command = Command::new("curl");
    command.args([
        "-q",
        "-s",
        "-k",
        "--compressed",
        "--path-as-is",
        "--max-time",
        "20",
        "-H",
        "Accept-Encoding:",
    ]);
    command.arg("-D").arg(file("head")).arg("-o").arg(file("body")).args(args).arg(url);
    let code = command.status().unwrap().code().unwrap_or(-1);
    let head = std::fs::read_to_string(file("head")).unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|status| status.trim().parse().ok()).unwrap_or(0);
    Fetched { code, status, head, body: std::fs::read(file("body")).unwrap_or_default() }
}
