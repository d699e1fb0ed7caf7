//! Lines of pairs `name=value` (logfmt): those of the router of Heroku, and of programs that log their requests so.

use super::lines::{
    LogEntry, METHOD_KEYS, TARGET_KEYS, TIME_KEYS, TIME_WORDS_MAX, origin_form, parse_time, parse_time_word,
};

/// Parses a line with the pairs of a method and a target. Its time is a pair, or a word at its begin; `None` for
/// another line.
pub(super) fn parse(line: &str) -> Option<LogEntry> {
    if !line.contains("ethod=") {
        return None;
    }
    let value = |names: &[&str]| {
        let named = |name: &&str| Pairs(line).find(|(other, _)| other == name).map(|(_, value)| value);
        names.iter().find_map(named)
    };
    let method = value(&METHOD_KEYS).filter(|method| method.bytes().all(|byte| byte.is_ascii_uppercase()))?;
    let target = value(&TARGET_KEYS)?;
    let mut words = line.split_ascii_whitespace().take(TIME_WORDS_MAX);
    let time = value(&TIME_KEYS).and_then(|time| parse_time(time).or_else(|| parse_time_word(time)));
    let (at_ns, is_whole_second) = time.or_else(|| words.find_map(parse_time_word))?;
    Some(LogEntry::new(at_ns, is_whole_second, method.to_owned(), origin_form(target)))
}

/// Pairs of the rest of a line. A value in quotes has no escapes that a target needs.
struct Pairs<'a>(&'a str);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.0.trim_start();
            if rest.is_empty() {
                return None;
            }
            let end = rest.find([' ', '=']).unwrap_or(rest.len());
            let name = &rest[..end];
            let Some(value) = rest[end..].strip_prefix('=') else {
                // A word.
                self.0 = &rest[end..];
                continue;
            };
            let (value, rest) = match value.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
                None => value.split_at(value.find(' ').unwrap_or(value.len())),
            };
            self.0 = rest;
            return Some((name, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_with_and_without_quotes() {
        let router = "2024-03-10T19:53:10.123456+00:00 heroku[router]: at=info method=GET path=\"/a?b=c&d=\" \
            host=example.org fwd=\"192.0.2.17\" dyno=web.4 connect=0ms service=61ms status=200";
        let entry = parse(router).unwrap();
        assert_eq!((entry.method.as_str(), entry.target.as_str()), ("GET", "/a?b=c&d="));
        assert_eq!((entry.at_ns % 1_000_000_000, entry.is_whole_second), (123_456_000, false));
        let plain =
            "time=2024-03-10T19:53:10Z level=info msg=\"request done\" method=POST uri=/x?y=1 status=204";
        let entry = parse(plain).unwrap();
        assert_eq!(
            (entry.method.as_str(), entry.target.as_str(), entry.is_whole_second),
            ("POST", "/x?y=1", true)
        );
        let syslog =
            "<158>1 2024-03-10T19:53:10.5+00:00 host heroku router - at=error code=H12 method=HEAD path=/z";
        assert_eq!(parse(syslog).unwrap().target, "/z");
    }

    #[test]
    fn other_lines_are_not_pairs() {
        for line in [
            "192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /?method=GET&path=/x HTTP/1.1\" 200 5",
            "2024-03-10T19:53:10Z method=GET status=200",
            "2024-03-10T19:53:10Z path=/x status=200",
            "method=GET path=/x",
            "2024-03-10T19:53:10Z method=find path=/x",
            "",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
