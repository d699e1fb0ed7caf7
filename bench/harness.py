"""Helpers of all parts: child processes that end with the benchmark, CPU time, memory, statistics, tables."""

import ctypes
import json
import os
import random
import resource
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TICKS = os.sysconf("SC_CLK_TCK")
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "out")
# CPUs of the program under test and of its other side.
SUBJECT_CPU = 0
OTHER_CPU = 1 if (os.cpu_count() or 1) > 1 else 0

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """Error of a process that makes the figures of its block invalid."""


def raise_limits():
    """Raises the descriptor limit to the hard limit, for this process and its children; returns it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _prepare(cpus):
    def prepare():
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os.sched_setaffinity(0, {cpus} if isinstance(cpus, int) else cpus)

    return prepare


def spawn(argv, cpu, **keywords):
    """Starts a process pinned to one CPU or a set of CPUs. It gets SIGTERM when the benchmark ends."""
    return subprocess.Popen(argv, preexec_fn=_prepare(cpu), stdin=subprocess.DEVNULL, **keywords)


def stop(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Finished:
    """Result of a finished process: output, exit status, CPU time, voluntary context switches."""

    def __init__(self, output, status, usage, wall_s):
        self.output, self.status, self.wall_s = output, status, wall_s
        self.user_s, self.system_s = usage.ru_utime, usage.ru_stime
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.sleeps = usage.ru_nvcsw


class Running:
    """A running process. Its standard output and standard error go to one file."""

    def __init__(self, argv, cpu):
        self.argv, self.begun, self.output = argv, time.monotonic(), tempfile.TemporaryFile()
        self.process = spawn(argv, cpu, stdout=self.output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)
        self.output.close()

    def finish(self, limit_s):
        """Waits until the process exits; kills it `limit_s` seconds after its start."""
        # Uses wait4 instead of Popen.wait, because only wait4 returns the CPU time of this child alone.
        while True:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - self.begun > limit_s:
                os.kill(self.process.pid, signal.SIGKILL)
                os.wait4(self.process.pid, 0)
                self.process.returncode = -signal.SIGKILL
                raise Failed(f"took longer than {limit_s} s: {' '.join(self.argv)}")
            time.sleep(0.01)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return Finished(self.text(), self.process.returncode, usage, time.monotonic() - self.begun)

    def text(self):
        """Returns the output so far."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")


def run(argv, cpu, limit_s):
    """Runs a program until it exits."""
    with Running(argv, cpu) as running:
        return running.finish(limit_s)


def cpu_of(pid):
    """Returns the user and system CPU seconds of a running process, summed over its threads."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def softirq_s():
    """Returns the seconds that all CPUs of this machine spent in interrupts since boot, by ticks."""
    with open("/proc/stat") as file:
        fields = file.readline().split()
    return (int(fields[6]) + int(fields[7])) / TICKS


def scheduled_s(pid):
    """Returns the seconds that the threads of a running process ran and waited runnable for a CPU.

    The resolution is nanoseconds instead of ticks. A thread that ends between the list and its file (a
    client that resolves a name) is left out."""
    ran = waited = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                fields = file.read().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ran, waited = ran + int(fields[0]), waited + int(fields[1])
    return ran / 1e9, waited / 1e9


def interrupt_threads_s():
    """Returns the CPU seconds of the threads that finish softirqs for others (ksoftirqd)."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/schedstat") as schedstat:
                if comm.read().startswith("ksoftirqd/"):
                    total += int(schedstat.read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e9


def memory_in_detail(pid):
    """Returns the RSS and PSS of a running process in bytes."""
    found = {}
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file.readlines()[1:]:
            name, _, value = line.partition(":")
            found[name] = int(value.split()[0]) * 1024
    return {"rss": found["Rss"], "pss": found["Pss"]}


def memory_of(pid):
    """Returns the resident bytes of a running process: total and anonymous."""
    found = {}
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in ("VmRSS", "RssAnon"):
                found[name] = int(value.split()[0]) * 1024
    return found["VmRSS"], found["RssAnon"]


def machine_busy_s():
    """Returns the busy CPU seconds of this machine since boot."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / TICKS


class Foreign:
    """Meter of the CPUs that other processes keep busy, which is the noise of a measurement."""

    def __init__(self):
        self.begun, self.busy = time.monotonic(), machine_busy_s()

    def cpus(self, own_s):
        wall = time.monotonic() - self.begun
        return max(0.0, (machine_busy_s() - self.busy - own_s) / wall)


class Patience:
    """Total time budget for waiting until the machine is quiet."""

    def __init__(self, budget_s, cpus_max):
        self.left_s, self.cpus_max = budget_s, cpus_max

    def wait(self):
        while self.left_s > 0:
            foreign = Foreign()
            time.sleep(0.4)
            if foreign.cpus(0) <= self.cpus_max:
                return
            self.left_s -= 0.4


def replace(path, text):
    """Replaces a file at once, so that no reader sees a part of it."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def free_low_port():
    """Returns a free port outside the ephemeral range, for a listener that closes and opens again."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(20_000, 30_000)))
            except OSError:
                continue
            return probe.getsockname()[1]


def wait_for_port(port, process, limit_s=10):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if process.poll() is not None:
            raise Failed(f"ended with {process.returncode} instead of listening: {process.args}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise Failed(f"does not listen on {port}: {process.args}")


def open_idle(port, path, count, body_bytes):
    """Opens `count` connections and completes one exchange on each."""
    sockets = []
    for _ in range(count):
        sockets += send_on_each(port, path, 1)
        received = b""
        while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < body_bytes:
            bytes_in = sockets[-1].recv(4096)
            if not bytes_in:
                raise Failed(f"closed after {received!r}")
            received += bytes_in
    return sockets


def send_on_each(port, path, count):
    """Opens `count` connections and sends one request on each."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    sockets = []
    for _ in range(count):
        sockets.append(socket.create_connection(("127.0.0.1", port), 10))
        sockets[-1].sendall(request)
    return sockets


def count_open(sockets):
    """Counts the sockets that are open and have nothing to read."""
    with selectors.PollSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        return len(sockets) - len(selector.select(0))


class Bench:
    """One invocation: options, random order, results, and a temporary directory for the servers."""

    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.folder = tempfile.mkdtemp(prefix="weir-bench-")
        self.patience = Patience(options.wait, options.foreign_max)
        self.results = {}
        self.missed = []
        self.repeated = []

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def blocks(self, keys):
        """Yields (round, key) for the blocks of each round in random order."""
        for number in range(self.options.rounds):
            shuffled = list(keys)
            self.random.shuffle(shuffled)
            for key in shuffled:
                self.patience.wait()
                yield number, key
            progress(f"round {number + 1} of {self.options.rounds}")
        progress("")

    def attempt(self, block, *arguments):
        """Runs one block and repeats it at most twice if a program fails in it.

        Counts and prints the repetitions, because the failure can be caused by a slow program."""
        for attempts_left in (2, 1, 0):
            try:
                return block(self, *arguments)
            except Failed as failure:
                if attempts_left == 0:
                    raise
                self.repeated.append(str(failure))
                print(f"bench: block repeated: {failure}", file=sys.stderr)

    def shuffled(self, items):
        items = list(items)
        self.random.shuffle(items)
        return items

    def has_descriptors(self, part, connections):
        """Returns whether the limit of descriptors suffices for so many connections; prints it if not."""
        needed = connections + 200
        if self.descriptors < needed:
            print(f"\n{part}: left out; {connections} need a descriptor limit (hard) of {needed}, here it is "
                  f"{self.descriptors}")
        return self.descriptors >= needed

    def repeat(self, part, once):
        """Calls `once(bench, number)` as often as asked; keeps the values and returns the rows of the table."""
        rows, kept = [], []
        for number in range(self.options.times):
            row, value = once(self, number)
            rows.append(row)
            kept.append(value)
        self.keep(part, kept)
        return rows

    def keep(self, part, value):
        """Writes the figures of a part to bench/out/PART.json."""
        os.makedirs(OUT, exist_ok=True)
        self.results[part] = value
        record = {"part": part, "seed": self.options.seed, "rounds": self.options.rounds,
                  "seconds": self.options.seconds, "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                  "kernel": os.uname().release, "processors": os.cpu_count(), "repeated": self.repeated, "result": value}
        with open(os.path.join(OUT, f"{part}.json"), "w") as file:
            json.dump(record, file, indent=1)

    def judge(self, text, met):
        if not met:
            self.missed.append(text)
        return "met" if met else "MISSED"


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


class Runs:
    """Runs of one block (same server, same load) in all rounds, by arm."""

    def __init__(self):
        self.rounds = []

    def add(self, by_arm, foreign_cpus):
        self.rounds.append((foreign_cpus, by_arm))

    def used(self, foreign_max):
        """Returns the quiet rounds if there are enough of them, otherwise all rounds.

        Only the activity of other processes excludes a round, never the figures of the round."""
        quiet = [by_arm for foreign, by_arm in self.rounds if foreign <= foreign_max]
        every = [by_arm for _, by_arm in self.rounds]
        return quiet if len(quiet) >= max(3, len(every) // 2) else every

    def foreign(self):
        return statistics.median(foreign for foreign, _ in self.rounds)


def median_of(rounds, arm, field):
    return statistics.median(by_arm[arm][field] for by_arm in rounds)


def ratio(rounds, arm, base, field="cpu_us"):
    """Returns (median, min, max) of the ratios within each round."""
    each = [by_arm[arm][field] / by_arm[base][field] for by_arm in rounds]
    return statistics.median(each), min(each), max(each)


def table(title, head, rows):
    """Prints a Markdown table with padded cells: first column left-aligned, the others right-aligned."""
    widths = [max(3, *(len(str(row[i])) for row in [head] + rows)) for i in range(len(head))]
    print(f"\n{title}\n")
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    for row in [head, rule] + rows:
        cells = [str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()
