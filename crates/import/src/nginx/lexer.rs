//! Directives of a config of nginx: words with quotes and escapes, blocks, comments, included files.

use std::rc::Rc;

use crate::directive::Directive;
use crate::document::Origin;
use crate::{BYTES_MAX, ParseError, Surroundings};

/// Maximum nesting of blocks.
const DEPTH_MAX: usize = 16;
/// Maximum nesting of included files.
const INCLUDE_DEPTH_MAX: usize = 8;
/// Maximum number of included files.
const FILES_MAX: usize = 100;

/// Reader of a file and of those that it includes.
pub(crate) struct Reader<'a> {
    pub(crate) surroundings: &'a mut dyn Surroundings,
    /// Files that are being read, to find cycles.
    open: Vec<String>,
    files: usize,
    pub(crate) bytes: usize,
    /// Includes that name no file: with their reasons.
    pub(crate) problems: Vec<(Rc<Origin>, String)>,
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(surroundings: &'a mut dyn Surroundings) -> Self {
        Self { surroundings, open: Vec::new(), files: 0, bytes: 0, problems: Vec::new() }
    }

    pub(crate) fn read(&mut self, file: &str, text: &str) -> Result<Vec<Directive>, ParseError> {
        self.bytes += text.len();
        if self.bytes > BYTES_MAX {
            return Err(ParseError {
                file: file.into(),
                line: 1,
                reason: "the config is longer than 4 MiB".into(),
            });
        }
        self.open.push(file.to_owned());
        let mut scanner = Scanner { file: file.into(), rest: text, line: 1 };
        let directives = self.read_block(&mut scanner, 0)?;
        self.open.pop();
        Ok(directives)
    }

    fn read_block(&mut self, scanner: &mut Scanner<'_>, depth: usize) -> Result<Vec<Directive>, ParseError> {
        let mut directives = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut line = scanner.line;
        loop {
            let Some(token) = scanner.next()? else {
                return match (depth, words.is_empty()) {
                    (0, true) => Ok(directives),
                    (0, false) => Err(scanner.error("a directive has no ';' at its end")),
                    _ => Err(scanner.error("a block has no '}' at its end")),
                };
            };
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        line = scanner.line_of_token(&word);
                    }
                    words.push(word);
                }
                Token::End if words.is_empty() => return Err(scanner.error("';' without a directive")),
                Token::End => {
                    let directive = scanner.directive(std::mem::take(&mut words), None, line);
                    match directive.name() == "include" {
                        true => directives.extend(self.include(&directive)?),
                        false => directives.push(directive),
                    }
                }
                Token::Open if words.is_empty() => return Err(scanner.error("a block has no name")),
                Token::Open if words[0].ends_with("_by_lua_block") => {
                    scanner.skip_block()?;
                    directives.push(scanner.directive(std::mem::take(&mut words), Some(Vec::new()), line));
                }
                Token::Open => {
                    if depth >= DEPTH_MAX {
                        return Err(scanner.error("blocks are nested deeper than 16 levels"));
                    }
                    let words = std::mem::take(&mut words);
                    let block = self.read_block(scanner, depth + 1)?;
                    directives.push(scanner.directive(words, Some(block), line));
                }
                Token::Close if depth > 0 && words.is_empty() => return Ok(directives),
                Token::Close => return Err(scanner.error("'}' without a block")),
            }
        }
    }

    /// Returns the directives of included files.
    fn include(&mut self, directive: &Directive) -> Result<Vec<Directive>, ParseError> {
        let origin = &directive.origin;
        let pattern = directive.argument(0);
        // Types and parameters of other protocols have no effect here, wherever they are.
        let name = pattern.rsplit('/').next().unwrap_or_default();
        if matches!(name, "mime.types" | "fastcgi_params" | "fastcgi.conf" | "uwsgi_params" | "scgi_params") {
            return Ok(Vec::new());
        }
        let error = |reason: &str| ParseError {
            file: origin.file.to_string(),
            line: origin.line,
            reason: reason.into(),
        };
        if self.open.len() > INCLUDE_DEPTH_MAX {
            return Err(error("included files are nested deeper than 8 levels"));
        }
        let files = match self.surroundings.include(pattern) {
            Ok(files) => files,
            Err(reason) => {
                self.problems.push((Rc::clone(origin), reason.to_string()));
                // Its directives may restrict access: the block refuses all requests.
                return Ok(vec![directive.clone()]);
            }
        };
        let mut directives = Vec::new();
        for (file, text) in files {
            if self.open.contains(&file) {
                return Err(error("the file includes itself"));
            }
            self.files += 1;
            if self.files > FILES_MAX {
                return Err(error("more than 100 files are included"));
            }
            directives.extend(self.read(&file, &text)?);
        }
        Ok(directives)
    }
}

/// Position in a text.
struct Scanner<'a> {
    file: Rc<str>,
    rest: &'a str,
    line: usize,
}

impl Scanner<'_> {
    fn error(&self, reason: &str) -> ParseError {
        ParseError { file: self.file.to_string(), line: self.line, reason: reason.into() }
    }

    /// Returns the line in which a word begins that was just read.
    fn line_of_token(&self, word: &str) -> usize {
        self.line - word.matches('\n').count().min(self.line - 1)
    }

    fn directive(&self, words: Vec<String>, block: Option<Vec<Directive>>, line: usize) -> Directive {
        let end = if block.is_some() { " {" } else { ";" };
        // The text of a directive is for people: a long one is cut when it is shown, so it need not be complete.
        let mut text = String::new();
        for (index, word) in words.iter().enumerate() {
            if text.len() > 400 {
                break;
            }
            if index > 0 {
                text.push(' ');
            }
            text.push_str(&word[..word.floor_char_boundary(400)]);
        }
        text.push_str(end);
        Directive { words, block, origin: Rc::new(Origin { file: Rc::clone(&self.file), line, text }) }
    }

    fn take(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        if letter == '\n' {
            self.line += 1;
        }
        Some(letter)
    }

    fn skip_space(&mut self) {
        loop {
            match self.rest.chars().next() {
                Some('#') => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                Some(letter) if letter.is_whitespace() => drop(self.take()),
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Result<Option<Token>, ParseError> {
        self.skip_space();
        let Some(letter) = self.take() else { return Ok(None) };
        match letter {
            ';' => Ok(Some(Token::End)),
            '{' => Ok(Some(Token::Open)),
            '}' => Ok(Some(Token::Close)),
            '"' | '\'' => self.quoted(letter).map(|word| Some(Token::Word(word))),
            letter => Ok(Some(Token::Word(self.bare(letter)))),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, ParseError> {
        let mut word = String::new();
        loop {
            match self.take() {
                None => return Err(self.error("a quote is not closed")),
                Some(letter) if letter == quote => return Ok(word),
                Some('\\') => self.escape(&mut word),
                Some(letter) => word.push(letter),
            }
        }
    }

    fn bare(&mut self, first: char) -> String {
        let mut word = String::new();
        match first {
            '\\' => self.escape(&mut word),
            first => word.push(first),
        }
        while let Some(letter) = self.rest.chars().next() {
            match letter {
                // Braces around the name of a variable belong to the word.
                '{' if word.ends_with('$') => {
                    while let Some(letter) = self.take() {
                        word.push(letter);
                        if letter == '}' {
                            break;
                        }
                    }
                }
                ';' | '{' => break,
                letter if letter.is_whitespace() => break,
                '\\' => {
                    self.take();
                    self.escape(&mut word);
                }
                letter => {
                    self.take();
                    word.push(letter);
                }
            }
        }
        word
    }

    /// Takes the letter behind a backslash. Regular expressions keep their escapes.
    fn escape(&mut self, word: &mut String) {
        match self.take() {
            Some(letter @ ('"' | '\'' | '\\')) => word.push(letter),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(letter) => {
                word.push('\\');
                word.push(letter);
            }
            None => word.push('\\'),
        }
    }

    /// Skips a block of another language, with its braces.
    fn skip_block(&mut self) -> Result<(), ParseError> {
        let mut depth = 1_usize;
        while let Some(letter) = self.take() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.error("a block has no '}' at its end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::NoSurroundings;

    fn read(text: &str) -> Result<Vec<Directive>, ParseError> {
        Reader::new(&mut NoSurroundings).read("a", text)
    }

    #[test]
    fn directives_have_words_and_blocks() {
        let text = "# c\nserver {\n  listen 80; # x\n  return 200 \"a \\\"b\\\"\\n$x;\";\n  if ($a ~ \"^(x){2}$\") { deny all; }\n}\nm ${a}b 'c d' e\\.f;";
        let all = read(text).unwrap();
        let server = &all[0];
        assert_eq!((server.name(), server.inner().len(), server.origin.line), ("server", 3, 2));
        assert_eq!(server.inner()[1].words, ["return", "200", "a \"b\"\n$x;"]);
        assert_eq!(server.inner()[2].words, ["if", "($a", "~", "^(x){2}$", ")"]);
        assert_eq!(server.inner()[2].inner()[0].words, ["deny", "all"]);
        assert_eq!(all[1].words, ["m", "${a}b", "c d", "e\\.f"]);
    }

    #[test]
    fn errors_have_lines() {
        for (text, line) in [("a b", 1), ("a;\n}", 2), ("a {\n b;\n", 3), ("\"x", 1), (";", 1), ("{", 1)] {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
        }
        assert!(read(&"a {".repeat(100)).unwrap_err().reason.contains("nested"));
    }
}
