//! What it costs a program that one of its calls is counted: measured on this machine, with calls of
//! this process.
//!
//! A probe on a function is a breakpoint; a tracepoint is a few more instructions in the kernel. A
//! thread that calls pays for every event that watches the place, also for those of other threads.

use std::ffi::CString;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::event::{self, Event};
use super::maps::{self, Space};
use crate::cpu::thread_cpu_ns;

/// Calls that are timed, three times: 2 to 50 ms each with a probe.
const CALLS: u64 = 5_000;
const ROUNDS: usize = 3;
/// What a hit of a probe is taken to cost where it cannot be measured: `malloc` of the C library on a
/// virtual machine, 2026 (13.0 million calls per second became 1.4 million). Where the instruction has to
/// be stepped, the same machine takes 10 µs.
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

/// How the kernel goes on behind a breakpoint: the instruction that stood there decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum First {
    /// It does by itself what the instruction would.
    Emulated,
    /// It lets the processor do that one alone, which is another trap.
    Stepped,
}

impl First {
    /// Of a place in a file. What cannot be read is taken to be the dearer one.
    pub(super) fn of(path: &str, offset: u64) -> Self {
        let mut bytes = [0; 2];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset));
        if read.is_ok() { Self::by(bytes) } else { Self::Stepped }
    }

    /// By its first bytes on x86-64 (`arch/x86/kernel/uprobes.c`): pushing a register, doing nothing,
    /// and jumps are emulated. Elsewhere there is one kind.
    fn by(bytes: [u8; 2]) -> Self {
        match bytes {
            [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb, _] | [0x41, 0x50..=0x57] => Self::Emulated,
            _ => Self::Stepped,
        }
    }
}

/// What a hit of a probe costs when so many events watch the place; `kind` is the number of probes
/// among the kernel's kinds of events.
pub(super) fn probe(kind: u32, first: First, watchers: usize) -> HitCost {
    let function = own::function(first);
    let event = place(function as *const () as u64);
    let event = event.map(|(path, offset)| Event::Uprobe { kind, path, offset });
    let measured = event.and_then(|event| {
        let calls = || {
            (0..CALLS).for_each(|_| black_box(function)());
        };
        measure(&event, watchers, &calls).ok()
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
        let before_ns = thread_cpu_ns();
        calls();
        thread_cpu_ns().saturating_sub(before_ns) as f64
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
        event::close_all(events);
        costs.push((with_ns - without_ns) / CALLS as f64);
    }
    costs.sort_by(f64::total_cmp);
    Ok(costs[costs.len() / 2])
}

/// The file that a function of this process is in, and where.
fn place(address: u64) -> Option<(CString, u64)> {
    let pid = std::process::id() as i32;
    let space = Space::of(pid);
    let mapping = space.find(address)?;
    let path = maps::places(pid, mapping).into_iter().find(|place| place.exists())?;
    let path = CString::new(path.to_string_lossy().as_bytes()).ok()?;
    Some((path, address - mapping.start + mapping.offset))
}

/// Functions to be probed, of which the first instruction is known.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod own {
    use super::First;

    // SAFETY: pushes and pops what the caller has no use for, and returns.
    #[unsafe(naked)]
    extern "C" fn pushes() {
        core::arch::naked_asm!("push rax", "pop rax", "ret");
    }

    // SAFETY: changes a register that the caller has no use for, and returns.
    #[unsafe(naked)]
    extern "C" fn adds() {
        core::arch::naked_asm!("lea rax, [rdi + 1]", "ret");
    }

    pub(super) fn function(first: First) -> extern "C" fn() {
        match first {
            First::Emulated => pushes,
            First::Stepped => adds,
        }
    }
}

/// A function to be probed.
#[cfg(not(target_arch = "x86_64"))]
mod own {
    use super::First;

    #[inline(never)]
    extern "C" fn nothing() {
        std::hint::black_box(());
    }

    pub(super) fn function(_first: First) -> extern "C" fn() {
        nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_a_known_figure() {
        assert_eq!(or_known(None, 600.0), HitCost { hit_ns: 600.0, is_measured: false });
        assert_eq!(or_known(Some(-3.0), 600.0).hit_ns, 600.0);
        assert_eq!(First::by([0x55, 0x48]), First::Emulated);
        assert_eq!(First::by([0x41, 0x54]), First::Emulated);
        assert_eq!(First::by([0x48, 0x85]), First::Stepped);
        assert_eq!(First::of("/no/such/file", 0), First::Stepped);
        assert_eq!(or_known(Some(500.0), 600.0), HitCost { hit_ns: 500.0, is_measured: true });
    }
}
