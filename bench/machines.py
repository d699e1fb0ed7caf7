#!/usr/bin/env python3
"""Bottlenecks across machines: `bench/machines.py WEIR [NATS_SERVER]`.

Three network namespaces are the machines of the generator, of a proxy (the subject) and of an origin, each with
process IDs and links of its own, so that an agent sees nothing of the others. A fourth one has the bridge between
them and a NATS server. Links have a rate (tbf). Each case has one bottleneck, and `weir fleet run` has to name it
and its machine. All share the CPUs of this machine, and its kernel; in the last case processes of no role use the
subject's CPU. Everything is inside namespaces of this process: nothing is left, however it ends. Needs root, and an
idle machine: other work is found as cpu_contended, rightly.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

import network

MACHINES = {"client": "10.99.0.1", "edge": "10.99.0.2", "back": "10.99.0.3"}
BRIDGE = "10.99.0.254"
CLIENT_BODY = 16 * 1024

# Name, options of the target, arguments of the load, rate of the proxy's link in Mbit/s, verdict, and the machine that
# its evidence must name. The last two load the origin without the proxy: the client of the first hashes each body, and
# beside the second foreign processes use the CPU of the origin.
CASES = (
    ("link", "s=100k", ["-c", "16"], 100, "link_bound", "edge"),
    ("origin", "s=100&cpu=2ms", ["-c", "32"], 10_000, "origin_bound", "back"),
    ("client", f"s={CLIENT_BODY}", ["-c", "16"], 10_000, "client_bound", "client"),
    ("steal", "s=100", ["-c", "16"], 10_000, "cpu_contended", "back"),
)
WITHOUT_PROXY = ("client", "steal")
DURATION = "5s"
# The machines share the CPUs of this one: the generator has the first, the programs the last.
GENERATOR_CPU, PROGRAM_CPU = "0", str(os.cpu_count() - 1)


def build_network():
    """One namespace per machine, connected by a bridge."""
    network.add_bridge("switch", BRIDGE)
    for name, address in MACHINES.items():
        network.add_machine(name)
        network.connect(name, "eth0", "switch", address)


def body_hash(weir):
    """The hash of the origin's body, for a client that has to compute it."""
    origin = subprocess.Popen([weir, "serve", "-l", f"{BRIDGE}:9900"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            body = subprocess.run(["curl", "-fsS", f"http://{BRIDGE}:9900/?s={CLIENT_BODY}"], capture_output=True)
            if body.returncode == 0:
                return hashlib.sha256(body.stdout).hexdigest()
            time.sleep(0.05)
    finally:
        origin.terminate()
        origin.wait()
    raise SystemExit("machines: no origin")


PROXY = f"""
[machine.edge]
agent = "name=edge"
proxy = ["--listen", "10.99.0.2:8080", "--to", "10.99.0.3:9000", "--threads", "1", "--pin", "{PROGRAM_CPU}"]
"""
ORIGIN = """
[machine.back]
agent = "name=back"
role = "{role}"
serve = ["--listen", "10.99.0.3:9000", "--threads", "1", "--pin", "{cpu}"]

[load]
agents = "name=client"
arguments = {arguments}
"""


def plan(directory, target, load, with_proxy):
    """The plan of a run: a proxy and an origin under the load, or an origin."""
    path = os.path.join(directory, "plan.toml")
    host = "10.99.0.2:8080" if with_proxy else "10.99.0.3:9000"
    arguments = [*load, "-t", "1", "--pin", GENERATOR_CPU, "-d", DURATION, f"http://{host}/?{target}"]
    role = "origin" if with_proxy else "subject"
    with open(path, "w", encoding="ascii") as file:
        file.write(PROXY if with_proxy else "")
        file.write(ORIGIN.format(role=role, cpu=PROGRAM_CPU, arguments=json.dumps(arguments)))
    return path


def run_case(processes, case, digest):
    name, target, load, mbit, verdict, machine = case
    weir, directory = processes.weir, processes.directory
    network.set_rate("edge", "eth0", f"{mbit}mbit")
    if name == "client":
        load = [*load, "--expect-hash", f"sha256:{digest}"]
    record = os.path.join(directory, f"{name}.json")
    command = [weir, "fleet", "run", "--nats", processes.nats_url, "--json", record,
               plan(directory, target, load, name not in WITHOUT_PROXY)]
    begun = time.monotonic()
    loop = ["taskset", "-c", PROGRAM_CPU, sys.executable, "-c", "while True: pass"]
    foreign = subprocess.Popen(loop) if name == "steal" else None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    finally:
        if foreign is not None:
            foreign.kill()
            foreign.wait()
    if not os.path.exists(record):
        print(done.stdout, done.stderr, file=sys.stderr)
        return False
    with open(record, encoding="utf-8") as file:
        run = json.load(file)
    diagnosis = run["diagnosis"]
    hosts = [observed["host"] for observed in run["observed"]]
    named = [line for line in diagnosis["evidence"] if line.startswith(f"{machine}: ")]
    right = diagnosis["verdict"] == verdict and bool(named)
    print(f"{name}: {diagnosis['verdict']} ({diagnosis['confidence']}), expected {verdict} on {machine}: "
          f"{'right' if right else 'WRONG'}; {run['rates']['responses_per_s']:.0f}/s, "
          f"{run['rates']['bytes_in_per_s'] * 8 / 1e6:.0f} Mbit/s, machines {', '.join(hosts)}, "
          f"{time.monotonic() - begun:.1f} s")
    for line in diagnosis["evidence"]:
        print(f"    {line}")
    if not right:
        print(done.stdout, done.stderr, "\n".join(diagnosis["ruled_out"]), "\n".join(diagnosis["not_observable"]),
              sep="\n")
    return right


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    network.enter()
    server = network.find_nats_server(*sys.argv[2:3])
    build_network()
    with network.Processes(os.path.abspath(sys.argv[1]), server, BRIDGE) as processes:
        processes.start_nats()
        for name, allow in (("client", "load"), ("edge", "proxy"), ("back", "serve")):
            processes.start_agent(name, "--allow", allow)
        digest = body_hash(processes.weir)
        wanted = os.environ.get("CASES", "link,origin,client,steal").split(",")
        results = [run_case(processes, case, digest) for case in CASES if case[0] in wanted]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    raise SystemExit(0 if all(results) else 1)


main()
