//! Sizes of files and functions against their limits, with exceptions as a ratchet.

use std::collections::BTreeMap;

/// Maximum size, without an exception and with one.
pub(super) struct SizeLimits {
    pub(super) limit: usize,
    pub(super) hard_limit: usize,
}

/// Sizes by "path kind", the maximum for repeated names, with the bounds of the kind.
#[derive(Default)]
pub(super) struct MeasuredSizes<'a>(BTreeMap<String, (usize, Option<&'a SizeLimits>)>);

impl<'a> MeasuredSizes<'a> {
    pub(super) fn add(&mut self, key: String, size: usize, bounds: &'a SizeLimits) {
        let entry = self.0.entry(key).or_default();
        *entry = (entry.0.max(size), Some(bounds));
    }

    /// Reports items that are too large, and invalid stored exceptions: lines "path kind
    /// size".
    pub(super) fn check(&self, exceptions: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut excepted = BTreeMap::new();
        for line in exceptions.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.rsplit_once(' ').and_then(|(key, size)| {
                Some((key.split_whitespace().collect::<Vec<_>>().join(" "), size.parse().ok()?))
            });
            match parsed {
                Some((key, size)) if excepted.insert(key.clone(), size).is_none() => {
                    problems.extend(self.stale_exception(&key, size));
                }
                Some((key, _)) => problems.push(format!("exception \"{key}\": listed twice")),
                None => problems.push(format!("exception \"{line}\": write \"path kind size\"")),
            }
        }
        for (key, (size, bounds)) in &self.0 {
            let Some(bounds) = bounds else { continue };
            let allowed = excepted.get(key).map_or(bounds.limit, |size| (*size).min(bounds.hard_limit));
            if *size > allowed {
                problems.push(format!(
                    "{key}: {size} lines, {allowed} are allowed: split it by what it does. (An \
                     exception in tidy_exceptions.txt goes up to {} and needs a reason beside it)",
                    bounds.hard_limit
                ));
            }
        }
        problems
    }

    /// Reports the error of an exception that is not exceeded.
    fn stale_exception(&self, key: &str, excepted: usize) -> Option<String> {
        let Some((size, Some(bounds))) = self.0.get(key) else {
            return Some(format!("exception \"{key}\": there is no such thing; remove the line"));
        };
        if *size <= bounds.limit {
            return Some(format!("exception \"{key}\": no longer needed ({size}); remove the line"));
        }
        let too_generous = *size * 10 < excepted * 9;
        too_generous.then(|| format!("exception \"{key}\": lower {excepted} to {size}"))
    }
}

#[test]
fn an_exception_is_a_ratchet() {
    const FILES: SizeLimits = SizeLimits { limit: 500, hard_limit: 1000 };
    const FUNCTIONS: SizeLimits = SizeLimits { limit: 60, hard_limit: 100 };
    let mut measured = MeasuredSizes::default();
    measured.add("a.rs file".to_owned(), 700, &FILES);
    measured.add("a.rs::f function".to_owned(), 10, &FUNCTIONS);
    measured.add("a.rs::f function".to_owned(), 80, &FUNCTIONS);
    measured.add("a.rs::small function".to_owned(), 60, &FUNCTIONS);
    measured.add("a.rs::huge function".to_owned(), 101, &FUNCTIONS);
    let check = |exceptions: &str, parts: &[&str]| {
        let problems = measured.check(exceptions);
        assert_eq!(problems.len(), parts.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(parts) {
            assert!(problem.contains(part), "{problem}");
        }
    };
    let huge = "a.rs::huge function: 101 lines, ";
    check("", &["a.rs file: 700 lines, 500", "a.rs::f function: 80 lines, 60", huge]);
    check("# why\na.rs  file 700\na.rs::f function 88\na.rs::huge function 200", &["lower 200", huge]);
    check("a.rs file 699\na.rs::f function 80", &["a.rs file: 700 lines, 699", huge]);
    check("a.rs file 778\na.rs::f function 80", &["lower 778 to 700", huge]);
    check(
        "a.rs file 700\na.rs::f function 80\na.rs::small function 60\nb.rs file 600\nx\na.rs file 700",
        &["no longer needed", "no such thing", "path kind size", "listed twice", huge],
    );
}
