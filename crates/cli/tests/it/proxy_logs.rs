//! Tests of the logs of `weir proxy`: the three formats, read by foreign programs, the destinations
//! of lines, lines lost because no process reads them, and the metrics. `proxy_faults` tests how
//! logs name faults.

mod delivery;
mod formats;
mod numbers;

use std::fmt::Write as _;

use crate::support::faulty_origins::{ok_response, respond_to_each};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;

/// A proxy with these logs, in front of a server that responds to `/big` with 100,000 bytes, to
/// `/fail` with 500 and to the rest with "here".
struct LoggedProxy {
    proxy: ProxyUnderTest,
    _origin: ScriptedServer,
}

impl LoggedProxy {
    /// Starts the proxy; each log is the text of its table.
    fn start(logs: &[&str]) -> Self {
        let origin = respond_to_each(|request, _| {
            Some(match request.target() {
                target if target.starts_with("/big") => ok_response(&[b'x'; 100_000]),
                target if target.starts_with("/fail") => {
                    b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\noh".to_vec()
                }
                _ => ok_response(b"here"),
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
        Self { proxy: ProxyUnderTest::weir(&config), _origin: origin }
    }

    /// Sends requests of every kind, on one connection per kind; returns their number.
    fn send_all_requests(&self) -> usize {
        let mut count = 0;
        for (target, times) in [("/x?a=b", 20), ("/big", 5), ("/fail", 7), ("/deny", 3)] {
            let mut client = self.proxy.client();
            for _ in 0..times {
                client.get(target);
                count += 1;
            }
        }
        count
    }
}
