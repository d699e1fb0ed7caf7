//! Scenario file of a load: TOML with the names of the flags as keys, `urls`, and `[[request]]` tables.
//! Every problem has its line and column. No I/O: the caller reads the files.

use std::io;

use record::document::table::{KeySpec, ListForm, TableValues, ValueForm, key, read_document, required};
use record::document::{Problems, TomlDocument, position};
use record::problem::InputProblem;
use record::sorted::sort_by_key;

use super::requests::{RequestText, parse_weight};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSetting {
    /// Name of the flag; `urls` for the URLs.
    pub name: String,
    /// Values; none for a flag without a value.
    pub values: Vec<String>,
    /// Position of the value: `plan.toml:3:8`.
    pub location: String,
}

#[derive(Clone, Debug, Default)]
pub struct ScenarioFile {
    /// Settings, in the order of the file.
    pub settings: Vec<FileSetting>,
    pub requests: Vec<RequestText>,
    pub problems: Vec<InputProblem>,
}

pub const URLS_KEY: &str = "urls";
const REQUEST_KEY: &str = "request";

/// Texts of a flag that may be given several times.
const REPEATED: ValueForm = ValueForm::List(ListForm {
    min: 0,
    max: usize::MAX,
    has_numbers: true,
    takes_one: true,
    example: "[\"a\", \"b\"]",
});

/// Keys besides those that flags have.
const OWN_KEYS: [KeySpec; 2] = [
    key(URLS_KEY, REPEATED, "URLs, unless the command line has some"),
    key(REQUEST_KEY, ValueForm::TableList(REQUEST), "Further requests"),
];

const REQUEST: &[KeySpec] = &[
    required("url", ValueForm::Plain, "URL of the request"),
    key("method", ValueForm::Plain, "Method; the default is that of the flags"),
    key("header", REPEATED, "Fields besides those of the flags, whose names they replace"),
    key("data", ValueForm::Plain, "Body; the default is that of the flags"),
    key("data-file", ValueForm::Plain, "File with the body"),
    key("weight", ValueForm::Plain, "Relative number of requests; the default is 1"),
];

/// Returns the form of a flag's values in a file.
pub fn flag_form(has_value: bool, is_repeatable: bool) -> ValueForm {
    match (has_value, is_repeatable) {
        (false, _) => ValueForm::Flag,
        (true, false) => ValueForm::Plain,
        (true, true) => REPEATED,
    }
}

struct FileReader<'a> {
    name: &'a str,
    text: &'a str,
    read_body: &'a dyn Fn(&str) -> io::Result<Vec<u8>>,
    problems: Problems,
}

impl ScenarioFile {
    /// Parses a file whose keys are also those of `flags`; `read_body` reads the file of a body.
    #[must_use]
    pub fn parse(
        name: &str,
        text: &str,
        flags: &[KeySpec],
        read_body: &dyn Fn(&str) -> io::Result<Vec<u8>>,
    ) -> Self {
        let document = TomlDocument::parse(text);
        let mut reader = FileReader { name, text, read_body, problems: Problems::default() };
        let keys = [flags, &OWN_KEYS].concat();
        let values = read_document(&document, &keys, &mut reader.problems);
        let tables = values.table_list(REQUEST_KEY).iter();
        Self {
            settings: reader.settings(&values, &keys),
            requests: tables.filter_map(|table| reader.request(table)).collect(),
            problems: document.all_problems(name, reader.problems),
        }
    }
}

impl FileReader<'_> {
    fn location(&self, at: usize) -> String {
        position(self.name, self.text, at)
    }

    fn settings(&self, values: &TableValues, keys: &[KeySpec]) -> Vec<FileSetting> {
        let mut names: Vec<&str> = keys.iter().map(|key| key.name).collect();
        sort_by_key(&mut names, |name| values.offset_of(name));
        let setting = |name: &str| {
            let texts = if values.is_set(name) { Vec::new() } else { values.text_or_list(name)? };
            let location = self.location(values.value_offset(name));
            Some(FileSetting { name: name.to_owned(), values: texts, location })
        };
        names.into_iter().filter_map(setting).collect()
    }

    fn request(&mut self, table: &TableValues) -> Option<RequestText> {
        let text = |key: &str| table.text(key).map(str::to_owned);
        let mut request = RequestText {
            location: self.location(table.offset),
            method: text("method"),
            url: text("url").unwrap_or_default(),
            headers: table.text_or_list("header").unwrap_or_default(),
            body: text("data").map(String::into_bytes),
            weight: 1,
        };
        if let Some(path) = table.text("data-file") {
            let body = (self.read_body)(path).map_err(|why| format!("{path}: {why}"));
            let body = self.problems.ok_or_report(table.value_offset("data-file"), body);
            request.body = body.or(request.body);
        }
        if let Some(text) = table.text("weight") {
            let weight = self.problems.ok_or_report(table.value_offset("weight"), parse_weight(text));
            request.weight = weight.unwrap_or(request.weight);
        }
        if table.text("url") == Some("") {
            self.problems.add_error(table.value_offset("url"), "'request.url' is empty");
        }
        (!request.url.is_empty()).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [KeySpec; 3] = [
        key("rate", ValueForm::Plain, "Rate"),
        key("header", REPEATED, "Field"),
        key("cookies", ValueForm::Flag, "Cookies"),
    ];

    fn parse(text: &str) -> ScenarioFile {
        ScenarioFile::parse("p.toml", text, &FLAGS, &|_| Err(io::Error::other("no such file")))
    }

    #[test]
    fn settings_have_the_words_of_the_flags() {
        let file = parse(
            "urls = [\"http://a/\"]\nrate = 1_000\ncookies = true\nheader = [\"A: 1\", \"B: 2\"]\n\
             [[request]]\nurl = \"http://a/1\"\nmethod = \"PUT\"\nheader = \"C: 3\"\ndata = \"x\"\nweight = 3\n",
        );
        assert_eq!(file.problems, []);
        let shown: Vec<_> = file
            .settings
            .iter()
            .map(|setting| (setting.name.as_str(), setting.values.len(), setting.location.as_str()))
            .collect();
        let expected = [
            ("urls", 1, "p.toml:1:8"),
            ("rate", 1, "p.toml:2:8"),
            ("cookies", 0, "p.toml:3:11"),
            ("header", 2, "p.toml:4:10"),
        ];
        assert_eq!(shown, expected);
        let request = &file.requests[0];
        assert_eq!((request.weight, request.body.as_deref(), request.headers.len()), (3, Some(&b"x"[..]), 1));
    }

    #[test]
    fn every_problem_has_its_position() {
        let file = parse(
            "rates = 1\ncookies = 3\nrate = [1]\nheader = [true]\n[[request]]\nmethod = \"GET\"\nweight = 0\nurls = 1\n",
        );
        let locations: Vec<_> = file.problems.iter().map(|problem| problem.location.as_str()).collect();
        assert_eq!(locations.len(), 7, "{:?}", file.problems);
        assert_eq!(&locations[..4], ["p.toml:1:1", "p.toml:2:11", "p.toml:3:8", "p.toml:4:11"]);
        assert!(file.problems[0].text.contains("did you mean 'rate'"));
    }
}
