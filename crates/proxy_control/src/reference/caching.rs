//! Text about caches of responses.

use std::fmt::Write as _;

use cache::NotStored;

use crate::outcome::CacheResult;

const CACHING: &str = "
## Caching

```toml
[cache.main]
memory = \"256m\"
disk = { directory = \"/var/cache/weir\", size = \"10g\" }

[[route]]
path-prefix = \"/static\"
pool = \"app\"
cache = { use = \"main\", valid = [{ status = \"200,301,404\", for = \"10m\" }], stale-while-revalidate = \"30s\" }
```

With `cache`, a route stores the responses of its servers by the rules of RFC 9111 for a shared cache, and answers later requests from \
them. All threads share a cache, and so may several routes. Nothing is stored that could be for one client alone: no response with `private`, \
`no-store` or (unless `remove-set-cookie`) `Set-Cookie`, none whose `Vary` is `*`, and to a request with `Authorization`, with a verified \
certificate whose subject goes to the server, or of a route with `auth`, only one with `public`, `s-maxage`, `must-revalidate` or \
`proxy-revalidate`. Authentication, rate limits and conditions of the route come before the cache, the changes of its response \
fields, CORS, error pages, `compression` and `limit-rate` after it; so a stored response is compressed for each client.

The lifetime of a response is that of `CDN-Cache-Control` (RFC 9213), or else of `s-maxage`, `max-age`, `Expires`, or `valid` for its \
status; a response with none of them, and with `Last-Modified`, has a `heuristic` one. A stored response that is stale is validated: the server gets \
its `ETag` and `Last-Modified`, and a 304 renews it. With `stale-while-revalidate` (RFC 5861) it is used meanwhile, and the validation is a \
request of the proxy's own (`weir_subrequests_total`), at most 64 of a thread at a time. With `stale-if-error` it is used if no server \
responds, or one with 500, 502, 503 or 504. `must-revalidate`, `proxy-revalidate` and `s-maxage` forbid both. `Age` is added to each response from the cache.

The default key is `POOL|SCHEME|HOST[:PORT]PATH?QUERY`, such as `app|https|example.org/logo.png`: the scheme of the connection, or of `X-Forwarded-Proto` from a `trusted` peer; the host in lower case as the client wrote it, \
the target as it is forwarded, before a rewrite. A `key` must tell apart what servers tell apart: fields, cookies or the pool of a `split` that are neither in the \
key nor in `Vary` change nothing. `Vary` of up to 16 fields keeps a response for each form of these; `Accept-Encoding` is compared without order and \
qualities. A `Vary` that names a field which the proxy writes itself (`X-Forwarded-For` and such, the request id, fields with values of `set-request-header`, of `auth` or \
of certificates) counts as `*`. Keys of more than 16 KiB are not used.

GET and HEAD are answered from the cache, also their conditions (304, 412) and, of a stored 200, single ranges (206, 416). GET fills it: \
a request without a usable stored response is forwarded without its `If-None-Match`, `If-Modified-Since` and `If-Range`, so that the complete response \
is stored, and its client gets what it asked for from that. Of a response that is not stored and of which a part is asked for (`Range`), the whole is fetched in the background, one request at a time, unless an \
earlier response was not fit to be stored: a single range that begins in the first MiB waits for it, as equal requests do, and any other is forwarded \
as it is. HEAD is forwarded as it is if nothing is stored. A \
successful response to any other method removes the responses of its key and, with the default key, those of `Location` and \
`Content-Location` on the same host (RFC 9111 §4.4). Requests with content, with `If-Match` or `If-Unmodified-Since`, upgrades, gRPC and CONNECT pass. \
`Cache-Control` of requests counts (`no-cache`, `no-store`, `max-age`, `min-fresh`, `max-stale`, `only-if-cached`), unless `ignore-request-directives`.

Equal requests that arrive while one goes to the server wait for its response, at most for `coalesce`, and get it as it arrives; \
if it turns out not to be stored, they go to the servers, and for two minutes requests for it do not wait. The proxy receives a response \
that it stores at the speed of the server, whatever the speed of its client, and also if the client leaves. One of unknown length that exceeds \
`object-max` is not stored, and is received as fast as the client of the first request takes it; a client that joined later and falls behind by 1 MiB is reset. \
If a server ends such a response early, its clients are reset, and nothing is stored.

Bounds: `memory`, and `size` and `files-max` of the disk, with removal of what is used least; `object-max` for a content; `waiters-max` requests that \
wait for one response, and `fills-max` responses that arrive; beyond these a request is forwarded, and its response is not stored. Threads of their own read and write the files, \
1024 jobs at most wait for them, and a core never does. Each file has checksums, which are verified when it is read, and is renamed \
into its place: a file that is torn, by a crash or a full disk, or that another program has changed is removed, and never sent. After a \
start the directory is scanned in the background. A reload keeps a cache whose `[cache.NAME]` is the same; other settings of one with a disk need another \
directory, or a restart. A content of 64 KiB or more is kept in a file in memory (memfd_create(2)), from which the kernel sends it to connections \
without TLS or HTTP/2 without a copy; a process that may not have such a file reports that, and one that started without a cache has none.

`weir ctl cache` lists the caches, `weir ctl cache show NAME` the largest responses, and `weir ctl cache purge NAME key KEY` \
(`tag TAG`, `prefix TEXT`, `all`) removes responses, also those that are arriving. The tags of a response are those of `Cache-Tag` \
(with commas) and `Surrogate-Key` (with spaces), up to 64.

`Cache-Status` (RFC 9211) tells a client whether its response came from the cache (`weir; hit; ttl=57`), or why not (`weir; fwd=stale; \
fwd-status=304; stored; ttl=60`); `detail` is the reason for which a response was not stored. The log field `cache`, `{cache}` of a log format and \
`weir_cache_requests_total` have one of these results:
";

/// Returns the text of the section.
pub(super) fn caching() -> String {
    let mut text = CACHING.to_owned();
    text += "\n| Result | Meaning |\n| --- | --- |\n";
    for result in CacheResult::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}` | {} |", result.code(), result.doc());
    }
    let reasons: Vec<String> = NotStored::ALL.iter().map(|reason| format!("`{}`", reason.name())).collect();
    let _ = writeln!(text, "\nReasons in `weir_cache_not_stored_total`: {}.", reasons.join(", "));
    text
}
