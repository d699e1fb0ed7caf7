"""Part `memory`: user-space memory of an idle connection in the origin and in the load generator."""

import statistics
import subprocess
import time

import harness
import peers

IDLE, FEW = 10_000, 100
BUDGET_SERVE = 690
WARM_S = 1


def measure(bench):
    if bench.descriptors < IDLE + 200:
        print(f"\nmemory: left out; it needs a descriptor limit (hard) of {IDLE + 200}")
        return
    serve, load = {}, {}
    for _ in range(bench.options.times):
        for arm in bench.shuffled(["weir", "nginx"]):
            serve.setdefault(arm, []).append(_serve_once(bench, arm))
        for arm in bench.shuffled(["weir", "wrk"]):
            load.setdefault(arm, []).append(_load_once(bench, arm))
    table_bytes = _nginx_table_bytes(bench)
    bench.keep("memory", {"serve": serve, "load": load, "nginx_table_bytes": table_bytes})
    rows = [_row(arm, runs, "") for arm, runs in serve.items()]
    middle = statistics.median(serve["weir"])
    text = f"memory: serve has {middle:.0f} bytes a connection > {BUDGET_SERVE}"
    verdict = f"<= {BUDGET_SERVE} {bench.judge(text, middle <= BUDGET_SERVE)}"
    rows = [_row(arm, runs, verdict if arm == "weir" else "") for arm, runs in serve.items()]
    with_table = [value + table_bytes for value in serve["nginx"]]
    rows.append(_row("nginx, with its table of connections", with_table, ""))
    harness.table(f"memory: bytes of the server per connection, {IDLE} idle after one request each",
                  ["server", "bytes", "min..max", "budget"], rows)
    harness.table(f"memory: bytes of the generator per connection, {IDLE} against {FEW}",
                  ["generator", "bytes", "min..max", "budget"],
                  [_row(arm, runs, "") for arm, runs in load.items()])


def _row(arm, runs, verdict):
    return [arm, f"{statistics.median(runs):.0f}", f"{min(runs):.0f}..{max(runs):.0f}", verdict]


def _start(bench, arm, **keywords):
    if arm == "nginx":
        return peers.nginx(bench, harness.SUBJECT_CPU, **keywords), "/return"
    return peers.weir_serve(harness.SUBJECT_CPU), f"/?s={peers.BODY_SMALL}"


def _serve_once(bench, arm):
    """Measures the resident bytes per connection that IDLE connections add to a warm server."""
    server, path = _start(bench, arm)
    with server:
        peers.load_wrk(bench, server.url(path), FEW, WARM_S, harness.OTHER_CPU)
        time.sleep(0.5)
        before = harness.memory_of(server.pid)[0]
        sockets = harness.open_idle(server.port, path, IDLE, peers.BODY_SMALL)
        time.sleep(0.5)
        after = harness.memory_of(server.pid)[0]
        alive = harness.count_open(sockets)
        for each in sockets:
            each.close()
        if alive != IDLE:
            raise harness.Failed(f"{arm} closed {IDLE - alive} idle connections")
    return (after - before) / IDLE


def _nginx_table_bytes(bench):
    """Measures the bytes that nginx allocates at its start per entry of `worker_connections`."""
    resident = {}
    for connections in (500, 19_000):
        server, _ = _start(bench, "nginx", connections=connections)
        with server:
            time.sleep(0.3)
            resident[connections] = harness.memory_of(server.pid)[0]
    return (resident[19_000] - resident[500]) / (19_000 - 500)


def _load_once(bench, arm):
    """Measures the resident bytes that each further connection adds to a generator."""
    resident = {}
    with peers.weir_serve(harness.OTHER_CPU) as server:
        url = server.url(f"/?s={peers.BODY_SMALL}")
        for count in (FEW, IDLE):
            if arm == "weir":
                argv = [peers.WEIR, "load", "-t", "1", "--quiet", "-c", str(count), "-R", "10",
                        "-d", "6s", url]
            else:
                argv = ["wrk", "-t1", f"-c{count}", "-d6s", url]
            process = harness.spawn(argv, harness.SUBJECT_CPU, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
            try:
                time.sleep(4.5)
                if process.poll() is not None:
                    raise harness.Failed(f"{arm} ended early")
                resident[count] = harness.memory_of(process.pid)[0]
            finally:
                harness.stop(process)
    return (resident[IDLE] - resident[FEW]) / (IDLE - FEW)
