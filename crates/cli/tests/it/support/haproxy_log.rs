//! One line of HAProxy's HTTP or TCP log, parsed strictly: every field at its position and in its
//! form. Does not check the values of the fields.

/// Fields of a log line.
#[derive(Clone, Debug)]
pub(crate) struct HaproxyLogLine {
    pub(crate) client: String,
    pub(crate) frontend: String,
    pub(crate) backend: String,
    pub(crate) server: String,
    /// HTTP: `Tq/Tw/Tc/Tr/Ta`; TCP: `Tw/Tc/Ta`. Milliseconds; -1: the phase never began.
    pub(crate) timers: Vec<i64>,
    /// `None`: a TCP line, or no response (-1).
    pub(crate) status: Option<u16>,
    pub(crate) bytes: u64,
    /// Two-letter termination code.
    pub(crate) code: String,
    /// Text between the quotes; empty for a TCP line.
    pub(crate) request: String,
}

impl HaproxyLogLine {
    /// Parses a line of `option httplog`; fails with the field that is wrong.
    pub(crate) fn http(line: &str) -> Self {
        Self::parse(line, true).unwrap_or_else(|what| panic!("{what}: {line}"))
    }

    /// Parses a line of `option tcplog`.
    pub(crate) fn tcp(line: &str) -> Self {
        Self::parse(line, false).unwrap_or_else(|what| panic!("{what}: {line}"))
    }

    fn parse(line: &str, http: bool) -> Result<Self, &'static str> {
        let at = line.find(" [").ok_or("no date")?;
        let client = line[..at].rsplit(' ').next().ok_or("no client")?;
        client.rsplit_once(':').filter(|(_, port)| is_number(port)).ok_or("client")?;
        let (date, rest) = line[at + 2..].split_once("] ").ok_or("the date does not end")?;
        if !is_date(date) {
            return Err("the date");
        }
        let (fields, request) = match (http, rest.split_once(" \"")) {
            (true, Some((fields, request))) => (fields, request.strip_suffix('"').ok_or("no closing quote")?),
            (true, None) => return Err("no request"),
            (false, _) => (rest, ""),
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let mut fields = fields.into_iter();
        let mut next = |what: &'static str| fields.next().ok_or(what);
        let frontend = next("no frontend")?;
        let (backend, server) = next("no backend")?.split_once('/').ok_or("backend/server")?;
        let timers = numbers(next("no timers")?).ok_or("timers")?;
        if timers.len() != if http { 5 } else { 3 } {
            return Err("the number of timers");
        }
        let status = if http { next("no status")? } else { "-1" };
        let status = match status {
            "-1" | "0" => None,
            digits if digits.len() == 3 => Some(digits.parse().map_err(|_| "status")?),
            _ => return Err("status"),
        };
        let bytes = next("no bytes")?.trim_start_matches('+').parse().map_err(|_| "bytes")?;
        if http && (next("no cookie")?, next("no cookie")?) != ("-", "-") {
            return Err("captured cookies");
        }
        let code = next("no code")?;
        let code = match (http, code.len()) {
            (true, 4) if code.ends_with("--") => &code[..2],
            (false, 2) => code,
            _ => return Err("the termination code"),
        };
        let letters = |all: &str, at: usize| all.as_bytes().contains(&code.as_bytes()[at]);
        if !letters("-CSPRLUKDIcs", 0) || !letters("-RQCHDLT", 1) {
            return Err("a letter of the termination code");
        }
        let loads = numbers(next("no connection counts")?).ok_or("connection counts")?;
        let queues = numbers(next("no queues")?).ok_or("queues")?;
        if loads.len() != 5 || queues.len() != 2 || fields.next().is_some() {
            return Err("connection counts and queues");
        }
        let owned = str::to_owned;
        Ok(Self {
            client: owned(client),
            frontend: owned(frontend.trim_end_matches('~')),
            backend: owned(backend),
            server: owned(server),
            timers,
            status,
            bytes,
            code: owned(code),
            request: owned(request),
        })
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `1/-1/+3` as numbers; HAProxy writes a plus where a session still continued.
fn numbers(text: &str) -> Option<Vec<i64>> {
    text.split('/').map(|number| number.strip_prefix('+').unwrap_or(number).parse().ok()).collect()
}

/// Returns whether a text has the form `06/Feb/2009:12:14:14.655`.
fn is_date(text: &str) -> bool {
    let form = "00/Aaa/0000:00:00:00.000";
    text.len() == form.len()
        && text.chars().zip(form.chars()).all(|(character, expected)| match expected {
            '0' => character.is_ascii_digit(),
            'A' => character.is_ascii_uppercase(),
            'a' => character.is_ascii_lowercase(),
            other => character == other,
        })
}
