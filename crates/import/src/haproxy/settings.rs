//! Settings of the sections of HAProxy, as their lines are read.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::acl::Acls;
use super::actions::Phases;
use super::compression::Compression;
use super::lexer::Line;
use super::pages::{self, Pages};
use super::server::{Bind, ServerLine};
use super::stick::StickLines;
use super::switching::{Switch, Target};
use crate::document::{Origin, Origins, Value};
use crate::draft::{Draft, network};
use crate::left::Kind;
use crate::paths::is_normal_path;
use crate::row;
use crate::rules::{Action, Condition, PathTest, Rule};

/// A value with the line that it comes from.
pub(super) type Set<T> = (T, Rc<Origin>);

/// Kind of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProxyKind {
    #[default]
    Defaults,
    Frontend,
    Backend,
    Listen,
}

impl ProxyKind {
    pub(super) fn of(word: &str) -> Self {
        match word {
            "frontend" => Self::Frontend,
            "backend" => Self::Backend,
            _ => Self::Listen,
        }
    }
}

/// Active checks of a section.
#[derive(Clone, Debug, Default)]
pub(super) struct Check {
    pub(super) is_http: Option<Rc<Origin>>,
    pub(super) entries: Vec<(String, Value, Rc<Origin>)>,
    pub(super) headers: Vec<(String, String)>,
}

/// Settings of one proxy, or of `defaults`.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxy {
    pub(super) kind: ProxyKind,
    pub(super) name: String,
    pub(super) head: Option<Rc<Origin>>,
    pub(super) mode: Option<Set<String>>,
    pub(super) binds: Vec<Bind>,
    pub(super) servers: Vec<ServerLine>,
    /// A line has a server, whether weir can use its address or not.
    pub(super) has_server_line: bool,
    pub(super) default_server: Vec<(Vec<String>, Rc<Origin>)>,
    pub(super) acls: Acls,
    pub(super) phases: Phases,
    /// Pools by conditions, in order.
    pub(super) switching: Vec<Switch>,
    pub(super) default_backend: Option<Set<String>>,
    pub(super) timeouts: BTreeMap<String, Set<u64>>,
    pub(super) maxconn: Option<Set<u64>>,
    pub(super) backlog: Option<Set<u64>>,
    pub(super) retries: Option<Set<u64>>,
    /// Results after which another server is tried.
    pub(super) retry_on: Option<Set<Vec<String>>>,
    pub(super) balance: Option<Set<Vec<String>>>,
    pub(super) reuse: Option<Set<String>>,
    pub(super) check: Check,
    pub(super) sticky: Option<Set<Vec<String>>>,
    pub(super) forwardfor: Option<Set<Vec<String>>>,
    pub(super) logs: Vec<Set<String>>,
    pub(super) logs_globally: Option<Rc<Origin>>,
    pub(super) stats: Origins,
    /// Contents of error responses.
    pub(super) pages: Pages,
    /// Words of `errorfiles`.
    pub(super) shared_pages: Vec<Set<Vec<String>>>,
    pub(super) stick: StickLines,
    pub(super) compression: Compression,
    pub(super) source: Option<Set<String>>,
    /// Field with an id of the request.
    pub(super) unique_id: Option<Set<String>>,
    pub(super) uses_http: bool,
    pub(super) is_disabled: bool,
    /// A line that may restrict access, of which nothing is known: all requests are refused.
    pub(super) refused: Option<Rc<Origin>>,
}

impl Proxy {
    /// Creates the settings of a section from its defaults.
    pub(super) fn new(kind: ProxyKind, head: &Line, defaults: &Self) -> Self {
        Self { kind, name: head.word(1).to_owned(), head: Some(Rc::clone(&head.origin)), ..defaults.clone() }
    }

    /// Adds the address that old configs have in the first line of `listen` and `frontend`.
    pub(super) fn add_head_address(&mut self, head: &Line, draft: &mut Draft<'_>) {
        let words = head.rest(2);
        if words.first().is_some_and(|word| word.contains(':')) {
            self.binds.push(Bind::parse(words, &head.origin, draft));
        }
    }

    /// Applies a line of which the table has the row.
    pub(super) fn apply(&mut self, directive: &str, line: &Line, draft: &mut Draft<'_>) {
        let origin = &line.origin;
        let value = line.word(1);
        let number = value.parse::<u64>().ok();
        match directive {
            "mode" => self.set_mode(line, draft),
            "bind" => {
                let bind = Bind::parse(line.rest(1), origin, draft);
                self.binds.push(bind);
            }
            "server" | "server-template" => {
                self.has_server_line = true;
                let server = ServerLine::parse(line, &self.default_server, draft);
                self.servers.extend(server);
            }
            "default-server" => self.default_server.push((line.rest(1).to_vec(), Rc::clone(origin))),
            // They are read before the other lines.
            "acl" => {}
            "use_backend" => self.add_switch(line, draft),
            "default_backend" => self.default_backend = Some((value.to_owned(), Rc::clone(origin))),
            "maxconn" => self.maxconn = number.map(|number| (number, Rc::clone(origin))),
            "backlog" => self.backlog = number.map(|number| (number.clamp(1, 65_535), Rc::clone(origin))),
            "retries" => self.retries = number.map(|number| (number.min(10), Rc::clone(origin))),
            "retry-on" => self.retry_on = Some((line.rest(1).to_vec(), Rc::clone(origin))),
            "balance" => self.balance = Some((line.rest(1).to_vec(), Rc::clone(origin))),
            "http-reuse" => self.set_reuse(value, origin, draft),
            "cookie" => self.sticky = Some((line.rest(1).to_vec(), Rc::clone(origin))),
            "unique-id-header" => {
                self.unique_id = Some((value.to_owned(), Rc::clone(origin)));
                draft.leave(Kind::Differs, origin, "the id has a form of its own");
            }
            "source" => self.source = Some((value.to_owned(), Rc::clone(origin))),
            "log" => self.add_log(line, draft),
            "stats enable" | "stats uri" | "stats refresh" => {
                self.add_statistics(directive, line);
            }
            "option forwardfor" => self.forwardfor = Some((line.rest(2).to_vec(), Rc::clone(origin))),
            "option httpchk" | "http-check send" | "http-check expect" => {
                self.set_check(directive, line, draft)
            }
            "errorfile" | "errorloc" | "errorloc302" | "errorloc303" | "http-error" => {
                pages::add(&mut self.pages, line, draft);
            }
            "errorfiles" => self.shared_pages.push((line.rest(1).to_vec(), Rc::clone(origin))),
            "compression" => self.compression.apply(line, draft),
            "stick" => self.stick.add_rule(line),
            "stick-table" => self.stick.table = Some((line.rest(1).to_vec(), Rc::clone(origin))),
            "monitor-uri" => self.add_monitor(value, origin, draft),
            directive if directive.starts_with("timeout ") => match milliseconds(line.word(2)) {
                Some(ms) => drop(self.timeouts.insert(value.to_owned(), (ms, Rc::clone(origin)))),
                None => draft.leave(Kind::NotSupported, origin, "this is no time"),
            },
            directive => {
                self.uses_http |= !directive.starts_with("tcp-");
                self.phases.apply(directive, line, &self.acls, draft);
            }
        }
    }

    /// Adds a line of the status page, whose path is not forwarded.
    fn add_statistics(&mut self, directive: &str, line: &Line) {
        self.stats.push(Rc::clone(&line.origin));
        let uri = line.word(2);
        if directive == "stats uri" && is_normal_path(uri) {
            let condition = Condition::path(PathTest::Begins(uri.to_owned()));
            self.phases.statistics.rules = vec![Rule::refuse(condition, &line.origin)];
        }
    }

    /// Adds the response to requests of monitors, in front of all rules.
    fn add_monitor(&mut self, path: &str, origin: &Rc<Origin>, draft: &mut Draft<'_>) {
        self.uses_http = true;
        if !is_normal_path(path) {
            self.refused = Some(Rc::clone(origin));
            return draft.leave(
                Kind::NotSupported,
                origin,
                "the path is not in normal form: all requests get 501",
            );
        }
        draft.leave(Kind::Differs, origin, "requests for this path with a query get the response, too");
        let body = "<html><body><h1>200 OK</h1>\nService ready.\n</body></html>\n".to_owned();
        let ok = Action::Return { status: 200, content_type: Some("text/html".to_owned()), body };
        let condition = Condition::path(PathTest::Exact(path.to_owned()));
        self.phases.monitor.rules.push(Rule::act_when(condition, ok, origin));
    }

    fn set_mode(&mut self, line: &Line, draft: &mut Draft<'_>) {
        match line.word(1) {
            "http" | "tcp" => self.mode = Some((line.word(1).to_owned(), Rc::clone(&line.origin))),
            other => draft.leave(
                Kind::NotSupported,
                &line.origin,
                format!("weir has the modes http and tcp, not '{other}'"),
            ),
        }
    }

    fn add_switch(&mut self, line: &Line, draft: &mut Draft<'_>) {
        let origin = &line.origin;
        if !draft.spend(self.acls.weight(line.rest(2)), origin) {
            return;
        }
        let mut reasons = Vec::new();
        let condition = self.acls.condition(line.rest(2), (origin, &mut *draft), &mut reasons);
        let target = Target::parse(line.word(1), origin, draft).unwrap_or_else(|reason| {
            reasons.push(reason.to_string());
            Target::Unknown
        });
        self.switching.push(Switch { condition, target, origin: Rc::clone(origin) });
        if !reasons.is_empty() {
            let text = format!("{}: the requests for which it may hold are refused", reasons.join("; "));
            draft.leave(Kind::NotSupported, origin, text);
        }
    }

    fn set_reuse(&mut self, value: &str, origin: &Rc<Origin>, draft: &mut Draft<'_>) {
        match value {
            "never" | "safe" | "always" => self.reuse = Some((value.to_owned(), Rc::clone(origin))),
            "aggressive" => {
                self.reuse = Some(("safe".to_owned(), Rc::clone(origin)));
                let text = "\"safe\": the first request of a client may use a new connection more often";
                draft.leave(Kind::Differs, origin, text);
            }
            _ => draft.leave(Kind::NotSupported, origin, "weir has never, safe and always"),
        }
    }

    fn add_log(&mut self, line: &Line, draft: &mut Draft<'_>) {
        if line.word(1) == "global" {
            self.logs_globally = Some(Rc::clone(&line.origin));
            return;
        }
        match log_target(line.word(1)) {
            Some(target) => self.logs.push((target, Rc::clone(&line.origin))),
            None => draft.leave(
                Kind::NotSupported,
                &line.origin,
                "a log goes to stdout, a file or syslog over UDP",
            ),
        }
    }

    fn set_check(&mut self, directive: &str, line: &Line, draft: &mut Draft<'_>) {
        let origin = &line.origin;
        let entries = match directive {
            "option httpchk" => {
                self.check = Check { is_http: Some(Rc::clone(origin)), ..Check::default() };
                let (method, path) = match line.rest(2) {
                    [] => ("OPTIONS", "/"),
                    [path] => ("OPTIONS", path.as_str()),
                    [method, path, ..] => (method.as_str(), path.as_str()),
                };
                // Old configs have fields in the version: "HTTP/1.1\r\nHost: a".
                self.add_check_fields(&line.rest(4).join(" "));
                vec![("method", method.to_owned()), ("path", path.to_owned())]
            }
            "http-check send" => self.sent_by_checks(line, draft),
            _ => match line.rest(2) {
                [kind, value] if kind == "status" => vec![("status", value.clone())],
                [kind, value] if kind == "rstatus" => match status_classes(value) {
                    Some(statuses) => vec![("status", statuses)],
                    None => {
                        draft.leave(
                            Kind::NotSupported,
                            origin,
                            "statuses are numbers and ranges, no expression",
                        );
                        Vec::new()
                    }
                },
                [kind, value @ ..] if kind == "string" && !value.is_empty() => {
                    vec![("body", value.join(" "))]
                }
                _ => {
                    draft.leave(
                        Kind::NotSupported,
                        origin,
                        "a check expects statuses, and a text in the content",
                    );
                    Vec::new()
                }
            },
        };
        for (key, value) in entries {
            self.check.entries.retain(|(other, ..)| other != key);
            self.check.entries.push((key.to_owned(), Value::text(value), Rc::clone(origin)));
        }
    }

    /// Returns the method and the target of `http-check send`.
    fn sent_by_checks(&mut self, line: &Line, draft: &mut Draft<'_>) -> Vec<(&'static str, String)> {
        let origin = &line.origin;
        let mut entries = Vec::new();
        let mut words = line.rest(2).iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "meth" => entries.extend(words.next().map(|method| ("method", method.clone()))),
                "uri" => entries.extend(words.next().map(|path| ("path", path.clone()))),
                "ver" => drop(words.next()),
                "hdr" => {
                    let name = words.next().cloned().unwrap_or_default();
                    self.check.headers.push((name, words.next().cloned().unwrap_or_default()));
                }
                other => draft.leave(Kind::NotSupported, origin, format!("'{other}' of a check")),
            }
        }
        entries
    }

    fn add_check_fields(&mut self, text: &str) {
        let text = text.replace("\\r\\n", "\r\n");
        for field in text.split(['\r', '\n']).skip(1) {
            if let Some((name, value)) = field.split_once(':') {
                self.check.headers.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
    }
}

/// Returns the statuses of an expression like `(2|3)[0-9][0-9]` or `2..`.
fn status_classes(text: &str) -> Option<String> {
    let text = text.trim_start_matches('^').trim_end_matches('$');
    let head = ["[0-9][0-9]", "\\d\\d", "..", "xx"].iter().find_map(|end| text.strip_suffix(end))?;
    let digits = head.trim_matches(['(', ')', '[', ']']);
    let classes: Vec<&str> =
        digits.split(['|', ',']).flat_map(|part| part.split("")).filter(|part| !part.is_empty()).collect();
    let valid = classes.iter().all(|class| matches!(*class, "1" | "2" | "3" | "4" | "5"));
    (valid && !classes.is_empty())
        .then(|| classes.iter().map(|class| format!("{class}xx")).collect::<Vec<_>>().join(","))
}

/// Returns a time of HAProxy in milliseconds: without a unit it is one.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    match &text[end..] {
        "us" => Some((number / 1_000).max(u64::from(number > 0))),
        "" | "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    }
}

fn log_target(word: &str) -> Option<String> {
    let address = word.strip_prefix("udp@").or_else(|| word.strip_prefix("ipv4@")).unwrap_or(word);
    match address {
        "stdout" => Some("stdout".to_owned()),
        path if path.starts_with('/') => Some(format!("syslog:{path}")),
        address => {
            let with_port = if address.contains(':') { address.to_owned() } else { format!("{address}:514") };
            let with_port = with_port.replacen("localhost:", "127.0.0.1:", 1);
            with_port.parse::<std::net::SocketAddr>().ok().map(|address| format!("syslog:{address}"))
        }
    }
}

/// Reason for `tune.*`.
const TUNING: &str = "a buffer or limit of HAProxy's implementation";

/// Key of `resolve`, with its line.
pub(super) type ResolveKey = (String, Value, Rc<Origin>);

/// Settings of `global`, and the name servers of the config.
#[derive(Debug, Default)]
pub(super) struct Global {
    pub(super) logs: Vec<Set<String>>,
    pub(super) resolvers: Vec<(String, Vec<ResolveKey>)>,
    /// Sections `http-errors` by their names.
    pub(super) pages: BTreeMap<String, Pages>,
}

impl Global {
    /// Applies one line of `global`.
    pub(super) fn apply(&mut self, line: &Line, draft: &mut Draft<'_>) {
        let origin = &line.origin;
        let origins = std::slice::from_ref(origin);
        let number = line.word(1).parse::<u64>().ok();
        match (line.word(0), number) {
            ("maxconn", Some(number)) => {
                draft.document.top.set(
                    "connections-max",
                    Value::Number(number.clamp(1, 100_000_000)),
                    origins,
                );
            }
            ("nbthread", Some(number)) => {
                draft.document.top.set("threads", Value::Number(number.clamp(1, 1024)), origins);
            }
            ("user" | "uid", _) if draft.surroundings.has_user(line.word(1)) => {
                draft.document.privileges.set("user", Value::text(line.word(1)), origins);
            }
            ("group" | "gid", _) if draft.surroundings.has_group(line.word(1)) => {
                draft.document.privileges.set("group", Value::text(line.word(1)), origins);
            }
            ("user" | "uid" | "group" | "gid", _) => {
                let text =
                    format!("the {} '{}', which this machine does not have", line.word(0), line.word(1));
                draft.leave(Kind::Needs, origin, text);
            }
            ("hard-stop-after", _) => match milliseconds(line.word(1)) {
                Some(ms) => draft.document.top.set("drain-timeout", crate::draft::time_value(ms), origins),
                None => draft.leave(Kind::NotSupported, origin, "this is no time"),
            },
            ("log", _) => match log_target(line.word(1)) {
                Some(target) => self.logs.push((target, Rc::clone(origin))),
                None => {
                    draft.leave(Kind::NotSupported, origin, "a log goes to stdout, a file or syslog over UDP")
                }
            },
            (name, _) => {
                let words = ["global", name, line.word(1)];
                let row = row::find(super::TABLE, &words).filter(|row| row.directive.contains(' '));
                let (kind, reason) = match name.split_once('.') {
                    Some(("tune", _)) if row.is_none() => (Kind::NoEffect, TUNING.to_owned()),
                    _ => super::reason_of(row, name),
                };
                draft.leave(kind, origin, reason);
            }
        }
    }

    /// Adds a section of name servers.
    pub(super) fn add_resolvers(&mut self, head: &Line, lines: &[Line], draft: &mut Draft<'_>) {
        let mut entries: Vec<(String, Value, Rc<Origin>)> = Vec::new();
        for line in lines {
            let origin = &line.origin;
            let value = match (line.word(0), line.word(1)) {
                ("nameserver", _) => {
                    let address = line.word(2).trim_start_matches("udp@");
                    let is_address = address.parse::<std::net::SocketAddr>().is_ok();
                    is_address.then(|| ("nameserver".to_owned(), Value::text(address)))
                }
                ("hold", "valid") => {
                    milliseconds(line.word(2)).map(|ms| ("interval".to_owned(), crate::draft::time_value(ms)))
                }
                ("timeout", "resolve" | "retry") => {
                    milliseconds(line.word(2)).map(|ms| ("timeout".to_owned(), crate::draft::time_value(ms)))
                }
                ("parse-resolv-conf", _) => {
                    draft.leave(Kind::NoEffect, origin, "without name servers weir reads /etc/resolv.conf");
                    continue;
                }
                ("hold" | "resolve_retries" | "accepted_payload_size", _) => {
                    draft.leave(
                        Kind::NoEffect,
                        origin,
                        "weir keeps the last addresses while lookups fail (resolve.hold)",
                    );
                    continue;
                }
                _ => None,
            };
            match value {
                Some((key, value)) => entries.push((key, value, Rc::clone(origin))),
                None => draft.leave(
                    Kind::NotSupported,
                    origin,
                    "weir needs the address of a name server with its port",
                ),
            }
        }
        self.resolvers.push((head.word(1).to_owned(), entries));
    }
}

/// `option forwardfor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardFor {
    /// Clients whose address is not sent.
    pub(super) except: Option<String>,
    pub(super) if_none: bool,
}

/// Parses the words of `option forwardfor`; fails with the reason.
pub(super) fn parse_forwardfor(words: &[String]) -> Result<ForwardFor, &'static str> {
    let mut option = ForwardFor::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "if-none" => option.if_none = true,
            "except" => match words.next().and_then(network) {
                Some(network) => option.except = Some(network),
                None => return Err("the exception is a client network"),
            },
            "header" if words.next().is_some_and(|name| name.eq_ignore_ascii_case("x-forwarded-for")) => {}
            _ => return Err("the field is X-Forwarded-For: another name needs set-request-header"),
        }
    }
    Ok(option)
}
