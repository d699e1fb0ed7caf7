//! Reasons for refusing a value of a config or of a flag. Each text repeats the value and says what to
//! write instead; the caller adds the position.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use record::problem::InvalidValue;
use rt::address::AddressParseError;
use wire::encode::EncodeError;

/// Reason for refusing a value. Its name says what was expected, or what is wrong with the value.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValueError {
    // Names, addresses and paths of this machine.
    #[error("'{text}' is not a name: use 1 to {bytes_max} letters, digits, '-', '_', '.', ':'")]
    Name { text: Box<str>, bytes_max: usize },
    #[error(transparent)]
    Address(#[from] AddressParseError),
    #[error("'{0}' has no port to connect to")]
    NoPort(Box<str>),
    #[error("'{0}' is a service of DNS and no address: write {{ srv = \"{0}\" }}")]
    Service(Box<str>),
    #[error("the path is empty (write /run/weir.sock)")]
    EmptySocketPath,
    #[error("'{0}' is not a path: remove unix:")]
    SocketPathWithScheme(Box<str>),
    #[error("'{0}' is a directory: write the path of a file")]
    SocketPathOfDirectory(Box<str>),
    #[error("the path of a unix socket has at most 107 bytes")]
    LongSocketPath,
    #[error("'{0}' is not a mode (write three octal digits, 660)")]
    FileMode(Box<str>),
    #[error("'{0}' is not a network (write 10.0.0.0/8, ::1 or 2001:db8::/32)")]
    Network(Box<str>),
    #[error("'{text}' has bits set after its prefix: write {first}/{prefix}")]
    NetworkBits { text: Box<str>, first: IpAddr, prefix: u8 },
    #[error("'{0}' is an IPv4-mapped IPv6 address: write it as IPv4")]
    MappedNetwork(Box<str>),
    #[error("'{0}' is not a log target (write stdout, file:/path, syslog:127.0.0.1:514 or syslog:/dev/log)")]
    LogTarget(Box<str>),
    #[error("the name of the namespace is empty")]
    EmptyNamespace,
    #[error("no network namespace {path}: {error} (`ip netns` lists and adds them)", path = path.display())]
    Namespace { path: PathBuf, error: io::Error },
    #[error("'{0}' is not an IP address (write 10.0.0.5 or 2001:db8::5, without a port)")]
    IpAddress(Box<str>),
    #[error("{0} is not the address of one interface: write the address to connect from")]
    SourceAddress(IpAddr),
    #[error("no interface has the address {0} (`ip address` lists and adds addresses)")]
    MissingAddress(IpAddr),
    #[error("cannot connect from {address}: {error}")]
    Source { address: IpAddr, error: io::Error },
    #[error("'{text}' is not in {file}: write a name from that file, or an id")]
    Account { text: Box<str>, file: Box<str> },
    #[error("'{0}' is neither an address nor a DNS name")]
    DnsName(Box<str>),
    #[error("'{0}' is not a nameserver (write 127.0.0.1:53)")]
    Nameserver(Box<str>),

    // Files.
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: {error}", path = path.display())]
    FileContent { path: PathBuf, error: Box<Self> },
    #[error("{path} is not a file", path = .0.display())]
    NotAFile(PathBuf),
    #[error("'{0}' is not the name of a file, in which '*' and '?' are wildcards")]
    FilePattern(Box<str>),
    #[error("'{0}' has a wildcard in the name of a directory: only files may have one")]
    DirectoryPattern(Box<str>),
    #[error("{path} is not text in UTF-8", path = .0.display())]
    NotText(PathBuf),
    #[error("{path} has more than {bytes_max} bytes", path = path.display())]
    LargeFile { path: PathBuf, bytes_max: usize },
    #[error("{path} has no file *.pem with a certificate and its key", path = .0.display())]
    NoPemFile(PathBuf),
    #[error("a key of {length} bytes: write {min} to {max} bytes (`openssl rand -hex 32` prints one)")]
    KeyLength { length: usize, min: usize, max: usize },

    // Parts of a message of HTTP.
    #[error("'{text}': {error}")]
    MessagePart { text: Box<str>, error: EncodeError },
    #[error("{text:?}: {error}")]
    FieldValue { text: Box<str>, error: EncodeError },
    #[error("hosts are compared without a port: write '{0}'")]
    HostWithPort(Box<str>),
    #[error("'*' matches every host: remove `host`")]
    AnyHost,
    #[error("'{0}' is not a host (write example.org, *.example.org or [::1])")]
    HostPattern(Box<str>),
    #[error("'{0}' is not a host (write example.org or example.org:8080)")]
    Authority(Box<str>),
    #[error("'{0}' is not a host")]
    Host(Box<str>),
    #[error("{}: no head of a response, which begins with HTTP/ and ends with an empty line: remove skip-head", .0.display())]
    NoHead(PathBuf),
    #[error("'{}' is not a file in a directory that exists", .0.display())]
    StateFile(PathBuf),
    #[error("'{0}' is not a path of a cookie: write visible ASCII characters without ';' and ','")]
    CookiePath(Box<str>),
    #[error("'{0}' is not a domain of a cookie (write example.org)")]
    CookieDomain(Box<str>),
    #[error("'{0}' is not a path: a path starts with '/'")]
    RelativePath(Box<str>),
    #[error("'{0}' has a query: write only the path, and use `query`")]
    PathWithQuery(Box<str>),
    #[error("'{text}' is not a path: {error}")]
    Path { text: Box<str>, error: EncodeError },
    #[error("'{text}' never matches: paths are compared in normal form; write '{normal_form}'")]
    PathForm { text: Box<str>, normal_form: Box<str> },
    #[error("'{text}' needs more than {kib_max} KiB compiled: simplify it")]
    LargeRegex { text: Box<str>, kib_max: usize },
    #[error("'{text}' is not a regular expression: {reason}")]
    Regex { text: Box<str>, reason: Box<str> },
    #[error("'{0}' belongs to the connection: only the proxy can set it")]
    ConnectionField(Box<str>),
    #[error("a request has exactly one '{0}': it can only be set")]
    AddedHost(Box<str>),
    #[error("'{text}' would remove '{kept}': write a longer prefix")]
    RemovedPrefix { text: Box<str>, kept: &'static str },
    #[error("{0:?} is not a location: write visible ASCII characters")]
    Location(Box<str>),
    #[error("'{0}' is not a part of the day (write 08:00-17:30, in UTC)")]
    DayTime(Box<str>),
    #[error("'{0}' is neither a time nor a percentile from p50 to p99.9 (write 50ms or p95)")]
    HedgeDelay(Box<str>),
    #[error("'{0}' is not a list of statuses (write 2xx, 200-399 or 200,204)")]
    Statuses(Box<str>),
    #[error("'{0}' is not a method")]
    Method(Box<str>),
    #[error("'*' is only valid for OPTIONS: add method = \"OPTIONS\"")]
    AsteriskWithoutOptions,
    #[error(
        "'{0}' is not a hash key: write source, path, header:NAME, cookie:NAME or a text with values, {{cookie.NAME}}"
    )]
    HashKey(Box<str>),

    // TLS.
    #[error("a protocol has 1 to 255 bytes")]
    ProtocolLength,
    #[error("'{0}' is an address, which clients do not send as a server name")]
    ServerNameIsAddress(Box<str>),
    #[error("'{0}' needs challenge = 'dns-01': the other challenges prove no wildcard names")]
    WildcardDomain(Box<str>),
    #[error("'{0}' is not a URL of a collector: write http://host:4318, or https://host/path")]
    CollectorUrl(Box<str>),
    #[error("{path}: write the absolute path of the program", path = .0.display())]
    RelativeProgram(PathBuf),
    #[error("{path} is no program: make it executable (chmod u+x)", path = .0.display())]
    NotAProgram(PathBuf),
    #[error("'{0}' is an address: write a DNS name")]
    DomainIsAddress(Box<str>),
    #[error("'{0}' is neither includeSubDomains nor preload")]
    HstsDirective(Box<str>),
    #[error("'{0}' is not a time (write 1y, 180d or 0s)")]
    MaxAge(Box<str>),
    #[error("'{0}' is longer than ten years")]
    LongMaxAge(Box<str>),

    // Kinds and ranges.
    #[error("'{key}' is {found}: {hint}")]
    Kind { key: &'static str, found: String, hint: String },
    #[error("'{key}' is not a text: {hint}")]
    Secret { key: &'static str, hint: String },
    #[error("'{key}' is not from {min} to {max}")]
    Range { key: &'static str, min: u64, max: u64 },
    #[error("'{key}' is not from {min} to {max}")]
    Ratio { key: &'static str, min: f64, max: f64 },
    #[error("'{0}' is not in the range above 0 to 1G per second")]
    Rate(&'static str),
    #[error("'{text}' is not one of {choices}{hint}")]
    Choice { text: Box<str>, choices: String, hint: String },
    #[error("'{0}' has no unit: write \"{0}s\" or \"{0}ms\"")]
    NoUnit(Box<str>),
    #[error("{0} has no unit: write \"{0}s\" or \"{0}ms\"")]
    NumberWithoutUnit(Box<str>),
    #[error("the time must be more than 0")]
    ZeroTime,
    #[error("'{0}' is longer than a year (8760h)")]
    LongTime(Box<str>),
    #[error(transparent)]
    Number(#[from] InvalidValue),
    #[error("'{text}' is not a number of threads from 1 to {max}")]
    Threads { text: Box<str>, max: usize },
    #[error("{text} connections are too few for {threads}: each needs at least one")]
    FewConnections { text: Box<str>, threads: String },
}
