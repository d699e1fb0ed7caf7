"""Part `tls`: CPU time of a proxy with TLS per handshake and per byte, what TLS adds to plain requests, and
memory per idle connection.

All proxies have one thread, the same certificate, TLS 1.3, one cipher suite and one group of the key
exchange. The origin speaks plain HTTP/1.1."""

import os
import socket
import ssl
import statistics
import subprocess
import time

import harness
import part_proxy
import peers
import proxies
from harness import Failed
from part_proxy import Bound, Case

EVERY = ("weir", "haproxy", "nginx")
CLIENT = ("--insecure", "--tls-ciphers", proxies.CIPHER_SUITE, "--tls-groups", proxies.GROUP)
EACH = ("-r", "1", "--source", part_proxy.SOURCES)
KEYS = {"ecdsa": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), "rsa": ("rsa:2048",)}
# HAProxy's CPU time over weir's.
AHEAD = [Bound("haproxy", "weir", ">=", 1.1)]
HANDSHAKE_CONNECTIONS = 50


def _arms(key):
    return {name: (name, {"tls": key}) for name in EVERY}


def _on_and_off():
    """TLS on against off, for each proxy."""
    arms = {name + text: (name, {"tls": key} if key else {})
            for name in EVERY for text, key in (("", "ecdsa"), (" without TLS", None))}
    return arms, [Bound(name, f"{name} without TLS", None, None) for name in EVERY]


def _handshakes(text, key, *flags):
    return Case(text, HANDSHAKE_CONNECTIONS, peers.BODY_SMALL, _arms(key), AHEAD, (*CLIENT, *EACH, *flags))


CASES = {
    "ecdsa": _handshakes("full handshakes, ECDSA P-256", "ecdsa", "--tls-resume", "off"),
    "rsa": _handshakes("full handshakes, RSA 2048", "rsa", "--tls-resume", "off"),
    "resumed": _handshakes("resumed handshakes, ECDSA P-256", "ecdsa", "--tls-resume", "on"),
    "1m": Case("1 MB, 100 connections", 100, part_proxy.MEGABYTE, _arms("ecdsa"), AHEAD, CLIENT,
               "cpu_ns_per_byte"),
    "kept": Case("100 B, 100 connections", 100, peers.BODY_SMALL, *_on_and_off(), CLIENT),
    "new": Case("100 B, a connection per request, full handshakes", HANDSHAKE_CONNECTIONS, peers.BODY_SMALL,
                *_on_and_off(), (*CLIENT, *EACH, "--tls-resume", "off")),
}
NAMES = (*CASES, "memory")
# The first handshake of each connection of the client is a full one.
RESUMED_MIN = 0.8
BUDGET_IDLE = 14_000
MEMORY_CONNECTIONS, MEMORY_WARM = 5_000, 4


def measure(bench):
    if bench.descriptors < proxies.DESCRIPTORS:
        print(f"\ntls: left out; it needs a descriptor limit (hard) of {proxies.DESCRIPTORS}, "
              f"here it is {bench.descriptors}")
        return
    print(f"\ntls: subject alone on CPU {harness.SUBJECT_CPU}; origin and client (weir load) on "
          f"{harness.OTHER_CPU}; TLS 1.3, {proxies.CIPHER_SUITE}, {proxies.GROUP}")
    files, kept = {key: _make_certificate(bench, key) for key in KEYS}, {}
    chosen = bench.options.tls_cases
    cases = {name: part_proxy.with_before(_with_files(CASES[name], files), bench.options.before)
             for name in chosen if name in CASES}
    with peers.weir_serve(harness.OTHER_CPU, "origin") as origin:
        if cases:
            kept["load"] = part_proxy.measure_cases(bench, "tls", origin, cases, _drive)
            bench.keep("tls", kept)
        if "memory" in chosen:
            kept["memory"] = _measure_memory(bench, origin, files["ecdsa"])
            bench.keep("tls", kept)


def _make_certificate(bench, key):
    """Makes a self-signed certificate in a file with its key."""
    path = os.path.join(bench.folder, f"{key}.pem")
    parts = [os.path.join(bench.folder, name) for name in (f"{key}.key", f"{key}.crt")]
    argv = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-newkey", *KEYS[key],
            "-keyout", parts[0], "-out", parts[1]]
    made = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if made.returncode:
        raise Failed(f"openssl made no certificate:\n{made.stderr}")
    with open(path, "w") as file:
        for part in parts:
            with open(part) as source:
                file.write(source.read())
    return path


def _with_files(case, files):
    arms = {label: (name, {"tls": files[keywords["tls"]]} if keywords else {})
            for label, (name, keywords) in case.arms.items()}
    return case._replace(arms=arms)


def _drive(bench, proxy, origin, case):
    """Measures one run and checks that its handshakes are those of the case."""
    if proxy.scheme == "http":
        # The flags of TLS are errors without it.
        case = case._replace(flags=EACH if EACH[0] in case.flags else ())
        return part_proxy.drive(bench, proxy, origin, case)

    def check_handshakes(run):
        tls = run["tls"]
        resumed = tls["resumed"] / max(tls["resumed"] + tls["full"], 1)
        if tls["cipher_suite"] != proxies.CIPHER_SUITE or tls["version"] != "TLSv1.3" or tls["failed"]:
            raise Failed(f"{proxy.name}: not the TLS of the others: {tls}")
        if EACH[0] in case.flags and ((resumed < RESUMED_MIN) if "on" in case.flags else resumed > 0):
            raise Failed(f"{proxy.name}, {case.text}: {resumed:.1%} of the handshakes are resumed")

    return part_proxy.drive(bench, proxy, origin, case, check_run=check_handshakes)


# Memory.

def _measure_memory(bench, origin, pem):
    kept, rows = {}, []
    for _ in range(bench.options.times):
        for arm in bench.shuffled(EVERY):
            kept.setdefault(arm, []).append(bench.attempt(_memory, origin, arm, pem))
    for arm in EVERY:
        row = [f"idle after one request: {arm}"]
        for field in ("rss", "pss"):
            values = [found[field] for found in kept[arm]]
            row.append(f"{statistics.median(values):.0f} ({min(values):.0f}..{max(values):.0f})")
        middle = statistics.median(found["rss"] for found in kept[arm])
        text = f"tls, memory: {middle:.0f} bytes > {BUDGET_IDLE}"
        judged = (f"<= {BUDGET_IDLE}", bench.judge(text, middle <= BUDGET_IDLE)) if arm == "weir" else ("", "")
        rows.append([*row, *judged])
    harness.table(f"tls: bytes of user space per connection, {MEMORY_CONNECTIONS:,} of them",
                  ["connections: proxy", "resident (min..max)", "by shares (min..max)", "budget", "verdict"], rows)
    return kept


def _memory(bench, origin, arm, pem):
    """Measures the bytes per connection that MEMORY_CONNECTIONS add to a new, warm proxy."""
    path = f"/?s={peers.BODY_SMALL}"
    with proxies.PROXIES[arm](bench, harness.SUBJECT_CPU, origin, tls=pem) as proxy:
        for _ in range(MEMORY_WARM):
            part_proxy.check(proxy, path, peers.BODY_SMALL)
        time.sleep(0.5)
        before = harness.memory_in_detail(proxy.pid)
        sockets = _open_idle(proxy.port, path, MEMORY_CONNECTIONS, peers.BODY_SMALL)
        time.sleep(1)
        after = harness.memory_in_detail(proxy.pid)
        alive = harness.count_open(sockets)
        for each in sockets:
            each.close()
        if alive != MEMORY_CONNECTIONS:
            raise Failed(f"{arm}: only {alive} connections are open and waiting")
    return {field: (after[field] - before[field]) / MEMORY_CONNECTIONS for field in after}


def _open_idle(port, path, count, body_bytes):
    """Opens `count` TLS connections with a full handshake and completes one exchange on each."""
    context = ssl._create_unverified_context()
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    sockets = []
    for _ in range(count):
        plain = socket.create_connection(("127.0.0.1", port), 10)
        sockets.append(context.wrap_socket(plain))
        sockets[-1].sendall(request)
        received = b""
        while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < body_bytes:
            bytes_in = sockets[-1].recv(4096)
            if not bytes_in:
                raise Failed(f"closed after {received!r}")
            received += bytes_in
    return sockets
