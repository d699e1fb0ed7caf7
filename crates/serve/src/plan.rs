//! Configuration of an origin: parses the texts of its flags to an [`OriginPlan`], and reports every
//! problem at once. It starts nothing; it only resolves names, and reads the files of certificates.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use content::plan::FilesPlan;
use record::problem::InputProblem;
use record::units::{
    DurationUnit, format_bytes, format_duration_ns, format_plural, parse_count, parse_duration_ns, parse_size,
};
use rt::address::Address;
use rt::user_tcp::{UserTcpPlan, UserTcpSurvey};
use rt::xdp::interface::XdpError;
use rt::xdp::stack::CONNECTIONS_MAX;
use server_shell::log::LogTarget;
use server_shell::progress::{BODY_RATE_MIN, ProgressRule, WRITE_RATE_MIN};

mod user_tcp;

pub use crate::files::FilesPlanText;
use crate::files::describe;
use crate::log::AccessLogFormat;
use crate::tls::OriginTls;
pub use crate::tls::OriginTlsText;

/// Default address to listen on.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:8000";
/// Maximum time a connection may wait for its next request: 60 s. `w=` in a target overrides it.
pub const IDLE_TIMEOUT_NS: u64 = 60_000_000_000;
/// Maximum time between the first and the last byte of a head: 10 s.
pub const HEAD_TIMEOUT_NS: u64 = 10_000_000_000;
/// Maximum time a request's body may make no progress: 30 s.
pub const BODY_TIMEOUT_NS: u64 = 30_000_000_000;
/// Maximum time a peer may read nothing of its response: 30 s.
pub const WRITE_TIMEOUT_NS: u64 = 30_000_000_000;
/// Maximum time of a drain: 30 s.
pub const DRAIN_TIMEOUT_NS: u64 = 30_000_000_000;
/// Maximum size of a request's head: 16 KiB.
pub const HEAD_BYTES_MAX: usize = 16_384;
/// Maximum concurrent streams of a connection with HTTP/2: 100.
pub const H2_STREAMS_MAX: u32 = 100;
/// Maximum receive window of a stream: 1 MiB. It starts at 65,535 bytes and grows while its client fills it.
pub const H2_STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Maximum receive window of a connection with HTTP/2: 16 MiB. It starts at 1 MiB.
pub const H2_CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Descriptors reserved for the rest of the process when the number of connections is not given.
pub const DESCRIPTORS_RESERVED: u64 = 64;

/// Allowed range of [`HEAD_BYTES_MAX`].
const HEAD_BYTES_RANGE: std::ops::RangeInclusive<u64> = 256..=1 << 20;
const THREADS_MAX: usize = 1024;
/// Allowed range of [`H2_STREAMS_MAX`].
const H2_STREAMS_RANGE: std::ops::RangeInclusive<u64> = 1..=10_000;
/// Allowed range of both windows (RFC 9113 §6.9.2: 65,535 is what a client may use before it knows better).
const H2_WINDOW_RANGE: std::ops::RangeInclusive<u64> = 65_535..=(1 << 31) - 1;

/// Flags of an origin as typed. An empty text is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginPlanText {
    /// Addresses to listen on; none: [`LISTEN_DEFAULT`].
    pub listen: Vec<String>,
    /// Number of threads; default 1 for each CPU that this process may use.
    pub threads: String,
    /// CPUs to pin threads to: `0,2-3`, or `all`; default: not pinned.
    pub pin: String,
    /// True if idle threads spin instead of sleeping.
    pub spin: bool,
    /// Files to serve; default: none.
    pub files: FilesPlanText,
    /// True if each connection starts with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// File of the access log, or `-`; default: none.
    pub access_log: String,
    /// Format of the access log: `combined` or `json`; default: `combined`.
    pub access_log_format: String,
    /// Address of the counters alone; default: none.
    pub stats_listen: String,
    /// TLS of all listeners; default: none.
    pub tls: OriginTlsText,
    /// See [`IDLE_TIMEOUT_NS`]; bare numbers are seconds.
    pub idle_timeout: String,
    /// See [`HEAD_TIMEOUT_NS`]; bare numbers are seconds.
    pub head_timeout: String,
    /// See [`BODY_TIMEOUT_NS`]; bare numbers are seconds.
    pub body_timeout: String,
    /// See [`WRITE_TIMEOUT_NS`]; bare numbers are seconds.
    pub write_timeout: String,
    /// See [`DRAIN_TIMEOUT_NS`]; bare numbers are seconds.
    pub drain_timeout: String,
    /// Maximum number of open connections; default: `RLIMIT_NOFILE` less [`DESCRIPTORS_RESERVED`].
    pub connections_max: String,
    /// See [`HEAD_BYTES_MAX`].
    pub head_bytes_max: String,
    /// Versions of HTTP: `1.1`, `2` or `auto`; default: `auto`.
    pub http: String,
    /// See [`H2_STREAMS_MAX`].
    pub h2_streams_max: String,
    /// See [`H2_STREAM_WINDOW_BYTES`].
    pub h2_stream_window: String,
    /// See [`H2_CONNECTION_WINDOW_BYTES`].
    pub h2_connection_window: String,
    /// Interface of TCP in user space; default: the TCP of the kernel.
    pub xdp: String,
    /// True if a default route may lead through that interface.
    pub xdp_exposed: bool,
}

/// Versions of HTTP that the listeners accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersions {
    /// Both: ALPN decides with TLS, and the first bytes without it (RFC 9113 §3).
    Auto,
    /// HTTP/1.1 and HTTP/1.0.
    Http1,
    Http2,
}

impl HttpVersions {
    /// Returns the protocols of ALPN in the order of preference (RFC 9113 §3.2).
    fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Auto => &[b"h2", b"http/1.1"],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
        }
    }
}

/// Configuration of an origin. [`OriginPlan::parse`] creates it; it never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPlan {
    pub(crate) listen: Vec<Address>,
    pub(crate) threads: usize,
    pub(crate) pin: Vec<usize>,
    pub(crate) spin: bool,
    /// Files to serve; `None`: responses are generated.
    pub(crate) files: Option<Arc<FilesPlan>>,
    pub(crate) proxy_protocol: bool,
    pub(crate) access_log: Option<LogTarget>,
    pub(crate) access_log_format: AccessLogFormat,
    pub(crate) stats_listen: Option<SocketAddr>,
    pub(crate) tls: Option<OriginTls>,
    pub(crate) idle_timeout_ns: u64,
    pub(crate) head_timeout_ns: u64,
    pub(crate) body: ProgressRule,
    pub(crate) write: ProgressRule,
    pub(crate) drain_timeout_ns: u64,
    /// `None`: as many as the descriptors allow, which is determined at the start.
    pub(crate) connections_max: Option<usize>,
    pub(crate) head_bytes_max: usize,
    pub(crate) http: HttpVersions,
    /// Settings and limits of a connection with HTTP/2.
    pub(crate) http2: wire::h2::Config,
    /// TCP in user space; `None`: that of the kernel.
    pub(crate) user_tcp: Option<UserTcpPlan>,
}

impl OriginPlan {
    /// Parses the flags.
    ///
    /// # Errors
    /// Everything that is wrong with them, in their order.
    pub fn parse(text: &OriginPlanText) -> Result<Self, Vec<InputProblem>> {
        let mut problems = FlagProblems(Vec::new());
        let listen = problems.listen(&text.listen);
        let threads = problems.threads(&text.threads);
        let pin = problems.pin(&text.pin);
        let http = problems.http(&text.http);
        let mut plan = Self {
            listen,
            threads,
            pin,
            spin: text.spin,
            access_log: LogTarget::from_flag(&text.access_log),
            access_log_format: problems.access_log_format(text),
            stats_listen: problems.stats_listen(&text.stats_listen),
            files: problems.files(&text.files),
            proxy_protocol: text.proxy_protocol,
            tls: problems.tls(&text.tls, http),
            idle_timeout_ns: problems.timeout("--idle-timeout", &text.idle_timeout, IDLE_TIMEOUT_NS),
            head_timeout_ns: problems.timeout("--head-timeout", &text.head_timeout, HEAD_TIMEOUT_NS),
            body: ProgressRule::from_rate(
                problems.timeout("--body-timeout", &text.body_timeout, BODY_TIMEOUT_NS),
                BODY_RATE_MIN,
            ),
            write: ProgressRule::from_rate(
                problems.timeout("--write-timeout", &text.write_timeout, WRITE_TIMEOUT_NS),
                WRITE_RATE_MIN,
            ),
            drain_timeout_ns: problems.timeout("--drain-timeout", &text.drain_timeout, DRAIN_TIMEOUT_NS),
            connections_max: problems.connections_max(&text.connections_max, threads),
            head_bytes_max: problems.head_bytes_max(&text.head_bytes_max),
            http,
            http2: wire::h2::Config::default(),
            user_tcp: None,
        };
        plan.user_tcp = user_tcp::parse(text, &mut plan.threads, &plan.listen, &mut problems);
        plan.http2 = problems.http2(text, plan.head_bytes_max);
        if problems.0.is_empty() { Ok(plan) } else { Err(problems.0) }
    }

    pub fn connections_max(&self) -> Option<usize> {
        self.connections_max
    }

    /// Returns the descriptors that are not for connections: those of the process and of cached files.
    pub(crate) fn descriptors_reserved(&self) -> u64 {
        DESCRIPTORS_RESERVED + self.files.as_ref().map_or(0, |files| files.cache_entries as u64)
    }

    /// Returns whether all listeners speak TLS.
    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub fn stats_listen(&self) -> Option<SocketAddr> {
        self.stats_listen
    }

    pub fn tls_key_log(&self) -> Option<&Path> {
        self.tls.as_ref()?.key_log()
    }

    /// Describes the plan for people, a line for each property: listeners, limits, and files.
    pub fn describe(&self) -> String {
        let listen: Vec<String> = self.listen.iter().map(ToString::to_string).collect();
        let tls = if self.uses_tls() { " with TLS" } else { "" };
        let http = match self.http {
            HttpVersions::Auto => "HTTP/1.1 and HTTP/2",
            HttpVersions::Http1 => "HTTP/1.1",
            HttpVersions::Http2 => "HTTP/2",
        };
        let header = if self.proxy_protocol { ", behind a PROXY protocol header" } else { "" };
        let mut text = format!("listen: {}{tls}, {http}{header}\n", listen.join(", "));
        text += &format!("threads: {}\n", self.threads);
        match &self.files {
            Some(files) => text += &describe(files),
            None => text += "responses: generated, by the URL (GET / documents its options)\n",
        }
        let timeouts = [
            ("idle", self.idle_timeout_ns),
            ("head", self.head_timeout_ns),
            ("body", self.body.interval_ns),
            ("write", self.write.interval_ns),
            ("drain", self.drain_timeout_ns),
        ];
        let timeouts = timeouts.map(|(name, time_ns)| format!("{name} {}", format_duration_ns(time_ns)));
        text += &format!("timeouts: {}\n", timeouts.join(", "));
        text += &match self.connections_max {
            Some(connections) => format!("connections: max {connections}\n"),
            None if self.has_user_tcp() => {
                format!("connections: max {CONNECTIONS_MAX} of each thread\n")
            }
            None => "connections: as many as the descriptor limit allows\n".to_owned(),
        };
        text + &format!("request heads: max {}\n", format_bytes(self.head_bytes_max as f64))
    }

    /// Returns the interface of TCP in user space with what would be taken from the kernel; `None`: the kernel's TCP is
    /// used.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn survey_user_tcp(&self) -> Result<Option<UserTcpSurvey>, XdpError> {
        let survey = |plan| UserTcpSurvey::for_server(plan, &user_tcp::tcp_addresses(&self.listen));
        self.user_tcp.as_ref().map(survey).transpose()
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns whether connections are those of TCP in user space, which have no descriptors.
    #[must_use]
    pub fn has_user_tcp(&self) -> bool {
        self.user_tcp.is_some()
    }
}

/// Problems found so far.
struct FlagProblems(Vec<InputProblem>);

impl FlagProblems {
    fn add(&mut self, flag: &str, text: impl fmt::Display) {
        self.0.push(InputProblem::new(flag, text));
    }

    fn listen(&mut self, texts: &[String]) -> Vec<Address> {
        let default = [LISTEN_DEFAULT.to_owned()];
        let texts = if texts.is_empty() { &default[..] } else { texts };
        let mut addresses = Vec::new();
        for text in texts {
            match text.parse::<Address>() {
                Ok(address) if addresses.contains(&address) && !is_any_port(&address) => {
                    self.add("--listen", format!("'{text}' is given twice"));
                }
                Ok(address) => addresses.push(address),
                Err(error) => self.add("--listen", error),
            }
        }
        addresses
    }

    fn threads(&mut self, text: &str) -> usize {
        let available = rt::cores::available_cpus().len();
        if text.is_empty() {
            return available;
        }
        match text.parse() {
            Ok(threads @ 1..=THREADS_MAX) => threads,
            _ => {
                let text = format!("'{text}' is not a number of threads from 1 to {THREADS_MAX}");
                self.add("--threads", text);
                1
            }
        }
    }

    fn pin(&mut self, text: &str) -> Vec<usize> {
        if text.is_empty() {
            return Vec::new();
        }
        rt::cores::parse_cpus(text).unwrap_or_else(|error| {
            self.add("--pin", error);
            Vec::new()
        })
    }

    fn tls(&mut self, text: &OriginTlsText, http: HttpVersions) -> Option<OriginTls> {
        OriginTls::parse(text, http.alpn()).unwrap_or_else(|problems| {
            self.0.extend(problems);
            None
        })
    }

    fn files(&mut self, text: &FilesPlanText) -> Option<Arc<FilesPlan>> {
        let files = text.parse().unwrap_or_else(|problems| {
            self.0.extend(problems);
            None
        });
        files.map(Arc::new)
    }

    fn access_log_format(&mut self, text: &OriginPlanText) -> AccessLogFormat {
        let flag = "--access-log-format";
        match text.access_log_format.as_str() {
            "" => {}
            _ if text.access_log.is_empty() => self.add(flag, "no effect without --access-log FILE"),
            "combined" => {}
            "json" => return AccessLogFormat::Json,
            other => self.add(flag, format!("'{other}' is not combined or json")),
        }
        AccessLogFormat::Combined
    }

    fn stats_listen(&mut self, text: &str) -> Option<SocketAddr> {
        if text.is_empty() {
            return None;
        }
        match text.parse::<Address>() {
            Ok(Address::Tcp(address)) => return Some(address),
            Ok(Address::Unix(_)) => self.add("--stats-listen", format!("'{text}' is not a TCP address")),
            Err(error) => self.add("--stats-listen", error),
        }
        None
    }

    fn timeout(&mut self, flag: &str, text: &str, default_ns: u64) -> u64 {
        if text.is_empty() {
            return default_ns;
        }
        match parse_duration_ns(text, DurationUnit::Seconds) {
            Ok(0) => self.add(flag, "0 would time out immediately; give a longer time"),
            Ok(ns) => return ns,
            Err(error) => self.add(flag, error),
        }
        default_ns
    }

    fn connections_max(&mut self, text: &str, threads: usize) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        match parse_count(text).map(usize::try_from) {
            Ok(Ok(max)) if max >= threads => return Some(max),
            Ok(_) => {
                let text = format!(
                    "{text} is less than one connection for each of {}",
                    format_plural(threads as u64, "thread")
                );
                self.add("--connections-max", text);
            }
            Err(error) => self.add("--connections-max", error),
        }
        None
    }

    fn head_bytes_max(&mut self, text: &str) -> usize {
        if text.is_empty() {
            return HEAD_BYTES_MAX;
        }
        match parse_size(text) {
            Ok(bytes) if HEAD_BYTES_RANGE.contains(&bytes) => return bytes as usize,
            Ok(_) => self.add("--head-bytes-max", format!("'{text}' is not from 256 to 1m")),
            Err(error) => self.add("--head-bytes-max", error),
        }
        HEAD_BYTES_MAX
    }

    fn http(&mut self, text: &str) -> HttpVersions {
        match text {
            "" | "auto" => return HttpVersions::Auto,
            "1.1" => return HttpVersions::Http1,
            "2" => return HttpVersions::Http2,
            _ => self.add("--http", format!("'{text}' is not 1.1, 2 or auto")),
        }
        HttpVersions::Auto
    }

    fn http2(&mut self, text: &OriginPlanText, head_bytes_max: usize) -> wire::h2::Config {
        let streams_max = self.in_range(
            "--h2-streams-max",
            &text.h2_streams_max,
            parse_count,
            H2_STREAMS_RANGE,
            H2_STREAMS_MAX,
        );
        let stream_window = self.in_range(
            "--h2-stream-window",
            &text.h2_stream_window,
            parse_size,
            H2_WINDOW_RANGE,
            H2_STREAM_WINDOW_BYTES,
        );
        let connection_window = self.in_range(
            "--h2-connection-window",
            &text.h2_connection_window,
            parse_size,
            H2_WINDOW_RANGE,
            H2_CONNECTION_WINDOW_BYTES,
        );
        let defaults = wire::h2::Config::default();
        wire::h2::Config {
            concurrent_streams_max: streams_max,
            stream_window_bytes_max: stream_window,
            connection_window_bytes: defaults.connection_window_bytes.min(connection_window),
            connection_window_bytes_max: connection_window,
            // Each field counts as 32 bytes more (RFC 9113 §6.5.2).
            head_bytes_max: head_bytes_max + 32 * defaults.headers_max,
            ..defaults
        }
    }

    /// Parses a number in a range that fits into 32 bits.
    fn in_range<E: fmt::Display>(
        &mut self,
        flag: &str,
        text: &str,
        parse: impl FnOnce(&str) -> Result<u64, E>,
        range: std::ops::RangeInclusive<u64>,
        default: u32,
    ) -> u32 {
        if text.is_empty() {
            return default;
        }
        match parse(text) {
            Ok(number) if range.contains(&number) => return number as u32,
            Ok(_) => self.add(flag, format!("'{text}' is not from {} to {}", range.start(), range.end())),
            Err(error) => self.add(flag, error),
        }
        default
    }
}

/// Returns whether an address has port 0, which is a new port each time and so may be given twice.
fn is_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flags_are_the_defaults() {
        let plan = OriginPlan::parse(&OriginPlanText::default()).unwrap();
        assert_eq!(plan.listen, [LISTEN_DEFAULT.parse().unwrap()]);
        assert_eq!(plan.threads, rt::cores::available_cpus().len());
        assert_eq!(plan.idle_timeout_ns, IDLE_TIMEOUT_NS);
        assert_eq!((plan.connections_max, plan.access_log), (None, None));
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let text = OriginPlanText {
            listen: vec!["nowhere".into(), ":80".into(), ":80".into()],
            threads: "0".into(),
            pin: "x,3-2,100000".into(),
            idle_timeout: "1d".into(),
            head_timeout: "0".into(),
            connections_max: "0".into(),
            head_bytes_max: "1".into(),
            ..OriginPlanText::default()
        };
        let problems = OriginPlan::parse(&text).unwrap_err();
        let locations: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
        let expected = [
            "--listen",
            "--listen",
            "--threads",
            "--pin",
            "--idle-timeout",
            "--head-timeout",
            "--connections-max",
            "--head-bytes-max",
        ];
        assert_eq!(locations, expected, "{problems:?}");
    }

    #[test]
    fn units_are_understood() {
        let cpu = rt::cores::available_cpus()[0];
        let text = OriginPlanText {
            listen: vec!["127.0.0.1:0".into(), "127.0.0.1:0".into()],
            threads: "1".into(),
            pin: cpu.to_string(),
            access_log: "-".into(),
            idle_timeout: "5".into(),
            drain_timeout: "250ms".into(),
            connections_max: "10k".into(),
            ..OriginPlanText::default()
        };
        let plan = OriginPlan::parse(&text).unwrap();
        assert_eq!((plan.listen.len(), plan.pin), (2, vec![cpu]));
        assert_eq!(plan.access_log, Some(LogTarget::Stdout));
        assert_eq!((plan.idle_timeout_ns, plan.drain_timeout_ns), (5_000_000_000, 250_000_000));
        assert_eq!(plan.connections_max, Some(10_000));
    }
}
