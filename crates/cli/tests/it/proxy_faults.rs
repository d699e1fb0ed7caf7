//! Tests of `weir proxy` between failing peers: the response to the client, the log and the
//! metrics, no effect on other clients, and no leaks. Other tests send malformed bytes.

mod clients;
mod crossing;
mod limits;
mod origins;
mod resources;
mod retries;

use crate::support::haproxy_log::HaproxyLogLine;
use crate::support::metrics::{BUFFERS_LENT, CONNECTIONS_OPEN, SERVER_CONNECTIONS_IDLE};
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{pause_ms, within};

/// First lines of every config here: an admin address and both logs.
pub(crate) const CONFIG_HEAD: &str = r#"
threads = 1
admin = "127.0.0.1:0"

[privileges]
landlock = false

[[log]]
to = "file:HOME/access.haproxy"
format = "haproxy"

[[log]]
to = "file:HOME/access.json"
format = "json"
"#;

/// Resources that an idle proxy holds.
#[derive(Debug)]
struct HeldResources {
    /// Number of descriptors without the pipes that are kept.
    descriptors: usize,
    buffers: f64,
}

impl HeldResources {
    fn measure(proxy: &ProxyUnderTest) -> Self {
        let buffers = proxy.metrics().sum_known(BUFFERS_LENT, &[]);
        // Its threads have all they need when nothing has changed for a while, and the connection
        // of the metrics request has closed.
        let (mut descriptors, mut same) = (0, 0);
        let settled = within(EVENT_TIMEOUT, || {
            pause_ms(20);
            let now = proxy.non_pipe_descriptors();
            same = if now == descriptors { same + 1 } else { 0 };
            descriptors = now;
            same >= 10
        });
        assert!(settled, "the number of descriptors does not settle");
        Self { descriptors, buffers }
    }

    /// Waits until the proxy holds no more than this again.
    fn wait_until_returned(&self, proxy: &ProxyUnderTest) {
        proxy.metrics_until(&format!("all is given back, {self:?}"), |metrics| {
            metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
                && metrics.sum(SERVER_CONNECTIONS_IDLE, &[]) == 0.0
                && metrics.sum_known(BUFFERS_LENT, &[]) <= self.buffers
        });
        let closed = within(EVENT_TIMEOUT, || proxy.non_pipe_descriptors() <= self.descriptors);
        assert!(closed, "{} descriptors after {self:?}", proxy.non_pipe_descriptors());
    }
}

/// Returns the line of the HAProxy log for the request whose target contains `part`.
pub(crate) fn haproxy_line_for(proxy: &ProxyUnderTest, part: &str) -> HaproxyLogLine {
    let lines = proxy.wait_for_lines_with("access.haproxy", part, 1);
    assert_eq!(lines.len(), 1, "one request, one line: {lines:#?}");
    HaproxyLogLine::http(&lines[0])
}

/// Returns the `end` in the JSON log for the request whose target contains `part`.
pub(crate) fn end_in_json_log(proxy: &ProxyUnderTest, part: &str) -> String {
    let lines = proxy.wait_for_lines_with("access.json", part, 1);
    assert_eq!(lines.len(), 1, "one request, one line: {lines:#?}");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    line["end"].as_str().expect("an end").to_owned()
}

fn is_one_of(code: &str, codes: &str) -> bool {
    codes.split('|').any(|expected| expected == code)
}
