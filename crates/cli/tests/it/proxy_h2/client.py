"""A client of HTTP/2 for the tests, with Python's h2: `client.py SCENARIO PORT [ARGUMENT ...]`.

Each scenario is a function that prints what the client received.
"""

import socket
import ssl
import struct
import sys
import threading
import time

import h2.config
import h2.connection
import h2.events
import h2.settings

# This module's connection is closed with the first GOAWAY, but streams in progress go on (RFC 9113 §6.8).
h2.connection.H2ConnectionStateMachine._transitions[
    h2.connection.ConnectionState.CLIENT_OPEN, h2.connection.ConnectionInputs.RECV_GOAWAY
] = (None, h2.connection.ConnectionState.CLIENT_OPEN)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
NAMES = {0: "NO_ERROR", 1: "PROTOCOL_ERROR", 2: "INTERNAL_ERROR", 3: "FLOW_CONTROL_ERROR", 5: "STREAM_CLOSED",
         6: "FRAME_SIZE_ERROR", 7: "REFUSED_STREAM", 8: "CANCEL", 9: "COMPRESSION_ERROR", 10: "CONNECT_ERROR",
         11: "ENHANCE_YOUR_CALM"}


class Stream:
    """What was received on one stream."""

    def __init__(self):
        self.status, self.fields, self.interim, self.trailers = None, {}, [], None
        self.body, self.ended, self.reset = b"", False, None

    @property
    def over(self):
        return self.ended or self.reset is not None

    def __str__(self):
        end = "end" if self.ended else "open"
        if self.reset is not None:
            end += " reset " + NAMES[self.reset]
        return f"{self.status} {len(self.body)} {end}"


class Client:
    def __init__(self, port, tls=False, settings=None, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["h2", "http/1.1"])
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
            assert self.socket.selected_alpn_protocol() == "h2"
        config = h2.config.H2Configuration(
            client_side=True, header_encoding="utf-8", validate_outbound_headers=False,
            normalize_outbound_headers=False, validate_inbound_headers=True)
        self.h2 = h2.connection.H2Connection(config=config)
        self.h2.initiate_connection()
        if settings:
            self.h2.update_settings(settings)
        self.streams, self.goaways, self.closed, self.acknowledges = {}, [], False, True
        self.flush()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.socket.sendall(data)

    def raw(self, data):
        self.flush()
        self.socket.sendall(data)

    def head(self, method="GET", path="/", fields=(), pseudo=None):
        start = [(":method", method), (":scheme", "http"), (":authority", "test"), (":path", path)]
        return (start if pseudo is None else pseudo) + list(fields)

    def open(self, *arguments, end=True, flush=True, **keywords):
        """Opens a stream with a request head."""
        stream = self.h2.get_next_available_stream_id()
        self.streams[stream] = Stream()
        self.h2.send_headers(stream, self.head(*arguments, **keywords), end_stream=end)
        if flush:
            self.flush()
        return stream

    def send(self, stream, data, end=False):
        """Sends a body within the windows."""
        while True:
            size = min(len(data), self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if size > 0 or not data:
                self.h2.send_data(stream, data[:size], end_stream=end and size == len(data))
                data = data[size:]
                self.flush()
                if not data:
                    return
            elif self.streams[stream].over or self.closed:
                return
            else:
                self.receive()

    def receive(self):
        """Handles one read; returns false at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return False
        for event in self.h2.receive_data(data):
            self.handle(event)
        self.flush()
        return True

    def handle(self, event):
        stream = self.streams.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.InformationalResponseReceived):
            stream.interim.append(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.ResponseReceived):
            stream.fields = dict(event.headers)
            stream.status = stream.fields[":status"]
        elif isinstance(event, h2.events.DataReceived):
            stream.body += event.data
            if self.acknowledges:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            stream.trailers = dict(event.headers)
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
        elif isinstance(event, h2.events.StreamReset):
            stream.reset = int(event.error_code)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaways.append((event.last_stream_id, int(event.error_code)))

    def until(self, condition):
        while not condition():
            if not self.receive():
                return False
        return True

    def finish(self, *streams):
        self.until(lambda: all(self.streams[stream].over for stream in streams))
        return [self.streams[stream] for stream in streams]

    def get(self, path, **keywords):
        return self.finish(self.open("GET", path, **keywords))[0]


def literal(fields):
    """Encodes fields without tables and Huffman codes."""
    block = b""
    for name, value in fields:
        name, value = name.encode("latin-1"), value.encode("latin-1")
        assert len(name) < 127
        length = bytes([len(value)])
        if len(value) >= 127:
            rest, length = len(value) - 127, b"\x7f"
            while rest >= 128:
                length += bytes([rest % 128 + 128])
                rest //= 128
            length += bytes([rest])
        block += b"\0" + bytes([len(name)]) + name + length + value
    return block


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def frames_until_close(connection):
    """Returns all frames up to the end of the connection."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    frames = []
    while len(received) >= 9:
        length = int.from_bytes(received[:3], "big")
        frames.append((received[3], received[4], int.from_bytes(received[5:9], "big"), received[9:9 + length]))
        received = received[9 + length:]
    return frames


def raw_connection(port):
    connection = socket.create_connection(("127.0.0.1", int(port)), timeout=30)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


# Scenarios.


def downloads(port, tls):
    """Several requests on one connection."""
    client = Client(port, tls=tls == "tls")
    for method, path in [("GET", "/?s=100"), ("GET", "/?s=0"), ("HEAD", "/?s=100"), ("GET", "/?s=100k"),
                         ("GET", "/?s=5000&k=1"), ("GET", "/?R=404")]:
        stream = client.finish(client.open(method, path))[0]
        print(method, path, stream, stream.fields.get("content-length"))


def uploads(port, tls):
    """Bodies with and without a length; the server returns them."""
    client = Client(port, tls=tls == "tls")
    for length in (0, 10, 1_000_000):
        body = bytes(number % 251 for number in range(length))
        for is_declared in (True, False):
            fields = [("content-length", str(length))] if is_declared else []
            stream = client.open("POST", "/echo", fields=fields, end=False)
            client.send(stream, body, end=True)
            response = client.finish(stream)[0]
            print(length, is_declared, response, response.body == body)


def concurrent(port, tls, count):
    """Many downloads at once, whose bodies arrive interleaved."""
    first = 16_384
    client = Client(port, tls=tls == "tls", settings={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: first})
    client.acknowledges = False
    client.h2.increment_flow_control_window((1 << 24) - 65535)
    streams = [client.open("GET", "/?s=1m", flush=False) for _ in range(int(count))]
    client.flush()
    # The windows open when the origin has begun all responses: its order is not the proxy's.
    client.until(lambda: all(len(client.streams[stream].body) == first for stream in streams))
    for stream in streams:
        client.h2.increment_flow_control_window(1 << 20, stream)
    client.flush()
    client.until(lambda: any(client.streams[stream].over for stream in streams))
    # A busy origin may fill the buffers of some connections earlier than those of others.
    least = min(len(client.streams[stream].body) for stream in streams)
    print("fair", least > 200_000, "" if least > 200_000 else least)
    for stream in client.finish(*streams):
        assert stream.ended and len(stream.body) == 1 << 20
    print("complete")


def exchange(port, path, *fields):
    """One request; prints everything about the response."""
    client = Client(port)
    pairs = [tuple(field.split("=", 1)) for field in fields]
    response = client.get(path, fields=pairs)
    print(response, "interim", response.interim, "trailers", response.trailers)


def body(port, path, *fields):
    """One request; prints the body of its response."""
    client = Client(port)
    pairs = [tuple(field.split("=", 1)) for field in fields]
    sys.stdout.buffer.write(client.get(path, fields=pairs).body)


def fields(port, path):
    """One request; prints the fields of its response."""
    print(Client(port).get(path).fields)


def statuses(port, count):
    """Several requests; prints their statuses."""
    client = Client(port)
    for _ in range(int(count)):
        print(client.get("/").status)


def trailers(port, *fields):
    """A request with trailers; the server returns them."""
    client = Client(port)
    more = [tuple(field.split("=", 1)) for field in fields]
    stream = client.open("POST", "/trailers", fields=[("te", "trailers"), ("trailer", "x-sum")], end=False)
    client.send(stream, b"hello")
    client.h2.send_headers(stream, more + [("x-sum", "5")], end_stream=True)
    client.flush()
    response = client.finish(stream)[0]
    print(response, response.body.decode(), response.trailers)


def expect(port):
    """A body that waits for 100 Continue."""
    client = Client(port)
    stream = client.open("POST", "/", fields=[("expect", "100-continue"), ("content-length", "4")], end=False)
    client.until(lambda: client.streams[stream].interim)
    client.send(stream, b"body", end=True)
    response = client.finish(stream)[0]
    print(response, response.interim, response.body.decode())


def early(port):
    """A response before the end of the request."""
    client = Client(port)
    stream = client.open("POST", "/early", end=False)
    client.send(stream, b"x" * 1000)
    client.until(lambda: client.streams[stream].reset is not None)
    print(client.streams[stream])
    print("after", client.get("/after"))


def early_answers(port, *paths):
    """Responses before the end of requests that go on for a while. None of the streams is reset."""
    client = Client(port)
    for path in paths:
        for trailers in (False, True):
            stream = client.open("POST", path, end=False)
            client.until(lambda: client.streams[stream].ended)
            for _ in range(20):
                client.send(stream, b"x" * 10_000)
            if trailers:
                client.h2.send_headers(stream, [("x-sum", "1")], end_stream=True)
                client.flush()
            else:
                client.send(stream, b"", end=True)
            after = client.get("/after")
            print(path, client.streams[stream], "after", after)


def blind_upload(port, path, length, known):
    """A body of which the first window is sent before the response, and the rest after it, by a client that reads
    nothing behind the response's end: prints whether the windows that it has then are enough."""
    client, length = Client(port), int(length)
    # The windows of the connection.
    client.get("/before")
    fields = [("content-length", str(length))] if known == "known" else []
    stream = client.open("POST", path, fields=fields, end=False)
    sent = min(length, client.h2.local_flow_control_window(stream))
    for at in range(0, sent, 16384):
        client.h2.send_data(stream, bytes(min(16384, sent - at)))
    client.flush()
    client.until(lambda: client.streams[stream].over)
    rest = length - sent
    is_enough = client.h2.local_flow_control_window(stream) >= rest
    while is_enough and rest > 0:
        size = min(rest, 16384)
        client.h2.send_data(stream, bytes(size), end_stream=size == rest)
        client.flush()
        rest -= size
    print(client.streams[stream].status, "complete" if is_enough else "waits", client.get("/after").status)


def huge_upload(port, path, length):
    """A body that does not fit into the windows of the connection: the stream ends, also if nothing is sent."""
    client = Client(port)
    stream = client.open("POST", path, fields=[("content-length", length)], end=False)
    client.until(lambda: client.streams[stream].reset is not None)
    print(client.streams[stream], client.get("/after").status)


def connect_half_closed(port, *pieces):
    """CONNECT requests whose content ends before the response. Waits for a line before the response."""
    client = Client(port)
    pseudo = [(":method", "CONNECT"), (":authority", "example.org:443")]
    streams = [client.open(pseudo=pseudo, end=False) for _ in pieces]
    for stream, piece in zip(streams, pieces):
        client.send(stream, piece.encode(), end=True)
    for stream in streams:
        print(client.finish(stream)[0])


def cancel(port):
    """Resets a stream; the others continue. Waits for the end of stdin before."""
    client = Client(port)
    first = client.open("GET", "/wait")
    second = client.open("GET", "/fast")
    sys.stdin.read()
    client.h2.reset_stream(first, error_code=8)
    client.flush()
    client.finish(second)
    print("second", client.streams[second])
    print("third", client.get("/fast"))


def upload(port, length):
    """A body that the server does not read: the windows stop it."""
    client = Client(port)
    stream = client.open("POST", "/stuck", end=False)
    sent, data = 0, b"x" * 16384
    client.socket.settimeout(1)
    try:
        while sent < int(length):
            size = min(client.h2.local_flow_control_window(stream), 16384)
            if size > 0:
                client.h2.send_data(stream, data[:size])
                sent += size
                client.flush()
            else:
                client.receive()
    except TimeoutError:
        pass
    print("bounded", sent < int(length))


def slow_reader(port):
    """A stream without a window does not stop the others, nor do the bytes of its response get lost."""
    client = Client(port, settings={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    blocked = client.open("GET", "/?s=200k")
    client.until(lambda: client.streams[blocked].status)
    other = client.open("GET", "/?s=10")
    client.h2.increment_flow_control_window(100, other)
    client.flush()
    print("other", client.finish(other)[0])
    client.h2.increment_flow_control_window(1, blocked)
    client.flush()
    client.until(lambda: client.streams[blocked].body)
    print("blocked", len(client.streams[blocked].body))
    client.h2.increment_flow_control_window(1 << 20, blocked)
    client.flush()
    print("blocked", client.finish(blocked)[0])


def websocket(port, path, protocol="websocket"):
    """Extended CONNECT (RFC 8441) to a server that upgrades, says hello, and echoes."""
    client = Client(port)
    client.until(lambda: client.h2.remote_settings.enable_connect_protocol == 1)
    pseudo = [(":method", "CONNECT"), (":protocol", protocol), (":scheme", "http"), (":authority", "test"),
              (":path", path)]
    stream = client.open(pseudo=pseudo, fields=[("sec-websocket-version", "13")], end=False)
    client.until(lambda: client.streams[stream].body == b"hello" or client.streams[stream].over)
    print(client.streams[stream], "sec-websocket-accept" in client.streams[stream].fields)
    if client.streams[stream].over:
        return
    client.send(stream, b"ping")
    client.until(lambda: client.streams[stream].body == b"helloping")
    client.send(stream, b"", end=True)
    print(client.finish(stream)[0])


def websocket_echoes(port, path):
    """Extended CONNECT, and numbered messages whose echoes are printed, until stdin closes."""
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    client = Client(port)
    client.until(lambda: client.h2.remote_settings.enable_connect_protocol == 1)
    pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "test"),
              (":path", path)]
    stream = client.open(pseudo=pseudo, fields=[("sec-websocket-version", "13")], end=False)
    number = 0
    while not closed.is_set() and not client.streams[stream].over:
        message = str(number).encode()
        echo = bytes([0x81, len(message)]) + message
        client.streams[stream].body = b""
        client.send(stream, bytes([0x81, 0x80 | len(message)]) + bytes(4) + message)
        client.until(lambda: len(client.streams[stream].body) >= len(echo) or client.streams[stream].over)
        assert client.streams[stream].body == echo, client.streams[stream].body
        print(f"data: {number}", flush=True)
        number += 1
        time.sleep(0.005)
    client.send(stream, bytes([0x88, 0x80]) + bytes(4))
    client.until(lambda: client.streams[stream].over)
    assert client.streams[stream].ended and not client.streams[stream].reset
    print("data: end", flush=True)


def denied_websocket(port, path):
    """Extended CONNECT with requests of HTTP/1.1 as its content, and a request after it."""
    client = Client(port)
    client.until(lambda: client.h2.remote_settings.enable_connect_protocol == 1)
    pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "test"),
              (":path", path)]
    stream = client.open(pseudo=pseudo, fields=[("sec-websocket-version", "13")], end=False, flush=False)
    content = b"GET /hidden HTTP/1.1\r\nHost: test\r\n\r\n" * 3
    client.send(stream, content)
    response = client.finish(stream)[0]
    print(response, "after", client.get("/after"))


def connect(port):
    """A plain CONNECT."""
    client = Client(port)
    pseudo = [(":method", "CONNECT"), (":authority", "example.org:443")]
    stream = client.open(pseudo=pseudo, end=False)
    client.until(lambda: client.streams[stream].body == b"hello" or client.streams[stream].over)
    print(client.streams[stream])
    if not client.streams[stream].over:
        client.send(stream, b"ping", end=True)
        print(client.finish(stream)[0])


def malformed(port, *names):
    """Requests that HTTP/1.1 could read differently (RFC 9113 §8.2, §8.3)."""
    start = [(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/malformed")]
    post = [(":method", "POST")] + start[1:]
    cases = {
        "upper-case": start + [("X-Upper", "1")],
        "space-in-name": start + [("x bad", "1")],
        "crlf-in-value": start + [("x-a", "1\r\nx-b: 2")],
        "nul-in-value": start + [("x-a", "1\0")],
        "blank-around-value": start + [("x-a", " 1")],
        "colon-in-name": start + [("x:a", "1")],
        "connection": start + [("connection", "close")],
        "transfer-encoding": post + [("transfer-encoding", "chunked")],
        "upgrade": start + [("upgrade", "h2c")],
        "te": start + [("te", "gzip")],
        "no-method": start[1:],
        "no-path": start[:3],
        "no-scheme": [start[0]] + start[2:],
        "two-paths": start + [(":path", "/other")],
        "unknown-pseudo": start + [(":x", "1")],
        "pseudo-after-field": start[:3] + [("x-a", "1"), start[3]],
        "space-in-path": start[:3] + [(":path", "/a HTTP/1.1")],
        "relative-path": start[:3] + [(":path", "a")],
        "crlf-in-path": start[:3] + [(":path", "/a\r\nx: y")],
        "space-in-method": [(":method", "GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET")] + start[1:],
        "userinfo": start[:2] + [(":authority", "user@test"), start[3]],
        "host-differs": start + [("host", "other")],
        "two-hosts": start[:2] + start[3:] + [("host", "a"), ("host", "b")],
        "two-lengths": post + [("content-length", "1"), ("content-length", "2")],
        "signed-length": post + [("content-length", "+1")],
        "length-without-body": post + [("content-length", "5")],
    }
    for name in names or cases:
        connection = raw_connection(port)
        connection.sendall(frame(HEADERS, 5, 1, literal(cases[name])) + frame(PING, 0, 0, b"12345678"))
        result = "none"
        received = b""
        while result == "none":
            data = connection.recv(65536)
            if not data:
                result = "closed"
            received += data
            while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
                length, kind = int.from_bytes(received[:3], "big"), received[3]
                payload = received[9:9 + length]
                received = received[9 + length:]
                if kind == RST:
                    result = "reset " + NAMES[int.from_bytes(payload, "big")]
                elif kind == GOAWAY:
                    result = "goaway " + NAMES[int.from_bytes(payload[4:8], "big")]
                elif kind == HEADERS:
                    # The static table has 400 and 404 as single bytes.
                    result = "response " + {0x8c: "400", 0x8d: "404", 0x88: "200"}.get(payload[0], payload[:8].hex())
        connection.close()
        print(name, result)


def lengths(port):
    """Bodies that do not have their declared length."""
    for body in (b"123", b"1234567"):
        connection = raw_connection(port)
        head = literal([(":method", "POST"), (":scheme", "http"), (":authority", "test"), (":path", "/length"),
                        ("content-length", "5")])
        connection.sendall(frame(HEADERS, 4, 1, head) + frame(DATA, 1, 1, body))
        time.sleep(0.1)
        connection.sendall(frame(GOAWAY, 0, 0, b"\0" * 8))
        connection.shutdown(socket.SHUT_WR)
        resets = [payload for kind, _, _, payload in frames_until_close(connection) if kind == RST]
        print(len(body), [NAMES[int.from_bytes(payload, "big")] for payload in resets])


def flood(port, kind):
    """Frames that cost work and bring nothing, until the connection is closed."""
    connection = raw_connection(port)
    head = literal([(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/flood")])
    sent = 0
    try:
        if kind == "continuation":
            connection.sendall(frame(HEADERS, 0, 1, head))
        if kind in ("data", "window"):
            connection.sendall(frame(HEADERS, 4, 1, head))
        while sent < 200_000:
            batch = b""
            for _ in range(100):
                sent += 1
                if kind == "reset":
                    batch += frame(HEADERS, 5, 2 * sent - 1, head) + frame(RST, 0, 2 * sent - 1, b"\0\0\0\x08")
                elif kind == "ping":
                    batch += frame(PING, 0, 0, b"12345678")
                elif kind == "settings":
                    batch += frame(SETTINGS, 0, 0)
                elif kind == "data":
                    batch += frame(DATA, 0, 1)
                elif kind == "continuation":
                    batch += frame(CONTINUATION, 0, 1, literal([("x-filler", "y" * 100)]))
                elif kind == "empty-continuation":
                    batch += frame(HEADERS, 0, 1, head) if sent == 1 else frame(CONTINUATION, 0, 1)
            connection.sendall(batch)
            # A reader, so that only the flood itself can end the connection.
            connection.setblocking(False)
            try:
                while connection.recv(65536):
                    pass
                break
            except BlockingIOError:
                pass
            finally:
                connection.setblocking(True)
    except (ConnectionResetError, BrokenPipeError):
        pass
    print("ended", sent < 200_000)


def hpack_bomb(port, count, references):
    """Small heads that refer to a large field many times."""
    connection = raw_connection(port)
    head = literal([(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/bomb")])
    value = b"y" * 4000
    # Literal with incremental indexing: it becomes the first entry of the dynamic table.
    entry = b"\x40\x06x-bomb\x7f" + bytes([(len(value) - 127) % 128 + 128, (len(value) - 127) // 128]) + value
    received = b""
    try:
        connection.sendall(frame(HEADERS, 5, 1, head + entry))
        for at in range(1, int(count)):
            connection.sendall(frame(HEADERS, 5, 2 * at + 1, head + b"\xbe" * int(references)))
        connection.sendall(frame(PING, 0, 0, b"12345678"))
        while b"12345678" not in received and (data := connection.recv(65536)):
            received += data
    except (ConnectionResetError, BrokenPipeError):
        pass
    connection.close()
    print("sent")


def broken_preface(port, preface):
    """A preface that begins as the one of HTTP/2. Prints the types of the frames up to the end."""
    connection = socket.create_connection(("127.0.0.1", int(port)), timeout=30)
    connection.sendall(preface.encode().decode("unicode_escape").encode("latin-1"))
    frames = frames_until_close(connection)
    print([(kind, NAMES[int.from_bytes(payload[4:8], "big")] if kind == GOAWAY else len(payload))
           for kind, _, _, payload in frames])


def slow_readers(port, count):
    """Responses without any window, until the proxy gives up on them."""
    client = Client(port, settings={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    streams = [client.open("GET", "/?s=1g") for _ in range(int(count))]
    client.until(lambda: all(client.streams[stream].over for stream in streams))
    print({NAMES[client.streams[stream].reset] for stream in streams})


def partial(port):
    """A head that is not complete."""
    connection = raw_connection(port)
    head = literal([(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/")])
    connection.sendall(frame(HEADERS, 1, 1, head))
    frames_until_close(connection)
    print("closed")


def rejected_heads(port):
    """Heads that get a response, each followed by a valid request; prints the statuses."""
    client = Client(port)
    start = [(":method", "PUT"), (":scheme", "http"), (":authority", "test"), (":path", "/rejected")]
    path = [(":path", "/rejected?" + "q" * 3000)]
    cases = [
        (start, [("x-large", "y" * 3000)] * 2),
        (start, [("x-%d" % number, "1") for number in range(30)]),
        (start[:2] + start[3:], []),
        (start, [("expect", "200-maybe")]),
        (start[:3] + path, []),
        (start[:3] + path, [("x-large", "y" * 3000)] * 2),
        ([start[0], ("x-early", "y" * 3500)], [("x-large", "y" * 3000)]),
    ]
    for pseudo, fields in cases:
        stream = client.open(pseudo=pseudo, fields=fields)
        print(client.finish(stream)[0].status, client.get("/after").status)


def large_head(port, length):
    """A head over the limit, and a request after it."""
    client = Client(port)
    fields = [("x-large", "y" * 4000)] * (int(length) // 4000)
    print(client.get("/large", fields=fields))
    print(client.get("/after"))


def goaway(port):
    """Prints how the connection ends while a stream is in progress: line by line, for the caller to act."""
    client = Client(port)
    stream = client.open("GET", "/wait")
    print("started", flush=True)
    client.until(lambda: client.goaways)
    print("goaway", flush=True)
    client.finish(stream)
    print(client.streams[stream], flush=True)
    client.until(lambda: client.closed)
    print("closed", [NAMES[code] for _, code in client.goaways], flush=True)


def requests_max(port, count):
    """Sends one request after the other until the connection ends."""
    client = Client(port)
    served = 0
    while not client.goaways and served < int(count):
        served += client.get("/?s=10").ended
    print("served", served, "goaway", bool(client.goaways))
    print("closed", not client.until(lambda: False))


def hold(port, count):
    """Keeps streams open until stdin ends."""
    client = Client(port)
    streams = [client.open("GET", "/wait") for _ in range(int(count))]
    # A response to a PING follows everything before it.
    client.h2.ping(b"12345678")
    client.flush()
    client.receive()
    print("held", flush=True)
    sys.stdin.read()
    client.finish(*streams)
    for stream in streams:
        print(client.streams[stream])


def idle(port):
    """Waits for the end of an idle connection."""
    client = Client(port)
    print(client.get("/?s=1"))
    client.until(lambda: False)
    print("closed", [NAMES[code] for _, code in client.goaways])


def refused(port, count):
    """Opens more streams than are allowed."""
    connection = raw_connection(port)
    head = literal([(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/wait")])
    connection.sendall(b"".join(frame(HEADERS, 5, 2 * at + 1, head) for at in range(int(count))))
    received, resets = b"", []
    while len(resets) < 1:
        received += connection.recv(65536)
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
            length = int.from_bytes(received[:3], "big")
            if received[3] == RST:
                resets.append((int.from_bytes(received[5:9], "big"), NAMES[int.from_bytes(received[9:13], "big")]))
            received = received[9 + length:]
    print(resets[0])


def rejected(port):
    """A connection over a limit."""
    client = Client(port)
    print(client.get("/"), client.until(lambda: False), [NAMES[code] for _, code in client.goaways])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
