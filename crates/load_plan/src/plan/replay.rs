//! Replay of a log: the requests of an access log (combined, HAProxy, W3C extended, AWS, Squid, logfmt, JSON) or of a HAR,
//! each due at its original time. Pure: text in, schedule out.

mod har;
mod lines;
mod pairs;
mod w3c;

use std::collections::{BTreeMap, HashMap};

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue, printable};
use record::sorted::CollectSorted;
use serde::{Serialize, Serializer};

use super::{RenderedRequest, Url};
use lines::{LogEntry, REPLAY_REQUESTS_MAX, SkipReason};
use w3c::Columns;

/// Requests of a log, in the order of their times.
#[derive(Clone, Debug, Default)]
pub struct ReplayLog {
    entries: Vec<LogEntry>,
    input: ReplayInput,
}

/// Lines of an access log, or entries of a HAR, and those that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayInput {
    name: String,
    is_har: bool,
    read: u64,
    skipped: BTreeMap<SkipReason, SkippedLines>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SkippedLines {
    count: u64,
    /// Positions and defects of the first ones.
    samples: Vec<(String, String)>,
}

/// Hosts of a HAR whose entries are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HarHosts {
    /// Host of the URL or, without an entry of it, host of the first entry.
    #[default]
    One,
    All,
    /// These, with any port if they have none.
    Named(Vec<String>),
}

/// Requests of a plan with their due times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySchedule {
    /// Due time in ns after the start, strictly increasing, and the index of the request.
    entries: Vec<(u64, u32)>,
    input: ReplayInput,
}

/// Parts that make requests of a log equal: method, target, fields and body.
type RequestKey<'a> = (&'a str, &'a str, &'a [(String, String)], &'a [u8]);

/// Maximum number of problems that are reported of a log.
const PROBLEMS_MAX: usize = 10;
/// Maximum number of skipped lines of one reason that are shown.
const SAMPLES_MAX: usize = 3;
/// Maximum length of a host in a message.
const HOST_BYTES_MAX: usize = 80;
/// Maximum number of other hosts that are named.
const HOSTS_SHOWN_MAX: usize = 4;
const SPEED_RANGE: (f64, f64) = (0.001, 10_000.0);

impl ReplayInput {
    fn skip(&mut self, reason: SkipReason, count: u64, sample: impl FnOnce() -> (String, String)) {
        let skipped = self.skipped.entry(reason).or_default();
        skipped.count += count;
        if skipped.samples.len() < SAMPLES_MAX {
            skipped.samples.push(sample());
        }
    }

    fn problems(&self, is_shown: impl Fn(SkipReason) -> bool) -> Vec<InputProblem> {
        let shown = self.skipped.iter().filter(|(reason, _)| is_shown(**reason));
        let samples =
            shown.flat_map(|(reason, skipped)| skipped.samples.iter().map(move |sample| (reason, sample)));
        let problem = |(reason, (location, text)): (&SkipReason, &(String, String))| match reason.is_defect()
        {
            true => InputProblem::new(location.clone(), text),
            false => InputProblem::new(location.clone(), format!("{text} ({})", reason.text())),
        };
        samples.take(PROBLEMS_MAX).map(problem).collect()
    }

    /// Describes what was read and skipped, and why; `None` if nothing was skipped.
    pub fn describe_skipped(&self) -> Option<String> {
        let unit = if self.is_har { "entr" } else { "line" };
        let plural = match (self.is_har, self.read) {
            (true, 1) => "y",
            (true, _) => "ies",
            (false, 1) => "",
            (false, _) => "s",
        };
        let skipped: u64 = self.skipped.values().map(|skipped| skipped.count).sum();
        let reasons = self.skipped.iter().map(|(reason, skipped)| {
            let sample = skipped.samples.first().map(|(location, text)| format!(" ({location}: {text})"));
            format!("{} {}{}", skipped.count, reason.text(), sample.unwrap_or_default())
        });
        let reasons: Vec<String> = reasons.collect();
        (skipped > 0).then(|| {
            format!(
                "{}: {} {unit}{plural} read, {skipped} skipped: {}",
                self.name,
                self.read,
                reasons.join(", ")
            )
        })
    }
}

impl HarHosts {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        if text == "all" {
            return Ok(Self::All);
        }
        let hosts: Vec<String> = text.split(',').map(|host| host.trim().to_ascii_lowercase()).collect();
        let is_host = |host: &String| !host.is_empty() && !host.contains(['/', ' ', '@']);
        match hosts.iter().all(is_host) {
            true => Ok(Self::Named(hosts)),
            false => {
                Err(invalid_value!("'{text}' is neither all nor a list of hosts: a.example,b.example:8443"))
            }
        }
    }

    /// Returns whether entries of `host` are sent; `default_host` is the host of the default.
    fn includes(&self, host: &str, default_host: &str) -> bool {
        match self {
            Self::One => host == default_host,
            Self::All => true,
            Self::Named(hosts) => hosts.iter().any(|named| {
                let port = host.strip_prefix(named.as_str());
                port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
            }),
        }
    }
}

impl ReplayLog {
    /// Parses a log; its form is found from its content. `strict` rejects lines that are no request, which are
    /// skipped and counted without it.
    ///
    /// # Errors
    /// Problems with line and column, if there is no request or the file is a damaged HAR.
    pub fn parse(name: &str, text: &str, strict: bool) -> Result<Self, Vec<InputProblem>> {
        let is_har = is_har(text);
        let input = ReplayInput { name: name.to_owned(), is_har, ..ReplayInput::default() };
        let mut log = Self { input, ..Self::default() };
        match is_har {
            true => log.read_har(text)?,
            false => log.read_lines(text)?,
        }
        let defects = log.input.problems(SkipReason::is_defect);
        if strict && !defects.is_empty() {
            return Err(defects);
        }
        if log.entries.is_empty() {
            let mut problems = log.input.problems(|_| true);
            if problems.is_empty() {
                let why = if is_har { "no entries of a HAR (log.entries)" } else { "no request" };
                problems.push(InputProblem::new(format!("{name}:1:1"), why));
            }
            return Err(problems);
        }
        log.order();
        Ok(log)
    }

    fn read_har(&mut self, text: &str) -> Result<(), Vec<InputProblem>> {
        let name = &self.input.name;
        let har = har::parse_har(text)
            .map_err(|(line, column, why)| vec![InputProblem::new(format!("{name}:{line}:{column}"), why)])?;
        (self.entries, self.input.read) = (har.entries, har.read);
        for (reason, (count, number, text)) in har.skipped {
            let location = format!("{name}: entry {number}");
            self.input.skipped.insert(reason, SkippedLines { count, samples: vec![(location, text)] });
        }
        Ok(())
    }

    fn read_lines(&mut self, text: &str) -> Result<(), Vec<InputProblem>> {
        let mut columns = Columns::default();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            if line.starts_with('#') {
                columns.read_comment(line);
                continue;
            }
            self.input.read += 1;
            let parsed = match columns.are_known() {
                true => columns.parse_line(line),
                false => lines::parse_line(line),
            };
            match parsed {
                Ok(_) if self.entries.len() == REPLAY_REQUESTS_MAX => {
                    let why = format!("more than {REPLAY_REQUESTS_MAX} requests");
                    return Err(vec![InputProblem::new(self.input.name.clone(), why)]);
                }
                Ok(entry) => self.entries.push(entry),
                Err(skipped) => {
                    let location = format!("{}:{number}:{}", self.input.name, skipped.column);
                    self.input.skip(skipped.reason, 1, || (location, skipped.text));
                }
            }
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sorts by time. Requests of one second in a log with whole seconds are spread over the second.
    fn order(&mut self) {
        self.entries.sort_by_key(|entry| entry.at_ns);
        let is_coarse = self.entries.iter().all(|entry| entry.is_whole_second);
        if is_coarse {
            let mut start = 0;
            while start < self.entries.len() {
                let second_ns = self.entries[start].at_ns;
                let count = self.entries[start..].iter().take_while(|entry| entry.at_ns == second_ns).count();
                for (index, entry) in self.entries[start..start + count].iter_mut().enumerate() {
                    let offset_ns = 1_000_000_000 * index as i64 / count as i64;
                    entry.at_ns = entry.at_ns.saturating_add(offset_ns);
                }
                start += count;
            }
        }
    }

    /// Leaves out the entries of a HAR whose hosts are not sent, and counts them.
    fn choose_hosts(
        &self,
        url: &Url,
        hosts: &HarHosts,
    ) -> Result<(Vec<&LogEntry>, ReplayInput), InputProblem> {
        let mut input = self.input.clone();
        if !self.input.is_har {
            return Ok((self.entries.iter().collect(), input));
        }
        let own = url.authority.to_string().to_ascii_lowercase();
        let first = self.entries.first().map_or("", |entry| &entry.host);
        let default_host = if self.entries.iter().any(|entry| entry.host == own) { &own } else { first };
        let (chosen, others): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|entry| hosts.includes(&entry.host, default_host));
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &others {
            *counts.entry(&entry.host).or_default() += 1;
        }
        let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let more = if counts.len() > HOSTS_SHOWN_MAX { ", …" } else { "" };
        let shown = counts.iter().take(HOSTS_SHOWN_MAX);
        let shown: Vec<String> =
            shown.map(|(host, count)| format!("{count} of {}", printable(host, HOST_BYTES_MAX))).collect();
        let shown = format!("{}{more}", shown.join(", "));
        if chosen.is_empty() {
            return Err(InputProblem::new(
                "--har-hosts",
                format!("no request to these hosts: the file has {shown}"),
            ));
        }
        if !others.is_empty() {
            let hint = format!("{shown}; --har-hosts all sends them to the host of the URL, too");
            input.skip(SkipReason::OtherHost, others.len() as u64, || {
                (format!("{} sent", printable(default_host, HOST_BYTES_MAX)), hint)
            });
        }
        Ok((chosen, input))
    }

    /// Returns the requests to the authority of `url`, each different one once, and their schedule at
    /// `speed` times the original.
    pub fn schedule(
        &self,
        template: &RenderedRequest,
        speed: f64,
        hosts: &HarHosts,
    ) -> Result<(Vec<RenderedRequest>, ReplaySchedule), InputProblem> {
        let (chosen, input) = self.choose_hosts(&template.url, hosts)?;
        let first_ns = chosen.first().map_or(0, |entry| entry.at_ns);
        let mut known: HashMap<RequestKey<'_>, u32> = HashMap::new();
        let (mut requests, mut entries) = (Vec::new(), Vec::new());
        let mut last_ns = None;
        for entry in chosen {
            let key = (&*entry.method, &*entry.target, &*entry.fields, &*entry.body);
            let index = *known.entry(key).or_insert_with(|| {
                let url = Url { authority: template.url.authority.clone(), target: entry.target.clone() };
                let own = &entry.fields;
                let is_own = |name: &str| own.iter().any(|(own_name, _)| own_name.eq_ignore_ascii_case(name));
                let common = template.fields.iter().filter(|(name, _)| !is_own(name));
                let fields: Vec<_> = common.chain(own).cloned().collect();
                requests.push(RenderedRequest::new(url, &entry.method, &fields, &entry.body));
                requests.len() as u32 - 1
            });
            let at_ns = (entry.at_ns.saturating_sub(first_ns) as f64 / speed) as u64;
            // The due time identifies the request, so no two are equal.
            let at_ns = last_ns.map_or(at_ns, |last_ns: u64| at_ns.max(last_ns.saturating_add(1)));
            last_ns = Some(at_ns);
            entries.push((at_ns, index));
        }
        Ok((requests, ReplaySchedule { entries, input }))
    }
}

impl ReplaySchedule {
    /// Returns entry `index`: its due time after the start, in ns.
    #[inline]
    pub fn due_ns(&self, index: usize) -> Option<u64> {
        self.entries.get(index).map(|(due_ns, _)| *due_ns)
    }

    /// Returns the index of the request that is due at this time.
    #[inline]
    pub fn request_at(&self, due_ns: u64) -> usize {
        let found = self.entries.binary_search_by_key(&due_ns, |(due_ns, _)| *due_ns);
        self.entries.get(found.unwrap_or(0)).map_or(0, |(_, request)| *request as usize)
    }

    /// Returns the lines or entries of the file.
    pub fn input(&self) -> &ReplayInput {
        &self.input
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the due time of the last request, in ns after the start.
    pub fn last_due_ns(&self) -> u64 {
        self.entries.last().map_or(0, |(due_ns, _)| *due_ns)
    }
}

impl Serialize for ReplaySchedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let skipped: BTreeMap<SkipReason, u64> =
            self.input.skipped.iter().map(|(reason, skipped)| (*reason, skipped.count)).collect_map();
        let mut summary = serializer.serialize_struct("ReplaySchedule", 4)?;
        summary.serialize_field("read", &self.input.read)?;
        summary.serialize_field("skipped", &skipped)?;
        summary.serialize_field("requests", &self.entries.len())?;
        summary.serialize_field("last_due_ns", &self.last_due_ns())?;
        summary.end()
    }
}

/// Returns whether a text is a HAR, or meant to be one: a JSON document over several lines, which no log is.
fn is_har(text: &str) -> bool {
    let text = har::without_padding(text).trim_start();
    if !text.starts_with('{') {
        return false;
    }
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let is_open = serde_json::from_str::<serde::de::IgnoredAny>(first).is_err_and(|error| error.is_eof());
    let goes_on = lines.next().is_none_or(|second| !second.trim_start().starts_with('{'));
    (text.contains("\"entries\"") && text.contains("\"log\"")) || (is_open && goes_on)
}

/// Parses a speed: `2x`, `0.5`.
pub(super) fn parse_speed(text: &str) -> Result<f64, InvalidValue> {
    let (min, max) = SPEED_RANGE;
    let speed = text.strip_suffix('x').unwrap_or(text).parse().ok();
    let speed = speed.filter(|speed| (min..=max).contains(speed));
    speed.ok_or_else(|| invalid_value!("'{text}' is not a speed from {min}x to {max}x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(text: &str, speed: f64) -> (Vec<String>, Vec<(u64, u32)>) {
        let log = ReplayLog::parse("log", text, false).unwrap();
        let template = RenderedRequest::new(Url::parse("http://a:1/").unwrap(), "GET", &[], b"");
        let (requests, schedule) = log.schedule(&template, speed, &HarHosts::One).unwrap();
        let shown = requests.iter().map(|request| format!("{} {}", request.method, request.url)).collect();
        (shown, schedule.entries)
    }

    #[test]
    fn every_form_of_log_keeps_order_and_times() {
        let combined = "10.0.0.1 - - [10/Oct/2020:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 5 \"-\" \"x\"\n\
            10.0.0.1 - - [10/Oct/2020:13:55:36 -0700] \"POST /b HTTP/1.1\" 200 5 \"-\" \"x\"\n\
            10.0.0.1 - - [10/Oct/2020:13:55:37 -0700] \"GET /a HTTP/1.1\" 200 5 \"-\" \"x\"\n";
        let half_second = 500_000_000;
        let (requests, entries) = plan_of(combined, 1.0);
        assert_eq!(requests, ["GET http://a:1/a", "POST http://a:1/b"]);
        assert_eq!(entries, [(0, 0), (half_second, 1), (2 * half_second, 0)]);
        assert_eq!(plan_of(combined, 2.0).1[2].0, half_second);
        let haproxy = "Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in \
            static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"\n\
            10.0.1.2:33317 [06/Feb/2009:12:14:14.605] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- \
            1/1/1/1/0 0/0 \"GET /first HTTP/1.1\"\n";
        let (requests, entries) = plan_of(haproxy, 1.0);
        assert_eq!((requests[0].as_str(), entries[1].0), ("GET http://a:1/first", 50_000_000));
        let json = "{\"time\":\"2024-01-01T00:00:00.25Z\",\"method\":\"GET\",\"path\":\"/x?y\"}\n\
            {\"timestamp\":1704067200.5,\"request\":\"HEAD /z HTTP/1.1\"}\n";
        let (requests, entries) = plan_of(json, 1.0);
        assert_eq!(requests, ["GET http://a:1/x?y", "HEAD http://a:1/z"]);
        assert!(entries[1].0.abs_diff(250_000_000) < 1000, "{entries:?}");
        let har = r#"{"log": {"version": "1.2", "entries": [
            {"startedDateTime": "2024-01-01T00:00:00.100Z", "request": {"method": "POST",
             "url": "https://b.example/p?q=1", "headers": [{"name": ":authority", "value": "b"},
             {"name": "X-A", "value": "1"}, {"name": "content-length", "value": "2"}],
             "postData": {"text": "hi"}}},
            {"startedDateTime": "2024-01-01T00:00:00Z", "request": {"method": "GET", "url": "https://b.example",
             "headers": []}}]}}"#;
        let (requests, entries) = plan_of(har, 1.0);
        assert_eq!(requests, ["GET http://a:1/", "POST http://a:1/p?q=1"]);
        assert_eq!(entries, [(0, 0), (100_000_000, 1)]);
    }

    #[test]
    fn a_har_of_chromium_is_a_page_with_its_parts() {
        // Recorded from a page over HTTP/2, whose requests have pseudo-header fields.
        let har = include_str!("replay/chromium.har");
        assert!(har.contains("\":authority\""));
        let (requests, entries) = plan_of(har, 1.0);
        let targets: Vec<&str> =
            requests.iter().filter_map(|request| request.strip_prefix("GET http://a:1")).collect();
        assert_eq!(targets.len(), 9, "{requests:?}");
        assert_eq!((targets[0], targets[8]), ("/", "/missing.json"));
        assert!(targets.contains(&"/img/b%20c.png") && targets.contains(&"/data.json?q=%C3%A9&x=1"));
        assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let log = ReplayLog::parse("page.har", har, false).unwrap();
        let is_kept = |name: &str| !name.starts_with(':') && !name.eq_ignore_ascii_case("host");
        assert!(log.entries.iter().flat_map(|entry| &entry.fields).all(|(name, _)| is_kept(name)));
        assert!(log.entries[0].fields.iter().any(|(name, _)| name == "user-agent"));
    }

    #[test]
    fn extreme_times_and_hostile_texts_are_handled() {
        let log =
            "{\"ts\":-1e300,\"uri\":\"/a\"}\n{\"ts\":1e300,\"uri\":\"/b\"}\n{\"ts\":1e300,\"uri\":\"/c\"}\n";
        for speed in [0.001, 1.0, 10_000.0] {
            let (_, entries) = plan_of(log, speed);
            assert!(entries[0].0 == 0 && entries[1].0 > 1 << 49, "{entries:?}");
        }
        // The texts of a log cannot change a terminal, and are cut.
        let long = "x".repeat(100_000);
        for log in [format!("[\u{1b}[2J{long}]"), format!("{{\"ts\":\"\\u001b[2J{long}\"}}")] {
            let problem = ReplayLog::parse("a.log", &log, false).unwrap_err()[0].to_string();
            assert!(problem.len() < 300 && !problem.contains('\u{1b}'), "{problem}");
        }
        let log = ReplayLog::parse("a.log", &format!("{{\"ts\":1,\"uri\":\"/\\u001b[2J{long}\"}}"), false);
        let problem = log.unwrap_err()[0].to_string();
        assert!(problem.len() < 400 && !problem.contains('\u{1b}'), "{problem}");
    }

    #[test]
    fn other_parts_of_a_line_are_skipped() {
        let line = "{\"a\":[{\"b\":[1,{}]}],\"time\":\"2024-01-01T00:00:00Z\",\"path\":null,\"uri\":\"/x\",\
            \"method\":\"PUT\",\"request\":{\"method\":\"GET\"}}\n";
        assert_eq!(plan_of(line, 1.0).0, ["PUT http://a:1/x"]);
        let har = r#"{"log": {"version": {"a": []}, "entries": [{"x": [{}], "startedDateTime":
            "2024-01-01T00:00:00Z", "request": {"method": "GET", "url": "http://b/p", "headers": null,
            "postData": null, "cookies": [{"name": "c"}]}, "response": {"content": {"text": "x"}}},
            {"startedDateTime": "2024-01-01T00:00:00Z", "request": {"method": "GET", "url": "data:,x"}}]}}"#;
        assert_eq!(plan_of(har, 1.0).0, ["GET http://a:1/p"]);
        let without_url = har.replace("\"url\": \"http://b/p\"", "\"uri\": 5");
        let problem = ReplayLog::parse("a.har", &without_url, false).unwrap_err()[0].to_string();
        assert!(problem.contains("entry 1: no method or URL"), "{problem}");
    }

    #[test]
    fn equal_times_stay_distinct_and_lookups_find_their_request() {
        let line = "{\"time\":\"2024-01-01T00:00:00.25Z\",\"method\":\"GET\",\"path\":\"/1\"}\n";
        let (_, entries) = plan_of(&(line.to_owned() + &line.replace("/1", "/2")), 1.0);
        assert_eq!(entries, [(0, 0), (1, 1)]);
        let schedule = ReplaySchedule { entries, input: ReplayInput::default() };
        assert_eq!((schedule.request_at(1), schedule.due_ns(2), schedule.len()), (1, None, 2));
    }

    #[test]
    fn a_file_without_requests_is_rejected_with_positions() {
        let problems = ReplayLog::parse("a.log", "nonsense\n\n[x] \"GET /\"\n", false).unwrap_err();
        let locations: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
        assert_eq!(locations, ["a.log:1:1", "a.log:3:2"]);
        assert!(
            ReplayLog::parse("a.har", "{\"log\": {\"entries\": [}}", false).unwrap_err()[0]
                .location
                .starts_with("a.har:1:")
        );
        assert!(parse_speed("2x").is_ok() && parse_speed("0").is_err() && parse_speed("fast").is_err());
    }

    fn parse(name: &str, text: &str) -> (Vec<String>, ReplayInput) {
        let log = ReplayLog::parse(name, text, false).unwrap();
        let template = RenderedRequest::new(Url::parse("http://a:1/").unwrap(), "GET", &[], b"");
        let (requests, schedule) = log.schedule(&template, 1.0, &HarHosts::One).unwrap();
        let shown = requests.iter().map(|request| format!("{} {}", request.method, request.url));
        (shown.collect(), schedule.input)
    }

    #[test]
    fn bad_lines_are_skipped_counted_and_sampled() {
        let line = |request: &str| {
            format!("192.0.2.1 - - [10/Oct/2020:13:55:36 +0000] \"{request}\" 400 5 \"-\" \"x\"\n")
        };
        let log = [
            line("GET /good HTTP/1.1"),
            line("GET /a b.php HTTP/1.1"),
            line("GET /caf\u{e9} HTTP/1.1"),
            line("GET /caf\\xc3\\xa9 HTTP/1.1"),
            line("\\x16\\x03\\x01"),
            line("CONNECT 192.0.2.7:443 HTTP/1.1"),
            line("GET /q?a=\\\"b\\\" HTTP/1.1"),
            "2020/10/10 13:55:36 [error] upstream timed out\n".to_owned(),
        ]
        .concat();
        let (requests, input) = parse("a.log", &log);
        assert_eq!(requests, ["GET http://a:1/good", "GET http://a:1/q?a=\"b\""]);
        let text = input.describe_skipped().unwrap();
        assert!(text.starts_with("a.log: 8 lines read, 6 skipped: 1 without a time (a.log:8:"), "{text}");
        assert!(text.contains("1 for a tunnel (CONNECT) (a.log:6"), "{text}");
        assert!(
            text.contains("1 without a request (a.log:5:")
                && text.contains("3 that HTTP cannot carry (a.log:2:"),
            "{text}"
        );
        let strict = ReplayLog::parse("a.log", &log, true).unwrap_err();
        assert_eq!(strict.len(), 5, "{strict:?}");
        assert!(ReplayLog::parse("a.log", &line("GET / HTTP/1.1"), true).is_ok());
    }

    #[test]
    fn json_logs_of_proxies_are_read() {
        let caddy = r#"{"level":"info","ts":1646861401.52,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.1","proto":"HTTP/2.0","method":"POST","host":"a.example","uri":"/c?x=1","headers":{"Accept":["*/*"]}},"status":200}"#;
        let traefik = r#"{"RequestMethod":"PUT","RequestPath":"/t?y","StartUTC":"2022-03-09T21:30:01.25Z","time":"2022-03-09T21:30:09Z","RequestProtocol":"HTTP/1.1"}"#;
        let apache =
            r#"{"time":"[09/Mar/2022:21:30:01 +0000]","method":"GET","request":"/ignored","uri":"/apache"}"#;
        let docker = r#"{"log":"192.0.2.1 - - [09/Mar/2022:21:30:02 +0000] \"GET /docker HTTP/1.1\" 200 5\n","stream":"stdout","time":"2022-03-09T21:30:02.5Z"}"#;
        let google = r#"{"httpRequest":{"requestMethod":"GET","requestUrl":"https://b.example/g?z","status":200},"timestamp":"2022-03-09T21:30:03.5Z","resource":{"type":"x"}}"#;
        let azure = r#"{"timeStamp":"2022-03-09T21:30:04.5Z","properties":{"httpMethod":"GET","requestUri":"/az","requestQuery":"q=1"}}"#;
        let notes = r#"{"time":"2022-03-09T21:30:04.6Z","properties":{"httpMethod":"GET","requestUri":"/notes","requestQuery":"X-AzureApplicationGateway-CACHE-HIT=0&SERVER-STATUS=404"}}"#;
        let firewall =
            r#"{"time":"2022-03-09T21:30:04.7Z","properties":{"requestUri":"/notes","ruleId":"920350"}}"#;
        let kubernetes =
            r#"2022-03-09T21:30:05.1Z stdout F {"time":"2022-03-09T21:30:05Z","method":"GET","path":"/k8s"}"#;
        let captured = r#"[09/Mar/2022:21:30:06.1] in b/s 0/0/1/1/2 200 5 - - ---- 1/1/1/1/0 0/0 {} {"x"} "GET /captured HTTP/1.1""#;
        let router =
            r#"2022-03-09T21:30:07.1+00:00 heroku[router]: at=info method=GET path="/heroku?x=1" status=200"#;
        let unread = r#"{"time":"2022-03-09T21:30:08.1Z","method":"-","path":"-","response_code":400}"#;
        let startup = r#"{"level":"info","ts":1646861400.1,"msg":"serving initial configuration"}"#;
        let proxies = [caddy, traefik, apache, docker, google, azure, notes, firewall];
        let log = [&proxies[..], &[kubernetes, captured, router, unread, startup]].concat().join("\n");
        let (requests, input) = parse("a.log", &log);
        assert_eq!(
            requests,
            [
                "GET http://a:1/apache",
                "PUT http://a:1/t?y",
                "POST http://a:1/c?x=1",
                "GET http://a:1/docker",
                "GET http://a:1/g?z",
                "GET http://a:1/az?q=1",
                "GET http://a:1/notes",
                "GET http://a:1/k8s",
                "GET http://a:1/captured",
                "GET http://a:1/heroku?x=1"
            ]
        );
        assert_eq!(input.skipped.keys().collect::<Vec<_>>(), [&SkipReason::NoRequest]);
    }

    #[test]
    fn a_har_is_sent_as_the_server_got_it() {
        let entry = |url: &str, rest: &str, request: &str| {
            format!(
                r#"{{"startedDateTime":"2024-01-01T00:00:00.1230000+01:00"{rest},"request":{{"method":"POST","url":"{url}"{request}}}}}"#
            )
        };
        let form = r#","headers":[{"name":"Content-Type","value":"application/x-www-form-urlencoded"}],
            "postData":{"mimeType":"application/x-www-form-urlencoded","params":[{"name":"a","value":"1 2"},{"name":"b%","value":"é"}]}"#;
        let encoded = r#","headers":[],"postData":{"text":"","params":[{"name":"a","value":"1+2%26"}]}"#;
        let files = r#","headers":[],"postData":{"mimeType":"multipart/form-data","params":[{"name":"f","fileName":"x.txt","contentType":"text/plain","value":"hi"}]}"#;
        let har = format!(
            r#"{{"log":{{"creator":{{"name":"Firefox"}},"entries":[{}]}}}}"#,
            [
                entry("https://b.example/form", "", form),
                entry("https://b.example/encoded", r#","cache":{}"#, encoded),
                entry(
                    "https://b.example:443/files",
                    r#","cache":{"beforeRequest":null,"afterRequest":null}"#,
                    files
                ),
                entry("https://b.example/chromium", r#","_fromCache":"disk""#, ""),
                entry("https://b.example/firefox", r#","cache":{"afterRequest":null}"#, ""),
                entry("https://b.example/safari", r#","_fetchType":"Memory Cache""#, ""),
                entry("https://b.example/worker", r#","_fetchType":"Service Worker""#, ""),
                entry("wss://b.example/socket", "", ""),
                entry("https://cdn.example/x.js", r#","_fetchType":"Network Load""#, ""),
            ]
            .join(",")
        );
        let log = ReplayLog::parse("a.har", &har, true).unwrap();
        let template = RenderedRequest::new(Url::parse("http://a:1/").unwrap(), "GET", &[], b"");
        let (requests, schedule) = log.schedule(&template, 1.0, &HarHosts::One).unwrap();
        let bodies: Vec<_> = requests.iter().map(|request| String::from_utf8_lossy(&request.body)).collect();
        assert_eq!(bodies[..2], ["a=1+2&b%25=%C3%A9", "a=1+2%26"]);
        assert!(
            bodies[2]
                .contains("name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\nhi\r\n------")
        );
        let boundary = requests[2].fields.iter().find(|(name, _)| name == "content-type").unwrap();
        assert!(bodies[2].starts_with(&format!("--{}\r\n", boundary.1.split_once("boundary=").unwrap().1)));
        let text = schedule.input.describe_skipped().unwrap();
        for part in [
            "9 entries read, 6 skipped",
            "3 from the cache of the browser (",
            "1 from a service worker of the browser",
            "1 with a URL that is not HTTP",
            "1 of other hosts (b.example sent: 1 of cdn.example;",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let count = |hosts: &str| {
            log.schedule(&template, 1.0, &HarHosts::parse(hosts).unwrap()).map(|(requests, _)| requests.len())
        };
        assert_eq!((count("all").unwrap(), count("cdn.example").unwrap()), (4, 1));
        assert!(count("c.example").unwrap_err().to_string().contains("3 of b.example, 1 of cdn.example"));
        assert!(HarHosts::parse("http://a/").is_err());
    }

    fn har(creator: &str, entries: &[(&str, &str, &str)]) -> String {
        let entries = entries.iter().map(|(path, rest, request)| {
            format!(
                r#"{{"startedDateTime":"2024-01-01T00:00:00Z"{rest},"request":{{"method":"POST","url":"https://b.example/{path}"{request}}}}}"#
            )
        });
        let entries = entries.collect::<Vec<_>>().join(",");
        format!(r#"{{"log":{{"entries":[{entries}],"creator":{{"name":"{creator}"}}}}}}"#)
    }

    #[test]
    fn entries_that_the_server_did_not_get_are_left_out() {
        let ok = r#","response":{"status":200,"_error":null,"_fetchedViaServiceWorker":false}"#;
        let entries = [
            ("sent", ok, ""),
            ("worker", r#","response":{"status":200,"_fetchedViaServiceWorker":true}"#, ""),
            ("blocked", r#","response":{"status":0,"_error":"net::ERR_BLOCKED_BY_CLIENT"}"#, ""),
            ("aborted", r#","response":{"status":0}"#, ""),
            ("socket", r#","response":{"status":101},"_webSocketMessages":[]"#, ""),
            ("mark", r#","_resourceType":"websocket","response":{"status":200}"#, ""),
            (
                "cached",
                r#","cache":{"afterRequest":{"expires":"x","hitCount":2}},"response":{"status":200}"#,
                "",
            ),
            ("asked", r#","cache":{"afterRequest":null},"response":{"status":304}"#, ""),
            ("h3", r#","response":{"status":200,"httpVersion":"h3"}"#, r#","httpVersion":"h3""#),
        ];
        let (requests, input) = parse("a.har", &har("Firefox", &entries));
        assert_eq!(requests, ["POST http://a:1/sent", "POST http://a:1/asked", "POST http://a:1/h3"]);
        let counts: Vec<_> = input.skipped.iter().map(|(reason, skipped)| (*reason, skipped.count)).collect();
        let expected = [
            (SkipReason::FromCache, 1),
            (SkipReason::FromServiceWorker, 1),
            (SkipReason::Upgraded, 2),
            (SkipReason::NoResponse, 2),
        ];
        assert_eq!(counts, expected);
        // For others the state of the cache after the request says nothing.
        assert_eq!(parse("a.har", &har("Other", &entries)).0.len(), 4);
        // A list of requests has no responses at all.
        let list = [("a", r#","response":{"status":0}"#, ""), ("b", r#","response":{}"#, ""), ("c", "", "")];
        assert_eq!(parse("a.har", &har("Other", &list)).0.len(), 3);
        let all_skipped = har("x", &entries[1..2]);
        let problem = ReplayLog::parse("a.har", &all_skipped, false).unwrap_err()[0].to_string();
        assert!(problem.contains("(from a service worker of the browser)"), "{problem}");
    }

    #[test]
    fn bodies_and_damaged_entries_of_a_har() {
        let body = |post: &str| {
            format!(
                r#","headers":[{{"name":"x-a","value":7}},{{"name":"x-b","value":{{}}}},{{"name":"Content-Length","value":"1"}},{{"name":"content-length","value":"2"}}],"postData":{post}"#
            )
        };
        let (encoded, bad, file) = (
            body(r#"{"text":"AAH/\nMQ==","encoding":"base64"}"#),
            body(r#"{"text":"*","encoding":"base64"}"#),
            body(r#"{"text":"","_file":"x.bin"}"#),
        );
        let entries = [
            ("encoded", "", encoded.as_str()),
            ("bad", "", bad.as_str()),
            ("file", "", file.as_str()),
            ("damaged", "", r#","headers":[5]"#),
            ("plain", "", r#","headers":{},"postData":{"text":"hi","encoding":""}"#),
        ];
        let text = har("x", &entries);
        let log = ReplayLog::parse("a.har", &text, false).unwrap();
        let template = RenderedRequest::new(Url::parse("http://a:1/").unwrap(), "GET", &[], b"");
        let (requests, _) = log.schedule(&template, 1.0, &HarHosts::One).unwrap();
        assert_eq!((requests.len(), &*requests[0].body), (1, &b"\x00\x01\xff1"[..]));
        let head = String::from_utf8_lossy(&requests[0].bytes).to_ascii_lowercase();
        assert_eq!(
            (head.matches("content-length: 4\r\n").count(), head.matches("content-length").count()),
            (1, 1)
        );
        assert!(head.contains("x-a: 7\r\n") && !head.contains("x-b"), "{head}");
        let counts: Vec<_> =
            log.input.skipped.iter().map(|(reason, skipped)| (*reason, skipped.count)).collect();
        assert_eq!(counts, [(SkipReason::Syntax, 2), (SkipReason::NoBody, 2)]);
        // With padding, and over several lines without entries.
        let padded = format!("onInputData({text});\n");
        assert_eq!(ReplayLog::parse("a.harp", &padded, false).unwrap().len(), 1);
        let broken = ReplayLog::parse("a.har", "{\n  \"log\": {\n    x\n", false).unwrap_err();
        assert_eq!((broken.len(), broken[0].location.as_str()), (1, "a.har:3:5"));
        let empty = ReplayLog::parse("a.har", "{\n  \"pages\": []\n}\n", false).unwrap_err();
        assert!(empty[0].to_string().contains("no entries of a HAR"), "{empty:?}");
    }

    #[test]
    fn logs_of_load_balancers_caches_and_networks_are_read() {
        let aws = "https 2020-01-01T00:00:00.250000Z app/lb/1 192.0.2.1:2817 10.0.0.1:80 0.001 0.1 0.0 200 200 225 1 \
            \"GET https://b.example:443/alb?x HTTP/1.1\" \"x [y/z]\" - - arn:x\n\
            2020-01-01T00:00:01.5Z lb 192.0.2.1:2817 10.0.0.1:80 0 0 0 200 200 0 57 \"POST http://b.example:80/elb HTTP/1.1\"\n";
        let (requests, entries) = plan_of(aws, 1.0);
        assert_eq!(requests, ["GET http://a:1/alb?x", "POST http://a:1/elb"]);
        assert_eq!(entries[1].0, 1_250_000_000);
        let squid = "1576177221.686     39 192.0.2.1 TCP_MISS/200 13564 GET http://b.example/s?1 - HIER_DIRECT/192.0.2.9 text/html\n\
            1576177221.786     39 192.0.2.1 TCP_TUNNEL/200 64 CONNECT b.example:443 - HIER_DIRECT/192.0.2.9 -\n\
            1576177221.886     39 192.0.2.1 NONE/000 64 GET cache_object://localhost/counters - x/- -\n";
        let (requests, input) = parse("a.log", squid);
        assert_eq!(
            (requests, input.skipped[&SkipReason::NoRequest].count),
            (vec!["GET http://a:1/s?1".to_owned()], 2)
        );
        let w3c = "#Software: x\n#Fields: date time cs-method cs-uri-stem cs-uri-query\n\
            2020-01-01 00:00:00 GET /a -\n2020-01-01 00:00:00 GET /b c\n#Fields: time date cs-uri-stem\n\
            00:00:02 2020-01-01 /d\n";
        let (requests, entries) = plan_of(w3c, 1.0);
        assert_eq!(requests, ["GET http://a:1/a", "GET http://a:1/b?c", "GET http://a:1/d"]);
        assert_eq!(entries.iter().map(|(due_ns, _)| due_ns / 100_000_000).collect::<Vec<_>>(), [0, 5, 20]);
        let cloudflare = r#"{"ClientRequestMethod":"PUT","ClientRequestURI":"/c?d","EdgeStartTimestamp":1712790000100000000}"#;
        let ecs = r#"web-1  | {"@timestamp":"2024-04-10T23:00:00.2Z","log.level":"info","http":{"request":{"method":"DELETE"}},"url":{"path":"/e","query":"f=1"},"log":{"logger":"x"}}"#;
        let flat = r#"{"@timestamp":"2024-04-10T23:00:00.3Z","http.request.method":"GET","url.original":"https://b.example/g?h","url.path":"/g","url.query":"h"}"#;
        let (requests, _) = plan_of(&[cloudflare, ecs, flat].join("\n"), 1.0);
        assert_eq!(requests, ["PUT http://a:1/c?d", "DELETE http://a:1/e?f=1", "GET http://a:1/g?h"]);
    }
}
