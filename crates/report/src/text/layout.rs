//! Layout of text in columns: lines that are cut, and paragraphs that are broken into lines.

/// Cuts a line to at most `width` columns; an ellipsis marks the cut.
pub fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let cut: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

/// Breaks a text between words into lines of at most `width` columns; at least one line, which may be empty.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else if let Some(line) = lines.last_mut() {
            if last > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_with_an_ellipsis() {
        assert_eq!((fit("short", 5), fit("longer", 5)), ("short".to_owned(), "long…".to_owned()));
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible it is", 5), ["incomprehensible", "it is"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
