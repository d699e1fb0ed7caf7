//! Layout of a TOML file: what a person wrote, in one form. Keys, values, comments and their order stay. Only blanks, line
//! breaks and trailing commas change, so the meaning never does. Formatting twice changes nothing.

use toml_parser::Source;
use toml_parser::parser::{Event, EventKind, parse_document};

use super::{Problems, TomlDocument};
use crate::problem::InputProblem;

/// Maximum width in characters of a line with an array; a longer array is written with one entry a line.
const WIDTH_MAX: usize = 100;
/// Blanks before an entry of an array that is written so.
const INDENT: usize = 4;

/// Formats the text of a file.
///
/// # Errors
/// Returns all syntax errors of a text that is not TOML, with their positions.
pub fn format_toml(file_name: &str, text: &str) -> Result<String, Vec<InputProblem>> {
    let document = TomlDocument::parse(text);
    if !document.is_valid() {
        return Err(document.all_problems(file_name, Problems::default()));
    }
    let mut pieces = Vec::new();
    let mut add_piece = |event: Event| {
        let text = text.get(event.span().start()..event.span().end()).unwrap_or_default();
        pieces.push((event.kind(), text));
    };
    parse_document(&Source::new(text).lex().into_vec(), &mut add_piece, &mut ());
    pieces.retain(|(kind, _)| *kind != EventKind::Whitespace);
    let mut layout = Layout::default();
    layout.add_statements(&mut Pieces { rest: &pieces });
    Ok(layout.text)
}

/// Parts of a text that are not read yet.
struct Pieces<'p, 't> {
    rest: &'p [(EventKind, &'t str)],
}

impl<'t> Pieces<'_, 't> {
    fn peek(&self) -> Option<EventKind> {
        self.rest.first().map(|(kind, _)| *kind)
    }

    fn next(&mut self) -> Option<(EventKind, &'t str)> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Reads a key with all its parts, without blanks, and the `=` after it.
    fn key(&mut self) -> String {
        self.key_and_sign(&mut Vec::new())
    }

    /// Reads a key, or none in an array, and the `=` after it. In an inline table there may be line breaks, and comments,
    /// which go to `lines`.
    fn key_and_sign(&mut self, lines: &mut Vec<&'t str>) -> String {
        let mut key = String::new();
        while let Some(kind) = self.peek() {
            let is_in_key = matches!(kind, EventKind::SimpleKey | EventKind::KeySep);
            let is_behind_key = !key.is_empty() && matches!(kind, EventKind::Newline | EventKind::Comment);
            if !is_in_key && !is_behind_key && kind != EventKind::KeyValSep {
                break;
            }
            let text = self.next().map_or("", |(_, text)| text);
            match kind {
                EventKind::Comment => lines.push(text.trim_end()),
                _ if is_in_key => key.push_str(text),
                _ => {}
            }
        }
        key
    }

    fn value(&mut self) -> Value<'t> {
        match self.next() {
            Some((EventKind::ArrayOpen, _)) => Value::List(self.list("[", "]")),
            Some((EventKind::InlineTableOpen, _)) => Value::List(self.list("{", "}")),
            Some((_, text)) => Value::Scalar(text),
            None => Value::Scalar(""),
        }
    }

    /// Reads the entries of an array or of an inline table, after its opening bracket.
    fn list(&mut self, open: &'static str, close: &'static str) -> List<'t> {
        let mut list = List { open, close, entries: Vec::new(), last_lines: Vec::new(), has_lines: false };
        // True after an entry, until its line ends; and at the start of a line.
        let (mut is_on_line, mut is_line_start) = (false, false);
        while let Some(kind) = self.peek() {
            match kind {
                EventKind::ArrayClose | EventKind::InlineTableClose => {
                    self.next();
                    break;
                }
                EventKind::Newline => {
                    self.next();
                    let is_first = list.last_lines.is_empty() && list.entries.is_empty();
                    if is_line_start && !is_first && list.last_lines.last() != Some(&"") {
                        list.last_lines.push("");
                    }
                    (is_on_line, is_line_start, list.has_lines) = (false, true, true);
                }
                EventKind::Comment => {
                    let comment = self.next().map_or("", |(_, text)| text.trim_end());
                    list.has_lines = true;
                    match list.entries.last_mut().filter(|entry| is_on_line && entry.comment.is_empty()) {
                        Some(entry) => entry.comment = comment,
                        None => list.last_lines.push(comment),
                    }
                    is_line_start = false;
                }
                EventKind::ValueSep => {
                    self.next();
                    is_line_start = false;
                }
                _ => {
                    let mut lines = std::mem::take(&mut list.last_lines);
                    let before = self.rest;
                    let key = self.key_and_sign(&mut lines);
                    let read = &before[..before.len() - self.rest.len()];
                    list.has_lines |= read.iter().any(|(kind, _)| *kind == EventKind::Newline);
                    list.entries.push(Entry { lines, key, value: self.value(), comment: "" });
                    (is_on_line, is_line_start) = (true, false);
                }
            }
        }
        while list.last_lines.last() == Some(&"") {
            list.last_lines.pop();
        }
        list
    }
}

enum Value<'t> {
    /// A value as it was written.
    Scalar(&'t str),
    List(List<'t>),
}

/// An array, or an inline table.
struct List<'t> {
    open: &'static str,
    close: &'static str,
    entries: Vec<Entry<'t>>,
    /// Comments and blank lines after the last entry.
    last_lines: Vec<&'t str>,
    /// True if it has line breaks; then it keeps them.
    has_lines: bool,
}

struct Entry<'t> {
    /// Comments and blank lines before it.
    lines: Vec<&'t str>,
    /// Empty in an array.
    key: String,
    value: Value<'t>,
    /// Comment at the end of its line.
    comment: &'t str,
}

impl Value<'_> {
    /// Appends the value in one line. `false`: it has line breaks, or is wider than so many characters; then a part of
    /// it may be appended.
    fn write_line(&self, width: usize, out: &mut String) -> bool {
        let list = match self {
            Self::Scalar(text) => {
                out.push_str(text);
                return text.chars().count() <= width;
            }
            Self::List(list) => list,
        };
        if list.has_lines {
            return false;
        }
        let (start, is_table) = (out.len(), list.open == "{" && !list.entries.is_empty());
        out.push_str(list.open);
        for (index, entry) in list.entries.iter().enumerate() {
            out.push_str(if index > 0 {
                ", "
            } else if is_table {
                " "
            } else {
                ""
            });
            entry.write_key(out);
            let used = out[start..].chars().count();
            if used > width || !entry.value.write_line(width - used, out) {
                return false;
            }
        }
        out.push_str(if is_table { " " } else { "" });
        out.push_str(list.close);
        out[start..].chars().count() <= width
    }

    /// Appends the value, behind so many characters of its line, in as many lines as it needs.
    fn write(&self, column: usize, indent: usize, out: &mut String) {
        let start = out.len();
        if self.write_line(WIDTH_MAX.saturating_sub(column), out) {
            return;
        }
        out.truncate(start);
        match self {
            Self::Scalar(text) => out.push_str(text),
            // An inline table of TOML 1.0 is on one line, apart from the arrays in it.
            Self::List(list) if list.open == "{" && !list.has_lines => list.write_wide_table(indent, out),
            Self::List(list) => list.write_lines(indent, out),
        }
    }
}

impl Entry<'_> {
    fn write_key(&self, out: &mut String) {
        if !self.key.is_empty() {
            out.push_str(&self.key);
            out.push_str(" = ");
        }
    }
}

impl List<'_> {
    /// Appends the list with one entry a line.
    fn write_lines(&self, indent: usize, out: &mut String) {
        let inner = indent + INDENT;
        out.push_str(self.open);
        out.push('\n');
        for entry in &self.entries {
            write_comments(&entry.lines, inner, out);
            let start = out.len();
            out.extend(std::iter::repeat_n(' ', inner));
            entry.write_key(out);
            // Behind it is a comma.
            let column = out[start..].chars().count() + 1;
            entry.value.write(column, inner, out);
            out.push(',');
            write_comment(entry.comment, out);
            out.push('\n');
        }
        write_comments(&self.last_lines, inner, out);
        out.extend(std::iter::repeat_n(' ', indent));
        out.push_str(self.close);
    }

    /// Appends an inline table in which arrays with several entries have one a line.
    fn write_wide_table(&self, indent: usize, out: &mut String) {
        out.push('{');
        for (index, entry) in self.entries.iter().enumerate() {
            out.push_str(if index > 0 { ", " } else { " " });
            entry.write_key(out);
            match &entry.value {
                Value::List(list) if list.open == "{" && !list.has_lines => {
                    list.write_wide_table(indent, out)
                }
                Value::List(list) if list.has_lines || list.entries.len() > 1 => {
                    list.write_lines(indent, out)
                }
                value => value.write(0, indent, out),
            }
        }
        out.push_str(if self.entries.is_empty() { "}" } else { " }" });
    }
}

/// Appends comments and blank lines, each on a line.
fn write_comments(lines: &[&str], indent: usize, out: &mut String) {
    for line in lines {
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// Appends a comment at the end of a line.
fn write_comment(comment: &str, out: &mut String) {
    if !comment.is_empty() {
        out.push(' ');
        out.push_str(comment);
    }
}

/// Statements so far.
#[derive(Default)]
struct Layout<'t> {
    text: String,
    /// Comments since the last statement.
    comments: Vec<&'t str>,
    /// True if a blank line is before the comments, or before the next statement if there are none.
    is_blank_before: bool,
    /// True if a blank line is after the comments.
    is_blank_after: bool,
    is_after_heading: bool,
}

impl<'t> Layout<'t> {
    fn add_statements(&mut self, pieces: &mut Pieces<'_, 't>) {
        // True at the start of a line.
        let mut is_line_start = true;
        while let Some(kind) = pieces.peek() {
            match kind {
                EventKind::Newline => {
                    pieces.next();
                    if is_line_start {
                        self.add_blank_line();
                    }
                    is_line_start = true;
                }
                EventKind::Comment => {
                    let comment = pieces.next().map_or("", |(_, text)| text.trim_end());
                    if is_line_start {
                        self.add_comment(comment);
                    } else {
                        // Before the line break of the statement.
                        self.text.pop();
                        write_comment(comment, &mut self.text);
                        self.text.push('\n');
                    }
                    is_line_start = false;
                }
                EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                    self.add_heading(pieces);
                    is_line_start = false;
                }
                _ => {
                    self.add_key(pieces);
                    is_line_start = false;
                }
            }
        }
        self.flush_comments(false);
    }

    fn add_blank_line(&mut self) {
        match self.comments.is_empty() {
            true => self.is_blank_before = true,
            false => self.is_blank_after = true,
        }
    }

    fn add_comment(&mut self, comment: &'t str) {
        if self.is_blank_after {
            self.flush_comments(false);
            self.is_blank_before = true;
        }
        self.comments.push(comment);
    }

    /// Appends the comments, after a blank line if there was one, or if one is wanted.
    fn flush_comments(&mut self, wants_blank: bool) {
        if self.comments.is_empty() {
            return;
        }
        self.add_gap(self.is_blank_before || wants_blank);
        write_comments(&self.comments, 0, &mut self.text);
        self.comments.clear();
        (self.is_blank_before, self.is_blank_after) = (self.is_blank_after, false);
    }

    /// Appends a blank line, but neither at the start of the file nor below a heading.
    fn add_gap(&mut self, is_wanted: bool) {
        if is_wanted && !self.text.is_empty() && !self.is_after_heading {
            self.text.push('\n');
        }
        (self.is_blank_before, self.is_after_heading) = (false, false);
    }

    fn add_heading(&mut self, pieces: &mut Pieces<'_, 't>) {
        // Comments right above a heading belong to it.
        let is_above = !self.comments.is_empty() && !self.is_blank_after;
        self.is_after_heading &= !self.comments.is_empty() && !is_above;
        self.flush_comments(is_above);
        self.add_gap(!is_above);
        let (_, open) = pieces.next().unwrap_or((EventKind::StdTableOpen, ""));
        self.text.push_str(open);
        self.text.push_str(&pieces.key());
        self.text.push_str(pieces.next().map_or("", |(_, close)| close));
        self.text.push('\n');
        self.is_after_heading = true;
    }

    fn add_key(&mut self, pieces: &mut Pieces<'_, 't>) {
        self.flush_comments(false);
        self.add_gap(self.is_blank_before);
        let start = self.text.len();
        self.text.push_str(&pieces.key());
        self.text.push_str(" = ");
        let column = self.text[start..].chars().count();
        pieces.value().write(column, 0, &mut self.text);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_format(text: &str, expected: &str) {
        assert_eq!(format_toml("t", text).unwrap(), expected);
        assert!(crate::fuzzing::toml_format(text.as_bytes()));
    }

    #[test]
    fn blanks_and_empty_lines_have_one_form() {
        assert_format("", "");
        assert_format("\n\n# a\n\n\n\n# b  \n\n", "# a\n\n# b\n");
        assert_format("  a=1\r\n\r\n\r\n  b   =  'x  y'\t# c \n", "a = 1\n\nb = 'x  y' # c\n");
        assert_format("[ a . 'b c' ]\n\nx . y=[ ]\n[[ c ]]\n[d]", "[a.'b c']\nx.y = []\n\n[[c]]\n\n[d]\n");
        assert_format(
            "a=1\n# of b\n[b]  # here\n# of c\n\n[c]",
            "a = 1\n\n# of b\n[b] # here\n# of c\n\n[c]\n",
        );
        assert_format("t = {a=1,b={ },c=[1,2]}", "t = { a = 1, b = {}, c = [1, 2] }\n");
        assert_format(
            "f = 1.50\nd=1979-05-27 07:32:00\nh=0xFF_FF",
            "f = 1.50\nd = 1979-05-27 07:32:00\nh = 0xFF_FF\n",
        );
    }

    #[test]
    fn texts_are_not_touched() {
        assert_format("a='''\n x  \n\n\n # y\n'''   # z", "a = '''\n x  \n\n\n # y\n''' # z\n");
        assert_format("a=[\"\"\"x\n y\"\"\",'z']", "a = [\"\"\"x\n y\"\"\", 'z']\n");
    }

    #[test]
    fn lists_on_several_lines_have_one_entry_a_line() {
        assert_format("a = [1,\n2]", "a = [\n    1,\n    2,\n]\n");
        assert_format(
            "a = [ # first\n\n 1, 2 # two\n\n\n# three\n, 3\n\n# end\n\n]",
            "a = [\n    # first\n\n    1,\n    2, # two\n\n    # three\n    3,\n\n    # end\n]\n",
        );
        assert_format("a = {b = [\n1], c = 2}", "a = { b = [\n    1,\n], c = 2 }\n");
        assert_format(
            "a = [[\n1],{ b = [\n2]}]",
            "a = [\n    [\n        1,\n    ],\n    { b = [\n        2,\n    ] },\n]\n",
        );
        // TOML 1.1.
        assert_format("a = {\nb = 1, # one\n}", "a = {\n    b = 1, # one\n}\n");
    }

    #[test]
    fn wide_lists_are_broken() {
        let word = format!("\"{}\"", "w".repeat(30));
        let three = format!("[{word}, {word}, {word}]");
        let broken = format!("[\n    {word},\n    {word},\n    {word},\n]\n");
        assert_format(&format!("a={three}"), &format!("a = {broken}"));
        // A line of 100 characters.
        let fits = format!("[{word}, {word}, \"{}\"]", "w".repeat(24));
        assert_eq!(fits.len(), 96);
        assert_format(&format!("a={fits}"), &format!("a = {fits}\n"));
        let text = format!("w = {{ any = {three}, x = {word} }}");
        assert_format(&text, &format!("w = {{ any = {}, x = {word} }}\n", broken.trim_end()));
        let long = "x".repeat(200);
        assert_format(&format!("a='{long}'"), &format!("a = '{long}'\n"));
        assert_format(&format!("a={{ b='{long}',c={{}}}}"), &format!("a = {{ b = '{long}', c = {{}} }}\n"));
    }

    #[test]
    fn faults_have_their_places() {
        let problems = format_toml("f.toml", "a = 1\nb =\n[c\na = 2\na = 3").unwrap_err();
        let places: Vec<&str> = problems.iter().map(|problem| &*problem.location).collect();
        assert!(places.len() >= 2 && places[0].starts_with("f.toml:2:"), "{problems:?}");
    }

    /// Adds the files below a directory that have one of the extensions.
    fn add_files(directory: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => add_files(&path, found),
                Some("toml" | "md") => found.push(path),
                _ => {}
            }
        }
    }

    #[test]
    fn the_meaning_of_all_documented_files_stays() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let (mut files, mut checked) = (Vec::new(), 0);
        add_files(docs.as_ref(), &mut files);
        for path in files {
            let text = std::fs::read_to_string(&path).unwrap();
            let is_toml = path.extension().is_some_and(|extension| extension == "toml");
            let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
            let texts: Vec<&str> = if is_toml { vec![&text] } else { blocks.collect() };
            for text in texts {
                assert!(crate::fuzzing::toml_format(text.as_bytes()), "{}: {text}", path.display());
                checked += 1;
            }
        }
        assert!(checked > 60, "{checked} texts");
    }

    /// Texts of pieces of TOML, some of which are valid.
    #[test]
    fn the_meaning_of_random_texts_stays() {
        const LINES: [&str; 16] = [
            "\n",
            "  \n",
            "# c\n",
            "[b]\n",
            "[[t]] # t\n",
            "\r\n",
            "x.y = 1 # x\n",
            "z=true\n",
            "[b.'c']\n",
            "a = ",
            "k=",
            "q = {m=[",
            "w = [[",
            "u = { v = ",
            "n = '''\n '''\n",
            "i=\"#\"\n",
        ];
        const VALUES: [&str; 16] = [
            "1",
            "'x'",
            ",",
            ", ",
            "]",
            "[",
            "{ }",
            "{a=1}",
            "\n",
            "# d\n",
            "'a long text of a list with many others'",
            "]\n",
            "}\n",
            "1.5",
            "'another long text, as wide as a line may be, or nearly so'",
            "\"\"\"\n\"\"\"",
        ];
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let mut valid = 0;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..next(6) {
                let line = LINES[next(LINES.len())];
                text.push_str(line);
                for _ in 0..if line.ends_with('\n') { 0 } else { next(8) } {
                    text.push_str(VALUES[next(VALUES.len())]);
                }
            }
            valid += usize::from(crate::fuzzing::toml_format(text.as_bytes()));
        }
        assert!(valid > 1_000, "{valid} valid texts");
    }
}
