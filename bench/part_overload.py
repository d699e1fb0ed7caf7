"""Part `overload`: goodput of a proxy while the load exceeds the capacity of its origin, and afterwards.

The origin takes 20 ms per request, and each proxy may send it 10 requests at a time. Clients arrive at a
fixed rate, each on a connection of its own, and leave after 500 ms; in the second table after 200 ms and 30 ms."""

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

DELAY_MS, CAP, TIMEOUT_MS = 20, 10, 500
# Timeouts of impatient clients, and their arrival rate per second.
IMPATIENT_MS, IMPATIENT_RATE = (200, 30), 1_000
NOMINAL_PER_S = CAP * 1_000 / DELAY_MS
CAPPED = os.path.join(peers.TARGET, "examples", "capped")
SURGE = os.path.join(peers.TARGET, "examples", "surge")
# Min goodput as a fraction of capacity, max p50 of served requests, max recovery time.
BUDGET_GOODPUT, BUDGET_P50_MS, BUDGET_RECOVERED_MS = 0.97, 60, 250
CALM_S, CALM_RATE, STALL_S, SETTLE_MS = 2, 300, 5, 250
# All processes share all CPUs, because this part measures goodput and not CPU time. weir has its
# default of one thread per CPU.
CPUS = set(os.sched_getaffinity(0)) | {harness.SUBJECT_CPU}
# Step of the search for the recovery time. Each step needs a min number of served requests.
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
        f"overload: {DELAY_MS} ms a request, {CAP} at a time, clients leave after {TIMEOUT_MS} ms; "
        f"300/s, then 1,000/s and 1,500/s for {overload_s} s each (stalled: 1,000/s, after the "
        f"origin was stopped for {STALL_S} s), then 300/s",
        ["proxy", "capacity/s", "good/s at 1,000", "of capacity", "good/s at 1,500", "of capacity",
         "p50 of good", "p99", "what others saw", "recovered after", "abandoned", "max at a time",
         "verdict"], rows)
    kept.append({"impatient": _measure_impatient(bench, overload_s)})
    bench.keep("overload", kept)


def _measure_impatient(bench, overload_s):
    """Measures goodput at twice the capacity of the origin, with clients that leave early."""
    kept, rows = [], []
    for timeout_ms in IMPATIENT_MS:
        for name, start in _variants().items():
            harness.progress(f"overload: {name}, clients leave after {timeout_ms} ms")
            found = bench.attempt(_run, start, overload_s, False, timeout_ms)
            kept.append({"variant": name, "timeout_ms": timeout_ms, **found})
            (rate, per_s), capacity = found["rates"][0], found["capacity_per_s"]
            verdict = name.startswith("weir") and bench.judge(
                f"overload, {name}, clients leave after {timeout_ms} ms: {per_s:.0f}/s at {rate}/s, "
                f"of {capacity:.0f}", per_s >= BUDGET_GOODPUT * capacity)
            p50 = "-" if found["p50_ms"] is None else f"{found['p50_ms']:.0f} ms"
            rows.append([name, f"{timeout_ms} ms", f"{capacity:.0f}", f"{per_s:.0f}",
                         f"{per_s / capacity:.1%}", f"{found['calm_good']:.1%}", p50,
                         f"{found['abandoned']:,}", str(found["max_in_flight"]), verdict or ""])
    harness.table(
        f"overload, impatient clients: {DELAY_MS} ms a request, {CAP} at a time; "
        f"{IMPATIENT_RATE:,}/s for {overload_s} s",
        ["proxy", "clients leave after", "capacity/s", "good/s", "of capacity",
         f"in time at {CALM_RATE}/s", "p50 of good", "abandoned", "max at a time", "verdict"], rows)
    return kept


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
    with urllib.request.urlopen(origin.url("/stats"), timeout=30) as response:
        return json.load(response)


def _run(bench, start, overload_s, stall, timeout_ms=TIMEOUT_MS):
    with _origin() as origin:
        capacity = _capacity(origin)
        with start(bench, origin) as proxy:
            _warm(proxy)
            _counts(origin)
            rates = [(1_000, overload_s + (STALL_S if stall else 0))]
            rates += [] if stall or timeout_ms != TIMEOUT_MS else [(1_500, overload_s)]
            phases = [(CALM_RATE, CALM_S), *rates, (CALM_RATE, 2 * CALM_S)]
            lines = _surge(proxy, phases, origin if stall else None, timeout_ms)
            time.sleep(0.5)
            counts = _counts(origin)
    served = sum(status == 200 for _, _, status in lines)
    # Counts each response without a receiver as abandoned, even if its connection was still open.
    counts["abandoned"] = max(counts["abandoned"], counts["finished"] - served)
    return {"capacity_per_s": capacity, **counts, **_figures(lines, phases, stall, timeout_ms)}


def _capacity(origin):
    """Measures the response rate of CAP closed-loop clients without a proxy."""
    argv = [SURGE, f"127.0.0.1:{origin.port}", "closed", str(CAP), "2"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, text=True)
    if done.returncode:
        raise Failed(f"surge: {done.stderr}")
    return float(done.stdout)


def _warm(proxy):
    for _ in range(4):
        urllib.request.urlopen(proxy.url(), timeout=10).read()


def _surge(proxy, phases, stalled, timeout_ms):
    text = ",".join(f"{rate}:{seconds}" for rate, seconds in phases)
    argv = [SURGE, f"127.0.0.1:{proxy.port}", str(timeout_ms), text]
    process = harness.spawn(argv, CPUS, stdout=subprocess.PIPE, text=True)
    try:
        if stalled:
            # The clock of surge starts 0.1 s after its process.
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


def _figures(lines, phases, stall, timeout_ms):
    """Computes the figures from (due, took, status) lines, by arrival time of the responses.

    Arrival time, not due time, assigns a response to the second in which the origin did the work. A
    response after its client's timeout is not good: the generator was late to drop it."""
    good = sorted((due_us + took_us, took_us) for due_us, took_us, status in lines
                  if status == 200 and took_us <= timeout_ms * 1_000)
    # Control without overload: delays of this machine let clients leave, too.
    calm = [status == 200 and took_us <= timeout_ms * 1_000
            for due_us, took_us, status in lines if due_us < CALM_S * 1e6]
    calm_good = sum(calm) / max(len(calm), 1)
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
    return {"calm_good": calm_good, "rates": [(rate, per_s) for rate, per_s, _ in rates],
            "p50_ms": statistics.median(served) / 1e3 if served else None,
            "p99_ms": served[len(served) * 99 // 100] / 1e3 if served else None,
            "others": {str(status): count for status, count in sorted(others.items())},
            "recovered_ms": recovered}


def _recovered(lines, over_s, end_s, stall):
    """Returns the recovery time in ms, or None without a recovery.

    From that time on every request is served; after a stall, the origin is busy."""
    responses = sorted(due + took for due, took, status in lines if status == 200)
    last_bad = -1
    if not stall:
        late = [due for due, _, status in lines if due >= over_s * 1e6 and status != 200]
        return 0 if not late else (max(late) / 1e3 - over_s * 1e3
                                   if max(late) < (end_s - 1) * 1e6 else None)
    steps = int((end_s - over_s - 2 * CALM_S) * 1e3 / STEP_MS) - 2
    for step in range(steps):
        # Uses a window of two steps, because a single step has only few responses.
        at = [(over_s * 1e3 + (step + more) * STEP_MS) * 1e3 for more in (0, 2)]
        count = bisect.bisect_left(responses, at[1]) - bisect.bisect_left(responses, at[0])
        if count < 0.8 * NOMINAL_PER_S * 2 * STEP_MS / 1e3:
            last_bad = step
        elif step - last_bad > 10:
            break
    return (last_bad + 1) * STEP_MS if last_bad + 1 < steps else None


def _judge(bench, name, stall, found):
    text = f"overload, {name}{', stalled' if stall else ''}"
    capacity, recovered = found["capacity_per_s"], found["recovered_ms"]
    # Requests that the stopped origin already has cannot be cancelled.
    abandoned_max = CAP if stall else 0
    verdicts = [
        bench.judge(f"{text}: {per_s:.0f}/s at {rate}/s, of {capacity:.0f}",
                    per_s >= BUDGET_GOODPUT * capacity) for rate, per_s in found["rates"]]
    verdicts += [
        bench.judge(f"{text}: p50 {found['p50_ms']} ms", (found["p50_ms"] or 1e9) <= BUDGET_P50_MS),
        bench.judge(f"{text}: recovered after {recovered} ms",
                    recovered is not None and recovered <= BUDGET_RECOVERED_MS),
        bench.judge(f"{text}: {found['abandoned']} abandoned", found["abandoned"] <= abandoned_max),
        bench.judge(f"{text}: {found['max_in_flight']} at a time", found["max_in_flight"] <= CAP)]
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
            recovered, f"{found['abandoned']:,}", str(found["max_in_flight"]), judged or ""]
