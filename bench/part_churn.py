"""Part `churn`: injects faults for minutes and checks that the proxy releases its resources.

Clients disappear, servers fail, configs change, and the proxy runs out of descriptors. Afterwards its
descriptors, threads and memory have to be back at their earlier values."""

import collections
import os
import random
import signal
import socket
import struct
import threading
import time
import urllib.request

import harness
import peers

DESCRIPTORS = 2_048
# Allowed memory growth: freed memory that the allocator keeps.
GROWTH_MAX, GROWTH_BYTES_MAX = 0.10, 8 << 20

CONF = """
threads = 2
admin = "127.0.0.1:{admin}"
drain-timeout = "5s"
connections-max = 1500

[[log]]
to = "file:{folder}/access.log"

[[log]]
to = "file:/dev/full"
format = "haproxy"

[listener.web]
bind = "127.0.0.1:{port}"
timeouts = {{ head = "2s", keep-alive = "3s" }}

[listener.raw]
bind = "127.0.0.1:{raw}"
mode = "tcp"
pool = "good"
{extra}
[[route]]
path = "/bad"
pool = "bad-{round}"

[[route]]
pool = "good"

[pool.good]
servers = [{{ address = "127.0.0.1:{good}", weight = {weight} }}, {{ address = "127.0.0.1:{mortal}" }}]
idle-timeout = "1s"

[pool.bad-{round}]
servers = ["127.0.0.1:{bad}"]
idle-timeout = "1s"
timeouts = {{ first-byte = "1s" }}
"""


class BadOrigin:
    """Origin that misbehaves in a random way on each connection."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(stream, self.rng.randrange(7)), daemon=True).start()

    @staticmethod
    def _answer(stream, way):
        try:
            with stream:
                stream.settimeout(5)
                stream.recv(4_096)
                if way == 0:
                    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
                elif way == 1:
                    stream.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
                elif way == 2:
                    _reset_on_close(stream)
                elif way == 3:
                    time.sleep(1.5)
                elif way == 4:
                    stream.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n")
                elif way == 5:
                    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more than that")
        except OSError:
            pass


def _reset_on_close(stream):
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Scene:
    def __init__(self, bench, folder):
        self.folder = folder
        self.rng = random.Random(bench.options.seed)
        self.port, self.raw, self.admin = (harness.free_port() for _ in range(3))
        self.extra, self.mortal_port = harness.free_low_port(), harness.free_low_port()
        self.good = peers.weir_serve(harness.OTHER_CPU)
        self.mortal = None
        self.bad = BadOrigin(bench.options.seed)
        self.conf = os.path.join(folder, "weir.toml")
        self.round, self.done = 0, collections.Counter()
        self.restart_mortal()
        self.write()
        with open(os.path.join(folder, "said"), "w") as output:
            argv = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", peers.WEIR, "proxy", "--config",
                    self.conf]
            self.process = harness.spawn(argv, harness.SUBJECT_CPU, stdout=output, stderr=output)
        harness.wait_for_port(self.port, self.process)

    def write(self):
        self.round += 1
        extra = f'[listener.extra]\nbind = "127.0.0.1:{self.extra}"\npool = "good"\n'
        with open(self.conf + ".new", "w") as file:
            file.write(CONF.format(
                admin=self.admin, folder=self.folder, port=self.port, raw=self.raw,
                extra=extra if self.round % 2 else "", round=self.round % 3, good=self.good.port,
                mortal=self.mortal_port, bad=self.bad.port, weight=self.round % 3 + 1))
        os.rename(self.conf + ".new", self.conf)

    def restart_mortal(self):
        if self.mortal:
            self.mortal.kill()
            self.mortal.wait()
        argv = [peers.WEIR, "serve", "-t", "1", "--listen", f"127.0.0.1:{self.mortal_port}"]
        with open(os.devnull, "w") as nowhere:
            self.mortal = harness.spawn(argv, harness.OTHER_CPU, stdout=nowhere, stderr=nowhere)

    def connect(self, port=None):
        stream = socket.create_connection(("127.0.0.1", port or self.port), timeout=10)
        stream.settimeout(5)
        return stream

    # Each fault is a short action of a client, a server or an operator.

    def asks(self):
        with self.connect() as stream:
            for _ in range(20):
                stream.sendall(b"GET /?s=500 HTTP/1.1\r\nHost: c\r\n\r\n")
                stream.recv(4_096)

    def asks_the_bad(self):
        for _ in range(8):
            with self.connect() as stream:
                stream.sendall(b"GET /bad HTTP/1.1\r\nHost: c\r\n\r\n")
                stream.recv(4_096)

    def vanishes_in_the_head(self):
        for _ in range(20):
            with self.connect() as stream:
                stream.sendall(b"GET / HT")
                _reset_on_close(stream)

    def vanishes_in_the_answer(self):
        for _ in range(10):
            with self.connect() as stream:
                stream.sendall(b"GET /?s=5m HTTP/1.1\r\nHost: c\r\n\r\n")
                stream.recv(10)
                _reset_on_close(stream)

    def vanishes_in_the_body(self):
        for _ in range(10):
            with self.connect() as stream:
                stream.sendall(b"POST / HTTP/1.1\r\nHost: c\r\nContent-Length: 1000000\r\n\r\nsome")

    def sends_garbage(self):
        for _ in range(20):
            with self.connect() as stream:
                stream.sendall(self.rng.randbytes(300) + b"\r\n\r\n")

    def is_slow(self):
        with self.connect() as stream:
            for byte in b"GET / HTTP/1.1\r\nHost: c":
                stream.sendall(bytes([byte]))
                time.sleep(0.02)

    def half_closes(self):
        for _ in range(10):
            with self.connect() as stream:
                stream.sendall(b"GET /?t=20 HTTP/1.1\r\nHost: c\r\n\r\n")
                stream.shutdown(socket.SHUT_WR)
                stream.recv(4_096)

    def tunnels(self):
        for _ in range(5):
            with self.connect(self.raw) as stream:
                stream.sendall(b"GET /?s=100k HTTP/1.1\r\nHost: c\r\n\r\n")
                stream.recv(1_000)
                _reset_on_close(stream)

    def floods(self):
        """Opens more connections than the proxy has descriptors for."""
        streams = []
        try:
            for _ in range(1_900):
                streams.append(self.connect())
        except OSError:
            pass
        for stream in streams[::50]:
            try:
                stream.sendall(b"GET / HTTP/1.1\r\nHost: c\r\n\r\n")
            except OSError:
                pass
        time.sleep(0.2)
        for stream in streams:
            stream.close()

    def kills_a_server(self):
        self.mortal.kill()
        time.sleep(0.3)
        self.restart_mortal()

    def reloads(self):
        for _ in range(3):
            self.write()
            self.process.send_signal(signal.SIGHUP)
            time.sleep(0.1)

    def breaks_the_config(self):
        with open(self.conf, "a") as file:
            file.write("\nnonsense = 1\n[[[")
        self.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        self.write()

    def rotates_logs(self):
        try:
            os.unlink(os.path.join(self.folder, "access.log"))
        except FileNotFoundError:
            pass
        self.process.send_signal(signal.SIGUSR1)

    FAULTS = (asks, asks_the_bad, vanishes_in_the_head, vanishes_in_the_answer, vanishes_in_the_body,
              sends_garbage, is_slow, half_closes, tunnels, kills_a_server, reloads, breaks_the_config,
              rotates_logs, floods)

    def churn(self, until, flood_every=40):
        """Runs random faults until `until`: one thread of operator faults, two threads of client faults.

        Client threads run a flood now and then."""
        def some(rng, faults):
            while time.monotonic() < until:
                fault = rng.choice(faults)
                try:
                    fault(self)
                except OSError:
                    self.done["refused or reset"] += 1
                self.done[fault.__name__] += 1

        operator = [Scene.kills_a_server, Scene.reloads, Scene.breaks_the_config, Scene.rotates_logs, Scene.asks]
        clients = [fault for fault in self.FAULTS if fault not in operator or fault is Scene.asks]
        clients = [fault for fault in clients if fault is not Scene.floods] * flood_every + [Scene.floods] * 10
        groups = [operator, clients, clients]
        threads = [threading.Thread(target=some, args=(random.Random(self.rng.random()), group))
                   for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def held(self):
        """Returns the descriptors, threads and resident bytes of the idle proxy."""
        self.write()
        if self.round % 2:
            self.write()
        self.process.send_signal(signal.SIGHUP)
        # Waits for the timeouts of clients and of idle server connections.
        time.sleep(6)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if _open_connections(self.admin) == 0:
                break
            time.sleep(0.2)
        self.asks()
        time.sleep(5)
        tasks = os.listdir(f"/proc/{self.process.pid}/task")
        # Each core has its own descriptor table.
        self.kinds = collections.Counter()
        for task in tasks:
            self.kinds.update(_descriptor_kinds(self.process.pid, task))
        with open(f"/proc/{self.process.pid}/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return self.kinds.total(), len(tasks), resident

    def close(self):
        harness.stop(self.process)
        self.good.stop()
        self.mortal.kill()
        self.mortal.wait()
        self.bad.listener.close()


def _metrics(admin):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=30) as answer:
        return answer.read().decode()


def _descriptor_kinds(pid, task):
    """Counts the open descriptors of one thread by what they refer to; sockets by state and addresses."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/task/{task}/net/{table}") as file:
            for line in list(file)[1:]:
                fields = line.split()
                local, remote = (int(fields[column].split(":")[1], 16) for column in (1, 2))
                sockets[fields[9]] = f"tcp state {fields[3]}, port {local} to {remote}"
    kinds = collections.Counter()
    directory = f"/proc/{pid}/task/{task}/fd"
    for descriptor in os.listdir(directory):
        try:
            target = os.readlink(f"{directory}/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            target = sockets.get(target[8:-1], "socket, not TCP")
        kinds[target] += 1
    return kinds


def _open_connections(admin):
    lines = _metrics(admin).splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("weir_connections_open{"))


def measure(bench):
    minutes = bench.options.minutes
    folder = os.path.join(bench.folder, "churn")
    os.makedirs(folder)
    scene = Scene(bench, folder)
    try:
        # Warm-up: allocates the buffers, pages and threads that the proxy keeps.
        scene.churn(time.monotonic() + min(30, 15 * minutes))
        before = scene.held()
        kinds_before = scene.kinds
        scene.done.clear()
        scene.churn(time.monotonic() + 60 * minutes)
        after = scene.held()
        alive = scene.process.poll() is None
        text = _metrics(scene.admin)
    finally:
        scene.close()
    growth = after[2] - before[2]
    good = (alive and after[0] <= before[0] and after[1] <= before[1]
            and growth <= max(GROWTH_MAX * before[2], GROWTH_BYTES_MAX))
    verdict = bench.judge(f"churn: (descriptors, threads, resident bytes) {before} before, {after} after", good)
    bench.keep("churn", {"before": before, "after": after, "done": dict(scene.done)})
    harness.table(f"churn: {minutes:g} minutes of faults",
                  ["", "descriptors", "threads", "resident kB"],
                  [["before", before[0], before[1], before[2] // 1024],
                   ["after", after[0], after[1], after[2] // 1024],
                   ["given back", verdict, "", ""]])
    if after[0] > before[0]:
        rows = [[kind, kinds_before[kind], count] for kind, count in sorted(scene.kinds.items())
                if count != kinds_before[kind]]
        harness.table("churn: descriptors that differ", ["kind", "before", "after"], rows)
    harness.table("churn: what was done", ["fault", "times"], sorted(scene.done.items()))
    kept = ("weir_requests_total", "weir_connections_refused_total", "weir_log_lines_total")
    for line in text.splitlines():
        if line.startswith(kept) and not line.endswith(" 0"):
            print(f"  {line}")
