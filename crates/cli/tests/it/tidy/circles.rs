//! Circles of imports between the top-level modules of a crate, which the compiler accepts.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{test_ranges, words};

/// Modules of a crate, each with those that it imports.
#[derive(Default)]
pub(crate) struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// Adds a file of `module`. In its first file, `super` is the crate.
    pub(crate) fn add(&mut self, module: &str, is_first_file: bool, masked: &str) {
        let tests = test_ranges(masked);
        let imported = self.0.entry(module.to_owned()).or_default();
        let roots = if is_first_file { &["crate", "super"][..] } else { &["crate"] };
        for root in roots {
            for at in words(masked, root).filter(|at| !tests.iter().any(|range| range.contains(at))) {
                if let Some(path) = masked[at + root.len()..].strip_prefix("::") {
                    imported.extend(first_names(path).into_iter().map(str::to_owned));
                }
            }
        }
    }

    /// Returns the modules that reach themselves through others.
    pub(crate) fn in_circles(&self) -> Vec<&str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| self.reached(name).contains(name)).collect()
    }

    fn reached<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            let imported = self.0.get(module).into_iter().flatten().map(String::as_str);
            for next in imported.filter(|next| *next != module && self.0.contains_key(*next)) {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

/// Returns the first name of each path in `a::b`, or in `{a::b, c}`.
fn first_names(path: &str) -> Vec<&str> {
    let name = |text: &str| text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let Some(group) = path.strip_prefix('{') else {
        return vec![&path[..name(path).unwrap_or(path.len())]];
    };
    let (mut names, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b',' | b'}' if depth == 0 => {
                let path = group[start..at].trim_start();
                names.push(&path[..name(path).unwrap_or(path.len())]);
                start = at + 1;
                if byte == b'}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

#[test]
fn circles_are_found_through_groups_and_not_in_tests() {
    let mut imports = Imports::default();
    imports.add("a", true, "use crate::{b::{C, D}, e};");
    imports.add("b", false, "use super::e;\nfn f() { crate::c::g() }");
    imports.add("c", true, "use super::a::{self, X};");
    imports.add("e", true, "use crate::e::Y;\n#[cfg(test)]\nmod tests { use crate::a::Z; }");
    assert_eq!(imports.in_circles(), ["a", "b", "c"]);
}
