"""Part `replay`: replays an access log with its original times, and compares what nginx logs.

The log has 6,000 requests with exponential gaps, times in milliseconds, and lines in the order in which requests
end. Every target is different, so that order and targets can be compared one by one."""

import json
import os
import random
import time
import urllib.request

import harness
import peers

REQUESTS, RATE, CONNECTIONS = 6_000, 400, 32
# Time between two requests above which their order has to be the original one, in s.
APART_S = 0.001
BEGUN = 1_700_000_000

HTTP = """
    log_format arrivals '$msec $request_time $request_uri';
    access_log {log} arrivals;
    server {{ listen 127.0.0.1:{port}; location / {{ return 200 "ok"; }} }}
"""


def measure(bench):
    rows, kept = [], []
    for number in range(bench.options.times):
        row, value = _once(bench, number)
        rows.append(row)
        kept.append(value)
    bench.keep("replay", kept)
    harness.table(
        f"replay: {REQUESTS} requests at {RATE}/s from a log, weir load to nginx, ms after the original time",
        ["run", "arrived", "targets equal", "out of order", "p50", "p90", "p99", "max", "complete, in order"], rows)


def _write_log(path):
    """Writes the log in HAProxy's format; returns times in s after the first, and targets, by time."""
    at, all_of_it = 0.0, []
    for number in range(REQUESTS):
        all_of_it.append((round(at, 3), f"/replay/{number}?x={number % 7}"))
        at += random.expovariate(RATE)
    lines = []
    for at, target in all_of_it:
        when = time.strftime("%d/%b/%Y:%H:%M:%S", time.gmtime(BEGUN + int(at + 0.0005)))
        took = random.randrange(1, 30)
        lines.append((at + took / 1000, f"10.0.0.1:5000 [{when}.{round(at * 1000) % 1000:03}] in b/s 0/0/0/{took}/{took} 200 "
                      f"100 - - ---- 1/1/0/0/0 0/0 \"GET {target} HTTP/1.1\"\n"))
    # A proxy logs a request when it ends.
    lines.sort(key=lambda line: line[0])
    with open(path, "w") as file:
        file.writelines(line for _, line in lines)
    return all_of_it


def _once(bench, number):
    log, arrivals = (os.path.join(bench.folder, name) for name in ("replay.log", "arrivals.log"))
    record = os.path.join(bench.folder, "replay.json")
    if os.path.exists(arrivals):
        os.remove(arrivals)
    expected = _write_log(log)
    port = harness.free_port()
    http = HTTP.format(log=arrivals, port=port)
    with peers.start_nginx(bench, harness.OTHER_CPU, port, http, 1024) as server:
        urllib.request.urlopen(server.url("/warm")).read()
        argv = [peers.WEIR, "load", "-t", "1", "-c", str(CONNECTIONS), "--quiet", "--no-watch", "--no-baseline",
                "--replay", log, "--json", record, server.url()]
        finished = harness.run(argv, harness.SUBJECT_CPU, REQUESTS / RATE + 60)
        if finished.status not in (0, 4):
            raise harness.Failed(f"weir load ended with {finished.status}:\n{finished.output}")
    with open(record) as file:
        run = json.load(file)
    start_s = run["identities"][0]["start_unix_ns"] / 1e9
    seen = []
    with open(arrivals) as file:
        for line in file:
            ended, took, target = line.split()
            if target.startswith("/replay/"):
                seen.append((float(ended) - float(took), target))
    original = {target: at for at, target in expected}
    is_equal = sorted(target for _, target in seen) == sorted(original)
    # nginx writes its lines in the order in which it handled the requests.
    swapped = sum(original[one] > original[other] + APART_S for (_, one), (_, other) in zip(seen, seen[1:]))
    late_ms = sorted((at - start_s - original[target]) * 1000 for at, target in seen)
    quantile = lambda fraction: late_ms[min(len(late_ms) - 1, int(fraction * len(late_ms)))]
    verdict = bench.judge(f"replay, run {number + 1}: {len(seen)} of {REQUESTS}, {swapped} out of order",
                          is_equal and swapped == 0)
    figures = [quantile(0.5), quantile(0.9), quantile(0.99), late_ms[-1]]
    row = [number + 1, len(seen), "yes" if is_equal else "no", swapped, *[f"{ms:.2f}" for ms in figures], verdict]
    return row, {"arrived": len(seen), "equal": is_equal, "out_of_order": swapped, "late_ms": figures,
                 "validity": run["validity"]}
