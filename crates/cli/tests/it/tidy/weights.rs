//! Weights of the product against the stored ones: packages in Cargo.lock, and product lines of each
//! crate. The weights that need a binary are those of `bench/run instructions`.

use std::collections::BTreeMap;

/// Name of the number of packages; all other names are those of crates.
pub(super) const PACKAGES: &str = "Cargo.lock";

/// Minimum difference of product lines that needs a new weight: a small crate may change by more than
/// 1 %.
const LINES_MIN: usize = 10;

/// Returns the number of packages that a Cargo.lock lists.
pub(super) fn packages(lock: &str) -> usize {
    lock.lines().filter(|line| line.trim() == "[[package]]").count()
}

/// Reports weights that differ from the stored ones by more than their tolerance, and invalid lines of
/// the form "name weight reason".
pub(super) fn check(measured: &BTreeMap<String, usize>, stored: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut known = BTreeMap::new();
    for line in stored.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((name, weight)) = parse(line) else {
            problems.push(format!("\"{line}\": write \"name weight reason\""));
            continue;
        };
        if known.insert(name, weight).is_some() {
            problems.push(format!("{name}: listed twice"));
        }
        if !measured.contains_key(name) {
            problems.push(format!("{name}: there is no such crate; remove the line"));
        }
    }
    for (name, &now) in measured {
        let Some(&before) = known.get(name.as_str()) else {
            problems.push(format!("{name}: no weight is stored: add \"{name} {now} REASON\""));
            continue;
        };
        let tolerance = if name == PACKAGES { 0 } else { (before / 100).max(LINES_MIN) };
        if now > before + tolerance {
            problems.push(format!(
                "{name}: {now} now, {before} stored, {tolerance} more are tolerated: delete what the \
                 change made superfluous, or write \"{name} {now} REASON\""
            ));
        } else if now + tolerance < before {
            problems.push(format!("{name}: lower {before} to {now}, with the reason"));
        }
    }
    problems
}

/// Returns the name and the weight of a line with all three parts.
fn parse(line: &str) -> Option<(&str, usize)> {
    let mut parts = line.split_whitespace();
    let name = parts.next()?;
    let weight = parts.next()?.parse().ok()?;
    parts.next().map(|_reason| (name, weight))
}

#[test]
fn packages_are_counted() {
    let lock = "version = 4\n\n[[package]]\nname = \"a\"\n\n[[package]]\nname = \"[[package]]\"\n";
    assert_eq!(packages(lock), 2);
}

#[test]
fn a_weight_is_a_ratchet() {
    let measured = [(PACKAGES, 100), ("large", 5000), ("small", 50)];
    let measured = measured.map(|(name, weight)| (name.to_owned(), weight)).into();
    let check = |stored: &str, parts: &[&str]| {
        let problems = check(&measured, stored);
        assert_eq!(problems.len(), parts.len(), "{stored}: {problems:?}");
        for (problem, part) in problems.iter().zip(parts) {
            assert!(problem.contains(part), "{stored}: {problem}");
        }
    };
    check("# why\n\nCargo.lock 100 x\nlarge  5000 first count\nsmall 50 x", &[]);
    check("Cargo.lock 100 x\nlarge 4951 x\nsmall 40 x", &[]);
    check("Cargo.lock 100 x\nlarge 5050 x\nsmall 60 x", &[]);
    check("Cargo.lock 99 x\nlarge 4950 x\nsmall 39 x", &["Cargo.lock: 100 now", "large: 5000", "small: 50"]);
    check(
        "Cargo.lock 101 x\nlarge 5051 x\nsmall 61 x",
        &["lower 101 to 100", "lower 5051", "lower 61 to 50"],
    );
    check(
        "Cargo.lock 100\nlarge x x\nsmall 50 x\nsmall 50 x\ngone 5 x",
        &[
            "\"Cargo.lock 100\": write",
            "\"large x x\": write",
            "small: listed twice",
            "gone: there is no such crate",
            "add \"Cargo.lock 100 REASON\"",
            "add \"large 5000 REASON\"",
        ],
    );
}
