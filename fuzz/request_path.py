#!/usr/bin/env python3
"""Sends mutated requests and mutated responses through a running `weir proxy` for some minutes.

    fuzz/request_path.py target/release/weir [MINUTES] [SEED]

Clients send corpus requests: mutated, split, pipelined or incomplete. The origin parses strictly and
sends mutated corpus responses. The script fails if the proxy exits or panics, if the origin receives
bytes with two possible readings, if a well-formed request in between does not get its own response,
or if descriptors or memory grow.

Needs only Python's standard library. The seed determines the bytes that are sent, but not their order.
"""

import os
import random
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
WORDS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"0\r\n\r\n", b"5\r\nhello\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Expect: 100-continue\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"TE: trailers\r\n", b"Trailer: X-T\r\n",
    b"Connection: content-length, host\r\n", b"Host: b\r\n", b"X-A: b\r\n", b"HTTP/1.0", b"HTTP/1.1",
    b"GET /smuggled HTTP/1.1\r\nHost: inner\r\n\r\n", b"HEAD ", b"POST ", b"OPTIONS ", b"http://h",
    b"/../", b"/..;/", b"/;/", b"//", b"%2e%2e", b"%2f", b"%5c", b"%252e", b"\\", b";a=b", b"/admin",
    b"X_Forwarded_For: 6.6.6.6\r\n", b"X-Real-IP: 6.6.6.6\r\n", b"True-Client-IP: 6.6.6.6\r\n",
    b"X-Original-URL: /6.6.6.6\r\n", b"X-Forwarded-For: 6.6.6.6\r\n", b"Forwarded: for=6.6.6.6\r\n",
    b";a", b";a=\"b;c\"", b";bad[=x", b"\r\n\r\n", b"X-Forwarded-User: 6.6.6.6\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"204", b"304", b"\x7f",
]
# Fields that the proxy removes from untrusted clients, and fields that the proxy writes itself.
IDENTITY = {b"x-real-ip", b"x-client-ip", b"true-client-ip", b"x-original-url", b"x-rewrite-url",
            b"cf-connecting-ip", b"x-cluster-client-ip", b"x-forwarded"}
OWN = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded"}
REQUESTS = [
    b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
    b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n" + b"x" * 40000,
    b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
]
RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"y" * 100000,
]


def corpus(name):
    directory = os.path.join(HERE, "corpus", name)
    files = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    return [open(os.path.join(directory, file), "rb").read() for file in files]


class Wrong(Exception):
    """Error for bytes with two possible readings, or with none."""


class Over(Exception):
    """Signal that the connection ended or timed out."""


class Reader:
    """Strict, slow parser of the requests from the proxy."""

    def __init__(self, sock):
        self.sock, self.held, self.log = sock, b"", b""

    def more(self):
        try:
            some = self.sock.recv(65536)
        except OSError:
            raise Over from None
        if not some:
            raise Over
        self.held += some
        self.log = (self.log + some)[-4000:]

    def line(self):
        while b"\n" not in self.held:
            self.more()
        line, self.held = self.held.split(b"\n", 1)
        if not line.endswith(b"\r") or b"\r" in line[:-1]:
            raise Wrong("line end")
        return line[:-1]

    def exactly(self, length):
        while len(self.held) < length:
            self.more()
        taken, self.held = self.held[:length], self.held[length:]
        return taken

    def fields(self):
        found = []
        while line := self.line():
            name, colon, value = line.partition(b":")
            if not colon or not TOKEN.match(name):
                raise Wrong("field name")
            value = value.strip(b" \t")
            if any(byte == 127 or byte < 32 and byte != 9 for byte in value):
                raise Wrong("field value")
            found.append((name.lower(), value))
        return found

    def head(self):
        words = self.line().split(b" ")
        if len(words) != 3 or not TOKEN.match(words[0]) or words[2] != b"HTTP/1.1":
            raise Wrong("request line")
        if not words[1] or any(not 32 < byte < 127 for byte in words[1]):
            raise Wrong("target")
        fields = self.fields()
        named = lambda name: [value for other, value in fields if other == name]
        if len(named(b"host")) != 1:
            raise Wrong("host")
        for name, value in fields:
            if name in IDENTITY or name.startswith(b"x-forwarded-") and name not in OWN or b"_" in name:
                raise Wrong("identity header of an untrusted client")
        if any(b"6.6.6.6" in value for name in OWN for value in named(name)):
            raise Wrong("identity header of an untrusted client")
        path = words[1].split(b"?")[0]
        if path.startswith(b"/") and (b"\\" in path or any(
                segment.split(b";")[0] in (b".", b"..") for segment in path.split(b"/"))):
            raise Wrong("path")
        if len(named(b"connection")) > 1 or named(b"keep-alive") or named(b"proxy-connection"):
            raise Wrong("hop-by-hop")
        lengths, codings = named(b"content-length"), named(b"transfer-encoding")
        if lengths and codings or len(lengths) > 1 or codings not in ([], [b"chunked"]):
            raise Wrong("framing")
        if lengths and not re.fullmatch(rb"[0-9]+", lengths[0]):
            raise Wrong("length")
        expects = bool(named(b"expect"))
        if expects and not (lengths or codings):
            raise Wrong("Expect without a body")
        upgrade = any(b"upgrade" in value.lower() for value in named(b"connection"))
        return words[0], words[1], lengths, codings, expects, upgrade

    def body(self, lengths, codings):
        if lengths:
            self.exactly(int(lengths[0]))
        while codings:
            size = self.line()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", size):
                raise Wrong("chunk size")
            if int(size, 16) == 0:
                if any(name in (b"content-length", b"transfer-encoding", b"host")
                       for name, _ in self.fields()):
                    raise Wrong("trailer")
                return
            self.exactly(int(size, 16))
            if self.exactly(2) != b"\r\n":
                raise Wrong("chunk end")


class Soak:
    def __init__(self, weir, minutes, seed):
        self.until = time.monotonic() + minutes * 60
        self.requests = REQUESTS * 4 + corpus("request_head")
        self.responses = RESPONSES * 4 + corpus("response_head")
        self.seed, self.wrong, self.counts = seed, [], {}
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        threading.Thread(target=self.accept, daemon=True).start()
        self.directory = tempfile.TemporaryDirectory()
        config = os.path.join(self.directory.name, "weir.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""
threads = 1
[listener.web]
bind = "127.0.0.1:0"
pool = "app"
timeouts = {{ head = "2s", body-idle = "2s", keep-alive = "2s", write = "2s" }}
[pool.app]
servers = ["127.0.0.1:{self.listener.getsockname()[1]}"]
reuse = "always"
timeouts = {{ connect = "2s", first-byte = "2s", idle = "2s", tunnel = "2s" }}
""")
        self.errors = open(os.path.join(self.directory.name, "stderr"), "w+b")
        self.weir = subprocess.Popen([weir, "proxy", "--config", config],
                                     stdout=subprocess.PIPE, stderr=self.errors)
        line = self.weir.stdout.readline().decode()
        self.port = int(re.search(r":(\d+)/", line).group(1))

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def accept(self):
        number = 0
        while True:
            sock, _ = self.listener.accept()
            number += 1
            threading.Thread(target=self.serve, args=(sock, number), daemon=True).start()

    def serve(self, sock, number):
        rng = random.Random(self.seed * 7919 + number)
        sock.settimeout(10)
        reader = Reader(sock)
        try:
            while True:
                method, target, lengths, codings, expects, upgrade = reader.head()
                self.count("requests at the origin")
                probe = target.startswith(b"/probe-")
                hasty = not probe and rng.random() < 0.1
                if expects and not hasty:
                    sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                if not hasty:
                    reader.body(lengths, codings)
                if probe:
                    body = b"" if method == b"HEAD" else target
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(target), body))
                    continue
                response = rng.choice(self.responses)
                if upgrade and rng.random() < 0.5:
                    response = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi"
                if rng.random() < 0.5:
                    response = mutated(response, rng)
                cut = rng.randrange(len(response) + 1) if rng.random() < 0.3 else len(response)
                sock.sendall(response[:cut])
                if rng.random() < 0.3 and cut < len(response):
                    sock.sendall(response[cut:])
                    cut = len(response)
                # Closes after a truncated response, an upgrade or an unread body, and sometimes at random.
                if cut < len(response) or upgrade or hasty or rng.random() < 0.2:
                    return
        except Wrong as wrong:
            self.wrong.append(f"the origin got {wrong}: {reader.log[-1500:]!r}")
        except (Over, OSError):
            pass
        finally:
            sock.close()

    def connect(self, timeout):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        sock.settimeout(timeout)
        return sock

    def attack(self, number):
        rng = random.Random(self.seed * 104729 + number)
        while time.monotonic() < self.until and not self.wrong:
            self.count("connections")
            try:
                with self.connect(0.3) as sock:
                    for _ in range(rng.randrange(1, 4)):
                        self.send(sock, rng)
                    if rng.random() < 0.3:
                        sock.shutdown(socket.SHUT_WR)
                    quiet = 0
                    while quiet < 1 and (some := sock.recv(65536)):
                        quiet = 0 if some else 1
            except OSError:
                pass

    def send(self, sock, rng):
        request = rng.choice(self.requests)
        if rng.random() < 0.7:
            request = mutated(request, rng)
        if rng.random() < 0.3:
            request += rng.choice(self.requests)
        if rng.random() < 0.2:
            request = request[:rng.randrange(len(request) + 1)]
        at = rng.randrange(len(request) + 1) if rng.random() < 0.3 else len(request)
        sock.sendall(request[:at])
        if at < len(request):
            time.sleep(0.001)
            sock.sendall(request[at:])

    def probe(self, number):
        """Sends a well-formed request and expects its own response or a 50x of the proxy."""
        target = b"/probe-%d" % number
        with self.connect(5) as sock:
            sock.sendall(b"GET %s HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n" % target)
            got = b""
            try:
                while some := sock.recv(65536):
                    got += some
            except OSError as error:
                self.wrong.append(f"{target!r}: {error} after {got!r}")
        own = got.startswith(b"HTTP/1.1 200") and got.endswith(b"\r\n\r\n" + target)
        theirs = re.match(rb"HTTP/1.1 50[234] ", got)
        if not own and not theirs:
            self.wrong.append(f"{target!r} got {got[:500]!r}")
        self.count("probes with own response" if own else "probes rejected")

    def size(self):
        with open(f"/proc/{self.weir.pid}/status", encoding="utf-8") as file:
            kib = int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))
        # Each core has its own descriptor table.
        tasks = f"/proc/{self.weir.pid}/task"
        return sum(len(os.listdir(f"{tasks}/{task}/fd")) for task in os.listdir(tasks)), kib

    def run(self):
        fds_before, _ = self.size()
        attackers = [threading.Thread(target=self.attack, args=(number,)) for number in range(12)]
        for attacker in attackers:
            attacker.start()
        number, sizes, next_size = 0, [], 0.0
        while time.monotonic() < self.until and not self.wrong:
            number += 1
            self.probe(number)
            if self.weir.poll() is not None:
                self.wrong.append(f"the proxy ended: {self.weir.returncode}")
            if time.monotonic() > next_size and not self.wrong:
                next_size = time.monotonic() + 5
                sizes.append(self.size())
            select.select([], [], [], 0.02)
        for attacker in attackers:
            attacker.join()
        self.check_end(fds_before, sizes)

    def check_end(self, fds_before, sizes):
        # Waits longer than any timeout of the config.
        time.sleep(12)
        if self.weir.poll() is None:
            fds, kib = self.size()
            print(f"descriptors: {fds_before} before, {max(fds for fds, _ in sizes)} max, {fds} after")
            print("memory in KiB:", *[kib for _, kib in sizes[:: max(1, len(sizes) // 12)]], "after:", kib)
            # Idle connections to the origin close after 2 s, so any remaining descriptor is a leak.
            if fds > fds_before + 8:
                self.wrong.append(f"descriptors: {fds_before} before, {fds} after")
            early = max(kib for _, kib in sizes[: max(1, len(sizes) // 3)])
            if len(sizes) > 12 and kib > early * 1.5 + 8192:
                self.wrong.append(f"memory: {early} KiB early, {kib} after")
            self.weir.terminate()
            self.weir.wait(40)
        self.errors.seek(0)
        stderr_text = self.errors.read().decode(errors="replace")
        if "panicked" in stderr_text:
            self.wrong.append(stderr_text[-3000:])
        print(self.counts)
        for wrong in self.wrong:
            print("WRONG:", wrong)
        sys.exit(1 if self.wrong else 0)


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        starts = [end + 1 for end in range(min(len(data), 2000)) if data[end] == 10]
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at:at + rng.randrange(1, 8)]
        elif kind == 2:
            data[at:at] = data[at:at + rng.randrange(1, 24)]
        else:
            where = rng.choice(starts) if starts and rng.random() < 0.6 else at
            data[where:where] = rng.choice(WORDS)
    return bytes(data)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    Soak(sys.argv[1], minutes, int(sys.argv[3]) if len(sys.argv) > 3 else 1).run()
