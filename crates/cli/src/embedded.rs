//! The embedded origin: another weir, so that its processor time is its own and it can be told
//! from the generator's. It ends with us, whatever happens to us.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::exit::Failure;

/// An origin that runs for as long as this lives.
#[derive(Debug)]
pub(crate) struct Origin {
    child: Child,
    authority: String,
}

impl Origin {
    /// Starts one on a port of the kernel's choice.
    pub(crate) fn start(threads: usize) -> Result<Self, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::cannot("the embedded origin", why);
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--threads", &threads.to_string()])
            .args(["--until-stdin-closes"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What it says at its end is of no interest; why it could not start is.
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(|error| failed(&error))?;
        }
        let authority = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        match authority {
            Some(authority) => {
                Ok(Self { authority: authority.trim_end_matches('/').to_owned(), child })
            }
            None => {
                let mut why = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    // Without its words, that it did not start is all there is to say.
                    let _ = stderr.read_to_string(&mut why);
                }
                let _ = child.wait();
                Err(failed(&format!("it did not start: {}", why.trim())))
            }
        }
    }

    /// A URL that it answers with `size` bytes.
    pub(crate) fn url(&self, size: u64) -> String {
        format!("http://{}/?s={size}", self.authority)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Its stdin is what keeps it alive; closing that lets it end in order.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
