#!/usr/bin/env python3
"""Bottlenecks across machines: `bench/machines.py WEIR [NATS_SERVER]`.

Three network namespaces are the machines of the generator, of a proxy (the subject) and of an origin, each with
process IDs and links of its own, so that an agent sees nothing of the others. A fourth one has the bridge between
them and a NATS server. Links have a rate (tbf). Each case has one bottleneck, and `weir fleet run` has to name it
and its machine. All share the CPUs of this machine, and its kernel; in the last case a program of no role uses the
subject's CPU. Everything is inside namespaces of this process: nothing is left, however it ends. Needs root, and an
idle machine: other work is found as cpu_steal, rightly.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MACHINES = {"client": "10.99.0.1", "edge": "10.99.0.2", "back": "10.99.0.3"}
BRIDGE = "10.99.0.254"
CLIENT_BODY = 16 * 1024

# Name, options of the target, arguments of the load, rate of the proxy's link in Mbit/s, verdict, and the machine that
# its evidence must name. The last two load the origin without the proxy: the client of the first hashes each body, and
# beside the second a foreign process uses the CPU of the origin.
CASES = (
    ("link", "s=100k", ["-c", "16"], 100, "link_bound", "edge"),
    ("origin", "s=100&cpu=2ms", ["-c", "32"], 10_000, "origin_bound", "back"),
    ("client", f"s={CLIENT_BODY}", ["-c", "16"], 10_000, "client_bound", "client"),
    ("steal", "s=100", ["-c", "16"], 10_000, "cpu_steal", "back"),
)
WITHOUT_PROXY = ("client", "steal")
DURATION = "5s"
# The machines share the CPUs of this one: the generator has the first, the programs the last.
GENERATOR_CPU, PROGRAM_CPU = "0", str(os.cpu_count() - 1)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def build_network():
    """One namespace per machine, connected by a bridge."""
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")
    ip("link", "add", "switch", "type", "bridge")
    ip("addr", "add", f"{BRIDGE}/24", "dev", "switch")
    ip("link", "set", "switch", "up")
    for name, address in MACHINES.items():
        ip("netns", "add", name)
        ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"to-{name}", "master", "switch", "up")
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "up")


def set_rate(machine, mbit):
    subprocess.run(
        ["tc", "-n", machine, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit",
         "burst", "256kb", "latency", "50ms"], check=True)


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


def run_case(weir, directory, case, digest):
    name, target, load, mbit, verdict, machine = case
    set_rate("edge", mbit)
    if name == "client":
        load = [*load, "--expect-hash", f"sha256:{digest}"]
    record = os.path.join(directory, f"{name}.json")
    command = [weir, "fleet", "run", "--nats", f"nats://{BRIDGE}:4222", "--json", record, plan(directory, target, load, name not in WITHOUT_PROXY)]
    begun = time.monotonic()
    foreign = None
    if name == "steal":
        foreign = subprocess.Popen(["taskset", "-c", PROGRAM_CPU, sys.executable, "-c", "while True: pass"])
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
    if os.environ.get("MACHINES_INSIDE") != "1":
        os.environ["MACHINES_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                              sys.executable, *sys.argv])
    weir = os.path.abspath(sys.argv[1])
    server = shutil.which(sys.argv[2] if len(sys.argv) > 2 else "nats-server")
    if server is None:
        raise SystemExit("machines: nats-server is missing: "
                         "go install github.com/nats-io/nats-server/v2@v2.15.2, or apt-get install nats-server")
    build_network()
    processes = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            processes.append(subprocess.Popen([server, "-a", BRIDGE, "-p", "4222"], stderr=subprocess.DEVNULL))
            for name, allow in (("client", "load"), ("edge", "proxy"), ("back", "serve")):
                log = open(os.path.join(directory, f"{name}.log"), "w", encoding="utf-8")
                processes.append(subprocess.Popen(
                    ["ip", "netns", "exec", name, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                     weir, "fleet", "agent", "--nats", f"nats://{BRIDGE}:4222", "--name", name, "--allow", allow,
                     "--state", os.path.join(directory, name)], stdout=log, stderr=log))
            digest = body_hash(weir)
            wanted = os.environ.get("CASES", "link,origin,client,steal").split(",")
            results = [run_case(weir, directory, case, digest) for case in CASES if case[0] in wanted]
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    raise SystemExit(0 if all(results) else 1)


main()
