"""Machines of a fleet as network namespaces: `bench/machines.py` and `bench/fleet_faults.py`.

Everything is inside namespaces of the calling process: nothing is left, however it ends. Needs root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

NATS_PORT = 4222
# Set in the process inside the namespaces.
INSIDE = "BENCH_NETWORK_INSIDE"


def enter():
    """Runs this script again in namespaces of its own, unless it is there."""
    if os.environ.get(INSIDE) != "1":
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                              sys.executable, *sys.argv])
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def add_bridge(name, address):
    ip("link", "add", name, "type", "bridge")
    ip("addr", "add", f"{address}/24", "dev", name)
    ip("link", "set", name, "up")


def add_machine(name):
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")


def connect(machine, device, bridge, address):
    """Connects a device of a machine to a bridge, whose end is named `BRIDGE-MACHINE`."""
    ip("link", "add", f"{bridge}-{machine}", "type", "veth", "peer", "name", device, "netns", machine)
    ip("link", "set", f"{bridge}-{machine}", "master", bridge, "up")
    ip("-n", machine, "addr", "add", f"{address}/24", "dev", device)
    ip("-n", machine, "link", "set", device, "up")


def cut(machine, bridge, is_up):
    """Cuts or mends the link of a machine to a bridge."""
    ip("link", "set", f"{bridge}-{machine}", "up" if is_up else "down")


def pause(machine, is_paused):
    """Stops or continues all processes of a machine."""
    pids = subprocess.run(["ip", "netns", "pids", machine], capture_output=True, text=True, check=True).stdout
    for pid in pids.split():
        os.kill(int(pid), signal.SIGSTOP if is_paused else signal.SIGCONT)


def set_rate(machine, device, rate, burst="256kb", latency="50ms"):
    """Limits what a device sends, for instance to `50mbit`."""
    subprocess.run(
        ["tc", "-n", machine, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", burst,
         "latency", latency], check=True)


def remove_rate(machine, device):
    subprocess.run(["tc", "-n", machine, "qdisc", "del", "dev", device, "root"], check=True)


def find_nats_server(name="nats-server"):
    path = f"{os.environ.get('PATH', '')}:{os.path.expanduser('~/go/bin')}"
    server = shutil.which(name, path=path)
    if server is None:
        raise SystemExit(f"{os.path.basename(sys.argv[0])}: {name} is missing: "
                         "go install github.com/nats-io/nats-server/v2@v2.15.2, or apt-get install nats-server")
    return server


class Processes:
    """A directory, and processes that write their messages there and end with it."""

    def __init__(self, weir, server, nats_address):
        self.weir, self.server, self.nats_address = weir, server, nats_address
        self.nats_url = f"nats://{nats_address}:{NATS_PORT}"
        self.processes = []

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = self.temporary.name
        return self

    def __exit__(self, *_):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.temporary.cleanup()

    def start(self, command):
        with open(os.path.join(self.directory, "log"), "a", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_nats(self):
        return self.start([self.server, "-a", self.nats_address, "-p", str(NATS_PORT)])

    def start_agent(self, machine, *options, clock_s=0):
        """Starts an agent that sees no process of another machine, and whose monotonic clock is `clock_s` ahead."""
        clock = ["--time", "--monotonic", str(clock_s), "--boottime", str(clock_s)] if clock_s else []
        return self.start(
            ["ip", "netns", "exec", machine, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *clock,
             self.weir, "fleet", "agent", "--nats", self.nats_url, "--name", machine,
             "--state", os.path.join(self.directory, "state"), *options])
