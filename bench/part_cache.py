"""Part `cache`: the cache of a proxy beside those of nginx and Varnish: CPU time per hit, latency while objects are evicted,
and many clients of one object that nobody has yet.

The origin is `weir serve`. Each proxy has one CPU. nginx keeps its files in memory (/dev/shm), as the others keep their objects."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

import harness
import peers
import proxies
from harness import Failed

ARMS = ("weir", "nginx", "varnish")
VARNISH = shutil.which("varnishd") or "/usr/sbin/varnishd"
HITS = {"hit-100": 100, "hit-10k": 10_000, "hit-100k": 100_000}
EVICTION, COLD = "eviction", "cold"
NAMES = (*HITS, EVICTION, COLD)
CONNECTIONS = 100
# Objects of 10 kB in a random order, a third of which fits.
OBJECTS, OBJECT_BYTES, MEMORY_MIB, EVICTION_RATE = 4_000, 10_000, 16, 1_000
COLD_CLIENTS, COLD_BYTES = 1_000, 1_000_000

WEIR = """
threads = 1
[cache.objects]
memory = "{memory}m"
object-max = "4m"
[listener.web]
bind = "127.0.0.1:{port}"
[[route]]
cache = {{ use = "objects", valid = [{{ status = "200", for = "1h" }}], coalesce = "30s" }}
pool = "app"
[pool.app]
servers = ["127.0.0.1:{origin}"]
"""
NGINX = """
    access_log off;
    sendfile on;
    open_file_cache max=10000 inactive=600s;
    proxy_cache_path {folder} levels=2 keys_zone=objects:16m max_size={memory}m inactive=1h use_temp_path=off;
    upstream app {{
        server 127.0.0.1:{origin};
        keepalive 256;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache objects;
            proxy_cache_valid 200 1h;
            proxy_cache_lock on;
            proxy_cache_lock_timeout 30s;
            proxy_cache_lock_age 30s;
        }}
    }}
"""
VCL = """
vcl 4.1;
backend app {{ .host = "127.0.0.1"; .port = "{origin}"; }}
sub vcl_backend_response {{ set beresp.ttl = 1h; set beresp.grace = 0s; }}
"""


class Cached(peers.Server):
    """A proxy with a cache, and the directory of its files."""

    def __init__(self, server, folder=None):
        super().__init__(server.name, server.process, server.pid, server.port)
        self.folder = folder

    def stop(self):
        super().stop()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _start(bench, name, origin, memory_mib=256):
    port = harness.free_port()
    if name == "weir":
        text = WEIR.format(port=port, origin=origin.port, memory=memory_mib)
        argv = [peers.WEIR, "proxy", "--config", proxies.write(bench, f"weir-{port}.toml", text)]
        return Cached(proxies.spawn("weir", argv, harness.SUBJECT_CPU, port))
    if name == "nginx":
        folder = tempfile.mkdtemp(prefix="weir-bench-", dir="/dev/shm")
        text = NGINX.format(port=port, origin=origin.port, folder=folder, memory=memory_mib)
        return Cached(peers.start_nginx(bench, harness.SUBJECT_CPU, port, text, 8_000), folder)
    folder = os.path.join(bench.folder, f"varnish-{port}")
    vcl = proxies.write(bench, f"varnish-{port}.vcl", VCL.format(origin=origin.port))
    argv = [VARNISH, "-F", "-n", folder, "-a", f"127.0.0.1:{port}", "-f", vcl, "-s", f"malloc,{memory_mib}M",
            "-p", "thread_pools=1", "-p", "thread_pool_min=200", "-p", "thread_pool_max=2000", "-p", "listen_depth=4096",
            # The shared-memory log is its access log: on, as in every installation.
            "-j", "none"]
    process = harness.spawn(argv, harness.SUBJECT_CPU, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    harness.wait_for_port(port, process, 20)
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        worker = int(file.read().split()[0])
    return Cached(peers.Server("varnish", process, worker, port))


def measure(bench):
    if not os.access(VARNISH, os.X_OK):
        raise Failed("cache: varnishd is missing: apt-get install varnish")
    if not bench.has_descriptors("cache", 3 * COLD_CLIENTS):
        return
    chosen, kept = bench.options.cache_cases, {}
    with peers.weir_serve(harness.OTHER_CPU) as origin:
        if cases := [name for name in chosen if name in HITS]:
            kept["hits"] = _measure_hits(bench, origin, cases)
        if EVICTION in chosen:
            kept[EVICTION] = _measure_eviction(bench, origin)
        if COLD in chosen:
            kept[COLD] = _measure_cold(bench, origin)
    bench.keep("cache", kept)


# CPU time per hit.

def _measure_hits(bench, origin, names):
    blocks = {name: harness.Runs() for name in names}
    for _, name in bench.blocks(blocks):
        blocks[name].add(*bench.attempt(_hits, origin, HITS[name]))
    rows = []
    for name, runs in blocks.items():
        rounds = runs.used(bench.options.foreign_max)
        for arm in ARMS:
            values = [each[arm]["cpu_us"] for each in rounds]
            ratio = ""
            if arm != "weir":
                middle, least, most = harness.ratio(rounds, arm, "weir")
                met = bench.judge(f"cache: {name}: {arm}/weir {middle:.2f} < 1.0", middle >= 1)
                ratio = f"{middle:.2f} ({least:.2f}..{most:.2f}) {met}"
            rows.append([f"{name}: {arm}", f"{statistics.median(values):.1f} ({min(values):.1f}..{max(values):.1f})",
                         f"{harness.median_of(rounds, arm, 'rate_per_s'):,.0f}", ratio,
                         f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table("cache: CPU time of the proxy per hit",
                  ["size: proxy", "µs (min..max)", "responses/s", "it/weir (min..max)", "rounds", "foreign"], rows)
    return [{"case": name, "foreign_cpus": foreign, "arms": by_arm}
            for name, runs in blocks.items() for foreign, by_arm in runs.rounds]


def _hits(bench, origin, size):
    by_arm, foreign = {}, []
    for arm in bench.shuffled(ARMS):
        with _start(bench, arm, origin) as proxy:
            url = proxy.url(f"/object?s={size}")
            peers.load_weir(bench, url, CONNECTIONS, 1, harness.OTHER_CPU, "--no-watch", "--no-baseline")
            before, asked = harness.scheduled_s(proxy.pid)[0], origin.stats()["requests"]
            meter, begun = harness.Foreign(), time.monotonic()
            load = peers.load_weir(bench, url, CONNECTIONS, bench.options.seconds, harness.OTHER_CPU, "--no-watch",
                                   "--no-baseline")
            wall_s, cpu_s = time.monotonic() - begun, harness.scheduled_s(proxy.pid)[0] - before
            foreign.append(meter.cpus(cpu_s + load.finished.cpu_s))
            if origin.stats()["requests"] > asked:
                raise Failed(f"{arm} asked the origin for an object that it has")
            by_arm[arm] = {"cpu_us": cpu_s / load.responses * 1e6, "rate_per_s": load.responses / wall_s}
    return by_arm, statistics.mean(foreign)


# Latency while objects are evicted.

def _measure_eviction(bench, origin):
    kept = {arm: [] for arm in ARMS}
    for _ in range(bench.options.rounds):
        for arm in bench.shuffled(ARMS):
            kept[arm].append(bench.attempt(_eviction, origin, arm))
    rows = []
    for arm, found in kept.items():
        cells = [f"{statistics.median(each[field] for each in found):,.0f}" for field in ("p50_us", "p99_us", "p999_us")]
        hits = statistics.median(each["hit_ratio"] for each in found)
        resident = statistics.median(each["resident"] for each in found) / 2**20
        rows.append([arm, *cells, f"{hits:.1%}", f"{resident:.0f}"])
    harness.table(f"cache: {EVICTION_RATE:,} requests per second for {OBJECTS:,} objects of {OBJECT_BYTES // 1000} kB, "
                  f"of which {MEMORY_MIB} MiB are kept", ["proxy", "p50 µs", "p99 µs", "p99.9 µs", "hits", "RSS MiB"], rows)
    return kept


def _eviction(bench, origin, arm):
    with _start(bench, arm, origin, MEMORY_MIB) as proxy:
        urls = [proxy.url(f"/{number}?s={OBJECT_BYTES}") for number in range(OBJECTS)]
        bench.random.shuffle(urls)
        scenario = proxies.write(bench, "objects.toml", f"urls = {json.dumps(urls)}\n")
        record = os.path.join(bench.folder, "eviction.json")
        before = origin.stats()["requests"]
        seconds = max(6, bench.options.seconds)
        argv = [peers.WEIR, "load", "-t", "1", "--quiet", "--no-watch", "--no-baseline", "-c", "32", "-R",
                str(EVICTION_RATE), "-d", f"{seconds}s", "--json", record, "--file", scenario]
        finished = harness.run(argv, harness.OTHER_CPU, seconds + 30)
        if finished.status not in (0, 4):
            raise Failed(f"weir load ended with {finished.status}:\n{finished.output}")
        with open(record) as file:
            result = json.load(file)
        if result["totals"]["errors"]:
            raise Failed(f"{arm}: errors {result['totals']['errors']}")
        latency = result["latency"]["last_byte"]["response"]
        asked = origin.stats()["requests"] - before
        return {"p50_us": latency["p50_ns"] / 1e3, "p99_us": latency["p99_ns"] / 1e3, "p999_us": latency["p999_ns"] / 1e3,
                "hit_ratio": 1 - asked / result["totals"]["responses"], "resident": harness.memory_of(proxy.pid)[0]}


# Many clients of an object that nobody has.

def _measure_cold(bench, origin):
    # The first bodies in the queues of the sockets take memory that the machine may not have used for long, which costs
    # a virtual one a second or more: it is nobody's.
    for arm in ARMS:
        bench.attempt(_cold, origin, arm)
    rows, kept = [], {arm: [] for arm in ARMS}
    for _ in range(bench.options.times):
        for arm in bench.shuffled(ARMS):
            kept[arm].append(bench.attempt(_cold, origin, arm))
    for arm, found in kept.items():
        asked = max(each["requests"] for each in found)
        met = bench.judge(f"cache: {COLD}: {asked} requests at the origin", asked == 1) if arm == "weir" else ""
        cells = [f"{statistics.median(each[field] for each in found):.3f}" for field in ("first_s", "last_s", "cpu_s")]
        rows.append([arm, f"{asked} {met}", *cells])
    harness.table(f"cache: {COLD_CLIENTS:,} clients at once, one object of {COLD_BYTES / 1e6:.0f} MB that nobody has",
                  ["proxy", "requests at the origin", "first complete, s", "all complete, s", "CPU time, s"], rows)
    return kept


def _cold(bench, origin, arm):
    with _start(bench, arm, origin) as proxy:
        # The origin takes its time, so that all clients are there before the response is.
        path = f"/cold?s={COLD_BYTES}&t=500ms"
        before = origin.stats()["requests"]
        begun, used_s, ends, faults = time.monotonic(), harness.scheduled_s(proxy.pid)[0], [], []
        streams = harness.send_on_each(proxy.port, path, COLD_CLIENTS)
        threads = [threading.Thread(target=_receive, args=(part, begun, ends, faults)) for part in
                   (streams[number::8] for number in range(8))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for stream in streams:
            stream.close()
        if faults:
            raise Failed(f"{arm}: {len(faults)} of {COLD_CLIENTS} incomplete: {faults[0]}")
        return {"requests": origin.stats()["requests"] - before, "first_s": min(ends), "last_s": max(ends),
                "cpu_s": harness.scheduled_s(proxy.pid)[0] - used_s}


def _receive(streams, begun, ends, faults):
    """Reads a response of each stream to its end."""
    for stream in streams:
        stream.settimeout(60)
        received, head_end = 0, -1
        start = b""
        try:
            while head_end < 0 or received < head_end + 4 + COLD_BYTES:
                piece = stream.recv(1 << 18)
                if not piece:
                    raise OSError(f"ended after {received} B")
                received += len(piece)
                if head_end < 0:
                    start += piece
                    head_end = start.find(b"\r\n\r\n")
            if not start.startswith(b"HTTP/1.1 200"):
                raise OSError(f"got {start[:40]!r}")
            ends.append(time.monotonic() - begun)
        except OSError as fault:
            faults.append(str(fault))
