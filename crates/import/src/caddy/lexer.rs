//! Tokens of a Caddyfile, and its tree: lines of words with blocks, snippets and imports resolved.

use std::rc::Rc;

use crate::directive::Directive;
use crate::document::Origin;
use crate::left::{Kind, Report};
use crate::{BYTES_MAX, ParseError, Surroundings};

/// Maximum nesting of blocks, and of imports.
const DEPTH_MAX: usize = 12;
/// Maximum number of lines with those of imports.
const LINES_MAX: usize = 20_000;
/// Bytes of memory that the lines of any file may need with those of imports, and further bytes for each byte read.
const EXPANDED_BYTES: usize = 1 << 20;
const EXPANDED_FACTOR: usize = 8;
/// Bytes of memory for a line and for a word, beside their text.
const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = 24;

/// One word with its place.
#[derive(Clone, Debug)]
struct Token {
    text: String,
    line: usize,
    /// The last line of a text that goes on, or of a heredoc.
    end_line: usize,
    is_quoted: bool,
}

/// Snippets of the file, by name.
type Snippets = Vec<(String, Vec<Directive>)>;

/// Reader of a Caddyfile and of those that it imports.
pub(crate) struct Reader<'a> {
    pub(crate) surroundings: &'a mut dyn Surroundings,
    pub(crate) report: Report,
    snippets: Snippets,
    lines: usize,
    /// Bytes of all files.
    pub(crate) bytes: usize,
    /// Memory of all lines with those of imports.
    expanded: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(surroundings: &'a mut dyn Surroundings) -> Self {
        Self {
            surroundings,
            report: Report::default(),
            snippets: Vec::new(),
            lines: 0,
            bytes: 0,
            expanded: 0,
        }
    }

    /// Reads a file: global options have no words, sites have their addresses as words.
    pub(crate) fn read(&mut self, file: &str, text: &str) -> Result<Vec<Directive>, ParseError> {
        let raw = self.parse(file, text)?;
        let is_block = |directive: &Directive| directive.block.is_some();
        // A site without braces: its addresses are in the first line.
        let has_sites = raw.iter().all(|directive| is_block(directive) || directive.name() == "import");
        let sites = if has_sites { raw } else { without_braces(raw) };
        let mut all = Vec::new();
        self.take_sites(sites, &mut all, 0)?;
        Ok(all)
    }

    fn take_sites(
        &mut self,
        raw: Vec<Directive>,
        all: &mut Vec<Directive>,
        depth: usize,
    ) -> Result<(), ParseError> {
        for mut site in raw {
            let name = site.name().to_owned();
            if name == "import" && site.block.is_none() {
                if depth >= DEPTH_MAX {
                    return Err(error_at(&site.origin, "imports are nested deeper than 12 levels"));
                }
                let imported = self.imported_files(&site)?;
                self.take_sites(imported, all, depth + 1)?;
                continue;
            }
            let inner = site.block.take().unwrap_or_default();
            let is_snippet = name.starts_with('(') && name.ends_with(')');
            let expanded = if is_snippet { inner } else { self.expand(inner, &[], depth)? };
            if is_snippet {
                self.snippets.push((name[1..name.len() - 1].to_owned(), expanded));
                continue;
            }
            site.block = Some(expanded);
            all.push(site);
        }
        Ok(())
    }

    fn imported_files(&mut self, import: &Directive) -> Result<Vec<Directive>, ParseError> {
        let files = match self.surroundings.include(import.argument(0)) {
            Ok(files) => files,
            Err(reason) => {
                // Its rules may restrict what the others allow.
                return Err(error_at(&import.origin, &format!("the imported file: {reason}")));
            }
        };
        let mut directives = Vec::new();
        for (file, text) in files {
            directives.extend(self.parse(&file, &text)?);
        }
        Ok(directives)
    }

    /// Replaces the imports in a block by their lines.
    fn expand(
        &mut self,
        block: Vec<Directive>,
        arguments: &[String],
        depth: usize,
    ) -> Result<Vec<Directive>, ParseError> {
        let mut expanded = Vec::new();
        for mut directive in block {
            self.lines += 1;
            if self.lines > LINES_MAX {
                return Err(error_at(&directive.origin, "more than 20,000 lines with those of imports"));
            }
            if !arguments.is_empty() {
                replace_arguments(&mut directive.words, arguments);
            }
            let words = directive.words.iter().map(|word| word.len() + WORD_BYTES);
            self.expanded += words.sum::<usize>() + directive.origin.text.len() + LINE_BYTES;
            if self.expanded > EXPANDED_BYTES + EXPANDED_FACTOR * self.bytes {
                let text = format!(
                    "the lines with those of imports are too long here: they may need {EXPANDED_BYTES} bytes, and {EXPANDED_FACTOR} for each byte read"
                );
                return Err(error_at(&directive.origin, &text));
            }
            if directive.name() != "import" {
                let inner = directive.block.take();
                directive.block = inner.map(|inner| self.expand(inner, arguments, depth)).transpose()?;
                expanded.push(directive);
                continue;
            }
            if depth >= DEPTH_MAX {
                return Err(error_at(&directive.origin, "imports are nested deeper than 12 levels"));
            }
            let name = directive.argument(0);
            let snippet =
                self.snippets.iter().rev().find(|(other, _)| other == name).map(|(_, block)| block.clone());
            let inner = match snippet {
                Some(block) => block,
                None => self.imported_files(&directive)?,
            };
            let given = directive.arguments().get(1..).unwrap_or_default().to_vec();
            expanded.extend(self.expand(inner, &given, depth + 1)?);
        }
        Ok(expanded)
    }

    /// Parses a file into its tree, without imports.
    fn parse(&mut self, file: &str, text: &str) -> Result<Vec<Directive>, ParseError> {
        self.bytes += text.len();
        if self.bytes > BYTES_MAX {
            return Err(ParseError {
                file: file.into(),
                line: 1,
                reason: "the config is longer than 4 MiB".into(),
            });
        }
        // Placeholders of maps begin with it.
        let text = self.with_variables(file, &text.replace(super::values::MARKER, "\u{fffd}"));
        let file: Rc<str> = file.into();
        let tokens = tokens(&file, &text)?;
        let mut position = 0;
        let block = parse_block(&file, &tokens, &mut position, 0)?;
        match tokens.get(position) {
            None => Ok(block),
            Some(token) => Err(error(&file, token.line, "'}' without a block")),
        }
    }

    /// Replaces `{$NAME}` and `{$NAME:default}`.
    fn with_variables(&mut self, file: &str, text: &str) -> String {
        let mut line = 1;
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{$") {
            out.push_str(before);
            line += before.matches('\n').count();
            let end = after.find(['}', '\n']).unwrap_or(after.len());
            if !after[end..].starts_with('}') || out.len() > 2 * BYTES_MAX {
                out.push_str("{$");
                rest = after;
                continue;
            }
            let (name, default) = match after[..end].split_once(':') {
                Some((name, default)) => (name, Some(default)),
                None => (&after[..end], None),
            };
            match (self.surroundings.variable(name), default) {
                (Some(value), _) => out.push_str(&value),
                (None, Some(default)) => out.push_str(default),
                (None, None) => {
                    let placeholder = placeholder_of(name);
                    let origin = Origin { file: file.into(), line, text: format!("{{${name}}}") };
                    let text = format!(
                        "the environment variable {name}, which is not set here: {placeholder} is in its place"
                    );
                    self.report.add(Kind::Needs, &origin, text);
                    out.push_str(&placeholder);
                }
            }
            rest = &after[end + 1..];
        }
        out.push_str(rest);
        out
    }
}

/// Returns a name for a variable without a value.
fn placeholder_of(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric).take(40);
    let start: String = letters.collect::<String>().to_ascii_lowercase();
    format!("{start}.invalid")
}

/// Replaces the placeholders of a snippet's arguments.
fn replace_arguments(words: &mut Vec<String>, arguments: &[String]) {
    let mut replaced = Vec::with_capacity(words.len());
    for word in words.drain(..) {
        if let Some((start, end)) = slice_of(&word) {
            let (start, end) = (start.unwrap_or(0), end.unwrap_or(arguments.len()).min(arguments.len()));
            replaced.extend(arguments.get(start..end).unwrap_or_default().iter().cloned());
            continue;
        }
        let mut word = word;
        if word.contains("{args") {
            for (index, argument) in arguments.iter().enumerate().take(16) {
                word = word
                    .replace(&format!("{{args[{index}]}}"), argument)
                    .replace(&format!("{{args.{index}}}"), argument);
            }
        }
        replaced.push(word);
    }
    *words = replaced;
}

/// Returns the positions of `{args[START:END]}`, of which each may be missing.
fn slice_of(word: &str) -> Option<(Option<usize>, Option<usize>)> {
    let (start, end) = word.strip_prefix("{args[")?.strip_suffix("]}")?.split_once(':')?;
    let position = |text: &str| match text {
        "" => Some(None),
        digits => digits.parse().ok().map(Some),
    };
    Some((position(start)?, position(end)?))
}

/// Makes one site of a file without braces.
fn without_braces(raw: Vec<Directive>) -> Vec<Directive> {
    let mut sites = Vec::new();
    let mut site: Option<Directive> = None;
    for directive in raw {
        match &mut site {
            None if directive.block.is_some() => sites.push(directive),
            None => site = Some(Directive { block: Some(Vec::new()), ..directive }),
            Some(Directive { block: Some(block), .. }) => block.push(directive),
            Some(_) => {}
        }
    }
    sites.extend(site);
    sites
}

fn error(file: &str, line: usize, reason: &str) -> ParseError {
    ParseError { file: file.to_owned(), line, reason: reason.to_owned() }
}

fn error_at(origin: &Origin, reason: &str) -> ParseError {
    error(&origin.file, origin.line, reason)
}

fn parse_block(
    file: &Rc<str>,
    tokens: &[Token],
    position: &mut usize,
    depth: usize,
) -> Result<Vec<Directive>, ParseError> {
    let mut block = Vec::new();
    while let Some(token) = tokens.get(*position) {
        if token.text == "}" && !token.is_quoted {
            return Ok(block);
        }
        let line = token.line;
        let mut words = Vec::new();
        let mut inner = None;
        let mut last_line = line;
        while let Some(token) = tokens.get(*position) {
            // Addresses of a site go on behind a comma.
            let goes_on = depth == 0 && words.last().is_some_and(|word: &String| word.ends_with(','));
            if token.line != last_line && !goes_on {
                break;
            }
            last_line = token.end_line;
            let is_brace = !token.is_quoted && token.text == "{";
            if !token.is_quoted && token.text == "}" {
                break;
            }
            *position += 1;
            let ends_line = tokens.get(*position).is_none_or(|next| next.line != token.end_line);
            if is_brace && (ends_line || words.is_empty()) {
                if depth >= DEPTH_MAX {
                    return Err(error(file, line, "blocks are nested deeper than 12 levels"));
                }
                let block = parse_block(file, tokens, position, depth + 1)?;
                if tokens.get(*position).is_none() {
                    return Err(error(file, line, "the block has no '}' at its end"));
                }
                *position += 1;
                inner = Some(block);
                break;
            }
            words.push(token.text.clone());
        }
        let mut text = words.join(" ");
        text.truncate(text.floor_char_boundary(400));
        let text = text.replace('\n', " ");
        let text = if inner.is_some() { format!("{text} {{") } else { text };
        let origin = Rc::new(Origin { file: Rc::clone(file), line, text: text.trim().to_owned() });
        block.push(Directive { words, block: inner, origin });
    }
    Ok(block)
}

/// Splits a text into its words.
fn tokens(file: &str, text: &str) -> Result<Vec<Token>, ParseError> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(letter) = rest.chars().next() {
        let start = line;
        match letter {
            '\n' => {
                line += 1;
                rest = &rest[1..];
            }
            // A line that goes on.
            '\\' if rest[1..].starts_with('\n') || rest[1..].starts_with("\r\n") => {
                rest = rest[1..].trim_start_matches('\r').get(1..).unwrap_or_default();
            }
            letter if letter.is_whitespace() => rest = &rest[letter.len_utf8()..],
            '#' => rest = &rest[rest.find('\n').unwrap_or(rest.len())..],
            '"' | '`' => {
                let (text, after) =
                    quoted(&rest[1..], letter).ok_or_else(|| error(file, start, "a quote is not closed"))?;
                line += rest[..rest.len() - after.len()].matches('\n').count();
                tokens.push(Token { text, line: start, end_line: line, is_quoted: true });
                rest = after;
            }
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                let word = &rest[..end];
                rest = &rest[end..];
                if let Some(marker) = word.strip_prefix("<<").filter(|marker| !marker.is_empty()) {
                    let (text, after, lines) = heredoc(rest, marker)
                        .ok_or_else(|| error(file, start, "the heredoc is not closed"))?;
                    line += lines;
                    tokens.push(Token { text, line: start, end_line: line, is_quoted: true });
                    rest = after;
                } else {
                    let text = word.replace("\\\"", "\"");
                    tokens.push(Token { text, line: start, end_line: start, is_quoted: false });
                }
            }
        }
    }
    Ok(tokens)
}

/// Returns a quoted text and the rest behind it.
fn quoted(rest: &str, quote: char) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            letter if letter == quote => return Some((text, &rest[at + 1..])),
            '\\' if quote == '"' => match letters.next() {
                Some((_, letter @ ('"' | '\n'))) => text.push(letter),
                Some((_, letter)) => text.extend(['\\', letter]),
                None => return None,
            },
            letter => text.push(letter),
        }
    }
    None
}

/// Returns the text of a heredoc, the rest behind it, and its number of lines.
fn heredoc<'t>(rest: &'t str, marker: &str) -> Option<(String, &'t str, usize)> {
    let body = &rest[rest.find('\n')? + 1..];
    let mut lines: Vec<&str> = Vec::new();
    let mut offset = 0;
    for line in body.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        let bare = content.trim_start();
        // Further words may follow the marker.
        let is_end = bare
            .strip_prefix(marker)
            .is_some_and(|rest| !rest.starts_with(|letter: char| !letter.is_whitespace()));
        if is_end {
            let indent = content.len() - bare.len();
            let cut = |line: &&str| {
                let bare = line.trim_start_matches([' ', '\t']);
                let own = line.len() - bare.len();
                line[own.min(indent)..].to_owned()
            };
            let text = lines.iter().map(cut).collect::<Vec<_>>().join("\n");
            return Some((text, &body[offset + indent + marker.len()..], lines.len() + 1));
        }
        lines.push(content);
        offset += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::NoSurroundings;

    fn read(text: &str) -> Result<Vec<Directive>, ParseError> {
        Reader::new(&mut NoSurroundings).read("a", text)
    }

    #[test]
    fn sites_have_addresses_and_directives() {
        let text = "{\n\temail a@b\n}\na.example,\nb.example {\n\trespond \"x y\" 200 # c\n\theader {\n\t\t-Server\n\t}\n}\n";
        let sites = read(text).unwrap();
        assert_eq!(sites[0].words, [""; 0]);
        assert_eq!(sites[1].words, ["a.example,", "b.example"]);
        assert_eq!(sites[1].inner()[0].words, ["respond", "x y", "200"]);
        assert_eq!(sites[1].inner()[1].inner()[0].words, ["-Server"]);
        let sites = read(":80\nrespond `a \"b\"`\nlog {\n}\n").unwrap();
        assert_eq!((sites[0].words[0].as_str(), sites[0].inner().len()), (":80", 2));
    }

    #[test]
    fn snippets_variables_and_heredocs_are_resolved() {
        let text = "(s) {\n\theader X {args[0]}\n}\n{$HOST}:80 {\n\timport s 1\n\trespond <<E\n\t\ta\n\t\t b\n\t\tE 200\n}\n";
        let sites = read(text).unwrap();
        assert_eq!(sites[0].words, ["host:80"]);
        assert_eq!(sites[0].inner()[0].words, ["header", "X", "1"]);
        assert_eq!(sites[0].inner()[1].words, ["respond", "a\n b", "200"]);
        let sites = read("{$NONE:x.example} {\n}\n").unwrap();
        assert_eq!(sites[0].words, ["x.example"]);
    }

    #[test]
    fn endless_imports_and_open_blocks_are_errors() {
        assert!(read("(a) {\n\timport a\n}\n:80 {\n\timport a\n}\n").unwrap_err().reason.contains("nested"));
        for text in [":80 {\n", "a {\n b {\n}\n", ":80 {\n}\n}\n", "a \"b"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
