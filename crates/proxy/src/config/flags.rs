//! The flags of the one-liner, `weir proxy --listen ADDR --to ADDR`, to a [`Plan`]: one listener, one
//! pool, and the defaults of a config for all that flags do not say.

use record::problem::Problem;
use record::units::{DurationUnit, parse_count, parse_duration_ns};
use rt::address::Address;

use crate::plan::{
    ListenerPlan, LogPlan, LogTarget, Mode, NamedServers, Plan, PoolPlan, PrivilegesPlan,
    ServerPlan,
};

use super::directives::{Kind, directive};
use super::source::{Problems, suggestion};
use super::value::{Section, TIME_MAX_NS};
use super::{forms, listeners, log_format, pools, routes};

/// Where it listens when nothing else is said.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:8080";
/// The name of the listener and of the pool.
const NAME: &str = "main";
const THREADS_MAX: usize = 1024;

/// A proxy's flags as they were typed. An empty text is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlagsText {
    /// Addresses to listen on; none: [`LISTEN_DEFAULT`].
    pub listen: Vec<String>,
    /// The servers' addresses, with commas between them; needed.
    pub to: String,
    /// `http` (default) or `tcp`.
    pub mode: String,
    /// How many threads; default 1 for each processor that this process may use.
    pub threads: String,
    /// Processors to pin the threads to; default: not pinned.
    pub pin: String,
    /// Where metrics are served; default: nowhere.
    pub admin: String,
    /// The path of the control socket; default: none.
    pub control: String,
    /// The access log's file, or `-`; default: none.
    pub access_log: String,
    /// `json` (default), `combined` or `haproxy`.
    pub log_format: String,
    /// One of [`crate::plan::Balance::NAMES`]; default `random-of-two`.
    pub balance: String,
    /// `never`, `safe` (default) or `always`.
    pub reuse: String,
    /// Connections of clients that may be open; default: what descriptors allow.
    pub connections_max: String,
    /// How long requests in flight may go on after SIGTERM; bare numbers are seconds.
    pub drain_timeout: String,
}

/// Understands the flags.
///
/// # Errors
/// Everything that is wrong with them, by flag, in their order.
pub fn from_flags(text: &FlagsText) -> Result<Plan, Vec<Problem>> {
    let mut flags = Flags { problems: Vec::new() };
    let bind = flags.listen(&text.listen);
    let (servers, names) = flags.to(&text.to);
    let is_tcp = &*flags.choice("--mode", "listener.*", "mode", &text.mode) == "tcp";
    let threads = flags.threads(&text.threads);
    let pin = flags.parsed("--pin", &text.pin, rt::cores::parse_cpus).unwrap_or_default();
    let admin = flags.parsed("--admin", &text.admin, forms::bind_address);
    if admin.as_ref().is_some_and(|admin| bind.contains(admin) && !is_any_port(admin)) {
        flags.add("--admin", format!("'{}' is an address of --listen: give another", text.admin));
    }
    let control = flags.parsed("--control", &text.control, forms::socket_path);
    if control.clone().is_some_and(|control| bind.contains(&Address::Unix(control))) {
        let why = format!("'{}' is an address of --listen: give another", text.control);
        flags.add("--control", why);
    }
    let format = flags.choice("--log-format", "log[]", "format", &text.log_format);
    if text.access_log.is_empty() && !text.log_format.is_empty() {
        flags.add("--log-format", "there is no log: add --access-log FILE, or - for stdout");
    }
    let balance = flags.choice("--balance", "pool.*", "balance", &text.balance);
    let reuse = flags.choice("--reuse", "pool.*", "reuse", &text.reuse);
    let (nothing, mut silent) = (Section::empty(""), Problems::default());
    let listener = Section::empty("listener.*").named(NAME);
    let pool = Section::empty("pool.*").named(NAME);
    let mode = if is_tcp { Mode::Tcp(0) } else { Mode::Http };
    let plan = Plan {
        threads,
        threads_given: true,
        pin,
        connections_max: flags.connections_max(&text.connections_max, threads),
        drain_timeout_ns: flags
            .parsed("--drain-timeout", &text.drain_timeout, time)
            .unwrap_or_else(|| nothing.number("drain-timeout")),
        privileges: PrivilegesPlan {
            no_new_privileges: true,
            landlock: true,
            ..PrivilegesPlan::default()
        },
        logs: log(&text.access_log, &format),
        admin,
        admin_access: Default::default(),
        control,
        source: as_config(text).into(),
        listeners: vec![ListenerPlan {
            bind,
            mode,
            ..listeners::listener(&listener, &[NAME], &mut silent)
        }],
        routes: if is_tcp { Vec::new() } else { vec![routes::of_listener(0, NAME, 0)] },
        pools: vec![PoolPlan {
            servers,
            names,
            balance: pools::balance(&balance),
            reuse: pools::reuse(&reuse),
            ..pools::pool(&pool, &mut silent)
        }],
    };
    if flags.problems.is_empty() { Ok(plan) } else { Err(flags.problems) }
}

/// What a config would say, for who asks the running proxy.
fn as_config(text: &FlagsText) -> String {
    use std::fmt::Write as _;
    let quoted = |text: &str| format!("{text:?}");
    let mut config = "# made of the flags of weir proxy\n".to_owned();
    let mut line = |key: &str, text: &str| {
        if !text.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(config, "{key} = {text}");
        }
    };
    let texts = |text: &str| if text.is_empty() { String::new() } else { quoted(text) };
    line("threads", &text.threads);
    line("pin", &texts(&text.pin));
    line("connections-max", &texts(&text.connections_max));
    let bare = text.drain_timeout.parse::<f64>().is_ok();
    let unit = if bare { "s" } else { "" };
    if !text.drain_timeout.is_empty() {
        line("drain-timeout", &quoted(&format!("{}{unit}", text.drain_timeout)));
    }
    line("admin", &texts(&text.admin));
    line("control", &texts(&text.control));
    match text.access_log.as_str() {
        "" => {}
        "-" => line("log", &log_entry("stdout", &text.log_format)),
        path => line("log", &log_entry(&format!("file:{path}"), &text.log_format)),
    }
    let default = [LISTEN_DEFAULT.to_owned()];
    let listen = if text.listen.is_empty() { &default[..] } else { &text.listen };
    line("\n[listener.main]\nbind", &format!("{listen:?}"));
    line("mode", &texts(&text.mode));
    line("pool", &quoted(NAME));
    let servers: Vec<&str> = text.to.split(',').collect();
    line("\n[pool.main]\nservers", &format!("{servers:?}"));
    line("balance", &texts(&text.balance));
    line("reuse", &texts(&text.reuse));
    config
}

fn log_entry(to: &str, format: &str) -> String {
    match format {
        "" => format!("[{{ to = {to:?} }}]"),
        format => format!("[{{ to = {to:?}, format = {format:?} }}]"),
    }
}

fn log(file: &str, format: &str) -> Vec<LogPlan> {
    let target = match file {
        "" => return Vec::new(),
        "-" => LogTarget::Stdout,
        path => LogTarget::File(path.into()),
    };
    vec![LogPlan { target, format: log_format(format), sample: 1.0, only_errors: false }]
}

fn time(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text, DurationUnit::Seconds)? {
        0 => Err("0 would end everything at once; give a time".into()),
        ns if ns > TIME_MAX_NS => Err(format!("'{text}' is longer than a year (8760h)")),
        ns => Ok(ns),
    }
}

/// What is wrong so far.
struct Flags {
    problems: Vec<Problem>,
}

impl Flags {
    fn add(&mut self, place: &str, text: impl Into<String>) {
        self.problems.push(Problem::new(place, text));
    }

    /// `None` for an empty text, and for one that is wrong.
    fn parsed<T>(
        &mut self,
        place: &str,
        text: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        if text.is_empty() {
            return None;
        }
        parse(text).map_err(|error| self.add(place, error)).ok()
    }

    fn listen(&mut self, texts: &[String]) -> Vec<Address> {
        let default = [LISTEN_DEFAULT.to_owned()];
        let texts = if texts.is_empty() { &default[..] } else { texts };
        let mut addresses = Vec::new();
        for text in texts {
            match forms::bind_address(text) {
                Ok(address) if addresses.contains(&address) && !is_any_port(&address) => {
                    self.add("--listen", format!("'{text}' is given twice"));
                }
                Ok(address) => addresses.push(address),
                Err(error) => self.add("--listen", error),
            }
        }
        addresses
    }

    fn to(&mut self, text: &str) -> (Vec<ServerPlan>, Vec<NamedServers>) {
        if text.is_empty() {
            self.add("--to", "no server: give addresses, with commas between them");
            return (Vec::new(), Vec::new());
        }
        pools::of_texts(text, |problem| self.add("--to", problem))
    }

    fn threads(&mut self, text: &str) -> usize {
        let parse = |text: &str| match text.parse() {
            Ok(threads @ 1..=THREADS_MAX) => Ok(threads),
            _ => Err(format!("'{text}' is not a number of threads from 1 to {THREADS_MAX}")),
        };
        let threads = self.parsed("--threads", text, parse);
        threads.unwrap_or_else(|| rt::cores::available().len())
    }

    fn connections_max(&mut self, text: &str, threads: usize) -> Option<usize> {
        self.parsed("--connections-max", text, |text| {
            match parse_count(text).map(usize::try_from)? {
                Ok(max) if max >= threads => Ok(max),
                _ => {
                    Err(format!("{text} connections do not give one to each of {threads} threads"))
                }
            }
        })
    }

    /// One of the choices that the config's key has; its default when the text is empty or wrong.
    fn choice(&mut self, place: &str, table: &'static str, key: &str, text: &str) -> Box<str> {
        let default = Section::empty(table).text(key).map(|text| text.value).unwrap_or_default();
        let choices = match directive(table, key).map(|row| row.kind) {
            Some(Kind::Choice(choices)) => choices,
            _ => &[],
        };
        let parse = |text: &str| {
            if choices.contains(&text) {
                return Ok(text.into());
            }
            let near = suggestion(text, choices.iter().copied());
            Err(format!("'{text}' is not one of {}{near}", choices.join(", ")))
        };
        self.parsed(place, text, parse).unwrap_or(default)
    }
}

/// Port 0 is a new port each time, so it may stand twice.
fn is_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Action, Balance, LogFormat, Reuse};

    fn flags() -> FlagsText {
        FlagsText { to: "127.0.0.1:9001,127.0.0.1:9002".into(), ..FlagsText::default() }
    }

    #[test]
    fn two_flags_are_a_whole_proxy_with_the_defaults_of_a_config() {
        let plan = from_flags(&flags()).unwrap();
        let text = "[listener.main]\nbind = '127.0.0.1:8080'\npool = 'main'\n\
                    [pool.main]\nservers = ['127.0.0.1:9001', '127.0.0.1:9002']\n";
        let config = super::super::parse("t", text).unwrap().plan;
        assert_eq!((&plan.listeners, &plan.pools), (&config.listeners, &config.pools));
        assert_eq!((plan.threads, &plan.privileges), (config.threads, &config.privileges));
        assert_eq!(plan.drain_timeout_ns, 30_000_000_000);
        assert_eq!(plan.routes.len(), 1);
        assert_eq!(plan.routes[0].action, Action::Forward(0));
        assert_eq!(plan.routes[0].name, config.routes[0].name);
    }

    #[test]
    fn all_flags_are_understood() {
        let text = FlagsText {
            listen: vec!["127.0.0.1:0".into(), "127.0.0.1:0".into()],
            mode: "tcp".into(),
            threads: "1".into(),
            admin: "127.0.0.1:0".into(),
            control: "/tmp/c.sock".into(),
            access_log: "-".into(),
            log_format: "haproxy".into(),
            balance: "round-robin".into(),
            reuse: "always".into(),
            connections_max: "10k".into(),
            drain_timeout: "5".into(),
            ..flags()
        };
        let plan = from_flags(&text).unwrap();
        assert_eq!((plan.listeners[0].mode, plan.routes.len()), (Mode::Tcp(0), 0));
        let log = &plan.logs[0];
        assert_eq!((&log.target, log.format), (&LogTarget::Stdout, LogFormat::Haproxy));
        assert_eq!(
            (plan.pools[0].balance, plan.pools[0].reuse),
            (Balance::RoundRobin, Reuse::Always)
        );
        assert_eq!((plan.connections_max, plan.drain_timeout_ns), (Some(10_000), 5_000_000_000));
        assert_eq!(plan.control.as_deref(), Some(std::path::Path::new("/tmp/c.sock")));
        // What it says as a config is the same.
        let config = super::super::parse("t", &plan.source).unwrap().plan;
        assert_eq!((&plan.listeners, &plan.pools), (&config.listeners, &config.pools));
        assert_eq!((&plan.logs, &plan.control), (&config.logs, &config.control));
        assert_eq!((plan.connections_max, plan.admin), (config.connections_max, config.admin));
        assert_eq!(plan.drain_timeout_ns, config.drain_timeout_ns);
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let text = FlagsText {
            listen: vec!["nowhere".into(), "127.0.0.1:80".into(), "127.0.0.1:80".into()],
            to: "127.0.0.1:0,,127.0.0.1:1,127.0.0.1:1".into(),
            mode: "htp".into(),
            threads: "0".into(),
            pin: "x".into(),
            admin: "127.0.0.1:80".into(),
            control: "/tmp/".into(),
            access_log: String::new(),
            log_format: "xml".into(),
            balance: "leastconn".into(),
            reuse: "often".into(),
            connections_max: "x".into(),
            drain_timeout: "0".into(),
        };
        let problems = from_flags(&text).unwrap_err();
        let places: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
        let wanted = [
            "--listen",
            "--listen",
            "--to",
            "--to",
            "--to",
            "--mode",
            "--threads",
            "--pin",
            "--admin",
            "--control",
            "--log-format",
            "--log-format",
            "--balance",
            "--reuse",
            "--connections-max",
            "--drain-timeout",
        ];
        assert_eq!(places, wanted, "{problems:?}");
        assert!(problems[5].text.contains("did you mean 'http'"), "{problems:?}");
        let none = from_flags(&FlagsText::default()).unwrap_err();
        assert_eq!((none.len(), none[0].place.as_str()), (1, "--to"));
    }
}
