"""Servers and load generators: starts each program and reads its request count."""

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.request

import harness
from harness import Failed

TARGET = os.environ.get("BENCH_TARGET", "target/release")
WEIR = os.environ.get("BENCH_WEIR", os.path.join(TARGET, "weir"))
RESPONDER = os.path.join(TARGET, "examples", "responder")
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"

BODY_SMALL, BODY_LARGE = 100, 10_000


class Server:
    """A running server. `pid` is the process that handles the requests."""

    scheme = "http"

    def __init__(self, name, process, pid, port):
        self.name, self.process, self.pid, self.port = name, process, pid, port

    def url(self, path="/"):
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def connection(self):
        """Returns a client of HTTP/1.1 that accepts any certificate."""
        if self.scheme == "http":
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10,
                                           context=ssl._create_unverified_context())

    def stats(self):
        """Returns the counters of `weir serve`."""
        with urllib.request.urlopen(self.url("/stats"), timeout=30) as answer:
            return json.load(answer)

    def stop(self):
        harness.stop(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


# The arm of another build of weir (`--before`).
BEFORE = "weir before"


def weir_serve(cpu, name="weir", program=WEIR):
    port = harness.free_port()
    argv = [program, "serve", "-t", "1", "--listen", f"127.0.0.1:{port}"]
    process = harness.spawn(argv, cpu, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    harness.wait_for_port(port, process)
    return Server(name, process, process.pid, port)


def responder(cpu, body_bytes):
    port = harness.free_port()
    argv = [RESPONDER, f"127.0.0.1:{port}", str(body_bytes)]
    process = harness.spawn(argv, cpu, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    harness.wait_for_port(port, process)
    return Server("responder", process, process.pid, port)


NGINX_CONF = """
{user}
worker_processes 1;
worker_rlimit_nofile {descriptors};
error_log stderr crit;
pid {folder}/nginx.pid;
events {{ worker_connections {connections}; }}
http {{
    default_type text/plain;
    keepalive_requests 1000000000;
    keepalive_timeout 300s;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
{http}
}}
"""

NGINX_ORIGIN = """
    access_log off;
    sendfile on;
    open_file_cache max=100 inactive=600s;
    open_file_cache_valid 600s;
    open_file_cache_min_uses 1;
    server {{
        listen 127.0.0.1:{port} backlog=4096{listen};
        location = /return {{ return 200 "{small}"; }}
        location / {{ root {folder}/www; }}
    }}
"""


def nginx(bench, cpu, connections=19_000, http2=False):
    """Starts nginx tuned as a static origin: one worker, no log, open-file cache."""
    port = harness.free_port()
    folder = nginx_folder(bench, port)
    os.makedirs(os.path.join(folder, "www"))
    for name, size in (("small", BODY_SMALL), ("large", BODY_LARGE)):
        with open(os.path.join(folder, "www", name), "w") as file:
            file.write("x" * size)
    text = NGINX_ORIGIN.format(port=port, folder=folder, small="x" * BODY_SMALL,
                               listen=" http2" if http2 else "")
    return start_nginx(bench, cpu, port, text, connections)


def nginx_folder(bench, port):
    return os.path.join(bench.folder, f"nginx-{port}")


def start_nginx(bench, cpu, port, text, connections):
    """Starts nginx with one worker and `text` in its configuration."""
    process = _spawn_nginx(bench, (), cpu, port, text, connections)
    harness.wait_for_port(port, process)
    return Server("nginx", process, _nginx_worker(process), port)


def start_nginx_within(bench, within, cpu, address, text, connections):
    """Starts nginx in a network namespace; returns its process and its worker. It listens before it has a worker."""
    process = _spawn_nginx(bench, within, cpu, address, text, connections)
    return process, _nginx_worker(process)


def _spawn_nginx(bench, within, cpu, port, text, connections):
    folder = nginx_folder(bench, port)
    os.makedirs(folder, exist_ok=True)
    conf = os.path.join(folder, "nginx.conf")
    with open(conf, "w") as file:
        file.write(NGINX_CONF.format(
            user="user root;" if os.geteuid() == 0 else "", folder=folder, http=text,
            descriptors=bench.descriptors, connections=connections))
    os.chmod(bench.folder, 0o755)
    argv = [*within, NGINX, "-p", folder, "-c", conf, "-e", "stderr", "-g", "daemon off;"]
    return harness.spawn(argv, cpu, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _nginx_worker(process, limit_s=5):
    """Returns the PID of the worker; waits for it, because nginx listens before the worker exists."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            children = file.read().split()
        # A cache has processes of its own.
        workers = [child for child in children if b"worker process" in _command_line(child)]
        if len(workers) == 1:
            return int(workers[0])
        time.sleep(0.01)
    raise Failed(f"nginx has {len(workers)} workers instead of one")


def _command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


class Load:
    """One run of a load generator: number of responses and its own CPU time."""

    def __init__(self, finished, responses):
        if responses <= 0:
            raise Failed(f"no request was answered:\n{finished.output}")
        self.finished, self.responses = finished, responses

    def figures(self):
        per = 1e6 / self.responses
        return {"cpu_us": self.finished.cpu_s * per, "user_us": self.finished.user_s * per,
                "system_us": self.finished.system_s * per, "responses": self.responses,
                "busy": self.finished.cpu_s / self.finished.wall_s,
                "sleeps": self.finished.sleeps / self.responses}


def _number(pattern, finished):
    found = re.search(pattern, finished.output)
    if not found or finished.status not in (0, 4):
        raise Failed(f"status {finished.status}, unexpected output:\n{finished.output}")
    return int(found.group(1))


def load_weir(bench, url, connections, seconds, cpu, *flags, program=WEIR, within=(), threads=1):
    record = os.path.join(bench.folder, "run.json")
    argv = [*within, program, "load", "-t", str(threads), "--quiet", "-c", str(connections), "-d", f"{seconds}s",
            *flags, "--json", record, url]
    finished = harness.run(argv, cpu, seconds + 30)
    # 4: not valid. With two CPUs the generator is often the limit, as intended here.
    if finished.status not in (0, 4):
        raise Failed(f"weir load ended with {finished.status}:\n{finished.output}")
    with open(record) as file:
        totals = json.load(file)["totals"]
    if totals["errors"]:
        raise Failed(f"weir load had errors: {totals['errors']}")
    return Load(finished, totals["responses"])


def load_wrk(bench, url, connections, seconds, cpu, *flags, within=()):
    argv = [*within, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *flags, url]
    finished = harness.run(argv, cpu, seconds + 30)
    if "Socket errors" in finished.output or "Non-2xx" in finished.output:
        raise Failed(f"wrk had errors:\n{finished.output}")
    return Load(finished, _number(r"(\d+) requests in", finished))


def load_ab(bench, url, connections, seconds, cpu):
    # -t alone stops at 50,000 requests, so -n raises the limit. ab allocates memory for -n requests.
    argv = ["ab", "-q", "-k", "-c", str(connections), "-t", str(seconds), "-n", "3000000", url]
    finished = harness.run(argv, cpu, seconds + 30)
    return Load(finished, _number(r"Complete requests:\s+(\d+)", finished))


def load_h2load(bench, url, connections, seconds, cpu):
    argv = ["h2load", "--h1", "-t1", f"-c{connections}", f"-D{seconds}", url]
    finished = harness.run(argv, cpu, seconds + 30)
    return Load(finished, _number(r"(\d+) succeeded", finished))


def load_before(bench, url, connections, seconds, cpu):
    return load_weir(bench, url, connections, seconds, cpu, program=bench.options.before)


LOADS = {"weir": load_weir, "wrk": load_wrk, "ab": load_ab, "h2load": load_h2load}
