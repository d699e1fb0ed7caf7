//! Differences between two texts: flags by name, lines by position.
//!
//! The meaning of a difference is not decided here: two places may be one change, and one place
//! two.

use std::collections::BTreeMap;

use record::shell::split_words;
use record::sorted::CollectSorted;

/// Maximum product of the lengths of two lists that are compared.
const PAIRS_MAX: usize = 1 << 20;
/// Maximum number of places that are distinguished; later ones are merged with the last.
const POSITIONS_MAX: usize = 12;
/// Name for words that belong to no flag.
const NO_FLAG: &str = "words";

/// Returns the differences between the flags of two loads, by flag; `None` if they cannot be
/// compared.
pub(super) fn diff_flags(old: &str, new: &str) -> Option<BTreeMap<String, String>> {
    let (old, new) = (split_words(old).ok()?, split_words(new).ok()?);
    // The same value after another flag is a different value. A word after an inserted switch is
    // not.
    let same = |at: usize, new_index: usize| {
        let (old_flag, new_flag) = (flag_at(&old, at), flag_at(&new, new_index));
        old[at] == new[new_index] && (old_flag == new_flag || old_flag == NO_FLAG || new_flag == NO_FLAG)
    };
    let common = longest_common_subsequence((old.len(), new.len()), same)?;
    let mut differences: BTreeMap<String, Option<Vec<&str>>> = BTreeMap::new();
    for at in (0..old.len()).filter(|at| !common.iter().any(|(old, _)| old == at)) {
        differences.entry(flag_at(&old, at).to_owned()).or_default();
    }
    for at in (0..new.len()).filter(|at| !common.iter().any(|(_, new)| new == at)) {
        let flag = flag_at(&new, at);
        let value = new[at].strip_prefix(flag).unwrap_or(&new[at]).trim_start_matches('=');
        let values = differences.entry(flag.to_owned()).or_default().get_or_insert_default();
        values.extend(Some(value).filter(|value| !value.is_empty()));
    }
    let shown = |values: Option<Vec<&str>>| match values {
        None => "not there".to_owned(),
        Some(values) if values.is_empty() => "there".to_owned(),
        Some(values) => values.join(" "),
    };
    Some(differences.into_iter().map(|(flag, values)| (flag, shown(values))).collect_map())
}

/// Returns the flag that a word is or belongs to: `-c` for `-c`, `-c10`, and `10` after `-c`.
fn flag_at(words: &[String], at: usize) -> &str {
    if let Some((flag, _)) = split_flag(&words[at]) {
        return flag;
    }
    let before = at.checked_sub(1).and_then(|before| split_flag(&words[before]));
    before.filter(|(_, value)| value.is_empty()).map_or(NO_FLAG, |(flag, _)| flag)
}

fn split_flag(word: &str) -> Option<(&str, &str)> {
    let letter = word.trim_start_matches('-').chars().next()?;
    if !word.starts_with('-') || letter.is_ascii_digit() {
        return None;
    }
    let is_value = |character: char| character.is_ascii_digit() || character == '{';
    let end = match word.strip_prefix("--") {
        Some(_) => word.find('=').unwrap_or(word.len()),
        None => 1 + letter.len_utf8(),
    };
    let (name, value) = word.split_at(end);
    // `-keepalive` is a name; `-c10` is a name with a value.
    let is_name = !word.starts_with("--") && !value.starts_with(is_value);
    Some(if is_name { (word, "") } else { (name, value) })
}

/// Returns the differing lines of two texts, by the line number of the old one, as `- gone` and
/// `+ come`. `None` if they cannot be compared.
pub(super) fn diff_lines(old: &str, new: &str) -> Option<BTreeMap<usize, String>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut common =
        longest_common_subsequence((old.len(), new.len()), |at, new_index| old[at] == new[new_index])?;
    common.push((old.len(), new.len()));
    let mut differences: BTreeMap<usize, String> = BTreeMap::new();
    let (mut old_from, mut new_from) = (0, 0);
    for (old_at, new_at) in common {
        let gone = old[old_from..old_at].iter().map(|line| format!("- {}\n", line.trim()));
        let come = new[new_from..new_at].iter().map(|line| format!("+ {}\n", line.trim()));
        let text: String = gone.chain(come).collect();
        if !text.is_empty() {
            let last = differences.keys().next_back().copied().filter(|_| differences.len() == POSITIONS_MAX);
            differences.entry(last.unwrap_or(old_from + 1)).or_default().push_str(&text);
        }
        (old_from, new_from) = (old_at + 1, new_at + 1);
    }
    for text in differences.values_mut() {
        text.truncate(text.trim_end().len());
    }
    Some(differences)
}

/// Returns the longest common subsequence of two lists of these lengths, as pairs of positions.
/// `None` if the lists are too long.
fn longest_common_subsequence(
    (old, new): (usize, usize),
    same: impl Fn(usize, usize) -> bool,
) -> Option<Vec<(usize, usize)>> {
    let width = new + 1;
    let size = (old + 1).checked_mul(width).filter(|size| *size <= PAIRS_MAX)?;
    // Length of the common part from each pair of positions on.
    let mut lengths = vec![0_u32; size];
    for at in (0..old).rev() {
        for new_index in (0..new).rev() {
            let cell = at * width + new_index;
            lengths[cell] = match same(at, new_index) {
                true => lengths[cell + width + 1] + 1,
                false => lengths[cell + width].max(lengths[cell + 1]),
            };
        }
    }
    let mut matches = Vec::new();
    let (mut at, mut new_index) = (0, 0);
    while at < old && new_index < new {
        let cell = at * width + new_index;
        if same(at, new_index) {
            matches.push((at, new_index));
            (at, new_index) = (at + 1, new_index + 1);
        } else if lengths[cell + width] >= lengths[cell + 1] {
            at += 1;
        } else {
            new_index += 1;
        }
    }
    Some(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_distinguished() {
        let diff_of = |old: &str, new: &str| -> Vec<String> {
            let differences = diff_flags(old, new).unwrap();
            differences.into_iter().map(|(flag, value)| format!("{flag}: {value}")).collect()
        };
        let base = "-t 1 -c {c} -d {duration} http://{subject}/";
        assert_eq!(diff_of(base, base), [""; 0]);
        assert_eq!(diff_of(base, &base.replace("{c}", "8")), ["-c: 8"]);
        assert_eq!(diff_of(base, &base.replace("{c}", "8 -k")), ["-c: 8", "-k: there"]);
        assert_eq!(diff_of(base, &base.replace("-t 1 ", "")), ["-t: not there"]);
        // A new switch before the URL is one change; the URL itself is unchanged.
        assert_eq!(diff_of(base, &base.replace("http", "-k http")), ["-k: there"]);
        assert_eq!(diff_of(base, &base.replace("http", "https")), ["words: https://{subject}/"]);
        assert_eq!(diff_of("-t 1 -c 2", "-t 2 -c 1"), ["-c: 1", "-t: 2"]);
        assert_eq!(diff_of("-c10 --rate=5 u", "-c20 --rate=6 u"), ["--rate: 6", "-c: 20"]);
        assert_eq!(diff_of("-H 'a: b' u", "-H 'a: c' u"), ["-H: a: c"]);
        assert_eq!(diff_of("-keepalive u", "-keep u"), ["-keep: u", "-keepalive: not there"]);
        assert_eq!(diff_flags("a 'b", "c"), None);
    }

    #[test]
    fn lines_differ_at_positions() {
        let old = "a\n  b\nc\nd\ne\n";
        let diff_of =
            |new: &str| -> Vec<(usize, String)> { diff_lines(old, new).unwrap().into_iter().collect() };
        assert_eq!(diff_of(old), []);
        assert_eq!(diff_of("a\n  B\nC\nd\ne\n"), [(2, "- b\n- c\n+ B\n+ C".to_owned())]);
        let both = [(2, "- b".to_owned()), (5, "- e\n+ E\n+ f".to_owned())];
        assert_eq!(diff_of("a\nc\nd\nE\nf\n"), both);
        assert_eq!(diff_of("x\na\n  b\nc\nd\ne\n"), [(1, "+ x".to_owned())]);
        let many: String = (0..60).map(|n| format!("{n}\n")).collect();
        let other = many.replace("0\n", "x\n");
        assert_eq!(diff_lines(&many, &other).unwrap().len(), 6);
        let every: String = (0..60).map(|n| format!("{n}{}\n", ["", "x"][n % 2])).collect();
        assert_eq!(diff_lines(&many, &every).unwrap().len(), POSITIONS_MAX, "and the rest with the last");
        assert_eq!(diff_lines(&"a\n".repeat(2000), &"b\n".repeat(2000)), None, "too long to tell");
    }
}
