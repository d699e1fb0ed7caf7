//! The flags of `weir serve`.

use serve::plan::{FilesPlanText, OriginPlanText, OriginTlsText};

use super::server::{
    ACCESS_LOG, CONNECTIONS_MAX, DRAIN_TIMEOUT, LISTEN, PIN, THREADS, TLS_CERT, TLS_KEY, TLS_SELF_SIGNED,
    UNTIL_STDIN_CLOSES, XDP, XDP_EXPOSED,
};
use super::tls::{TLS_CIPHERS, TLS_GROUPS, TLS_KEY_LOG};
use super::{CommandArgs, CommandInfo, Flag, flag, switch};

pub(crate) const SERVE: CommandInfo = CommandInfo {
    name: "serve",
    about: "Serve files, or generated responses: an origin for tests",
    doc: "Without a directory, the URL sets the response: size, delay, status, chunks, CPU time. GET / \
          documents the URL options, a superset of httpterm's. GET /stats returns counters as JSON, so \
          that a client's counters can be checked against them.\n\nWith a directory, a file or - (standard \
          input), the URL is the path of a file: with validators, ranges, content codings, and nothing \
          outside of the directory. A directory that is replaced, by a link, a new one or a mount, is served \
          within a second or two. All flags of listeners, limits, TLS and logs apply to both.\n\nSIGUSR1 \
          reopens the access log, SIGTERM drains and stops.",
    values: Some(("DIR|FILE|-", "Directory, file or standard input to serve; default: generated responses")),
    flags: &[
        Flag { default: "127.0.0.1:8000", ..LISTEN },
        THREADS,
        PIN,
        switch("spin").doc(
            "Busy-poll instead of sleeping; delays (t=) then exclude the wake-up latency of \
             an idle CPU; each thread uses a complete core",
        ),
        XDP,
        XDP_EXPOSED,
        Flag { default: "descriptor limit minus 64", ..CONNECTIONS_MAX },
        flag("idle-timeout", "TIME")
            .default("60s")
            .values(&["5", "500ms"], &["0", "x"])
            .doc("Max time between requests on a connection; default unit: s"),
        flag("head-timeout", "TIME")
            .default("10s")
            .values(&["5"], &["0", "x"])
            .doc("Max time for a request head, first to last byte; default unit: s"),
        flag("body-timeout", "TIME").default("30s").values(&["5"], &["0", "x"]).doc(
            "Max time in which a request body brings less than 546 B/s, framing not counted; default \
             unit: s",
        ),
        flag("write-timeout", "TIME").default("30s").values(&["5"], &["0", "x"]).doc(
            "Max time in which a client with unread responses takes less than 136 B/s; default unit: \
             s",
        ),
        DRAIN_TIMEOUT,
        flag("head-bytes-max", "SIZE")
            .default("16k")
            .values(&["8k"], &["10", "x"])
            .doc("Max size of a request head; longer ones get status 431"),
        flag("http", "1.1|2|auto").default("auto").values(&["1.1", "2", "auto"], &["1", "h2"]).doc(
            "HTTP versions; auto: both, by ALPN with TLS, and by the first bytes of a connection \
             without it (prior knowledge; Upgrade: h2c is ignored)",
        ),
        flag("h2-streams-max", "N")
            .default("100")
            .values(&["1", "1k"], &["0", "x"])
            .doc("HTTP/2: max concurrent streams of a connection, 1 to 10,000; more are refused"),
        flag("h2-stream-window", "SIZE").default("1m").values(&["64k"], &["1k", "4g", "x"]).doc(
            "HTTP/2: max receive window of a stream; it grows from 65,535 bytes while the client \
             fills it",
        ),
        flag("h2-connection-window", "SIZE")
            .default("16m")
            .values(&["1m"], &["1k", "4g", "x"])
            .doc("HTTP/2: max receive window of a connection; it grows from 1 MiB, or this if it is less"),
        ACCESS_LOG,
        flag("access-log-format", "combined|json")
            .default("combined")
            .values(&["json", "combined"], &["xml"])
            .doc("Format of the access log: that of Apache and nginx, or a JSON object per line"),
        flag("stats-listen", "ADDRESS")
            .default("off")
            .values(&["127.0.0.1:0"], &["8000", "unix:/tmp/weir.sock"])
            .doc(
                "Address that serves the counters alone, at /stats: with files too, whose names cannot \
                 collide with it; port 0: chosen by the kernel; requests must name an address of this \
                 machine, or localhost; threads then share a table of descriptors, which costs some CPU \
                 time",
            ),
        switch("proxy-protocol").doc(
            "Expect a PROXY protocol header, version 1 or 2, at the start of every connection; its \
             client is the one in the access log; only for listeners that nobody but the proxy \
             reaches",
        ),
        flag("index", "NAME")
            .repeatable()
            .default("index.html")
            .values(&["index.htm"], &["a/b", ".x"])
            .doc("Files: name that stands for its directory; repeatable, the first that exists"),
        switch("list").doc(
            "Files: list directories without an index, as HTML, or as JSON if Accept names \
             application/json",
        ),
        switch("spa").doc(
            "Files: the index of the root instead of 404, for pages of an application: if Accept \
             names text/html, or the last name of the path has no extension",
        ),
        switch("hidden").doc(
            "Files: serve and list names that start with a dot; without it they are 404, except \
             /.well-known",
        ),
        switch("no-symlinks").doc(
            "Files: refuse all symbolic links; without it those that end in the directory are \
             followed",
        ),
        flag("header", "NAME: VALUE")
            .repeatable()
            .default("none")
            .values(&["X-Frame-Options: DENY"], &["X", "Content-Length: 5", "a b: c"])
            .doc("Files: field of every response; repeatable"),
        flag("cache-control", "VALUE")
            .default("none")
            .values(&["max-age=3600"], &["a\nb"])
            .doc("Files: Cache-Control of files, not of errors and lists"),
        flag("cors", "ORIGIN|*")
            .repeatable()
            .default("none")
            .values(&["*", "https://example.org"], &["example.org", "https://example.org/x"])
            .doc(
                "Files: origin whose pages may read the responses, * for all; repeatable; preflight \
                 requests get 204",
            ),
        flag("basic-auth", "USER:PASSWORD|@FILE")
            .repeatable()
            .default("none")
            .values(&["user:password"], &["user", "@/no/such/file"])
            .doc(
                "Files: require Basic credentials; @FILE has one USER:PASSWORD per line; repeatable; use \
                 it with TLS; other users of the machine can see the command line, so prefer a file",
            ),
        flag("compress", "CODING[:LEVEL],...")
            .default("off")
            .values(&["gzip,br:5", "all"], &["lzma", "gzip:10", "br:x"])
            .doc(
                "Files: compress text on the fly if the client accepts it: gzip (levels 1 to 9, default \
                 6), br (0 to 11, default 4), zstd (1 to 19, default 3), or all",
            ),
        flag("compress-min", "SIZE")
            .default("1k")
            .values(&["256"], &["x"])
            .doc("Files: min size of a file that is compressed on the fly"),
        flag("compress-memory", "SIZE").default("32m").values(&["64m"], &["x"]).doc(
            "Files: max memory of the encoders of each thread, but at least one; 0.4 to 84 MiB each \
             (br:4 2.3, zstd:3 2.5, gzip 0.4); responses beyond it are sent without a coding, and \
             counted (files_uncompressed)",
        ),
        flag("etag", "content|mtime-size|inode")
            .default("mtime-size")
            .values(&["content", "inode"], &["size"])
            .doc(
                "Files: source of entity tags; mtime-size: the same on replicas whose copies keep the \
                 times of files; content: a digest, for builds that give all files one time, or replicas \
                 with other times (a file over 32 KiB has no tag until it was read once); inode: differs \
                 on replicas",
            ),
        switch("no-precompressed").doc(
            "Files: ignore .br, .zst and .gz files beside a file; without it they are sent instead \
             of the file if the client accepts the coding and they are not older, and instead of \
             compressing on the fly",
        ),
        flag("file-cache", "N").default("1024").values(&["10k", "0"], &["2m", "x"]).doc(
            "Files: paths that each thread remembers, with open files and missing ones; files up to \
             32 KiB stay in memory; 0: every request opens its file",
        ),
        flag("file-cache-valid", "TIME").default("1s").values(&["60", "100ms"], &["0", "x"]).doc(
            "Files: time after which a remembered path is checked again; a changed file may be \
             served for up to 1 s longer; default unit: s",
        ),
        TLS_CERT,
        TLS_KEY,
        TLS_SELF_SIGNED,
        TLS_CIPHERS,
        TLS_GROUPS,
        TLS_KEY_LOG,
        switch("check").doc("Print what would be served, and its limits, and exit"),
        UNTIL_STDIN_CLOSES,
    ],
    examples: &[
        ("weir serve", "generated responses on 127.0.0.1:8000"),
        (
            "weir serve . --listen 127.0.0.1:0 --list --compress all",
            "the files of this directory, with lists of directories",
        ),
        ("weir serve . --check", "what would be served"),
        (
            "weir serve --listen 127.0.0.1:0 --listen unix:weir.sock -t 1",
            "one thread, two listeners, a port that the kernel chooses",
        ),
        ("weir serve --listen 127.0.0.1:0 --tls-self-signed", "HTTPS for clients that verify nothing"),
        ("weir serve --listen 127.0.0.1:0 --http 2", "HTTP/2 with prior knowledge only"),
    ],
};

pub(crate) fn serve_flags(args: CommandArgs<'_>) -> OriginPlanText {
    let text = |long| args.text(long).unwrap_or_default();
    OriginPlanText {
        listen: args.texts("listen"),
        threads: text("threads"),
        pin: text("pin"),
        spin: args.is_set("spin"),
        files: FilesPlanText {
            target: args.values().into_iter().next().unwrap_or_default(),
            index: args.texts("index"),
            list: args.is_set("list"),
            spa: args.is_set("spa"),
            hidden: args.is_set("hidden"),
            no_symlinks: args.is_set("no-symlinks"),
            headers: args.texts("header"),
            cache_control: text("cache-control"),
            cors: args.texts("cors"),
            basic_auth: args.texts("basic-auth"),
            compress: text("compress"),
            compress_min: text("compress-min"),
            compress_memory: text("compress-memory"),
            etag: text("etag"),
            no_precompressed: args.is_set("no-precompressed"),
            file_cache: text("file-cache"),
            file_cache_valid: text("file-cache-valid"),
        },
        proxy_protocol: args.is_set("proxy-protocol"),
        access_log: text("access-log"),
        access_log_format: text("access-log-format"),
        stats_listen: text("stats-listen"),
        tls: OriginTlsText {
            certificates: args.texts("tls-cert"),
            keys: args.texts("tls-key"),
            self_signed: args.is_set("tls-self-signed"),
            ciphers: args.text("tls-ciphers"),
            groups: args.text("tls-groups"),
            key_log: args.text("tls-key-log"),
        },
        idle_timeout: text("idle-timeout"),
        head_timeout: text("head-timeout"),
        body_timeout: text("body-timeout"),
        write_timeout: text("write-timeout"),
        drain_timeout: text("drain-timeout"),
        connections_max: text("connections-max"),
        head_bytes_max: text("head-bytes-max"),
        http: text("http"),
        h2_streams_max: text("h2-streams-max"),
        h2_stream_window: text("h2-stream-window"),
        h2_connection_window: text("h2-connection-window"),
        xdp: text("xdp"),
        xdp_exposed: args.is_set("xdp-exposed"),
    }
}
