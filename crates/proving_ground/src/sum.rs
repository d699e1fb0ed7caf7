//! Sum of stored self-tests.

use crate::matrix::{SCHEMA, SelfTest};

/// Sums the results of all runs. Sets and parts are joined where they differ.
pub fn sum_results(results: Vec<SelfTest>) -> SelfTest {
    let mut sum = SelfTest { schema: SCHEMA.to_owned(), ..SelfTest::default() };
    let mut sets: Vec<String> = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    let mut prefixes: Vec<String> = Vec::new();
    for result in results {
        if sum.started_at.is_empty() || result.started_at < sum.started_at {
            sum.started_at.clone_from(&result.started_at);
        }
        sum.duration_s += result.duration_s;
        sum.partial |= result.partial;
        sets.push(result.set);
        parts.extend(result.part);
        prefixes.extend(result.load_prefix);
        for case in result.not_inducible {
            if !sum.not_inducible.contains(&case) {
                sum.not_inducible.push(case);
            }
        }
        sum.outcomes.extend(result.outcomes);
    }
    for names in [&mut sets, &mut parts, &mut prefixes] {
        names.sort();
        names.dedup();
    }
    sum.set = sets.join("+");
    sum.part = (!parts.is_empty()).then(|| parts.join("+"));
    sum.load_prefix = (!prefixes.is_empty()).then(|| prefixes.join("+"));
    sum.with_summaries()
}
