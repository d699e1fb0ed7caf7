"""Part `overload`: what a proxy delivers when more comes than its origin can do, and afterwards.

The origin takes 20 ms for each request and is to have 10 at a time; clients come at a fixed rate,
each on a connection of its own, and leave after 500 ms."""

import bisect
import json
import os
import signal
import statistics
import subprocess
import time
import urllib.request

import harness
import peers
import proxies
from harness import Failed

DELAY_MS, CAP, PATIENCE_MS = 20, 10, 500
NOMINAL_PER_S = CAP * 1_000 / DELAY_MS
CAPPED = os.path.join(peers.TARGET, "examples", "capped")
SURGE = os.path.join(peers.TARGET, "examples", "surge")
# Least goodput of what the origin can do, most p50 of the served, most time until it has recovered.
BUDGET_GOODPUT, BUDGET_P50_MS, BUDGET_RECOVERED_MS = 0.97, 60, 250
CALM_S, CALM_RATE, STALL_S, SETTLE_MS = 2, 300, 5, 250
# All share all processors: what is measured is what is served, and not what it costs. weir has a
# thread for each, which is its default.
CPUS = set(os.sched_getaffinity(0)) | {harness.SUBJECT_CPU}
# Recovery is looked for in steps of this; in each, so many have to be served.
STEP_MS = 50

WEIR = """
[[log]]
to = "file:{folder}/overload.log"
[listener.web]
bind = "127.0.0.1:{port}"
pool = "app"
[pool.app]
servers = [{{ address = "127.0.0.1:{origin}", maxconn = {cap} }}]
"""

HAPROXY = """
global
    nbthread 1
    maxconn 9000
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    {queue}
frontend web
    bind 127.0.0.1:{port}
    default_backend app
backend app
    server origin 127.0.0.1:{origin} maxconn {cap}
"""

NGINX = """
    access_log off;
    upstream app {{ server 127.0.0.1:{origin} max_conns={cap}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_next_upstream off;
        }}
    }}
"""


def measure(bench):
    overload_s = 6 if bench.options.quick else 20
    kept, rows = [], []
    for stall in (False, True):
        for name, start in _variants().items():
            harness.progress(f"overload: {name}{', stalled' if stall else ''}")
            found = bench.attempt(_run, start, overload_s, stall)
            kept.append({"variant": name, "stall": stall, **found})
            judged = name.startswith("weir") and _judge(bench, name, stall, found)
            rows.append(_row(name, stall, found, judged))
    harness.table(
        f"overload: {DELAY_MS} ms a request, {CAP} at a time, clients leave after {PATIENCE_MS} ms; "
        f"300/s, then 1,000/s and 1,500/s for {overload_s} s each (stalled: 1,000/s, after the "
        f"origin was stopped for {STALL_S} s), then 300/s",
        ["proxy", "capacity/s", "good/s at 1,000", "of capacity", "good/s at 1,500", "of capacity",
         "p50 of good", "p99", "what others saw", "recovered after", "wasted", "most at a time",
         "verdict"], rows)
    bench.keep("overload", kept)


def _variants():
    return {
        "weir, default": _weir,
        "haproxy, default": lambda bench, origin: _haproxy(bench, origin, ""),
        "haproxy, timeout queue 100ms": lambda bench, origin: _haproxy(
            bench, origin, "timeout queue 100ms"),
        "nginx, max_conns": _nginx,
    }


def _weir(bench, origin):
    port = harness.free_port()
    conf = proxies.write(bench, f"overload-{port}.toml", WEIR.format(
        folder=bench.folder, port=port, origin=origin.port, cap=CAP))
    return proxies.spawn("weir", [peers.WEIR, "proxy", "--config", conf], CPUS, port)


def _haproxy(bench, origin, queue):
    port = harness.free_port()
    conf = proxies.write(bench, f"overload-{port}.cfg", HAPROXY.format(
        port=port, origin=origin.port, cap=CAP, queue=queue))
    return proxies.spawn("haproxy", [proxies.HAPROXY, "-db", "-f", conf], CPUS, port)


def _nginx(bench, origin):
    port = harness.free_port()
    http = NGINX.format(port=port, origin=origin.port, cap=CAP)
    return peers.start_nginx(bench, CPUS, port, http, 9_000)


def _origin():
    port = harness.free_port()
    argv = [CAPPED, f"127.0.0.1:{port}", str(DELAY_MS)]
    process = harness.spawn(argv, CPUS, stdout=subprocess.DEVNULL)
    harness.wait_for_port(port, process)
    return peers.Server("capped", process, process.pid, port)


def _counts(origin):
    with urllib.request.urlopen(origin.url("/stats"), timeout=30) as answer:
        return json.load(answer)


def _run(bench, start, overload_s, stall):
    with _origin() as origin:
        capacity = _capacity(origin)
        with start(bench, origin) as proxy:
            _warm(proxy)
            _counts(origin)
            rates = [(1_000, overload_s + (STALL_S if stall else 0))]
            rates += [] if stall else [(1_500, overload_s)]
            phases = [(CALM_RATE, CALM_S), *rates, (CALM_RATE, 2 * CALM_S)]
            lines = _surge(proxy, phases, origin if stall else None)
            time.sleep(0.5)
            counts = _counts(origin)
    served = sum(status == 200 for _, _, status in lines)
    # What nobody took is wasted, whether its connection was still open or not.
    counts["wasted"] = max(counts["wasted"], counts["finished"] - served)
    return {"capacity_per_s": capacity, **counts, **_figures(lines, phases, stall)}


def _capacity(origin):
    """What ten clients get that ask again and again, without a proxy."""
    argv = [SURGE, f"127.0.0.1:{origin.port}", "closed", str(CAP), "2"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, text=True)
    if done.returncode:
        raise Failed(f"surge: {done.stderr}")
    return float(done.stdout)


def _warm(proxy):
    for _ in range(4):
        urllib.request.urlopen(proxy.url(), timeout=10).read()


def _surge(proxy, phases, stalled):
    text = ",".join(f"{rate}:{seconds}" for rate, seconds in phases)
    argv = [SURGE, f"127.0.0.1:{proxy.port}", str(PATIENCE_MS), text]
    process = harness.spawn(argv, CPUS, stdout=subprocess.PIPE, text=True)
    try:
        if stalled:
            # Its clock starts a tenth of a second after it.
            time.sleep(0.1 + CALM_S)
            os.kill(stalled.pid, signal.SIGSTOP)
            time.sleep(STALL_S)
            os.kill(stalled.pid, signal.SIGCONT)
        output = process.communicate(timeout=sum(seconds for _, seconds in phases) + 30)[0]
    finally:
        if stalled:
            os.kill(stalled.pid, signal.SIGCONT)
        harness.stop(process)
    return sorted(tuple(int(word) for word in line.split()) for line in output.splitlines())


def _figures(lines, phases, stall):
    """Of requests (due, took, status) by when their answers came: what an origin did in a second
    belongs to that second. What came later than its client waits was the generator's to miss."""
    good = sorted((due_us + took_us, took_us) for due_us, took_us, status in lines
                  if status == 200 and took_us <= PATIENCE_MS * 1_000)
    others, begin_s, rates = {}, CALM_S, []
    if stall:
        begin_s += STALL_S + SETTLE_MS / 1_000
    for rate, seconds in phases[1:-1]:
        end_s = CALM_S + sum(length for _, length in phases[1:1 + len(rates) + 1])
        inside = [took for at, took in good if begin_s * 1e6 <= at < end_s * 1e6]
        rates.append((rate, len(inside) / (end_s - begin_s), inside))
        begin_s = end_s
    served = sorted(took for _, _, inside in rates for took in inside)
    for _, _, status in lines:
        if status != 200:
            others[status] = others.get(status, 0) + 1
    over_s = CALM_S + STALL_S if stall else begin_s
    recovered = _recovered(lines, over_s, CALM_S + sum(seconds for _, seconds in phases[1:]), stall)
    return {"rates": [(rate, per_s) for rate, per_s, _ in rates],
            "p50_ms": statistics.median(served) / 1e3 if served else None,
            "p99_ms": served[len(served) * 99 // 100] / 1e3 if served else None,
            "others": {str(status): count for status, count in sorted(others.items())},
            "recovered_ms": recovered}


def _recovered(lines, over_s, end_s, stall):
    """After how long all is as it should be: all that come then are served, and after a stall as
    many as there is room for. None: never."""
    answers = sorted(due + took for due, took, status in lines if status == 200)
    last_bad = -1
    if not stall:
        late = [due for due, _, status in lines if due >= over_s * 1e6 and status != 200]
        return 0 if not late else (max(late) / 1e3 - over_s * 1e3
                                   if max(late) < (end_s - 1) * 1e6 else None)
    steps = int((end_s - over_s - 2 * CALM_S) * 1e3 / STEP_MS) - 2
    for step in range(steps):
        # Twice a step: what comes to an end in one is a few.
        at = [(over_s * 1e3 + (step + more) * STEP_MS) * 1e3 for more in (0, 2)]
        count = bisect.bisect_left(answers, at[1]) - bisect.bisect_left(answers, at[0])
        if count < 0.8 * NOMINAL_PER_S * 2 * STEP_MS / 1e3:
            last_bad = step
        elif step - last_bad > 10:
            break
    return (last_bad + 1) * STEP_MS if last_bad + 1 < steps else None


def _judge(bench, name, stall, found):
    text = f"overload, {name}{', stalled' if stall else ''}"
    capacity, recovered = found["capacity_per_s"], found["recovered_ms"]
    # Requests that the origin had when it was stopped cannot be called back.
    wasted_max = CAP if stall else 0
    verdicts = [
        bench.judge(f"{text}: {per_s:.0f}/s at {rate}/s, of {capacity:.0f}",
                    per_s >= BUDGET_GOODPUT * capacity) for rate, per_s in found["rates"]]
    verdicts += [
        bench.judge(f"{text}: p50 {found['p50_ms']} ms", (found["p50_ms"] or 1e9) <= BUDGET_P50_MS),
        bench.judge(f"{text}: recovered after {recovered} ms",
                    recovered is not None and recovered <= BUDGET_RECOVERED_MS),
        bench.judge(f"{text}: {found['wasted']} wasted", found["wasted"] <= wasted_max),
        bench.judge(f"{text}: {found['most']} at a time", found["most"] <= CAP)]
    return "met" if set(verdicts) == {"met"} else "MISSED"


def _row(name, stall, found, judged):
    capacity = found["capacity_per_s"]
    rates = [cell for _, per_s in found["rates"]
             for cell in (f"{per_s:.0f}", f"{per_s / capacity:.1%}")]
    rates += [""] * (4 - len(rates))
    words = {"0": "left", "1": "no connection"}
    others = ", ".join(f"{count:,} × {words.get(status, status)}"
                       for status, count in found["others"].items())
    ms = [f"{found[field]:.0f} ms" if found[field] is not None else "-"
          for field in ("p50_ms", "p99_ms")]
    recovered = "never" if found["recovered_ms"] is None else f"{found['recovered_ms']:.0f} ms"
    return [f"{name}{', stalled' if stall else ''}", f"{capacity:.0f}", *rates, *ms, others,
            recovered, f"{found['wasted']:,}", str(found["most"]), judged or ""]
