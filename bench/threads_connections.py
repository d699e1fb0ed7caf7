#!/usr/bin/env python3
"""Prints the trials of docs/examples/experiments/user-space-tcp-table.toml in the form of dpdk-httpperf: a table for each transport.

    weir lab run docs/examples/experiments/user-space-tcp-table.toml --output DIRECTORY
    bench/threads_connections.py DIRECTORY

RPS are those of all threads, medians of the blocks. CPU_c and CPU_s are the CPUs of the generator and of the server, in percent of their threads.
"""

import glob
import json
import os
import re
import statistics
import sys

sys.dont_write_bytecode = True

import harness

LATENCIES = ("p50_ns", "p75_ns", "p90_ns", "p99_ns", "max_ns")


def main():
    cells = {}
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "trials", "*.json"))):
        with open(path) as file:
            trial = json.load(file)
        found = re.fullmatch(r"threads-(\d+)-connections-(\d+)", trial["load"])
        if found and trial.get("kind") != "pilot" and not trial["arm"].endswith("-repeat"):
            key = trial["arm"], int(found.group(1)), int(found.group(2))
            cells.setdefault(key, []).append(trial["metrics"])
    if not cells:
        raise SystemExit(f"{sys.argv[1]}: no trials of threads and connections")
    for arm in sorted({arm for arm, _, _ in cells}):
        rows = [_row(threads, connections, cells[arm, threads, connections])
                for _, threads, connections in sorted(key for key in cells if key[0] == arm)]
        head = ["PROC", "CONN", "RPSavg", "RPSmax", "LAT50", "LAT75", "LAT90", "LAT99", "LATmax", "CPU_c", "CPU_s"]
        harness.table(arm, head, rows)


def _row(threads, connections, trials):
    def median(name):
        values = [trial[name] for trial in trials if trial.get(name) is not None]
        return statistics.median(values) if values else None

    def shown(name, scale, form):
        value = median(name)
        return "-" if value is None else form.format(value * scale)

    return [threads, connections, shown("responses_per_s", 1e-3, "{:.2f}k"), shown("rate_max_per_s", 1e-3, "{:.2f}k"),
            *(shown(name, 1e-3, "{:.0f}us") for name in LATENCIES),
            *(shown(name, 100 / threads, "{:.0f}") for name in ("generator_cpus", "subject_cpus"))]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main()
