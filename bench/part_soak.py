"""Part `soak`: hours of traffic through everything that keeps state: cache, logs that rotate, traces, reloads, upgrades.

No request may fail. In each process, resident memory and descriptors at the end have to be those after its start-up."""

import csv
import http.server
import json
import os
import signal
import statistics
import threading
import time
import urllib.request

import harness
import peers
import proxies

RELOAD_EVERY_S, SAMPLE_EVERY_S = 30, 5
# Processes one after the other; each replaces the one before.
PROCESSES = 4
DRAIN_S = 20
LOG_BYTES, LOG_FILES = 4 << 20, 3
# Requests per second and load; the machine has to do other things, too.
RATE = 250
# Allowed growth from the second quarter of a process to its last one: memory that the allocator keeps.
GROWTH_MAX, GROWTH_BYTES_MAX = 0.05, 2 << 20
OBJECTS = 600

CONF = """
threads = 2
admin = "127.0.0.1:{admin}"
control = "{folder}/weir.sock"
state-file = "{folder}/state.json"
drain-timeout = "{drain}s"

[[log]]
to = "file:{folder}/access.log"
format = "json"
rotate-size = "{log_bytes}"
rotate-files = {log_files}

[tracing]
collector = "http://127.0.0.1:{collector}"
timeout = "2s"
sample = 0.05
{cache}
[listener.web]
bind = "127.0.0.1:{port}"

[[route]]
name = "round-{round}"
path = "/round/{round}"
return = {{ status = 200, body = "round {round}" }}

[[route]]
name = "cached"
path-prefix = "/cached"
rewrite-prefix = "/"
{cached}
pool = "app"

[[route]]
name = "main"
pool = "app"

[pool.app]
servers = [{{ address = "127.0.0.1:{first}", weight = {weight} }}, "127.0.0.1:{second}"]
"""
# Memory for a part of the objects, so that some are evicted to the disk and from it.
CACHE = """
[cache.site]
memory = "4m"
disk = {{ directory = "{folder}/cache", size = "16m" }}
"""
CACHED = 'cache = { use = "site", valid = [{ status = "200", for = "40s" }] }'


class Collector(http.server.BaseHTTPRequestHandler):
    """Receiver of traces that is slow now and then, and fails now and then."""

    requests = bytes = 0
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        received = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = type(self)
        kind.requests, kind.bytes = kind.requests + 1, kind.bytes + len(received)
        if kind.requests % 20 == 0:
            time.sleep(3)
        self.send_response(503 if kind.requests % 7 == 0 else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Subject:
    """Successive proxy processes, their config, and samples of their memory and descriptors."""

    def __init__(self, bench, origins, collector):
        self.folder = os.path.join(bench.folder, "soak")
        os.makedirs(os.path.join(self.folder, "cache"), mode=0o700)
        self.conf = os.path.join(self.folder, "weir.toml")
        self.port, self.admin = harness.free_port(), harness.free_port()
        self.origins, self.collector, self.round = origins, collector, 0
        self.processes, self.logs, self.samples = [], [], []
        self.write()
        self.start()

    def write(self):
        self.round += 1
        text = CONF.format(admin=self.admin, folder=self.folder, drain=DRAIN_S, port=self.port, round=self.round,
                           log_bytes=LOG_BYTES, log_files=LOG_FILES, collector=self.collector,
                           cache=CACHE.format(folder=self.folder), cached=CACHED, weight=self.round % 3 + 1,
                           first=self.origins[0].port, second=self.origins[1].port)
        harness.replace(self.conf, text)

    def start(self, *more):
        log = os.path.join(self.folder, f"process-{len(self.logs)}")
        self.logs.append(log)
        self.processes.append(proxies.start_weir(self.conf, log, *more))

    def reload(self):
        self.write()
        self.processes[-1].send_signal(signal.SIGHUP)

    def upgrade(self):
        self.start("--upgrade-from", f"{self.folder}/weir.sock")

    def sample(self, begun):
        pid = self.processes[-1].pid
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        resident, _ = harness.memory_of(pid)
        self.samples.append((len(self.processes), round(time.monotonic() - begun), resident, descriptors))

    def metrics(self):
        found = {}
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=30) as response:
            for line in response.read().decode().splitlines():
                name, _, value = line.rpartition(" ")
                if name and not line.startswith("#"):
                    key = name.partition("{")[0]
                    found[key] = found.get(key, 0) + float(value)
        return found

    def log_bytes(self):
        names = [name for name in os.listdir(self.folder) if name.startswith("access.log")]
        return len(names), sum(os.path.getsize(os.path.join(self.folder, name)) for name in names)

    def finish(self):
        self.processes[-1].send_signal(signal.SIGTERM)
        return [process.wait(DRAIN_S + 20) for process in self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            harness.stop(process)


def _loads(bench, subject, seconds):
    """Starts the loads: cached objects, others, and a connection for each request."""
    address = f"http://127.0.0.1:{subject.port}"
    scenario = os.path.join(bench.folder, "objects.toml")
    with open(scenario, "w") as file:
        sizes = ((number, 500 + number * 37 % 20_000) for number in range(OBJECTS))
        urls = [f"{address}/cached/{number}?s={size}" for number, size in sizes]
        file.write(f"urls = {json.dumps(urls)}\n")
    kinds = {"cached": ["--file", scenario], "plain": [f"{address}/?s={peers.BODY_SMALL}"],
             "connections": ["-r", "1", f"{address}/?s={peers.BODY_LARGE}"]}
    started = {}
    for name, more in kinds.items():
        record = os.path.join(bench.folder, f"soak-{name}.json")
        argv = [peers.WEIR, "load", "-t", "1", "--quiet", "--no-watch", "--no-baseline", "-c", "16", "-R", str(RATE),
                "-d", f"{seconds}s", "--json", record, *more]
        started[name] = (record, harness.Running(argv, harness.OTHER_CPU))
    return started


def measure(bench):
    seconds = round(bench.options.minutes * 60)
    with peers.weir_serve(harness.OTHER_CPU) as first, peers.weir_serve(harness.OTHER_CPU) as second, \
            http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        with Subject(bench, (first, second), collector.server_port) as subject:
            totals = _run(bench, subject, seconds)
            files, log_bytes = subject.log_bytes()
            metrics = subject.metrics()
            codes = subject.finish()
        collector.shutdown()
    _judge(bench, subject, totals, codes, (files, log_bytes), metrics)


def _run(bench, subject, seconds):
    loads = _loads(bench, subject, seconds)
    try:
        begun = time.monotonic()
        next_reload, next_upgrade = begun + RELOAD_EVERY_S, begun + seconds / PROCESSES
        while time.monotonic() - begun < seconds:
            subject.sample(begun)
            if time.monotonic() >= next_upgrade and len(subject.processes) < PROCESSES:
                subject.upgrade()
                next_upgrade += seconds / PROCESSES
            elif time.monotonic() >= next_reload:
                subject.reload()
                next_reload += RELOAD_EVERY_S
            time.sleep(SAMPLE_EVERY_S)
            harness.progress(f"{round(time.monotonic() - begun)} s of {seconds}")
        totals = {}
        for name, (record, running) in loads.items():
            finished = running.finish(seconds + 120)
            # 4: the machine was too busy for figures, which are not asked for here.
            if finished.status not in (0, 4):
                raise harness.Failed(f"weir load ended with {finished.status}:\n{finished.output}")
            with open(record) as file:
                totals[name] = json.load(file)["totals"]
        return totals
    finally:
        for _, running in loads.values():
            harness.stop(running.process)


def _judge(bench, subject, totals, codes, log_files, metrics):
    rows = []
    for name, total in totals.items():
        errors = {kind: count for kind, count in total["errors"].items() if count}
        # Not the proxy's: a load that had no CPU for longer than the timeout gives up what it has not sent.
        not_sent = errors.pop("too_late", 0)
        good = not errors and set(total["status"]) == {"200"} and not total.get("dropped")
        rows.append([name, total["responses"], not_sent, errors or 0, total["status"],
                     bench.judge(f"soak: {name}: errors {errors}, statuses {total['status']}", good)])
    harness.table("soak: requests", ["load", "responses", "not sent", "errors", "statuses", "none failed"], rows)
    rows = []
    for number in range(1, len(subject.processes) + 1):
        samples = [sample for sample in subject.samples if sample[0] == number]
        quarter = max(1, len(samples) // 4)
        early, late = samples[quarter:2 * quarter] or samples, samples[-quarter:]
        resident = [statistics.median(sample[2] for sample in part) for part in (early, late)]
        open_files = [statistics.median(sample[3] for sample in part) for part in (early, late)]
        growth = resident[1] - resident[0]
        is_flat = growth <= max(GROWTH_MAX * resident[0], GROWTH_BYTES_MAX) and open_files[1] <= open_files[0] + 4
        rows.append([number, codes[number - 1], f"{resident[0] / 2**20:.1f} MiB", f"{resident[1] / 2**20:.1f} MiB",
                     *open_files, bench.judge(f"soak: process {number} grew by {growth} B, descriptors {open_files}",
                                              is_flat and codes[number - 1] == 0)])
    harness.table(f"soak: processes, {subject.round} configs",
                  ["process", "exit code", "RSS, second quarter", "RSS, last quarter", "descriptors", "at the end",
                   "flat"], rows)
    files, log_bytes = log_files
    is_bounded = files <= LOG_FILES + 1 and log_bytes <= (LOG_FILES + 1) * (LOG_BYTES + (64 << 10))
    print(f"logs: {files} files, {log_bytes} B: {bench.judge('soak: the logs are larger than allowed', is_bounded)}")
    arrived = bench.judge("soak: no trace arrived", Collector.bytes > 0)
    print(f"collector: {Collector.requests} requests, {Collector.bytes} B: {arrived}")
    shown = {name: value for name, value in metrics.items() if name.startswith(("weir_cache", "weir_trac", "weir_span"))
             and not name.endswith("_bucket")}
    for name, value in sorted(shown.items()):
        print(f"  {name} {value:g}")
    path = os.path.join(harness.OUT, "soak.csv")
    os.makedirs(harness.OUT, exist_ok=True)
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("process", "second", "resident_bytes", "descriptors"), *subject.samples])
    bench.keep("soak", {"totals": totals, "exit_codes": codes, "metrics": metrics})
    print(f"samples: {path}")
