//! What `weir proxy` writes down: the three formats, read by programs that are not ours, where lines
//! go, what is lost when nobody takes them, and the metrics. Not for how faults are named in them
//! (`proxy_faults`).

mod delivery;
mod formats;
mod numbers;

use std::fmt::Write as _;

use crate::support::door::Door;
use crate::support::faulty::{answering_each, ok};
use crate::support::peers::Scripted;

/// A proxy with these logs, before a server that answers `/big` with 100,000 bytes, `/fail` with 500
/// and the rest with "here".
struct Scene {
    door: Door,
    _origin: Scripted,
}

impl Scene {
    /// Each log is the text of its table.
    fn start(logs: &[&str]) -> Self {
        let origin = answering_each(|request, _| {
            Some(match request.target() {
                target if target.starts_with("/big") => ok(&[b'x'; 100_000]),
                target if target.starts_with("/fail") => {
                    b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\noh".to_vec()
                }
                _ => ok(b"here"),
            })
        });
        let mut config = "threads = 2\nadmin = \"127.0.0.1:0\"\n".to_owned();
        for log in logs {
            let _ = write!(config, "[[log]]\n{log}\n");
        }
        let _ = write!(
            config,
            "[listener.web]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\nname = \"deny\"\npath-prefix = \"/deny\"\ndeny = true\n\
             [[route]]\nname = \"main\"\npool = \"app\"\n\
             [pool.app]\nservers = [{{ address = \"{}\", name = \"one\" }}]\n",
            origin.authority
        );
        Self { door: Door::weir(&config), _origin: origin }
    }

    /// Requests of every kind, a connection for each kind; how many.
    fn ask_for_everything(&self) -> usize {
        let mut count = 0;
        for (target, times) in [("/x?a=b", 20), ("/big", 5), ("/fail", 7), ("/deny", 3)] {
            let mut client = self.door.client();
            for _ in 0..times {
                client.ask(target);
                count += 1;
            }
        }
        count
    }
}
