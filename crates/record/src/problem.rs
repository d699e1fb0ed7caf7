//! One thing wrong with what somebody asked for: where it stands, what is wrong, what to do.
//! Parsers collect all of them before they give up.

use std::fmt;

/// A problem with a flag, a URL or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `--rate`, `URL 2`, `plan.toml:3:7`.
    pub place: String,
    /// What is wrong and what would be right.
    pub text: String,
}

impl Problem {
    /// A problem at `place`.
    pub fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

impl std::error::Error for Problem {}

/// ` (did you mean 'x'?)` for the nearest of `known`, if one is near.
#[must_use]
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let plain = word.replace('_', "-").to_lowercase();
    let near = known
        .into_iter()
        // A word from a file may be long, and then it is near to nothing.
        .filter(|known| known.len().abs_diff(plain.len()) <= known.len())
        .map(|known| (distance(&plain, known), known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min();
    near.map_or_else(String::new, |(_, known)| format!(" (did you mean '{known}'?)"))
}

/// How many letters have to change, two that changed places counting as one.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for line in 1..=one.len() {
        let mut row = vec![line];
        for column in 1..=other.len() {
            let same = one[line - 1] == other[column - 1];
            let changed = rows[line - 1][column - 1] + usize::from(!same);
            let mut least = changed.min(rows[line - 1][column] + 1).min(row[column - 1] + 1);
            if line > 1
                && column > 1
                && one[line - 1] == other[column - 2]
                && one[line - 2] == other[column - 1]
            {
                least = least.min(rows[line - 2][column - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_suggested() {
        let known = ["retries", "reuse", "queue", "idle-max"];
        assert_eq!(suggestion("retrys", known), " (did you mean 'retries'?)");
        assert_eq!(suggestion("Idle_Max", known), " (did you mean 'idle-max'?)");
        assert_eq!(suggestion("frobnicate", known), "");
        assert_eq!(suggestion("wbe", ["web"]), " (did you mean 'web'?)");
        assert_eq!((distance("kitten", "sitting"), distance("", "ab")), (3, 2));
    }
}
