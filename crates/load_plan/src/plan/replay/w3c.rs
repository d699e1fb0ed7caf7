//! Lines of the W3C extended log format, whose columns a line `#Fields:` names: IIS, CloudFront, NetScaler, Incapsula.

use record::problem::printable;

use super::lines::{
    LogEntry, SHOWN_BYTES_MAX, SkipReason, SkippedLine, check_request, origin_form, parse_time, with_query,
};

/// Columns of the values that a request needs, and the date of the lines without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    /// Date of the last line `#Date:`.
    day: Option<String>,
    /// True once there is a line `#Fields:`.
    are_known: bool,
    date: Option<usize>,
    time: Option<usize>,
    method: Option<usize>,
    stem: Option<usize>,
    query: Option<usize>,
    /// URL, or its host and path.
    uri: Option<usize>,
}

impl Columns {
    pub(super) fn are_known(&self) -> bool {
        self.are_known
    }

    /// Reads a comment: the columns of `#Fields:`, the day of `#Date:`.
    pub(super) fn read_comment(&mut self, comment: &str) {
        if let Some(date) = comment.strip_prefix("#Date:") {
            self.day = date.split_whitespace().next().map(str::to_owned);
        }
        let Some(names) = comment.strip_prefix("#Fields:") else { return };
        let names: Vec<String> = names.split_whitespace().map(str::to_ascii_lowercase).collect();
        let find = |known: &[&str]| names.iter().position(|name| known.contains(&name.as_str()));
        *self = Self {
            day: self.day.take(),
            are_known: true,
            date: find(&["date", "date-local"]),
            time: find(&["time", "time-local"]),
            method: find(&["cs-method"]),
            stem: find(&["cs-uri-stem", "cs-uri-path"]),
            query: find(&["cs-uri-query"]),
            uri: find(&["cs-uri"]),
        };
    }

    /// Parses a line. Without a method it is a GET.
    pub(super) fn parse_line(&self, line: &str) -> Result<LogEntry, SkippedLine> {
        let values = split(line);
        let value =
            |column: Option<usize>| column.and_then(|at| values.get(at).copied()).filter(|text| *text != "-");
        let no_time = |text: String| SkippedLine::new(1, SkipReason::NoTime, text);
        let (date, time) = value(self.date)
            .or(self.day.as_deref())
            .zip(value(self.time))
            .ok_or_else(|| no_time("no date and time in the columns of #Fields".to_owned()))?;
        let (at_ns, is_whole_second) = parse_time(&format!("{date}T{time}Z")).ok_or_else(|| {
            no_time(format!("'{}' is not a time", printable(&format!("{date} {time}"), SHOWN_BYTES_MAX)))
        })?;
        let skip = |reason, text: String| SkippedLine::new(1, reason, text);
        let url = value(self.stem).or_else(|| value(self.uri)).ok_or_else(|| {
            skip(
                SkipReason::NoRequest,
                "no path in the columns of #Fields (cs-uri-stem or cs-uri)".to_owned(),
            )
        })?;
        let target = match url.split_once("://") {
            Some((scheme, _)) if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") => {
                return Err(skip(SkipReason::OtherScheme, printable(url, SHOWN_BYTES_MAX)));
            }
            Some(_) => origin_form(url),
            None if url.starts_with('/') => origin_form(url),
            // Host and path.
            None => origin_form(&format!("http://{url}")),
        };
        let method = value(self.method).unwrap_or("GET").to_owned();
        let target = with_query(&target, value(self.query).unwrap_or_default());
        let entry = LogEntry::new(at_ns, is_whole_second, method, target);
        check_request(&entry)?;
        Ok(entry)
    }
}

/// Splits a line at its tabs or, if it has none, at its spaces; a value in quotes may have spaces.
fn split(line: &str) -> Vec<&str> {
    if line.contains('\t') {
        return line.split('\t').map(|value| value.trim().trim_matches('"')).collect();
    }
    let (mut values, mut rest) = (Vec::new(), line.trim());
    while !rest.is_empty() {
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        values.push(value);
        rest = after.trim_start();
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(fields: &str, line: &str) -> Result<String, SkipReason> {
        let mut columns = Columns::default();
        columns.read_comment(&format!("#Fields: {fields}"));
        let entry = columns.parse_line(line).map_err(|skipped| skipped.reason)?;
        Ok(format!("{} {} {}", entry.at_ns / 1_000_000, entry.method, entry.target))
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let iis = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs(User-Agent)";
        assert_eq!(
            target(iis, "1970-01-01 00:00:02 192.0.2.1 POST /a.aspx id=1&b=2 443 x+y").unwrap(),
            "2000 POST /a.aspx?id=1&b=2"
        );
        assert_eq!(target(iis, "1970-01-01 00:00:02 192.0.2.1 GET / - 443 x").unwrap(), "2000 GET /");
        let local = "  date-local time-local\tcs-uri-stem";
        assert_eq!(target(local, "1970-01-01 00:00:01.5 \"/with it\"").unwrap_err(), SkipReason::Unsendable);
        assert_eq!(target(local, "1970-01-01\t00:00:01.5\t/x").unwrap(), "1500 GET /x");
        let quoted = "date time cs(User-Agent) cs-uri cs-method cs-uri-query";
        assert_eq!(
            target(quoted, "\"1970-01-01\" \"00:00:01\" \"a b\" \"b.example/p\" \"GET\" \"q=1\"").unwrap(),
            "1000 GET /p?q=1"
        );
        assert_eq!(
            target(quoted, "\"1970-01-01\" \"00:00:01\" \"\" \"b.example\" \"GET\" \"\"").unwrap(),
            "1000 GET /"
        );
        assert_eq!(target("date time cs-uri-stem", "1970-01-01 0:0:1 /").unwrap_err(), SkipReason::NoTime);
        assert_eq!(
            target("date time cs-uri-stem", "1970-01-01 00:00:01 -").unwrap_err(),
            SkipReason::NoRequest
        );
        assert_eq!(
            target("date time cs-uri-stem", "1970-01-01 00:00:01 rtmp://a/b").unwrap_err(),
            SkipReason::OtherScheme
        );
        assert_eq!(target("time cs-uri-stem", "00:00:01 /").unwrap_err(), SkipReason::NoTime);
        let mut columns = Columns::default();
        columns.read_comment("#Software: x");
        columns.read_comment("#Date: 1970-01-02 10:00:00");
        assert!(!columns.are_known());
        columns.read_comment("#Fields: time cs-uri-stem");
        assert!(columns.are_known());
        assert_eq!(columns.parse_line("00:00:01 /x").unwrap().at_ns, 86_401_000_000_000);
    }
}
