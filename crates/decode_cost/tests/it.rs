//! The check of a decoder's cost, and the table of the budgets.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use decode_cost::{BUDGETS, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn a_decoder_that_costs_too_much_is_found() {
    let fails = |decode: fn(&[u8])| {
        let input = vec![b'a'; 20_000];
        let check = || decode_cost::check("client_hello", &input, decode);
        std::panic::catch_unwind(check).is_err()
    };
    // Linear, but with a factor that is too large: 40 bytes of memory for each.
    assert!(fails(|bytes| drop(bytes.iter().map(|byte| [u64::from(*byte); 5]).collect::<Vec<_>>())));
    // The length is within the factor, and the capacity is not.
    assert!(fails(|bytes| drop(Vec::<u8>::with_capacity(100 * bytes.len()))));
    // Sized by a field of the input.
    assert!(fails(|bytes| drop(vec![0_u8; usize::from(bytes[0]) << 20])));
    // Quadratic time.
    let quadratic = |bytes: &[u8]| {
        (0..bytes.len()).for_each(|end| {
            std::hint::black_box(
                bytes[..end].iter().fold(0_u64, |sum, byte| sum.rotate_left(1) ^ u64::from(*byte)),
            );
        });
    };
    assert!(fails(quadratic));
    // Quadratic in allocations that are freed at once.
    assert!(fails(|bytes| (0..bytes.len())
        .step_by(16)
        .for_each(|end| drop(std::hint::black_box(bytes[..end].to_vec())))));
    // Memory that stays.
    assert!(fails(|bytes| std::mem::forget(bytes[..10].to_vec())));
    // The decoy: a copy.
    assert!(!fails(|bytes| drop(bytes.to_vec())));
}

#[test]
fn the_table_of_the_budgets_and_the_list_of_the_targets_are_complete() {
    let read = |name: &str| std::fs::read_to_string(fuzz_directory().join(name)).unwrap();
    let readme = read("README.md");
    for budget in BUDGETS {
        let row = format!(
            "| `{}` | {} KiB + {} | {} | {} |",
            budget.target,
            budget.memory_kib,
            budget.memory_factor,
            budget.allocated_factor,
            budget.steps_factor
        );
        assert!(readme.contains(&row), "fuzz/README.md needs the row\n{row}");
    }
    let manifest = read("Cargo.toml");
    let targets: Vec<&str> =
        manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
    assert_eq!(targets.len(), BUDGETS.len(), "a fuzz target without a budget, or the reverse");
    for budget in BUDGETS {
        assert!(
            targets.contains(&&*format!("{}.rs\"", budget.target)),
            "{} is no fuzz target",
            budget.target
        );
    }
}
