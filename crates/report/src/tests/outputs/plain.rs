//! Outputs without the markup of their form, so that their words can be compared.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputForm {
    Text,
    Markdown,
    Xml,
    Html,
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) name: &'static str,
    pub(crate) form: OutputForm,
    pub(crate) raw: String,
    /// Words of it, separated by single spaces.
    pub(crate) plain: String,
}

impl Output {
    pub(crate) fn new(name: &'static str, form: OutputForm, raw: String) -> Self {
        let plain = match form {
            OutputForm::Text => words(&raw),
            OutputForm::Markdown => words(&without_markdown(&raw)),
            OutputForm::Xml => words(&without_entities(&raw)),
            OutputForm::Html => words(&without_entities(&without_tags(&raw))),
        };
        Self { name, form, raw, plain }
    }

    /// Returns the part with the prose of the result: of a page the card, the decision, the tiles and the findings.
    pub(crate) fn answer_part(&self) -> String {
        if self.form != OutputForm::Html {
            return self.raw.clone();
        }
        let parts = ["class=\"answer\"", "class=\"decision\"", "class=\"tiles\"", "class=\"findings\""];
        let ends = ["</div>", "</dl>", "</section>", "</ol>"];
        let part = |(start, end): (&str, &str)| {
            let (_, rest) = self.raw.split_once(start)?;
            Some(without_tags(rest.split(end).next()?))
        };
        parts.into_iter().zip(ends).filter_map(part).collect()
    }

    /// Returns the words after a piece of markup, up to an end tag.
    pub(crate) fn after(&self, start: &str, end: &str) -> Option<String> {
        let (_, rest) = self.raw.split_once(start)?;
        Some(words(&without_entities(&without_tags(rest.split(end).next()?))))
    }
}

/// Returns the words of a text, separated by single spaces.
pub(crate) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn sentences(text: &str) -> Vec<String> {
    let text = words(text);
    let mut all = Vec::new();
    let mut rest = text.as_str();
    let end = |rest: &str| {
        let mut ends = rest.match_indices(". ").map(|(at, _)| at);
        ends.find(|at| rest[at + 2..].starts_with(char::is_uppercase))
    };
    while let Some(at) = end(rest) {
        all.push(rest[..=at].to_owned());
        rest = &rest[at + 2..];
    }
    all.push(rest.to_owned());
    all
}

fn without_markdown(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek().is_some_and(char::is_ascii_punctuation) => plain.extend(letters.next()),
            '*' if letters.peek() == Some(&'*') => _ = letters.next(),
            '\u{200b}' => {}
            letter => plain.push(letter),
        }
    }
    without_entities(&plain)
}

fn without_entities(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter))
}

/// Removes tags, styles and scripts.
fn without_tags(page: &str) -> String {
    let mut plain = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once('<') {
        plain += before;
        let raw = ["style", "script"].into_iter().find(|name| after.starts_with(name));
        let after = match raw.and_then(|name| after.split_once(&format!("</{name}"))) {
            Some((_, after)) => after,
            None => after,
        };
        // Tags within a line of text separate no words.
        let is_inline = ["b>", "/b>", "code>", "/code>"].iter().any(|tag| after.starts_with(tag));
        if !is_inline {
            plain.push(' ');
        }
        rest = after.split_once('>').map_or("", |(_, after)| after);
    }
    plain + rest
}
