//! A TLS server that shares no code with weir: Python's ssl module.

use crate::support::python_server::PythonSocketServer;

/// Responds by target: `/ws` changes the protocol and echoes; `/clean` and `/truncated` are delimited
/// by the end of the stream, with close_notify and without; `/close` closes the connection after the
/// response. Everything else returns the request's content, or "hello". `x-header` is the PROXY
/// header, `x-name` the server name that the client sent.
const SCRIPT: &str = r#"
import ssl, sys, threading

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
if sys.argv[3:]:
    context.load_verify_locations(sys.argv[3])
    context.verify_mode = ssl.CERT_REQUIRED
names = threading.local()
context.sni_callback = lambda connection, name, _: setattr(names, "name", name)

def read_message(connection, buffer):
    while b"\r\n\r\n" not in buffer:
        part = connection.recv(65536)
        if not part:
            return None, b"", b""
        buffer += part
    head, buffer = buffer.split(b"\r\n\r\n", 1)
    length = 0
    for field in head.split(b"\r\n")[1:]:
        if field.lower().startswith(b"content-length:"):
            length = int(field.split(b":")[1])
    while len(buffer) < length:
        buffer += connection.recv(65536)
    return head, buffer[:length], buffer[length:]

def read_proxy_header(raw):
    header = b""
    while not header.endswith(b"\r\n"):
        header += raw.recv(1)
    return header[:-2]

def echo(connection):
    while part := connection.recv(65536):
        connection.sendall(part)
    connection.unwrap()

def serve(raw):
    try:
        header = read_proxy_header(raw) if sys.argv[2] == "proxy" else b"-"
        connection = context.wrap_socket(raw, server_side=True)
        name = (getattr(names, "name", None) or "-").encode()
        buffer = b""
        while True:
            head, body, buffer = read_message(connection, buffer)
            if head is None:
                return connection.close()
            target = head.split(b" ")[1]
            if target == b"/ws":
                connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
                                   b"Upgrade: websocket\r\n\r\n")
                return echo(connection)
            if target in (b"/clean", b"/truncated"):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")
                if target == b"/clean":
                    connection.unwrap()
                return connection.close()
            body = body or b"hello"
            connection.sendall(b"HTTP/1.1 200 OK\r\nx-header: %s\r\nx-name: %s\r\nContent-Length: %d\r\n\r\n%s"
                               % (header, name, len(body), body))
            if target == b"/close":
                connection.unwrap()
                return connection.close()
    except OSError:
        raw.close()
"#;

/// Starts a server with a file of a certificate and its key.
pub(super) fn start(certificate: &str) -> PythonSocketServer {
    start_with(&[certificate, "plain"])
}

/// Starts one with these arguments: the certificate, `proxy` if a PROXY header precedes the
/// session, and the authority of clients.
pub(super) fn start_with(arguments: &[&str]) -> PythonSocketServer {
    PythonSocketServer::start(SCRIPT, arguments)
}
