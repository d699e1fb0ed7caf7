//! Cost of one counted call for the observed process, measured on this machine with calls of this
//! process.
//!
//! A probe on a function is a breakpoint; a tracepoint is a few more instructions in the kernel. A
//! calling thread pays for every event at the probed instruction, including those for other
//! threads.

use std::ffi::CString;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt as _;

use stats::median;

use super::event::{self, PerfEvent};
use super::maps::AddressSpace;
use crate::cpu::thread_cpu_ns;

/// Number of timed calls per round: 2 to 50 ms each with a probe.
const CALLS: u64 = 5_000;
const ROUNDS: usize = 3;
/// Assumed cost of a probe hit where it cannot be measured: `malloc` of the C library on a virtual
/// machine, 2026 (13.0 million calls per second became 1.4 million). If the instruction has to be
/// single-stepped, the same machine takes 10 µs.
const ASSUMED_PROBE_NS: f64 = 630.0;
/// Assumed cost of a tracepoint hit.
const ASSUMED_TRACEPOINT_NS: f64 = 200.0;

/// Cost of one counted call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HitCost {
    pub hit_ns: f64,
    /// True if it was measured here; otherwise it is a figure of another machine.
    pub is_measured: bool,
}

/// Kernel's method to continue behind a breakpoint; the replaced instruction decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UprobeStep {
    /// The kernel emulates the instruction.
    Emulated,
    /// The kernel single-steps the instruction on the CPU, which is another trap.
    SingleStepped,
}

impl UprobeStep {
    /// Returns the method for an offset in a file. An unreadable instruction counts as the more
    /// expensive one.
    pub(super) fn at_offset(path: &str, offset: u64) -> Self {
        let mut bytes = [0; 2];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset));
        if read.is_ok() { Self::from_opcode(bytes) } else { Self::SingleStepped }
    }

    /// Returns the method for the first bytes on x86-64 (`arch/x86/kernel/uprobes.c`): pushing a
    /// register, nop, and jumps are emulated. Other architectures have one method.
    fn from_opcode(bytes: [u8; 2]) -> Self {
        match bytes {
            [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb, _] | [0x41, 0x50..=0x57] => Self::Emulated,
            _ => Self::SingleStepped,
        }
    }
}

/// Measures the cost of a probe hit with `events_per_call` events at the instruction; `kind` is the
/// kernel's event type number of uprobes.
pub(super) fn measure_probe_hit(kind: u32, step: UprobeStep, events_per_call: usize) -> HitCost {
    let function = own::function(step);
    let event = file_offset_of(function as *const () as u64);
    let event = event.map(|(path, offset)| PerfEvent::Uprobe { kind, path, offset });
    let measured = event.and_then(|event| {
        let calls = || {
            (0..CALLS).for_each(|_| black_box(function)());
        };
        measure(&event, events_per_call, &calls).ok()
    });
    or_assumed(measured, ASSUMED_PROBE_NS)
}

/// Measures the additional cost of a counted system call.
pub(super) fn measure_tracepoint_hit(event: &PerfEvent) -> HitCost {
    let calls = || {
        (0..CALLS).for_each(|_| {
            black_box(rustix::process::getppid());
        });
    };
    or_assumed(measure(event, 1, &calls).ok(), ASSUMED_TRACEPOINT_NS)
}

fn or_assumed(measured: Option<f64>, assumed_ns: f64) -> HitCost {
    // On a noisy machine the measured difference may be near zero, which is wrong.
    match measured.filter(|ns| *ns >= assumed_ns / 20.0) {
        Some(hit_ns) => HitCost { hit_ns, is_measured: true },
        None => HitCost { hit_ns: assumed_ns, is_measured: false },
    }
}

/// Measures the additional CPU time of each of [`CALLS`] under `events_per_call` events: the median
/// of the rounds. CPU time is independent of the machine's other load.
fn measure(event: &PerfEvent, events_per_call: usize, calls: &dyn Fn()) -> io::Result<f64> {
    let cpu_time_ns = || {
        let before_ns = thread_cpu_ns();
        calls();
        thread_cpu_ns().saturating_sub(before_ns) as f64
    };
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let without_ns = cpu_time_ns();
        let mut events = Vec::new();
        for _ in 0..events_per_call.max(1) {
            let opened = event::open(event, tid, -1)?;
            event::enable(&opened)?;
            events.push(opened);
        }
        let with_ns = cpu_time_ns();
        event::close_all(events);
        costs.push((with_ns - without_ns) / CALLS as f64);
    }
    Ok(median(&costs).unwrap_or(0.0))
}

fn file_offset_of(address: u64) -> Option<(CString, u64)> {
    let pid = std::process::id() as i32;
    let address_space = AddressSpace::read(pid);
    let mapping = address_space.find(address)?;
    let path = CString::new(mapping.plain_path()).ok()?;
    Some((path, address - mapping.start + mapping.offset))
}

/// Functions to probe, with known first instructions.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod own {
    use super::UprobeStep;

    // SAFETY: pushes and pops a register that the caller does not need, and returns.
    #[unsafe(naked)]
    extern "C" fn pushes() {
        core::arch::naked_asm!("push rax", "pop rax", "ret");
    }

    // SAFETY: changes a register that the caller does not need, and returns.
    #[unsafe(naked)]
    extern "C" fn adds() {
        core::arch::naked_asm!("lea rax, [rdi + 1]", "ret");
    }

    pub(super) fn function(step: UprobeStep) -> extern "C" fn() {
        match step {
            UprobeStep::Emulated => pushes,
            UprobeStep::SingleStepped => adds,
        }
    }
}

/// A function to probe.
#[cfg(not(target_arch = "x86_64"))]
mod own {
    use super::UprobeStep;

    #[inline(never)]
    extern "C" fn nothing() {
        std::hint::black_box(());
    }

    pub(super) fn function(_first: UprobeStep) -> extern "C" fn() {
        nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmeasurable_cost_is_an_assumed_one() {
        assert_eq!(or_assumed(None, 600.0), HitCost { hit_ns: 600.0, is_measured: false });
        assert_eq!(or_assumed(Some(-3.0), 600.0).hit_ns, 600.0);
        assert_eq!(UprobeStep::from_opcode([0x55, 0x48]), UprobeStep::Emulated);
        assert_eq!(UprobeStep::from_opcode([0x41, 0x54]), UprobeStep::Emulated);
        assert_eq!(UprobeStep::from_opcode([0x48, 0x85]), UprobeStep::SingleStepped);
        assert_eq!(UprobeStep::at_offset("/no/such/file", 0), UprobeStep::SingleStepped);
        assert_eq!(or_assumed(Some(500.0), 600.0), HitCost { hit_ns: 500.0, is_measured: true });
    }
}
