//! Table of all config keys. Each row has the key's table, kind, default, one valid and one invalid
//! example, and its description. The reader, the JSON schema and the reference are generated from
//! it.
//!
//! In a table's path, `*` stands for a name and `[]` for an entry of a list. Examples and defaults
//! are TOML.

use DefaultValue::{Literal, Required, Unset};
use ValueKind::{
    Bool, Choice, Count, Entries, Fields, Fraction, Integer, Matchers, Named, Ratio, Secret, Size, Status,
    StatusOrTrue, Table, TableOrBool, Text, TextOrFalse, Texts, TextsOrNone, Time,
};

use crate::plan::{Balance, MatchKind};

/// Kind of value that a key accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ValueKind {
    Bool,
    /// A number without unit, from minimum to maximum.
    Integer(u64, u64),
    /// A number, or a text with a decimal multiplier, from minimum to maximum.
    Count(u64, u64),
    /// A number of bytes, or a text with a binary multiplier, from minimum to maximum.
    Size(u64, u64),
    /// A text with a unit of time, more than 0 and at most [`super::value::TIME_MAX_NS`].
    Time,
    /// A fraction from 0 to 1, or a text with `%`.
    Fraction,
    /// A number, from minimum to maximum.
    Ratio(f64, f64),
    /// A text that no message repeats.
    Secret,
    /// A number of bytes per second, or a text with a binary multiplier and optionally `iB` or `B`, and `/s`, from 1,024.
    ByteRate,
    /// A rate, more than 0: a number per second, or a text with a decimal multiplier and `/s`, `/m` or `/h`.
    Rate,
    Choice(&'static [&'static str]),
    /// One of a few words, or a text with values; the string describes it.
    ChoiceOrText(&'static [&'static str], &'static str),
    /// A status code, from minimum to maximum.
    Status(u64, u64),
    True,
    /// `true`, or a status code, from minimum to maximum.
    StatusOrTrue(u64, u64),
    /// A text; the string describes its form.
    Text(&'static str),
    /// A text whose form the string describes, or `false`.
    TextOrFalse(&'static str),
    /// One text, or a list of at least one. The string describes their form.
    Texts(&'static str),
    /// One text, or a list that may be empty. The string describes their form.
    TextsOrNone(&'static str),
    Table(&'static str),
    /// A table with this path, `true` for the defaults, or `false`.
    TableOrBool(&'static str),
    /// A list of tables with this path. A plain text stands for a table with only the named key;
    /// `None` if entries must be tables.
    Entries(&'static str, Option<&'static str>),
    /// A table with this path, or a list of at least one.
    TableOrTables(&'static str),
    Named(&'static str),
    Fields,
    /// A table of names and weights.
    Weights,
    /// A table of names and matchers: a text, `true`, `false` or `{ regex = "…" }`.
    Matchers,
}

impl ValueKind {
    /// Returns whether a number or a boolean is a value of this kind, but not the same in quotes.
    pub(super) fn takes_number_or_bool(self) -> bool {
        matches!(
            self,
            Bool | Integer(..)
                | Ratio(..)
                | Status(..)
                | Self::True
                | StatusOrTrue(..)
                | TextOrFalse(_)
                | TableOrBool(_)
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultValue {
    /// No default: the key is required.
    Required,
    Literal(&'static str),
    /// No value; the text describes what that means.
    Unset(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Directive {
    pub(super) table: &'static str,
    pub(super) key: &'static str,
    pub(super) kind: ValueKind,
    pub(super) default: DefaultValue,
    pub(super) valid_example: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of the row reads it"))]
    pub(super) invalid_example: &'static str,
    pub(super) doc: &'static str,
}

pub(super) fn find_directive(table: &str, key: &str) -> Option<&'static Directive> {
    directives_of_table(table).find(|row| row.key == key)
}

pub(super) fn directives_of_table(table: &str) -> impl Iterator<Item = &'static Directive> {
    DIRECTIVES.iter().filter(move |row| row.table == table)
}

macro_rules! directives {
    ($($table:literal { $($key:literal, $kind:expr, $default:expr, $valid:literal, $invalid:literal, $doc:literal;)* })*) => {
        /// All config keys.
        pub(super) const DIRECTIVES: &[Directive] = &[$($(Directive {
            table: $table,
            key: $key,
            kind: $kind,
            default: $default,
            valid_example: $valid,
            invalid_example: $invalid,
            doc: $doc,
        },)*)*];
    };
}

const COUNT_MAX: u64 = 100_000_000;
const SIZE_MAX: u64 = 1 << 50;

directives! {
    "" {
        "include", Texts("a file, or a pattern"), Unset("none"), "'/tmp/no-such-*.toml'", "'/no/such/file.toml'", "Further files with keys and tables of this table, by paths relative to this file; the names of files may have `*` and `?`. Their routes and logs come behind those of the including file, in the order of the patterns and of the names. They may include others, up to 8 levels deep, 1,000 files and 64 MiB. A reload reads them again.";
        "threads", Integer(1, 1024), Unset("one per CPU"), "2", "0", "Number of threads, each with an event loop of its own.";
        "pin", Text("a list of CPUs"), Unset("not pinned"), "'0'", "'3-1'", "CPUs to pin the threads to: `0,2-3`, or `all`.";
        "connections-max", Count(1, COUNT_MAX), Unset("as many as the descriptor limit allows"), "'20k'", "'many'", "Maximum number of open client connections on all listeners.";
        "drain-timeout", Time, Literal("'30s'"), "'5s'", "5", "Maximum time that requests in flight may take after SIGTERM.";
        "admin", Text("an address"), Unset("none"), "'127.0.0.1:8404'", "'8404'", "Address of the status page, `/status.json`, `/metrics` and `/health`.";
        "admin-hosts", Texts("a host name"), Unset("IP addresses and localhost only"), "'proxy.example.org'", "'a/b'", "Host names of `admin`. Requests for other names are rejected (421): a web page of another site could have sent them.";
        "admin-token", Secret, Unset("none"), "'a token of sixteen or more'", "'short'", "Token that requests to `admin` must contain, at least 16 bytes: as `Authorization: Bearer TOKEN`, or as the password of any user. `/health` needs none.";
        "admin-token-file", Text("a file"), Unset("none"), "'/etc/weir/site.pem'", "'/no/such/file'", "File with `admin-token`, such as `${CREDENTIALS_DIRECTORY}/admin-token` with `LoadCredential=` of systemd; space around it does not count. A reload reads it again.";
        "control", Text("a path"), Unset("none"), "'/run/weir.sock'", "''", "Path of the unix socket for `weir ctl`; only root and the proxy's own user can connect (mode 0600). A new process gets the listening sockets there (`weir proxy --upgrade-from`).";
        "state-file", Text("a file"), Unset("they end with the process"), "'/tmp/weir.state'", "'/no/such/directory/state'", "File that keeps the changes of operators over a restart and an upgrade: states, weights and `maxconn` of servers and pools, added and removed servers, percentages, weights of splits, the page of `maintenance on --body`, as commands of `weir ctl`. It is replaced after each command, and applied before the first request; a line that does not fit to the config is reported and left out. Others than root and the user of the proxy must not be able to write it.";
        "password-threads", Integer(1, 64), Literal("2"), "1", "0", "Number of threads that check passwords of `auth.basic`, at a lower priority than those that serve connections; a change needs a restart.";
        "password-queue", Count(1, 100_000), Literal("64"), "16", "0", "Maximum number of passwords that wait for their check, each at most 10 s; further requests get 503 with `Retry-After`. A change needs a restart.";
        "privileges", Table("privileges"), Unset("the defaults below"), "{ landlock = false }", "true", "User, group and privileges of the process after its sockets are bound.";
        "log", Entries("log[]", None), Unset("no log"), "[{ to = 'stdout' }]", "'stdout'", "Request logs, any number, written `[[log]]`.";
        "tracing", Table("tracing"), Unset("no traces; their fields pass unchanged"), "{ collector = 'http://127.0.0.1:4318' }", "true", "Traces of requests for a collector of OpenTelemetry (see \"Traces\" below).";
        "error-page", Entries("error-page[]", None), Unset("one line of text"), "[{ status = '5xx', html = '/etc/weir/networks.txt' }]", "[{ html = '/no/such/file' }]", "Contents of error responses, written `[[error-page]]` (see \"Error pages\" below).";
        "listener", Named("listener.*"), Required, "{ l = { bind = '127.0.0.1:0' } }", "[1]", "Addresses for clients, written `[listener.NAME]`; at least one.";
        "route", Entries("route[]", None), Unset("only the `pool` of each listener"), "[{ deny = true }]", "{ pool = 'app' }", "Rules for requests, written `[[route]]`, in order; the first match decides.";
        "map", Named("map.*"), Unset("no map"), "{ m = { key = 'host', entries = { 'a.example' = 'gold' } } }", "'m'", "Maps and lists: keys with values, from files or from here, written `[map.NAME]` (see \"Maps and lists\" below).";
        "cache", Named("cache.*"), Unset("no cache"), "{ c = { memory = '256m' } }", "'c'", "Caches of responses for `cache` of routes, written `[cache.NAME]` (see \"Caching\" below).";
        "pool", Named("pool.*"), Unset("no pool"), "{ app = { servers = ['127.0.0.1:9001'] } }", "'app'", "Groups of servers, written `[pool.NAME]`.";
    }
    "error-page[]" {
        "status", Text("statuses"), Required, "'404,5xx'", "'200'", "Statuses of the responses, from 400 to 599. The first page for a status decides.";
        "replace", Choice(&["own", "all"]), Literal("'own'"), "'all'", "'server'", "`own`: only the proxy's own responses. `all`: the content of servers' responses, too; of their fields, the status, `WWW-Authenticate`, `Proxy-Authenticate`, `Allow`, `Retry-After` and `Set-Cookie` stay.";
        "html", Text("a file"), Unset("none"), "'/etc/weir/networks.txt'", "'/no/such/file'", "File with the content in HTML, up to 64 KiB. The client's `Accept` chooses among the forms that there are; HTML before JSON before text if it accepts them equally, or none. A reload reads the files again.";
        "json", Text("a file"), Unset("none"), "'/etc/weir/networks.txt'", "'/no/such/file'", "File with the content in JSON.";
        "text", Text("a file"), Unset("none"), "'/etc/weir/networks.txt'", "'/no/such/file'", "File with the content in plain text.";
        "values", Bool, Literal("false"), "true", "'yes'", "The files have values (see \"Values\" below), escaped by their form. Values of the request are missing without a route.";
        "skip-head", Bool, Literal("false"), "false", "'yes'", "The files begin with the head of a response, as those of `errorfile` of HAProxy: it is skipped, and weir sends its own.";
    }
    "map.*" {
        "key", Text("a value, or a text with values"), Required, "'header.x-key'", "'hosts'", "Text of a request that the map is searched for. If it is `host`, `path`, or one of `header.NAME`, `cookie.NAME` and `query.NAME` alone, it is compared as the conditions on these: a host without case and port, a path in normal form, and each of several fields, cookies or parameters. It cannot have values of maps.";
        "file", Text("a file"), Unset("`entries`"), "'/etc/weir/hosts.map'", "'/no/such/file'", "File with one entry on each line: the key, white space, and the value up to the end of the line; a list has no values. A line that begins with `#` is a comment. Up to 1,000,000 entries, 64 MiB, and 4,096 bytes for a key and for a value. Faults are reported with file, line and column.";
        "entries", Fields, Unset("`file`"), "{ 'a.example' = 'gold' }", "{ a = 1 }", "The entries, instead of a file.";
        "default", Text("a text"), Unset("no value"), "'none'", "1", "Value of requests without an entry that matches, for `{map.NAME}` and for conditions on the value. `map = { NAME = true }` is still only true with an entry.";
        "match", Choice(MatchKind::CODES), Literal("'exact'"), "'domain'", "'glob'", "Rule by which a key matches; of several, the longest counts. `exact`: the same text. `domain`: the host, and all hosts below it; `*.example.org` is only those below. `prefix` and `suffix`: texts that begin or end with it. `path-prefix`: the path, and all paths below it. `network`: addresses in it. `regex`: texts of which a part matches the regular expression, compiled to at most 256 KiB; up to 256 expressions, of which the first one in the order of the file, or of `entries`, counts. A request without the key is compared as an empty text then. In a file, a space of an expression is `\\x20`.";
        "ignore-case", Bool, Literal("false"), "true", "'yes'", "Compares ASCII letters without case. Always so for `domain`, and for the keys `host` and `tls.sni`.";
    }
    "cache.*" {
        "memory", Size(1 << 20, SIZE_MAX), Literal("'64m'"), "'1g'", "'1k'", "Maximum memory of its responses, with their heads and what each costs beside its content; all threads share it.";
        "object-max", Size(1024, 1 << 30), Literal("'1m'"), "'16m'", "'2g'", "Maximum size of the content of a response that is stored; a longer one is forwarded. At most a quarter of `memory`.";
        "waiters-max", Count(0, 1_000_000), Literal("4096"), "100", "-1", "Maximum number of requests that wait for one response (`coalesce` of a route); further ones are forwarded.";
        "fills-max", Count(1, 100_000), Literal("1024"), "100", "0", "Maximum number of responses that arrive and may be stored, at a time; further ones are not stored.";
        "disk", Table("cache.*.disk"), Unset("only memory"), "{ directory = '/etc/weir/certs' }", "'/etc/weir/certs'", "Directory with further responses, which outlive the process.";
    }
    "cache.*.disk" {
        "directory", Text("a directory"), Required, "'/etc/weir/certs'", "'/no/such/directory'", "Directory of the files, one for each response. It must exist, belong to `user`, and not be writable by others. Files of other programs do not belong there.";
        "size", Size(1 << 20, SIZE_MAX), Literal("'1g'"), "'10g'", "'1k'", "Maximum size of all files. The ones that were not used for the longest time are removed first.";
        "files-max", Count(1, 100_000_000), Literal("250000"), "'1m'", "0", "Maximum number of files. Each needs some 400 bytes of memory, and the length of its key.";
        "threads", Integer(1, 64), Literal("2"), "4", "0", "Number of threads that read and write the files; no thread that serves connections does.";
    }
    "privileges" {
        "user", Text("a user"), Unset("not changed"), "'root'", "'no such user'", "User to change to, by name or id.";
        "group", Text("a group"), Unset("the user's primary group"), "'root'", "'no such group'", "Group to change to, by name or id.";
        "no-new-privileges", Bool, Literal("true"), "false", "'yes'", "Prevents the process from gaining privileges (prctl(2), `PR_SET_NO_NEW_PRIVS`).";
        "landlock", Bool, Literal("true"), "false", "1", "Restricts file access with Landlock, if the kernel supports it.";
    }
    "log[]" {
        "to", Text("a log target"), Required, "'file:/tmp/weir.log'", "'/tmp/weir.log'", "Target: `stdout`, `file:/path`, `syslog:127.0.0.1:514` (UDP) or `syslog:/dev/log`.";
        "format", ValueKind::ChoiceOrText(&["json", "combined", "haproxy"], "a text with values"), Literal("'json'"), "'{source} {method} {target} {status} {duration.total.ms}'", "'{statu}'", "Format of a line: a name, or a text with values (see \"Values\" below), up to 4 KiB and 64 values. A missing value is `-`.";
        "escape", Choice(&["text", "json"]), Literal("'text'"), "'json'", "'xml'", "Escaping of the values of such a text. `text`: quotes, backslashes and all bytes but printable ASCII as `\\xNN`. `json`: as parts of strings in JSON, and a missing value is nothing.";
        "sample", Fraction, Literal("1.0"), "'10%'", "1.5", "Fraction of the requests to log, chosen at random. Errors are always logged.";
        "only-errors", Bool, Literal("false"), "true", "'no'", "Logs only requests that failed.";
        "rotate-size", Size(1 << 10, SIZE_MAX), Unset("not rotated: rename the file and send SIGUSR1"), "'100m'", "'1'", "Size at which a file is renamed to its name with `.1`, `.1` to `.2` and so on, behind at most 32 KiB of lines. The user of the process needs write permission in the directory; a file that cannot be renamed grows, which is counted and printed.";
        "rotate-files", Count(1, 1_000), Literal("7"), "30", "0", "With `rotate-size`: number of renamed files that are kept; the oldest is replaced.";
    }
    "tracing" {
        "collector", Text("a URL"), Required, "'http://127.0.0.1:4318'", "'127.0.0.1:4318'", "Receiver of OTLP/HTTP: `http` or `https`. Without a path, it is `/v1/traces`.";
        "ca", Text("a file"), Unset("the authorities that the host trusts"), "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with the authorities of a collector with `https`.";
        "headers", Fields, Unset("none"), "{ x-api-key = '${HOME}' }", "{ a = 1 }", "Fields of the requests to the collector, such as a key.";
        "timeout", Time, Literal("'10s'"), "'2s'", "2", "Maximum time of a request to the collector. It is sent up to 4 times if the collector cannot be reached, or answers 429, 502, 503 or 504.";
        "service-name", Text("a name"), Literal("'weir'"), "'edge'", "1", "Attribute `service.name` of the spans.";
        "attributes", Fields, Unset("none"), "{ 'service.namespace' = 'shop' }", "{ a = 1 }", "Further attributes of the resource.";
        "context", Choice(&["trusted", "all", "new"]), Literal("'trusted'"), "'all'", "'none'", "Callers whose `traceparent` is continued. `trusted`: those in `trusted` of the listener, with their decision to record. `all`: everybody; `sample` decides about traces of peers that are not trusted. `new`: nobody. A request that continues no trace begins one, and `tracestate` is removed.";
        "sample", Fraction, Literal("0.01"), "'10%'", "2", "Fraction of the traces that begin here and are recorded: by the id, as other samplers of ratios do.";
        "slow", Time, Unset("no such time"), "'1s'", "1", "Requests that took as long are recorded, whatever `sample` has decided; servers do not know that.";
        "failed", Bool, Literal("true"), "false", "'no'", "Requests with a status from 500, or with an end that is not regular, are recorded, whatever `sample` has decided.";
        "requests-rate", ValueKind::Rate, Literal("'100/s'"), "'1k/s'", "0", "Maximum rate of requests that are recorded, on all threads.";
    }
    "listener.*" {
        "bind", Texts("an address"), Required, "['127.0.0.1:0', 'unix:/tmp/weir.sock']", "'127.0.0.1:99999'", "Addresses to listen on: `127.0.0.1:80`, `[::1]:80`, `:80` or `unix:/path`.";
        "unix-mode", Text("a mode"), Unset("0777 minus the umask"), "'0660'", "'rw'", "Mode of the unix sockets, octal. Clients need write permission to connect.";
        "unix-user", Text("a user"), Unset("the user that starts weir"), "'root'", "'no such user'", "Owner of the unix sockets, by name or id. Another user than that of the process needs root.";
        "unix-group", Text("a group"), Unset("the group that starts weir"), "'root'", "'no such group'", "Group of the unix sockets, by name or id.";
        "mode", Choice(&["http", "tcp"]), Literal("'http'"), "'tcp'", "'https'", "`http` routes each request; `tcp` forwards the bytes of a connection to its pool.";
        "pool", Text("a pool's name"), Unset("with `http`, 404 when no route matches"), "'app'", "'ap'", "Pool for all connections (`tcp`, required), or for requests that match no route (`http`).";
        "tls", Table("listener.*.tls"), Unset("plain connections"), "{ self-signed = true }", "true", "TLS of its connections (see \"TLS\" below).";
        "http2", TableOrBool("listener.*.http2"), Unset("`true`"), "{ concurrent-streams = 50 }", "'h2'", "HTTP/2 beside HTTP/1.1: negotiated in the TLS handshake (ALPN), or with prior knowledge on plain connections. `false`: only HTTP/1.1. `Upgrade: h2c` is ignored.";
        "sni", Entries("listener.*.sni[]", None), Unset("all connections to `pool`"), "[{ server-name = '*.example.org', pool = 'app' }]", "'app'", "With `tcp`: pools by the names in the client's TLS ClientHello, which is forwarded unchanged, written `[[listener.NAME.sni]]`, in order; the first match decides. Other connections have `pool`; without it, they are rejected.";
        "redirect-https", StatusOrTrue(301, 308), Unset("no redirect"), "true", "400", "Redirects every request to the same host, path and query with `https` and its port 443; `true`: 308, or 301, 302, 303, 307, 308. Challenges of ACME (`/.well-known/acme-challenge/`) are routed as usual.";
        "namespace", Text("a network namespace"), Unset("that of the process"), "'/proc/self/ns/net'", "'no-such-namespace'", "Network namespace to listen in: a name of `ip netns`, or a path.";
        "proxy-protocol", Bool, Literal("false"), "false", "'v2'", "Expects a PROXY protocol header at the start of each connection; peers that are not trusted are rejected.";
        "trusted", TextsOrNone("a network"), Unset("none"), "['10.0.0.0/8', '::1']", "'10.0.0.1/8'", "Peers whose forwarding fields, request ids and PROXY headers are accepted; `unix` for those on a unix socket. From all others, `Forwarded`, `X-Forwarded` and `X-Forwarded-*`, `X-Real-IP`, `X-Client-IP`, `True-Client-IP`, `CF-Connecting-IP`, `X-Cluster-Client-IP`, `X-Original-URL` and `X-Rewrite-URL` are ignored and not forwarded.";
        "connections-max", Count(1, COUNT_MAX), Unset("only the limit of the process"), "10000", "0", "Maximum number of open connections; each thread may have at least one.";
        "handshakes-max", Count(1, COUNT_MAX), Literal("5000"), "1000", "0", "With `tls`: maximum number of connections whose handshake is not complete; each thread may have at least one. Further connections are reset (`handshakes_full`).";
        "requests-max", Count(1, COUNT_MAX), Unset("no limit"), "1000", "-1", "Maximum number of requests on one connection; the last response closes it.";
        "body-max", Size(0, SIZE_MAX), Unset("no limit"), "'10m'", "'10x'", "Maximum size of a request body in bytes; larger is 413.";
        "connect", Bool, Literal("false"), "true", "'on'", "Forwards CONNECT requests; otherwise they are 405.";
        "backlog", Integer(1, 65_535), Literal("1024"), "256", "0", "Maximum number of connections per thread that the kernel queues until they are accepted (listen(2)); a change needs a restart.";
        "connections-rate", ValueKind::Rate, Unset("no limit"), "'500/s'", "0", "Maximum rate of new connections, on all threads.";
        "connections-burst", Count(1, COUNT_MAX), Unset("one second of the rate, at least 1"), "50", "0", "Maximum number of new connections at once.";
        "on-limit", Choice(&["reject", "reset", "wait"]), Unset("`reject` over a rate or a limit of a source, `wait` over `connections-max`"), "'reject'", "'drop'", "Action on a connection over a limit. `reject`: its first request gets 503 (429 over a limit of its source) and the connection is closed; in mode tcp it is reset. `reset`: it is reset at once. `wait`: it waits unread, but never over a limit of its source.";
        "per-source", Table("listener.*.per-source"), Unset("no limits"), "{ connections = 100 }", "100", "Limits for each client network.";
        "deadline-headers", TextsOrNone("a field name"), Literal("['x-request-timeout', 'grpc-timeout']"), "['x-deadline']", "'x deadline'", "Fields with the client's timeout, accepted from trusted peers: seconds, or a time with a unit (`500ms`); `grpc-timeout` in its own format. A request that cannot be answered in time is 504 at once.";
        "path", Choice(&["normalise", "strict", "raw"]), Literal("'normalise'"), "'strict'", "'nginx'", "Form in which request paths are routed and forwarded (see \"Paths\" below). `normalise`: the normal form, and 400 for a path that servers interpret in different ways. An encoded slash (`%2F`) is forwarded if the path has the same route with the slash decoded, and gets 400 otherwise. `strict`: 400 also for a path that is not in normal form, or has empty segments. `raw`: forwarded unchanged, and routed by its normal form; a server may interpret such a path differently from a `deny` route.";
        "underscores", Choice(&["drop", "reject", "pass"]), Literal("'drop'"), "'reject'", "true", "Action on fields with an underscore in their names, which some servers treat as a hyphen: `drop` the field, `reject` the request with 400, or `pass` the field on. Fields of trusted peers are always forwarded.";
        "half-close", Bool, Literal("false"), "true", "0", "Sends the response to a client that closed its sending side after the request. Such a client is then gone only once its connection is reset, or a write to it fails. Otherwise a client that closes its sending side has left: its request is aborted at any point, also during the response (the connection to the server is closed). A stream of HTTP/2 with a tunnel (CONNECT, WebSocket) may be half-closed in any case.";
        "buffer-request", Size(0, 1 << 20), Literal("'8k'"), "'16k'", "'2m'", "Bytes of a body to receive before the request takes a connection slot of a limited server (`maxconn`, `adaptive`), so that slow clients hold none; 0: the slot is taken after the head. A body of unknown length is waited for up to 1 s. Not for requests with `Expect: 100-continue`, nor for gRPC over HTTP/2.";
        "limit-rate", ValueKind::ByteRate, Unset("not limited"), "'1MiB/s'", "'1x/s'", "Maximum rate of the content of each response of its routes in bytes per second, from 1 KiB/s; in mode tcp, and after an upgrade, of the bytes for each client (see \"Limits of bytes\" below).";
        "limit-rate-after", Size(0, SIZE_MAX), Literal("0"), "'10m'", "'x'", "Bytes of each response before `limit-rate` counts.";
        "limit-rate-total", ValueKind::ByteRate, Unset("not limited"), "'100m/s'", "0", "Maximum rate of all these responses together, on all cores.";
        "limit-rate-upload", ValueKind::ByteRate, Unset("not limited"), "'512k/s'", "'512'", "Maximum rate of each request content; in mode tcp, and after an upgrade, of the bytes of each client.";
        "compression", TableOrBool("listener.*.compression"), Unset("`false`"), "{ codings = ['br', 'gzip'] }", "'gzip'", "Compresses the responses of servers that have no content coding, for clients that accept one (see \"Compression\" below). `true`: with the defaults below.";
        "auth", TableOrBool("listener.*.auth"), Unset("`false`"), "{ basic = { users-file = '/etc/weir/users' } }", "{ basic = {} }", "Authentication of its requests (see \"Authentication\" below).";
        "cors", TableOrBool("listener.*.cors"), Unset("`false`"), "{ origins = 'https://app.example.org' }", "{ origins = 'app' }", "Origins whose pages may read responses: answers preflights, and adds the fields of CORS (see \"Authentication\" below).";
        "limits", Table("listener.*.limits"), Unset("the defaults below"), "{ head = '16k' }", "'16k'", "Limits of a request head.";
        "forwarding", Table("listener.*.forwarding"), Unset("the defaults below"), "{ forwarded = true }", "false", "Fields that inform servers about the origin of a request.";
        "timeouts", Table("listener.*.timeouts"), Unset("the defaults below"), "{ head = '5s' }", "'5s'", "Timeouts for clients.";
    }
    "listener.*.tls" {
        "certificates", Entries("listener.*.tls.certificates[]", Some("certificate")), Unset("`directory`"), "['/etc/weir/site.pem', { certificate = '/etc/weir/site.pem', key = '/etc/weir/site.pem' }]", "['/no/such/file']", "PEM files with a certificate, its chain and its key, or tables. The client's server name selects a certificate by its names (subjectAltName; the common name of one without any), with wildcards; of several for the same name, the type of the key (ECDSA, RSA). The first one is for clients that send no name, or an unknown one.";
        "directory", Text("a directory"), Unset("none"), "'/etc/weir/certs'", "'/no/such/directory'", "Directory whose files `*.pem` each have a certificate, its chain and its key; sorted by name, behind `certificates`.";
        "self-signed", Bool, Literal("false"), "true", "'yes'", "Adds a certificate for `localhost`, made at each start and each reload: for tests.";
        "acme", Table("listener.*.tls.acme"), Unset("none"), "{ directory = 'https://localhost/dir', domains = 'a.example.org', storage = '/tmp', agree-to-terms = true }", "true", "Certificate that is ordered and renewed automatically (ACME).";
        "client-ca", Text("a file"), Unset("clients need no certificate"), "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with the authorities of clients' certificates.";
        "client-certificate", Choice(&["required", "optional"]), Literal("'required'"), "'optional'", "'none'", "With `client-ca`: `required` fails the handshake of a client without a certificate. A certificate of another authority always fails it.";
        "client-crl", Texts("a file"), Unset("revocation is not checked"), "['/etc/weir/clients.crl']", "'/no/such/file'", "Files with certificate revocation lists (CRL) in PEM or DER, 8 MiB together: clients whose certificate is on the list of its issuer are rejected. A change of a file is read within 2 s; see \"Revoked certificates\" below.";
        "client-crl-depth", Choice(&["chain", "leaf"]), Literal("'chain'"), "'leaf'", "'all'", "With `client-crl`, the certificates that are checked: `chain`, that of the client and those of the intermediate authorities; `leaf`, that of the client alone.";
        "client-crl-unknown", Choice(&["reject", "accept"]), Literal("'reject'"), "'accept'", "'ignore'", "With `client-crl`, the action on a certificate whose issuer has no list.";
        "client-crl-expired", Choice(&["reject", "accept"]), Literal("'reject'"), "'accept'", "'ignore'", "With `client-crl`, the action on a certificate whose issuer's list has expired (nextUpdate).";
        "client-certificate-header", Text("a field name"), Unset("none"), "'x-ssl-client-s-dn'", "'host'", "Field of requests with the subject of the verified certificate (RFC 4514: `CN=a,O=b`, bytes beyond ASCII escaped); absent without a certificate. It is removed from the requests of clients.";
        "min-version", Choice(&["1.2", "1.3"]), Literal("'1.2'"), "'1.3'", "1.2", "Oldest version of TLS.";
        "cipher-suites", Texts("a cipher suite"), Unset("all"), "['TLS_AES_128_GCM_SHA256', 'ECDHE-RSA-AES128-GCM-SHA256']", "'AES128-SHA'", "Cipher suites, the preferred one first, by their names at IANA or in OpenSSL; without suites of a version of TLS, that version is off.";
        "groups", Texts("a group"), Unset("`X25519`, `secp256r1`, `secp384r1`, `X25519MLKEM768`"), "['X25519', 'P-256']", "'ffdhe2048'", "Groups of the key exchange, the preferred one first, by their names at IANA or in OpenSSL (the client's order decides).";
        "ticket-key-file", Texts("a file"), Unset("random keys, replaced every 6 hours"), "'/etc/weir/ticket.key'", "'/no/such/file'", "Files with the keys of session tickets, which all hosts of a service share: of 48 or 80 bytes, the first file encrypts (nginx), or with keys in base64, one for each line, the last but one encrypts (HAProxy). They are read again at each reload.";
        "key-log", Text("a file"), Unset("none"), "'/tmp/weir-keys.log'", "'/no/such/directory/keys.log'", "File for the secrets of all sessions (`SSLKEYLOGFILE` format, mode 0600), to decrypt captured connections: only for the search for faults.";
        "hsts", Text("a time, as in `1y; includeSubDomains; preload`"), Unset("none"), "'1y; includeSubDomains; preload'", "'forever'", "`Strict-Transport-Security` (RFC 6797) in all responses, also those of the proxy: its max-age (`s`, `m`, `h`, `d`, `w`, `y`; `0s` ends it), `includeSubDomains` and `preload`. The field of a server is replaced.";
        "cipher-preference", Choice(&["client", "server"]), Unset("`server` with `cipher-suites`, otherwise `client`"), "'server'", "'own'", "The order that decides on the cipher suite. A client without fast AES prefers ChaCha20, and `client` respects that.";
    }
    "listener.*.http2" {
        "concurrent-streams", Integer(1, 10_000), Literal("100"), "250", "0", "Maximum number of streams that a client may have open at a time; further ones are refused (`REFUSED_STREAM`).";
        "stream-window", Size(1, (1 << 31) - 1), Literal("'64k'"), "'256k'", "0", "Initial receive window of a stream in bytes: the part of a request's body that a client may send before a server takes it.";
        "stream-window-max", Size(1, (1 << 31) - 1), Literal("'1m'"), "'4m'", "0", "Maximum receive window of a stream: the window grows up to it while the client fills it and the server keeps up.";
        "connection-window", Size(65_535, (1 << 31) - 1), Literal("'1m'"), "'2m'", "1000", "Initial receive window of all streams of a connection together.";
        "connection-window-max", Size(65_535, (1 << 31) - 1), Literal("'4m'"), "'16m'", "1000", "Maximum receive window of a connection, and so the most memory that its requests can hold.";
        "header-table", Size(0, 1 << 16), Literal("'4k'"), "0", "'65k'", "Maximum size of the table with which a client may compress its fields (HPACK).";
        "abuse", Integer(10, 1_000_000), Literal("200"), "500", "0", "Maximum balance of frames that cost work and bring nothing (resets of streams, PING, SETTINGS, empty DATA); each useful one reduces it. Beyond it the connection is closed (`ENHANCE_YOUR_CALM`).";
        "ping-interval", Time, Literal("'30s'"), "'5m'", "30", "Time without a received byte after which a connection is checked with a PING frame, with or without streams. A connection without streams is closed after `timeouts.keep-alive` in any case.";
        "ping-timeout", Time, Literal("'10s'"), "'1s'", "1", "Maximum time from a PING frame to the next received byte; then the connection is reset.";
    }
    "listener.*.tls.acme" {
        "directory", Text("a URL"), Required, "'https://localhost/dir'", "'http://localhost/dir'", "URL of the directory of the ACME server.";
        "ca", Text("a file"), Unset("the authorities that this host trusts"), "'/etc/weir/site.pem'", "5", "PEM file with the authorities of the ACME server's own certificate.";
        "contact", Texts("a URL"), Unset("none"), "'mailto:admin@example.org'", "1", "URLs to reach the owner of the account.";
        "domains", Texts("a DNS name"), Required, "['a.example.org', 'b.example.org']", "'*.example.org'", "Names in the certificate; the first one names its file. `*.example.org` needs the challenge `dns-01`.";
        "storage", Text("a directory"), Required, "'/tmp'", "'/no/such/directory'", "Directory for the account's key and the certificate (mode 0600).";
        "challenge", Choice(&["http-01", "tls-alpn-01", "dns-01"]), Literal("'http-01'"), "'tls-alpn-01'", "'dns-02'", "Proof of the control of the names: `http-01` at port 80, on any plain listener; `tls-alpn-01` at port 443, on this listener; `dns-01` by a TXT record, which `dns` sets.";
        "dns", Table("listener.*.tls.acme.dns"), Unset("required by the challenge `dns-01`"), "{ server = '127.0.0.1', key-file = '/etc/weir/tsig.key' }", "true", "Way to set the TXT records of the challenge `dns-01`.";
        "shared-storage", Bool, Literal("false"), "true", "'yes'", "Shares `storage`, a volume or NFS, with processes on other hosts: one orders for all, see \"Certificates of several replicas\" below.";
        "lease", Time, Literal("'60s'"), "'30s'", "60", "With `shared-storage`, time after which the others take over from a replica that ended while it ordered, and half as much again; the same for all replicas.";
        "poll-interval", Time, Literal("'5s'"), "'1s'", "5", "With `shared-storage`, interval at which a replica looks for files of the others; the same for all replicas.";
        "agree-to-terms", Bool, Literal("false"), "true", "'yes'", "Agreement to the terms of service of the ACME server; required.";
    }
    "listener.*.tls.acme.dns" {
        "server", Text("a name server"), Unset("`hook`"), "'127.0.0.1:53'", "'127.0.0.1:x'", "Primary name server of the zone, which gets dynamic updates (RFC 2136) over TCP, with a signature (TSIG, RFC 8945).";
        "key-file", Text("a file"), Unset("`key-name` and `secret-file`"), "'/etc/weir/tsig.key'", "'/no/such/file'", "File with the key of the updates in the format of BIND, as `tsig-keygen` writes it: `hmac-sha256`, `hmac-sha384` or `hmac-sha512`. Only root and `user` may be able to change it. It is read for each order.";
        "key-name", Text("a DNS name"), Unset("in `key-file`"), "'weir'", "'a b'", "Name of the key of the updates.";
        "algorithm", Choice(&["hmac-sha256", "hmac-sha384", "hmac-sha512"]), Literal("'hmac-sha256'"), "'hmac-sha512'", "'hmac-md5'", "Algorithm of the key, with `key-name`.";
        "secret-file", Text("a file"), Unset("`key-file`"), "'/etc/weir/tsig.secret'", "'/no/such/file'", "File with the secret of the key in base64, with the rules of `key-file`.";
        "zone", Text("a DNS name"), Unset("found by SOA queries to `server`"), "'example.org'", "'a b'", "Zone to update.";
        "ttl", Time, Literal("'60s'"), "'5m'", "60", "TTL of the records.";
        "hook", Texts("a program and its arguments"), Unset("`server`"), "['/bin/true', 'x']", "'true'", "Program that sets and removes the records, and its first arguments; it gets `add NAME VALUE` or `remove NAME VALUE` behind them (see \"Automatic certificates\" below). It needs privileges.landlock = false.";
        "hook-timeout", Time, Literal("'2m'"), "'30s'", "30", "Maximum time of the hook; then it is killed with its children.";
        "check-servers", Texts("a name server"), Unset("`server`; none with `hook`"), "['127.0.0.1:53', '127.0.0.2:53']", "'127.0.0.1:x'", "Name servers that must have the records before they are validated; `authoritative` for all of the zone.";
        "propagation-timeout", Time, Literal("'2m'"), "'10m'", "2", "Maximum time until these name servers have the records.";
        "propagation-interval", Time, Literal("'2s'"), "'500ms'", "2", "Interval at which they are asked.";
    }
    "listener.*.tls.certificates[]" {
        "certificate", Text("a file"), Required, "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with the certificate and its chain, the certificate first.";
        "key", Text("a file"), Unset("in the file of `certificate`"), "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with the private key (PKCS#8, PKCS#1 or SEC1).";
        "ocsp", Text("a file"), Unset("none"), "'/etc/weir/site.ocsp'", "'/no/such/file'", "File with an OCSP response in DER for the certificate, which clients get with it (stapling). It is read again at each reload, and no longer sent once it has expired.";
    }
    "listener.*.sni[]" {
        "server-name", Texts("a host name"), Unset("all, also none"), "['example.org', '*.example.org']", "'*'", "Server names (SNI), any of them; `*.example.org` is every name below `example.org`.";
        "alpn", Texts("a protocol"), Unset("all"), "'h2'", "''", "Protocols (ALPN, such as `h2` or `http/1.1`), any of which the client must offer.";
        "pool", Text("a pool's name"), Required, "'app'", "'ap'", "Pool for matching connections.";
    }
    "listener.*.per-source" {
        "connections", Count(1, 10_000_000), Unset("no limit"), "100", "0", "Maximum number of open connections, on all threads.";
        "connections-rate", ValueKind::Rate, Unset("no limit"), "'10/s'", "'x'", "Maximum rate of new connections, on all threads.";
        "connections-burst", Count(1, COUNT_MAX), Unset("one second of the rate, at least 1"), "20", "0", "Maximum number of new connections at once.";
        "requests-rate", ValueKind::Rate, Unset("no limit"), "'100/s'", "-1", "Maximum rate of requests, on all threads; beyond it, 429 with `Retry-After`.";
        "requests-burst", Count(1, COUNT_MAX), Unset("one second of the rate, at least 1"), "200", "0", "Maximum number of requests at once.";
        "prefix4", Integer(0, 32), Literal("32"), "24", "33", "Prefix length that groups IPv4 addresses into one source.";
        "prefix6", Integer(0, 128), Literal("64"), "56", "129", "Prefix length that groups IPv6 addresses into one source.";
        "entries", Count(8, 10_000_000), Literal("10000"), "'100k'", "0", "Maximum number of sources in the table. A new source replaces one without connections; if there is none, the new source has no limits, and is counted.";
    }
    "listener.*.compression" {
        "codings", Texts("a coding"), Literal("['br', 'zstd', 'gzip']"), "['zstd', 'gzip']", "'deflate'", "Content codings, the preferred one first among those that a client accepts equally: `br`, `zstd`, `gzip`.";
        "types", Texts("a media type"), Unset("text, and formats of text such as JSON, JavaScript, XML, SVG and WebAssembly"), "['text/*', 'application/json']", "'text'", "Media types that are compressed; `text/*` is every type of text.";
        "min-size", Size(0, SIZE_MAX), Literal("'1k'"), "256", "'x'", "Minimum size of a content with `Content-Length`; one without is always long enough.";
        "level", Table("listener.*.compression.level"), Unset("the defaults below"), "{ gzip = 1 }", "6", "Level of each coding: a higher one makes less bytes of more CPU time and memory.";
        "encoders-max", Size(1 << 16, SIZE_MAX), Literal("'32m'"), "'8m'", "0", "Memory of the encoders of a thread, 0.4 MiB (gzip) to 84 MiB each by coding and level. Responses beyond it are sent without a coding, and counted (`weir_uncompressed_responses_total`); one encoder is always possible.";
        "with-credentials", Bool, Literal("false"), "true", "1", "Compresses also responses to requests with `Cookie` or `Authorization` that are neither code, styles, fonts nor images. If they repeat a secret beside text of a stranger, their length reveals it (BREACH).";
        "decode", Bool, Literal("false"), "true", "'gzip'", "Decodes content that servers send in `gzip`, `br` or `zstd` for clients that do not accept that coding; a decoder takes up to 0.06, 17 or 9 MiB of `encoders-max`.";
    }
    "listener.*.compression.level" {
        "br", Integer(0, 11), Literal("4"), "5", "12", "Level of Brotli.";
        "zstd", Integer(1, 19), Literal("3"), "1", "0", "Level of Zstandard.";
        "gzip", Integer(1, 9), Literal("6"), "1", "10", "Level of gzip.";
    }
    "listener.*.auth" {
        "basic", Table("listener.*.auth.basic"), Unset("another method"), "{ users-file = '/etc/weir/users' }", "{ users-file = '/no/such/file' }", "Names and passwords of a file.";
        "jwt", Table("listener.*.auth.jwt"), Unset("another method"), "{ keys-url = 'https://localhost/jwks.json' }", "{ keys-url = 'localhost' }", "JSON Web Tokens.";
        "request", Table("listener.*.auth.request"), Unset("another method"), "{ pool = 'app', path = '/verify' }", "{ pool = 'ap', path = '/verify' }", "A request to a pool for each request.";
        "forward-credentials", Bool, Unset("a field is removed, a cookie stays"), "true", "1", "`true`: forwards `Authorization`, or the field of the token, to servers. Otherwise it is removed, since it is for the proxy. `false`: removes the cookie of the token (`token = 'cookie:NAME'`), too, and keeps the others.";
        "cache-time", Time, Literal("'5m'"), "'1m'", "5", "Maximum time that a thread uses a result that allows a request again: for a password until its user has another one, for a token until it expires, for a request with a `cache-key`. Keys of results are keyed hashes of the credentials.";
        "cache-entries", Count(0, 1_000_000), Literal("1000"), "'10k'", "-1", "Maximum number of such results on each thread; the oldest one makes room. A token takes the memory of its claims.";
    }
    "listener.*.auth.basic" {
        "users-file", Text("a file"), Required, "'/etc/weir/users'", "'/no/such/file'", "File with `NAME:HASH` on each line, as `htpasswd -B` writes it: bcrypt up to cost 14, or argon2id up to 256 MiB and 1 GiB of passes. Up to 100,000 users and 16 MiB, `#` for comments. It is read again when it changes; faults change nothing.";
        "realm", Text("a text"), Literal("'weir'"), "'staff only'", "'a\"b'", "Name of the protected part for the dialog of browsers.";
        "failures-per-source", ValueKind::Rate, Literal("'10/m'"), "'5/m'", "0", "Maximum rate of wrong passwords of a source (IPv6: a /64); those of a minute may come at once. Beyond it its passwords are not checked, and its requests get 429 with `Retry-After`, except those with a result that is still valid.";
        "failures-per-user", ValueKind::Rate, Unset("no limit"), "'100/m'", "0", "The same for a name, from all sources. It lets anyone who knows a name keep its user out.";
    }
    "listener.*.auth.jwt" {
        "keys-file", Text("a file"), Unset("another source"), "'/etc/weir/jwks.json'", "'/no/such/file'", "File with a JSON Web Key Set, up to 100 keys and 256 KiB. It is read again when it changes. Secrets (`oct`) in it count, too.";
        "keys-url", Text("a URL"), Unset("another source"), "'https://localhost/jwks.json'", "'localhost'", "URL of a JSON Web Key Set with the same limits, without its secrets. Keys stay in use while it does not respond; until the first response, requests get 503.";
        "keys-ca", Text("a file"), Unset("those that this host trusts"), "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with the authorities of the URL's server.";
        "keys-interval", Time, Literal("'10m'"), "'1h'", "5", "Time between two requests of the URL; after a failure 1 s to 1 min.";
        "unknown-key-interval", Time, Literal("'30s'"), "'10s'", "0", "Minimum time between two requests because a token names an unknown key.";
        "public-key-file", Text("a file"), Unset("another source"), "'/etc/weir/key.pub'", "'/etc/weir/site.pem'", "File with a public key in PEM: RSA from 2,048 bits, P-256, P-384, P-521 or Ed25519.";
        "secret-file", Text("a file"), Unset("another source"), "'/etc/weir/sticky.key'", "'/no/such/file'", "File with a secret of at least 32 bytes for HS256, 48 for HS384 and 64 for HS512; a line break at its end does not count.";
        "algorithms", Texts("an algorithm"), Unset("those of the types of the keys"), "['RS256', 'ES256']", "'none'", "Algorithms that are accepted, of those that the keys have.";
        "issuer", Texts("a text"), Unset("any"), "'https://id.example.org'", "5", "Values of `iss`, any of them.";
        "audience", Texts("a text"), Unset("any"), "['api', 'web']", "5", "Values of `aud`, any of them.";
        "clock-skew", Time, Literal("'60s'"), "'5s'", "5", "Difference of clocks that is tolerated for `exp` and `nbf`.";
        "required-claims", TextsOrNone("a claim"), Literal("['exp']"), "['exp', 'sub']", "'a b'", "Claims that a token must have. `exp` and `nbf` count whenever they are there.";
        "require", Matchers, Unset("none"), "{ 'realm_access.roles' = 'admin' }", "{ scope = 1 }", "Claims with the values that a request needs; otherwise it gets 403. Matchers as in `header`; of a list, any entry. Dots are between the names of nested claims.";
        "token", Text("a place"), Literal("'authorization'"), "'cookie:session'", "'body'", "Place of the token: `authorization` (as `Bearer`), `header:NAME` or `cookie:NAME`.";
        "token-max", Size(256, 1 << 16), Literal("'8k'"), "'16k'", "'1m'", "Maximum length of a token in bytes.";
        "user-claim", Text("a claim"), Literal("'sub'"), "'email'", "'a b'", "Claim with the name of the user, the value `{auth.user}`.";
        "realm", Text("a text"), Literal("'weir'"), "'api'", "'a\"b'", "Realm in `WWW-Authenticate`.";
    }
    "listener.*.auth.request" {
        "pool", Text("a pool's name"), Required, "'app'", "'ap'", "Pool that decides: 2xx allows the request, 401, 403 and redirects are answered to the client, all else is 503.";
        "path", Text("a path"), Required, "'/verify?app=1'", "'verify'", "Target of the requests. The client's is in `X-Forwarded-Method`, `-Uri`, `-Host`, `-Proto` and `-For`.";
        "method", Text("a method, or `same`"), Literal("'GET'"), "'same'", "'G T'", "Method of the requests, without content; `same`: that of the client.";
        "timeout", Time, Literal("'5s'"), "'1s'", "5", "Maximum time until the response is complete; then 503.";
        "request-headers", Texts("a field name"), Literal("['authorization', 'cookie', 'accept']"), "'*'", "'a b'", "Fields of the client that the requests get; a final `*` matches every name with that prefix.";
        "server-headers", TextsOrNone("a field name"), Unset("none"), "['x-user', 'x-groups']", "'a b'", "Fields of a response that allows the request, for the server. They are always removed from requests of clients.";
        "client-headers", TextsOrNone("a field name"), Unset("none"), "'set-cookie'", "'a b'", "Fields of a response that allows the request, for the client.";
        "denial-headers", TextsOrNone("a field name"), Literal("['www-authenticate', 'location', 'set-cookie', 'retry-after', 'cache-control']"), "['location']", "'a b'", "Fields of a denial for the client, which gets its status and up to 64 KiB of its content, too.";
        "user-header", Text("a field name"), Unset("none"), "'x-user'", "'a b'", "Field of a response that allows the request with the name of the user, the value `{auth.user}`.";
        "cache-key", Text("the name of a value, or a text with values"), Unset("each request is asked for"), "'{header.authorization} {method} {path}'", "'always'", "Key of responses that allow requests, which are used again for `cache-time`. All that the decision depends on belongs into it.";
    }
    "listener.*.cors" {
        "origins", Texts("an origin"), Required, "['https://app.example.org', 'https://*.example.org']", "'https://a.example/'", "Origins, any of them: `https://app.example.org`, `https://*.example.org` for all names below, `regex:` and a regular expression for the complete origin, or `*`.";
        "methods", Texts("a method"), Literal("['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']"), "'GET'", "'G T'", "Methods that pages may use.";
        "headers", TextsOrNone("a field name"), Unset("those that the page asks for"), "['x-token']", "'a b'", "Fields that pages may send.";
        "expose", TextsOrNone("a field name"), Unset("the simple ones"), "['x-total']", "'a b'", "Fields of responses that pages may read.";
        "credentials", Bool, Literal("false"), "true", "1", "Allows cookies and other credentials.";
        "max-age", Time, Literal("'10m'"), "'1h'", "5", "Time that browsers keep the response to a preflight.";
    }
    "listener.*.limits" {
        "head", Size(256, 1 << 16), Literal("'16k'"), "'32k'", "'65k'", "Maximum size of a head in bytes, up to 64 KiB; larger is 431.";
        "headers", Integer(1, wire::HEADERS_CAP as u64), Literal("100"), "64", "1000", "Maximum number of field lines of a head, up to 128; more is 431.";
        "target", Size(16, 1 << 20), Literal("'8k'"), "4096", "1", "Maximum length of a request target in bytes; longer is 414.";
    }
    "listener.*.forwarding" {
        "x-forwarded", Bool, Literal("true"), "false", "'for'", "Sends `X-Forwarded-For`, `-Proto` and `-Host`, except those that a route sets or removes.";
        "forwarded-for", Choice(&["append", "if-none"]), Literal("'append'"), "'if-none'", "'always'", "Action on `X-Forwarded-For` from a trusted peer: `append` the client's address, or keep the field unchanged (`if-none`).";
        "forwarded", Bool, Literal("false"), "true", "'for'", "Sends `Forwarded` (RFC 7239).";
        "via", TextOrFalse("a pseudonym"), Literal("'weir'"), "false", "'two words'", "Pseudonym in `Via`; `false`: no `Via` is added.";
        "request-id", TextOrFalse("a field name"), Literal("'x-request-id'"), "'x-id'", "'x id'", "Name of the field with the request id; `false`: none.";
    }
    "listener.*.timeouts" {
        "head", Time, Literal("'10s'"), "'5s'", "'5 s'", "Maximum time from the first to the last byte of a head; then 408.";
        "body", Time, Literal("'1h'"), "'10m'", "'0s'", "Maximum time from the first byte of a request to the last of its body; then 408.";
        "body-idle", Time, Literal("'30s'"), "'1m'", "'0s'", "Maximum time without content of an expected body; framing of chunks and trailers do not count; then 408.";
        "body-progress", Time, Literal("'30s'"), "'1m'", "true", "Interval in which a body must bring `body-progress-bytes`, or end; otherwise 408. While the response is on its way its content counts, too; then the exchange ends.";
        "body-progress-bytes", Size(0, SIZE_MAX), Literal("'16k'"), "0", "'4s'", "Bytes in each `body-progress` interval; the defaults are a minimum of 546 bytes a second.";
        "write", Time, Literal("'30s'"), "'1m'", "'1y'", "Interval in which a client with a backlog must acknowledge `write-progress-bytes` of its response (TCP); otherwise its connection is closed. With HTTP/2 it must acknowledge as much for each stream with a backlog, up to 16 of them.";
        "write-progress-bytes", Size(0, SIZE_MAX), Literal("'4k'"), "0", "'4s'", "Bytes in each `write` interval; 0: any byte is enough.";
        "keep-alive", Time, Literal("'60s'"), "'500ms'", "'-1s'", "Maximum idle time between two requests, and before the first. Only a complete request restarts it.";
    }
    "route[]" {
        "name", Text("a name"), Unset("`route-N`, by its position"), "'api'", "'a b'", "Name in logs and metrics.";
        "listener", Texts("a listener's name"), Unset("all in mode http"), "'web'", "'wb'", "Listeners of the route.";
        "host", Texts("a host"), Unset("any"), "['example.org', '*.example.org']", "'exa*mple.org'", "Hosts, any of them; `*.example.org` matches every name below `example.org`.";
        "path", Texts("a path"), Unset("any"), "'/exact'", "'exact'", "Paths; with `path-prefix`, `path-glob` and `path-regex`, any of them. Compared in normal form.";
        "path-prefix", Texts("a path"), Unset("any"), "'/api'", "'/a/../b'", "Path that matches itself and everything below it.";
        "path-regex", Texts("a regular expression"), Unset("any"), "'^/v[0-9]+/'", "'('", "Regular expression that matches a part of the path, compiled to at most 256 KiB.";
        "path-glob", Texts("a pattern"), Unset("any"), "'/img/**/*.png'", "'img/*'", "Pattern for the complete path: `*` is any text without a slash, `**` any text, `?` one character.";
        "method", Texts("a method"), Unset("any"), "['GET', 'HEAD']", "'G T'", "Methods, any of them.";
        "header", Matchers, Unset("any"), "{ x-a = 'v', x-b = true, x-c = { regex = '^v' } }", "{ x-a = 1 }", "Fields, all of them: a text, `true` (present), `false` (absent) or `{ regex = \"…\" }`.";
        "query", Matchers, Unset("any"), "{ debug = '1' }", "{ debug = { regx = '1' } }", "Query parameters, all of them, with matchers as in `header`.";
        "source", Texts("a network"), Unset("any"), "['10.0.0.0/8']", "'10.0.0.0/33'", "Client networks, any of them.";
        "when", Table("route[].when"), Unset("always"), "{ not = { source = '10.0.0.0/8' } }", "'tls'", "Further condition, which can be combined (see \"Conditions\" below).";
        "path-rule", Choice(&["normalise", "strict", "raw"]), Unset("`path` of the listener"), "'raw'", "'nginx'", "Form in which paths of this route are forwarded, as with `path` of a listener. The route is that of the normal form.";
        "rewrite-prefix", Text("a path"), Unset("not changed"), "'/v1'", "'v1'", "Replacement of the path prefix; needs exactly one `path-prefix`.";
        "rewrite-path", Text("a path"), Unset("not changed"), "'/x'", "'/x?y'", "Replacement of the complete path; the query is kept.";
        "remove-request-header", TextsOrNone("a field name"), Unset("none"), "['cookie', 'x-internal-*']", "'host'", "Request fields to remove, before others are set or added; a final `*` matches every name with that prefix.";
        "set-request-header", Fields, Unset("none"), "{ x-env = 'prod' }", "{ 'x env' = 'prod' }", "Request fields to set, with values (see \"Values\" below).";
        "add-request-header", Fields, Unset("none"), "{ x-tag = '1' }", "{ x-tag = 1 }", "Request fields to add, with values (see \"Values\" below).";
        "remove-response-header", TextsOrNone("a field name"), Unset("none"), "['server']", "'content-length'", "Response fields to remove, as for requests.";
        "set-response-header", Fields, Unset("none"), "{ server = 'weir' }", "{ x = \"a\\nb\" }", "Response fields to set, with values (see \"Values\" below).";
        "add-response-header", Fields, Unset("none"), "{ x-tag = '1' }", "{ connection = 'close' }", "Response fields to add, with values (see \"Values\" below).";
        "response", Entries("route[].response[]", None), Unset("none"), "[{ status = '5xx', set-header = { cache-control = 'no-store' } }]", "{ status = '5xx' }", "Rules for responses, also those of the proxy, written `[[route.response]]`, at most 6: each one that holds changes the fields, after the changes of the route.";
        "error-page", Entries("error-page[]", None), Unset("those of all routes"), "[{ status = '404', replace = 'all', json = '/etc/weir/networks.txt' }]", "[{ status = '404' }]", "Contents of its error responses, written `[[route.error-page]]`, tried before those of all routes.";
        "priority", Choice(&["high", "normal", "low"]), Literal("'normal'"), "'high'", "'urgent'", "Priority of its requests in a pool's queue. Higher priorities are served first; lower ones are evicted first from a full queue. One request in 16 comes from a class that was passed over.";
        "timeouts", Table("route[].timeouts"), Unset("those of the pool and of the listener"), "{ first-byte = '5m' }", "'5m'", "Timeouts of its requests (see \"Settings of a route\" below).";
        "body-max", Size(0, SIZE_MAX), Unset("`body-max` of the listener"), "'1g'", "'10x'", "Maximum size of a request body in bytes; larger is 413.";
        "buffer-request", Size(0, 1 << 20), Unset("`buffer-request` of the listener"), "'64k'", "'2m'", "Bytes of a body to receive before the request takes a connection slot, as for a listener.";
        "retries", Integer(0, 10), Unset("`retries` of the pool"), "2", "11", "Maximum number of retries of a request.";
        "retry-on", Texts("statuses, `timeout` or `reset`"), Unset("none"), "['502-504', 'timeout', 'reset']", "'5y'", "Results after which an idempotent request is sent to another server: responses with these statuses, no response within `first-byte` or `per-try` (`timeout`), and a connection that the server closes or resets before the response, although it may have the request (`reset`). Only while retries, the retry budget and `total` allow it, and the request is still held; otherwise the client gets the response.";
        "idempotent", Text("`all`, or `header:NAME`"), Unset("GET, HEAD, OPTIONS, TRACE, PUT and DELETE"), "'header:idempotency-key'", "'post'", "Further requests that may be sent twice, whatever their method: `all` of the route, or those with a field. Retries and `hedge` treat them as idempotent.";
        "forwarding", Table("route[].forwarding"), Unset("`forwarding` of the listener"), "{ via = false }", "false", "Fields that inform servers about the origin of a request.";
        "limit-rate", ValueKind::ByteRate, Unset("that of the listener"), "'1MiB/s'", "'1x/s'", "Maximum rate of each response in bytes per second, as for a listener; also of files.";
        "limit-rate-after", Size(0, SIZE_MAX), Unset("that of the listener"), "'10m'", "'x'", "Bytes of each response before `limit-rate` counts.";
        "limit-rate-total", ValueKind::ByteRate, Unset("that of the listener, shared with its other routes"), "'100m/s'", "0", "Maximum rate of all responses of the route together, on all cores.";
        "limit-rate-upload", ValueKind::ByteRate, Unset("that of the listener"), "'512k/s'", "'512'", "Maximum rate of each request content.";
        "compression", TableOrBool("route[].compression"), Unset("`compression` of the listener"), "{ level = { gzip = 1 } }", "'gzip'", "Compresses the responses of its servers, of `return`, and error pages, with what is not given from the listener, or else the defaults there; `false`: not.";
        "hedge", Table("route[].hedge"), Unset("none"), "{ after = '50ms' }", "'50ms'", "Sends an idempotent request whose response is late to a second server, too (see \"Hedging\" below).";
        "mirror", ValueKind::TableOrTables("route[].mirror"), Unset("none"), "[{ pool = 'app', percent = 10 }]", "'app'", "Sends copies of its requests to other pools, whose responses are counted and discarded (see \"Mirroring\" below); at most 4.";
        "cache", Table("route[].cache"), Unset("none"), "{ use = 'c' }", "'c'", "Stores the responses of its servers for later requests (see \"Caching\" below).";
        "auth", TableOrBool("listener.*.auth"), Unset("`auth` of the listener"), "{ basic = { users-file = '/etc/weir/users' } }", "{ jwt = {} }", "Authentication of its requests, with the keys of a listener's `auth`; `false`: none.";
        "cors", TableOrBool("listener.*.cors"), Unset("`cors` of the listener"), "{ origins = '*' }", "{ origins = '*', credentials = true }", "Origins whose pages may read its responses, with the keys of a listener's `cors`; `false`: none.";
        "rate-limit", ValueKind::TableOrTables("route[].rate-limit"), Unset("none"), "[{ rate = '10/s' }, { rate = '100/m' }]", "100", "Limits of the request rate, in order; the proxy responds to requests beyond one of them. Such a request has used up a part of the limits before it.";
        "pool", Text("a pool's name"), Unset("another action"), "'app'", "'ap'", "Action: forwards to a server of this pool. A route has exactly one action.";
        "split", Table("route[].split"), Unset("another action"), "{ pools = { app = 90 } }", "{ app = 1 }", "Action: forwards to one of several pools, by weight (see \"Splits\" below).";
        "files", Table("route[].files"), Unset("another action"), "{ root = '/etc/weir/certs' }", "'/etc/weir/certs'", "Action: responds with files of a directory (see \"Files\" below).";
        "redirect", Table("route[].redirect"), Unset("another action"), "{ location = 'https://{host}{path}{query}' }", "'/x'", "Action: responds with a redirect.";
        "return", Table("route[].return"), Unset("another action"), "{ status = 200, body = 'hello' }", "200", "Action: responds with a fixed response.";
        "deny", StatusOrTrue(400, 599), Unset("another action"), "404", "false", "Action: rejects with this status; `true`: 403.";
        "silent-drop", ValueKind::True, Unset("another action"), "true", "false", "Action: resets the connection so that clients beyond the first router receive nothing.";
        "tarpit", Table("route[].tarpit"), Unset("another action"), "{ delay = '5s' }", "'5s'", "Action: delays the request, then rejects it.";
    }
    "route[].split" {
        "pools", ValueKind::Weights, Required, "{ app = 90 }", "{ app = -1 }", "Pools with their weights, 0 to 1,000,000, of which one is not 0; at most 16 pools.";
        "key", Text("the name of a value, or a text with values"), Unset("each request is divided by itself"), "'cookie.user'", "'user'", "Key of a request, whose pool stays the same as long as the weights do, on all machines. A request whose key is empty goes to the first pool with a weight.";
        "name", Text("a name"), Unset("fixed"), "'web'", "'a b'", "Name by which `weir ctl split NAME POOL=WEIGHT...` changes the weights of all routes that have it.";
        "fallback", Bool, Literal("false"), "true", "'pool'", "Sends a request to the next pool for its key if the chosen one has no usable server; otherwise it gets 503, as with one pool.";
    }
    "route[].timeouts" {
        "total", Time, Unset("no limit"), "'10s'", "10", "Maximum time from the first byte of a request to the last of its response, all tries included, but not that of a tunnel; then 504. A queued request that could not be answered in time is 504 at once.";
        "per-try", Time, Unset("no limit"), "'2s'", "'0s'", "Maximum time from the choice of a server to its response head (timeouts are checked every 100 ms, so it ends up to 0.2 s late); then another try if `retry-on` has `timeout`, and otherwise 504.";
        "connect", Time, Unset("that of the pool"), "'1s'", "'1'", "Maximum time to connect; then 503.";
        "first-byte", Time, Unset("that of the pool"), "'5m'", "2", "Maximum time from the last byte of the request to the response head; then 504.";
        "idle", Time, Unset("that of the pool"), "'1m'", "'9999h'", "Maximum time without content of a response.";
        "tunnel", Time, Unset("that of the pool"), "'8h'", "''", "Maximum time without a byte of a tunnel, a gRPC call or a stream of server-sent events.";
        "body", Time, Unset("that of the listener"), "'10m'", "'0s'", "Maximum time from the first byte of a request to the last of its body; then 408.";
        "body-idle", Time, Unset("that of the listener"), "'1m'", "'0s'", "Maximum time without content of an expected body; then 408.";
    }
    "route[].forwarding" {
        "x-forwarded", Bool, Unset("that of the listener"), "false", "'for'", "Sends `X-Forwarded-For`, `-Proto` and `-Host`.";
        "forwarded-for", Choice(&["append", "if-none"]), Unset("that of the listener"), "'if-none'", "'always'", "Action on `X-Forwarded-For` from a trusted peer.";
        "forwarded", Bool, Unset("that of the listener"), "true", "'for'", "Sends `Forwarded` (RFC 7239).";
        "via", TextOrFalse("a pseudonym"), Unset("that of the listener"), "false", "'two words'", "Pseudonym in `Via`; `false`: no `Via` is added.";
        "request-id", TextOrFalse("a field name"), Unset("that of the listener"), "'x-id'", "'x id'", "Name of the field with the request id; `false`: none.";
    }
    "route[].hedge" {
        "after", Text("a time, or a percentile such as `p95`"), Literal("'p95'"), "'p99.5'", "'soon'", "Time from the choice of a server without a response head, after which the request is sent to a second server: fixed, or a percentile (50 to 99.9) of the route's response times of the last 10 to 20 seconds on the same core.";
        "after-min", Time, Literal("'1ms'"), "'20ms'", "20", "Minimum of a time from a percentile.";
        "samples-min", Integer(1, 1_000_000), Literal("100"), "1000", "0", "Minimum number of these response times; with fewer ones no request is sent twice.";
    }
    "route[].mirror" {
        "pool", Text("a pool's name"), Required, "'app'", "'ap'", "Pool that gets the copies. It has limits, checks and connections of its own.";
        "percent", Ratio(0.0, 100.0), Literal("100.0"), "12.5", "101", "Percentage of the requests that are copied.";
        "key", Text("the name of a value, or a text with values"), Unset("each request has the same chance"), "'source'", "'user'", "Key of `percent`: a request is copied if its key is in the percentage, as with `when`.";
        "name", Text("a name"), Unset("fixed"), "'shadow'", "'a b'", "Name of `percent`, by which `weir ctl percent NAME N` changes it.";
        "host", Text("a host"), Unset("that of the request"), "'shadow.example.org:8080'", "'a b'", "`Host` of the copies.";
        "mark", TextOrFalse("a field name"), Literal("'x-mirror'"), "'x-shadow'", "'a b'", "Name of the field, with the value 1, by which a server knows a copy. The copy has no other field of that name. `false`: none.";
        "in-flight", Count(1, 1024), Literal("64"), "8", "0", "Number of copies in flight on a core, of all mirrors, at which this one makes none.";
        "body-max", Size(0, 1 << 20), Literal("'64k'"), "'1k'", "'2m'", "Maximum size of a body: a request with a longer one is not copied.";
        "timeout", Time, Literal("'5s'"), "'500ms'", "5", "Maximum time of a copy, from the end of the request to the end of its response.";
    }
    "route[].cache" {
        "use", Text("a cache's name"), Required, "'c'", "'d'", "Cache that stores the responses, a `[cache.NAME]`.";
        "key", Text("a text with values"), Unset("pool, scheme, host and target (see below)"), "'{host}{path}'", "'{nothing}'", "Key of a response. Requests with the same key get the same response, unless its `Vary` says otherwise; so whatever else changes a response must be in it.";
        "valid", Entries("route[].cache.valid[]", None), Unset("none"), "[{ status = '200,404', for = '10s' }]", "{ status = '200' }", "Freshness of responses that do not state their own, by status.";
        "heuristic", Fraction, Literal("0.1"), "'20%'", "2", "Fraction of the time since `Last-Modified` for which a response is fresh that states nothing else; 0: such a response is not.";
        "heuristic-max", Time, Literal("'24h'"), "'1h'", "1", "Maximum of that time.";
        "stale-while-revalidate", Time, Unset("as the response says"), "'30s'", "30", "Time for which a stale response is used while it is validated in the background, unless the response states its own (RFC 5861).";
        "stale-if-error", Time, Unset("as the response says"), "'1h'", "1", "Time for which a stale response is used if no server responds, or only with 500, 502, 503 or 504, unless the response states its own.";
        "coalesce", TextOrFalse("a time"), Literal("'5s'"), "'500ms'", "'5'", "Maximum time for which a request waits for the response to an equal one; then it is forwarded, too. `false`: none waits.";
        "ignore-request-directives", Bool, Literal("false"), "true", "'no-cache'", "Ignores `Cache-Control` and `Pragma` of requests, with which any client can make the proxy ask the server.";
        "remove-set-cookie", Bool, Literal("false"), "true", "'session'", "Stores responses with `Set-Cookie`, without that field, which no client gets then; otherwise they are not stored.";
        "bypass", Table("route[].when"), Unset("never"), "{ cookie = { session = true } }", "true", "Condition on requests that are forwarded without a look into the cache (see \"Conditions\" below); their responses may be stored.";
        "no-store", Table("route[].when"), Unset("never"), "{ header = { authorization = true } }", "true", "Condition on requests whose responses are not stored.";
        "status-field", Bool, Literal("true"), "false", "'on'", "Adds `Cache-Status` to the responses (RFC 9211).";
    }
    "route[].cache.valid[]" {
        "status", Text("statuses"), Required, "'200,301'", "'9xx'", "Statuses of the responses.";
        "for", Time, Required, "'10m'", "10", "Time for which they are fresh.";
    }
    "route[].compression" {
        "codings", Texts("a coding"), Unset("those of the listener"), "['zstd', 'gzip']", "'deflate'", "Content codings, the preferred one first.";
        "types", Texts("a media type"), Unset("those of the listener"), "['text/*', 'application/json']", "'text'", "Media types that are compressed.";
        "min-size", Size(0, SIZE_MAX), Unset("that of the listener"), "256", "'x'", "Minimum size of a content with `Content-Length`.";
        "level", Table("route[].compression.level"), Unset("those of the listener"), "{ gzip = 1 }", "6", "Level of each coding.";
        "encoders-max", Size(1 << 16, SIZE_MAX), Unset("that of the listener"), "'8m'", "0", "Memory of all encoders of a thread, from which on responses of this route are sent without a coding.";
        "with-credentials", Bool, Unset("that of the listener"), "true", "1", "Compresses also responses to requests with credentials.";
        "decode", Bool, Unset("that of the listener"), "true", "'gzip'", "Decodes content that servers send in a coding that the client does not accept.";
    }
    "route[].compression.level" {
        "br", Integer(0, 11), Unset("that of the listener"), "5", "12", "Level of Brotli.";
        "zstd", Integer(1, 19), Unset("that of the listener"), "1", "0", "Level of Zstandard.";
        "gzip", Integer(1, 9), Unset("that of the listener"), "1", "10", "Level of gzip.";
    }
    "route[].files" {
        "root", Text("a directory"), Required, "'/etc/weir/certs'", "'/no/such/directory'", "Directory in which paths are looked up; nothing outside of it is served. A link in its own path is followed again when it changes.";
        "index", Texts("a file name"), Literal("'index.html'"), "['index.html', 'index.htm']", "'a/b'", "Names that stand for their directory; the first that exists.";
        "list", Bool, Literal("false"), "true", "'yes'", "Lists directories without an index, as HTML or JSON by `Accept`; otherwise they are 404.";
        "spa", Bool, Literal("false"), "true", "'index.html'", "Responds to a missing path of a page with the index of the root: to names without an extension, and to requests that accept HTML by name.";
        "hidden", Bool, Literal("false"), "true", "1", "Serves names with a dot at their start; otherwise they are 404, except `/.well-known`.";
        "symlinks", Bool, Literal("true"), "false", "0", "Follows symbolic links that stay within the root.";
        "precompressed", Bool, Literal("true"), "false", "'gzip'", "Serves `.br`, `.zst` and `.gz` beside a file to clients that accept them, unless they are older than the file.";
        "compression", TableOrBool("listener.*.compression"), Unset("`false`"), "{ codings = 'gzip' }", "'gzip'", "Compresses files, with the keys and the defaults of a listener's `compression`. `types` and `with-credentials` have no effect: text and formats of text are compressed, and no file repeats a request.";
        "cache-control", Text("a value"), Unset("none"), "'max-age=3600'", "\"a\\nb\"", "`Cache-Control` of files and of 304, not of errors.";
    }
    "route[].when" {
        "all", Entries("route[].when", None), Unset("none"), "[{ method = 'GET' }, { tls = true }]", "{ tls = true }", "Conditions, all of which must hold.";
        "any", Entries("route[].when", None), Unset("none"), "[{ host = 'a.example' }, { path-prefix = '/a' }]", "[]", "Conditions, one of which must hold.";
        "not", Table("route[].when"), Unset("none"), "{ method = ['GET', 'HEAD'] }", "true", "Condition that must not hold.";
        "listener", Texts("a listener's name"), Unset("any"), "'web'", "'wb'", "This key and the next ones are those of a route.";
        "host", Texts("a host"), Unset("any"), "'*.example.org'", "'exa*mple.org'", "Hosts, any of them.";
        "path", Texts("a path"), Unset("any"), "'/exact'", "'exact'", "Paths; of this key and the next three, one must match.";
        "path-prefix", Texts("a path"), Unset("any"), "'/api'", "'/a/../b'", "Path that matches itself and everything below it.";
        "path-glob", Texts("a pattern"), Unset("any"), "'*.php'", "'img/*'", "Pattern for the complete path.";
        "path-regex", Texts("a regular expression"), Unset("any"), "'^/u/(?P<user>[^/]+)'", "'('", "Regular expression, whose groups are values.";
        "method", Texts("a method"), Unset("any"), "'POST'", "'P T'", "Methods, any of them.";
        "header", Matchers, Unset("any"), "{ x-a = true }", "{ x-a = 1 }", "Fields, all of them.";
        "query", Matchers, Unset("any"), "{ debug = '1' }", "{ debug = 1 }", "Query parameters, all of them.";
        "source", Texts("a network"), Unset("any"), "['10.0.0.0/8']", "'10.0.0.0/33'", "Client networks, any of them.";
        "source-file", Text("a file"), Unset("any"), "'/etc/weir/networks.txt'", "'/no/such/file'", "File with client networks, one on each line, `#` for comments, up to 1,000,000 networks and 64 MiB; any of them. It is read again when it changes (see \"Maps and lists\" below).";
        "map", Matchers, Unset("any"), "{ m = 'gold' }", "{ other = true }", "Entries of maps for the request, all of them: `true`, there is one; `false`, there is none; a text or `{ regex = \"…\" }`, its value.";
        "cookie", Matchers, Unset("any"), "{ beta = '1' }", "{ beta = 1 }", "Cookies, all of them, with matchers as in `header`.";
        "claim", Matchers, Unset("any"), "{ tenant = 't1' }", "{ tenant = 1 }", "Claims of the token that `auth.jwt` has verified, all of them, with matchers as in `header`; of a list, any entry. Only in a condition of `[[route.response]]`: a route is chosen before its authentication.";
        "tls", Bool, Unset("either"), "true", "'1.3'", "`true`: only with TLS, `false`: only without.";
        "sni", Texts("a host name"), Unset("any"), "'*.example.org'", "'*'", "Server names that the client asked for (SNI), any of them.";
        "tls-client", Matchers, Unset("any"), "{ subject = true, san = { regex = '^DNS:a' } }", "{ key = true }", "Parts of the client's verified certificate, all of them: `subject`, `issuer`, `common-name`, `san` (one of the names, as in `DNS:a.example`), `dns`, `uri`, `email` (one of the names of this kind), `serial`, `fingerprint`, as the values `tls.client.*`, with matchers as in `header`.";
        "time", Texts("a part of the day"), Unset("any"), "['08:00-12:00', '22:00-06:00']", "'8-12'", "Parts of the day in UTC, any of them; over midnight if the end is before the start.";
        "weekday", Texts("a day"), Unset("any"), "['sat', 'sun']", "'sunday'", "Days of the week in UTC, any of them: `mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun`.";
        "percent", Ratio(0.0, 100.0), Unset("100"), "12.5", "101", "Percentage of the keys. A key is in the same percentile everywhere, so 20 % include the keys of 10 %, on all routes and machines.";
        "key", Text("the name of a value, or a text with values"), Literal("'source'"), "'cookie.user'", "'user'", "Key of `percent`. A request whose key is empty is in no percentage.";
        "name", Text("a name"), Unset("fixed"), "'canary'", "'a b'", "Name of `percent`, by which `weir ctl percent NAME N` changes it in all conditions that have the name.";
    }
    "route[].response[]" {
        "status", Text("statuses"), Unset("any"), "'4xx,503'", "'5x'", "Statuses of the rule, such as `5xx`, `200-399` or `401,403`.";
        "when", Table("route[].when"), Unset("always"), "{ path-glob = '**.js' }", "true", "Condition on the request (see \"Conditions\" below).";
        "remove-header", TextsOrNone("a field name"), Unset("none"), "['server']", "'content-length'", "Fields to remove, also those that the route or an earlier rule sets.";
        "set-header", Fields, Unset("none"), "{ cache-control = 'no-store' }", "{ 'a b' = 'c' }", "Fields to set, with values, instead of those that the route or an earlier rule sets.";
        "add-header", Fields, Unset("none"), "{ x-status = '{status}' }", "{ connection = 'close' }", "Fields to add, with values.";
    }
    "route[].rate-limit" {
        "rate", ValueKind::Rate, Required, "'10k/s'", "0", "Maximum rate of requests (`10/s`, `100/m`, `1k/h`), on all threads together; exact to 2 %, for any distribution of connections over threads.";
        "burst", Count(1, COUNT_MAX), Unset("one second of the rate, at least 1"), "20", "0", "Maximum number of requests at once.";
        "key", Text("`route`, `source`, `header:NAME` or a text with values"), Literal("'source'"), "'header:x-key'", "'client'", "Key of a token bucket: the route, the client's address (IPv6: /64), a field's value, or a text with values, such as `{cookie.user}`.";
        "status", Status(400, 599), Literal("429"), "503", "200", "Status of a rejected request, sent with `Retry-After`.";
        "keys-max", Count(1, 10_000_000), Literal("10000"), "'100k'", "0", "Maximum number of keys, on all threads; a new key replaces the one whose bucket is full first.";
    }
    "route[].redirect" {
        "status", Status(301, 308), Literal("302"), "301", "304", "Status: 301, 302, 303, 307 or 308.";
        "location", Text("a location"), Required, "'{path}'", "'{url}'", "Value of `Location`, with values (see \"Values\" below).";
    }
    "route[].return" {
        "status", Status(200, 599), Literal("200"), "204", "100", "Status of the response.";
        "content-type", Text("a field value"), Literal("'text/plain; charset=utf-8'"), "'text/html'", "\"a\\u0000b\"", "`Content-Type` of the response.";
        "body", Text("a text up to 64 KiB"), Literal("''"), "'hello'", "5", "Content of the response, as it is.";
        "body-template", Text("a text up to 64 KiB"), Unset("`body`"), "'not found: {path}'", "'{page}'", "Content of the response, with values (see \"Values\" below). They are escaped by `content-type`.";
        "body-file", Text("a file"), Unset("`body`"), "'/etc/weir/networks.txt'", "'/no/such/file'", "File with the content of the response as it is, up to 64 KiB of text. A reload reads it again.";
    }
    "route[].tarpit" {
        "delay", Time, Literal("'10s'"), "'5s'", "5", "Time before the rejection.";
        "status", Status(400, 599), Literal("403"), "404", "200", "Status of the rejection.";
    }
    "pool.*" {
        "servers-file", Text("a file"), Unset("`servers`"), "'/etc/weir/networks.txt'", "'/no/such/file'", "File with servers, beside those of `servers`: on each line an address, then `name=NAME`, `weight=N`, `maxconn=N` and `backup` as in `servers`; `#` begins a comment. At most 1,024 servers and 1 MiB. It is checked each half second; once it has changed and is stable, the config is read again, and refused if the file has faults or the pool no server: the previous servers stay. Write a new file beside it and rename it.";
        "servers", Entries("pool.*.servers[]", Some("address")), Unset("`servers-file`"), "['127.0.0.1:9001', { address = '127.0.0.1:9002', weight = 2 }]", "[]", "Servers: addresses, or tables; at least one.";
        "balance", Choice(Balance::NAMES), Literal("'random-of-two'"), "'round-robin'", "'leastconn'", "Algorithm that chooses a server, weighted. `random-of-two`: of two random servers, the one with fewer requests in flight. `latency`: of two random servers, the one with the lower response time multiplied by its requests in flight. `round-robin`: each in turn. `least-connections`: the one with the fewest requests in flight. `consistent-hash`: by a key, see `hash`. `first`: the first one below its `maxconn`; of the weights only 0 has an effect.";
        "hash", Table("pool.*.hash"), Unset("the defaults below"), "{ key = 'path' }", "'path'", "Key and limit of `consistent-hash`.";
        "sticky", Table("pool.*.sticky"), Unset("none"), "{ cookie = 'SRV', key = 'change me, or use key-file' }", "'SRV'", "Cookie, or text of a request, that keeps a client at its server, as long as the server is up: also in drain and with weight 0, which only new clients avoid. In maintenance (`weir ctl server POOL/NAME maint`) the server gets no requests, and its clients get another one.";
        "reuse", Choice(&["never", "safe", "always"]), Literal("'safe'"), "'always'", "true", "Connections to servers that a request may use. `never`: only those of its own client. `always`: any idle one. `safe`: any idle one, but a client's first request only if it can be retried (an idempotent method, and completely buffered); HAProxy's `safe` opens a new connection for every first request. A connection on which the server requests NTLM or Negotiate (401, 407) always stays with its client.";
        "idle-max", Count(0, 1_000_000), Literal("1024"), "'2k'", "-1", "Maximum number of idle connections to each server.";
        "idle-timeout", Time, Literal("'30s'"), "'1m'", "60", "Maximum idle time of a connection to a server.";
        "queue", Table("pool.*.queue"), Unset("the defaults below"), "{ limit = 10 }", "10", "Queue for requests while all servers are at their `maxconn`.";
        "maxconn", Count(1, 1_000_000), Unset("only the limits of the servers"), "100", "0", "Maximum number of concurrent requests of all its servers together, on all cores.";
        "adaptive", Table("pool.*.adaptive"), Unset("fixed limits"), "{ max = 200 }", "true", "Adaptive concurrency limit of each server: it grows as long as the response time does not.";
        "retry-budget", Table("pool.*.retry-budget"), Unset("the defaults below"), "{ ratio = '10%' }", "0.2", "Maximum number of retries, on all cores.";
        "timeouts", Table("pool.*.timeouts"), Unset("the defaults below"), "{ connect = '1s' }", "'1s'", "Timeouts for servers.";
        "limits", Table("pool.*.limits"), Unset("the defaults below"), "{ head = '32k' }", "[]", "Limits of a response head.";
        "check", Table("pool.*.check"), Unset("none"), "{ type = 'http', path = '/health' }", "true", "Active health checks of its servers.";
        "outlier", Table("pool.*.outlier"), Unset("the defaults below"), "{ failures = 3 }", "3", "Conditions for ejecting a server that fails requests.";
        "resolve", Table("pool.*.resolve"), Unset("the defaults below"), "{ nameserver = '127.0.0.1:53' }", "'127.0.0.1:53'", "Lookup of the servers' names.";
        "slow-start", Time, Unset("full weight at once"), "'10s'", "10", "Time in which the weight of a recovered server grows from a tenth to its full value.";
        "retries", Integer(0, 10), Literal("1"), "0", "11", "Maximum number of retries of a request (see \"Retries\" below); only when no earlier attempt can have had an effect.";
        "send-proxy-protocol", Choice(&["v1", "v2"]), Unset("none"), "'v2'", "true", "Version of the PROXY protocol header at the start of each connection to a server.";
        "tls", Table("pool.*.tls"), Unset("plain connections"), "{ verify = false }", "true", "TLS of the connections to its servers, also of its health checks (see \"TLS\" below).";
        "http", Choice(&["1.1", "2", "auto"]), Literal("'1.1'"), "'2'", "2", "HTTP version of the connections to its servers (see \"HTTP/2 to servers\" below). `2`: HTTP/2, negotiated with `tls` (ALPN), else with prior knowledge. `auto`: with `tls` the version that the server chooses, else 1.1.";
        "http2", Table("pool.*.http2"), Unset("the defaults below"), "{ concurrent-streams = 50 }", "true", "Limits of HTTP/2 connections.";
        "namespace", Text("a network namespace"), Unset("that of the process"), "'/proc/self/ns/net'", "'no-such-namespace'", "Network namespace to connect in: a name of `ip netns`, or a path.";
        "source", Texts("an address"), Unset("the kernel chooses"), "['127.0.0.2', '127.0.0.3']", "'127.0.0.2:80'", "Source addresses of the connections to its servers, also of health checks, used in turn. Each has its own range of ephemeral ports, so further addresses end a shortage of ports. An address that no interface has is an error at the start; later, it is skipped. The servers must have the family (IPv4, IPv6) of one of the addresses; unix sockets have no source address.";
    }
    "pool.*.http2" {
        "concurrent-streams", Count(1, 1_000_000), Literal("100"), "50", "0", "Maximum number of concurrent requests on a connection; the server may allow fewer.";
        "connections-max", Count(1, 1_000_000), Literal("128"), "4", "0", "Maximum number of connections of each thread to a server. Further requests wait for a free stream, up to `timeouts.connect`.";
        "stream-window-max", Size(1 << 16, 1 << 30), Literal("'1m'"), "'256k'", "'1k'", "Maximum number of bytes that a server may send of a response before the client has read them. The window starts with 64 KiB and grows while the server fills it.";
        "connection-window-max", Size(1 << 16, 1 << 30), Literal("'16m'"), "'4m'", "'1k'", "Maximum of the same for all responses of a connection.";
        "ping-interval", Time, Unset("only after a timeout of a request"), "'30s'", "30", "Time without a received byte after which a connection is checked with a PING frame. Servers may limit them: those of gRPC accept one in 5 minutes.";
        "ping-timeout", Time, Literal("'5s'"), "'1s'", "1", "Maximum time until the response to a PING frame; then the connection is closed.";
    }
    "pool.*.tls" {
        "verify", Bool, Literal("true"), "false", "'no'", "Verifies the servers' certificates. Without it, any server is accepted.";
        "ca", Text("a file"), Unset("the authorities that this host trusts"), "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with the authorities of the servers' certificates.";
        "crl", Texts("a file"), Unset("revocation is not checked"), "['/etc/weir/clients.crl']", "'/no/such/file'", "Files with certificate revocation lists (CRL) in PEM or DER, 8 MiB together: servers whose certificate is on the list of its issuer are rejected. A change of a file is read within 2 s; sessions are not resumed. See \"Revoked certificates\" below.";
        "crl-depth", Choice(&["chain", "leaf"]), Literal("'chain'"), "'leaf'", "'all'", "With `crl`, the certificates that are checked: `chain`, that of the server and those of the intermediate authorities; `leaf`, that of the server alone.";
        "crl-unknown", Choice(&["reject", "accept"]), Literal("'reject'"), "'accept'", "'ignore'", "With `crl`, the action on a certificate whose issuer has no list.";
        "crl-expired", Choice(&["reject", "accept"]), Literal("'reject'"), "'accept'", "'ignore'", "With `crl`, the action on a certificate whose issuer's list has expired (nextUpdate).";
        "server-name", Text("a host name"), Unset("each server's own host name or address"), "'app.internal'", "'a b'", "Name that the servers have to prove, and that they get as server name (SNI).";
        "certificate", Text("a file"), Unset("none"), "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with the proxy's own certificate for the servers, and its chain.";
        "key", Text("a file"), Unset("in the file of `certificate`"), "'/etc/weir/site.pem'", "'/no/such/file'", "PEM file with its private key.";
        "min-version", Choice(&["1.2", "1.3"]), Literal("'1.2'"), "'1.3'", "1.2", "Oldest version of TLS.";
        "cipher-suites", Texts("a cipher suite"), Unset("all"), "['TLS_AES_128_GCM_SHA256', 'ECDHE-RSA-AES128-GCM-SHA256']", "'AES128-SHA'", "Cipher suites, the preferred one first, by their names at IANA or in OpenSSL.";
        "groups", Texts("a group"), Unset("`X25519`, `secp256r1`, `secp384r1`, `X25519MLKEM768`"), "['X25519', 'P-256']", "'ffdhe2048'", "Groups of the key exchange, the preferred one first, by their names at IANA or in OpenSSL.";
    }
    "pool.*.servers[]" {
        "address", Text("an address"), Unset("`srv`"), "'unix:/tmp/app.sock'", "'127.0.0.1:0'", "Address, or a name with a port such as `app.internal:8080`. A name is looked up without search domains, and again at intervals (see `[pool.NAME.resolve]`); each of its addresses is a server. A changed result replaces only these servers: there is no reload, requests in flight keep their server, and other servers keep their state.";
        "srv", Text("a name"), Unset("`address`"), "'_http._tcp.app.internal'", "'app internal'", "Service (RFC 2782): each address of its hosts is a server, with the record's port and weight; only records of the lowest priority value are used.";
        "name", Text("a name"), Unset("its address"), "'a'", "'a b'", "Name in logs and metrics.";
        "weight", Integer(0, 256), Literal("1"), "2", "257", "Weight relative to the other servers; 0: no requests.";
        "maxconn", Count(1, 1_000_000), Unset("no limit"), "10", "0", "Maximum number of concurrent requests, on all cores.";
        "backup", Bool, Literal("false"), "true", "'yes'", "Receives requests only when no other server is eligible: the others are down, in drain or maintenance, or have weight 0. Full servers are still eligible.";
    }
    "pool.*.hash" {
        "key", Text("`source`, `path`, `header:NAME` or `cookie:NAME`"), Literal("'source'"), "'header:x-user'", "'client'", "Key: the client's address (IPv6: its /64), the path in normal form and without the query, a field's first value or a cookie's. A request without the key is balanced by `random-of-two`.";
        "load-factor", Ratio(1.0, 100.0), Literal("1.25"), "1.5", "0.9", "Maximum number of requests of a server, as a multiple of its weighted part of the requests in flight on a core; requests beyond it overflow to the next server of their key.";
    }
    "pool.*.sticky" {
        "cookie", Text("a cookie's name"), Unset("`on`"), "'SRV'", "'a b'", "Name of the cookie.";
        "on", Text("a value, or a text with values"), Unset("`cookie`"), "'header.x-session'", "'session'", "Text by which a session is known, such as `query.sid` or `{header.x-app}-{cookie.id}`, instead of a cookie of the proxy. The first server that responds is remembered, on all threads; a request without the text is balanced as usual. A new process, and a table with other settings, begin empty. Not with `consistent-hash`, which needs no table.";
        "entries-max", Count(1, 10_000_000), Literal("100000"), "'1M'", "0", "With `on`: maximum number of remembered sessions, 8 bytes each; beyond it, those that were unused for longest are forgotten. A session belongs to a set of 8, so a table that is nearly full forgets some of them earlier.";
        "expire", Time, Literal("'30m'"), "'4h'", "30", "With `on`: time without a request after which a session is forgotten, to 4 s; up to a day.";
        "mode", Choice(&["insert", "prefix"]), Literal("'insert'"), "'prefix'", "'rewrite'", "`insert`: a cookie of the proxy, which servers do not receive. `prefix`: the application's cookie of that name; its value gets a prefix in responses and loses it in requests.";
        "key", Secret, Unset("`key-file`"), "'change me, or use key-file'", "'too short'", "Key that authenticates the cookie, at least 16 bytes: a client that knows it can choose servers. All proxies of a service need the same key.";
        "key-file", Text("a file"), Unset("`key`"), "'/etc/weir/sticky.key'", "'/no/such/file'", "File with the key, read with the config; surrounding white space is ignored.";
        "max-age", Time, Unset("until the browser closes"), "'1h'", "3600", "Lifetime of the cookie after the last request; the cookie is then sent with each response.";
        "secure", Bool, Unset("true over TLS"), "true", "'yes'", "Sets the cookie attribute `Secure`: sent only over TLS. By default, if the client's connection has TLS.";
        "http-only", Bool, Literal("true"), "false", "'no'", "Sets the cookie attribute `HttpOnly`: not visible to scripts.";
        "same-site", Choice(&["strict", "lax", "none"]), Literal("'lax'"), "'strict'", "false", "Cookie attribute `SameSite`, for requests from other sites.";
        "path", Text("a path"), Literal("'/'"), "'/shop'", "'shop'", "Cookie attribute `Path`: browsers send the cookie for it and all paths below it.";
        "domain", Text("a host"), Unset("the host of the response"), "'example.org'", "'a b'", "Cookie attribute `Domain`: browsers send the cookie to this host and all hosts below it.";
        "idle-max", Time, Unset("no limit"), "'30m'", "30", "Maximum time since the last response: then the client gets a server as a new one does. The cookie has its times, in whole seconds, and each response sends it again.";
        "life-max", Time, Unset("no limit"), "'24h'", "86400", "Maximum time at one server, whatever the client does.";
    }
    "pool.*.check" {
        "type", Choice(&["tcp", "http", "agent"]), Required, "'tcp'", "'ping'", "`tcp` connects; `http` sends a request and checks the response; `agent` reads a line of HAProxy's agent protocol with any of `up`, `ready`, `down`, `fail`, `stopped`, `drain`, `maint`, `75%`, `maxconn:30`.";
        "address", Text("an address"), Unset("the server's own"), "'127.0.0.1:9101'", "'9101'", "Address for checks.";
        "port", Integer(1, 65_535), Unset("the server's own"), "9101", "0", "Port for checks.";
        "method", Text("a method"), Literal("'GET'"), "'HEAD'", "'G T'", "With `http`: the method.";
        "path", Text("a target"), Literal("'/'"), "'/health?full=1'", "'health'", "With `http`: the request target; `*` with `method = \"OPTIONS\"`.";
        "host", Text("a host"), Unset("the server's address"), "'app.internal'", "'a b'", "With `http`: the value of `Host`.";
        "headers", Fields, Unset("none"), "{ x-check = 'weir' }", "{ 'x y' = '1' }", "With `http`: additional fields.";
        "status", Text("statuses"), Literal("'200-399'"), "'200,204,300-399'", "'ok'", "With `http`: the statuses that pass, such as `2xx`, `200-399` or `200,204`.";
        "body", Text("a text"), Unset("the content is not read"), "'ready'", "1", "With `http`: text that the first 64 KiB of the content must contain.";
        "send", Text("a text"), Unset("nothing"), "\"hello\\n\"", "1", "With `agent`: text to send first.";
        "tls", Bool, Unset("as the pool; `agent`: false"), "false", "'yes'", "Uses TLS with the settings of the pool.";
        "http", Choice(&["1.1", "2", "auto"]), Unset("as the pool"), "'1.1'", "1.1", "HTTP version of a check of type `http`.";
        "interval", Time, Literal("'2s'"), "'5s'", "2", "Time between two checks of a server. The first check runs at once, spread by `jitter`; until then the server counts as up, and one failed check is enough to mark it down.";
        "fast-interval", Time, Unset("`interval`"), "'500ms'", "'500'", "Interval while a server is changing its state.";
        "down-interval", Time, Unset("`interval`"), "'5s'", "true", "Interval while a server is down.";
        "timeout", Time, Literal("'1s'"), "'500ms'", "'0s'", "Maximum time of a check; a server has one check at a time.";
        "rise", Integer(1, 255), Literal("2"), "1", "0", "Consecutive checks that must pass before a server is up. The state from an agent applies at once.";
        "fall", Integer(1, 255), Literal("3"), "2", "0", "Consecutive checks that must fail before a server is down.";
        "jitter", Fraction, Literal("0.1"), "'20%'", "2", "Fraction by which an interval varies at random.";
    }
    "pool.*.outlier" {
        "failures", Integer(0, 10_000), Literal("5"), "3", "-1", "Consecutive failures (no connection, no response in time, or an invalid one) before a server is ejected; 0: disabled.";
        "errors", Integer(1, 10_000), Unset("disabled"), "10", "0", "Consecutive failures and responses with one of `statuses` before a server is ejected.";
        "statuses", Text("statuses"), Literal("'500-599'"), "'502-504'", "'5x'", "Statuses that count as errors, such as `5xx` or `502-504`.";
        "error-rate", Fraction, Unset("disabled"), "'50%'", "'150%'", "Maximum fraction of a server's requests in a window that may be errors.";
        "latency-factor", Integer(2, 1000), Unset("disabled"), "5", "1", "Maximum of a server's mean time to the first byte in a window, as a multiple of the pool's median.";
        "window", Time, Literal("'10s'"), "'30s'", "10", "Window for rates and latencies.";
        "requests-min", Count(1, COUNT_MAX), Literal("20"), "100", "0", "Minimum number of requests in a window for a server to be judged by it.";
        "ejection", Time, Literal("'10s'"), "'30s'", "'10'", "Time of the first ejection; each further one is longer by this time. Then one request probes the server; if it succeeds, the server gets its full weight again.";
        "ejection-max", Time, Literal("'5m'"), "'1m'", "5", "Maximum time of an ejection. A server without failures for this time starts again with `ejection`.";
        "max-ejected", Fraction, Literal("0.5"), "'25%'", "'x'", "Maximum fraction of a pool's servers that may be ejected at a time. One may always be, but never the last eligible one.";
    }
    "pool.*.resolve" {
        "nameserver", Texts("an address"), Unset("those of `/etc/resolv.conf`, after `/etc/hosts`"), "['127.0.0.1:53', '::1']", "'localhost'", "Nameservers, in order of preference; port 53 by default. Queries are sent from the network namespace of the process.";
        "interval", Time, Literal("'10s'"), "'1m'", "10", "Maximum time between two lookups; a shorter TTL of the records reduces it.";
        "interval-min", Time, Literal("'1s'"), "'5s'", "1", "Minimum time between two lookups, also after a failure.";
        "timeout", Time, Literal("'1s'"), "'2s'", "'x'", "Timeout of a query; each nameserver is queried twice.";
        "hold", Time, Literal("'1h'"), "'10m'", "'for ever'", "Maximum time that the last addresses are kept while lookups fail or return no address.";
        "servers-max", Integer(1, 256), Literal("16"), "4", "0", "Maximum number of servers of one name; of more addresses, the lowest are used.";
        "prefer", Choice(&["ipv4", "ipv6"]), Literal("'ipv4'"), "'ipv6'", "'ip'", "Address family to query first; the other one only if there are no addresses.";
    }
    "pool.*.queue" {
        "limit", Count(0, 1_000_000), Literal("1024"), "0", "'1x'", "Maximum number of queued requests, on all cores; more are 503.";
        "timeout", Time, Literal("'100ms'"), "'1s'", "'1t'", "Maximum time in the queue; then 503.";
        "order", Choice(&["adaptive", "oldest-first", "newest-first"]), Literal("'adaptive'"), "'oldest-first'", "'lifo'", "Order of service. `adaptive`: oldest first while the queue is short, newest first while it is a standing queue, or while clients leave it before their turn (three within `standing-after`); then a request whose response would come after the longest wait of those clients gets no slot.";
        "standing-after", Time, Literal("'100ms'"), "'50ms'", "100", "Time after which the queue is a standing queue: its oldest request was never younger than a tenth of this time.";
    }
    "pool.*.adaptive" {
        "min", Count(1, 1_000_000), Literal("4"), "8", "0", "Minimum of the concurrency limit of a server.";
        "max", Count(1, 1_000_000), Literal("1000"), "200", "0", "Maximum of the concurrency limit of a server; its own `maxconn` may be lower.";
    }
    "pool.*.retry-budget" {
        "ratio", Fraction, Literal("0.2"), "'10%'", "1.5", "Maximum fraction of the pool's requests in the window that may be retries; 1: no limit.";
        "min", Integer(0, 1_000_000), Literal("3"), "10", "-1", "Minimum number of retries allowed in a window.";
        "window", Time, Literal("'10s'"), "'30s'", "10", "Sliding window, in eighths.";
    }
    "pool.*.timeouts" {
        "connect", Time, Literal("'5s'"), "'1s'", "'1'", "Maximum time to connect; then 503.";
        "first-byte", Time, Literal("'60s'"), "'2m'", "2", "Maximum time from the last byte of the request to the response head; then 504.";
        "idle", Time, Literal("'30s'"), "'1m'", "'9999h'", "Maximum time without content of a response; framing of chunks and trailers do not count. A server that reads a request slowly must also acknowledge 4 KiB in each such interval (TCP).";
        "abandoned", Time, Literal("'10s'"), "'30s'", "'0s'", "Maximum time that a limited server keeps the connection slot of a request whose client has left, unless the response or the connection ends first.";
        "tunnel", Time, Literal("'1h'"), "'1m'", "''", "Maximum time without a byte in either direction of a tunnel (Upgrade, CONNECT, TCP), a gRPC call over HTTP/2 or a stream of server-sent events (`text/event-stream`). A tunnel also ends if one side takes none of the bytes that wait for it for so long.";
    }
    "pool.*.limits" {
        "head", Size(256, 1 << 16), Literal("'16k'"), "'32k'", "'16'", "Maximum size of a response head in bytes, up to 64 KiB; larger is 502.";
        "headers", Integer(1, wire::HEADERS_CAP as u64), Literal("100"), "64", "'64'", "Maximum number of field lines of a response head, up to 128; more is 502.";
    }
}
