//! docs/config.md: every config key, metric, log field and end code, generated from the tables
//! that the code uses.

mod auth;
mod caching;

use std::fmt::Write as _;

use crate::log::FIELDS;
use crate::outcome::{EndPhase, EndReason};
use crate::plan::Fact;
use crate::template::{FAMILIES, Scope};
use crate::{config, ctl, metrics};

/// Rules for every request's head, independent of the config.
const REQUEST_RULES: &str = "
## Paths

With `path = \"normalise\"` a path is routed and forwarded in its normal form (RFC 3986 §6.2.2): \
percent-encoded unreserved characters (letters, digits, `-._~`) are decoded, the digits of other \
triplets are in upper case, a `%` that starts no triplet is `%25`, and dot segments are removed. Empty \
segments are kept: `/a//../b` is `/a/b`. The query is never changed.

A triplet of any other character differs from that character (RFC 3986 §2.2): `/a%21b` and `/a!b` are two paths, \
for routes and for `hash`, and each is forwarded unchanged. HAProxy's `percent-decode-unreserved` does the same; \
nginx decodes every triplet before it compares. A server that decodes all triplets sees one path: a `deny` on a path \
with one of ``!$&'()*+,;=:@`` must name both forms.

A path is 400 if servers interpret even its normal form in different ways: a backslash; an encoded \
backslash or NUL (`%5C`, `%00`); one of these, a slash or a dot encoded twice (`%252E`) or in too many \
bytes (`%C0%AE`); parameters of an empty or a dot segment (`/;/`, `/..;/`).

An encoded slash (`%2F`, as in `/projects/group%2Fname`) is a part of a segment for some servers, and a slash for others. \
Both forms of such a path are routed. If they have the same route, the path is forwarded with its encoded slash; \
otherwise it is 400, and so it is if a dot segment would result (`/..%2Fadmin`). `path-rule` of a route replaces `path` of \
the listener for the requests of this route: `raw` for one application that needs its paths unchanged, `strict` for one \
that must get no other spelling.

The conditions of a route, and the prefix that `rewrite-prefix` replaces, ignore empty segments and \
parameters (`;…`): `//admin` and `/admin;a=b` are both below `/admin`. A regular expression is matched against \
the path with its parameters and without them.

## Fields

Conditions, the keys of limits and of `hash`, sticky cookies and logs see the fields that the server gets, before the \
changes of the route. These do not count and are not forwarded: fields that `Connection` names; the field of \
`client-certificate-header` as clients send it, with either separator (its only value is the subject of the verified \
certificate); and, unless the peer is `trusted`, the request id, fields with the client's address or the original target \
(`Forwarded`, `X-Forwarded-*`, `X-Real-IP` and such), and names with an underscore (`underscores`). `Host` is that of the \
target if it has one. Fields that the proxy adds (`X-Forwarded-*`, `Via`, a new request id) are not seen: use `source`, \
`host` and `listener`. `--explain` lists the fields that do not count.

`set-request-header` replaces every field of that name, including `Host` and the fields that the proxy \
writes. `add-request-header` adds a line. `remove-request-header` removes the fields, also in the trailer \
section; `x-internal-*` matches all fields with that prefix. The same applies to the fields of responses from \
the proxy; the cookie of `sticky` is always sent.

In a trailer section, `Content-Length`, hop-by-hop fields, fields that a route sets or removes, and fields that only trusted \
peers may send in the head are not forwarded.

`Upgrade` of a final response is kept, such as that of 426 (RFC 9110 §15.5.22), without HTTP/2, to which the \
proxy forwards no upgrade.

A `Content-Length` with leading zeros is 400 in a request, and forwarded without them in a response. Up \
to eight empty lines before a request line are ignored. The connection of a CONNECT without a tunnel \
is closed. `Max-Forwards` applies to OPTIONS and TRACE: at 0 the proxy responds to OPTIONS itself, and to TRACE \
with 405.

## TLS

A listener with `tls` accepts TLS 1.2 and 1.3; clients that negotiate a protocol (ALPN) get `h2` or `http/1.1`. The handshake \
follows the PROXY header, if there is one, and has the time `timeouts.head`, from the accept. If it fails or takes \
longer, the connection is closed, with an alert where TLS has one, and counts as `client_tls_failed`. A client that \
speaks plain HTTP gets 400 with the address to use, and counts as `plain_http`. A connection that ends before its first byte is not a failure. Servers get \
`X-Forwarded-Proto: https`, and `proto=https` in `Forwarded`.

`cipher-suites` and `groups` enable only the named algorithms; all that exist have forward secrecy and authenticated \
encryption. With `cipher-suites` their order decides, otherwise that of the client (`cipher-preference`).

A scan of a listener with the default settings, an ECDSA and an RSA certificate by sslyze 6.3 finds no weakness: it is \
compliant with Mozilla's configuration \"intermediate\". TLS 1.0 and older, compression, renegotiation by clients and \
early data are not supported; TLS 1.2 has the suites ECDHE with AES-128-GCM, AES-256-GCM and ChaCha20-Poly1305. A \
`self-signed` certificate is for tests: no client trusts it.

A core computes handshakes for 0.5 ms in each turn of its event loop, but at least one; the others wait in order, so \
a burst of handshakes does not delay requests by more than one signature (1 ms with RSA-2048). Connections beyond \
`handshakes-max` are reset and counted as `handshakes_full`.

Session tickets are encrypted with random keys, which all threads share, a reload keeps, and a new process gets from \
the old one (`--upgrade-from`). A key encrypts for 6 hours. A ticket is accepted for 12 hours, and only under the same \
rules for clients' certificates. With `ticket-key-file` all hosts with these files accept each other's tickets; whoever \
can read the files can decrypt recorded sessions of TLS 1.2, so replace them daily. Sessions by id (TLS 1.2 without \
tickets) belong to one process. 0-RTT is not accepted.

An OCSP response (`ocsp`) must be one for its certificate with the status `good`, or the config is invalid; its \
signature is left to clients. An expired one is a warning, and is not sent.

A reload reads all files again. New connections get the new certificates, open ones continue, and clients resume \
their sessions, unless the accepted authorities of clients have changed. A fault in a file rejects the reload, and \
the old certificates stay in use. The files must be readable after the start, too: by `user`, and with Landlock in the \
directories of the first config.

A pool with `tls` uses TLS for its servers and their checks. `timeouts.connect` includes the handshake. A failed \
handshake is a failed connection: it is retried, counts for `outlier`, and ends a request with \
`tls_handshake_failed`. A server has to prove its host name or address, or `server-name`, which a server on a unix \
socket or with `srv` needs. A PROXY header precedes the session. Each thread resumes the sessions of each server.

A response that only the end of the connection delimits is truncated if a server ends it without close_notify \
(`server_closed`). Bodies and tunnels over TLS are copied, not spliced. An idle session takes 4.1 kB of user-space \
memory more than a plain connection.

`redirect-https` of a plain listener redirects to HTTPS at port 443; for another port, a route has `redirect = { status = \
308, location = \"https://{host}:8443{path}{query}\" }`. `hsts` adds `Strict-Transport-Security` (RFC 6797) to all responses; \
a route that sets or removes the field decides for its own responses.

## Revoked certificates

With `client-crl`, the certificate of a client is looked up in the list of its issuer, and so are those of the intermediate \
authorities (`client-crl-depth`). webpki verifies the signature of the list. As in nginx (`ssl_crl`) and HAProxy (`crl-file`), \
a client is rejected also if there is no list of the issuer, or if it has expired (nextUpdate); `client-crl-unknown` and \
`client-crl-expired` change that. Lists of version 1, without a time of the next update, delta lists and indirect ones are \
errors of the config. Of several lists of an issuer the newest one counts. A certificate that is itself in `client-ca` needs no list; \
it is rejected if a list with the name of its issuer has it. The signature of a list is verified in each full handshake, which \
reads the whole list: 8 MiB are 4 ms.

A change of a file is a reload of the config, also without `--reload-on-change`: within 2 s, and no connection is lost. Open connections \
continue; sessions are not resumed under another list, nor after the end of a list, so each client is verified again. A fault in a \
file rejects the reload, and the list in use stays. A list that has expired, or does so within an hour, is reported on stderr, and an \
authority without a list at the start and at each reload; `weir_tls_crl_expiry_timestamp_seconds - time()` is the time that is left. \
`crl` of a pool does the same for the certificates of its servers; their sessions are not resumed.

## Automatic certificates

`acme` of a listener with TLS orders a certificate (RFC 8555), and renews it at two thirds of its lifetime. Until the first \
one is issued, clients get a self-signed certificate. Challenges of `http-01` arrive at port 80 of each name: any plain \
listener in mode http answers them, before `redirect-https` and the routes. Challenges of `tls-alpn-01` arrive at port 443, and \
this listener answers them. A new certificate is put into force like a reload, without a lost connection; reloads of the config \
use it, too. A stored file that cannot be used is a warning at the start, and a reload is rejected until it is ordered again. \
After a failure the next attempt follows in 1 minute, then 2, 4 and so on up to 6 hours, each varied by a fifth. An \
order may take 5 minutes. `storage` has the account's key and the certificates with their keys, and a lock: of several \
processes with the same directory one orders. It must exist at the start, and be writable by `user`. `weir ctl show \
certificates` and the metrics `weir_acme_*` show the state. The first `acme` of a config needs a restart.

`dns-01` proves names by the TXT record `_acme-challenge.NAME`, also wildcard names, and needs no port that the ACME server reaches. \
With `server` the record is added by a dynamic update (RFC 2136) with a signature (TSIG), over TCP; responses need a valid signature, \
and other records of the name stay (a name that is a CNAME needs a hook). The zone is the one that the server names in its SOA record. With BIND: `tsig-keygen weir > \
/etc/weir/tsig.key`, and in the zone `update-policy { grant weir name _acme-challenge.example.org. TXT; };`. Each request may take \
10 s. Then all `check-servers` are asked until they have the record, and it is validated; afterwards it is removed, also after a failure.

With `hook` a program sets the records: `hook add NAME VALUE` and `hook remove NAME VALUE`, with the name without a final dot \
(`_acme-challenge.example.org`) and the value as the record has it. `WEIR_ACME_DOMAIN` is the name that is proved, the rest of the \
environment that of the proxy; the directory is `/`, the standard input empty, the standard output discarded. It runs as the user of the \
proxy in a process group of its own, which is killed after `hook-timeout` and when the program has ended. Exit code 0 is success; the error of any \
other has the last lines of its standard error (5 of 256 bytes). A name and its wildcard have the same record with two values: `remove` must \
only remove its own. A hook should return once the record is visible, or `check-servers` names the servers to ask. Only root and \
the user of the proxy may be able to change it. Landlock would apply to all that it starts, so a config with a hook needs \
privileges.landlock = false.

## Certificates of several replicas

With `shared-storage` the processes of several hosts have one `storage`: a volume that all of them mount, or NFS. Whoever holds the \
lock orders, the others wait, and load the certificate as soon as they find it, at most `poll-interval` later. So any number of replicas \
makes one order for each certificate, also when it is renewed, with one account. Answers to challenges of `http-01` and `tls-alpn-01` \
are in the storage, too: the owner of the order waits for `poll-interval` and 1 s, and then any replica answers the validation. After a failure all \
replicas wait.

The lock is the file `order.lease` with its owner and its end, which the owner renews every third of `lease`. It is made by link(2) and replaced by \
rename(2), which NFS supports; a replica that was killed loses it after one and a half leases. The clocks of the hosts may differ by half a lease. \
A process that was stopped for longer checks the lock before each step that matters, and gives up. Malformed and foreign files are \
ignored: a lock that cannot be read ends one and a half leases after its last change, and a certificate that cannot be used is reported and \
ordered again, while the one in use stays. All replicas need the same user (the files have mode 0600), `lease`, `poll-interval` and names. \
A storage that hangs stops orders, and nothing else.

## Server names in mode tcp

`sni` of a listener in mode tcp selects the pool by the ClientHello, and forwards all bytes unchanged: the servers \
terminate TLS. The ClientHello may have up to 16.5 KiB in any number of records, and has the time `timeouts.head`. Without \
a matching entry and without `pool`, the client gets the alert `unrecognized_name`, and the connection ends with \
`unknown_server_name`. What is no ClientHello is closed as `bad_client_hello`. A name that two readers could understand in \
two ways (repeated, with other bytes than letters, digits, `-`, `_` and dots) is no valid ClientHello. With encrypted \
ClientHellos (ECH), the outer name decides.

## HTTP/2

A listener in mode http accepts HTTP/2 (RFC 9113) beside HTTP/1.1: over TLS if the client negotiates it (ALPN), on a \
plain connection if its first bytes are the preface of HTTP/2 (prior knowledge). `Upgrade: h2c` is ignored. A plain \
connection whose first line has three words, but neither a method nor a version of HTTP/1.1, ends with GOAWAY: its \
client does not speak HTTP/1.1 either.

One stream is one request: routes, queues, limits, retries, logs and metrics of requests are those of HTTP/1.1. \
`connections-max` and the limits of a source count connections; `requests-max` and `requests-rate` count streams. \
`bytes_in` and `bytes_out` of a log line are the sizes of the messages in HTTP/1.1. `Via` has the version 2.0. The \
fields `Host` and `:authority` must agree. Cookie fields are joined (RFC 9113 §8.2.3). A request with a body, and \
without `content-length`, is sent to servers in chunks, with its trailers.

A malformed head (RFC 9113 §8.2, §8.3) resets its stream with PROTOCOL_ERROR, and is not logged; \
`weir_http2_faults_total` counts it. A head over a limit is 431 or 414, and logged. A stream whose server fails in the \
middle of a response is reset with INTERNAL_ERROR. After a response that is complete before its request, \
up to 4 MiB of the rest of the request are discarded for at most 2 s without a pause, so that a client that sends \
reads the response first; then the stream ends with RST_STREAM(NO_ERROR). A request that ends behind its response is \
confirmed with PING: curl 7.88 does not notice the end of its stream before it reads something. Before such a response ends, the windows are \
opened for the rest of the request (4 MiB if it has no `content-length`), within `connection-window-max`: a client may \
read nothing more while it sends. A 2xx response that is empty or has no `content-length` ends \
after that rest, if the request has a `content-length`. If the rest does not fit behind another 2xx response, the stream is reset at once. A client that resets a stream has left: the request is aborted as if it had closed a \
connection of HTTP/1.1.

Extended CONNECT (RFC 8441) becomes a GET with `Upgrade`: WebSocket works between a client of HTTP/2 and a server of \
HTTP/1.1. If the server does not change the protocol with 101, the client gets 502 instead of a 2xx. \
`:protocol` with a version of HTTP (`h2c`) is 501. In a tunnel, END_STREAM of the client is a half-close (RFC 9113 \
§8.5), also before the response.

Streams send in turns of at most 16 KiB. A client can send as much of a body as the server takes, and a window more. \
A stream that the client's window blocks is reset if it sends less than `write-progress-bytes` in `timeouts.write`, \
and the connection if the client acknowledges less than that for each stream with a backlog, up to 16 of them. No frame \
of a client prolongs a timeout, unless what the timeout protects has progressed.

A drain, `requests-max`, `timeouts.keep-alive` and the removal of a listener announce the end of a connection: \
GOAWAY with the highest stream, a PING, and after its acknowledgement GOAWAY with the last accepted stream. Streams \
up to it are completed. `timeouts.head` limits an incomplete frame or head. It, `timeouts.write` and `ping-timeout` end a \
connection with the last of these frames, which a client gets if its socket accepts it at once.

A client that was silent for `ping-interval` gets a PING. Without a received byte within `ping-timeout` the connection \
is reset, its requests are aborted, and `weir_http2_pings_lost_total` counts it. PING frames do not prolong \
`timeouts.keep-alive`.

## HTTP/2 to servers

With `http = \"2\"` or `\"auto\"` the requests of a thread to a server share connections: each request is a stream. \
A connection takes requests up to `concurrent-streams` or the limit of the server, whichever is lower; then another \
one is opened, up to `connections-max`. A connection without a request for `idle-timeout` is closed. A connection \
counts as established when the server has sent its settings and accepts a stream, within `timeouts.connect`; a server \
that sends something else, or does not choose HTTP/2 in the TLS handshake, ends a request with `no_http2`. A connection \
that the server ends before that (GOAWAY) is a failed one for the requests that waited for it: they are retried, or \
end with `server_closed`; only the first one in a row is replaced at no cost. `maxconn`, queues, \
balancing, retries and `outlier` count requests, as with HTTP/1.1; `reuse = \"safe\"` is the same as `always`. With \
`reuse = \"never\"` or `send-proxy-protocol` a connection carries one request at a time, of one client.

A request that the server has not processed (REFUSED_STREAM, above the last stream of GOAWAY, or never sent) is sent \
again, up to 16 times, which counts neither toward `retries` nor toward the budget (see \"Retries\"). If GOAWAY \
leaves requests unprocessed, further connections to the server get as many requests as that one had processed; at that \
number, the proxy asks with PING if the connection ends, and doubles the number if it does not. Without an answer within \
`ping-timeout`, or half of `timeouts.connect` if that is less, the number means nothing. A stream that the server resets otherwise \
before its response is 502 (`server_closed`, or `bad_response` if the server broke the rules of HTTP/2), and is \
not retried; in the middle of a response, the client's response is truncated, and a stream of an HTTP/2 client is \
reset with CANCEL, CONNECT_ERROR or ENHANCE_YOUR_CALM if the server's was, otherwise with INTERNAL_ERROR. A request \
that a client or a timeout ends is reset with CANCEL, and the connection goes on. A server that announces its end (GOAWAY), is removed by a \
reload or by DNS, or is set to maintenance, keeps the requests in progress, and gets no further ones.

The receive windows follow the clients: a server may send as much of a response as its client has not read, up to \
`stream-window-max`. A WebSocket handshake becomes an extended CONNECT (RFC 8441) if the server supports it, else it \
takes a connection of HTTP/1.1 with `http = \"auto\"` and TLS, and is 502 (`upgrade_unsupported`) with `http = \"2\"`; other upgrades are ignored. CONNECT becomes a stream, too. Trailer sections and interim \
responses are forwarded in both directions; a trailer section behind a response with `Content-Length` is dropped. Of \
`Expect: 100-continue` the server decides. `:scheme` is `https` on connections with TLS, and `:authority` is `Host`.

gRPC (a stream of an HTTP/2 client with a content type `application/grpc…` and a body of unknown length) may be silent in \
both directions for `timeouts.tunnel`, instead of `body-idle`, `body-progress`, `timeouts.first-byte` and `timeouts.idle`. \
gRPC has no HTTP/1.1: there the content type changes no time. Errors of the proxy for a POST of such a content type \
are responses with status 200, `grpc-status` and `grpc-message`: 4 (DEADLINE_EXCEEDED) for 408 and 504, 8 \
(RESOURCE_EXHAUSTED) for 413 and 429, 14 (UNAVAILABLE) for 502 and 503, 13, 16, 7 and 12 for 400, 401, 403 and 404, \
otherwise 2. A stream that the server resets with one of the three codes above before its response is reset, too: the \
client sees what it would see without the proxy.

## Memory

A client that does not read its response holds at most 64 KiB of it in user space, from one read of the server. \
The proxy reads from the server again once this is sent, 16 KiB at a time. A long body of known \
length is spliced through a kernel pipe, and uses no user-space memory. In addition, a request holds its head, and \
of its body one read of the client (64 KiB) or `buffer-request` and 8 KiB, whichever is more; pipelined requests \
are buffered up to 16 KiB. \
`weir_buffers_in_use` counts the buffers of incomplete heads and of pipelined requests.

## Retries

A request is retried only before the first byte of a response, and only if everything that was sent is still \
buffered: the head, and a body up to 16 KiB.

| Failure | Retried methods | Server |
| --- | --- | --- |
| no connection to the server in time | all | another server if there is one |
| a new connection ended before the server received any byte | all | another server if there is one |
| an idle connection ended before the server received any byte | all | the same server, on a new connection |
| an HTTP/2 server has not processed the request | all | the same server, on the same connection or another one |
| an idle connection ended or was reset | GET, HEAD, OPTIONS, TRACE, PUT, DELETE | the same server, on a new connection |
| a status, no response in time, or an end before the response, of the route's `retry-on` | GET, HEAD, OPTIONS, TRACE, PUT, DELETE | another server if there is one |

The server has received nothing if it closed its stream in order (FIN) and has acknowledged none of the bytes: \
its FIN acknowledges everything received before, and later bytes reach a closed socket, or one \
that can send no response. A reset is no proof, because a server that has read the request may send one. \
An end on a unix socket is no proof either. In these cases a POST or PATCH is 502, and the client decides. `idempotent` of a route adds requests to the methods above.

Each row but the third and the fourth counts toward `retries` and needs the pool's `retry-budget`. The third is free, \
and disabled by `retries = 0`; the fourth is free, up to 16 times a request. Close idle connections before the server does (`idle-timeout`) to avoid the last two.
";

/// Inheritance of settings.
const ROUTE_SETTINGS: &str = "
## Settings of a route

A setting of a request is that of its route, otherwise that of its pool, otherwise that of its listener, otherwise the \
default. `weir proxy --explain` prints each one with its origin. A route's `body-max` may be more or less than that of its \
listener. Fields that its `forwarding` does not send are removed as before; only conditions see the request id by the name \
of the listener.

`retry-on` sends a request with an idempotent method (RFC 9110 §9.2.2) again although a server has answered, or may still \
work on it. All of `retries` counts together. The client gets the last response, or 504 if there is none.

## Hedging

With `hedge`, a request without a response head `after` the choice of its server is sent to a second server, too, once. It \
must be idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE), complete, and still held as for a retry (16 KiB); a WebSocket \
handshake is not sent twice, nor a request of a client that sticks to its server. The second attempt takes a slot at once or \
not at all, never at the same server, and spends from the `retry-budget` (a route with `hedge` counts its requests for it also with \
`retries = 0`); a pool with one server never gets one. The first response head wins, whatever follows it; the other attempt is cancelled: its \
connection of HTTP/1.1 is closed, its stream of HTTP/2 reset. A server with a limit keeps the slot of a cancelled attempt until it has ended it, \
for `timeouts.abandoned` at most. A response of the second server with 5xx or a status of `retry-on` does not win while the \
first server works. If the first attempt fails (no connection, no response in time, a status of `retry-on`), the second one takes \
its place before there is a retry; if that fails, too, the client gets its error. `total` limits both. Interim responses of the second \
server are not forwarded unless it is the only one.

Until a percentile has `samples-min` response times, no request is sent twice. Each core has its own times, in windows of 10 s, \
of which the current one and the one before count, with an error of at most 12.5 %; a reload begins again. A time that a second \
attempt ended counts as the time until then. `weir_hedges_total` and the field `hedge` of a log show the results.

## Mirroring

With `mirror`, a copy of a request is sent to another pool: method, target and fields as the server gets them, with the edits of the \
route, and the body, which is copied as it passes. A copy is sent when its request is complete. Its response is read up to 1 MiB and discarded. \
Nothing of a copy has an effect on its request: no response, no error, and no wait. Each mirror selects its requests alone; \
upgrades and CONNECT are not copied. A copy has the field of `mark`, and the `Host` of the request unless `host` is set; trailers and \
`Expect` are left out. The pool of a mirror has its own checks, limits, queue and retries.

Bounds of a core: `in-flight` copies from the head of a request to the end of the copy's response, 16 MiB for their heads and bodies, and \
1024 subrequests. A request beyond a bound, or with a body larger than `body-max`, is not copied, and counted in \
`weir_mirrors_dropped_total`. A drain does not wait for copies.

`weir_mirrored_requests_total` has the classes of both statuses, `weir_mirror_comparisons_total` the number of equal and different ones, and \
`weir_mirror_seconds` the times of both from the end of the request to the head of the response.

Copies are subrequests, the proxy's own requests: they are not in the metrics of listeners and routes, nor in access logs, but \
in those of their pool and its servers, and in `weir_subrequests_total`.
";

/// Division between pools, and limits of bytes.
const SPLITS_AND_LIMITS: &str = "
## Splits

```toml
[[route]]
split = { pools = { stable = 90, canary = 10 }, key = \"cookie.user\", name = \"web\" }   # a tenth of the users
```

`split` divides the requests of a route between pools, in the ratio of their weights. With `key`, a request keeps its pool: each \
pool draws a number for the key, and the smallest number relative to the weight wins, on all machines and after a restart. A pool \
that grows in relation to all others keeps its keys, and no key moves between two others. A request whose key is empty goes to the \
first pool with a weight. Without `key`, each request is divided by itself.

`weir ctl split web stable=80 canary=20` changes the weights of a `name` while the proxy runs, in all routes that have it; `weir ctl split` \
lists them. The change outlives a reload while the config has the name and the pool, and with `state-file` a restart. \
The settings of a request (timeouts, retries) are those of its pool, unless the route has its own. A sticky cookie keeps a client at a server of \
its pool, and does not choose the pool: give the pools cookies with different names. With `fallback`, a request whose pool has no usable server goes to the next pool for its key that has \
one (`weir_split_fallbacks_total`); a pool with weight 0 is none. `--explain` prints the pool of a given request.

## Limits of bytes

```toml
[[route]]
limit-rate = \"1MiB/s\"          # each response
limit-rate-after = \"10m\"       # from its eleventh MiB on
limit-rate-total = \"100MiB/s\"  # all of them together
pool = \"app\"
```

Content is read from the server, or the file, only when its bytes are due, and bytes that were read go out at once. Responses are counted as they go to the client, compressed \
and with their framing, and requests by their content. A waiting message is checked every 100 ms. Its wait counts for `timeouts.total`, and for no other timeout, and is counted \
(`weir_limit_rate_waits_total`). Rates are exact on average. At most half a second of the rate is ahead, which is also what a pause leaves; and at most 64 KiB \
that came with a head. `limit-rate-total` is one limit for all threads: messages reserve slices of up to 16 KiB in the order in which they ask, so all get about the same (within a fifth or so, if they wait for it all the time). \
A reload begins it again for new requests. Responses of the proxy itself (`return`, redirects, error pages) are not limited. Limited content is copied, not spliced.

With `mode = \"tcp\"`, the limits of the listener hold for each connection: `limit-rate` to the client, `limit-rate-upload` from it. Upgraded connections (WebSocket) have those of their route.
";

/// Compression of responses.
const COMPRESSION: &str = "
## Compression

With `compression`, of a listener or a route, a response of a server gets the content coding that its client prefers in \
`Accept-Encoding`, with its qualities; among equal ones the first of `codings`. A key that a route does not give has the \
value of its listener.

Only content of these `types`, of `min-size` or of unknown length is compressed, with any final status but 204, 205, 206 and \
304; not content with a `Content-Encoding` or `Content-Range`, nor under `Cache-Control: no-transform` of either side, nor \
gRPC, nor for HTTP/1.0. The response to HEAD has the fields of that to GET.

A compressed response loses `Content-Length`, `Accept-Ranges`, and the digests of the bytes (`Content-Digest`, \
`Repr-Digest`, `Digest`, `Content-MD5`, also as trailers). Its `ETag` is weak, because the bytes are others. Of a weak tag in \
`If-None-Match` the server gets both forms (`W/\"a\", \"a\"`), so that one that compares byte by byte finds its own; a 304 to such a request has \
the weak form. `If-Match` and `If-Range` are forwarded unchanged: with a weak tag they do not match (RFC 9110 §13.1), so that nothing is \
overwritten, and no part is joined to other bytes. `Vary: Accept-Encoding` is added to every response that could have been compressed for \
another client, and to 304.

The content of `return` and of error pages is compressed in the same way, at once, at most at the default level of its coding.

A length reveals a secret that stands beside text of a stranger (BREACH). So the responses to requests with `Cookie` or \
`Authorization` are compressed only if they are styles, JavaScript, WebAssembly, fonts or images (SVG), unless `with-credentials = true`.

With `decode = true`, content that a server sends in one of the codings is decoded for a client that does not accept it (RFC 9110 \
§12.5.3; one without `Accept-Encoding` counts as such), with the same changes of fields. A window of more than 8 MiB (`zstd`) or 16 MiB \
(`br`), more than a thousand bytes for each one behind the first MiB, and malformed content are a bad response (502, or the end of the \
connection).

What the encoder holds back is sent as soon as the server pauses, and each part of `text/event-stream` at once. A client that does not \
read stops the server. An encoder takes 32 KiB at a time, between the turns of other connections.
";

/// Traces of requests.
const TRACES: &str = "
## Traces

With `[tracing]`, each request that a server gets has a `traceparent` of its own (W3C Trace Context): the trace of its caller, \
if `context` says so, or a new one, and the span of this proxy as the parent. `tracestate` stays in a trace that is continued. \
Without `[tracing]`, both fields pass unchanged.

Requests are recorded that `sample` or a trusted caller has chosen, and those that failed or were `slow`, up to \
`requests-rate`; all others cost their field. A recorded request has a span of the proxy (kind server, with the method and the \
name of the route), one for each attempt at a server (kind client), one for a wait in the queue from 50 us, and below the last \
attempt `connect`, `first byte` and `body`. Attributes have the names of OpenTelemetry's HTTP conventions, and `weir.listener`, `weir.pool`, \
`weir.server` and `weir.end` (the end code). Values of parameters with names of secrets are `***`, and texts of clients have up to 1,024 \
bytes.

Spans are sent as OTLP/HTTP (protobuf), in requests of up to 512 KiB, one second after the first span at the latest, by a thread of their own. 64 \
batches of 32 KiB may wait for it. Beyond that, spans are dropped and counted (`weir_trace_spans_total`): a collector that is slow or gone \
delays no request. The end of the process waits for it for up to 2 s. Logs have the ids of traces: `trace_id` in JSON, `{trace.id}` and `{trace.span}` in \
formats.
";

/// Files of a route.
const FILES: &str = "
## Files

`files` of a route responds to GET and HEAD with files below `root`, as `weir serve` does: paths are opened beneath the root \
by the kernel (openat2), decoded once, and never leave it. The path of a file is that of the request, as with nginx's `root`; \
with `rewrite-prefix = \"/\"` the prefix of the route is left out, as with `alias`. A directory without a slash at its end is \
redirected (301), by the path of the request.

Responses have `ETag`, `Last-Modified` and `Accept-Ranges`; conditions (RFC 9110 §13) and up to 16 ranges are answered. Errors have \
the error pages of the route: 400, 403, 404, 405 with `Allow`, 416 with `Content-Range`, 503 without a free descriptor or memory. \
A list has up to 10,000 names.

A thread keeps up to 256 lookups of a route for 1 s, with their descriptors, and files up to 32 KiB in memory. Others are read 64 KiB \
at a time, and what is not in the page cache is waited for: use `weir serve` behind a pool for files on slow disks.
";

/// Conditions of routes beyond their plain keys.
const CONDITIONS: &str = "
## Conditions

A condition is a table, and all of its keys must hold; of several values of one key, one must hold. `all`, `any` and `not` \
combine conditions, which may be inside each other up to 8 times. A route matches if its plain keys and its `when` hold.

```toml
[[route]]
when = { any = [{ path-prefix = \"/admin\" }, { host = \"admin.example.org\" }], not = { source = \"10.0.0.0/8\" } }
deny = 403

[[route]]
when = { percent = 10, key = \"cookie.user\", name = \"canary\" }   # the same tenth of the users, on every machine
pool = \"canary\"
```

Conditions see the request as it is forwarded, before the changes of the route. `time` and `weekday` are in UTC. `percent` \
computes a digest of the key, so a key keeps its side after a reload and on other machines, and a larger percentage \
includes the keys of a smaller one. `weir ctl percent canary 25` changes it while the proxy runs: those who were in it stay in it. A route without `when` costs nothing more than before.

The fields of responses can depend on the status, and on conditions on the request:

```toml
[[route.response]]
status = \"4xx,5xx\"
set-header = { cache-control = \"no-store\" }
```
";

const ERROR_PAGES: &str = "
## Error pages

The proxy's own error responses have one line of text. A page replaces it, and with `replace = \"all\"` the content of \
servers' error responses, too. The pages of a route are tried before those of the whole config, in their order; the \
client's `Accept` chooses the form. During `weir ctl maintenance on`, the page for 503 is the maintenance page.

`weir ctl maintenance on --body FILE` gives another one, without a change of the config: the content of FILE, up to 64 KiB of text, \
for all requests whose pool is in maintenance, before all `[[error-page]]`. `weir ctl` reads the file, so the proxy need not be able \
to. Its media type is that of its name (`.html`, `.json`, `.txt`), else of its content. With `--values`, `{status}`, `{reason}`, \
`{method}`, `{source}`, `{listener}`, `{route}`, `{pool}`, `{time}`, `{time.unix}` and `{time.http}` have their values. It outlives a \
reload, and with `state-file` an upgrade and a restart. `maintenance on` without it and `maintenance off` forget it; \
`weir ctl maintenance` shows it. What routes respond themselves (`return`, `deny`, rate limits) stays as it is, and calls of gRPC keep their own form of errors.

```toml
[[error-page]]
status = \"503\"
html = \"/etc/weir/sorry.html\"
json = \"/etc/weir/sorry.json\"

[[route]]
path-prefix = \"/shop\"
pool = \"shop\"

[[route.error-page]]
status = \"404,5xx\"
replace = \"all\"
html = \"/etc/weir/shop-error.html\"
values = true   # {status} {reason} {request-id} {path}
```

A response whose content is replaced keeps its status and the fields that this status needs, and counts as the server's. \
Its connection stays open if the content came with the head. Calls of gRPC keep their own form of errors.
";

const MAPS: &str = "
## Maps and lists

A map has keys with values; a list has keys alone. `{map.NAME}` is the value for a request in any text, and \
`map = { NAME = … }` a condition on it.

```toml
[map.tenant]                       # a line of the file: a.example.org gold
key = \"host\"
file = \"/etc/weir/tenants.map\"
match = \"domain\"

[map.blocked]                      # a line of the file: 203.0.113.0/24
key = \"source\"
file = \"/etc/weir/blocked.txt\"
match = \"network\"

[[route]]
when = { map = { blocked = true } }
deny = 403

[[route]]
when = { map = { tenant = \"gold\" } }
set-request-header = { x-tenant = \"{map.tenant:-none}\" }
pool = \"gold\"
```

Files are read again without a reload of the config: their states (inode, size, times) are checked each second, and a file that \
has the same new state twice is read in a thread of its own. Requests see either the previous content or the new one, never a \
part. A file with faults, or a missing one, keeps the previous content; each fault is reported with its line, counted \
(`weir_map_loads_total`) and shown by `weir ctl map list`. Write a large file beside the old one and rename it. A reload of \
the config reads only files that have changed, and refuses the config if one has faults. The process must be able to read the \
files as the user of `privileges`.

`weir ctl map set`, `delete` and `reload` change a running proxy. `set` and `delete` change memory only: they stay until the \
file is read again, over reloads of the config, but not in a new process (`weir proxy --upgrade-from`). Two entries \
with the same key must have the same value. Keys and values are UTF-8 without control characters.

With `match = \"regex\"`, the keys are regular expressions, as those of `path-regex`, and the first one that matches decides. \
`weir ctl map set` of a known expression keeps its place, a new one becomes the last, and `map show` lists them in their order. \
`default` is the value of requests without an entry:

```toml
[map.tier]
key = \"header.user-agent\"
match = \"regex\"
default = \"people\"
entries = { \"(?i)bot|crawler\" = \"robots\", \"^curl/\" = \"tools\" }
```

All threads share one table, which a lookup reads without a lock. For `exact`, the cost of a lookup does not depend on the \
number of entries; `domain` looks up each name above the host, `regex` tries up to 256 expressions \
one after the other, and the other kinds take a binary search. Memory for an entry, besides \
the text of its key and value: 13 bytes for `exact` and `domain`, 12 for prefixes and suffixes, 16 for a network (IPv6: 32) \
and 4 for its value. While a file is read, the file and both tables are in memory. Measured with a million keys of 19 bytes, or \
networks, and values of 10 bytes: 43 MB for `exact` and `domain`, 42 MB for `prefix`, 30 MB for `network`, read in 0.4 to 1 s; \
HAProxy 2.6 takes 297 MB for the same names and 281 MB for the same networks. A lookup takes 440 instructions for `exact`, 480 for \
`domain`, 330 for `network` and 1,600 for `prefix`.
";

fn values_reference() -> String {
    let mut text = "
## Environment variables

In all texts of the file, `${NAME}` is an environment variable, `${NAME:-TEXT}` has a default for a missing or empty one, and \
`$${` is a literal `${`. Where a key takes a number or a boolean, a text with a variable may become one: \
`threads = \"${THREADS:-2}\"`. A reload reads the file again, with the environment that the process was started with.

## Values

These texts have values of the request: fields that a route sets or adds, `location`, `body-template`, and, if they have \
a brace, the keys of `rate-limit` and `hash`. `{NAME}` is a value, `{NAME:-TEXT}` has a default for a missing or empty one, \
and `{{` and `}}` are literal braces. An unknown name is an error.

```toml
[[route]]
path-regex = \"^/u/(?P<user>[^/]+)/(.*)$\"
redirect = { status = 308, location = \"https://{user}.example.org/{2}{query}\" }

[[route]]
set-request-header = { x-real-ip = \"{source}\", x-tenant = \"{header.x-tenant:-none}\" }
set-response-header = { x-served-by = \"{server}\" }
pool = \"app\"
```

| Value | Known in | Meaning |
| --- | --- | --- |
"
    .to_owned();
    for fact in Fact::ALL {
        let _ = writeln!(text, "| `{{{}}}` | {} | {} |", fact.name(), places(fact.scope()), fact.doc());
    }
    for (name, scope, doc) in FAMILIES {
        let _ = writeln!(text, "| `{{{name}}}` | {} | {doc} |", places(scope));
    }
    text + "
All values are those of the request as it is forwarded, before the changes of the route. A value cannot change the structure \
of its place: control characters (CR, LF and NUL among them) are dropped from fields and bodies; in a body of HTML or XML, \
`& < > \" '` become character references, and in one of JSON, values are escaped as parts of a string. In a location, everything \
but visible ASCII is percent-encoded, `{path}` and a group begin a path with one slash, `{host}` cannot have a user or a port, a value of a map may be a complete location, and \
all other values keep letters, digits and `-._~` only, so that no value names another host than the text does. A field whose \
text has no byte is not sent. `Host` is only set to a text that is a host. A group needs a route with exactly one `path-regex`, \
in the route or in its `when` (not in `not`).

A text has at most 64 KiB. A request with a longer field, location or body gets 431, a longer field of a response is left \
out; both are counted (`weir_long_texts_total`). A longer key is cut. `--explain` prints the texts of a given request.
"
}

fn places(scope: Scope) -> &'static str {
    match scope {
        Scope::Key => "all texts",
        Scope::Route => "all texts of a route",
        Scope::Message => "fields, locations, bodies",
        Scope::Response => "fields of responses, logs",
        Scope::Log => "logs",
    }
}

pub fn reference() -> String {
    let mut text = config::reference();
    text += ROUTE_SETTINGS;
    text += SPLITS_AND_LIMITS;
    text += COMPRESSION;
    text += &caching::caching();
    text += TRACES;
    text += &auth::authentication();
    text += FILES;
    text += CONDITIONS;
    text += MAPS;
    text += &values_reference();
    text += ERROR_PAGES;
    text += REQUEST_RULES;
    // Writing to a String cannot fail.
    let _ =
        write!(text, "\n## Metrics\n\nExported by `/metrics` of `admin` in the Prometheus text format.\n\n");
    text += &metrics::reference();
    text += "\n## Fields of a JSON log line\n\n| Field | Meaning |\n| --- | --- |\n";
    for (name, doc) in FIELDS {
        let _ = writeln!(text, "| `{name}` | {doc} |");
    }
    text += "\n## End codes of requests\n\n`end` in metrics and JSON logs, the first letter of the \
             termination code, and the status for the client if it can still be sent; a route may \
             set another status.\n\n\
             | End | Letter | Status | Meaning |\n| --- | --- | --- | --- |\n";
    for end in EndReason::ALL {
        let status = match end.status() {
            0 => "-".to_owned(),
            status => status.to_string(),
        };
        let (code, letter) = (end.code(), char::from(end.letter()));
        let _ = writeln!(text, "| `{code}` | `{letter}` | {status} | {} |", end.doc());
    }
    text += "\nThe second letter is the phase in which the request ended.\n\n| Letter | Meaning |\n| --- | --- |\n";
    for phase in EndPhase::ALL {
        let _ = writeln!(text, "| `{}` | {} |", char::from(phase.letter()), phase.doc());
    }
    text += &ctl::protocol_reference();
    text
}
