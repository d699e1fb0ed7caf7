"""`weir edge` against origins whose edge is known: a delay on so many connections, processor time burnt
for each answer, a link of so many bits. What it finds has to be within 5 % of that, each time, and what
it says stops it there has to be what was made to."""

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
    """An origin, where it is reached, and what is right about it."""

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
        # It says where it listens once it does.
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
        """Responses per second of a closed loop: as many as there are connections for."""
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
    # Both sides may use all processors; the bench itself only waits.
    os.sched_setaffinity(0, range(os.cpu_count()))
    for subject in subjects():
        with subject:
            found, known, refused = [], [], 0
            before = subject.capacity()
            while len(found) < bench.options.times:
                # What is known is how much it carries, and not how long the slowest take there.
                edge = subject.weir("edge", "--search-only", "--slo", SLO, *length)
                after = subject.capacity()
                print(f"{subject.name}, closed loop {before:.0f} and {after:.0f}/s: {edge['words']}", file=sys.stderr)
                # It may refuse to name a level, because the machine was taken away meanwhile: that is
                # right, and no figure. More often than not, and it is none of the machine's doing.
                if edge["conclusion"].get("level") or refused >= bench.options.times:
                    # The processor's own speed drifts: what is known is known of before and after.
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
