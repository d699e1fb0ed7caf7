"""Part `h2`: HTTP/2 in cleartext with prior knowledge. CPU time of a proxy per request and per byte, two layers
of a proxy with HTTP/2 between them, CPU time of a load generator per request, and memory per connection."""

import math
import re
import socket
import statistics
import struct
import time

import harness
import part_proxy
import peers
import proxies
from harness import Failed
from part_proxy import Bound, Case

EVERY = ("weir", "haproxy", "nginx")
# Connections and streams of the client.
CONNECTIONS, STREAMS = 4, 10
H2 = {"http2": True}
STACKED = {"http2": True, "stacked": True}


def _arms(names, keywords):
    return {name: (name, keywords) for name in names}


CASES = {
    "small": Case("100 B, 4 connections x 10 streams", CONNECTIONS, peers.BODY_SMALL, _arms(EVERY, H2),
                  [Bound("haproxy", "weir", ">=", 1.6)]),
    "1m": Case("1 MB, 4 connections x 10 streams", CONNECTIONS, part_proxy.MEGABYTE, _arms(EVERY, H2),
               [Bound("haproxy", "weir", None, None)], field="cpu_ns_per_byte"),
    "stacked": Case("1 MB through two layers, 4 x 10 streams", CONNECTIONS, part_proxy.MEGABYTE,
                    _arms(("weir", "haproxy"), STACKED), [Bound("haproxy", "weir", ">=", 1.5)],
                    field="cpu_ns_per_byte"),
}
NAMES = (*CASES, "load", "memory")
RATE_BUDGET, LOAD_BUDGET = 1.5, 1.5
BUDGET_IDLE = 6_000
MEMORY_CONNECTIONS, MEMORY_WARM = 5_000, 4
STREAM_CONNECTIONS, STREAMS_EACH = 50, 100


def measure(bench):
    if bench.descriptors < proxies.DESCRIPTORS:
        print(f"\nh2: left out; it needs a descriptor limit (hard) of {proxies.DESCRIPTORS}, "
              f"here it is {bench.descriptors}")
        return
    print(f"\nh2: subject alone on CPU {harness.SUBJECT_CPU}; origin (weir serve, HTTP/1.1) and client (h2load) "
          f"on {harness.OTHER_CPU}")
    chosen, kept = bench.options.h2_cases, {}
    cases = {name: part_proxy.with_before(CASES[name], bench.options.before) for name in chosen if name in CASES}
    if "load" in chosen:
        kept["load"] = _measure_load(bench)
        bench.keep("h2", kept)
    with peers.weir_serve(harness.OTHER_CPU, "origin") as origin:
        if cases:
            kept["proxy"] = part_proxy.measure_cases(bench, "h2", origin, cases, _drive)
            bench.keep("h2", kept)
        if "stacked" in cases:
            _report_rates(bench, kept["proxy"])
        if "memory" in chosen:
            kept["memory"] = _measure_memory(bench, origin)
            bench.keep("h2", kept)


# Proxies under load.

def _drive(bench, proxy, origin, case):
    path = f"/?s={case.body}"
    # The first layer of HAProxy speaks only HTTP/2, so HTTP/1.1 cannot check it.
    _check(proxy, path, case.body)
    ramp_s = 1
    # h2load takes whole seconds.
    length_s = math.ceil(ramp_s + bench.options.seconds + 2 * part_proxy.MARGIN_S + 0.3)
    argv = ["h2load", "-t1", f"-c{case.connections}", f"-m{STREAMS}", f"-D{length_s}", proxy.url(path)]
    return part_proxy.measure_window(bench, proxy, origin, argv, ramp_s,
                                     lambda finished: _check_h2load(finished, proxy.name))


def _check(proxy, path, body_bytes):
    """Checks before the measurement that the proxy returns the response of the origin, over HTTP/2."""
    try:
        received = Client(proxy.port).get(path)
    except OSError as error:
        raise Failed(f"{proxy.name} sent no response over HTTP/2: {error!r}") from error
    if received != body_bytes:
        raise Failed(f"{proxy.name} sent {received} bytes instead of {body_bytes}")


def _check_h2load(finished, name):
    requests = re.search(r"requests: .*? (\d+) succeeded, (\d+) failed, (\d+) errored", finished.output)
    protocol = re.search(r"Application protocol: (\S+)", finished.output)
    if finished.status != 0 or not requests or (requests[2], requests[3]) != ("0", "0"):
        raise Failed(f"h2load through {name} ended with {finished.status}:\n{finished.output}")
    if not protocol or protocol[1] != "h2c":
        raise Failed(f"h2load through {name} did not use HTTP/2:\n{finished.output}")
    return int(requests[1])


def _report_rates(bench, runs):
    """Judges the bytes per second through two layers."""
    rounds = harness.Runs()
    for run in runs:
        if run["case"] == "stacked":
            rounds.add(run["arms"], run["foreign_cpus"])
    used = rounds.used(bench.options.foreign_max)
    middle, least, most = harness.ratio(used, "weir", "haproxy", "bytes_per_s")
    rows = [[arm, f"{harness.median_of(used, arm, 'bytes_per_s') / 1e6:,.0f}",
             f"{harness.median_of(used, arm, 'busy'):.0%}"] for arm in ("weir", "haproxy")]
    judged = bench.judge(f"h2, stacked: bytes/s weir/haproxy {middle:.3f}, not >= {RATE_BUDGET}",
                         middle >= RATE_BUDGET)
    rows[0] += [f"{middle:.3f} ({least:.2f}..{most:.2f})", judged]
    rows[1] += ["", ""]
    harness.table("h2: bytes through two layers on one thread", ["proxy", "MB/s", "busy", "weir/haproxy (min..max)",
                  f"verdict (>= {RATE_BUDGET})"], rows)


# Load generators.

def load_weir(bench, url, connections, seconds, cpu, program=peers.WEIR):
    return peers.load_weir(bench, url, connections, seconds, cpu, "--http", "2", "-m", str(STREAMS), program=program)


def load_before(bench, *arguments):
    return load_weir(bench, *arguments, program=bench.options.before)


def load_h2load(bench, url, connections, seconds, cpu):
    argv = ["h2load", "-t1", f"-c{connections}", f"-m{STREAMS}", f"-D{seconds}", url]
    finished = harness.run(argv, cpu, seconds + 30)
    return peers.Load(finished, _check_h2load(finished, "nothing"))


LOADS = {"weir": load_weir, "h2load": load_h2load}


def _loads(bench):
    return LOADS | {peers.BEFORE: load_before} if bench.options.before else LOADS


def _measure_load(bench):
    blocks = {(server, connections): harness.Runs() for server in ("nginx", "weir") for connections in (CONNECTIONS, 100)}
    servers = {"nginx": lambda: peers.nginx(bench, harness.OTHER_CPU, http2=True),
               "weir": lambda: peers.weir_serve(harness.OTHER_CPU)}
    for _, key in bench.blocks(blocks):
        blocks[key].add(*bench.attempt(_load_block, servers[key[0]], key))
    rows = []
    for (server, connections), runs in blocks.items():
        rounds = runs.used(bench.options.foreign_max)
        middle, least, most = harness.ratio(rounds, "h2load", "weir")
        text = f"h2load/weir {middle:.3f}"
        judged = bench.judge(f"h2, load, {server}, {connections} connections: {text}, not >= {LOAD_BUDGET}",
                             middle >= LOAD_BUDGET)
        for tool in _loads(bench):
            figures = {field: harness.median_of(rounds, tool, field) for field in ("cpu_us", "user_us", "busy")}
            verdict = (f"{text} ({least:.2f}..{most:.2f}) >= {LOAD_BUDGET}", judged) if tool == "weir" else ("", "")
            if tool == peers.BEFORE:
                middle, least, most = harness.ratio(rounds, "weir", tool)
                verdict = (f"weir/it {middle:.3f} ({least:.2f}..{most:.2f})", "")
            rows.append([f"{server}, {connections} connections x {STREAMS} streams: {tool}",
                         f"{figures['cpu_us']:.2f}", f"{figures['user_us']:.2f}", f"{figures['busy']:.0%}", *verdict,
                         f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table("h2: CPU time of the load generator per request, 100 B",
                  ["server: tool", "µs", "user", "busy", "measured and budget", "verdict", "rounds", "foreign"], rows)
    return [{"server": server, "connections": connections, "foreign_cpus": foreign, "tools": by_tool}
            for (server, connections), runs in blocks.items() for foreign, by_tool in runs.rounds]


def _load_block(bench, start, key):
    server_name, connections = key
    path = "/return" if server_name == "nginx" else f"/?s={peers.BODY_SMALL}"
    by_tool = {}
    with start() as server:
        foreign, server_s = harness.Foreign(), harness.scheduled_s(server.pid)[0]
        loads = _loads(bench)
        for tool in bench.shuffled(loads):
            load = loads[tool](bench, server.url(path), connections, bench.options.seconds, harness.SUBJECT_CPU)
            by_tool[tool] = {**load.figures(), "cpu_s": load.finished.cpu_s}
        own_s = harness.scheduled_s(server.pid)[0] - server_s + sum(each["cpu_s"] for each in by_tool.values())
        return by_tool, foreign.cpus(own_s)


# Memory.

class Client:
    """A client of HTTP/2 with just enough of it: requests without a body, and the sizes of their responses."""

    PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
    WINDOW = 2**31 - 1

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.buffer, self.next_stream = b"", 1
        # SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 §6.5.2), and the window of the connection.
        settings = struct.pack(">HI", 4, self.WINDOW)
        window = struct.pack(">I", self.WINDOW - 65_535)
        self.socket.sendall(self.PREFACE + self._frame(self.SETTINGS, 0, 0, settings)
                            + self._frame(self.WINDOW_UPDATE, 0, 0, window))

    @staticmethod
    def _frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    @staticmethod
    def _literal(index, value):
        # A literal without indexing (RFC 7541 §6.2.2); the names here have an index below 15.
        return bytes([index, len(value)]) + value.encode()

    def send(self, path):
        """Sends a GET request."""
        # :method GET, :scheme http, :path, :authority (RFC 7541, appendix A).
        block = bytes([0x82, 0x86]) + self._literal(4, path) + self._literal(1, "bench")
        self.socket.sendall(self._frame(self.HEADERS, 0x05, self.next_stream, block))
        self.next_stream += 2

    def _read(self, count):
        while len(self.buffer) < count:
            received = self.socket.recv(65_536)
            if not received:
                raise OSError("closed")
            self.buffer += received
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def get(self, path):
        """Completes one exchange and returns the size of the body."""
        self.send(path)
        return self.receive()

    def receive(self):
        """Reads until a stream ends; returns the content bytes up to there."""
        body = 0
        while True:
            head = self._read(9)
            payload = self._read(int.from_bytes(head[:3], "big"))
            kind, flags = head[3], head[4]
            if kind in (self.RST_STREAM, self.GOAWAY):
                raise OSError(f"frame of type {kind}: {payload!r}")
            if kind in (self.SETTINGS, self.PING) and not flags & 1:
                self.socket.sendall(self._frame(kind, 1, 0, payload if kind == self.PING else b""))
            body += len(payload) if kind == self.DATA else 0
            if kind in (self.DATA, self.HEADERS) and flags & 1:
                return body


def _open_idle(proxy, _origin):
    path, clients = f"/?s={peers.BODY_SMALL}", []
    for _ in range(MEMORY_CONNECTIONS):
        clients.append(Client(proxy.port))
        if clients[-1].get(path) != peers.BODY_SMALL:
            raise Failed(f"{proxy.name} sent another body")
    return clients, MEMORY_CONNECTIONS


def _open_streams(proxy, origin):
    """Opens connections with many requests each that wait for the origin."""
    others = origin.stats()["in_flight"]
    clients = [Client(proxy.port) for _ in range(STREAM_CONNECTIONS)]
    for client in clients:
        for _ in range(STREAMS_EACH):
            client.send(f"/?s={peers.BODY_SMALL}&t=30s")
    wanted, until = STREAM_CONNECTIONS * STREAMS_EACH, time.monotonic() + 15
    while (arrived := origin.stats()["in_flight"] - others) < wanted:
        if time.monotonic() > until:
            raise Failed(f"{proxy.name}: only {arrived} of {wanted} requests arrived at the origin")
        time.sleep(0.1)
    return clients, wanted


def _measure_memory(bench, origin):
    states = {f"idle after one request, {MEMORY_CONNECTIONS:,} connections": (_open_idle, BUDGET_IDLE),
              f"each of {STREAMS_EACH} waiting streams on {STREAM_CONNECTIONS} connections, with its server side":
                  (_open_streams, None)}
    kept, rows = {}, []
    for _ in range(bench.options.times):
        for state, arm in bench.shuffled([(state, arm) for state in states for arm in EVERY]):
            found = bench.attempt(_memory, origin, arm, states[state][0])
            kept.setdefault(state, {}).setdefault(arm, []).append(found)
    for state, (_, budget) in states.items():
        for arm in EVERY:
            row = [f"{state}: {arm}"]
            for field in ("rss", "pss"):
                values = [found[field] for found in kept[state][arm]]
                row.append(f"{statistics.median(values):.0f} ({min(values):.0f}..{max(values):.0f})")
            middle = statistics.median(found["rss"] for found in kept[state][arm])
            judged = ("", "")
            if arm == "weir" and budget:
                judged = (f"<= {budget}", bench.judge(f"h2, memory: {middle:.0f} bytes > {budget}", middle <= budget))
            rows.append([*row, *judged])
    harness.table("h2: bytes of user space", ["state: proxy", "resident (min..max)", "by shares (min..max)", "budget",
                  "verdict"], rows)
    return kept


def _memory(bench, origin, arm, opened):
    with proxies.PROXIES[arm](bench, harness.SUBJECT_CPU, origin, **H2) as proxy:
        for _ in range(MEMORY_WARM):
            _check(proxy, f"/?s={peers.BODY_SMALL}", peers.BODY_SMALL)
        time.sleep(0.5)
        before = harness.memory_in_detail(proxy.pid)
        clients, units = opened(proxy, origin)
        time.sleep(1)
        after = harness.memory_in_detail(proxy.pid)
        for client in clients:
            client.socket.close()
    return {field: (after[field] - before[field]) / units for field in after}
