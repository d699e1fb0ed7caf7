"""Part `proxy`: CPU time per request, cost of a log, added latency and memory per connection.

Each proxy has one thread. HAProxy, nginx and the floor are measured even if weir has no proxy."""

import collections
import http.client
import json
import os
import re
import statistics
import time

import harness
import peers
import proxies
from harness import Failed

MEGABYTE = 1 << 20
# Time between the due time of the last connection and the start of the window. The client continues for
# the same time after the window.
MARGIN_S = 0.4
MEMORY_CONNECTIONS, MEMORY_WARM = 5_000, 4
# Source addresses of clients that open a connection per request. One address has too few ports: fewer than
# 60,000 per minute.
SOURCES = "127.0.0.2-127.0.0.9"
EVERY = tuple(proxies.PROXIES)

# One comparison under load. `arms`: label -> (proxy, keyword arguments of its start function). `judged`: the
# ratios with their limits, if any. `flags`: flags of the client. `field`: the compared field.
Case = collections.namedtuple("Case", "text connections body arms judged flags field",
                              defaults=((), "cpu_us"))
Bound = collections.namedtuple("Bound", "over under kind value")


def _arms(*names):
    return {name: (name, {}) for name in names}


def _bounds(floor_most, haproxy_least):
    found = [Bound("weir", "floor", "<=", floor_most)] if floor_most else []
    return found + ([Bound("haproxy", "weir", ">=", haproxy_least)] if haproxy_least else [])


SMALL, LARGE = peers.BODY_SMALL, peers.BODY_LARGE
CASES = {
    "c1": Case("100 B, 1 connection", 1, SMALL, _arms(*EVERY), []),
    "c10": Case("100 B, 10 connections", 10, SMALL, _arms(*EVERY), []),
    "c100": Case("100 B, 100 connections", 100, SMALL, _arms(*EVERY), _bounds(1.15, 1.35)),
    "c1000": Case("100 B, 1,000 connections", 1_000, SMALL, _arms(*EVERY), _bounds(1.2, 1.7)),
    "c8000": Case("100 B, 8,000 connections", 8_000, SMALL, _arms(*EVERY), []),
    "10k": Case("10 kB, 100 connections", 100, LARGE, _arms(*EVERY), []),
    "1m": Case("1 MB, 100 connections", 100, MEGABYTE,
               _arms(*EVERY) | {"haproxy with splice": ("haproxy", {"splice": True})},
               _bounds(None, 1.2),
               # A large response often crosses the edge of the window, so bytes are counted.
               field="cpu_ns_per_byte"),
    "close": Case("100 B, a connection per request, 100 at a time", 100, SMALL, _arms(*EVERY), [],
                  ("-r", "1", "--source", SOURCES)),
    "log": Case("100 B, 100 connections, log", 100, SMALL,
                {name + text: (name, {"logs": logs}) for name in ("weir", "haproxy")
                 for text, logs in (("", True), (" without log", False))},
                [Bound("weir", "weir without log", "<=", 1.03),
                 Bound("haproxy", "haproxy without log", None, None)]),
}
OTHERS = ("threads", "latency", "memory", "pipelined")
NAMES = (*CASES, *OTHERS)
BUDGET_IDLE, BUDGET_IN_FLIGHT = 690, 5_000


def measure(bench):
    if bench.descriptors < proxies.DESCRIPTORS:
        print(f"\nproxy: left out; it needs a descriptor limit (hard) of {proxies.DESCRIPTORS}, "
              f"here it is {bench.descriptors}")
        return
    chosen = bench.options.cases
    there = proxies.has_weir()
    if not there:
        text = f"proxy: {peers.WEIR} has no `weir proxy`; nothing is judged"
        print(f"\n{text}, the other proxies are measured alone")
        bench.missed.append(text)
    print(f"\nproxy: subject alone on CPU {harness.SUBJECT_CPU}; origin (weir serve) and "
          f"client (weir load) on {harness.OTHER_CPU}")
    kept = {}
    cases = {name: with_before(without_missing(CASES[name], there), bench.options.before)
             for name in chosen if name in CASES}
    with peers.weir_serve(harness.OTHER_CPU, "origin") as origin:
        parts = {"load": lambda: measure_cases(bench, "proxy", origin, cases, drive),
                 "threads": lambda: _measure_threads(bench, there),
                 "latency": lambda: _measure_latency(bench, origin, there),
                 "memory": lambda: _measure_memory(bench, origin, there),
                 "pipelined": lambda: _measure_pipelined(bench, origin, there)}
        for name, part in parts.items():
            if name in chosen or (name == "load" and cases):
                kept[name] = part()
                bench.keep("proxy", kept)


def without_missing(case, there):
    arms = {label: arm for label, arm in case.arms.items() if there or arm[0] != "weir"}
    judged = [bound for bound in case.judged if {bound.over, bound.under} <= set(arms)]
    return case._replace(arms=arms, judged=judged)


def with_before(case, program):
    """Adds an arm with another build of weir, if there is one, and the ratio to it."""
    if not program or "weir" not in case.arms:
        return case
    name, keywords = case.arms["weir"]
    arms = case.arms | {peers.BEFORE: (name, keywords | {"program": program})}
    return case._replace(arms=arms, judged=[*case.judged, Bound("weir", peers.BEFORE, None, None)])


# CPU time under load.

def measure_cases(bench, part, origin, cases, drive_case):
    """Measures all arms of all cases, round by round, and prints their table."""
    blocks = {name: harness.Runs() for name in cases}
    for _, name in bench.blocks(blocks):
        blocks[name].add(*bench.attempt(_block, origin, cases[name], drive_case))
    report_load(bench, part, cases, blocks)
    return [{"case": name, "foreign_cpus": foreign, "arms": by_arm}
            for name, runs in blocks.items() for foreign, by_arm in runs.rounds]


def _block(bench, origin, case, drive_case):
    foreign, by_arm = [], {}
    for label in bench.shuffled(case.arms):
        name, keywords = case.arms[label]
        with proxies.PROXIES[name](bench, harness.SUBJECT_CPU, origin, **keywords) as proxy:
            by_arm[label], others = drive_case(bench, proxy, origin, case)
            foreign.append(others)
    return by_arm, statistics.mean(foreign)


class Sample:
    """CPU time of proxy, origin and client, and the responses of the origin, at one moment."""

    def __init__(self, origin, client, proxy):
        # Reads the count first: the origin may respond late, and the other values are immediate.
        stats = origin.stats()
        self.responses, self.bytes_out = stats["responses"], stats["bytes_out"]
        self.at_s = time.monotonic()
        self.proxy_s, self.waited_s = harness.scheduled_s(proxy.pid)
        self.user_s, self.system_s = harness.cpu_of(proxy.pid)
        self.other_s = sum(harness.scheduled_s(each.pid)[0] for each in (origin, client))


def drive(bench, proxy, origin, case, cpu=None, check_run=None):
    """Measures one run of `weir load` between two samples, while all connections are open.

    `check_run` gets the record of the run."""
    path = f"/?s={case.body}"
    check(proxy, path, case.body)
    ramp_s = 2 if case.connections > 1_000 else 1
    record = os.path.join(bench.folder, "run.json")
    argv = [peers.WEIR, "load", "-t", "1", "--quiet", "-c", str(case.connections), "-s",
            f"{ramp_s}s", "-d", f"{ramp_s + bench.options.seconds + 2 * MARGIN_S + 0.3:.1f}s",
            "-w", "30s", "--expect-status", "200", "--expect-bytes", str(case.body), *case.flags,
            "--json", record, proxy.url(path)]

    def check_finished(finished):
        run = _check_run(finished, record, proxy, case)
        if check_run:
            check_run(run)

    return measure_window(bench, proxy, origin, argv, ramp_s, check_finished, cpu)


def measure_window(bench, proxy, origin, argv, ramp_s, check_finished, cpu=None):
    """Runs a client and measures a window of `--seconds` in the middle of its run.

    The origin counts the requests between the samples, because it receives each request once."""
    with harness.Running(argv, harness.OTHER_CPU if cpu is None else cpu) as client:
        time.sleep(ramp_s + MARGIN_S)
        foreign, begin = harness.Foreign(), Sample(origin, client.process, proxy)
        time.sleep(bench.options.seconds)
        end = Sample(origin, client.process, proxy)
        wall_s, other_s = end.at_s - begin.at_s, end.other_s - begin.other_s
        proxy_s = end.proxy_s - begin.proxy_s
        foreign_cpus = foreign.cpus(proxy_s + other_s)
        if client.process.poll() is not None:
            raise Failed(f"the client of {proxy.name} ended early: {' '.join(argv)}\n{client.text()}")
        check_finished(client.finish(ramp_s + bench.options.seconds + 60))
    proxy.forget_log()
    responses = end.responses - begin.responses
    if responses <= 0:
        raise Failed(f"{proxy.name} passed nothing on in the window")
    user_s, system_s = end.user_s - begin.user_s, end.system_s - begin.system_s
    return {"cpu_us": proxy_s * 1e6 / responses,
            # The kernel reports user and system time only in ticks.
            "user_us": proxy_s * 1e6 / responses * user_s / max(user_s + system_s, 1e-9),
            "cpu_ns_per_byte": proxy_s * 1e9 / (end.bytes_out - begin.bytes_out),
            "bytes_per_s": (end.bytes_out - begin.bytes_out) / wall_s,
            "responses": responses, "rate_per_s": responses / wall_s, "busy": proxy_s / wall_s,
            "runnable": (proxy_s + end.waited_s - begin.waited_s) / wall_s,
            "other_busy": other_s / wall_s}, foreign_cpus


def check(proxy, path, body_bytes):
    """Checks before the measurement that the proxy returns the response of the origin."""
    connection = proxy.connection()
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        received = len(answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"{proxy.name} sent no response: {error!r}") from error
    finally:
        connection.close()
    if (answer.status, received) != (200, body_bytes):
        raise Failed(f"{proxy.name} responded with {answer.status} and {received} bytes")


def _check_run(finished, record, proxy, case):
    # 4: not valid. With two CPUs the generator is often the limit, which `busy` shows.
    if finished.status not in (0, 4):
        raise Failed(f"weir load ended with {finished.status}:\n{finished.output}")
    with open(record) as file:
        run = json.load(file)
    totals = run["totals"]
    max_open = totals["connections"]["max_open"]
    if totals["errors"] or max_open < case.connections:
        raise Failed(f"{proxy.name}, {case.text}: {max_open} connections, errors {totals['errors']}")
    return run


def report_load(bench, part, cases, blocks):
    rows = []
    for name, runs in blocks.items():
        case, rounds = cases[name], runs.used(bench.options.foreign_max)
        for arm in case.arms:
            median = {field: harness.median_of(rounds, arm, field)
                      for field in ("cpu_us", "user_us", "cpu_ns_per_byte", "rate_per_s", "busy",
                                    "runnable", "other_busy")}
            least, most = (limit(each[arm]["cpu_us"] for each in rounds) for limit in (min, max))
            rows.append([f"{case.text}: {arm}",
                         f"{median['cpu_us']:.2f} ({least:.2f}..{most:.2f})",
                         f"{median['user_us']:.2f}", f"{1 / median['cpu_ns_per_byte']:.2f}",
                         f"{median['rate_per_s']:,.0f}", f"{median['busy']:.0%}",
                         f"{median['runnable']:.0%}", f"{median['other_busy']:.0%}",
                         _ratio(rounds, case, arm, "floor"), _ratio(rounds, case, arm, "weir"),
                         *_judge(bench, part, rounds, case, arm),
                         f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table(
        f"{part}: CPU time of the proxy per request, and GB of answers per second of it",
        ["case: proxy", "µs (min..max)", "user", "GB/s", "requests/s", "busy", "runnable", "other side busy",
         "it/floor (min..max)", "it/weir (min..max)", "measured and budget", "verdict", "rounds",
         "foreign"],
        rows)


def _ratio(rounds, case, arm, base):
    if base not in case.arms or arm == base:
        return ""
    middle, least, most = harness.ratio(rounds, arm, base, case.field)
    return f"{middle:.3f} ({least:.2f}..{most:.2f})"


def _judge(bench, part, rounds, case, arm):
    """Returns the ratios and budgets whose dividend is `arm`, and their verdicts."""
    budgets, verdicts = [], []
    for over, under, kind, value in (bound for bound in case.judged if bound.over == arm):
        middle = harness.ratio(rounds, over, under, case.field)[0]
        text = f"{over}/{under} {middle:.3f}"
        if value is None:
            budgets.append(text)
            continue
        met = middle <= value if kind == "<=" else middle >= value
        budgets.append(f"{text} {kind} {value}")
        verdicts.append(bench.judge(f"{part}, {case.text}: {text}, not {kind} {value}", met))
    return " ".join(budgets), " ".join(verdicts)


# Two threads against one.

def _measure_threads(bench, there):
    count = os.cpu_count() or 1
    if not there or count < 4:
        why = ("there is no weir proxy" if not there else
               f"two for the proxy, one for the origin and one for the client are four CPUs, "
               f"here are {count}: the client would be what is measured")
        print(f"\nproxy, threads: left out; {why}")
        return None
    case = CASES["c100"]
    runs, client_cpu = harness.Runs(), 3
    for _ in bench.blocks(["threads"]):
        foreign, by_arm = [], {}
        for threads in bench.shuffled([1, 2]):
            cpus = set(range(threads))
            with peers.weir_serve(2, "origin") as own, \
                    proxies.weir(bench, cpus, own, threads=threads) as proxy:
                by_arm[threads], others = bench.attempt(drive, proxy, own, case, client_cpu)
                foreign.append(others)
        runs.add(by_arm, statistics.mean(foreign))
    rounds = runs.used(bench.options.foreign_max)
    rows = []
    for threads in (1, 2):
        middle, least, most = harness.ratio(rounds, threads, 1, "rate_per_s")
        rows.append([f"weir, {threads} threads",
                     f"{harness.median_of(rounds, threads, 'rate_per_s'):,.0f}",
                     f"{harness.median_of(rounds, threads, 'busy'):.0%}",
                     f"{harness.median_of(rounds, threads, 'other_busy'):.0%}",
                     f"{middle:.3f} ({least:.2f}..{most:.2f})"])
    harness.table(f"proxy: threads, {case.text}", ["proxy", "requests/s", "busy",
                  "other side busy", "of one thread (min..max)"], rows)
    return runs.rounds


# Latency added at half the load.

PERCENTILES = {"p50": "p50_ns", "p99": "p99_ns", "p99.9": "p999_ns"}


def _measure_latency(bench, origin, there):
    case = CASES["c100"]
    rate = _reached_per_s(bench, origin, case) // 2
    runs = harness.Runs()
    arms = ["direct", *(name for name in EVERY if there or name != "weir")]
    for _ in bench.blocks(["latency"]):
        foreign, by_arm = harness.Foreign(), {}
        for arm in bench.shuffled(arms):
            by_arm[arm] = bench.attempt(_latency, origin, arm, case, rate)
        runs.add(by_arm, foreign.cpus(sum(each["cpu_s"] for each in by_arm.values())))
    rounds, rows = runs.used(bench.options.foreign_max), []
    for arm in arms:
        row = [arm]
        for field in PERCENTILES.values():
            added = [by_arm[arm][field] - (by_arm["direct"][field] if arm != "direct" else 0)
                     for by_arm in rounds]
            row.append(f"{statistics.median(added) / 1e3:.0f} "
                       f"({min(added) / 1e3:.0f}..{max(added) / 1e3:.0f})")
        rows.append([*row, f"{min(each[arm]['kept'] for each in rounds):.1%}",
                     f"{harness.median_of(rounds, arm, 'busy'):.0%}",
                     f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table(
        f"proxy: latency added in µs, {case.text}, {rate:,} requests/s due by the clock (half of "
        "what HAProxy reached); direct: without a proxy, the whole latency",
        ["proxy", *(f"{name} (min..max)" for name in PERCENTILES), "least of the rate",
         "busy", "rounds", "foreign"], rows)
    return {"rate_per_s": rate, "rounds": [{"foreign_cpus": foreign, "arms": by_arm}
                                           for foreign, by_arm in runs.rounds]}


def _reached_per_s(bench, origin, case):
    """Returns the rate that HAProxy reaches: the best of three, because noise only lowers it."""
    rates = []
    for _ in range(3):
        bench.patience.wait()
        with proxies.haproxy(bench, harness.SUBJECT_CPU, origin) as proxy:
            rates.append(bench.attempt(drive, proxy, origin, case)[0]["rate_per_s"])
    return int(max(rates))


def _latency(bench, origin, arm, case, rate):
    path = f"/?s={case.body}"
    if arm == "direct":
        return _paced(bench, origin, path, case, rate)
    with proxies.PROXIES[arm](bench, harness.SUBJECT_CPU, origin) as proxy:
        check(proxy, path, case.body)
        return _paced(bench, proxy, path, case, rate)


def _paced(bench, target, path, case, rate):
    record = os.path.join(bench.folder, "run.json")
    argv = [peers.WEIR, "load", "-t", "1", "--quiet", "-c", str(case.connections), "-s", "1s",
            "-d", f"{bench.options.seconds + 1}s", "-R", str(rate), "--expect-status", "200",
            "--expect-bytes", str(case.body), "--json", record, target.url(path)]
    before = harness.scheduled_s(target.pid)[0]
    finished = harness.run(argv, harness.OTHER_CPU, bench.options.seconds + 60)
    cpu_s = harness.scheduled_s(target.pid)[0] - before
    run = _check_run(finished, record, target, case)
    latency = run["latency"]["last_byte"]["response"]
    return {**{field: latency[field] for field in PERCENTILES.values()},
            "kept": run["rates"]["responses_per_s"] / rate, "busy": cpu_s / finished.wall_s,
            "cpu_s": cpu_s + finished.cpu_s}


# Pipelined requests.

PIPELINED_CONNECTIONS, PIPELINED_DEPTHS = 10, (1, 8)


def _measure_pipelined(bench, origin, there):
    """Compares rates at full speed with one request in flight per connection and with eight."""
    names = [name for name in ("weir", "haproxy", "nginx") if there or name != "weir"]
    arms = [(name, depth) for name in names for depth in PIPELINED_DEPTHS]
    runs = harness.Runs()
    for _ in bench.blocks(["pipelined"]):
        by_arm, foreign = {}, []
        for arm in bench.shuffled(arms):
            by_arm[arm], others = bench.attempt(_pipelined, origin, *arm)
            foreign.append(others)
        runs.add(by_arm, statistics.mean(foreign))
    rounds, rows, deepest = runs.used(bench.options.foreign_max), [], PIPELINED_DEPTHS[-1]
    for name, depth in arms:
        row = [f"{name}, {depth} in flight per connection"]
        for field, form in (("rate_per_s", ",.0f"), ("cpu_us", ".2f"), ("busy", ".0%")):
            row.append(format(harness.median_of(rounds, (name, depth), field), form))
        middle, least, most = harness.ratio(rounds, (name, depth), ("nginx", depth), "rate_per_s")
        row.append(f"{middle:.3f} ({least:.2f}..{most:.2f})")
        judged = ""
        if (name, depth) == ("weir", deepest):
            judged = bench.judge(f"proxy, pipelined: rate weir/nginx {middle:.3f}, not >= 1", middle >= 1)
        rows.append([*row, judged, f"{len(rounds)}/{len(runs.rounds)}"])
    harness.table(
        f"proxy: h2load --h1, {PIPELINED_CONNECTIONS} connections, full speed",
        ["proxy", "requests/s", "µs", "busy", "rate/nginx (min..max)", "verdict (>= 1)", "rounds"], rows)
    return [{"foreign_cpus": foreign, "arms": {f"{name} {depth}": by_arm[name, depth] for name, depth in arms}}
            for foreign, by_arm in runs.rounds]


def _pipelined(bench, origin, name, depth):
    path = f"/?s={SMALL}"
    with proxies.PROXIES[name](bench, harness.SUBJECT_CPU, origin) as proxy:
        check(proxy, path, SMALL)
        argv = ["h2load", "--h1", "-t1", f"-c{PIPELINED_CONNECTIONS}", f"-m{depth}",
                "-D", str(bench.options.seconds), "--warm-up-time", "1", proxy.url(path)]
        foreign, begin = harness.Foreign(), (origin.stats()["responses"], harness.scheduled_s(proxy.pid)[0])
        origin_s = harness.scheduled_s(origin.pid)[0]
        finished = harness.run(argv, harness.OTHER_CPU, bench.options.seconds + 60)
        responses = origin.stats()["responses"] - begin[0]
        proxy_s = harness.scheduled_s(proxy.pid)[0] - begin[1]
        origin_s = harness.scheduled_s(origin.pid)[0] - origin_s
        foreign_cpus = foreign.cpus(proxy_s + origin_s + finished.cpu_s)
    found = re.search(r"finished in [^,]*, ([0-9.]+) req/s.*?([0-9]+) failed", finished.output, re.DOTALL)
    if finished.status != 0 or not found or found[2] != "0":
        raise Failed(f"h2load through {name} ended with {finished.status}:\n{finished.output}")
    return {"rate_per_s": float(found[1]), "cpu_us": proxy_s * 1e6 / responses,
            "busy": proxy_s / finished.wall_s}, foreign_cpus


# Memory.

def _measure_memory(bench, origin, there):
    arms = [name for name in ("weir", "haproxy", "nginx") if there or name != "weir"]
    states = {"idle after one request": (_idle, BUDGET_IDLE),
              "in flight, with its server side": (_in_flight, BUDGET_IN_FLIGHT)}
    kept, rows = {}, []
    for _ in range(bench.options.times):
        for state, arm in bench.shuffled([(state, arm) for state in states for arm in arms]):
            found = bench.attempt(_memory, origin, arm, states[state][0])
            kept.setdefault(state, {}).setdefault(arm, []).append(found)
    for state, (_, budget) in states.items():
        for arm in arms:
            row = [f"{state}: {arm}"]
            for field in ("rss", "pss"):
                values = [found[field] for found in kept[state][arm]]
                row.append(f"{statistics.median(values):.0f} ({min(values):.0f}..{max(values):.0f})")
            middle = statistics.median(found["rss"] for found in kept[state][arm])
            before = statistics.median(found["before"] for found in kept[state][arm])
            text = f"proxy, memory, {state}: {middle:.0f} bytes > {budget}"
            judged = (f"<= {budget}", bench.judge(text, middle <= budget)) if arm == "weir" else ("", "")
            rows.append([*row, f"{before / 1e6:.1f}", *judged])
    harness.table(
        f"proxy: bytes of user space per connection, {MEMORY_CONNECTIONS:,} of them",
        ["connections: proxy", "resident (min..max)", "by shares (min..max)", "MB before",
         "budget", "verdict"], rows)
    return kept


def _memory(bench, origin, arm, opened):
    """Measures the bytes per connection that MEMORY_CONNECTIONS add to a new, warm proxy."""
    with proxies.PROXIES[arm](bench, harness.SUBJECT_CPU, origin) as proxy:
        for _ in range(MEMORY_WARM):
            check(proxy, f"/?s={SMALL}", SMALL)
        time.sleep(0.5)
        before = harness.memory_in_detail(proxy.pid)
        sockets = opened(proxy, origin)
        time.sleep(1)
        after = harness.memory_in_detail(proxy.pid)
        alive = harness.count_open(sockets)
        for each in sockets:
            each.close()
        if alive != MEMORY_CONNECTIONS:
            raise Failed(f"{arm}: only {alive} connections are open and waiting")
    return {**{field: (after[field] - before[field]) / MEMORY_CONNECTIONS for field in after},
            "before": before["rss"]}


def _idle(proxy, _origin):
    return harness.open_idle(proxy.port, f"/?s={SMALL}", MEMORY_CONNECTIONS, SMALL)


def _in_flight(proxy, origin):
    others = origin.stats()["in_flight"]
    sockets = harness.send_on_each(proxy.port, f"/?s={SMALL}&t=30s", MEMORY_CONNECTIONS)
    until = time.monotonic() + 15
    while origin.stats()["in_flight"] - others < MEMORY_CONNECTIONS:
        if time.monotonic() > until:
            raise Failed(f"{proxy.name}: not every request arrived at the origin")
        time.sleep(0.1)
    return sockets
