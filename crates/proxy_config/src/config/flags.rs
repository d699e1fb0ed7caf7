//! Converts the flags of the one-liner, `weir proxy --listen ADDR --to ADDR`, to a [`Plan`] with
//! one listener and one pool. Everything that no flag sets has the default of a config.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use record::document::Problems;
use record::problem::InputProblem;
use record::units::{format_plural, parse_count};
use rt::address::Address;
use rt::tls::CertificateFiles;

use crate::plan::{
    ListenerPlan, ListenerTls, LogPlan, LogTarget, Mode, NamedServers, Plan, PoolId, PoolPlan,
    PrivilegesPlan, RoutePlan, ServerPlan,
};

use super::directives::{ValueKind, find_directive};
use super::errors::ValueError;
use super::value::{Section, check_choice, parse_time_in_seconds};
use super::{auth, http2, listeners, named_log_format, pools, routes, tls, validate};

pub const LISTEN_DEFAULT: &str = "127.0.0.1:8080";
/// Name of the listener and of the pool.
const DEFAULT_NAME: &str = "main";
const THREADS_MAX: usize = 1024;

/// A proxy's flags as they were typed. An empty text means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyFlags {
    /// Addresses to listen on; if empty, [`LISTEN_DEFAULT`].
    pub listen: Vec<String>,
    /// Addresses of the servers, separated by commas; required.
    pub to: String,
    /// `http` (default) or `tcp`.
    pub mode: String,
    /// PEM files with a certificate and its chain each; default: plain connections.
    pub tls_certs: Vec<String>,
    /// PEM files with their keys, in the same order; empty: they are in the same files.
    pub tls_keys: Vec<String>,
    /// True if a certificate for `localhost` is made at the start.
    pub tls_self_signed: bool,
    /// Number of threads; default 1 for each CPU that this process may use.
    pub threads: String,
    /// CPUs to pin the threads to; default: not pinned.
    pub pin: String,
    /// Address of the metrics endpoint; default: none.
    pub admin: String,
    /// Path of the control socket; default: none.
    pub control: String,
    /// Path of the access log, or `-` for stdout; default: none.
    pub access_log: String,
    /// `json` (default), `combined` or `haproxy`.
    pub log_format: String,
    /// One of [`crate::plan::Balance::NAMES`]; default `random-of-two`.
    pub balance: String,
    /// `never`, `safe` (default) or `always`.
    pub reuse: String,
    /// HTTP version of the connections to the servers: `1.1` (default) or `2`.
    pub to_http: String,
    /// Maximum number of open client connections; default: as many as the descriptor limit allows.
    pub connections_max: String,
    /// Time that requests in flight may take after SIGTERM; bare numbers are seconds.
    pub drain_timeout: String,
}

/// Parses the flags.
///
/// # Errors
/// Returns every problem by flag, in the order of the flags.
pub fn from_flags(text: &ProxyFlags) -> Result<Plan, Vec<InputProblem>> {
    let mut flags = FlagParser { problems: Vec::new() };
    let bind = flags.parse_listen(&text.listen);
    let (servers, named_servers) = flags.parse_servers(&text.to);
    let mode = flags.parse_mode(&text.mode);
    let tls = flags.parse_tls(text, mode);
    let threads = flags.parse_threads(&text.threads);
    let pin = flags.parse_flag("--pin", &text.pin, rt::cores::parse_cpus).unwrap_or_default();
    let admin = flags.parse_flag("--admin", &text.admin, validate::parse_bind_address);
    if admin.as_ref().is_some_and(|admin| bind.contains(admin) && !is_ephemeral(admin)) {
        flags.add_duplicate("--admin", &text.admin);
    }
    let control = flags.parse_flag("--control", &text.control, validate::parse_socket_path);
    if control.clone().is_some_and(|control| bind.contains(&Address::Unix(control))) {
        flags.add_duplicate("--control", &text.control);
    }
    let format = flags.parse_choice("--log-format", "log[]", "format", &text.log_format);
    if text.access_log.is_empty() && !text.log_format.is_empty() {
        flags.add_problem("--log-format", "there is no log: add --access-log FILE (- for stdout)");
    }
    let balance = flags.parse_choice("--balance", "pool.*", "balance", &text.balance);
    let reuse = flags.parse_choice("--reuse", "pool.*", "reuse", &text.reuse);
    let to_http = flags.parse_choice("--to-http", "pool.*", "http", &text.to_http);
    let (root_defaults, pool) = (Section::empty(""), Section::empty("pool.*").with_name(DEFAULT_NAME));
    let connections_max = flags.parse_connections_max(&text.connections_max, threads);
    let drain_timeout_ns = flags.parse_flag("--drain-timeout", &text.drain_timeout, parse_time_in_seconds);
    let plan = Plan {
        threads,
        is_threads_set: true,
        pin,
        connections_max,
        drain_timeout_ns: drain_timeout_ns.unwrap_or_else(|| root_defaults.integer_or_zero("drain-timeout")),
        privileges: PrivilegesPlan { no_new_privileges: true, landlock: true, ..PrivilegesPlan::default() },
        logs: log_plans(&text.access_log, &format),
        admin,
        admin_access: Default::default(),
        control,
        state_file: None,
        tracing: None,
        source: as_config(text).into(),
        included: Vec::new(),
        error_pages: Default::default(),
        maps: Arc::default(),
        caches: Arc::default(),
        password_threads: auth::parse_password_threads(&root_defaults),
        listeners: Arc::new([default_listener(bind, mode, tls)]),
        routes: default_route(mode).into_iter().collect(),
        pools: vec![Arc::new(PoolPlan {
            servers: servers.into(),
            named_servers,
            balance: pools::parse_balance(&balance),
            reuse: pools::parse_reuse(&reuse),
            http: http2::parse_version(&to_http),
            ..pools::parse_pool(&pool, &[], &mut Problems::default())
        })]
        .into(),
        given: Default::default(),
    };
    if flags.problems.is_empty() { Ok(plan) } else { Err(flags.problems) }
}

/// Returns the route to the only pool.
fn default_route(mode: Mode) -> Option<RoutePlan> {
    let route = || routes::listener_route(0, DEFAULT_NAME, PoolId(0), &Default::default());
    (mode == Mode::Http).then(route)
}

/// Returns the listener, with the defaults of all keys that have no flag.
fn default_listener(bind: Vec<Address>, mode: Mode, tls: Option<ListenerTls>) -> ListenerPlan {
    let section = Section::empty("listener.*").with_name(DEFAULT_NAME);
    let pools = vec![DEFAULT_NAME].into();
    let defaults = listeners::parse_listener(&section, &pools, &mut Problems::default());
    let http2 = defaults.http2.clone().filter(|_| mode == Mode::Http);
    ListenerPlan { bind, mode, tls, http2, ..defaults }
}

/// Returns the equivalent config, shown to clients that query the running proxy.
fn as_config(text: &ProxyFlags) -> String {
    use fmt::Write as _;
    let quoted = |text: &str| format!("{text:?}");
    let mut config = "# generated from the flags of weir proxy\n".to_owned();
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
    let has_no_unit = text.drain_timeout.parse::<f64>().is_ok();
    let unit = if has_no_unit { "s" } else { "" };
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
    line("tls", &tls_table(text));
    line("pool", &quoted(DEFAULT_NAME));
    let servers: Vec<&str> = text.to.split(',').collect();
    line("\n[pool.main]\nservers", &format!("{servers:?}"));
    line("balance", &texts(&text.balance));
    line("reuse", &texts(&text.reuse));
    line("http", &texts(&text.to_http));
    config
}

/// Returns the TLS table of the equivalent config; empty: none.
fn tls_table(text: &ProxyFlags) -> String {
    let ProxyFlags { tls_certs, tls_keys, tls_self_signed, .. } = text;
    let entry = |(index, certificate): (usize, &String)| match tls_keys.get(index) {
        Some(key) => format!("{{ certificate = {certificate:?}, key = {key:?} }}"),
        None => format!("{certificate:?}"),
    };
    let entries: Vec<String> = tls_certs.iter().enumerate().map(entry).collect();
    let certificates = (!entries.is_empty()).then(|| format!("certificates = [{}]", entries.join(", ")));
    let self_signed = tls_self_signed.then(|| "self-signed = true".to_owned());
    let keys: Vec<String> = certificates.into_iter().chain(self_signed).collect();
    if keys.is_empty() { String::new() } else { format!("{{ {} }}", keys.join(", ")) }
}

fn log_entry(to: &str, format: &str) -> String {
    match format {
        "" => format!("[{{ to = {to:?} }}]"),
        format => format!("[{{ to = {to:?}, format = {format:?} }}]"),
    }
}

fn log_plans(file: &str, format: &str) -> Vec<LogPlan> {
    let log = |target| LogPlan {
        target,
        format: named_log_format(format),
        sample: 1.0,
        only_errors: false,
        rotation: None,
    };
    LogTarget::from_flag(file).map(log).into_iter().collect()
}

/// Problems found so far.
struct FlagParser {
    problems: Vec<InputProblem>,
}

impl FlagParser {
    fn parse_mode(&mut self, text: &str) -> Mode {
        let mode = self.parse_choice("--mode", "listener.*", "mode", text);
        if &*mode == "tcp" { Mode::Tcp(PoolId(0)) } else { Mode::Http }
    }

    fn add_problem(&mut self, flag: &str, text: impl fmt::Display) {
        self.problems.push(InputProblem::new(flag, text));
    }

    fn add_duplicate(&mut self, flag: &str, address: &str) {
        self.add_problem(flag, format!("'{address}' is already an address of --listen: change one of them"));
    }

    /// Parses the text of a flag. Returns `None` if it is empty or invalid.
    fn parse_flag<T, E: fmt::Display>(
        &mut self,
        flag: &str,
        text: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        if text.is_empty() {
            return None;
        }
        parse(text).map_err(|error| self.add_problem(flag, error)).ok()
    }

    fn parse_listen(&mut self, texts: &[String]) -> Vec<Address> {
        let default = [LISTEN_DEFAULT.to_owned()];
        let texts = if texts.is_empty() { &default[..] } else { texts };
        let mut addresses = Vec::new();
        for text in texts {
            match validate::parse_bind_address(text) {
                Ok(address) if addresses.contains(&address) && !is_ephemeral(&address) => {
                    self.add_problem("--listen", format!("'{text}' is a duplicate: remove it"));
                }
                Ok(address) => addresses.push(address),
                Err(error) => self.add_problem("--listen", error),
            }
        }
        addresses
    }

    fn parse_tls(&mut self, text: &ProxyFlags, mode: Mode) -> Option<ListenerTls> {
        let ProxyFlags { tls_certs, tls_keys, tls_self_signed, .. } = text;
        if !tls_keys.is_empty() && tls_keys.len() != tls_certs.len() {
            let keys = format_plural(tls_keys.len() as u64, "key");
            let certificates = format_plural(tls_certs.len() as u64, "certificate");
            let text = format!("{keys} for {certificates} (--tls-cert): give one for each");
            self.add_problem("--tls-key", text);
            return None;
        }
        if tls_certs.is_empty() && !tls_self_signed {
            return None;
        }
        let keys = if tls_keys.is_empty() { tls_certs } else { tls_keys };
        let files = tls_certs.iter().zip(keys).map(|(certificate, key)| CertificateFiles {
            certificate: certificate.into(),
            key: key.into(),
            ocsp: None,
        });
        let failures = match tls::listener_tls_of_flags(files.collect(), *tls_self_signed, mode) {
            Ok(tls) => return Some(tls),
            Err(failures) => failures,
        };
        for failure in failures {
            let is_certificate =
                tls_certs.iter().any(|file| failure.path.as_deref() == Some(Path::new(file)));
            self.add_problem(if is_certificate { "--tls-cert" } else { "--tls-key" }, failure.to_string());
        }
        None
    }

    fn parse_servers(&mut self, text: &str) -> (Vec<ServerPlan>, Vec<NamedServers>) {
        if text.is_empty() {
            self.add_problem("--to", "no server: write addresses, separated by commas");
            return (Vec::new(), Vec::new());
        }
        pools::parse_server_list(text, |problem| self.add_problem("--to", problem))
    }

    fn parse_threads(&mut self, text: &str) -> usize {
        let parse = |text: &str| match text.parse() {
            Ok(threads @ 1..=THREADS_MAX) => Ok(threads),
            _ => Err(ValueError::Threads { text: text.into(), max: THREADS_MAX }),
        };
        let threads = self.parse_flag("--threads", text, parse);
        threads.unwrap_or_else(|| rt::cores::available_cpus().len())
    }

    fn parse_connections_max(&mut self, text: &str, threads: usize) -> Option<usize> {
        self.parse_flag("--connections-max", text, |text| {
            let max = parse_count(text).map(usize::try_from)?;
            max.ok().filter(|max| *max >= threads).ok_or_else(|| {
                let threads = format_plural(threads as u64, "thread");
                ValueError::FewConnections { text: text.into(), threads }
            })
        })
    }

    /// Returns the text if it is one of the config key's choices, or the key's default if it is
    /// empty or invalid.
    fn parse_choice(&mut self, flag: &str, table: &'static str, key: &str, text: &str) -> Box<str> {
        let default = Section::empty(table).text(key).map(|text| text.value).unwrap_or_default();
        let choices = match find_directive(table, key).map(|row| row.kind) {
            Some(ValueKind::Choice(choices) | ValueKind::ChoiceOrText(choices, _)) => choices,
            _ => &[],
        };
        let parse = |text: &str| check_choice(text, choices).map(|()| text.into());
        self.parse_flag(flag, text, parse).unwrap_or(default)
    }
}

/// Returns whether the port is 0. Such an address may be given twice, because each bind gets a new
/// port.
fn is_ephemeral(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Action, Balance, LogFormat, Reuse};

    fn flags() -> ProxyFlags {
        ProxyFlags { to: "127.0.0.1:9001,127.0.0.1:9002".into(), ..ProxyFlags::default() }
    }

    #[test]
    fn two_flags_are_a_complete_proxy_with_the_defaults_of_a_config() {
        let plan = from_flags(&flags()).unwrap();
        let text = "[listener.main]\nbind = '127.0.0.1:8080'\npool = 'main'\n\
                    [pool.main]\nservers = ['127.0.0.1:9001', '127.0.0.1:9002']\n";
        let config = super::super::parse("t", text).unwrap().plan;
        assert_eq!((&plan.listeners, &plan.pools), (&config.listeners, &config.pools));
        assert_eq!((plan.threads, &plan.privileges), (config.threads, &config.privileges));
        assert_eq!(plan.drain_timeout_ns, 30_000_000_000);
        assert_eq!(plan.routes.len(), 1);
        assert_eq!(plan.routes[0].action, Action::Forward(PoolId(0)));
        assert_eq!(plan.routes[0].name, config.routes[0].name);
    }

    #[test]
    fn all_flags_are_parsed() {
        let text = ProxyFlags {
            listen: vec!["127.0.0.1:0".into(), "127.0.0.1:0".into()],
            mode: "tcp".into(),
            tls_self_signed: true,
            threads: "1".into(),
            admin: "127.0.0.1:0".into(),
            control: "/tmp/c.sock".into(),
            access_log: "-".into(),
            log_format: "haproxy".into(),
            balance: "round-robin".into(),
            reuse: "always".into(),
            to_http: "2".into(),
            connections_max: "10k".into(),
            drain_timeout: "5".into(),
            ..flags()
        };
        let plan = from_flags(&text).unwrap();
        assert_eq!((plan.listeners[0].mode, plan.routes.len()), (Mode::Tcp(PoolId(0)), 0));
        let log = &plan.logs[0];
        assert_eq!((&log.target, &log.format), (&LogTarget::Stdout, &LogFormat::Haproxy));
        assert_eq!(
            (plan.pools[PoolId(0)].balance, plan.pools[PoolId(0)].reuse),
            (Balance::RoundRobin, Reuse::Always)
        );
        assert_eq!((plan.connections_max, plan.drain_timeout_ns), (Some(10_000), 5_000_000_000));
        assert_eq!(plan.control.as_deref(), Some(Path::new("/tmp/c.sock")));
        // The equivalent config describes the same plan.
        let config = super::super::parse("t", &plan.source).unwrap().plan;
        assert_eq!((&plan.listeners, &plan.pools), (&config.listeners, &config.pools));
        assert_eq!((&plan.logs, &plan.control), (&config.logs, &config.control));
        assert_eq!((plan.connections_max, plan.admin), (config.connections_max, config.admin));
        assert_eq!(plan.drain_timeout_ns, config.drain_timeout_ns);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let text = ProxyFlags {
            listen: vec!["nowhere".into(), "127.0.0.1:80".into(), "127.0.0.1:80".into()],
            to: "127.0.0.1:0,,127.0.0.1:1,127.0.0.1:1".into(),
            mode: "htp".into(),
            tls_certs: vec!["/no/such/file".into()],
            tls_keys: vec!["/no/such/key".into()],
            tls_self_signed: false,
            threads: "0".into(),
            pin: "x".into(),
            admin: "127.0.0.1:80".into(),
            control: "/tmp/".into(),
            access_log: String::new(),
            log_format: "xml".into(),
            balance: "leastconn".into(),
            reuse: "often".into(),
            to_http: "3".into(),
            connections_max: "x".into(),
            drain_timeout: "0".into(),
        };
        let problems = from_flags(&text).unwrap_err();
        let places: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
        let expected = [
            "--listen",
            "--listen",
            "--to",
            "--to",
            "--to",
            "--mode",
            "--tls-cert",
            "--threads",
            "--pin",
            "--admin",
            "--control",
            "--log-format",
            "--log-format",
            "--balance",
            "--reuse",
            "--to-http",
            "--connections-max",
            "--drain-timeout",
        ];
        assert_eq!(places, expected, "{problems:?}");
        assert!(problems[5].text.contains("'http'"), "{problems:?}");
        let none = from_flags(&ProxyFlags::default()).unwrap_err();
        assert_eq!((none.len(), none[0].location.as_str()), (1, "--to"));
    }
}
