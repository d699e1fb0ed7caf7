"""Part `content`: CPU time of a proxy per compressed response, and memory of weir at 1,000 connections with each feature.

The origin, `weir serve` with files, has a text of JSON and a page of HTML. All proxies have one thread and compress with gzip at
the same level. nginx and weir use other implementations of it than HAProxy, so the lengths of the responses are printed, too."""

import base64
import hmac
import json
import os
import random
import statistics
import subprocess
import time
import typing
import urllib.request

import harness
import part_proxy
import peers
import proxies
from harness import Failed


EVERY = ("weir", "haproxy", "nginx")
CONNECTIONS = 20
ACCEPT = ("-H", "Accept-Encoding: gzip")
LENGTHS = {"json": 100_000, "html": 10_000}
LEVELS = (1, 6)
CASES = {f"{kind}-{level}": (kind, level) for kind in LENGTHS for level in LEVELS}
MEMORY = "memory"
NAMES = (*CASES, MEMORY)
MEMORY_CONNECTIONS = 1_000

WEIR = """
threads = 1
admin = "127.0.0.1:{admin}"
{top}
[listener.web]
bind = "127.0.0.1:{port}"
[[route]]
{route}
[pool.app]
servers = [{servers}]
{pool}
"""
HAPROXY = """
global
    nbthread 1
    maxconn 2000
    tune.comp.maxlevel {level}
defaults
    mode http
    http-reuse always
    timeout connect 5s
    timeout client 300s
    timeout server 300s
frontend web
    bind 127.0.0.1:{port} backlog 4096
    compression algo gzip
    compression type application/json text/html
    default_backend app
backend app
    server origin 127.0.0.1:{origin}
"""
NGINX = """
    access_log off;
    gzip on;
    gzip_comp_level {level};
    gzip_types application/json;
    gzip_proxied any;
    gzip_min_length 0;
    upstream app {{
        server 127.0.0.1:{origin};
        keepalive 256;
        keepalive_requests 1000000000;
        keepalive_timeout 300s;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
"""


class FileOrigin(peers.Server):
    """`weir serve` with files, whose counters have an address of their own."""

    def __init__(self, process, port, admin):
        super().__init__("origin", process, process.pid, port)
        self.admin = admin

    def stats(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/stats", timeout=30) as answer:
            return json.load(answer)


def measure(bench):
    if not bench.has_descriptors("content", 2 * MEMORY_CONNECTIONS):
        return
    files = os.path.join(bench.folder, "files")
    _make_files(files)
    chosen, kept = bench.options.content_cases, {}
    with _origin(files) as origin:
        if cases := [name for name in chosen if name in CASES]:
            kept["load"] = _measure_load(bench, origin, cases)
            bench.keep("content", kept)
        if MEMORY in chosen:
            kept[MEMORY] = _measure_memory(bench, origin, files)
            bench.keep("content", kept)


def _make_files(folder):
    """Writes contents of the given lengths that compress as such contents do."""
    os.makedirs(folder)
    numbers = random.Random(1)
    words = ["".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=numbers.randint(2, 9))) for _ in range(500)]
    rows, html = [], "<!doctype html>\n<title>List</title>\n<table>\n"
    while len(json.dumps(rows)) < LENGTHS["json"]:
        rows.append({"id": numbers.randrange(10**9), "name": " ".join(numbers.choices(words, k=3)),
                     "price": round(numbers.random() * 100, 2), "tags": numbers.choices(words, k=2)})
    while len(html) < LENGTHS["html"]:
        cells = "</td><td class=\"cell\">".join(numbers.choices(words, k=5))
        html += f"<tr class=\"row\"><td>{cells}</td></tr>\n"
    for name, text in (("json", json.dumps(rows)), ("html", html)):
        with open(os.path.join(folder, f"content.{name}"), "w") as file:
            # Cut to the length: nobody parses it.
            file.write(text[:LENGTHS[name]])
    os.chmod(folder, 0o755)


def _origin(files):
    port, admin = harness.free_port(), harness.free_port()
    argv = [peers.WEIR, "serve", "-t", "1", "--listen", f"127.0.0.1:{port}", "--no-precompressed", "--stats-listen", f"127.0.0.1:{admin}", files]
    process = harness.spawn(argv, harness.OTHER_CPU, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    harness.wait_for_port(port, process)
    return FileOrigin(process, port, admin)


# CPU time of compression.

def _start(bench, name, origin, level):
    port = harness.free_port()
    if name == "nginx":
        text = NGINX.format(port=port, origin=origin.port, level=level)
        return proxies.Proxy(peers.start_nginx(bench, harness.SUBJECT_CPU, port, text, 2_000), None)
    if name == "haproxy":
        text = HAPROXY.format(port=port, origin=origin.port, level=level)
        argv = [proxies.HAPROXY, "-db", "-f", proxies.write(bench, f"haproxy-{port}.cfg", text)]
        return proxies.Proxy(proxies.spawn("haproxy", argv, harness.SUBJECT_CPU, port), None)
    compression = f"compression = {{ codings = 'gzip', level = {{ gzip = {level} }}, min-size = 0 }}"
    return _weir(bench, origin, f"pool = 'app'\n{compression}", port=port)


def _weir(bench, origin, route, top="", pool="", port=None, servers=1):
    port = port or harness.free_port()
    # A name for each: they have one address.
    addresses = ", ".join(f"{{ address = '127.0.0.1:{origin.port}', name = 's{number}' }}" for number in range(servers))
    text = WEIR.format(admin=harness.free_port(), port=port, servers=addresses, route=route, top=top, pool=pool)
    argv = [peers.WEIR, "proxy", "--config", proxies.write(bench, f"weir-{port}.toml", text)]
    return proxies.Proxy(proxies.spawn("weir", argv, harness.SUBJECT_CPU, port), None)


def _measure_load(bench, origin, names):
    blocks = {name: harness.Runs() for name in names}
    for _, name in bench.blocks(blocks):
        blocks[name].add(*bench.attempt(_block, origin, *CASES[name]))
    rows = []
    for name, runs in blocks.items():
        (kind, level), rounds = CASES[name], runs.used(bench.options.foreign_max)
        for arm in EVERY:
            values = [each[arm]["cpu_us"] for each in rounds]
            ratio = ""
            if arm != "weir":
                middle, least, most = harness.ratio(rounds, arm, "weir")
                ratio = f"{middle:.3f} ({least:.2f}..{most:.2f})"
            rows.append([f"{LENGTHS[kind] // 1000} kB of {kind}, gzip {level}: {arm}",
                         f"{statistics.median(values):.1f} ({min(values):.1f}..{max(values):.1f})",
                         f"{harness.median_of(rounds, arm, 'length'):,.0f}",
                         f"{harness.median_of(rounds, arm, 'rate_per_s'):,.0f}",
                         f"{harness.median_of(rounds, arm, 'busy'):.0%}", ratio,
                         f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table("content: CPU time of the proxy per compressed response",
                  ["content: proxy", "µs (min..max)", "length", "responses/s", "busy", "it/weir (min..max)",
                   "rounds", "foreign"], rows)
    return [{"case": name, "foreign_cpus": foreign, "arms": by_arm}
            for name, runs in blocks.items() for foreign, by_arm in runs.rounds]


def _block(bench, origin, kind, level):
    by_arm, foreign = {}, []
    for arm in bench.shuffled(EVERY):
        with _start(bench, arm, origin, level) as proxy:
            length = _length(proxy, f"/content.{kind}")
            run, others = part_proxy.measure_window(
                bench, proxy, origin, _client(bench, proxy, f"/content.{kind}", CONNECTIONS), 1, _check)
            by_arm[arm] = run | {"length": length}
            foreign.append(others)
    return by_arm, statistics.mean(foreign)


def _length(proxy, path):
    """Returns the length of a response, and checks that it is compressed."""
    connection = proxy.connection()
    try:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200 or answer.getheader("Content-Encoding") != "gzip":
            raise Failed(f"{proxy.name} responded to {path} with {answer.status}, not compressed")
        return len(content)
    finally:
        connection.close()


def _client(bench, proxy, path, connections, fields=()):
    seconds = 1 + bench.options.seconds + 2 * part_proxy.MARGIN_S + 0.3
    return [peers.WEIR, "load", "-t", "1", "--quiet", "-c", str(connections), "-s", "1s", "-d", f"{seconds:.1f}s",
            "-w", "30s", "--expect-status", "200", *ACCEPT, *fields, proxy.url(path)]


def _check(finished):
    # 4: not valid. With two CPUs the generator may be the limit, which `busy` shows.
    if finished.status not in (0, 4):
        raise Failed(f"weir load ended with {finished.status}:\n{finished.output}")


# Memory.

# The hash of `secret` (bcrypt, cost 4), and the field of its user.
USER = "ann:$2b$04$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W\n"
BASIC = ("-H", "Authorization: Basic " + base64.b64encode(b"ann:secret").decode())
TOKEN_SECRET = "0123456789abcdef0123456789abcdef"


class Feature(typing.NamedTuple):
    """Text of the route, of the top and of the pool, fields of the requests, and number of servers."""
    route: str = "pool = 'app'"
    top: str = ""
    pool: str = ""
    fields: tuple = ()
    servers: int = 1


def _token():
    """Returns a token of HS256 that ends in the year 2100."""
    def text(part):
        return base64.urlsafe_b64encode(part).rstrip(b"=")

    claims = json.dumps({"sub": "ann", "exp": 4_102_444_800, "roles": ["user", "admin"]}).encode()
    signed = text(b'{"alg":"HS256"}') + b"." + text(claims)
    return (signed + b"." + text(hmac.digest(TOKEN_SECRET.encode(), signed, "sha256"))).decode()


def _features(files, origin):
    folder = os.path.dirname(files)

    def write(name, text):
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o600)
        return path

    keys = write("keys.map", "".join(f"host{number}.example.org value{number}\n" for number in range(10_000)))
    users, token_secret = write("users", USER), write("secret", TOKEN_SECRET)
    secret = "a key of the bench, long enough"
    shadow = f"[pool.shadow]\nservers = ['127.0.0.1:{origin.port}']"
    app = "pool = 'app'\n"
    return {
        "none": Feature(),
        "compression": Feature(app + "compression = { codings = 'gzip', min-size = 0 }"),
        "files": Feature(f"files = {{ root = '{files}' }}"),
        "sticky cookie": Feature(pool=f"sticky = {{ cookie = 'S', key = '{secret}' }}"),
        "rate limit": Feature(app + "rate-limit = { rate = '1M/s', burst = 1000000, key = 'source' }"),
        "map of 10,000 entries": Feature(app + "set-request-header = { x-a = '{map.keys:-none}' }",
                                         top=f"[map.keys]\nkey = 'host'\nfile = '{keys}'"),
        "split": Feature("split = { pools = { app = 1, other = 1 }, key = 'cookie.user' }",
                         top=shadow.replace("shadow", "other")),
        "limit of bytes": Feature(app + "limit-rate = '1g/s'"),
        "mirror": Feature(app + "mirror = { pool = 'shadow' }", top=shadow),
        "hedge": Feature(app + "hedge = { after = 'p95' }", servers=2),
        "basic": Feature(app + f"auth = {{ basic = {{ users-file = '{users}' }} }}", fields=BASIC),
        "JWT": Feature(app + f"auth = {{ jwt = {{ secret-file = '{token_secret}' }} }}",
                       fields=("-H", f"Authorization: Bearer {_token()}")),
    }


def _measure_memory(bench, origin, files):
    features, kept = _features(files, origin), {}
    for _ in range(bench.options.times):
        for name in bench.shuffled(features):
            kept.setdefault(name, []).append(bench.attempt(_memory, origin, features[name]))
    rows = []
    for name in features:
        row = [name]
        for field in ("start", "busy", "idle"):
            values = [found[field] / 1e6 for found in kept[name]]
            row.append(f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})")
        rows.append(row)
    harness.table(f"content: resident MB of weir, {MEMORY_CONNECTIONS:,} connections that get 10 kB of HTML",
                  ["feature", "after the start (min..max)", "under load", "after it"], rows)
    return kept


def _memory(bench, origin, feature):
    with _weir(bench, origin, feature.route, feature.top, feature.pool, servers=feature.servers) as proxy:
        found = {"start": harness.memory_of(proxy.pid)[0]}
        argv = _client(bench, proxy, "/content.html", MEMORY_CONNECTIONS, feature.fields)
        with harness.Running(argv, harness.OTHER_CPU) as client:
            time.sleep(1 + part_proxy.MARGIN_S + bench.options.seconds / 2)
            found["busy"] = harness.memory_of(proxy.pid)[0]
            _check(client.finish(bench.options.seconds + 60))
        time.sleep(0.5)
        found["idle"] = harness.memory_of(proxy.pid)[0]
    return found
