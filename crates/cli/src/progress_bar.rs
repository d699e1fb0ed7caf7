//! Progress bar of a command that takes minutes: one line on stderr with the part that is done, the time
//! left and the current step. Only a terminal gets it; a pipe or a file gets nothing.

#![allow(
    clippy::disallowed_types,
    reason = "two threads of a command share the line; no core takes the lock"
)]

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use experiment::format::duration_estimates;
use ratatui::crossterm::terminal;
use rt::clock::now_ns;

/// Clears the line of a terminal (ECMA-48, EL).
pub(crate) const CLEAR: &str = "\r\x1b[2K";
/// Interval at which the line is drawn again.
const INTERVAL: Duration = Duration::from_millis(500);
const CELLS: usize = 20;
/// Width of a terminal that does not report its own.
const COLUMNS_DEFAULT: u16 = 80;

/// Progress of a command. The line disappears when this is dropped.
#[derive(Debug)]
pub(crate) struct ProgressBar {
    shared: Arc<Mutex<ProgressState>>,
    /// Thread that draws, and the channel whose end stops it; `None` without a terminal.
    painter: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

/// Estimate of a command's duration, and its current step.
#[derive(Clone, Debug, Default, PartialEq)]
struct ProgressState {
    step: String,
    started_ns: u64,
    estimated_ns: u64,
    /// Minimum and maximum time left then, in s.
    remaining_s: (f64, f64),
}

impl ProgressBar {
    /// Starts a bar on stderr, if that is a terminal.
    pub(crate) fn start() -> Self {
        let started_ns = now_ns();
        let state = ProgressState { started_ns, estimated_ns: started_ns, ..ProgressState::default() };
        let shared = Arc::new(Mutex::new(state));
        let painter = std::io::stderr().is_terminal().then(|| {
            let (sender, receiver) = mpsc::channel();
            let shared = Arc::clone(&shared);
            let thread = std::thread::spawn(move || {
                while receiver.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    draw(&shared.lock().unwrap_or_else(PoisonError::into_inner));
                }
            });
            (sender, thread)
        });
        Self { shared, painter }
    }

    /// Sets the current step, and the minimum and maximum time left with it, in s.
    pub(crate) fn set(&self, step: impl Into<String>, remaining_s: (f64, f64)) {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        (state.step, state.remaining_s, state.estimated_ns) = (step.into(), remaining_s, now_ns());
        if self.painter.is_some() {
            draw(&state);
        }
    }

    /// Clears the line, prints other text with `print`, and draws the line again.
    pub(crate) fn print_above(&self, print: impl FnOnce()) {
        let state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.painter.is_none() {
            return print();
        }
        write(CLEAR);
        print();
        draw(&state);
    }

    pub(crate) fn is_visible(&self) -> bool {
        self.painter.is_some()
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.painter.take() {
            drop(sender);
            let _ = thread.join();
            write(CLEAR);
        }
    }
}

/// Writes to stderr. A failure is ignored: nobody reads it then.
fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

fn draw(state: &ProgressState) {
    let columns = terminal::size().map_or(COLUMNS_DEFAULT, |(columns, _)| columns);
    // The last column stays empty, because some terminals wrap there.
    write(&format!("{CLEAR}{}", line(state, now_ns(), usize::from(columns).saturating_sub(1))));
}

/// Formats the line for a terminal with so many columns.
fn line(state: &ProgressState, now_ns: u64, columns: usize) -> String {
    let seconds = |from_ns: u64| now_ns.saturating_sub(from_ns) as f64 / 1e9;
    let (elapsed_s, since_estimate_s) = (seconds(state.started_ns), seconds(state.estimated_ns));
    let (min_s, max_s) = state.remaining_s;
    let left = ((min_s - since_estimate_s).max(0.0), (max_s - since_estimate_s).max(0.0));
    // An estimate that was too low is not shown as complete.
    let fraction = (elapsed_s / (elapsed_s + left.0.max(left.1 / 2.0)).max(1e-9)).clamp(0.0, 0.99);
    let cells = (fraction * CELLS as f64) as usize;
    let time = match left {
        (_, max_s) if max_s <= 0.0 => "soon complete".to_owned(),
        _ => format!("{} left", duration_estimates(left)),
    };
    let bar = format!("{}{}", "█".repeat(cells), "░".repeat(CELLS - cells));
    let text = format!("{bar} {:3.0} %  {time}  {}", fraction * 100.0, state.step);
    text.replace('\n', " ").chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_part_that_is_done_and_the_time_left() {
        let state = ProgressState {
            step: "trial 3 of 9".to_owned(),
            started_ns: 0,
            estimated_ns: 10_000_000_000,
            remaining_s: (30.0, 30.0),
        };
        let text = line(&state, 10_000_000_000, 79);
        assert_eq!(text, format!("{}{}  25 %  30 s left  trial 3 of 9", "█".repeat(5), "░".repeat(15)));
        // Time passes between estimates, and a bar never claims to be complete.
        assert!(line(&state, 25_000_000_000, 79).contains(" 62 %  15 s left"));
        assert!(line(&state, 90_000_000_000, 79).contains(" 99 %  soon complete"));
        let range = ProgressState { remaining_s: (30.0, 90.0), ..state };
        assert!(line(&range, 10_000_000_000, 79).contains("30 s to 90 s left"));
        assert_eq!(line(&range, 10_000_000_000, 12).chars().count(), 12);
    }
}
