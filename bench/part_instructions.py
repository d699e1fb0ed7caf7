"""Part `instructions`: user instructions per request, counted by callgrind, and the bytes of the binary, against
the figures in instructions.txt.

Instructions do not depend on the load of the machine, so a change of one per cent shows."""

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import time

import callgrind
import harness
import lockstep
import peers
from harness import Failed
from proxies import CIPHER_SUITE, GROUP

FIGURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.txt")
# Allowed difference from the figure.
TOLERANCE = 0.01
# Requests before the first batch, and requests of a batch. The figure is the least of the batches: what is
# not caused by requests can only add to one. It counts when two batches agree.
WARM, BATCH = 240, 480
AGREEMENT, BATCHES_MAX = 0.0005, 8
CONNECTIONS, STREAMS = 4, 8
SMALL, LARGE = peers.BODY_SMALL, peers.BODY_LARGE
# Functions of the list that explains a difference.
FUNCTIONS_SHOWN = 12


# Scenes: each yields its subject, and a function that makes the given number of requests.

PROXY_CONF = """
threads = 1
{log}
[listener.web]
bind = "127.0.0.1:{port}"
pool = "app"
{tls}
[pool.app]
servers = ["127.0.0.1:{origin}"]
"""
PROXY_LOG = """
[[log]]
to = "file:access.log"
format = "haproxy"
"""
# Which requests are recorded is random; their context is not.
PROXY_TRACES = """
[tracing]
collector = "http://127.0.0.1:9"
sample = 0
"""
# Most of the work of these two is in the crate of the config, whose functions the data path calls.
PROXY_TEXTS = """
[map.tenant]
key = "host"
entries = { "bench.example" = "gold", "other.example" = "silver" }

[[route]]
listener = "web"
pool = "app"
path-prefix = "/"
when = { any = [{ map = { tenant = "gold" } }, { path-regex = "^/x[0-9]+" }] }
set-request-header = { x-client = "{source}", x-tenant = "{map.tenant:-none}", x-target = "{method} {host}{path}" }
set-response-header = { x-served-for = "{host}" }
"""
PROXY_JWT = """
[[route]]
listener = "web"
pool = "app"
auth = { jwt = { secret-file = "secret", require = { tenant = "t1" } } }
set-request-header = { x-user = "{auth.user}", x-tenant = "{jwt.tenant}" }
"""
SECRET = "instructions-instructions-instructions"
# {"alg":"HS256"}, {"sub":"ann","exp":4102444800,"tenant":"t1"}
TOKEN = ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsInRlbmFudCI6InQxIn0."
         "wORn5zfzwLjuOlqEeaNuQpXFQs62sxfzo-qnfI_90_o")
PROXY_TLS = f"""
[listener.web.tls]
certificates = ["ecdsa.pem"]
min-version = "1.3"
cipher-suites = ["{CIPHER_SUITE}"]
groups = ["{GROUP}"]
"""


@contextlib.contextmanager
def _proxy_subject(folder, program, body_bytes, log="", tls=""):
    with contextlib.closing(lockstep.Origin(body_bytes)) as origin:
        port = harness.free_port()
        with open(os.path.join(folder, "weir.toml"), "w") as file:
            file.write(PROXY_CONF.format(port=port, origin=origin.port, log=log, tls=tls))
        with open(os.path.join(folder, "secret"), "w") as file:
            file.write(SECRET)
        if tls:
            _make_certificate(folder)
        with callgrind.Subject(folder, [program, "proxy", "--config", "weir.toml"]) as subject:
            subject.wait_for_port(port)
            yield subject, origin, port


@contextlib.contextmanager
def proxy(folder, program, body_bytes, log="", tls="", fields=""):
    """A proxy between clients and an origin of HTTP/1.1, a request at a time."""
    with _proxy_subject(folder, program, body_bytes, log, tls) as (subject, origin, port):
        context = lockstep.context() if tls else None
        clients = [lockstep.Client(port, f"/?s={body_bytes}", context, fields=fields) for _ in range(CONNECTIONS)]

        def drive(count):
            for number in range(count):
                client = clients[number % CONNECTIONS]
                subject.rest()
                client.send()
                (connection,) = origin.requests(1)
                subject.rest()
                origin.respond(connection)
                client.receive()
            subject.rest()

        with _closing(clients):
            yield subject, drive


@contextlib.contextmanager
def proxy_h2(folder, program, body_bytes):
    """A proxy between one client of HTTP/2 and an origin of HTTP/1.1: requests arrive together, responses one
    by one."""
    with _proxy_subject(folder, program, body_bytes) as (subject, origin, port):
        client = lockstep.Client2(port, f"/?s={body_bytes}")

        def drive(count):
            for _ in range(count // STREAMS):
                subject.rest()
                client.send(STREAMS)
                for connection in origin.requests(STREAMS):
                    subject.rest()
                    origin.respond(connection)
                    client.receive(1)
            subject.rest()

        with _closing([client]):
            yield subject, drive


@contextlib.contextmanager
def serve(folder, program, path, *arguments, differ=True):
    """An origin, a request at a time. It remembers the last request, so requests differ or do not."""
    port = harness.free_port()
    os.mkdir(os.path.join(folder, "www"))
    with open(os.path.join(folder, "www", "file.txt"), "w") as file:
        file.write("x" * LARGE)
    argv = [program, "serve", "-t", "1", "--listen", f"127.0.0.1:{port}", *arguments]
    with callgrind.Subject(folder, argv) as subject:
        subject.wait_for_port(port)
        clients = [lockstep.Client(port, path, differ=differ) for _ in range(CONNECTIONS)]

        def drive(count):
            for number in range(count):
                subject.rest()
                clients[number % CONNECTIONS].send()
                clients[number % CONNECTIONS].receive()
            subject.rest()

        with _closing(clients):
            yield subject, drive


serve_same = functools.partial(serve, differ=False)


LOAD = ("load", "-t", "1", "-d", "1000h", "--no-watch", "--no-baseline", "--quiet", "-w", "100h")


@contextlib.contextmanager
def load(folder, program, body_bytes):
    """A generator of HTTP/1.1 in a closed loop: a response at a time."""
    with contextlib.closing(lockstep.Origin(body_bytes)) as origin:
        argv = [program, *LOAD, "-c", str(CONNECTIONS), f"http://127.0.0.1:{origin.port}/?s={body_bytes}"]
        with callgrind.Subject(folder, argv, starts_by_timers=True) as subject:
            waiting = []

            def drive(count):
                waiting.extend(origin.requests(CONNECTIONS - len(waiting)))
                for _ in range(count):
                    subject.rest()
                    origin.respond(waiting.pop(0))
                    waiting.extend(origin.requests(1))
                subject.rest()

            yield subject, drive


@contextlib.contextmanager
def load_h2(folder, program, body_bytes):
    """A generator of HTTP/2 in a closed loop: responses arrive together, and cause as many requests."""
    with contextlib.closing(lockstep.Origin2(body_bytes)) as origin:
        argv = [program, *LOAD, "--http", "2", "-c", "1", "-m", str(STREAMS),
                f"http://127.0.0.1:{origin.port}/?s={body_bytes}"]
        with callgrind.Subject(folder, argv, starts_by_timers=True) as subject:
            waiting = []

            def drive(count):
                waiting.extend(origin.requests(STREAMS - len(waiting)))
                for _ in range(count // STREAMS):
                    subject.rest()
                    origin.respond(waiting)
                    waiting[:] = origin.requests(STREAMS)
                subject.rest()

            yield subject, drive


SCENES = {
    "proxy-h1": (proxy, SMALL),
    "proxy-h1-10k": (proxy, LARGE),
    "proxy-h1-log": (proxy, SMALL, PROXY_LOG),
    "proxy-h1-traces": (proxy, SMALL, PROXY_TRACES),
    "proxy-h1-texts": (proxy, SMALL, PROXY_TEXTS),
    "proxy-h1-jwt": (proxy, SMALL, PROXY_JWT, "", f"Authorization: Bearer {TOKEN}\r\n"),
    "proxy-h1-tls": (proxy, SMALL, "", PROXY_TLS),
    "proxy-h2": (proxy_h2, SMALL),
    "serve-h1": (serve, f"/?s={SMALL}&x="),
    "serve-h1-same": (serve_same, f"/?s={SMALL}"),
    "serve-file": (serve, "/file.txt?", "www"),
    "load-h1": (load, SMALL),
    "load-h2": (load_h2, SMALL),
}
BINARY = "binary-bytes"
# With the name for "only the bytes".
NAMES = (*SCENES, "none")


@contextlib.contextmanager
def _closing(clients):
    try:
        yield
    finally:
        for client in clients:
            client.close()


def _make_certificate(folder):
    argv = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-keyout", "ecdsa.key", "-out", "ecdsa.crt"]
    made = subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if made.returncode:
        raise Failed(f"openssl made no certificate:\n{made.stderr}")
    with open(os.path.join(folder, "ecdsa.pem"), "w") as pem:
        for name in ("ecdsa.key", "ecdsa.crt"):
            with open(os.path.join(folder, name)) as part:
                pem.write(part.read())


class Count:
    """The figure of a scene: instructions per request of the cheapest batch, with the profile of that batch."""

    def __init__(self, batches, profile):
        self.batches, self.profile = batches, profile
        self.figure = min(batches) / BATCH


def count(bench, name, program):
    """Runs a scene until its two cheapest batches agree."""
    folder = tempfile.mkdtemp(prefix="scene-", dir=bench.folder)
    scene, *arguments = SCENES[name]
    with scene(folder, program, *arguments) as (subject, drive):
        drive(WARM)
        subject.start_counting()
        drive(WARM)
        subject.zero()
        batches, profiles = [], []
        while len(batches) < BATCHES_MAX:
            drive(BATCH)
            profiles.append(subject.dump())
            batches.append(callgrind.instructions(profiles[-1]))
            first, *others = sorted(batches)
            if others and others[0] - first <= AGREEMENT * first:
                break
        else:
            raise Failed(f"{name}: no two of {BATCHES_MAX} batches agree: {batches}")
        found = Count(batches, callgrind.functions(profiles[batches.index(first)]))
    shutil.rmtree(folder, ignore_errors=True)
    return found


# Figures.

VERSIONS = "# Counted with "


class Figures:
    """The file of figures: lines of name, figure and the reason of its last change."""

    def __init__(self, path=FIGURES):
        self.path, self.lines, self.known, self.versions = path, [], {}, ""
        with open(path) as file:
            self.lines = file.read().splitlines()
        for number, line in enumerate(self.lines):
            if line.startswith(VERSIONS):
                self.versions = line.removeprefix(VERSIONS)
            if not line or line.startswith("#"):
                continue
            name, figure, reason = (line.split(None, 2) + ["", ""])[:3]
            if not figure.isdigit() or not reason:
                raise Failed(f"{path}:{number + 1}: write: name figure reason")
            self.known[name] = (int(figure), number)

    def figure(self, name):
        return self.known[name][0] if name in self.known else None

    def write(self, changes, reason, versions):
        width = max(map(len, [*SCENES, BINARY]))
        self.lines = [VERSIONS + versions if line.startswith(VERSIONS) else line for line in self.lines]
        for name, figure in changes.items():
            line = f"{name:{width}} {figure:>9} {reason}"
            if name in self.known:
                self.lines[self.known[name][1]] = line
            else:
                self.lines.append(line)
        with open(self.path, "w") as file:
            file.write("\n".join(self.lines) + "\n")


def judgement(figure, before, tolerance=TOLERANCE):
    """Returns what is wrong with a figure; an empty string if nothing is."""
    if before is None:
        return "has no figure"
    if figure > before * (1 + tolerance):
        return f"{figure / before - 1:+.2%}: more than {tolerance:.0%} above the figure"
    if figure < before * (1 - tolerance):
        return f"{figure / before - 1:+.2%}: the figure is too high"
    return ""


def measure(bench):
    options, program = bench.options, os.path.abspath(peers.WEIR)
    if reason := callgrind.unsupported():
        _skip(f"bench/run instructions: left out: {reason}")
        return
    for needed in (callgrind.VALGRIND, callgrind.VGDB, program):
        if not os.access(needed, os.X_OK):
            raise Failed(f"instructions: no {needed}")
    # The subject waits while its driver works, so they may share all CPUs.
    os.sched_setaffinity(0, range(os.cpu_count()))
    figures, begun = Figures(), time.monotonic()
    print(f"\ninstructions: {program}, {BATCH} requests a batch, {_versions()}")
    found, kept, rows, wrong = {}, {}, [], {}
    for name in filter(SCENES.get, options.scenes):
        scene = bench.attempt(count, name, program)
        compared = bench.attempt(count, name, os.path.abspath(options.before)) if options.before else None
        found[name] = round(scene.figure)
        kept[name] = {"per_request": scene.figure, "batches": scene.batches}
        wrong[name] = judgement(scene.figure, figures.figure(name))
        rows.append(_row(name, scene.figure, figures, wrong[name], compared and compared.figure))
        if compared:
            kept[name]["before"] = compared.figure
        harness.progress(f"{name}: {scene.figure:.1f}")
        if wrong[name] or compared:
            bench.results.setdefault("functions", {})[name] = _differences(scene, compared)
    found[BINARY] = os.path.getsize(program)
    wrong[BINARY] = judgement(found[BINARY], figures.figure(BINARY))
    before = os.path.getsize(options.before) if options.before else None
    rows.append(_row(BINARY, found[BINARY], figures, wrong[BINARY], before))
    harness.table("instructions: user instructions per request, and bytes",
                  ["scene", "now", "figure", "difference", *(["before", "now/before"] if options.before else []),
                   "verdict"], rows)
    for name, lines in bench.results.pop("functions", {}).items():
        print(f"\n{name}:", *lines, sep="\n  ")
    bench.keep("instructions", kept | {BINARY: found[BINARY], "seconds": time.monotonic() - begun})
    _conclude(bench, figures, found, wrong)


def _skip(text):
    """Prints the reason, also to the list of `.ci/run` of what was skipped."""
    print(f"\n{text}")
    if path := os.environ.get("WEIR_SKIPPED_FILE"):
        with open(path, "a") as file:
            file.write(f"{text}\n")


def _row(name, figure, figures, wrong, before):
    known = figures.figure(name)
    compared = [] if before is None else [f"{before:,.1f}", f"{figure / before - 1:+.2%}"]
    return [name, f"{figure:,.1f}", f"{known:,}" if known else "none",
            f"{figure / known - 1:+.2%}" if known else "", *compared, "missed" if wrong else "met"]


def _conclude(bench, figures, found, wrong):
    changes = {name: found[name] for name, text in wrong.items() if text}
    if bench.options.write:
        figures.write(changes, bench.options.write, _versions())
        print(f"\n{figures.path}: {', '.join(changes) or 'nothing'} written")
        return
    for name in changes:
        bench.judge(f"instructions, {name}: {wrong[name]}", False)
    if changes and figures.versions != _versions():
        print(f"\nThe figures were counted with {figures.versions}; here are {_versions()}.")
    if changes:
        print("\nIf the change is worth it, write the new figures with the reason:\n"
              f"  bench/run instructions --scenes {','.join(set(changes) - {BINARY}) or 'none'} --write 'REASON'")


def _differences(scene, compared):
    """Lists the functions that cost most, or those that differ most from the other build."""
    before = compared.profile if compared else {}
    names = sorted(scene.profile.keys() | before.keys(),
                   key=lambda name: -abs(scene.profile.get(name, 0) - before.get(name, 0)))
    lines = []
    for name in names[:FUNCTIONS_SHOWN]:
        now, then = scene.profile.get(name, 0) / BATCH, before.get(name, 0) / BATCH
        lines.append(f"{now - then:+10.1f}  {name}" if compared else f"{now:10.1f}  {name}")
    return lines


def _versions():
    done = subprocess.run([callgrind.VALGRIND, "--version"], capture_output=True, text=True, timeout=10)
    return f"{done.stdout.strip()}, glibc {os.confstr('CS_GNU_LIBC_VERSION').split()[-1]}"
