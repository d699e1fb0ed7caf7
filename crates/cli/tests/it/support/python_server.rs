//! Servers of the tests in Python: a script has the conversation, this file the start and the end.

use std::process::{Command, Stdio};

use super::Process;

/// Serves each connection in a thread, until stdin ends. The script defines `serve(connection)`.
const START: &str = r#"
import os, socket, sys, threading

def end_with_stdin():
    sys.stdin.read()
    os._exit(0)

listener = socket.create_server(("127.0.0.1", 0), backlog=128)
print(listener.getsockname()[1], flush=True)
threading.Thread(target=end_with_stdin, daemon=True).start()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// A server whose connections a Python script serves.
#[derive(Debug)]
pub(crate) struct PythonSocketServer {
    process: Process,
    pub(crate) authority: String,
}

impl PythonSocketServer {
    /// Starts the script, which defines `serve(connection)`, with these arguments.
    pub(crate) fn start(script: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{script}{START}")]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let port = process.first_line();
        Self { authority: format!("127.0.0.1:{}", port.trim()), process }
    }

    /// Returns the id of its process.
    pub(crate) fn process_id(&self) -> i32 {
        self.process.id()
    }
}
