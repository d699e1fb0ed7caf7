//! The flags of `weir load` for requests, checks, connections and the course of the load; and the files
//! that they name.

use std::io;
use std::sync::Arc;

use load::plan::{CsvTable, ExpectFlags, ReplayLog, RequestText, ScenarioFile, flag_form, parse_targets};
use record::document::table::{KeySpec, key};
use record::problem::InputProblem;

use super::load::{LOAD, read_body};
use super::{CommandArgs, FLAG_DEFAULTS, Flag, flag, switch};
use crate::input_file;

pub(super) const EXPECT_STATUS: Flag = flag("expect-status", "LIST")
    .default("any; 400 and above are errors")
    .values(&["200", "2xx,304"], &["2x", "99"])
    .doc("Expected statuses: 200, 2xx or 200,404; any other is an error");
pub(super) const EXPECT_BYTES: Flag = flag("expect-bytes", "SIZE")
    .aliases(&["--expect-length"])
    .default("any")
    .values(&["0", "64k"], &["x"])
    .doc("Expected body size; any other is an error");
pub(super) const EXPECT_HASH: Flag = flag("expect-hash", "HASH")
    .default("any")
    .values(&["same", "crc32:9ef61f95"], &["x", "md5:00", "crc32:1"])
    .doc(
        "Expected hash of the body: sha256:HEX, crc32:HEX, or same for that of the first response to the \
         request; any other is an error",
    );
pub(super) const EXPECT_BODY: Flag = flag("expect-body", "REGEX")
    .default("any")
    .values(&["\"status\": *\"ok\"", "^<html"], &["(", "[a"])
    .doc("Regular expression that the body contains; a body without it is an error");
pub(super) const EXPECT_HEADER: Flag = flag("expect-header", "'NAME[: VALUE]'")
    .repeatable()
    .default("any")
    .values(&["Content-Type: ~^text/", "ETag"], &["a b: c", "a: ~("])
    .doc(
        "Expected header field of the response: its name, name and value, or name and ~REGEX; a \
         response without it is an error; repeatable",
    );
pub(super) const TARGETS: Flag = flag("targets", "FILE").values(&[], &["/no/such/file"]).doc(
    "File of requests: METHOD URL, then fields, then @FILE with the body, separated by empty lines (as of \
     vegeta); '# weight N' before a request sets its weight",
);
pub(super) const WEIGHTS: Flag = flag("weights", "N,N")
    .default("all equal")
    .values(&["3"], &["1,2", "0", "x"])
    .doc("Weights of the URLs, in their order; the connections are spread over the servers by their weights");
pub(super) const VALUES: Flag = flag("values", "FILE").values(&[], &["/no/such/file"]).doc(
    "CSV file with the names of its columns in the first line; each request uses the next row for \
     {{csv:COLUMN}} in its URL, fields and body",
);
pub(super) const COOKIES: Flag = switch("cookies").doc(
    "Store the cookies of responses and send them back; each connection has its own, and keeps them when it \
     is opened again",
);
pub(super) const CAPTURE: Flag =
    flag("capture", "NAME=PART").repeatable().values(&[], &["x", "a=b", "a=body:("]).doc(
        "Value that each connection takes from its responses for {{value:NAME}} in the next request: \
         header:FIELD, cookie:NAME or body:REGEX (its first group, in the first 64 KiB); repeatable",
    );
pub(super) const CONNECT_TO: Flag = flag("connect-to", "HOST:PORT")
    .repeatable()
    .values(&["127.0.0.1:8443", "example.org:443:127.0.0.1:8443"], &["x", "a:b", "a:1:2"])
    .doc(
        "Connect to this address instead of the URL's; HOST1:PORT1:HOST2:PORT2 does it only for URLs \
         with the first (as of curl); repeatable",
    );
pub(super) const ADDRESSES: Flag =
    flag("addresses", "one|all").default("one").values(&["all"], &["some"]).doc(
        "Addresses of a name that has several: one, the first that accepts a connection before the load \
         (RFC 6724, RFC 8305), for all connections; or all of them in turn",
    );
pub(super) const PROXY_PROTOCOL: Flag = flag("proxy-protocol", "v1|v2")
    .values(&["v1", "v2"], &["3"])
    .doc("Begin each connection with a PROXY header, with its own addresses or those of --proxy-source");
pub(super) const PROXY_SOURCE: Flag = flag("proxy-source", "ADDRESS")
    .repeatable()
    .default("the connection's own")
    .values(&["192.0.2.0/24", "192.0.2.1-192.0.2.9"], &["localhost"])
    .doc("Client addresses in the PROXY headers, round-robin: one, a range a-b, or a network a/n");
pub(super) const REPLAY: Flag = flag("replay", "FILE").values(&[], &["/no/such/file"]).doc(
    "Replay a log to the server of the URL: an access log (combined, HAProxy HTTP, W3C extended as \
     of IIS and CloudFront, AWS load balancers, Squid, logfmt as of Heroku, or JSON by line) or a HAR; also compressed \
     (gzip, zstd), from a pipe, or from stdin (-); each request is due at its original time, and \
     those of a log with whole seconds are spread over the second; lines that are no request are \
     skipped and counted; a HAR also has fields and bodies, and its entries that the server did not \
     get are skipped: from the browser's cache or a service worker, blocked or failed",
);
pub(super) const SPEED: Flag = flag("speed", "FACTOR")
    .default("1x")
    .values(&[], &["x", "0", "2"])
    .doc("Speed of the replay: 2x takes half of the original time");
pub(super) const STRICT: Flag = switch("strict").doc(
    "Reject a log of --replay with lines that are no request, or that HTTP cannot carry, instead of \
     skipping them",
);
pub(super) const HAR_HOSTS: Flag = flag("har-hosts", "all|HOST,HOST")
    .default("that of the URL, or else of the first entry")
    .values(&["all", "www.example.org,api.example.org:8443"], &["http://a/", ""])
    .doc(
        "Hosts of a HAR whose entries are sent, all to the host of the URL; entries of other hosts are \
         counted",
    );
pub(super) const FILE: Flag = flag("file", "FILE").short('f').values(&[], &["/no/such/file"]).doc(
    "Scenario file in TOML: the names of the options as keys, urls = [...], and [[request]] tables with url, \
     method, header, data, data-file and weight; the command line takes precedence",
);
pub(super) const OPENMETRICS: Flag = flag("openmetrics", "FILE")
    .doc("Write the live figures in OpenMetrics format each second, and the final ones at the end");
pub(super) const METRICS_LISTEN: Flag = flag("metrics-listen", "ADDRESS").doc(
    "Serve the live figures at http://ADDRESS/metrics; at the end weir waits up to 15 s for a scrape of the \
     final figures (weir_load_finished 1)",
);
pub(super) const PIPELINE: Flag = flag("pipeline", "N").default("1").values(&["16"], &["0", "x", "2k"]).doc(
    "Max requests in flight on a connection of HTTP/1.1, or messages on one of WebSocket (in an open loop \
     1024 by default); a timeout ends the connection and fails the requests \
     behind it",
);
pub(super) const WS: Flag = Flag {
    long: "ws",
    value: "echo|reply|push",
    default: "echo",
    doc: "Messages of a load with ws:// or wss:// URLs. echo: the server returns each message; lost, duplicated, \
          reordered and altered echoes are counted. reply: any message is the reply to the oldest one without a \
          reply. push: the server sends by itself; --data subscribes",
    // The URL of the checks is no WebSocket.
    invalid: &["x", "echo"],
    ..FLAG_DEFAULTS
};
pub(super) const MESSAGE_SIZE: Flag = flag("message-size", "SIZE")
    .default("64, or that of --data")
    .values(&[], &["x", "64"])
    .doc("Size of a WebSocket message; with --ws echo its first 16 bytes are its number; 16 MiB or less");
pub(super) const BINARY: Flag = switch("binary").doc("Send binary WebSocket messages instead of text");
pub(super) const SSE: Flag = switch("sse").doc(
    "Subscribe to server-sent events on each connection: a request is a subscription, its response the first \
     event; gaps, lost IDs and reconnects are counted",
);
pub(super) const STAGES: Flag = flag("stages", "LIST")
    .values(&["10s@1k,30s@5k,10s@0", "5s@10c,5s@100c"], &["x", "10s", "10s@1k,5s@5c", "10s@0"])
    .doc(
        "Stages, each a time and the target that the rate reaches evenly in it, from 0 on: \
         '10s@1k,30s@1k,10s@0'; a time of 0 jumps; with connections as target ('10s@100c') a closed loop \
         uses so many of its open connections",
    );

/// Maximum size of the files of requests and values, and of a log, in bytes.
const TEXT_BYTES_MAX: u64 = 256 << 20;
const LOG_BYTES_MAX: u64 = 2 << 30;

pub(super) fn expect_flags(args: CommandArgs<'_>) -> ExpectFlags {
    ExpectFlags {
        status: args.text("expect-status"),
        bytes: args.text("expect-bytes"),
        hash: args.text("expect-hash"),
        body: args.text("expect-body"),
        headers: args.texts("expect-header"),
    }
}

/// Returns the requests of `--targets` and of a scenario file.
pub(super) fn requests_of_files(args: CommandArgs<'_>, problems: &mut Vec<InputProblem>) -> Vec<RequestText> {
    let mut requests = Vec::new();
    if let Some((path, text)) = read_text(args, "file", TEXT_BYTES_MAX, problems) {
        let file = parse_scenario(&path, &text);
        problems.extend(file.problems);
        requests.extend(file.requests);
    }
    if let Some((path, text)) = read_text(args, "targets", TEXT_BYTES_MAX, problems) {
        match parse_targets(&path, &text, &read_body) {
            Ok(targets) => requests.extend(targets),
            Err(found) => problems.extend(found),
        }
    }
    requests
}

pub(crate) fn parse_scenario(path: &str, text: &str) -> ScenarioFile {
    let flags: Vec<KeySpec> = LOAD
        .flags
        .iter()
        .filter(|flag| !["file", "check"].contains(&flag.long))
        .map(|flag| key(flag.long, flag_form(!flag.value.is_empty(), flag.repeatable), flag.doc))
        .collect();
    ScenarioFile::parse(path, text, &flags, &read_body)
}

/// Returns the rows of `--values`.
pub(super) fn values(args: CommandArgs<'_>, problems: &mut Vec<InputProblem>) -> Option<Arc<CsvTable>> {
    let (path, text) = read_text(args, "values", TEXT_BYTES_MAX, problems)?;
    match CsvTable::parse(&text) {
        Ok(table) => Some(table),
        Err((line, column, why)) => {
            problems.push(InputProblem::new(format!("{path}:{line}:{column}"), why));
            None
        }
    }
}

pub(super) fn replay(args: CommandArgs<'_>, problems: &mut Vec<InputProblem>) -> Option<ReplayLog> {
    let (path, text) = read_text(args, "replay", LOG_BYTES_MAX, problems)?;
    ReplayLog::parse(&path, &text, args.is_set("strict")).map_err(|found| problems.extend(found)).ok()
}

fn read_text(
    args: CommandArgs<'_>,
    flag: &str,
    bytes_max: u64,
    problems: &mut Vec<InputProblem>,
) -> Option<(String, String)> {
    let path = args.text(flag)?;
    // A scenario file is read twice: for the flags, and for the requests.
    let is_other = flag == "file" && std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
    let read = match is_other {
        true => Err(io::Error::other("not a regular file")),
        false => input_file::read_text(&path, bytes_max),
    };
    match read {
        Ok(text) => Some((path, text)),
        Err(why) => {
            problems.push(InputProblem::new(format!("--{flag}"), format!("{path}: {why}")));
            None
        }
    }
}
