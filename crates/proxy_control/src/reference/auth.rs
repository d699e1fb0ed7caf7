//! Text about authentication and requests of other origins.

use std::fmt::Write as _;

use crate::auth::AuthResult;

const AUTHENTICATION: &str = "
## Authentication

`auth` of a listener or a route says who may use it; that of a route replaces the complete one of its listener, and `false` \
removes it. It holds for all requests and actions alike, with HTTP/2, upgrades and CONNECT; not for the actions `deny`, \
`silent-drop` and `tarpit`, which reject anyway, for requests without a route (404), for the redirect of `redirect-https`, \
and for challenges of ACME. It has exactly one of these methods:

- `basic`: a name and a password (RFC 7617) of a file as `htpasswd -B` writes it. Passwords are checked in threads of their own \
(`password-threads`), never in one that serves connections; the queue in front of them is bounded. An unknown name takes the \
time of a known one, and wrong passwords of a source are limited (`failures-per-source`): so guessing is slow.
- `jwt`: a JSON Web Token (RFC 7519), verified by the keys of a file or of a URL. The type of a key decides its algorithms: `none` \
is none, and a public key is no secret. Nothing else in a token chooses its keys: `jku`, `jwk` and `x5u` are ignored, \
a token with `crit` is refused. `exp` must be there, unless `required-claims` says otherwise, and `nbf` counts if it is there.
- `request`: each request is first described to a service, which decides (as `auth_request` of nginx, `forward_auth` of Caddy, \
`forwardAuth` of Traefik and `ext_authz` of Envoy). All but a 2xx of it in time, a 401, a 403 or a redirect is 503.

A request without valid credentials gets 401 with `WWW-Authenticate`, one whose claims are others than `require` 403, and one whose \
credentials cannot be checked now 503 with `Retry-After`; gRPC calls get 16, 7 and 14. Error pages apply. These end with `unauthorized`, \
`forbidden`, `auth_limited` (429) and `auth_unavailable`.

The value `{auth.user}` is the name of the user, and `{jwt.CLAIM}` a claim, such as `{jwt.realm_access.roles}`: in the fields of requests and \
responses, in the route's own response, in keys of rate limits, and in formats of logs, which have the name of a \
refused user, too. A condition of `[[route.response]]` has `claim`.

`Authorization`, or the field of the token, is removed from the request to the server, unless `forward-credentials = true`; a cookie is \
only with `forward-credentials = false`, and other cookies stay. Fields of `server-headers` are always removed from requests of clients, so that only the service sets them. A route on \
several listeners has the removals of all of them.

The order of the steps: the route is chosen; `deny`, `silent-drop` and `tarpit`; preflights of CORS; `body-max`; rate limits; \
authentication; rate limits whose key has `{auth.user}` or a claim; the action. A request that waits for its authentication keeps its body \
unread, and ends with its client.

A result that allows a request is used again for `cache-time` on the thread that has it. Its key is a hash of the credentials, keyed with a \
random number of the thread; neither passwords nor tokens are kept. It ends with another password of its user, with \
the token, and with another set of keys.

The results are in `weir_auth_total`:
";

const CORS: &str = "
`cors` says which pages of other origins may read responses. A preflight (`OPTIONS` with `Origin` and \
`Access-Control-Request-Method`) gets 204 from the proxy, before rate limits and authentication; without the fields if its origin is not one of `origins`. Other responses, also 401 and \
error pages, get `Access-Control-Allow-Origin` with the origin of the page, and `Vary: Origin`; with `origins = '*'` they get `*` and no `Vary`. Fields \
of a server whose names start with `Access-Control-` are replaced. `*` with credentials is refused, and private networks are not opened \
(`Access-Control-Allow-Private-Network`).
";

/// Returns the text of the section.
pub(super) fn authentication() -> String {
    let mut text = AUTHENTICATION.to_owned();
    text += "\n| Result | Meaning |\n| --- | --- |\n";
    for result in AuthResult::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}` | {} |", result.code(), result.doc());
    }
    text + CORS
}
