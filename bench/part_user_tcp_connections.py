"""Part `user-tcp-connections`: 64,000 connections, opened, held and used at the same time over TCP in user space: at both ends,
at the client with four servers on kernel sockets, and at the server with four clients on kernel sockets. One process with
kernel sockets has fewer descriptors than that."""

import json
import os
import subprocess
import time

import harness
import part_user_tcp
import peers

CONNECTIONS = 64_000
# Processes at the end with kernel sockets.
KERNEL_PROCESSES = 4
SERVERS = [f"10.79.0.{number}" for number in (1, 11, 12, 13)]
CLIENTS = [f"10.79.0.{number}" for number in (2, 3, 4, 5)]
# Seconds in which the connections are opened, those of the load, and its requests/s. Four generators on kernel sockets share one
# CPU, so that they take longer.
ENDS = {"both": (14, 20, 8_000), "client": (14, 20, 8_000), "server": (40, 60, 2_000)}
# Bytes of a connection in user space, and of the rest of a process, that the resident memory may not exceed.
CONNECTION_BYTES_MAX, PROCESS_BYTES_MAX = 33 * 1024, 160 << 20


def measure(bench):
    if os.geteuid() != 0:
        print("\nuser-tcp-connections: left out; network namespaces need root")
        return
    if not bench.has_descriptors("user-tcp-connections", CONNECTIONS // KERNEL_PROCESSES):
        return
    rows, kept = [], []
    for number in range(bench.options.times):
        for end in ENDS:
            with part_user_tcp.Link(1) as link:
                for name, device, addresses in zip(link.names, ("x0", "x1"), (SERVERS, CLIENTS)):
                    for address in addresses[1:]:
                        subprocess.run(["ip", "-n", name, "address", "add", f"{address}/24", "dev", device], check=True)
                row, value = _once(bench, link, number, end)
            rows.append(row)
            kept.append(value)
    bench.keep("user-tcp-connections", kept)
    harness.table(
        f"user-tcp-connections: {CONNECTIONS} connections at a time, opened in " + ", ".join(f"{ramp_s} s ({end})" for end, (ramp_s, _, _) in ENDS.items()),
        ["run, in user space", "open", "failed", "lost", "errors", "responses", "counted by servers", "client MiB", "server MiB",
         "peak in user space", "bound MiB", "seconds", "all opened, counts equal"], rows)


def _once(bench, link, number, end):
    begun = time.monotonic()
    servers = KERNEL_PROCESSES if end == "client" else 1
    clients = KERNEL_PROCESSES if end == "server" else 1
    processes, loads = [], []
    try:
        for at in range(servers):
            processes.append(_serve(link, at, end))
        for at in range(clients):
            loads.append(_start_load(bench, link, at, clients, servers, end))
        # The memory while all connections are open.
        ramp_s, length_s, _ = ENDS[end]
        time.sleep(ramp_s + (length_s - ramp_s) / 2)
        resident = [sum(harness.memory_of(process.pid)[0] for process in group)
                    for group in ([load.process for load, _ in loads], processes)]
        runs = [_finish(*load) for load in loads]
        stats = [_stats(link, at) for at in range(servers)]
    finally:
        for load, _ in loads:
            harness.stop(load.process)
        for process in processes:
            harness.stop(process)
    return _row(bench, number, end, runs, stats, resident, time.monotonic() - begun)


def _serve(link, at, end):
    argv = [peers.WEIR, "serve", "-t", "1", "--listen", f"{SERVERS[at]}:{part_user_tcp.PORT}"]
    argv += [] if end == "client" else ["--xdp", "x0"]
    process = harness.spawn(link.server(argv), harness.SUBJECT_CPU, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if not process.stdout.readline():
        raise harness.Failed(f"did not start: {process.args}")
    return process


def _start_load(bench, link, at, clients, servers, end):
    record = os.path.join(bench.folder, f"user-tcp-{at}.json")
    ramp_s, length_s, rate = ENDS[end]
    # A connection to each of several servers needs no further source; one to a single server does.
    sources = f"{CLIENTS[0]}-{CLIENTS[2]}" if clients == 1 else CLIENTS[at]
    argv = [peers.WEIR, "load", "-t", "1", "--quiet", "--no-baseline", "--no-watch", "-c", str(CONNECTIONS // clients),
            "-s", f"{ramp_s}s", "-d", f"{length_s}s", "-R", str(rate // clients), "--json", record]
    argv += ["--source", sources] if servers == 1 else []
    argv += [] if end == "server" else ["--xdp", "x1"]
    argv += [f"http://{server}:{part_user_tcp.PORT}/?s={peers.BODY_SMALL}" for server in SERVERS[:servers]]
    return harness.Running(link.client(argv), harness.OTHER_CPU), record


def _finish(load, record):
    finished = load.finish(2 * max(length_s for _, length_s, _ in ENDS.values()) + 60)
    if finished.status not in (0, 4):
        raise harness.Failed(f"weir load ended with {finished.status}:\n{finished.output}")
    with open(record) as file:
        return json.load(file)


def _stats(link, at):
    url = f"http://{SERVERS[at]}:{part_user_tcp.PORT}/stats"
    answer = subprocess.run(link.client(["curl", "-s", "-m", "30", url]), capture_output=True, check=True)
    return json.loads(answer.stdout)


def _row(bench, number, end, runs, stats, resident, seconds):
    def total(name):
        return sum(run["totals"]["connections"][name] for run in runs)

    errors = sum(sum(run["totals"]["errors"].values()) for run in runs)
    responses = sum(run["totals"]["responses"] for run in runs)
    counted = sum(stat["requests"] for stat in stats)
    transports = [run["transport"] for run in runs if run.get("transport")]
    users = [stat["user_tcp"] for stat in stats if stat.get("user_tcp")]
    peak = max(entry["connections_peak"] for entry in transports + users)
    bound = max(entry["connections_memory_bytes_max"] for entry in transports + users)
    is_bounded = all(bytes_ <= CONNECTIONS * CONNECTION_BYTES_MAX + PROCESS_BYTES_MAX for bytes_ in resident)
    good = (total("max_open") == CONNECTIONS and total("failed") == total("lost") == errors == 0 and counted == responses
            and peak >= CONNECTIONS and is_bounded)
    verdict = bench.judge(f"user-tcp-connections, run {number + 1}, {end}: {total('max_open')} open, {total('failed')} failed, "
                          f"{total('lost')} lost, {errors} errors, {responses} responses, {counted} counted", good)
    row = [f"{number + 1}, {end}", total("max_open"), total("failed"), total("lost"), errors, responses, counted,
           *(f"{bytes_ / 2**20:.0f}" for bytes_ in resident), peak, f"{bound / 2**20:.0f}", f"{seconds:.0f}", verdict]
    return row, {"end": end, "totals": [run["totals"] for run in runs], "transports": transports, "servers": users,
                 "resident": resident, "seconds": seconds}
