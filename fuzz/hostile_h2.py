#!/usr/bin/env python3
"""Measures what hostile HTTP/2 peers cost: memory, and the latency of another client.

    fuzz/hostile_h2.py target/release/weir [SCENE...]

Clients and servers that send few bytes with a large meaning (HPACK references to large entries, Huffman
code, many streams, trailers) against `weir serve`, `weir proxy`, `weir proxy` with HTTP/2 servers and
`weir load`; beside them nginx and HAProxy, if they are installed. Each line has the memory (RSS) before, at
its peak, and five seconds after the end of the hostile connections. The script fails if one of weir's
processes grows by more than 30 MiB, keeps more than 10 % of its memory (and 1 MiB), or ends.

SCENE is a part of the name of a scene; the default is all. Needs only Python's standard library.
"""

import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CONNECTIONS = 20
RATE_BYTES_PER_S = 12_000_000 // 8
GROWTH_MAX = 30 * 2**20
KEPT_FRACTION_MAX = 0.1
KEPT_BYTES_MAX = 2**20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
GET = b"\x82\x86\x84\x01\x01a"
POST = b"\x83\x86\x84\x01\x01a"
OK = b"\x88"
MEMORY_MAX = 8 * 2**30
failures = []
running = []


def frame(kind, flags, stream, payload=b""):
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def integer(pattern, bits, value):
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([pattern | value])
    out, rest = bytearray([pattern | limit]), value - limit
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def text(value):
    return integer(0, 7, len(value)) + value


def inserted(name, value):
    return b"\x40" + text(name) + text(value)


def zeros(count):
    """Huffman code of this number of `0`, whose code is five zero bits; eight of them are five bytes."""
    return integer(0x80, 7, count * 5 // 8) + bytes(count * 5 // 8)


def head(stream, flags, block):
    parts = [block[at:at + 16384] for at in range(0, len(block), 16384)]
    out = []
    for at, part in enumerate(parts):
        end = 4 if at + 1 == len(parts) else 0
        out.append(frame(HEADERS if at == 0 else CONTINUATION, end | (flags if at == 0 else 0), stream, part))
    return b"".join(out)


LARGE = inserted(b"a" * 4062, b"")
VALUE = inserted(b"a", b"v" * 4061)
# Name: block of the first head, fields that the second one repeats.
BLOCKS = {
    "name": (LARGE, b"\x7e\x00"),
    "alternating": (inserted(b"a" * 1800, b""), inserted(b"b", b"1") + b"\x7f\x00\x00"),
    "never-indexed": (LARGE, b"\x1f\x2f\x00"),
    "value": (VALUE, b"\xbe"),
    "huffman": (b"", b"\x40\x01c" + zeros(4000)),
    "static": (b"", b"\x90"),
}


def client_bytes(name):
    """Returns the bytes of one hostile client: about 50 kB."""
    start = PREFACE + frame(SETTINGS, 0, 0)
    if name in BLOCKS:
        first, repeated = BLOCKS[name]
        block = GET + repeated * (48_000 // len(repeated))
        return start + head(1, 1, GET + first) + head(3, 1, block)
    if name == "trailers":
        return start + head(1, 0, POST + LARGE) + head(1, 1, b"\x7e\x00" * 24_000)
    if name == "size-updates":
        heads = (head(at, 1, b"\x20\x3f\xe1\x1f" + GET + LARGE + b"\x7e\x00" * 2) for at in range(1, 25, 2))
        return start + b"".join(heads)
    # Many requests of 16 kB in 20 bytes each, whose responses do not come.
    path = b"\x82\x86\x01\x01a\x04" + text(b"/?t=60s")
    return start + head(1, 1, path + VALUE) + b"".join(
        head(at, 1, path + b"\xbe" * 3) for at in range(3, 200, 2))


def tree(pid):
    """Returns a process with its descendants."""
    pids = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            for child in file.read().split():
                pids += tree(int(child))
    return pids


def rss(pid):
    total = 0
    for member in tree(pid):
        with open(f"/proc/{member}/statm", encoding="ascii") as file:
            total += int(file.read().split()[1]) * 4096
    return total


class Memory:
    """Samples the memory of a process until it is stopped."""

    def __init__(self, pid):
        self.pid, self.before, self.peak, self.is_over = pid, rss(pid), 0, False
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        while not self.is_over:
            try:
                self.peak = max(self.peak, rss(self.pid))
            except OSError:
                return
            time.sleep(0.005)

    def stop(self):
        self.is_over = True
        self.thread.join()


def report(scene, program, memory, process, after, extra=""):
    mib = lambda count: f"{count / 2**20:8.1f}"
    print(f"{scene:16} {program:14} before {mib(memory.before)} peak {mib(memory.peak)} after {mib(after)} MiB {extra}",
          flush=True)
    if not program.startswith("weir"):
        return
    if memory.peak - memory.before > GROWTH_MAX:
        failures.append(f"{scene}, {program}: grew by {mib(memory.peak - memory.before).strip()} MiB")
    if after - memory.before > max(KEPT_FRACTION_MAX * memory.before, KEPT_BYTES_MAX):
        failures.append(f"{scene}, {program}: kept {mib(after - memory.before).strip()} MiB")
    if process is not None and process.poll() is not None:
        failures.append(f"{scene}, {program}: ended")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"error: nothing listens on port {port}")


def limit_memory():
    """Limits the memory of a program under test, so that a fault does not harm the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))


class Server:
    """A running program: `h2` and `h1` are its ports."""

    def __init__(self, name, command, h2, h1):
        self.name, self.h2, self.h1 = name, h2, h1
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=limit_memory)
        running.append(self.process)
        wait_for(h2)
        wait_for(h1)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        running.remove(self.process)


def servers(weir, directory, origin):
    port = free_port()
    yield Server("weir serve", [weir, "serve", "--listen", f"127.0.0.1:{port}", "--threads", "1"], port, port)
    port = free_port()
    command = [weir, "proxy", "--listen", f"127.0.0.1:{port}", "--to", f"127.0.0.1:{origin}", "--threads", "1"]
    yield Server("weir proxy", command, port, port)
    if shutil.which("nginx"):
        h2, h1 = free_port(), free_port()
        path = f"{directory}/nginx.conf"
        with open(path, "w", encoding="ascii") as file:
            file.write(f"""worker_processes 1; daemon off; pid {directory}/nginx.pid; error_log /dev/null crit;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {directory}/b; proxy_temp_path {directory}/p;
 fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
 upstream o {{ server 127.0.0.1:{origin}; keepalive 100; }}
 server {{ listen 127.0.0.1:{h2} http2; listen 127.0.0.1:{h1};
  location / {{ proxy_pass http://o; proxy_http_version 1.1; proxy_set_header Connection ""; }} }} }}""")
        yield Server("nginx", ["nginx", "-c", path, "-e", "/dev/null"], h2, h1)
    if shutil.which("haproxy"):
        h2, h1 = free_port(), free_port()
        path = f"{directory}/haproxy.cfg"
        with open(path, "w", encoding="ascii") as file:
            file.write(f"""global
 nbthread 1
defaults
 mode http
 timeout client 60s
 timeout server 60s
 timeout connect 5s
frontend f
 bind 127.0.0.1:{h2} proto h2
 bind 127.0.0.1:{h1}
 default_backend o
backend o
 server s 127.0.0.1:{origin}
""")
        yield Server("haproxy", ["haproxy", "-f", path], h2, h1)


def last_goaway(connection, seconds):
    """Reads until the end, and returns the code of the GOAWAY frame."""
    connection.settimeout(seconds)
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except OSError:
        pass
    code = None
    while len(received) >= 9:
        length, kind = int.from_bytes(received[:3], "big"), received[3]
        if kind == GOAWAY and len(received) >= 17:
            code = int.from_bytes(received[13:17], "big")
        received = received[9 + length:]
    return code


def warm_up(server):
    """Sends ordinary requests, as many at a time as a hostile scene that gets responses: memory of the first ones
    stays, and that of idle connections to the origin."""
    connections = [socket.create_connection(("127.0.0.1", server.h2)) for _ in range(CONNECTIONS)]
    for connection in connections:
        requests = b"".join(head(at, 1, GET) for at in range(1, 25, 2))
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + requests)
    for connection in connections:
        last_goaway(connection, 1)
        connection.close()
    time.sleep(0.5)


def attack_memory(scene, server):
    warm_up(server)
    memory = Memory(server.process.pid)
    bytes_sent = client_bytes(scene)
    codes, threads, connections = [], [], []
    for _ in range(CONNECTIONS):
        connections.append(socket.create_connection(("127.0.0.1", server.h2)))

    def send(connection):
        try:
            connection.sendall(bytes_sent)
        except OSError:
            pass
        codes.append(last_goaway(connection, 2))

    for connection in connections:
        threads.append(threading.Thread(target=send, args=(connection,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    time.sleep(5)
    after = rss(server.process.pid)
    memory.stop()
    goaway = ", ".join(sorted({str(code) for code in codes}))
    report(scene, server.name, memory, server.process, after, f"GOAWAY {goaway}")


def latencies(port, seconds, result):
    """Sends one request after the other, and returns the latencies in ms."""
    end = time.monotonic() + seconds
    connection = socket.create_connection(("127.0.0.1", port), timeout=seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while time.monotonic() < end:
        begin = time.monotonic()
        received = b""
        try:
            connection.sendall(b"GET /?s=10 HTTP/1.1\r\nHost: a\r\n\r\n")
            while b"\r\n\r\n" not in received or len(received.split(b"\r\n\r\n", 1)[1]) < 10:
                part = connection.recv(65536)
                if not part:
                    raise ConnectionError
                received += part
        except OSError:
            connection = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        result.append((time.monotonic() - begin) * 1000)
        time.sleep(0.002)


def attack_latency(scene, server, seconds=6):
    """One hostile client at 12 Mbit/s, which connects again when it is thrown out."""
    quiet, busy = [], []
    latencies(server.h1, 2, quiet)
    victim = threading.Thread(target=latencies, args=(server.h1, seconds, busy))
    victim.start()
    payload = client_bytes(scene)
    end, sent, begin, connects = time.monotonic() + seconds, 0, time.monotonic(), 0
    while time.monotonic() < end:
        connects += 1
        try:
            with socket.create_connection(("127.0.0.1", server.h2)) as connection:
                for at in range(0, len(payload), 8192):
                    connection.sendall(payload[at:at + 8192])
                    sent += len(payload[at:at + 8192])
                    time.sleep(max(0, sent / RATE_BYTES_PER_S - (time.monotonic() - begin)))
        except OSError:
            time.sleep(0.001)
    victim.join()
    p99 = lambda values: sorted(values)[int(len(values) * 0.99)]
    print(f"{scene:16} {server.name:14} other client: median {statistics.median(quiet):.2f} -> "
          f"{statistics.median(busy):.2f} ms, p99 {p99(quiet):.2f} -> {p99(busy):.2f} ms "
          f"({len(busy)} requests, {connects} hostile connections)", flush=True)


class HostileServer:
    """An HTTP/2 server whose second response on each connection is hostile."""

    def __init__(self, scene):
        self.scene = scene
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def response(self, number, stream):
        if self.scene == "interim":
            interim = head(stream, 0, b"\x08\x03103" + (VALUE if number == 0 else b"\xbe" * 3))
            return interim + head(stream, 0, b"\x08\x03103" + b"\xbe" * 3) * 15
        first, repeated = BLOCKS[self.scene]
        if number == 0:
            return head(stream, 1, OK + first)
        return head(stream, 1, OK + repeated * (48_000 // len(repeated)))

    def serve(self, connection):
        received, count = b"", 0
        try:
            connection.sendall(frame(SETTINGS, 0, 0))
            while part := connection.recv(65536):
                received += part
                received = received.removeprefix(PREFACE)
                while len(received) >= 9:
                    length, kind = int.from_bytes(received[:3], "big"), received[3]
                    if len(received) < 9 + length:
                        break
                    stream = int.from_bytes(received[5:9], "big")
                    if kind == HEADERS:
                        connection.sendall(self.response(count, stream))
                        count += 1
                    elif kind == SETTINGS and not received[4] & 1:
                        connection.sendall(frame(SETTINGS, 1, 0))
                    received = received[9 + length:]
        except OSError:
            pass
        connection.close()


def attack_clients(scene, weir, directory, origin):
    """A hostile server against `weir proxy` with HTTP/2, and against `weir load`."""
    hostile = HostileServer(scene)
    port, path = free_port(), f"{directory}/proxy.toml"
    with open(path, "w", encoding="ascii") as file:
        file.write(f"""threads = 1
[listener.a]
bind = "127.0.0.1:{port}"
[[route]]
pool = "p"
[pool.p]
servers = [{{ address = "127.0.0.1:{hostile.port}" }}]
http = "2"
""")
    server = Server("weir proxy back", [weir, "proxy", "--config", path], port, port)
    memory = Memory(server.process.pid)

    def request(count):
        for _ in range(count):
            try:
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.settimeout(2)
                    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    client.recv(65536)
            except OSError:
                pass

    threads = [threading.Thread(target=request, args=(10,)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(5)
    after = rss(server.process.pid)
    memory.stop()
    report(scene, server.name, memory, server.process, after)
    server.stop()

    # Most of the memory of a load is its record: it is compared with a load of an honest origin.
    honest, _ = load_memory(weir, origin)
    memory, _ = load_memory(weir, hostile.port)
    memory.before = honest.peak
    report(scene, "weir load", memory, None, memory.before)
    hostile.listener.close()


def load_memory(weir, port):
    command = [weir, "load", "--no-baseline", "--http", "2", "-c", str(CONNECTIONS), "-m", "10", "-t", "1", "-d", "3s",
               "-w", "10s", f"http://127.0.0.1:{port}/"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.02)
    memory = Memory(load.pid)
    load.wait()
    memory.stop()
    return memory, load


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: stopped"))
    weir, wanted = sys.argv[1], sys.argv[2:]
    is_wanted = lambda name: not wanted or any(part in name for part in wanted)
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        origin = Server("origin", [weir, "serve", "--listen", f"127.0.0.1:{port}", "--threads", "1"], port, port)
        try:
            for scene in [*BLOCKS, "trailers", "size-updates", "streams"]:
                if is_wanted(f"{scene} memory"):
                    for server in servers(weir, directory, port):
                        attack_memory(scene, server)
                        server.stop()
            for scene in [*BLOCKS, "size-updates"]:
                if is_wanted(f"{scene} latency"):
                    for server in servers(weir, directory, port):
                        attack_latency(scene, server)
                        server.stop()
            for scene in [*BLOCKS, "interim"]:
                if is_wanted(f"{scene} server"):
                    attack_clients(scene, weir, directory, port)
        finally:
            for process in running:
                process.terminate()
                process.wait()
    for failure in failures:
        print(f"FAILED: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
