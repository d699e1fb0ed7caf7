"""A server of HTTP/2 (with the library h2) that follows the path of each request.

Arguments: NAME=VALUE. streams, window: settings; connect=1: announces extended CONNECT; tls=FILE:
certificate and key; alpn=LIST, default h2; header=1: expects a PROXY header (v1) first; mute=1: acknowledges
no PING. early=NUMBER: ends so many connections with GOAWAY, which follows the settings at once, or after
early-after=SECONDS; early-close=1: and closes them.
Prints its port, and ends with its stdin.
"""
import collections, json, os, socket, ssl, sys, threading, time

import h2.config, h2.connection, h2.errors, h2.events, h2.exceptions, h2.settings

options = dict(argument.split("=", 1) for argument in sys.argv[1:])
lock = threading.Lock()
stats = collections.Counter()
seen = collections.Counter()


class Connection:
    def __init__(self, sock, number, header):
        self.sock, self.number, self.header = sock, number, header
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8", validate_inbound_headers=True)
        self.h2 = h2.connection.H2Connection(config)
        settings = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: int(options.get("streams", 100)),
                    h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: int(options.get("window", 65535))}
        if options.get("connect"):
            settings[h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL] = 1
        if options.get("mute"):
            self.h2._frame_dispatch_table[h2.connection.PingFrame] = self.ignore_ping
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self.streams = {}
        self.lock = threading.RLock()
        self.is_closed = False

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def serve(self):
        with self.lock:
            self.h2.initiate_connection()
            if self.number <= int(options.get("early", 0)):
                self.end_early()
            self.flush()
            if self.is_closed:
                return
        while True:
            data = self.sock.recv(65536)
            if not data:
                return
            with self.lock:
                for event in self.h2.receive_data(data):
                    try:
                        self.handle(event)
                    except h2.exceptions.StreamClosedError:
                        # A later frame of the same data has reset it.
                        pass
                if not self.is_closed:
                    self.flush()

    def end_early(self):
        if options.get("early-after"):
            self.flush()
            time.sleep(float(options["early-after"]))
        self.h2._data_to_send += h2.connection.GoAwayFrame(0).serialize()
        self.is_closed = bool(options.get("early-close"))

    @staticmethod
    def ignore_ping(frame):
        with lock:
            stats["pings"] += 1
        return [], []

    def handle(self, event):
        if isinstance(event, h2.events.RequestReceived):
            stream = Stream(self, event)
            self.streams[event.stream_id] = stream
            with lock:
                stats["requests"] += 1
                stats["max_streams"] = max(stats["max_streams"], len(self.streams))
            stream.begin()
        elif isinstance(event, h2.events.DataReceived):
            stream = self.streams.get(event.stream_id)
            with lock:
                stats["data"] += len(event.data)
            if stream is None or not stream.keeps_window:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if stream:
                stream.receive(event.data)
        elif isinstance(event, h2.events.TrailersReceived):
            stream = self.streams.get(event.stream_id)
            if stream:
                stream.trailers = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            stream = self.streams.get(event.stream_id)
            if stream:
                stream.finish()
        elif isinstance(event, h2.events.StreamReset):
            with lock:
                stats["reset_%s" % int(event.error_code)] += 1
            self.streams.pop(event.stream_id, None)
        elif isinstance(event, h2.events.WindowUpdated):
            for stream in list(self.streams.values()):
                stream.pump()
        elif isinstance(event, h2.events.ConnectionTerminated):
            with lock:
                stats["goaways"] += 1
        elif isinstance(event, h2.events.PingReceived):
            with lock:
                stats["pings"] += 1

    def close(self):
        self.is_closed = True
        self.sock.shutdown(socket.SHUT_RDWR)


class Stream:
    def __init__(self, connection, event):
        self.connection, self.id = connection, event.stream_id
        self.fields = dict(event.headers)
        self.path = self.fields.get(":path", "")
        self.body = b""
        self.trailers = []
        self.output, self.ends = bytearray(), False
        self.keeps_window = self.path.startswith("/unread")
        self.is_tunnel = False
        self.response_trailers = None

    def head(self, status, fields=(), end=False):
        self.connection.h2.send_headers(self.id, [(":status", str(status))] + list(fields), end_stream=end)
        if end:
            self.connection.streams.pop(self.id, None)

    def send(self, data, end=False):
        self.output += data
        self.ends |= end
        self.pump()

    def pump(self):
        conn = self.connection.h2
        while self.output or self.ends:
            try:
                size = min(conn.local_flow_control_window(self.id), conn.max_outbound_frame_size, len(self.output))
            except h2.exceptions.ProtocolError:
                return
            if self.output and size <= 0:
                return
            part = bytes(self.output[:size])
            # Unlike a copy of the rest, its cost does not depend on the length.
            del self.output[:size]
            is_last = self.ends and not self.output
            conn.send_data(self.id, part, end_stream=is_last and self.response_trailers is None)
            with lock:
                stats["sent"] += len(part)
            if is_last:
                if self.response_trailers is not None:
                    conn.send_headers(self.id, self.response_trailers, end_stream=True)
                self.ends = False
                self.connection.streams.pop(self.id, None)

    def reset(self, code):
        self.connection.h2.reset_stream(self.id, error_code=code)
        self.connection.streams.pop(self.id, None)

    def later(self, seconds, action):
        def run():
            time.sleep(seconds)
            with self.connection.lock:
                try:
                    action()
                    self.connection.flush()
                except (OSError, h2.exceptions.H2Error):
                    pass
        threading.Thread(target=run, daemon=True).start()

    def info(self):
        keys = (":method", ":scheme", ":authority", ":path", "te", "expect", "x-test", "content-length", "connection")
        fields = [("x-" + key.lstrip(":"), self.fields[key]) for key in keys if key in self.fields]
        return fields + [("x-connection", str(self.connection.number)), ("x-header", self.connection.header)]

    def begin(self):
        path, conn = self.path, self.connection.h2
        with lock:
            seen[path] += 1
            count = seen[path]
        if self.fields.get(":method") == "CONNECT":
            if path == "/denied" or self.fields.get(":authority") == "denied:1":
                self.head(403, [("content-length", "0")], end=True)
                return
            self.is_tunnel = True
            self.head(200, [("x-protocol", self.fields.get(":protocol", "-"))])
        elif path.startswith("/refused-once") and count == 1 or path == "/refused":
            self.reset(h2.errors.ErrorCodes.REFUSED_STREAM)
        elif path == "/reset":
            self.reset(h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif path.startswith("/cancel"):
            if path == "/cancel-late":
                self.head(200)
            self.reset(h2.errors.ErrorCodes.CANCEL)
        elif path == "/reset-body":
            self.head(200, [("content-length", "100000")])
            self.send(b"x" * 1000)
            self.reset(h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif path == "/reset-chunked":
            self.head(200)
            self.send(b"x" * 1000)
            self.reset(h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif path.startswith("/goaway-unprocessed") and count == 1:
            conn.close_connection(last_stream_id=max(self.id - 2, 0))
            self.connection.flush()
            self.connection.close()
        elif path == "/goaway-late":
            # Announces the end, and completes this request.
            frame = h2.connection.GoAwayFrame(0)
            frame.last_stream_id, frame.error_code = self.id, 0
            conn._data_to_send += frame.serialize()
            self.later(0.3, lambda: (self.head(200, [("content-length", "4")] + self.info()), self.send(b"late", True)))
        elif path == "/close":
            self.connection.close()
        elif path == "/early":
            self.head(103, [("link", "</style>; rel=preload")])
            self.head(200, [("content-length", "0")], end=True)
        elif path == "/no-content":
            self.head(204, self.info(), end=True)
        elif path == "/not-modified":
            self.head(304, [("etag", '"a"')], end=True)
        elif path == "/shrink":
            conn.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 1})
            self.head(200, [("content-length", "0")], end=True)
        elif path.startswith("/delay"):
            self.later(0.2, lambda: (self.head(200, [("content-length", "2")] + self.info()), self.send(b"ok", True)))
        elif path.startswith("/late-head"):
            self.later(float(path.split("?")[1]), lambda: self.head(200, [("content-length", "0")], end=True))
        elif path.startswith("/big"):
            size = int(path.split("?")[1])
            self.head(200, [("content-length", str(size))] if path.startswith("/big-length") else [])
            self.send(b"b" * size, True)
        elif path == "/bad-field":
            conn.config.validate_outbound_headers = False
            conn.config.normalize_outbound_headers = False
            self.head(200, [("connection", "close")], end=True)
        elif path == "/early-response":
            # Does not need the request's body (RFC 9113 §8.1).
            self.head(413, [("content-length", "0")], end=True)
            conn.reset_stream(self.id, error_code=h2.errors.ErrorCodes.NO_ERROR)
        elif path in ("/continue",):
            self.later(0.2, lambda: self.head(100))
        elif path.startswith("/stream") or path.startswith("/unread") or path == "/hang":
            if path.startswith("/stream"):
                self.response_trailers = [("grpc-status", "0"), ("x-sum", "pending")]
                if "length" in self.path:
                    self.response_trailers.append(("content-length", "99"))
                self.head(200, [("content-type", self.fields.get("content-type", "text/plain"))])

    def receive(self, data):
        if self.is_tunnel or self.path.startswith("/stream"):
            self.send(data)
        self.body += data

    def finish(self):
        if self.is_tunnel:
            self.send(b"", True)
        elif self.path.startswith("/stream"):
            self.response_trailers[1] = ("x-sum", "%d %s" % (len(self.body), dict(self.trailers).get("x-digest", "-")))
            self.send(b"", True)
        elif self.path.startswith("/unread"):
            self.later(0, self.read_slowly)
        elif self.path in ("/", "/continue") or self.path.startswith(("/refused-once", "/goaway-unprocessed", "/ok")):
            body = self.body or b"hello"
            sum_field = [("x-body", str(len(self.body))), ("x-digest", dict(self.trailers).get("x-digest", "-"))]
            self.head(200, [("content-length", str(len(body)))] + self.info() + sum_field)
            self.send(body if self.fields[":method"] != "HEAD" else b"", True)
        elif self.path == "/stats":
            with lock:
                body = json.dumps(stats).encode()
            self.head(200, [("content-length", str(len(body)))])
            self.send(body, True)

    def read_slowly(self):
        self.head(200, [("content-length", "2")])
        self.send(b"ok", True)


def serve(sock, number):
    connection = None
    try:
        header = "-"
        if options.get("header"):
            line = b""
            while not line.endswith(b"\r\n"):
                line += sock.recv(1)
            header = line.decode().strip()
        if options.get("tls"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options["tls"])
            context.set_alpn_protocols(options.get("alpn", "h2").split(","))
            sock = context.wrap_socket(sock, server_side=True)
        connection = Connection(sock, number, header)
        connection.serve()
    except (OSError, h2.exceptions.H2Error) as error:
        with lock:
            stats["errors"] += isinstance(error, h2.exceptions.H2Error)
        if isinstance(error, h2.exceptions.H2Error):
            print("error:", repr(error), file=sys.stderr)
    finally:
        with lock:
            stats["closed"] += 1
        sock.close()


def accept(listener):
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with lock:
            stats["connections"] += 1
            number = stats["connections"]
        threading.Thread(target=serve, args=(sock, number), daemon=True).start()


def answer_queries():
    """Prints the counters for each line, and ends with the stdin."""
    for _ in sys.stdin:
        with lock:
            print(json.dumps(stats), flush=True)
    os._exit(0)


listener = socket.create_server(("127.0.0.1", int(options.get("port", 0))), backlog=512)
print(listener.getsockname()[1], flush=True)
threading.Thread(target=accept, args=(listener,), daemon=True).start()
answer_queries()
