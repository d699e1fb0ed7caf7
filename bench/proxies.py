"""Proxies: starts each one in front of an origin, with one thread."""

import os
import shutil
import subprocess

import harness
import peers

FLOOR = os.path.join(peers.TARGET, "examples", "floor")
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"
# Concurrent clients that each proxy has to accept, and the descriptors that HAProxy needs for them.
# HAProxy does not start with fewer descriptors.
CLIENTS_MAX, DESCRIPTORS = 9_000, 18_500


class Proxy(peers.Server):
    """A running proxy. `log` is the path of its log, or None."""

    def __init__(self, server, log):
        super().__init__(server.name, server.process, server.pid, server.port)
        self.log = log

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


WEIR_CONF = """
threads = {threads}
admin = "127.0.0.1:{admin}"
{log}
[listener.web]
bind = "127.0.0.1:{port}"
pool = "app"

[pool.app]
servers = ["127.0.0.1:{origin}"]
"""


def weir(bench, cpu, origin, logs=True, threads=1):
    """Starts weir with all defaults, metrics, and a log in HAProxy's format."""
    port = harness.free_port()
    log = _log_path(bench, "weir", port, logs)
    conf = write(bench, f"weir-{port}.toml", WEIR_CONF.format(
        threads=threads, admin=harness.free_port(), port=port, origin=origin.port,
        log=f'[[log]]\nto = "file:{log}"\nformat = "haproxy"\n' if log else ""))
    argv = [peers.WEIR, "proxy", "--config", conf]
    return Proxy(spawn("weir", argv, cpu, port), log)


# The pool ratios keep idle connections to the origin as long as descriptors suffice. By default HAProxy
# closes them above a quarter of its descriptors, and would open thousands again.
HAPROXY_CONF = """
global
    nbthread 1
    maxconn {clients}
    maxpipes 200
    tune.pool-low-fd-ratio 99
    tune.pool-high-fd-ratio 100
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
    bind 127.0.0.1:{port} backlog 4096
    maxconn {clients}
    default_backend app
backend app
    server origin 127.0.0.1:{origin}
"""


def haproxy(bench, cpu, origin, logs=True, splice=False):
    """Starts HAProxy with its log on standard output.

    HAProxy cannot open a log file. A file as standard output is its cheapest log, because no other process
    reads and writes the lines. With `splice` HAProxy moves response bodies with splice(2), which is off by
    default."""
    port = harness.free_port()
    log = _log_path(bench, "haproxy", port, logs)
    conf = write(bench, f"haproxy-{port}.cfg", HAPROXY_CONF.format(
        clients=CLIENTS_MAX, port=port, origin=origin.port,
        log="log stdout format raw local0" if log else "", option="option httplog" if log else "",
        splice="option splice-response" if splice else ""))
    argv = [HAPROXY, "-db", "-f", conf]
    if not log:
        return Proxy(spawn("haproxy", argv, cpu, port), None)
    with open(log, "ab") as output:
        return Proxy(spawn("haproxy", argv, cpu, port, output), log)


NGINX_PROXY = """
    access_log {log};
    upstream app {{
        server 127.0.0.1:{origin};
        keepalive 256;
        keepalive_requests 1000000000;
        keepalive_timeout 300s;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
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


def nginx(bench, cpu, origin, logs=True):
    port = harness.free_port()
    log = _log_path(bench, "nginx", port, logs)
    http = NGINX_PROXY.format(port=port, origin=origin.port,
                              log=f"{log} combined buffer=64k flush=1s" if log else "off")
    return Proxy(peers.start_nginx(bench, cpu, port, http, 2 * CLIENTS_MAX + 100), log)


def floor(bench, cpu, origin):
    """Starts the floor, which copies bytes without parsing HTTP: the min cost of a proxy."""
    port = harness.free_port()
    argv = [FLOOR, f"127.0.0.1:{port}", f"127.0.0.1:{origin.port}"]
    return Proxy(spawn("floor", argv, cpu, port), None)


PROXIES = {"weir": weir, "haproxy": haproxy, "nginx": nginx, "floor": floor}
