//! Scenario file of a load: TOML with the names of the flags as keys, `urls`, and `[[request]]` tables.
//! Every problem has its line and column. No I/O: the caller reads the files.

use std::io;

use record::document::{Problems, TomlDocument, position, text_or_number};
use record::problem::InputProblem;
use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::requests::{RequestText, parse_weight};

/// Flag that a file may set.
#[derive(Clone, Copy, Debug)]
pub struct FileFlag {
    /// Name, without dashes.
    pub long: &'static str,
    pub has_value: bool,
    /// True if it may be given several times.
    pub is_repeatable: bool,
}

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
const REQUEST_KEYS: [&str; 6] = ["url", "method", "header", "data", "data-file", "weight"];

struct FileReader<'a> {
    name: &'a str,
    text: &'a str,
    read_body: &'a dyn Fn(&str) -> io::Result<Vec<u8>>,
    problems: Problems,
}

impl ScenarioFile {
    /// Parses a file; `read_body` reads the file of a body.
    #[must_use]
    pub fn parse(
        name: &str,
        text: &str,
        flags: &[FileFlag],
        read_body: &dyn Fn(&str) -> io::Result<Vec<u8>>,
    ) -> Self {
        let document = TomlDocument::parse(text);
        let mut reader = FileReader { name, text, read_body, problems: Problems::default() };
        let mut file = Self::default();
        for (key, value) in document.table() {
            let key_name: &str = key.get_ref();
            let flag = flags.iter().find(|flag| flag.long == key_name);
            if key_name == REQUEST_KEY {
                file.requests = reader.requests(value);
            } else if key_name == URLS_KEY {
                let flag = FileFlag { long: URLS_KEY, has_value: true, is_repeatable: true };
                file.settings.extend(reader.setting(flag, value));
            } else if let Some(flag) = flag {
                file.settings.extend(reader.setting(*flag, value));
            } else {
                let known = flags.iter().map(|flag| flag.long).chain([URLS_KEY, REQUEST_KEY]);
                reader.problems.add_unknown_key(key, known);
            }
        }
        file.problems = document.all_problems(name, reader.problems);
        file
    }
}

impl FileReader<'_> {
    fn add(&mut self, at: usize, why: impl std::fmt::Display) {
        self.problems.add_error(at, why);
    }

    fn location(&self, at: usize) -> String {
        position(self.name, self.text, at)
    }

    fn setting(&mut self, flag: FileFlag, value: &Spanned<DeValue<'_>>) -> Option<FileSetting> {
        let (at, name) = (value.span().start, flag.long.to_owned());
        let location = self.location(at);
        match (value.get_ref(), flag.has_value) {
            (DeValue::Boolean(true), false) => Some(FileSetting { name, values: Vec::new(), location }),
            (DeValue::Boolean(false), false) => None,
            (_, false) => {
                self.add(at, format!("{name}: it has no value: write true or false"));
                None
            }
            (DeValue::Array(list), true) if flag.is_repeatable => {
                let values: Option<Vec<_>> = list.iter().map(|item| self.text_of(&name, item)).collect();
                values.map(|values| FileSetting { name, values, location })
            }
            (DeValue::Array(_), true) => {
                self.add(at, format!("{name}: one value, no list"));
                None
            }
            (_, true) => {
                let text = self.text_of(&name, value)?;
                Some(FileSetting { name, values: vec![text], location })
            }
        }
    }

    /// Returns a text or a number as a flag takes it.
    fn text_of(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = text_or_number(value.get_ref());
        if text.is_none() {
            self.add(value.span().start, format!("{name}: neither a text nor a number"));
        }
        text
    }

    fn requests(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<RequestText> {
        let DeValue::Array(list) = value.get_ref() else {
            self.add(value.span().start, "request: write [[request]]".to_owned());
            return Vec::new();
        };
        let list: &DeArray<'_> = list;
        list.iter().filter_map(|item| self.request(item)).collect()
    }

    fn request(&mut self, item: &Spanned<DeValue<'_>>) -> Option<RequestText> {
        let at = item.span().start;
        let DeValue::Table(table) = item.get_ref() else {
            self.add(at, "request: write [[request]]".to_owned());
            return None;
        };
        let mut request = RequestText { location: self.location(at), weight: 1, ..RequestText::default() };
        for (key, value) in table {
            let (name, at): (&str, _) = (key.get_ref(), value.span().start);
            match name {
                "header" => match value.get_ref() {
                    DeValue::Array(list) => {
                        request.headers = list.iter().filter_map(|item| self.text_of(name, item)).collect();
                    }
                    _ => request.headers.extend(self.text_of(name, value)),
                },
                "url" => request.url = self.text_of(name, value)?,
                "method" => request.method = self.text_of(name, value),
                "data" => request.body = self.text_of(name, value).map(String::into_bytes),
                "data-file" => {
                    if let Some(path) = self.text_of(name, value) {
                        match (self.read_body)(&path) {
                            Ok(body) => request.body = Some(body),
                            Err(why) => self.add(at, format!("{path}: {why}")),
                        }
                    }
                }
                "weight" => {
                    if let Some(text) = self.text_of(name, value) {
                        match parse_weight(&text) {
                            Ok(weight) => request.weight = weight,
                            Err(why) => self.add(at, why),
                        }
                    }
                }
                _ => self.problems.add_unknown_key(key, REQUEST_KEYS),
            }
        }
        if request.url.is_empty() {
            self.add(at, "request: url is missing".to_owned());
            return None;
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [FileFlag; 3] = [
        FileFlag { long: "rate", has_value: true, is_repeatable: false },
        FileFlag { long: "header", has_value: true, is_repeatable: true },
        FileFlag { long: "cookies", has_value: false, is_repeatable: false },
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
        let mut sorted = shown.clone();
        sorted.sort_by_key(|setting| setting.2);
        assert_eq!(sorted, expected);
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
