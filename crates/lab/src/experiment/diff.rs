//! In how many places two texts differ: flags by their names, lines by where they stand.
//!
//! Not for what the places mean: two of them may be one change, and one of them two.

use std::collections::BTreeMap;

use crate::scenario::programs::words;

/// Lengths of two lists, multiplied, up to which they are held against each other.
const PAIRS_MAX: usize = 1 << 20;
/// Places of a text that are told apart; what comes behind them is one with the last.
const PLACES_MAX: usize = 12;
/// The name of words that belong to no flag.
const WORDS: &str = "words";

/// What is other in the flags of a load, by flag; none where that cannot be told.
pub(super) fn flags(old: &str, new: &str) -> Option<BTreeMap<String, String>> {
    let (old, new) = (words(old)?, words(new)?);
    // The same value behind another flag is another one; a word before which a switch was put in is not.
    let same = |at: usize, place: usize| {
        let (one, other) = (flag_of(&old, at), flag_of(&new, place));
        old[at] == new[place] && (one == other || one == WORDS || other == WORDS)
    };
    let common = common((old.len(), new.len()), same)?;
    let mut found: BTreeMap<String, Option<Vec<&str>>> = BTreeMap::new();
    for at in (0..old.len()).filter(|at| !common.iter().any(|(old, _)| old == at)) {
        found.entry(flag_of(&old, at).to_owned()).or_default();
    }
    for at in (0..new.len()).filter(|at| !common.iter().any(|(_, new)| new == at)) {
        let flag = flag_of(&new, at);
        let value = new[at].strip_prefix(flag).unwrap_or(&new[at]).trim_start_matches('=');
        let values = found.entry(flag.to_owned()).or_default().get_or_insert_default();
        values.extend(Some(value).filter(|value| !value.is_empty()));
    }
    let shown = |values: Option<Vec<&str>>| match values {
        None => "not there".to_owned(),
        Some(values) if values.is_empty() => "there".to_owned(),
        Some(values) => values.join(" "),
    };
    Some(found.into_iter().map(|(flag, values)| (flag, shown(values))).collect())
}

/// The flag that a word is or belongs to: `-c` of `-c`, `-c10`, and of `10` behind `-c`.
fn flag_of(words: &[String], at: usize) -> &str {
    if let Some((flag, _)) = flag(&words[at]) {
        return flag;
    }
    let before = at.checked_sub(1).and_then(|before| flag(&words[before]));
    before.filter(|(_, value)| value.is_empty()).map_or(WORDS, |(flag, _)| flag)
}

/// A flag, and the value in the same word.
fn flag(word: &str) -> Option<(&str, &str)> {
    let letter = word.trim_start_matches('-').chars().next()?;
    if !word.starts_with('-') || letter.is_ascii_digit() {
        return None;
    }
    let is_value = |one: char| one.is_ascii_digit() || one == '{';
    let end = match word.strip_prefix("--") {
        Some(_) => word.find('=').unwrap_or(word.len()),
        None => 1 + letter.len_utf8(),
    };
    let (name, value) = word.split_at(end);
    // `-keepalive` is a name, and `-c10` a name with a value.
    let is_whole = !word.starts_with("--") && !value.starts_with(is_value);
    Some(if is_whole { (word, "") } else { (name, value) })
}

/// Where the lines of two texts differ, by the line of the old one, and what is there: `- gone`, `+ come`.
/// None where that cannot be told.
pub(super) fn lines(old: &str, new: &str) -> Option<BTreeMap<usize, String>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut common = common((old.len(), new.len()), |at, place| old[at] == new[place])?;
    common.push((old.len(), new.len()));
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    let (mut old_from, mut new_from) = (0, 0);
    for (old_at, new_at) in common {
        let gone = old[old_from..old_at].iter().map(|line| format!("- {}\n", line.trim()));
        let come = new[new_from..new_at].iter().map(|line| format!("+ {}\n", line.trim()));
        let text: String = gone.chain(come).collect();
        if !text.is_empty() {
            let last = found.keys().next_back().copied().filter(|_| found.len() == PLACES_MAX);
            found.entry(last.unwrap_or(old_from + 1)).or_default().push_str(&text);
        }
        (old_from, new_from) = (old_at + 1, new_at + 1);
    }
    for text in found.values_mut() {
        text.truncate(text.trim_end().len());
    }
    Some(found)
}

/// The longest list of entries that two lists of these lengths have in common, in order, by their places in
/// both.
fn common(
    (old, new): (usize, usize),
    same: impl Fn(usize, usize) -> bool,
) -> Option<Vec<(usize, usize)>> {
    let width = new + 1;
    let size = (old + 1).checked_mul(width).filter(|size| *size <= PAIRS_MAX)?;
    // How many are common from each pair of places on.
    let mut lengths = vec![0_u32; size];
    for at in (0..old).rev() {
        for place in (0..new).rev() {
            let here = at * width + place;
            lengths[here] = match same(at, place) {
                true => lengths[here + width + 1] + 1,
                false => lengths[here + width].max(lengths[here + 1]),
            };
        }
    }
    let mut found = Vec::new();
    let (mut at, mut place) = (0, 0);
    while at < old && place < new {
        let here = at * width + place;
        if same(at, place) {
            found.push((at, place));
            (at, place) = (at + 1, place + 1);
        } else if lengths[here + width] >= lengths[here + 1] {
            at += 1;
        } else {
            place += 1;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_told_apart() {
        let of = |old: &str, new: &str| -> Vec<String> {
            let found = flags(old, new).unwrap();
            found.into_iter().map(|(flag, value)| format!("{flag}: {value}")).collect()
        };
        let base = "-t 1 -c {c} -d {duration} http://{subject}/";
        assert_eq!(of(base, base), [""; 0]);
        assert_eq!(of(base, &base.replace("{c}", "8")), ["-c: 8"]);
        assert_eq!(of(base, &base.replace("{c}", "8 -k")), ["-c: 8", "-k: there"]);
        assert_eq!(of(base, &base.replace("-t 1 ", "")), ["-t: not there"]);
        // A switch before the URL is one change, and the URL is none.
        assert_eq!(of(base, &base.replace("http", "-k http")), ["-k: there"]);
        assert_eq!(of(base, &base.replace("http", "https")), ["words: https://{subject}/"]);
        assert_eq!(of("-t 1 -c 2", "-t 2 -c 1"), ["-c: 1", "-t: 2"]);
        assert_eq!(of("-c10 --rate=5 u", "-c20 --rate=6 u"), ["--rate: 6", "-c: 20"]);
        assert_eq!(of("-H 'a: b' u", "-H 'a: c' u"), ["-H: a: c"]);
        assert_eq!(of("-keepalive u", "-keep u"), ["-keep: u", "-keepalive: not there"]);
        assert_eq!(flags("a 'b", "c"), None);
    }

    #[test]
    fn lines_differ_in_places() {
        let old = "a\n  b\nc\nd\ne\n";
        let of =
            |new: &str| -> Vec<(usize, String)> { lines(old, new).unwrap().into_iter().collect() };
        assert_eq!(of(old), []);
        assert_eq!(of("a\n  B\nC\nd\ne\n"), [(2, "- b\n- c\n+ B\n+ C".to_owned())]);
        let both = [(2, "- b".to_owned()), (5, "- e\n+ E\n+ f".to_owned())];
        assert_eq!(of("a\nc\nd\nE\nf\n"), both);
        assert_eq!(of("x\na\n  b\nc\nd\ne\n"), [(1, "+ x".to_owned())]);
        let many: String = (0..60).map(|n| format!("{n}\n")).collect();
        let other = many.replace("0\n", "x\n");
        assert_eq!(lines(&many, &other).unwrap().len(), 6);
        let every: String = (0..60).map(|n| format!("{n}{}\n", ["", "x"][n % 2])).collect();
        assert_eq!(lines(&many, &every).unwrap().len(), PLACES_MAX, "and the rest with the last");
        assert_eq!(lines(&"a\n".repeat(2000), &"b\n".repeat(2000)), None, "too long to tell");
    }
}
