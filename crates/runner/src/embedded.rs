//! The embedded origin: another weir process, so that its CPU time is separate from the
//! generator's. It ends with this process in every case.

mod virtual_link;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::failure::Failure;

pub use self::virtual_link::{CLIENT_INTERFACE, with_virtual_link};

/// An origin that runs as long as this value lives.
#[derive(Debug)]
pub struct Origin {
    child: Child,
    /// Start of its URLs: scheme and authority.
    base_url: String,
}

impl Origin {
    /// Starts one on a port that the kernel chooses, with TLS and a self-signed certificate if
    /// `uses_tls`.
    pub fn start(threads: usize, uses_tls: bool) -> Result<Self, Failure> {
        Self::spawn(&["--listen", "127.0.0.1:0", "--threads", &threads.to_string()], uses_tls)
    }

    /// Starts one with these flags, in the network namespace of this thread.
    fn spawn(flags: &[&str], uses_tls: bool) -> Result<Self, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::cannot("the embedded origin", why);
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut child = Command::new(program)
            .arg("serve")
            .args(flags)
            .args(["--until-stdin-closes"])
            .args(uses_tls.then_some("--tls-self-signed"))
            .env(record::control::NO_DEFAULTS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its final output is of no interest; the reason of a failed start is.
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(|error| failed(&error))?;
        }
        let url = line.split_whitespace().find(|word| word.starts_with("http"));
        match url {
            Some(url) => Ok(Self { base_url: url.trim_end_matches('/').to_owned(), child }),
            None => {
                let mut why = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    // Without its error message, only the failed start can be reported.
                    let _ = stderr.read_to_string(&mut why);
                }
                let _ = child.wait();
                Err(failed(&format!("it did not start: {}", why.trim())))
            }
        }
    }

    /// Returns a URL with a response body of `size` bytes.
    pub fn url(&self, size: u64) -> String {
        format!("{}/?s={size}", self.base_url)
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // It runs until its stdin closes; closing that ends it in order.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
