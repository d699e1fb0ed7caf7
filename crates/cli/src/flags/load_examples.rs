//! Examples of `weir load`; the tests run them.

/// Command lines with their effects.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("weir load", "measure this machine with the embedded origin"),
    ("weir load -v -d 2s http://127.0.0.1:8000/", "the same figures with all details"),
    ("weir load -c 10 -d 2s http://127.0.0.1:8000/?s=100", "ten connections, closed loop, two seconds"),
    (
        "weir load -c 50 -R 2k -d 2s --slo 'p99<500ms,errors<1%' http://127.0.0.1:8000/",
        "2,000 requests per second in an open loop, with objectives",
    ),
    (
        "weir load -c 4 -d 3s --confirm 'http://127.0.0.1:8000/?t=20'",
        "find the limit of a service, and test the finding",
    ),
    (
        "weir load -n 1000 -r 10 --json run.json http://127.0.0.1:8000/",
        "1,000 requests, ten per connection; store the record",
    ),
    (
        "weir load -c 10 -n 1000 -r 1 --tls-resume 90% --insecure https://127.0.0.1:8443/",
        "1,000 connections with TLS, of which a tenth makes a full handshake",
    ),
    (
        "weir load --http 2 -c 4 -m 32 -d 2s http://127.0.0.1:8000/?s=100",
        "four HTTP/2 connections with 32 concurrent streams each",
    ),
    (
        "weir load --mix 1.1=50,2=50 -m 8 -c 4 -d 2s http://127.0.0.1:8000/",
        "two connections of HTTP/1.1 and two of HTTP/2",
    ),
    (
        "weir load -n 1000 --no-watch --expect-body '\\.12345' --expect-hash same http://127.0.0.1:8000/?s=100",
        "check the body of every response",
    ),
    (
        "weir load -n 1000 --no-watch --cookies --values users.csv -H 'X-User: {{csv:user}}' 'http://127.0.0.1:8000/?s={{random:1-1000}}'",
        "requests that differ, with users from a CSV file and cookies per connection",
    ),
    (
        "weir load -c 4 --no-watch --stages '500ms@400,500ms@400,500ms@0' http://127.0.0.1:8000/",
        "raise the rate to 400 per second, hold it, and lower it again",
    ),
    (
        "weir load --no-watch --replay access.log --speed 2x http://127.0.0.1:8000/",
        "replay an access log in half of its time",
    ),
    (
        "weir load --check -f plan.toml --targets targets.txt -c 8",
        "print the plan of a scenario file and a file of requests in words",
    ),
    (
        "weir load -c 2 -n 1000 --no-watch --pipeline 8 --format wrk http://127.0.0.1:8000/",
        "pipelined requests, with the result in the form of wrk",
    ),
    (
        "weir load --check -c 10 -R 1k -d 30s --message-size 256 --slo 'p99<50ms' wss://echo.example/chat",
        "1000 WebSocket messages per second on ten connections; without --check it measures their echoes",
    ),
    (
        "weir load --check --sse -c 200 -d 60s https://example.org/events",
        "200 subscriptions to server-sent events: time to the first event, gaps and lost IDs",
    ),
    (
        "weir load -c 16 -n 100 --no-watch --source 127.0.0.0/28 --connect-to 127.0.0.1:8000 http://example.org/",
        "connections from 16 source addresses to another address than the URL's",
    ),
    (
        "weir load -n 100 --no-watch --slo 'max<10s' --junit junit.xml --markdown result.md --openmetrics live.txt http://127.0.0.1:8000/",
        "the result for a build server, a comment and a monitoring system",
    ),
];
