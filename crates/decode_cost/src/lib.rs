//! Cost of a decoder: memory and work per byte of its input. Only fuzz targets and tests use it.
//!
//! A decoder of a peer's bytes is safe if the peer pays for what it causes: memory and CPU time stay
//! below a fixed part and a factor of the received bytes. [`check`] measures one input and panics
//! above the [`Budget`] of the target. [`check_seeds`] does so for a corpus, its mutations, and long
//! inputs that repeat a part of them. `fuzz/README.md` has the table of the factors. The tests of a decoder are
//! in the module `fuzzing` of its crate.
//!
//! Memory is measured by an allocator that counts, so it is capacity and not length. The binary
//! installs it:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: decode_cost::CountingAllocator = decode_cost::CountingAllocator;
//! # fn main() {
//! decode_cost::check("histogram", b"bytes of a peer", |bytes| drop(bytes.to_vec()));
//! # }
//! ```

mod allocator;
mod budgets;
mod corpus;
mod inputs;

pub use allocator::CountingAllocator;
pub use budgets::{BUDGETS, Budget};
pub use corpus::{check_valid_seeds, corpus};
pub use inputs::check_seeds;

use std::hint::black_box;
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Measured cost of one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Maximum of the memory that was held at a time, in bytes.
    pub peak_bytes: u64,
    /// Memory that was still held at the end, in bytes.
    pub kept_bytes: u64,
    /// Sum of all allocations, in bytes.
    pub allocated_bytes: u64,
    /// CPU time in steps: the time of one byte in a simple loop of the same build.
    pub steps: u64,
}

/// Maximum number of measurements of an input: the smallest one counts, because interrupts, cold
/// caches and tables that are made at the first use only add cost.
const MEASUREMENTS_MAX: usize = 12;

pub fn measure(call: impl FnOnce()) -> Cost {
    let step_ns = step_ns();
    let before = allocator::start();
    let start_ns = thread_cpu_ns();
    call();
    let cpu_ns = thread_cpu_ns() - start_ns;
    let memory = allocator::since(before);
    Cost {
        peak_bytes: memory.peak_bytes,
        kept_bytes: memory.kept_bytes,
        allocated_bytes: memory.allocated_bytes,
        steps: (cpu_ns as f64 / step_ns) as u64,
    }
}

/// Decodes an input and checks its cost against the budget of `target`. `decode` must keep nothing.
///
/// # Panics
/// The cost is above the budget in each of several measurements, there is no budget of this name, or
/// [`CountingAllocator`] is not installed.
pub fn check(target: &str, input: &[u8], mut decode: impl FnMut(&[u8])) {
    let excess = excess(Budget::of(target), input, &mut decode);
    assert!(excess.is_none(), "{target}: {}", excess.unwrap_or_default());
}

/// Returns the excess of the cheapest of several measurements; `None`: one is within the budget.
fn excess(budget: &Budget, input: &[u8], decode: &mut impl FnMut(&[u8])) -> Option<String> {
    static IS_INSTALLED: OnceLock<bool> = OnceLock::new();
    let is_installed = IS_INSTALLED
        .get_or_init(|| measure(|| drop(black_box(Vec::<u8>::with_capacity(4096)))).allocated_bytes > 0);
    assert!(*is_installed, "decode_cost::CountingAllocator is not the global allocator of this binary");
    let mut cheapest = measure(|| decode(black_box(input)));
    for _ in 1..MEASUREMENTS_MAX {
        budget.excess(input.len(), cheapest)?;
        cheapest = cheapest.min(measure(|| decode(black_box(input))));
    }
    budget.excess(input.len(), cheapest)
}

impl Cost {
    fn min(self, other: Self) -> Self {
        Self {
            peak_bytes: self.peak_bytes.min(other.peak_bytes),
            kept_bytes: self.kept_bytes.min(other.kept_bytes),
            allocated_bytes: self.allocated_bytes.min(other.allocated_bytes),
            steps: self.steps.min(other.steps),
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the CPU time of one step: a byte of a checksum, whose steps depend on each other.
fn step_ns() -> f64 {
    static STEP_NS: OnceLock<f64> = OnceLock::new();
    *STEP_NS.get_or_init(|| {
        let bytes = vec![0x5a_u8; 64 * 1024];
        let run = || {
            let start_ns = thread_cpu_ns();
            let mut sum = 0xcbf2_9ce4_8422_2325_u64;
            for byte in black_box(&bytes) {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
            black_box(sum);
            thread_cpu_ns() - start_ns
        };
        let fastest_ns = (0..32).map(|_| run()).min().unwrap_or_default();
        (fastest_ns as f64 / bytes.len() as f64).max(0.1)
    })
}
