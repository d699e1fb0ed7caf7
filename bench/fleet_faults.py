#!/usr/bin/env python3
"""A fleet of 8 agents and faults: `bench/fleet_faults.py WEIR [SIMULATED_AGENTS] [NATS_SERVER]`.

Each agent is in a network namespace with two links: one to the origin, one to the NATS server. So a partition
between an agent and the server leaves its load alone. Each case compares the sum of the merged record with the
counter of the origin. With the example `simulated_agents` of the crate `fleet` it also measures the coordinator
with 100, 300 and 1,000 agents. CASES names some of the cases. Everything is inside namespaces of this process:
nothing is left, however it ends. Needs root.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import network

AGENTS = [f"a{number}" for number in range(1, 9)]
ORIGIN, NATS = "10.99.0.254", "10.98.0.254"
EXACT_REQUESTS = int(os.environ.get("REQUESTS", 2_000_000))
# A run with a fault: 25 s, so that a fault of 10 s is in its middle.
FAULT_REQUESTS, FAULT_RATE = 100_000, 4_000
# Clocks that are wrong in all cases, in s.
CLOCKS_S = {"a2": 3, "a4": -3}
COUNTS = (100, 300, 1000)
# Of the records of the last count.
MERGE_BUDGET_S = 2
SIMULATED_SECONDS = 5


def build_network():
    """Returns with a namespace per agent, a bridge to the origin and one to the NATS server."""
    network.add_bridge("data", ORIGIN)
    network.add_bridge("control", NATS)
    for number, name in enumerate(AGENTS, start=1):
        network.add_machine(name)
        network.connect(name, "eth0", "data", f"10.99.0.{number}")
        network.connect(name, "eth1", "control", f"10.98.0.{number}")


class Fleet(network.Processes):
    """The processes: origin, NATS server and agents."""

    def start_all(self):
        self.start([self.weir, "serve", "-l", f"{ORIGIN}:9000", "-t", "1"])
        self.nats = self.start_nats()
        self.agents = {name: self.start_agent(name, clock_s=CLOCKS_S.get(name, 0)) for name in AGENTS}
        self.wait_for_agents(len(AGENTS))

    def wait_for_agents(self, count):
        for _ in range(20):
            listed = subprocess.run([self.weir, "fleet", "ls", "--nats", self.nats_url, "--json", "-"],
                                    capture_output=True, text=True)
            if listed.returncode == 0 and len(json.loads(listed.stdout)["agents"]) >= count:
                return
        raise SystemExit(f"fleet: fewer than {count} agents")

    def served(self):
        """The requests that the origin counted, without those for its counters."""
        with urllib.request.urlopen(f"http://{ORIGIN}:9000/stats") as response:
            return json.load(response)["requests"]


# A fault runs to its `yield` before the load starts, and from there 8 s after the start of the load.


def no_fault(_):
    yield


def stop_server(fleet):
    yield
    fleet.nats.send_signal(signal.SIGSTOP)
    time.sleep(10)
    fleet.nats.send_signal(signal.SIGCONT)


def partition(_):
    yield
    network.cut("a3", "control", False)
    time.sleep(10)
    network.cut("a3", "control", True)


def restart_server(fleet):
    yield
    fleet.nats.kill()
    fleet.nats.wait()
    time.sleep(3)
    fleet.nats = fleet.start_nats()


def pause_agent(_):
    yield
    network.pause("a7", True)
    time.sleep(3)
    network.pause("a7", False)


def slow_agent(_):
    """To 15 s after the start, the agent sends 8 kB/s to the NATS server: answers and heartbeats are late."""
    network.set_rate("a6", "eth1", "64kbit", "2kb", "5s")
    yield
    time.sleep(7)
    network.remove_rate("a6", "eth1")


def kill_agent(fleet):
    yield
    fleet.agents["a5"].kill()
    fleet.agents["a5"].wait()


# Name, fault, requests, rate, and the outcome of the agents other than "complete".
CASES = (
    ("exact", no_fault, EXACT_REQUESTS, None, {}),
    ("server stopped for 10 s", stop_server, FAULT_REQUESTS, FAULT_RATE, {}),
    ("a3 cut off for 10 s", partition, FAULT_REQUESTS, FAULT_RATE, {"a3": "returned"}),
    ("server killed, back after 3 s", restart_server, FAULT_REQUESTS, FAULT_RATE, {}),
    ("a7 paused for 3 s", pause_agent, FAULT_REQUESTS, FAULT_RATE, {}),
    ("a6 slow for 15 s", slow_agent, FAULT_REQUESTS, FAULT_RATE, {}),
    ("a5 killed", kill_agent, FAULT_REQUESTS, FAULT_RATE, {"a5": "lost"}),
)


def run_case(fleet, case):
    name, fault, requests, rate, others = case
    record = os.path.join(fleet.directory, "record.json")
    with contextlib.suppress(FileNotFoundError):
        os.remove(record)
    command = [fleet.weir, "fleet", "load", "--nats", fleet.nats_url, "--agents", str(len(AGENTS)), "-c", "64", "-t", "1",
               "-n", str(requests), "-d", "10m", "--no-watch", "--no-baseline", "--json", record, *(["-R", str(rate)] if rate else []),
               f"http://{ORIGIN}:9000/?s=100"]
    steps = fault(fleet)
    next(steps)
    before, begun = fleet.served(), time.monotonic()
    load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if fault is not no_fault:
        while fleet.served() - before < rate:
            time.sleep(0.1)
            if load.poll() is not None:
                break
        time.sleep(7)
    next(steps, None)
    output, _ = load.communicate(timeout=600)
    took = time.monotonic() - begun
    if not os.path.exists(record):
        print(f"{name}: no record (exit code {load.returncode})\n{output}")
        return False
    with open(record, encoding="utf-8") as file:
        run = json.load(file)
    time.sleep(0.5)
    return judge(name, run, fleet.served() - before, (requests, others), (load.returncode, took))


def judge(name, run, served, expected, ended):
    requests, others = expected
    rows = {row["name"]: row for row in run["fleet"]["agents"]}
    wanted = {agent: others.get(agent, "complete") for agent in AGENTS}
    outcomes = {agent: row["outcome"] for agent, row in rows.items()}
    responses = run["totals"]["responses"]
    by_agent = sum(row["figures"]["requests"] for row in rows.values() if row.get("figures"))
    # The origin's counter has the requests for its counters too: at most one per 0.1 s before the fault, and two.
    stats = served - responses
    right = outcomes == wanted and by_agent == responses
    is_marked = run["validity"]["verdict"] == "invalid"
    if "lost" in others.values():
        right = right and responses < requests and is_marked
    else:
        right = right and (responses == requests or is_marked) and 0 <= stats <= 200
    if name == "exact":
        right = right and stats <= 1
    fleet_facts = run["fleet"]
    word = "WRONG" if not right else "marked" if is_marked else "right"
    print(f"{name}: {word}: {responses} responses of {requests}, origin {served} with "
          f"{stats} of its counters, errors {run['totals']['errors'] or 'none'}, agents {sorted(set(outcomes.values()))}, {run['validity']['verdict']} "
          f"({', '.join(reason['code'] for reason in run['validity']['reasons']) or 'no reason'}), start skew "
          f"{fleet_facts['start_skew_ns'] / 1e3:.0f} µs ± {fleet_facts['start_skew_error_ns'] / 1e3:.0f} µs, "
          f"exit code {ended[0]}, {ended[1]:.1f} s", flush=True)
    return right


def measure_scale(fleet, simulated):
    """The coordinator with simulated agents: CPU time, memory and time, and whether they grow linearly."""
    template = os.path.join(fleet.directory, "template.json")
    common = ["-d", f"{SIMULATED_SECONDS}s", "--no-watch", "--no-baseline", f"http://{ORIGIN}:9000/"]
    subprocess.run([fleet.weir, "load", "-c", "1", "-t", "1", "-R", "500", "--json", template, *common],
                   check=True, stdout=subprocess.DEVNULL)
    size = os.path.getsize(template)
    print(f"simulated agents: records of {size / 1024:.0f} KiB, a load of {SIMULATED_SECONDS} s", flush=True)
    rows = []
    for count in COUNTS:
        # The 8 real agents are of other labels: a number of agents takes them first, so they end here.
        agents = subprocess.Popen([simulated, fleet.nats_url, str(count), template, str(SIMULATED_SECONDS)],
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            fleet.wait_for_agents(count)
            rows.append((count, *coordinate(fleet, count, common)))
        finally:
            agents.stdin.close()
            agents.wait()
    first, last = rows[0], rows[-1]
    factor = last[0] / first[0]
    linear = all(grown <= 1.5 * factor for grown in (last[2] / first[2], last[3] / first[3]))
    print(f"growth from {first[0]} to {last[0]} agents ({factor:.0f} times): CPU time {last[2] / first[2]:.1f} times, "
          f"memory {last[3] / first[3]:.1f} times: {'linear' if linear else 'MORE THAN LINEAR'}; merge in {last[4]:.2f} s "
          f"of {MERGE_BUDGET_S} s")
    return linear and last[4] <= MERGE_BUDGET_S


def coordinate(fleet, count, common):
    record = os.path.join(fleet.directory, "scale.json")
    begun = time.monotonic()
    load = subprocess.Popen([fleet.weir, "fleet", "load", "--nats", fleet.nats_url, "--agents", str(count), "-c", str(count),
                             "-t", "1", "-R", str(500 * count), "--json", record, *common],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(load.pid, 0)
    load.returncode = os.waitstatus_to_exitcode(status)
    took = time.monotonic() - begun
    with open(record, encoding="utf-8") as file:
        run = json.load(file)
    complete = sum(row["outcome"] == "complete" for row in run["fleet"]["agents"])
    cpu_s, memory_mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    merge_s = run["fleet"]["merge_ns"] / 1e9
    print(f"{count} agents: {complete} complete, {took:.1f} s, merge {merge_s:.2f} s, coordinator {cpu_s:.2f} s of CPU time, {memory_mib:.0f} MiB, "
          f"start skew {run['fleet']['start_skew_ns'] / 1e6:.1f} ms", flush=True)
    if complete != count:
        raise SystemExit(f"fleet: {count - complete} of {count} simulated agents were lost")
    return took, cpu_s, memory_mib, merge_s


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    network.enter()
    simulated = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    server = network.find_nats_server(*sys.argv[3:4])
    wanted = os.environ.get("CASES", "").split(",")
    build_network()
    with Fleet(os.path.abspath(sys.argv[1]), server, NATS) as fleet:
        fleet.start_all()
        cases = [case for case in CASES if wanted == [""] or case[0].split()[0] in wanted]
        results = [run_case(fleet, case) for case in cases]
        if simulated and (wanted == [""] or "simulated" in wanted):
            for agent in fleet.agents.values():
                agent.kill()
                agent.wait()
            results.append(measure_scale(fleet, simulated))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    raise SystemExit(0 if all(results) else 3)


main()
