//! Differences between two values: plans, machines, versions. Does not judge which of them matter.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::output::compare::Difference;

/// Maximum number of characters shown of a value.
const SHOWN_CHARS_MAX: usize = 120;

/// Returns everything that differs, in the order of the paths. A `name` that is not empty precedes
/// each path.
pub(super) fn differences(name: &str, a: &Value, b: &Value) -> Vec<Difference> {
    let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
    flatten(name, a, &mut left);
    flatten(name, b, &mut right);
    let mut paths: Vec<&String> = left.keys().chain(right.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let differing = paths.into_iter().filter(|path| left.get(*path) != right.get(*path));
    differing
        .map(|path| Difference {
            path: path.clone(),
            a: left.get(path).map(|text| shorten(text)),
            b: right.get(path).map(|text| shorten(text)),
        })
        .collect()
}

/// Collects single values by their paths; a list of single values counts as one value.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                flatten(&join_path(path, name), field, into);
            }
        }
        Value::Array(list) if list.iter().any(|one| one.is_object()) => {
            for (at, one) in list.iter().enumerate() {
                // Named items are identified by name, so that an additional arm does not shift the
                // others.
                let name = one.get("name").and_then(Value::as_str);
                let name = name.map_or_else(|| at.to_string(), str::to_owned);
                flatten(&join_path(path, &name), one, into);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(into.insert(path.to_owned(), text.clone())),
        other => drop(into.insert(path.to_owned(), other.to_string())),
    }
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn shorten(text: &str) -> String {
    let line = text.replace('\n', " ");
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_differences_are_listed_with_their_paths() {
        let a = json!({"arms": [{"name": "x", "n": 1}, {"name": "y"}], "same": 1, "list": [1, 2]});
        let b = json!({"arms": [{"name": "y"}, {"name": "x", "n": 2}], "same": 1, "list": [1],
            "more": "t"});
        let found_differences = differences("plan", &a, &b);
        let lines: Vec<String> = found_differences
            .iter()
            .map(|one| {
                let side = |side: &Option<String>| side.clone().unwrap_or_default();
                format!("{} {}|{}", one.path, side(&one.a), side(&one.b))
            })
            .collect();
        assert_eq!(lines, ["plan.arms.x.n 1|2", "plan.list [1,2]|[1]", "plan.more |t"]);
        assert!(differences("a", &a, &a).is_empty());
        let long = differences("a", &json!("x".repeat(500)), &json!(1));
        assert_eq!(long[0].a.as_ref().unwrap().chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
