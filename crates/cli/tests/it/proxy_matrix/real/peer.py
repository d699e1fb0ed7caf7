"""Both ends of an echo over HTTP/1.1: `serve` prints its port, `ask HOST PORT` checks what comes back."""
import hashlib, http.client, os, random, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def content(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self):
        body = self.content()
        chunked = "chunked" in self.path and self.request_version == "HTTP/1.1"
        self.send_response(200)
        self.send_header("X-Sha256", hashlib.sha256(body).hexdigest())
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if chunked:
            for at in range(0, len(body), 30011):
                part = body[at:at + 30011]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer


def serve():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()


def ask(host, port):
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    checked = 0
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for size in (0, 1, 1000, 300_000):
            for chunked in (False, True):
                for path in ("/plain", "/chunked"):
                    body = random.randbytes(size)
                    if chunked:
                        parts = iter([body[at:at + 7001] for at in range(0, size, 7001)])
                        connection.request(method, path, parts, encode_chunked=True)
                    else:
                        connection.request(method, path, body)
                    answer = connection.getresponse()
                    got = answer.read()
                    right = hashlib.sha256(body).hexdigest()
                    row = (method, size, chunked, path, answer.status, len(got))
                    assert answer.status == 200 and got == body, row
                    assert answer.headers["X-Sha256"] == right, row
                    checked += 1
    print("checked", checked)


serve() if sys.argv[1] == "serve" else ask(*sys.argv[2:])
