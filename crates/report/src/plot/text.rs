//! Labels: their approximate width, and their shortening. Nothing here can measure text.

/// Mean width of a letter of 12 units. Generous for the system fonts of the page.
const CHAR_WIDTH: f64 = 6.7;

pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR_WIDTH
}

/// Shortens a text to at most `chars_max` characters, with an ellipsis at the end.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Shortens a text in its middle: names of factors end in their level.
pub(crate) fn truncated_middle(text: &str, chars_max: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= chars_max {
        return text.to_owned();
    }
    let chars_left = chars_max.saturating_sub(1);
    let tail = chars_left.div_ceil(2);
    let (head, tail) = (&all[..chars_left - tail], &all[all.len() - tail..]);
    head.iter().chain(std::iter::once(&'…')).chain(tail).collect()
}

/// Returns the name of a row: its arm, and its load if there are several. Both keep their ends.
pub(crate) fn row_name(arm: &str, load: Option<&str>, chars_max: usize) -> String {
    let Some(load) = load else { return truncated_middle(arm, chars_max) };
    let load = truncated_middle(load, chars_max / 2);
    let left = chars_max.saturating_sub(load.chars().count() + 2);
    format!("{}, {load}", truncated_middle(arm, left))
}
