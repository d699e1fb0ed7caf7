//! Every key that a config may have, one row each: its table, its kind, its default, an example that
//! is right and one that is wrong, and what it does. Reader, schema and reference are made from this.
//!
//! A table's path has `*` for a name and `[]` for an entry of a list. Examples and defaults are TOML.

use Fallback::{Is, Needed, Not};
use Kind::{
    Bool, Choice, Count, Entries, Fields, Named, Ratio, Secret, Share, Size, Status, StatusOrTrue,
    Table, Text, TextOrFalse, Texts, TextsOrNone, Time, Wanted, Whole,
};

use crate::plan::Balance;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// `true` or `false`.
    Bool,
    /// A number without unit, from and to.
    Whole(u64, u64),
    /// A number, or a text with a decimal multiplier, from and to.
    Count(u64, u64),
    /// A number of bytes, or a text with a binary multiplier, from and to.
    Size(u64, u64),
    /// A text with a unit of time, more than 0 and at most [`super::value::TIME_MAX_NS`].
    Time,
    /// From 0 to 1, or a text with `%`.
    Share,
    /// A number, from and to.
    Ratio(f64, f64),
    /// A text that no message repeats.
    Secret,
    /// A rate a second: a number, or a text with a decimal multiplier; more than 0.
    Rate,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A status, from and to.
    Status(u64, u64),
    /// `true`.
    True,
    /// `true`, or a status from 400.
    StatusOrTrue,
    /// What its name says.
    Text(&'static str),
    /// What its name says, or `false`.
    TextOrFalse(&'static str),
    /// One text, or a list with at least one.
    Texts(&'static str),
    /// One text, or a list that may be empty.
    TextsOrNone(&'static str),
    /// A table of this path.
    Table(&'static str),
    /// A list of tables of this path; the key that a text alone stands for, if it may.
    Entries(&'static str, Option<&'static str>),
    /// Named tables of this path.
    Named(&'static str),
    /// Names with texts.
    Fields,
    /// Names with what is wanted of them: a text, `true`, `false`, `{ regex = "…" }`.
    Wanted,
}

/// What holds when a key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fallback {
    /// It has to be there.
    Needed,
    /// This value.
    Is(&'static str),
    /// Nothing, which means this.
    Not(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directive {
    pub(super) table: &'static str,
    pub(super) key: &'static str,
    pub(super) kind: Kind,
    pub(super) fallback: Fallback,
    pub(super) right: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of the row reads it"))]
    pub(super) wrong: &'static str,
    pub(super) doc: &'static str,
}

/// The row of a key.
pub(super) fn directive(table: &str, key: &str) -> Option<&'static Directive> {
    of_table(table).find(|row| row.key == key)
}

/// The rows of a table.
pub(super) fn of_table(table: &str) -> impl Iterator<Item = &'static Directive> {
    DIRECTIVES.iter().filter(move |row| row.table == table)
}

macro_rules! directives {
    ($($table:literal { $($key:literal, $kind:expr, $fallback:expr, $right:literal, $wrong:literal, $doc:literal;)* })*) => {
        /// Every key.
        pub(super) const DIRECTIVES: &[Directive] = &[$($(Directive {
            table: $table,
            key: $key,
            kind: $kind,
            fallback: $fallback,
            right: $right,
            wrong: $wrong,
            doc: $doc,
        },)*)*];
    };
}

const MANY: u64 = 100_000_000;
const ANY_SIZE: u64 = 1 << 50;

directives! {
    "" {
        "threads", Whole(1, 1024), Not("one for each processor"), "2", "0", "Threads, a core each.";
        "pin", Text("a list of processors"), Not("not pinned"), "'0'", "'3-1'", "Processors to pin the threads to: `0,2-3`, or `all`.";
        "connections-max", Count(1, MANY), Not("what descriptors allow"), "'20k'", "'many'", "Connections of clients that may be open at a time, on all listeners.";
        "drain-timeout", Time, Is("'30s'"), "'5s'", "5", "How long requests in flight may go on after SIGTERM.";
        "admin", Text("an address"), Not("none"), "'127.0.0.1:8404'", "'8404'", "Where the status page, `/status.json`, `/metrics` and `/health` are served.";
        "admin-hosts", Texts("a host name"), Not("IP addresses and localhost only"), "'proxy.example.org'", "'a/b'", "Host names by which `admin` is reached. Requests for other names are refused (421), because a web page of another site could have made them.";
        "admin-token", Secret, Not("none"), "'a token of sixteen or more'", "'short'", "What requests to `admin` have to know, 16 bytes or more: as `Authorization: Bearer TOKEN`, or as the password of any user. `/health` takes none.";
        "control", Text("a path"), Not("none"), "'/run/weir.sock'", "''", "The unix socket that `weir ctl` operates the proxy through; for root and the proxy's own user only (mode 0600). A new process gets the listening sockets there (`weir proxy --upgrade-from`).";
        "privileges", Table("privileges"), Not("the defaults below"), "{ landlock = false }", "true", "Who the process becomes once its sockets are bound.";
        "log", Entries("log[]", None), Not("no log"), "[{ to = 'stdout' }]", "'stdout'", "Where requests are logged; any number, written `[[log]]`.";
        "listener", Named("listener.*"), Needed, "{ l = { bind = '127.0.0.1:0' } }", "[1]", "Where clients connect, written `[listener.NAME]`; at least one.";
        "route", Entries("route[]", None), Not("only the listeners' own pools"), "[{ deny = true }]", "{ pool = 'app' }", "Which request goes where, written `[[route]]`. They are tried in order; the first that matches decides.";
        "pool", Named("pool.*"), Not("no pool"), "{ app = { servers = ['127.0.0.1:9001'] } }", "'app'", "Where requests go, written `[pool.NAME]`.";
    }
    "privileges" {
        "user", Text("a user"), Not("not changed"), "'root'", "'no such user'", "The user to change to, by name or id.";
        "group", Text("a group"), Not("the user's own"), "'root'", "'no such group'", "The group to change to, by name or id.";
        "no-new-privileges", Bool, Is("true"), "false", "'yes'", "Whether the process gives up gaining privileges (prctl(2), `PR_SET_NO_NEW_PRIVS`).";
        "landlock", Bool, Is("true"), "false", "1", "Whether file access is confined with Landlock where the kernel has it.";
    }
    "log[]" {
        "to", Text("a place for log lines"), Needed, "'file:/tmp/weir.log'", "'/tmp/weir.log'", "`stdout`, `file:/path`, `syslog:127.0.0.1:514` (UDP) or `syslog:/dev/log`.";
        "format", Choice(&["json", "combined", "haproxy"]), Is("'json'"), "'combined'", "'xml'", "What a line looks like.";
        "sample", Share, Is("1.0"), "'10%'", "1.5", "The share of requests that is logged, by chance. Errors always are.";
        "only-errors", Bool, Is("false"), "true", "'no'", "Whether only requests that failed are logged.";
    }
    "listener.*" {
        "bind", Texts("an address"), Needed, "['127.0.0.1:0', 'unix:/tmp/weir.sock']", "'127.0.0.1:99999'", "Where it listens: `127.0.0.1:80`, `[::1]:80`, `:80` or `unix:/path`.";
        "unix-mode", Text("a mode"), Not("what the umask leaves of 0777"), "'0660'", "'rw'", "The mode of its unix sockets, octal. Connecting takes the right to write.";
        "unix-user", Text("a user"), Not("the user that starts weir"), "'root'", "'no such user'", "The owner of its unix sockets, by name or id. Another user than that of the process takes root.";
        "unix-group", Text("a group"), Not("the group that starts weir"), "'root'", "'no such group'", "The group of its unix sockets, by name or id.";
        "mode", Choice(&["http", "tcp"]), Is("'http'"), "'tcp'", "'https'", "`http` is routed by request; `tcp` passes bytes on to its pool.";
        "pool", Text("a pool's name"), Not("with `http`, 404 when no route matches"), "'app'", "'ap'", "Where everything goes (`tcp`, needed), or what no route matched (`http`).";
        "namespace", Text("a network namespace"), Not("our own"), "'/proc/self/ns/net'", "'no-such-namespace'", "The network namespace to listen in: a name of `ip netns`, or a path.";
        "proxy-protocol", Bool, Is("false"), "false", "'v2'", "Whether each connection starts with a PROXY protocol header; peers that are not trusted are refused.";
        "trusted", TextsOrNone("a network"), Not("nobody"), "['10.0.0.0/8', '::1']", "'10.0.0.1/8'", "Peers whose forwarding fields, request ids and PROXY headers are believed; `unix` for those on a unix socket. From anybody else `Forwarded`, `X-Forwarded` and `X-Forwarded-*`, `X-Real-IP`, `X-Client-IP`, `True-Client-IP`, `CF-Connecting-IP`, `X-Cluster-Client-IP`, `X-Original-URL` and `X-Rewrite-URL` are neither forwarded nor looked at.";
        "connections-max", Count(1, MANY), Not("only the process's bound"), "10000", "0", "Connections that may be open at a time; each thread may have one at least.";
        "requests-max", Count(1, MANY), Not("any number"), "1000", "-1", "Requests on one connection; the last answer closes it.";
        "body-max", Size(0, ANY_SIZE), Not("any length"), "'10m'", "'10x'", "Bytes of a request's body; more is 413.";
        "connect", Bool, Is("false"), "true", "'on'", "Whether CONNECT is passed on; else it is 405.";
        "backlog", Whole(1, 65_535), Is("1024"), "256", "0", "Connections that the kernel keeps for each thread until they are accepted (listen(2)); a change takes a restart.";
        "connections-rate", Kind::Rate, Not("any rate"), "'500/s'", "0", "New connections a second, on all threads.";
        "connections-burst", Count(1, MANY), Not("the connections of a second, at least 1"), "50", "0", "How many new connections may come at once.";
        "on-limit", Choice(&["reject", "reset", "wait"]), Not("`reject` over a rate or a source's bound, `wait` over `connections-max`"), "'reject'", "'drop'", "What becomes of a connection over a limit: its first request is answered 503 (over its source's, 429) and it is closed (`reject`; in mode tcp it is reset), it is reset at once, or it waits unread. Over a source's bound none waits.";
        "per-source", Table("listener.*.per-source"), Not("no bound"), "{ connections = 100 }", "100", "What one network of clients may have.";
        "deadline-headers", TextsOrNone("a field name"), Is("['x-request-timeout', 'grpc-timeout']"), "['x-deadline']", "'x deadline'", "Fields in which trusted peers tell how long their client waits: seconds, or with a unit (`500ms`); `grpc-timeout` in its own form. A request that cannot be answered in time is 504 at once.";
        "path", Choice(&["normalise", "strict", "raw"]), Is("'normalise'"), "'strict'", "'nginx'", "The form in which request paths are routed and forwarded (see \"Paths\" below). `normalise`: the normal form, and 400 for a path that servers read in different ways. `strict`: 400 also for a path that is not in its normal form, or has empty segments. `raw`: forwarded as it came, and routed by its normal form; what a server makes of such a path is not what a route denies.";
        "underscores", Choice(&["drop", "reject", "pass"]), Is("'drop'"), "'reject'", "true", "What becomes of fields with an underscore in their names, which some servers take for a hyphen: they are not forwarded, the request is 400, or they are forwarded. Those of trusted peers are always forwarded.";
        "half-close", Bool, Is("false"), "true", "0", "Whether a client that ended its sending side after its request gets its response. Without it, a client that ends its stream has left: its request is aborted while it is queued, while a server is being connected to, and while a server has not begun to respond (the connection to the server is closed).";
        "buffer-request", Size(0, 1 << 20), Is("'8k'"), "'16k'", "'2m'", "Bytes of a body that are received before the request takes a slot of a bounded server (`maxconn`, `adaptive`), so that slow clients hold none; 0: it is taken with the head. Not for requests with `Expect: 100-continue`.";
        "limits", Table("listener.*.limits"), Not("the defaults below"), "{ head = '16k' }", "'16k'", "Bounds of a request's head.";
        "forwarding", Table("listener.*.forwarding"), Not("the defaults below"), "{ forwarded = true }", "false", "What servers are told about where a request came from.";
        "timeouts", Table("listener.*.timeouts"), Not("the defaults below"), "{ head = '5s' }", "'5s'", "How long clients may take.";
    }
    "listener.*.per-source" {
        "connections", Count(1, 10_000_000), Not("any number"), "100", "0", "Connections at a time, on all threads.";
        "connections-rate", Kind::Rate, Not("any rate"), "'10/s'", "'x'", "New connections a second, on all threads.";
        "connections-burst", Count(1, MANY), Not("the connections of a second, at least 1"), "20", "0", "How many new connections may come at once.";
        "requests-rate", Kind::Rate, Not("any rate"), "'100/s'", "-1", "Requests a second, on all threads; beyond, 429 with `Retry-After`.";
        "requests-burst", Count(1, MANY), Not("the requests of a second, at least 1"), "200", "0", "How many requests may come at once.";
        "prefix4", Whole(0, 32), Is("32"), "24", "33", "Leading bits of an IPv4 address that make one source.";
        "prefix6", Whole(0, 128), Is("64"), "56", "129", "Leading bits of an IPv6 address that make one source.";
        "entries", Count(8, 10_000_000), Is("10000"), "'100k'", "0", "Sources that are remembered. One without connections is forgotten for a new one; when a new one finds no place, it is served without a bound, and counted.";
    }
    "listener.*.limits" {
        "head", Size(256, 1 << 16), Is("'16k'"), "'32k'", "'65k'", "Bytes of a head, 64 KiB at most; more is 431.";
        "headers", Whole(1, wire::HEADERS_CAP as u64), Is("100"), "64", "1000", "Field lines of a head, 128 at most; more is 431.";
        "target", Size(16, 1 << 20), Is("'8k'"), "4096", "1", "Bytes of a request target; more is 414.";
    }
    "listener.*.forwarding" {
        "x-forwarded", Bool, Is("true"), "false", "'for'", "Whether `X-Forwarded-For`, `-Proto` and `-Host` are sent. Such a field that a route sets or removes is not.";
        "forwarded-for", Choice(&["append", "if-none"]), Is("'append'"), "'if-none'", "'always'", "What becomes of the `X-Forwarded-For` of a trusted peer: the client's address is appended to it, or it stays as it is.";
        "forwarded", Bool, Is("false"), "true", "'for'", "Whether `Forwarded` (RFC 7239) is sent.";
        "via", TextOrFalse("a pseudonym"), Is("'weir'"), "false", "'two words'", "The pseudonym in `Via`; `false`: no `Via` is added.";
        "request-id", TextOrFalse("a field name"), Is("'x-request-id'"), "'x-id'", "'x id'", "The field with the request id; `false`: none.";
    }
    "listener.*.timeouts" {
        "head", Time, Is("'10s'"), "'5s'", "'5 s'", "From a head's first byte to its last; then 408.";
        "body", Time, Is("'1h'"), "'10m'", "'0s'", "From a request's first byte to the last of its body; then 408.";
        "body-idle", Time, Is("'30s'"), "'1m'", "'0s'", "Without a byte of an expected body; then 408.";
        "body-progress", Time, Is("'30s'"), "'1m'", "true", "In each such time a body has to bring `body-progress-bytes`, or end.";
        "body-progress-bytes", Size(0, ANY_SIZE), Is("'16k'"), "0", "'4s'", "See `body-progress`; the defaults are a minimum of 546 bytes a second.";
        "write", Time, Is("'30s'"), "'1m'", "'1y'", "In each such time a client that does not keep up with its answer has to confirm `write-progress-bytes` of it (TCP acknowledgements).";
        "write-progress-bytes", Size(0, ANY_SIZE), Is("'4k'"), "0", "'4s'", "See `write`; 0: any byte will do.";
        "keep-alive", Time, Is("'60s'"), "'500ms'", "'-1s'", "Between two requests, and before the first.";
    }
    "route[]" {
        "name", Text("a name"), Not("`route-N`, by its place"), "'api'", "'a b'", "Its name in logs and metrics.";
        "listener", Texts("a listener's name"), Not("all that speak HTTP"), "'web'", "'wb'", "The listeners that it is for.";
        "host", Texts("a host"), Not("any"), "['example.org', '*.example.org']", "'exa*mple.org'", "Hosts, any of them; `*.example.org` is any name below.";
        "path", Texts("a path"), Not("any"), "'/exact'", "'exact'", "Paths; with `path-prefix` and `path-regex`, any of them. Compared once normalised.";
        "path-prefix", Texts("a path"), Not("any"), "'/api'", "'/a/../b'", "This path, or anything below it.";
        "path-regex", Texts("a regular expression"), Not("any"), "'^/v[0-9]+/'", "'('", "A regular expression that fits somewhere in the path, compiled to at most 256 KiB.";
        "method", Texts("a method"), Not("any"), "['GET', 'HEAD']", "'G T'", "Methods, any of them.";
        "header", Wanted, Not("any"), "{ x-a = 'v', x-b = true, x-c = { regex = '^v' } }", "{ x-a = 1 }", "Fields, all of them: a text, `true` (present), `false` (absent) or `{ regex = \"…\" }`.";
        "query", Wanted, Not("any"), "{ debug = '1' }", "{ debug = { regx = '1' } }", "Parameters of the query, all of them, as with `header`.";
        "source", Texts("a network"), Not("any"), "['10.0.0.0/8']", "'10.0.0.0/33'", "Networks of the client, any of them.";
        "rewrite-prefix", Text("a path"), Not("not changed"), "'/v1'", "'v1'", "What `path-prefix` matched becomes this; needs exactly one `path-prefix`.";
        "rewrite-path", Text("a path"), Not("not changed"), "'/x'", "'/x?y'", "The whole path becomes this; the query stays.";
        "remove-request-header", TextsOrNone("a field name"), Not("none"), "['cookie']", "'host'", "Fields of the request that are removed, before any is set or added.";
        "set-request-header", Fields, Not("none"), "{ x-env = 'prod' }", "{ 'x env' = 'prod' }", "Fields of the request that are set.";
        "add-request-header", Fields, Not("none"), "{ x-tag = '1' }", "{ x-tag = 1 }", "Fields of the request that are added.";
        "remove-response-header", TextsOrNone("a field name"), Not("none"), "['server']", "'content-length'", "As for requests.";
        "set-response-header", Fields, Not("none"), "{ server = 'weir' }", "{ x = \"a\\nb\" }", "As for requests.";
        "add-response-header", Fields, Not("none"), "{ x-tag = '1' }", "{ connection = 'close' }", "As for requests.";
        "priority", Choice(&["high", "normal", "low"]), Is("'normal'"), "'high'", "'urgent'", "How urgent its requests are in a pool's queue: the more urgent go first, the less urgent are put out first when it is full, and one in 16 goes to a class that was passed over.";
        "rate-limit", Table("route[].rate-limit"), Not("none"), "{ rate = 100 }", "100", "How many requests it takes; beyond, it answers itself.";
        "pool", Text("a pool's name"), Not("another action"), "'app'", "'ap'", "Action: to a server of this pool. A route has exactly one action.";
        "redirect", Table("route[].redirect"), Not("another action"), "{ location = 'https://{host}{path}{query}' }", "'/x'", "Action: a redirect.";
        "answer", Table("route[].answer"), Not("another action"), "{ status = 200, body = 'hello' }", "200", "Action: a fixed answer.";
        "deny", StatusOrTrue, Not("another action"), "404", "false", "Action: refused with this status; `true`: 403.";
        "silent-drop", Kind::True, Not("another action"), "true", "false", "Action: the connection is reset, in a way that clients beyond the first router do not hear of.";
        "tarpit", Table("route[].tarpit"), Not("another action"), "{ delay = '5s' }", "'5s'", "Action: kept waiting, and then refused.";
    }
    "route[].rate-limit" {
        "rate", Kind::Rate, Needed, "'10k/s'", "0", "Requests a second, on all threads together: exact up to 2 %, however connections are spread over threads.";
        "burst", Count(1, MANY), Not("the requests of a second, at least 1"), "20", "0", "How many may come at once.";
        "key", Text("`route`, `source` or `header:NAME`"), Is("'source'"), "'header:x-key'", "'client'", "What has a bucket of its own: the route, a client's address (IPv6: /64) or a field's value.";
        "status", Status(400, 599), Is("429"), "503", "200", "What is answered beyond, with `Retry-After`.";
        "keys-max", Count(1, 10_000_000), Is("10000"), "'100k'", "0", "How many keys are remembered, on all threads; the one whose bucket is full first is forgotten first.";
    }
    "route[].redirect" {
        "status", Status(301, 308), Is("302"), "301", "304", "301, 302, 303, 307 or 308.";
        "location", Text("a location"), Needed, "'{path}'", "'{url}'", "Where to. `{host}` is the request's host without port, `{path}` its path, `{query}` its query with the `?`, or nothing.";
    }
    "route[].answer" {
        "status", Status(200, 599), Is("200"), "204", "100", "Its status.";
        "content-type", Text("a field value"), Is("'text/plain; charset=utf-8'"), "'text/html'", "\"a\\u0000b\"", "Its `Content-Type`.";
        "body", Text("a text up to 64 KiB"), Is("''"), "'hello'", "5", "Its content.";
    }
    "route[].tarpit" {
        "delay", Time, Is("'10s'"), "'5s'", "5", "For how long.";
        "status", Status(400, 599), Is("403"), "404", "200", "With what it is refused then.";
    }
    "pool.*" {
        "servers", Entries("pool.*.servers[]", Some("address")), Needed, "['127.0.0.1:9001', { address = '127.0.0.1:9002', weight = 2 }]", "[]", "Its servers: addresses, or tables; at least one.";
        "balance", Choice(Balance::NAMES), Is("'random-of-two'"), "'round-robin'", "'leastconn'", "How a server is chosen, always by weight: of two random ones the one with fewer requests in flight (`random-of-two`) or with the shorter response time times its requests in flight (`latency`); in turn; the one with the fewest requests in flight; by a key (`consistent-hash`, see `hash`); or the first that is not at its `maxconn`, where only weight 0 means anything.";
        "hash", Table("pool.*.hash"), Not("the defaults below"), "{ key = 'path' }", "'path'", "What `consistent-hash` goes by.";
        "sticky", Table("pool.*.sticky"), Not("none"), "{ cookie = 'SRV', key = 'change me, or use key-file' }", "'SRV'", "A cookie that keeps a client at its server.";
        "reuse", Choice(&["never", "safe", "always"]), Is("'safe'"), "'always'", "true", "Which connections to servers a request may be sent on. `never`: only those of its own client. `always`: any idle one. `safe`: any idle one, but a client's first request only if it can be sent again when that fails (an idempotent method, and all of it still held); HAProxy's `safe` takes a new connection for every first request.";
        "idle-max", Count(0, 1_000_000), Is("1024"), "'2k'", "-1", "Idle connections kept to each server.";
        "idle-timeout", Time, Is("'30s'"), "'1m'", "60", "How long an idle connection is kept.";
        "queue", Table("pool.*.queue"), Not("the defaults below"), "{ limit = 10 }", "10", "The line that requests wait in when all servers are at their `maxconn`.";
        "maxconn", Count(1, 1_000_000), Not("only the servers' bounds"), "100", "0", "Requests that all its servers together may have at a time, on all cores.";
        "adaptive", Table("pool.*.adaptive"), Not("bounds stay as they are"), "{ max = 200 }", "true", "Each server's bound follows what it can do: it grows as long as answers take no longer.";
        "retry-budget", Table("pool.*.retry-budget"), Not("the defaults below"), "{ share = '10%' }", "0.2", "How many requests may be sent again, on all cores.";
        "timeouts", Table("pool.*.timeouts"), Not("the defaults below"), "{ connect = '1s' }", "'1s'", "How long servers may take.";
        "limits", Table("pool.*.limits"), Not("the defaults below"), "{ head = '32k' }", "[]", "Bounds of a response's head.";
        "check", Table("pool.*.check"), Not("none"), "{ type = 'http', path = '/health' }", "true", "Checks of its servers, made by the proxy itself.";
        "outlier", Table("pool.*.outlier"), Not("the defaults below"), "{ failures = 3 }", "3", "When a server that fails requests gets none for a while.";
        "resolve", Table("pool.*.resolve"), Not("the defaults below"), "{ nameserver = '127.0.0.1:53' }", "'127.0.0.1:53'", "How the names of its servers are looked up.";
        "slow-start", Time, Not("all of its share at once"), "'10s'", "10", "For how long a server that came back gets less than its share: from a tenth up to all of it.";
        "retries", Whole(0, 10), Is("1"), "0", "11", "How often a request may be sent again; only when nothing of it can have had an effect.";
        "send-proxy-protocol", Choice(&["v1", "v2"]), Not("none"), "'v2'", "true", "A PROXY protocol header at the start of each connection to a server.";
        "namespace", Text("a network namespace"), Not("our own"), "'/proc/self/ns/net'", "'no-such-namespace'", "The network namespace to connect in: a name of `ip netns`, or a path.";
    }
    "pool.*.servers[]" {
        "address", Text("an address"), Not("`srv`"), "'unix:/tmp/app.sock'", "'127.0.0.1:0'", "Where it listens. A name, as in `app.internal:8080`, is looked up as it is, without search domains, and again now and then (see `[pool.NAME.resolve]`); each of its addresses is a server.";
        "srv", Text("a name"), Not("`address`"), "'_http._tcp.app.internal'", "'app internal'", "A service (RFC 2782): each address of its hosts is a server, with the record's port and weight; only records of the lowest priority count.";
        "name", Text("a name"), Not("its address"), "'a'", "'a b'", "Its name in logs and metrics.";
        "weight", Whole(0, 256), Is("1"), "2", "257", "Its share against the others'; 0: none.";
        "maxconn", Count(1, 1_000_000), Not("any number"), "10", "0", "Requests that it may have at a time, on all cores.";
        "backup", Bool, Is("false"), "true", "'yes'", "Whether it gets requests only when no other server may have any: those are down, in drain or maintenance, or of weight 0, and not merely full.";
    }
    "pool.*.hash" {
        "key", Text("`source`, `path`, `header:NAME` or `cookie:NAME`"), Is("'source'"), "'header:x-user'", "'client'", "The key: the client's address (IPv6: its /64), the path normalised and without the query, a field's first value or a cookie's. Without one a request goes to the better of two random servers.";
        "load-factor", Ratio(1.0, 100.0), Is("1.25"), "1.5", "0.9", "How many requests a server may have, as a multiple of its share of those in flight on a core; more go where their key belongs next.";
    }
    "pool.*.sticky" {
        "cookie", Text("a cookie's name"), Needed, "'SRV'", "'a b'", "The cookie's name.";
        "mode", Choice(&["insert", "prefix"]), Is("'insert'"), "'prefix'", "'rewrite'", "`insert`: a cookie of the proxy's own, which servers do not see; `prefix`: the application's cookie of that name, whose value gets a prefix on its way out and loses it on its way in.";
        "key", Secret, Not("`key-file`"), "'change me, or use key-file'", "'too short'", "What authenticates the cookie, 16 bytes or more: who knows it can choose servers. All proxies of a service have the same.";
        "key-file", Text("a file"), Not("`key`"), "'/etc/weir/sticky.key'", "'/no/such/file'", "A file with the key instead, read with the config; white space around it does not count.";
        "max-age", Time, Not("as long as the browser"), "'1h'", "3600", "How long the cookie lives from the last request on; then it is sent with each answer.";
        "secure", Bool, Is("false"), "true", "'yes'", "Whether it is only sent over TLS.";
        "http-only", Bool, Is("true"), "false", "'no'", "Whether scripts do not see it.";
        "same-site", Choice(&["strict", "lax", "none"]), Is("'lax'"), "'strict'", "false", "When requests from other sites have it.";
    }
    "pool.*.check" {
        "type", Choice(&["tcp", "http", "agent"]), Needed, "'tcp'", "'ping'", "`tcp` connects; `http` asks and looks at the answer; `agent` reads a line of HAProxy's agent protocol: `up`, `ready`, `down`, `fail`, `stopped`, `drain`, `maint`, `75%`, `maxconn:30`, any of them.";
        "address", Text("an address"), Not("the server's own"), "'127.0.0.1:9101'", "'9101'", "Where checks go.";
        "port", Whole(1, 65_535), Not("the server's own"), "9101", "0", "The port that checks go to.";
        "method", Text("a method"), Is("'GET'"), "'HEAD'", "'G T'", "With `http`: the method.";
        "path", Text("a target"), Is("'/'"), "'/health?full=1'", "'health'", "With `http`: the request target; `*` with `method = \"OPTIONS\"`.";
        "host", Text("a host"), Not("the server's address"), "'app.internal'", "'a b'", "With `http`: the `Host`.";
        "headers", Fields, Not("none"), "{ x-check = 'weir' }", "{ 'x y' = '1' }", "With `http`: further fields.";
        "status", Text("statuses"), Is("'200-399'"), "'200,204,300-399'", "'ok'", "With `http`: the statuses that pass.";
        "body", Text("a text"), Not("not read"), "'ready'", "1", "With `http`: what has to stand in the first 64 KiB of the content.";
        "send", Text("a text"), Not("nothing"), "\"hello\\n\"", "1", "With `agent`: what is sent to it first.";
        "interval", Time, Is("'2s'"), "'5s'", "2", "Between two checks of a server. The first is made at once, spread by `jitter`; until then a server counts as up, and one check that fails is enough then.";
        "fast-interval", Time, Not("`interval`"), "'500ms'", "'500'", "The same while a server is on its way up or down.";
        "down-interval", Time, Not("`interval`"), "'5s'", "true", "The same while a server is down.";
        "timeout", Time, Is("'1s'"), "'500ms'", "'0s'", "How long a check may take; one of a server is made at a time.";
        "rise", Whole(1, 255), Is("2"), "1", "0", "Checks in a row that have to pass until a server is up again. What an agent says holds at once.";
        "fall", Whole(1, 255), Is("3"), "2", "0", "Checks in a row that have to fail until a server is down.";
        "jitter", Share, Is("0.1"), "'20%'", "2", "By which share an interval is longer or shorter by chance.";
    }
    "pool.*.outlier" {
        "failures", Whole(0, 10_000), Is("5"), "3", "-1", "Failures in a row (no connection, no answer in time, none that is valid) until a server is ejected; 0: not looked at.";
        "errors", Whole(1, 10_000), Not("not looked at"), "10", "0", "The same of failures and answers with one of `statuses`.";
        "statuses", Text("statuses"), Is("'500-599'"), "'502-504'", "'5xx'", "The answers that are errors.";
        "error-rate", Share, Not("not looked at"), "'50%'", "'150%'", "The share of a server's requests in a window that may be errors.";
        "latency-factor", Whole(2, 1000), Not("not looked at"), "5", "1", "How many times the pool's median a server's mean time to the first byte may be in a window.";
        "window", Time, Is("'10s'"), "'30s'", "10", "What rates and latencies are taken over.";
        "requests-min", Count(1, MANY), Is("20"), "100", "0", "Requests that a server needs in a window to be judged by it.";
        "ejection", Time, Is("'10s'"), "'30s'", "'10'", "For how long a server is ejected at first; each time after that, as much longer. Then one request tries it, and all of its share follows if that goes well.";
        "ejection-max", Time, Is("'5m'"), "'1m'", "5", "The longest ejection. A server that was well for so long starts anew.";
        "max-ejected", Share, Is("0.5"), "'25%'", "'x'", "The share of a pool's servers that may be ejected at a time; one may always be, and the last one that gets requests never.";
    }
    "pool.*.resolve" {
        "nameserver", Texts("an address"), Not("those of `/etc/resolv.conf`, after `/etc/hosts`"), "['127.0.0.1:53', '::1']", "'localhost'", "Whom to ask, in this order; port 53 by default. Asked from our own network namespace.";
        "interval", Time, Is("'10s'"), "'1m'", "10", "The longest time between two look-ups; a shorter TTL of the records makes it shorter.";
        "interval-min", Time, Is("'1s'"), "'5s'", "1", "The shortest time between two look-ups, also after one that failed.";
        "timeout", Time, Is("'1s'"), "'2s'", "'x'", "How long a nameserver may take; each is asked twice.";
        "hold", Time, Is("'1h'"), "'10m'", "'for ever'", "For how long what was known last is kept while there is no answer, or none with an address.";
        "servers-max", Whole(1, 256), Is("16"), "4", "0", "Servers that one name may become; of more, the first by address are taken.";
        "prefer", Choice(&["ipv4", "ipv6"]), Is("'ipv4'"), "'ipv6'", "'ip'", "The addresses to ask for first; the others only if there are none.";
    }
    "pool.*.queue" {
        "limit", Count(0, 1_000_000), Is("1024"), "0", "'1x'", "How many requests may wait, on all cores; more are 503.";
        "timeout", Time, Is("'100ms'"), "'1s'", "'1t'", "How long one may wait; then 503.";
        "order", Choice(&["adaptive", "oldest-first", "newest-first"]), Is("'adaptive'"), "'oldest-first'", "'lifo'", "Who is served first. `adaptive`: the oldest while the queue is short, the newest when it stands.";
        "stands-after", Time, Is("'100ms'"), "'50ms'", "100", "The queue stands when for so long its oldest was never younger than a tenth of that.";
    }
    "pool.*.adaptive" {
        "min", Count(1, 1_000_000), Is("4"), "8", "0", "Requests that a server may always have at a time.";
        "max", Count(1, 1_000_000), Is("1000"), "200", "0", "Requests that a server may have at a time at most; its own `maxconn` may be less.";
    }
    "pool.*.retry-budget" {
        "share", Share, Is("0.2"), "'10%'", "1.5", "Of the pool's requests in the window; 1: any number.";
        "min", Whole(0, 1_000_000), Is("3"), "10", "-1", "So many are allowed in any window.";
        "window", Time, Is("'10s'"), "'30s'", "10", "How far back is counted; it slides on in eighths.";
    }
    "pool.*.timeouts" {
        "connect", Time, Is("'5s'"), "'1s'", "'1'", "Until a connection stands; then 503.";
        "first-byte", Time, Is("'60s'"), "'2m'", "2", "From the request's last byte to the response's head; then 504.";
        "idle", Time, Is("'30s'"), "'1m'", "'9999h'", "Without a byte of a response; and a server that takes a request slowly has to confirm 4 KiB in each such time (TCP acknowledgements).";
        "abandoned", Time, Is("'10s'"), "'30s'", "'0s'", "How long a bounded server keeps the place of a request whose client has gone, unless it ends its answer or its connection before.";
        "tunnel", Time, Is("'1h'"), "'1m'", "''", "Without a byte in either direction of a tunnel (Upgrade, CONNECT, TCP).";
    }
    "pool.*.limits" {
        "head", Size(256, 1 << 16), Is("'16k'"), "'32k'", "'16'", "Bytes of a response's head, 64 KiB at most; more is 502.";
        "headers", Whole(1, wire::HEADERS_CAP as u64), Is("100"), "64", "'64'", "Field lines of a response's head, 128 at most; more is 502.";
    }
}
