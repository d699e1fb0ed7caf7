//! What it costs a program that one of its calls is counted: measured on this machine, with calls of
//! this process.
//!
//! A probe on a function is a breakpoint; a tracepoint is a few more instructions in the kernel. A
//! thread that calls pays for every event that watches the place, also for those of other threads.

use std::ffi::CString;
use std::hint::black_box;
use std::io;

use super::event::{self, Event};
use super::maps::{self, Space};
use super::sampler::own_cpu_ns;

/// Calls that are timed, three times: some 15 ms each with a probe.
const CALLS: u64 = 20_000;
const ROUNDS: usize = 3;
/// What a hit of a probe is taken to cost where it cannot be measured: `malloc` of the C library on a
/// virtual machine, 2026 (13.0 million calls per second became 1.4 million).
const PROBE_NS: f64 = 630.0;
/// The same of a tracepoint.
const TRACEPOINT_NS: f64 = 200.0;

/// The cost of one counted call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HitCost {
    /// Processor time, in nanoseconds.
    pub hit_ns: f64,
    /// Whether it was measured here; otherwise it is a figure of another machine.
    pub is_measured: bool,
}

/// What a hit of a probe costs when so many events watch the place; `kind` is the number of probes
/// among the kernel's kinds of events.
pub(super) fn probe(kind: u32, watchers: usize) -> HitCost {
    let event = own_malloc().map(|(path, offset)| Event::Uprobe { kind, path, offset });
    let measured = event.and_then(|event| {
        let pairs = || {
            (0..CALLS).for_each(|_| allocates());
        };
        measure(&event, watchers, &pairs).ok()
    });
    or_known(measured, PROBE_NS)
}

/// What a system call costs more when it is counted.
pub(super) fn tracepoint(event: &Event) -> HitCost {
    let calls = || {
        (0..CALLS).for_each(|_| {
            black_box(rustix::process::getppid());
        });
    };
    or_known(measure(event, 1, &calls).ok(), TRACEPOINT_NS)
}

fn or_known(measured: Option<f64>, known_ns: f64) -> HitCost {
    // On a noisy machine the difference may come out as nothing, which is not true.
    match measured.filter(|ns| *ns >= known_ns / 20.0) {
        Some(hit_ns) => HitCost { hit_ns, is_measured: true },
        None => HitCost { hit_ns: known_ns, is_measured: false },
    }
}

/// The processor time (which others on the machine do not change) that each of [`CALLS`] takes longer under `watchers` events: the median of the rounds.
fn measure(event: &Event, watchers: usize, calls: &dyn Fn()) -> io::Result<f64> {
    let timed = || {
        let before_ns = own_cpu_ns();
        calls();
        own_cpu_ns().saturating_sub(before_ns) as f64
    };
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let without_ns = timed();
        let mut events = Vec::new();
        for _ in 0..watchers.max(1) {
            let opened = event::open(event, tid, -1)?;
            event::enable(&opened)?;
            events.push(opened);
        }
        let with_ns = timed();
        costs.push((with_ns - without_ns) / CALLS as f64);
    }
    costs.sort_by(f64::total_cmp);
    Ok(costs[costs.len() / 2])
}

/// One call of the C library's `malloc`, and of its `free`, which is not watched.
#[allow(unsafe_code)]
fn allocates() {
    // SAFETY: what was allocated is given back once, and not touched; a null pointer may be given
    // back too.
    unsafe { libc::free(black_box(libc::malloc(16))) };
}

/// The file that this process's `malloc` is in, and where.
fn own_malloc() -> Option<(CString, u64)> {
    let pid = std::process::id() as i32;
    let address = libc::malloc as *const () as u64;
    let space = Space::of(pid);
    let mapping = space.find(address)?;
    let path = maps::places(pid, mapping).into_iter().find(|place| place.exists())?;
    let path = CString::new(path.to_string_lossy().as_bytes()).ok()?;
    Some((path, address - mapping.start + mapping.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_a_known_figure() {
        assert_eq!(or_known(None, 600.0), HitCost { hit_ns: 600.0, is_measured: false });
        assert_eq!(or_known(Some(-3.0), 600.0).hit_ns, 600.0);
        assert_eq!(or_known(Some(500.0), 600.0), HitCost { hit_ns: 500.0, is_measured: true });
    }
}
