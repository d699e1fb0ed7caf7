"""Part `edge`: runs `weir edge` against origins of known capacity.

The limits are a delay on a fixed number of connections, CPU time per response, and a link rate. Each result
has to be within 5 % of the known capacity, and its verdict has to name the induced limit."""

import json
import os
import statistics
import subprocess
import sys

import harness
import peers

OFF_MAX = 0.05
SLO = "p99<500ms,errors<0.1%"
ADDRESS = "198.18.7.{}"


class Subject:
    """One origin with its network, its address and its accepted verdicts."""

    def __init__(self, name, flags, path, verdicts, link_bits=None):
        self.name, self.flags, self.path, self.verdicts = name, flags, path, verdicts
        self.link_bits, self.run = link_bits, f"weir-edge-{os.getpid()}"
        self.port = harness.free_port()
        self.host = ADDRESS.format(2) if link_bits else "127.0.0.1"
        self.process = None

    def __enter__(self):
        if self.link_bits:
            a, b = f"{self.run}-a", f"{self.run}-b"
            for line in (f"ip netns add {a}", f"ip netns add {b}",
                         f"ip link add va netns {a} type veth peer name vb netns {b}",
                         f"ip -n {a} addr add {ADDRESS.format(1)}/24 dev va",
                         f"ip -n {b} addr add {ADDRESS.format(2)}/24 dev vb",
                         f"ip -n {a} link set va up", f"ip -n {b} link set vb up",
                         f"ip -n {b} link set lo up",
                         f"tc -n {b} qdisc add dev vb root tbf rate {self.link_bits}bit burst 64kb latency 50ms"):
                subprocess.run(line.split(), check=True)
        serve = [peers.WEIR, "serve", "--listen", f"{self.host}:{self.port}", "-t", "1"]
        self.process = subprocess.Popen(self.within("b") + serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        # Waits for the line that weir serve prints once it listens.
        self.process.stdout.readline()
        return self

    def __exit__(self, *_):
        if self.process:
            harness.stop(self.process)
        if self.link_bits:
            for side in "ab":
                subprocess.run(["ip", "netns", "del", f"{self.run}-{side}"], check=False)

    def within(self, side):
        return ["ip", "netns", "exec", f"{self.run}-{side}"] if self.link_bits else []

    def weir(self, command, *flags):
        argv = [*self.within("a"), peers.WEIR, command, *self.flags, *flags, "--json", "-",
                f"http://{self.host}:{self.port}{self.path}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
        if not done.stdout:
            raise harness.Failed(f"{' '.join(argv)}: {done.stderr}")
        return json.loads(done.stdout)

    def capacity(self):
        """Measures the responses per second of a closed loop."""
        return self.weir("load", "-d", "4s", "--no-watch")["rates"]["responses_per_s"]


def subjects():
    return [
        Subject("20 ms, 10 connections", ["-c", "10", "-t", "1"], "/?t=20", {"latency_bound"}),
        Subject("200 us of one thread", ["-c", "10", "-t", "1"], "/?cpu=200",
                {"single_thread_bound", "user_cpu_bound"}),
        Subject("50 Mbit/s, 10 kB", ["-c", "20", "-t", "1"], "/?s=10k", {"link_bound", "bufferbloat"}, 50_000_000),
    ]


def measure(bench):
    length = ["--quick"] if bench.options.quick else ["--trial", "1s"]
    rows, kept = [], {}
    # Lets both sides use all CPUs; the benchmark itself only waits.
    os.sched_setaffinity(0, range(os.cpu_count()))
    for subject in subjects():
        with subject:
            found, known, refused = [], [], 0
            before = subject.capacity()
            while len(found) < bench.options.times:
                # Searches only: the capacity is known, the latency of the slowest requests is not.
                edge = subject.weir("edge", "--search-only", "--slo", SLO, *length)
                after = subject.capacity()
                print(f"{subject.name}, closed loop {before:.0f} and {after:.0f}/s: {edge['words']}", file=sys.stderr)
                # weir edge may correctly return no level if the hypervisor stole CPU time. Such a run
                # gives no figure. After `times` of them, a run without a level counts as a failure.
                if edge["conclusion"].get("level") or refused >= bench.options.times:
                    # The CPU speed drifts, so the known capacity is the mean of before and after.
                    found.append(edge)
                    known.append(statistics.mean([before, after]))
                else:
                    refused += 1
                before = after
        levels = [edge["conclusion"].get("level") or 0 for edge in found]
        verdicts = [(edge.get("stopped_by") or {}).get("verdict", "-") for edge in found]
        off = max(abs(level / of - 1) for level, of in zip(levels, known))
        right = sum(verdict in subject.verdicts for verdict in verdicts)
        good = off <= OFF_MAX and right == len(verdicts)
        verdict = bench.judge(f"edge: {subject.name}: {levels} of {[round(of) for of in known]}/s, {verdicts}", good)
        kept[subject.name] = {"known": known, "found": levels, "verdicts": verdicts, "refused": refused,
                              "seconds": [edge["duration_s"] for edge in found]}
        rows.append([subject.name, ", ".join(f"{of:.0f}" for of in known),
                     ", ".join(f"{level:.0f}" for level in levels), str(refused),
                     f"{off:.1%}", ", ".join(sorted(set(verdicts))),
                     f"{statistics.mean(kept[subject.name]['seconds']):.0f} s", verdict])
    bench.keep("edge", kept)
    harness.table("edge: what is known and what was found",
                  ["origin", "closed loop", "found", "refused", "most off", "stopped by", "each took", "within 5 %"], rows)
