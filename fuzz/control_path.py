#!/usr/bin/env python3
"""Attacks a running `weir proxy` with PROXY headers, reloads, slow peers and pipelining.

    fuzz/control_path.py target/release/weir [MINUTES] [SEED]

Clients send PROXY headers (valid, mutated, split) and pipelined requests split at any byte. They send and
read at many rates, and open silent connections. Continuous reloads change servers, limits and listeners.
The script fails if a response is neither complete nor a proper error, if a response belongs to another
request, if the proxy exits or panics, or if the connections, requests, queues, buffers, descriptors and
memory in /metrics do not return to their earlier values. It prints the waiting times of well-behaved
clients.

Needs only Python's standard library. The seed determines the bytes that are sent, but not their order.
"""

import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from request_path import Over, Reader, Wrong, mutated

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
# Gauges that have to return to 0, and gauges that may exceed their earlier value by a tolerance.
ZERO = ["weir_pool_queued_requests", "weir_server_requests_in_flight", "weir_buffers_in_use"]
BACK = {"weir_connections_open": 2, "process_open_fds": 16}
# Allowed memory growth: freed memory that the allocator keeps.
MEMORY = 32 << 20


def proxy_header(rng):
    """Returns a PROXY header: version 1 or 2, IPv4, IPv6, LOCAL or UNKNOWN."""
    kind = rng.randrange(6)
    if kind == 0:
        return b"PROXY TCP4 192.0.2.%d 198.51.100.1 4567 80\r\n" % rng.randrange(256)
    if kind == 1:
        return b"PROXY TCP6 2001:db8::%x 2001:db8::1 4567 80\r\n" % rng.randrange(65536)
    if kind == 2:
        return b"PROXY UNKNOWN\r\n"
    if kind == 3:
        return SIGNATURE + b"\x20\0\0\0"
    if kind == 4:
        extra = bytes(rng.randrange(40))
        body = bytes([192, 0, 2, rng.randrange(256), 198, 51, 100, 1]) + struct.pack(">HH", 4567, 80) + extra
        return SIGNATURE + b"\x21\x11" + struct.pack(">H", len(body)) + body
    body = bytes(32) + struct.pack(">HH", 4567, 80)
    return SIGNATURE + b"\x21\x21" + struct.pack(">H", len(body)) + body


class Attack:
    def __init__(self, weir, minutes, seed):
        self.until = time.monotonic() + minutes * 60
        self.seed, self.wrong, self.counts, self.waits = seed, [], {}, []
        self.lock = threading.Lock()
        self.origins = [self.origin(number) for number in range(3)]
        self.directory = tempfile.TemporaryDirectory()
        self.config = os.path.join(self.directory.name, "weir.toml")
        self.socket = os.path.join(self.directory.name, "weir.sock")
        self.write_config(random.Random(seed), [0, 1])
        self.errors = open(os.path.join(self.directory.name, "stderr"), "w+b")
        self.output = open(os.path.join(self.directory.name, "stdout"), "w+b")
        self.weir = subprocess.Popen([weir, "proxy", "--config", self.config],
                                     stdout=self.output, stderr=self.errors)
        self.ports = self.wait_for_ports()

    def origin(self, number):
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        threading.Thread(target=self.accept, args=(listener, number), daemon=True).start()
        return listener.getsockname()[1]

    def accept(self, listener, number):
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=self.serve, args=(sock, number), daemon=True).start()

    def serve(self, sock, number):
        """Responds to each request with its target as the body, sometimes in slow pieces."""
        sock.settimeout(10)
        reader = Reader(sock)
        try:
            while True:
                method, target, lengths, codings, expects, _ = reader.head()
                if expects:
                    sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                reader.body(lengths, codings)
                self.count(f"requests at server {number}")
                size = int((re.search(rb"size=(\d+)", target) or [0, b"0"])[1])
                body = target + b"|" + b"z" * size
                head = b"HTTP/1.1 200 OK\r\nX-Server: %d\r\nContent-Length: %d\r\n\r\n" % (number, len(body))
                response = head + (b"" if method == b"HEAD" else body)
                if b"drip" in target:
                    for at in range(0, len(response), 1 + len(response) // 20):
                        sock.sendall(response[at:at + 1 + len(response) // 20])
                        time.sleep(0.005)
                else:
                    sock.sendall(response)
        except Wrong as wrong:
            self.wrong.append(f"server {number} got {wrong}: {reader.log[-1500:]!r}")
        except (Over, OSError):
            pass
        finally:
            sock.close()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def write_config(self, rng, servers):
        listed = ", ".join(f'{{ name = "s{at}", address = "127.0.0.1:{self.origins[at]}", '
                           f'maxconn = {rng.choice([4, 40])} }}' for at in servers)
        extra = f'[listener.local]\nbind = "unix:{self.socket}"\npool = "app"\n' if rng.random() < 0.5 else ""
        text = f"""
threads = 2
admin = "127.0.0.1:0"
[listener.web]
bind = "127.0.0.1:0"
timeouts = {{ head = "2s", body-idle = "2s", keep-alive = "2s", write = "2s" }}
[listener.proxied]
bind = "127.0.0.1:0"
proxy-protocol = true
trusted = ["127.0.0.1"]
timeouts = {{ head = "2s", body-idle = "2s", keep-alive = "2s", write = "2s" }}
{extra}
[[route]]
name = "limited"
path-prefix = "/limited"
rate-limit = {{ rate = {rng.choice([50, 100])}, burst = 10, key = "route" }}
pool = "app"
[[route]]
path-prefix = "/own"
pool = "own"
[[route]]
pool = "app"
[pool.app]
servers = [{listed}]
queue = {{ limit = {rng.choice([8, 64])}, timeout = "1s" }}
timeouts = {{ connect = "2s", first-byte = "3s", idle = "2s" }}
idle-timeout = "1s"
[pool.own]
servers = [{listed}]
reuse = "never"
timeouts = {{ connect = "2s", first-byte = "3s", idle = "2s" }}
"""
        fresh = self.config + ".new"
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(fresh, self.config)

    def printed(self):
        self.output.flush()
        with open(self.output.name, encoding="utf-8") as file:
            return file.read()

    def wait_for_ports(self):
        for _ in range(400):
            printed = self.printed()
            found = dict(re.findall(r"listening on http://127.0.0.1:(\d+)/ \(listener (\w+)", printed))
            ports = {name: int(port) for port, name in found.items()}
            if admin := re.search(r"admin on http://127.0.0.1:(\d+)/", printed):
                ports["admin"] = int(admin.group(1))
                return ports
            time.sleep(0.05)
        raise SystemExit(f"the proxy did not start: {self.printed()}")

    def connect(self, name, timeout=5.0):
        sock = socket.create_connection(("127.0.0.1", self.ports[name]), timeout=5)
        sock.settimeout(timeout)
        return sock

    def metrics(self):
        with self.connect("admin", 10) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            got = b""
            while some := sock.recv(65536):
                got += some
        sums = {}
        for line in got.decode().splitlines():
            if found := re.match(r"(\w+)(?:\{.*\})? ([0-9.e+]+)$", line):
                sums[found[1]] = sums.get(found[1], 0.0) + float(found[2])
        return sums

    def reload(self):
        """Reloads configs with random servers, limits and listeners."""
        rng = random.Random(self.seed * 31)
        while time.monotonic() < self.until and not self.wrong:
            servers = rng.sample(range(3), rng.randrange(1, 4))
            self.write_config(rng, servers)
            self.weir.send_signal(signal.SIGHUP)
            self.count("reloads")
            time.sleep(rng.choice([0.05, 0.3, 1.0]))

    def responses(self, sock, targets):
        """Reads the responses to these targets and records any that is incomplete or of another request."""
        held = b""
        for target in targets:
            while b"\r\n\r\n" not in held:
                some = sock.recv(65536)
                if not some:
                    if held:
                        self.wrong.append(f"{target!r}: the connection ended in a head: {held[:300]!r}")
                    return
                held += some
            head, held = held.split(b"\r\n\r\n", 1)
            length = re.search(rb"(?i)content-length: (\d+)", head)
            status = re.match(rb"HTTP/1.1 (\d+) ", head)
            if not status or not length:
                self.wrong.append(f"{target!r}: {head[:500]!r}")
                return
            while len(held) < int(length[1]):
                some = sock.recv(65536)
                if not some:
                    self.wrong.append(f"{target!r}: a body of {len(held)} B instead of {int(length[1])} B")
                    return
                held += some
            body, held = held[:int(length[1])], held[int(length[1]):]
            self.count(f"status {status[1].decode()}")
            if status[1] == b"200" and not body.startswith(target + b"|"):
                self.wrong.append(f"{target!r} got the response to {body[:200]!r}")
                return
            if b"connection: close" in head.lower():
                return

    def pipeline(self, rng, name):
        """Sends well-formed requests in pieces of any size and checks that the responses come in order."""
        targets = [rng.choice([b"/a", b"/own", b"/limited", b"/drip"]) + b"?%d&size=%d" %
                   (rng.randrange(10**9), rng.choice([0, 10, 5000, 70000])) for _ in range(rng.randrange(1, 6))]
        data = proxy_header(rng) if name == "proxied" else b""
        for target in targets:
            body = b"x" * rng.choice([0, 0, 5, 3000])
            length = b"Content-Length: %d\r\n" % len(body) if body else b""
            data += b"%s %s HTTP/1.1\r\nHost: a\r\n%s\r\n%s" % (b"POST" if body else b"GET", target, length, body)
        with self.connect(name) as sock:
            step = rng.choice([1, 2, 7, 100, 4096, len(data)])
            step = max(step, len(data) // 300)
            pause = rng.choice([0, 0, 0.0005, 0.002])
            for at in range(0, len(data), step):
                sock.sendall(data[at:at + step])
                if pause:
                    time.sleep(pause)
            self.responses(sock, targets)

    def hostile(self, rng):
        """Sends a mutated PROXY header, nothing, or a slow head, or reads slowly."""
        kind = rng.randrange(4)
        with self.connect(rng.choice(["web", "proxied"]), 0.5) as sock:
            request = b"GET /a?size=200000 HTTP/1.1\r\nHost: a\r\n\r\n"
            if kind == 0:
                sock.sendall(mutated(proxy_header(rng), rng) + request)
                sock.recv(65536)
            elif kind == 1:
                time.sleep(rng.random())
            elif kind == 2:
                for byte in request[:rng.randrange(len(request))]:
                    sock.sendall(bytes([byte]))
                    time.sleep(rng.choice([0, 0.001, 0.02]))
            else:
                sock.sendall(request)
                for _ in range(rng.randrange(30)):
                    if not sock.recv(rng.choice([1, 100, 4096])):
                        break
                    time.sleep(0.01)

    def attack(self, number):
        rng = random.Random(self.seed * 104729 + number)
        while time.monotonic() < self.until and not self.wrong:
            self.count("connections")
            try:
                if rng.random() < 0.5:
                    self.hostile(rng)
                else:
                    self.pipeline(rng, rng.choice(["web", "proxied"]))
            except OSError:
                pass

    def probe(self, number):
        """Sends one request as a well-behaved client and records its waiting time."""
        start = time.monotonic()
        try:
            with self.connect("web") as sock:
                target = b"/probe-%d" % number
                sock.sendall(b"GET %s HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n" % target)
                self.responses(sock, [target])
            self.waits.append(time.monotonic() - start)
        except OSError as error:
            self.wrong.append(f"probe {number}: {error}")

    def run(self):
        for number in range(20):
            self.probe(number)
        time.sleep(3)
        before = self.metrics()
        workers = [threading.Thread(target=self.attack, args=(number,)) for number in range(12)]
        workers.append(threading.Thread(target=self.reload))
        for worker in workers:
            worker.start()
        number = 100
        while time.monotonic() < self.until and not self.wrong:
            number += 1
            self.probe(number)
            if self.weir.poll() is not None:
                self.wrong.append(f"the proxy ended: {self.weir.returncode}")
            time.sleep(0.02)
        for worker in workers:
            worker.join()
        self.check_end(before)

    def check_end(self, before):
        # Waits longer than any timeout of the config.
        after, end = {}, time.monotonic() + 25
        while self.weir.poll() is None and time.monotonic() < end:
            after = self.metrics()
            if not self.not_back(before, after):
                break
            time.sleep(1)
        if self.weir.poll() is None:
            self.wrong += self.not_back(before, after)
            for name in [*ZERO, *BACK, "process_resident_memory_bytes"]:
                print(f"{name}: {before.get(name)} before, {after.get(name)} after")
            self.weir.terminate()
            self.weir.wait(60)
        self.errors.seek(0)
        stderr_text = self.errors.read().decode(errors="replace")
        if "panicked" in stderr_text:
            self.wrong.append(stderr_text[-3000:])
        waits = sorted(self.waits) or [0.0]
        at = lambda fraction: waits[min(len(waits) - 1, int(fraction * len(waits)))] * 1000
        late = sum(wait > 0.05 for wait in waits)
        print(f"probes waited {at(0.5):.1f} ms (median), {at(0.99):.1f} ms (99 %), {waits[-1] * 1000:.1f} ms "
              f"max; {late} of {len(waits)} over 50 ms")
        print(dict(sorted(self.counts.items())))
        for wrong in self.wrong:
            print("WRONG:", wrong)
        sys.exit(1 if self.wrong else 0)

    def not_back(self, before, after):
        wrong = [f"{name} is {after.get(name)}" for name in ZERO if after.get(name, 0) != 0]
        for name, more in BACK.items():
            if after.get(name, 0) > before.get(name, 0) + more:
                wrong.append(f"{name}: {before.get(name)} before, {after.get(name)} after")
        memory = "process_resident_memory_bytes"
        if after.get(memory, 0) > before.get(memory, 0) + MEMORY:
            wrong.append(f"{memory}: {before.get(memory)} before, {after.get(memory)} after")
        return wrong


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    Attack(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0,
           int(sys.argv[3]) if len(sys.argv) > 3 else 1).run()
