"""Drivers that advance a subject step by step: clients and an origin of HTTP/1.1 and HTTP/2, in one thread.

Each step sends bytes while the subject sleeps, and waits for all bytes that they cause. A request or a
response is one segment, so the subject reads it at once."""

import select
import socket
import ssl
import struct
import time

from harness import Failed

LIMIT_S = 60


def _prepared(connection):
    connection.settimeout(LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _receive(connection):
    data = connection.recv(1 << 18)
    if not data:
        raise Failed("the subject closed a connection")
    return data


def response(body_bytes):
    """Returns a response of an origin, as large as that of a plain server."""
    head = ("HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
            f"Content-Type: text/plain\r\nContent-Length: {body_bytes}\r\n\r\n")
    return head.encode() + b"x" * body_bytes


class Client:
    """A connection of HTTP/1.1, with TLS if `context` is given. With `differ`, each request differs from the previous one;
    `fields` are further field lines."""

    def __init__(self, port, path, context=None, differ=False, fields=""):
        self.socket = _prepared(socket.create_connection(("127.0.0.1", port), LIMIT_S))
        if context:
            self.socket = context.wrap_socket(self.socket)
        self.path, self.fields, self.number = path, fields, 10_000 if differ else None

    def send(self):
        suffix = ""
        if self.number is not None:
            suffix, self.number = str(self.number), self.number + 1
        self.socket.sendall(f"GET {self.path}{suffix} HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: lockstep/1.0\r\n"
                            f"Accept: */*\r\nAccept-Encoding: gzip, deflate\r\n{self.fields}\r\n".encode())

    def receive(self):
        """Receives one complete response with status 200."""
        data = _receive(self.socket)
        while b"\r\n\r\n" not in data:
            data += _receive(self.socket)
        head, _, body = data.partition(b"\r\n\r\n")
        status, _, fields = head.lower().partition(b"\r\n")
        if status != b"http/1.1 200 ok" or b"content-length: " not in fields:
            raise Failed(f"unexpected response: {head}")
        left = int(fields.partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(body)
        while left > 0:
            left -= len(_receive(self.socket))

    def close(self):
        self.socket.close()


class Listener:
    """The accepting side: yields the connections of the subject whose bytes have arrived."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        self.connections = {}

    def wait(self):
        """Returns the connections with bytes to read, oldest first; accepts others meanwhile."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            ready = {number for number, _ in self.poll.poll(1000 * LIMIT_S)}
            if self.socket.fileno() in ready:
                connection = _prepared(self.socket.accept()[0])
                self.connections[connection.fileno()] = connection
                self.poll.register(connection, select.POLLIN)
            elif ready:
                return [each for number, each in self.connections.items() if number in ready]
        raise Failed("no bytes from the subject")

    def forget(self, connection):
        self.poll.unregister(connection)
        del self.connections[connection.fileno()]
        connection.close()

    def close(self):
        for connection in self.connections.values():
            connection.close()
        self.socket.close()


class Origin(Listener):
    """A server of HTTP/1.1 that reads requests without bodies, and answers when told."""

    def __init__(self, body_bytes):
        super().__init__()
        self.response = response(body_bytes)
        self.parts = {}

    def requests(self, count):
        """Returns the connections of the next `count` requests, oldest connection first."""
        waiting = []
        while len(waiting) < count:
            for connection in self.wait():
                data = connection.recv(1 << 16)
                if not data:
                    self.forget(connection)
                    continue
                data = self.parts.pop(connection, b"") + data
                if data.endswith(b"\r\n\r\n"):
                    waiting.append(connection)
                else:
                    self.parts[connection] = data
        order = list(self.connections.values())
        return sorted(waiting, key=order.index)

    def respond(self, connection):
        connection.sendall(self.response)


# HTTP/2.

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
LARGEST_WINDOW = (1 << 31) - 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(value):
    """Encodes a string of HPACK without Huffman; for strings of fewer than 127 bytes."""
    return bytes([len(value)]) + value


def _inserted(index, value):
    """Encodes a field with an indexed name that enters the dynamic table."""
    return bytes([0x40 | index]) + _text(value)


# Fields of requests and responses. The first block inserts fields into the dynamic table, and others
# refer to them, as browsers and servers do. Indexes of names are those of the static table: 1 :authority,
# 4 :path, 58 user-agent; 54 server, 33 date, 31 content-type, 28 content-length.
def _request_blocks(path):
    first = _inserted(1, b"bench.example") + _inserted(4, path.encode()) + _inserted(58, b"lockstep/1.0")
    return b"\x82\x86" + first, b"\x82\x86\xc0\xbf\xbe"


def _response_blocks(body_bytes):
    first = (_inserted(54, b"origin") + _inserted(33, b"Mon, 01 Jan 2024 00:00:00 GMT")
             + _inserted(31, b"text/plain") + _inserted(28, str(body_bytes).encode()))
    return b"\x88" + first, b"\x88\xc1\xc0\xbf\xbe"


class _Frames:
    """Frames of one connection: reads them, and answers those that the protocol demands an answer to."""

    def __init__(self, connection):
        self.socket, self.data = connection, b""

    def open(self, preface, *settings):
        pairs = b"".join(struct.pack(">HI", *pair) for pair in settings)
        window = struct.pack(">I", LARGEST_WINDOW - 65_535)
        self.socket.sendall(preface + frame(SETTINGS, 0, 0, pairs) + frame(WINDOW_UPDATE, 0, 0, window))

    def ended(self):
        """Receives bytes, and returns the streams that ended in them."""
        self.data += _receive(self.socket)
        streams, at = [], 0
        while len(self.data) - at >= 9:
            length = int.from_bytes(self.data[at:at + 3], "big")
            if len(self.data) - at < 9 + length:
                break
            kind, flags, stream = struct.unpack(">BBI", self.data[at + 3:at + 9])
            self._answer(kind, flags, self.data[at + 9:at + 9 + length])
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                streams.append(stream)
            at += 9 + length
        self.data = self.data[at:]
        return streams

    def _answer(self, kind, flags, payload):
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind in (GOAWAY, RST_STREAM):
            raise Failed(f"the subject sent frame {kind}: {payload}")


class Client2:
    """A connection of HTTP/2 with prior knowledge."""

    def __init__(self, port, path):
        self.socket = _prepared(socket.create_connection(("127.0.0.1", port), LIMIT_S))
        self.frames = _Frames(self.socket)
        # SETTINGS_INITIAL_WINDOW_SIZE.
        self.frames.open(PREFACE, (4, LARGEST_WINDOW))
        self.block, self.next_block = _request_blocks(path)
        self.stream = 1

    def send(self, count):
        """Sends requests, all at once."""
        sent = b""
        for _ in range(count):
            sent += frame(HEADERS, END_HEADERS | END_STREAM, self.stream, self.block)
            self.block, self.stream = self.next_block, self.stream + 2
        self.socket.sendall(sent)

    def receive(self, count):
        while count > 0:
            count -= len(self.frames.ended())

    def close(self):
        self.socket.close()


class Origin2(Listener):
    """A server of HTTP/2 with prior knowledge for one connection."""

    def __init__(self, body_bytes):
        super().__init__()
        self.block, self.next_block = _response_blocks(body_bytes)
        self.body = b"x" * body_bytes
        self.frames, self.preface = None, b""

    def requests(self, count):
        """Returns the streams of the next `count` requests."""
        if self.frames is None:
            connection = self.wait()[0]
            while len(self.preface) < len(PREFACE):
                self.preface += _receive_exactly(connection, len(PREFACE) - len(self.preface))
            if self.preface != PREFACE:
                raise Failed(f"no preface: {self.preface}")
            self.frames = _Frames(connection)
            # SETTINGS_MAX_CONCURRENT_STREAMS.
            self.frames.open(b"", (3, 1000))
        streams = []
        while len(streams) < count:
            streams += self.frames.ended()
        return streams

    def respond(self, streams):
        """Sends the responses of streams, all at once."""
        sent = b""
        for stream in streams:
            sent += frame(HEADERS, END_HEADERS, stream, self.block) + frame(DATA, END_STREAM, stream, self.body)
            self.block = self.next_block
        self.frames.socket.sendall(sent)


def _receive_exactly(connection, count):
    data = connection.recv(count)
    if not data:
        raise Failed("the subject closed a connection")
    return data


def context():
    """Returns a context of TLS 1.3 that accepts any certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made
