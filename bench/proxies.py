"""Proxies: starts each one in front of an origin, with one thread."""

import os
import shutil
import subprocess
import time

import harness
import peers

FLOOR = os.path.join(peers.TARGET, "examples", "floor")
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"
# Concurrent clients that each proxy has to accept, and the descriptors that HAProxy needs for them.
# HAProxy does not start with fewer descriptors.
CLIENTS_MAX, DESCRIPTORS = 9_000, 18_500


# Cipher suite and group of the key exchange of every proxy with TLS: both are the first choice of browsers.
CIPHER_SUITE, GROUP = "TLS_AES_128_GCM_SHA256", "X25519"


class Proxy(peers.Server):
    """A running proxy. `log` is the path of its log, or None."""

    def __init__(self, server, log, tls=None):
        super().__init__(server.name, server.process, server.pid, server.port)
        self.log = log
        if tls:
            self.scheme = "https"

    def forget_log(self):
        """Truncates the log, which would fill a disk within an hour. Proxies write in append mode."""
        if self.log:
            os.truncate(self.log, 0)


def has_weir():
    """Returns true if the weir binary has the command `proxy`."""
    if not os.path.exists(peers.WEIR):
        raise harness.Failed(f"no {peers.WEIR}; BENCH_WEIR says where another is")
    done = subprocess.run([peers.WEIR, "proxy", "--help"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10)
    return done.returncode == 0


def _log_path(bench, name, port, logs):
    if not logs:
        return None
    path = os.path.join(bench.folder, f"{name}-{port}.log")
    open(path, "w").close()
    return path


def write(bench, name, text):
    path = os.path.join(bench.folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def spawn(name, argv, cpu, port, output=subprocess.DEVNULL):
    process = harness.spawn(argv, cpu, stdout=output, stderr=subprocess.DEVNULL)
    harness.wait_for_port(port, process)
    return peers.Server(name, process, process.pid, port)


def start_weir(conf, log, *more):
    """Starts `weir proxy` with its messages in the file `log`, and waits until it is ready."""
    with open(log, "w") as output:
        process = harness.spawn([peers.WEIR, "proxy", "--config", conf, *more], harness.SUBJECT_CPU,
                                stdout=output, stderr=output)
    until = time.monotonic() + 30
    while "file access" not in (text := text_of(log)):
        if process.poll() is not None or time.monotonic() > until:
            raise harness.Failed(f"weir proxy did not start: {text}")
        time.sleep(0.01)
    return process


def text_of(path):
    with open(path) as file:
        return file.read()


WEIR_CONF = """
threads = {threads}
admin = "127.0.0.1:{admin}"
{log}
[listener.web]
bind = "127.0.0.1:{port}"
pool = "{pool}"
{tls}

[pool.app]
servers = ["127.0.0.1:{origin}"]
"""
# Certificate and key are in one file.
WEIR_TLS = """
[listener.web.tls]
certificates = ["{pem}"]
min-version = "1.3"
cipher-suites = ["{suite}"]
groups = ["{group}"]
"""
# A second layer in the same process: HTTP/2 between the layers.
WEIR_STACKED = """
[listener.inner]
bind = "127.0.0.1:{inner}"
pool = "app"

[pool.inner]
http = "2"
servers = ["127.0.0.1:{inner}"]
"""


def weir(bench, cpu, origin, logs=True, threads=1, tls=None, http2=False, stacked=False, program=peers.WEIR):
    """Starts weir with all defaults, metrics, and a log in HAProxy's format.

    `program` is another build of weir. `tls` is a file with certificate and key. Its cleartext listeners accept HTTP/2 by default, so `http2`
    changes nothing."""
    port = harness.free_port()
    log = _log_path(bench, "weir", port, logs)
    conf = write(bench, f"weir-{port}.toml", WEIR_CONF.format(
        threads=threads, admin=harness.free_port(), port=port, origin=origin.port,
        pool="inner" if stacked else "app",
        tls=WEIR_TLS.format(pem=tls, suite=CIPHER_SUITE, group=GROUP) if tls else "",
        log=f'[[log]]\nto = "file:{log}"\nformat = "haproxy"\n' if log else "")
        + (WEIR_STACKED.format(inner=harness.free_port()) if stacked else ""))
    argv = [program, "proxy", "--config", conf]
    return Proxy(spawn("weir", argv, cpu, port), log, tls)


# The pool ratios keep idle connections to the origin as long as descriptors suffice. By default HAProxy
# closes them above a quarter of its descriptors, and would open thousands again.
HAPROXY_CONF = """
global
    nbthread 1
    maxconn {clients}
    maxpipes 200
    tune.pool-low-fd-ratio 99
    tune.pool-high-fd-ratio 100
    {tls}
    {log}
defaults
    mode http
    log global
    {option}
    option forwardfor
    {splice}
    http-reuse always
    timeout connect 5s
    timeout http-request 10s
    timeout http-keep-alive 300s
    timeout client 300s
    timeout server 300s
frontend web
    bind 127.0.0.1:{port} backlog 4096 {bind}
    maxconn {clients}
    default_backend {backend}
backend app
    server origin 127.0.0.1:{origin}
"""
HAPROXY_TLS = """
    ssl-default-bind-options ssl-min-ver TLSv1.3
    ssl-default-bind-ciphersuites {suite}
    ssl-default-bind-curves {group}
"""
HAPROXY_STACKED = """
frontend inner
    bind 127.0.0.1:{inner} backlog 4096 proto h2
    maxconn {clients}
    default_backend app
backend inner
    server inner 127.0.0.1:{inner} proto h2
"""


def haproxy(bench, cpu, origin, logs=True, splice=False, tls=None, http2=False, stacked=False):
    """Starts HAProxy with its log on standard output.

    HAProxy cannot open a log file. A file as standard output is its cheapest log, because no other process
    reads and writes the lines. With `splice` HAProxy moves response bodies with splice(2), which is off by
    default."""
    port = harness.free_port()
    log = _log_path(bench, "haproxy", port, logs)
    conf = write(bench, f"haproxy-{port}.cfg", HAPROXY_CONF.format(
        clients=CLIENTS_MAX, port=port, origin=origin.port,
        log="log stdout format raw local0" if log else "", option="option httplog" if log else "",
        splice="option splice-response" if splice else "",
        tls=HAPROXY_TLS.format(suite=CIPHER_SUITE, group=GROUP) if tls else "",
        bind=f"ssl crt {tls}" if tls else "proto h2" if http2 else "",
        backend="inner" if stacked else "app")
        + (HAPROXY_STACKED.format(inner=harness.free_port(), clients=CLIENTS_MAX) if stacked else ""))
    argv = [HAPROXY, "-db", "-f", conf]
    if not log:
        return Proxy(spawn("haproxy", argv, cpu, port), None, tls)
    with open(log, "ab") as output:
        return Proxy(spawn("haproxy", argv, cpu, port, output), log, tls)


NGINX_PROXY = """
    access_log {log};
    upstream app {{
        server 127.0.0.1:{origin};
        keepalive 256;
        keepalive_requests 1000000000;
        keepalive_timeout 300s;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096{listen};
        {tls}
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_read_timeout 300s;
            proxy_max_temp_file_size 0;
        }}
    }}
"""


NGINX_TLS = """
        ssl_certificate {pem};
        ssl_certificate_key {pem};
        ssl_protocols TLSv1.3;
        ssl_conf_command Ciphersuites {suite};
        ssl_ecdh_curve {group};
"""


def nginx(bench, cpu, origin, logs=True, tls=None, http2=False):
    port = harness.free_port()
    log = _log_path(bench, "nginx", port, logs)
    text = NGINX_PROXY.format(
        port=port, origin=origin.port, listen=" ssl" if tls else " http2" if http2 else "",
        tls=NGINX_TLS.format(pem=tls, suite=CIPHER_SUITE, group=GROUP) if tls else "",
        log=f"{log} combined buffer=64k flush=1s" if log else "off")
    return Proxy(peers.start_nginx(bench, cpu, port, text, 2 * CLIENTS_MAX + 100), log, tls)


def floor(bench, cpu, origin):
    """Starts the floor, which copies bytes without parsing HTTP: the min cost of a proxy."""
    port = harness.free_port()
    argv = [FLOOR, f"127.0.0.1:{port}", f"127.0.0.1:{origin.port}"]
    return Proxy(spawn("floor", argv, cpu, port), None)


PROXIES = {"weir": weir, "haproxy": haproxy, "nginx": nginx, "floor": floor}
