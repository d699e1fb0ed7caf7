"""Part `addresses`: more connections to one port than one source address has ports.

A network namespace has 4,000 local ports, and 15,000 connections go to one port from four loopback addresses. The
same load from one address has to report the shortage before it starts."""

import json
import os
import subprocess

import harness
import peers

CONNECTIONS, FIRST_PORT, LAST_PORT = 15_000, 20_000, 23_999
SOURCES = "127.0.0.2-127.0.0.5"
LENGTH_S, RATE = 8, 3_000


def measure(bench):
    if os.geteuid() != 0:
        print("\naddresses: left out; a network namespace needs root")
        return
    if not bench.has_descriptors("addresses", CONNECTIONS):
        return
    rows = bench.repeat("addresses", _once)
    harness.table(
        f"addresses: {CONNECTIONS} connections from {SOURCES} to one port, {LAST_PORT - FIRST_PORT + 1} local ports",
        ["run", "max open", "failed", "lost", "errors", "responses", "source addresses", "sockets of the largest",
         "one address", "all opened, none lost"], rows)


def _once(bench, number):
    name = f"weir-addresses-{os.getpid()}"
    within = ["ip", "netns", "exec", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*within, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*within, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={FIRST_PORT} {LAST_PORT}"], check=True)
        serve = subprocess.Popen([*within, peers.WEIR, "serve", "-t", "1", "--listen", "127.0.0.1:8000"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            serve.stdout.readline()
            return _load(bench, number, within)
        finally:
            harness.stop(serve)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def _load(bench, number, within):
    record = os.path.join(bench.folder, "addresses.json")
    load = [*within, peers.WEIR, "load", "-t", "1", "--quiet", "-c", str(CONNECTIONS), "-s", "3s", "-d", f"{LENGTH_S}s",
            "-R", str(RATE), "--json", record]
    url = f"http://127.0.0.1:8000/?s={peers.BODY_SMALL}"
    alone = harness.run([*load, url], harness.SUBJECT_CPU, 60)
    with harness.Running([*load, "--source", SOURCES, url], harness.SUBJECT_CPU) as running:
        # The sockets are counted while all of them are open.
        harness.time.sleep(3 + LENGTH_S / 2 - 1)
        listed = subprocess.run([*within, "ss", "-Htn", "state", "established", "dport", "=", ":8000"],
                                capture_output=True, text=True, check=True).stdout
        finished = running.finish(60)
    if finished.status not in (0, 4):
        raise harness.Failed(f"weir load ended with {finished.status}:\n{finished.output}")
    with open(record) as file:
        run = json.load(file)
    counts = {}
    for line in listed.splitlines():
        source = line.split()[2].rpartition(":")[0]
        counts[source] = counts.get(source, 0) + 1
    totals, opened = run["totals"], run["totals"]["connections"]
    errors = sum(totals["errors"].values())
    is_refused = alone.status == 1 and "local ports at once" in alone.output
    good = (opened["max_open"] == CONNECTIONS and opened["failed"] == opened["lost"] == errors == 0
            and len(counts) == 4 and sum(counts.values()) == CONNECTIONS and is_refused)
    verdict = bench.judge(f"addresses, run {number + 1}: {opened}, {totals['errors']}, {counts}, alone {alone.status}", good)
    row = [number + 1, opened["max_open"], opened["failed"], opened["lost"], errors, totals["responses"], len(counts),
           max(counts.values(), default=0), f"exit {alone.status}", verdict]
    return row, {"totals": totals, "by_source": counts, "alone": [alone.status, alone.output[-2000:]],
                 "validity": run["validity"]}
