//! `weir proxy` between peers that fail: what the client is told, what the log and the metrics say,
//! that others notice nothing and that nothing is left. Not for what is wrong with the bytes alone.

mod clients;
mod limits;
mod origins;
mod resources;
mod retries;

use crate::support::door::{Door, PATIENCE};
use crate::support::hlog::HaproxyLine;
use crate::support::metrics::{BUFFERS_LENT, CONNECTIONS_OPEN, SERVER_CONNECTIONS_IDLE};
use crate::support::{pause_ms, within};

/// The start of every config here: an admin address and both logs.
pub(crate) const HEAD: &str = r#"
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

/// What a proxy holds when nobody is there but who asks.
#[derive(Debug)]
struct Held {
    /// Without the pipes that are kept.
    descriptors: usize,
    buffers: f64,
}

impl Held {
    fn of(door: &Door) -> Self {
        let buffers = door.metrics().known(BUFFERS_LENT, &[]);
        // Its threads have all they need when nothing has changed for a while, and the one that
        // asked has gone.
        let (mut descriptors, mut same) = (0, 0);
        let settled = within(PATIENCE, || {
            pause_ms(20);
            let now = door.descriptors_but_pipes();
            same = if now == descriptors { same + 1 } else { 0 };
            descriptors = now;
            same >= 5
        });
        assert!(settled, "the number of descriptors does not settle");
        Self { descriptors, buffers }
    }

    /// Waits until it holds no more than this again.
    fn wait_for_all_back(&self, door: &Door) {
        door.metrics_until(&format!("all is given back, {self:?}"), |metrics| {
            metrics.known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
                && metrics.sum(SERVER_CONNECTIONS_IDLE, &[]) == 0.0
                && metrics.known(BUFFERS_LENT, &[]) <= self.buffers
        });
        let closed = within(PATIENCE, || door.descriptors_but_pipes() <= self.descriptors);
        assert!(closed, "{} descriptors after {self:?}", door.descriptors_but_pipes());
    }
}

/// The line of the HAProxy log about the request whose target has this in it.
pub(crate) fn line_about(door: &Door, part: &str) -> HaproxyLine {
    let lines = door.wait_for_lines_with("access.haproxy", part, 1);
    assert_eq!(lines.len(), 1, "one request, one line: {lines:#?}");
    HaproxyLine::http(&lines[0])
}

/// The `end` in the JSON log about the request whose target has this in it.
pub(crate) fn end_of(door: &Door, part: &str) -> String {
    let lines = door.wait_for_lines_with("access.json", part, 1);
    assert_eq!(lines.len(), 1, "one request, one line: {lines:#?}");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    line["end"].as_str().expect("an end").to_owned()
}

fn is_one_of(code: &str, codes: &str) -> bool {
    codes.split('|').any(|one| one == code)
}
