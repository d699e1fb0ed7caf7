"""Part `validity`: loads beside neighbours. How many right figures are called valid, and how many wrong ones?

A subject takes part if the three of its five quiet runs that are nearest to the median agree. Then the seed chooses all loads and their order, before the first of them
is measured. A figure is right if rate and p99 are within a tenth of the medians of the quiet runs."""

import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time

import harness
import peers
import proxies

ALL_CPUS = set(range(os.cpu_count() or 1))
LOADS_MIN = 200
QUIET_RUNS, AGREEING_RUNS, AGREEMENT_MAX, RIGHT_MAX = 5, 3, 0.05, 0.10
# A program starts and reaches its usual load before the generator does.
SETTLE_S = 1.0
# Goals: fraction of the right ones that are valid; of the wrong ones none is.
SETTINGS = {"nothing": 0.9, "nice 19": 0.9, "half a CPU": 0.7, "compilers": 0.4}

SPIN = "while True: pass"
HALF = """
import time
while True:
    until = time.monotonic() + 0.01
    while time.monotonic() < until: pass
    time.sleep(0.01)
"""
ASYNCIO = """
import asyncio, sys
async def serve(reader, writer):
    while await reader.readuntil(b"\\r\\n\\r\\n"):
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1000)
    await server.serve_forever()
asyncio.run(main())
"""
NODE = """
require("http").createServer((request, response) => {
    setTimeout(() => { response.setHeader("content-length", 2); response.end("ok") }, 30)
}).listen(Number(process.argv[1]), "127.0.0.1", 1000)
"""
# A thread for each connection; a pool of workers, each of which takes a time for a request.
THREADS = """
import sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
workers, seconds = threading.Semaphore(int(sys.argv[2])), float(sys.argv[3])
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with workers:
            time.sleep(seconds)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *ignored): pass
ThreadingHTTPServer.request_queue_size = 1000
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
# More workers than connections.
UNLIMITED = 1000


@contextlib.contextmanager
def _python(text, *arguments, prefix=()):
    argv = [*prefix, sys.executable, "-c", text, *arguments]
    process = harness.spawn(argv, ALL_CPUS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        harness.stop(process)


def _compiler(bench, number):
    """Returns the command of a compiler that starts again and again: short-lived programs, as of a build."""
    source = os.path.join(bench.folder, f"compiled-{number}.c")
    with open(source, "w") as file:
        for at in range(400):
            file.write(f"int f{at}(int *a, int n) {{ int s = {at}; for (int i = 0; i < n; i++)"
                       f" s += a[i] * {at + 3} % (i + 7); return s; }}\n")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise harness.Failed("no C compiler (cc): apt-get install gcc")
    return ["sh", "-c", f"while :; do {compiler} -O2 -c {source} -o {source}.o; done"]


@contextlib.contextmanager
def _compilers(bench):
    # Sessions of their own, so that the compiler ends with its shell.
    running = [harness.spawn(_compiler(bench, number), ALL_CPUS, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True) for number in range(2)]
    try:
        yield
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 15)
            process.wait()


def start_neighbour(bench, stack, setting):
    if setting == "nice 19":
        for _ in ALL_CPUS:
            stack.enter_context(_python(SPIN, prefix=("nice", "-n", "19")))
    elif setting == "half a CPU":
        stack.enter_context(_python(HALF))
    elif setting == "compilers":
        stack.enter_context(_compilers(bench))


def _python_server(stack, text, *arguments):
    port = harness.free_port()
    process = stack.enter_context(_python(text, str(port), *map(str, arguments)))
    harness.wait_for_port(port, process)
    return f"http://127.0.0.1:{port}/"


def _node_server(stack):
    port = harness.free_port()
    argv = ["node", "-e", NODE, str(port)]
    process = harness.spawn(argv, ALL_CPUS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(harness.stop, process)
    harness.wait_for_port(port, process)
    return f"http://127.0.0.1:{port}/"


def subjects(bench, stack):
    """Starts the servers; returns the URL and the flags of each subject, by name."""
    return SUBJECTS[bench.options.subjects](bench, stack)


def _second_subjects(bench, stack):
    """Starts servers that played no part when the bounds were made."""
    serve = stack.enter_context(peers.weir_serve(ALL_CPUS))
    nginx = stack.enter_context(proxies.nginx(bench, ALL_CPUS, serve, logs=False))
    haproxy = stack.enter_context(proxies.haproxy(bench, ALL_CPUS, serve, logs=False))
    threads = _python_server(stack, THREADS, UNLIMITED, 0.025)
    return {
        "threads 25 ms, open": (threads, ["-c", "40", "-R", "400"]),
        "threads 25 ms, closed": (threads, ["-c", "8"]),
        "nginx before serve 15 ms, open": (nginx.url("/?t=15"), ["-c", "40", "-R", "700"]),
        "nginx before serve 15 ms, closed": (nginx.url("/?t=15"), ["-c", "12"]),
        "HAProxy before serve 5 to 30 ms, open": (haproxy.url("/?t=5~30"), ["-c", "60", "-R", "600"]),
        "HAProxy before serve 8 ms, closed": (haproxy.url("/?t=8"), ["-c", "16"]),
        "serve 4 ms of CPU, open": (serve.url("/?cpu=4000"), ["-c", "20", "-R", "60"]),
        "serve 50 ms, closed": (serve.url("/?t=50"), ["-c", "100"]),
    }


def _first_subjects(bench, stack):
    nginx = stack.enter_context(peers.nginx(bench, ALL_CPUS))
    serve = stack.enter_context(peers.weir_serve(ALL_CPUS))
    delayed = _python_server(stack, ASYNCIO)
    haproxy = stack.enter_context(proxies.haproxy(bench, ALL_CPUS, nginx, logs=False))
    return {
        "serve 20 ms, open": (serve.url("/?t=20"), ["-c", "50", "-R", "500"]),
        "asyncio 10 ms, open": (delayed, ["-c", "50", "-R", "600"]),
        "nginx, open": (nginx.url("/return"), ["-c", "20", "-R", "2000"]),
        "nginx, closed": (nginx.url("/return"), ["-c", "20"]),
        "serve 2 to 40 ms, open": (serve.url("/?t=2~40"), ["-c", "50", "-R", "500"]),
        "HAProxy, open": (haproxy.url("/return"), ["-c", "20", "-R", "1000"]),
        "serve 500 us of CPU, open": (serve.url("/?cpu=500"), ["-c", "20", "-R", "300"]),
        "serve 20 ms, closed": (serve.url("/?t=20"), ["-c", "20"]),
        "asyncio 10 ms, closed": (delayed, ["-c", "10"]),
        "serve 100 kB, open": (serve.url("/?s=100k"), ["-c", "20", "-R", "500"]),
    }


def _third_subjects(bench, stack):
    """Starts servers that played no part when the shape of the latencies came in."""
    serve = stack.enter_context(peers.weir_serve(ALL_CPUS))
    weir = stack.enter_context(proxies.weir(bench, ALL_CPUS, serve, logs=False))
    nginx = stack.enter_context(proxies.nginx(bench, ALL_CPUS, serve, logs=False))
    workers = _python_server(stack, THREADS, 6, 0.035)
    timers = _node_server(stack)
    return {
        "weir before serve 12 ms, open": (weir.url("/?t=12"), ["-c", "30", "-R", "400"]),
        "weir before serve 10 to 60 ms, closed": (weir.url("/?t=10~60"), ["-c", "24"]),
        "nginx before serve 3 to 90 ms, open": (nginx.url("/?t=3~90"), ["-c", "60", "-R", "300"]),
        "6 workers 35 ms, closed": (workers, ["-c", "18"]),
        "6 workers 35 ms, open": (workers, ["-c", "40", "-R", "110"]),
        "Node 30 ms, open": (timers, ["-c", "40", "-R", "350"]),
        "Node 30 ms, closed": (timers, ["-c", "15"]),
        "serve 80 ms in HTTP/2, closed": (serve.url("/?t=80"), ["--http", "2", "-c", "4", "--streams", "8"]),
    }


SUBJECTS = {"first": _first_subjects, "second": _second_subjects, "third": _third_subjects}


def load_record(bench, url, flags, seconds):
    """Runs a load; returns its record and its exit code."""
    record = os.path.join(bench.folder, "validity.json")
    argv = [peers.WEIR, "load", "-t", "1", "--quiet", "-d", f"{seconds}s", *flags, "--json", record, url]
    finished = harness.run(argv, ALL_CPUS, seconds + 60)
    if finished.status not in (0, 4):
        raise harness.Failed(f"weir load ended with {finished.status}:\n{finished.output}")
    with open(record) as file:
        return json.load(file), finished.status


def _load(bench, url, flags, seconds):
    run, status = load_record(bench, url, flags, seconds)
    validity = run["validity"]
    return {"rate": run["rates"]["responses_per_s"], "p99": run["latency"]["last_byte"]["response"]["p99_ns"],
            "verdict": validity["verdict"], "reasons": [reason["code"] for reason in validity["reasons"]],
            "conclusions": {one["conclusion"]: one["verdict"] for one in validity.get("conclusions", [])},
            "ranges": {one["conclusion"]: one.get("undisturbed") for one in validity.get("conclusions", [])},
            "exit": status}


def _is_near(value, quiet, bound):
    return abs(value - quiet) <= bound * quiet


def _quiet_figures(bench, subjects, seconds, runs):
    """Returns the medians of each subject whose quiet runs agree, and the spread of each."""
    quiet, spreads = {}, {}
    for name, (url, flags) in subjects.items():
        bench.patience.wait()
        all_runs = [_load(bench, url, flags, seconds) for _ in range(runs)]
        medians = {figure: statistics.median(run[figure] for run in all_runs) for figure in ("rate", "p99")}
        deviations = [sorted(abs(run[figure] / medians[figure] - 1) for run in all_runs) for figure in medians]
        spreads[name] = max(sorted_ones[:AGREEING_RUNS][-1] for sorted_ones in deviations)
        if spreads[name] <= AGREEMENT_MAX or bench.options.quick:
            quiet[name] = medians
    return quiet, spreads


def measure(bench):
    quick = bench.options.quick
    seconds = 3 if quick else max(bench.options.seconds, 5)
    with contextlib.ExitStack() as stack:
        all_subjects = subjects(bench, stack)
        if quick:
            all_subjects = dict(list(all_subjects.items())[:2])
        quiet, spreads = _quiet_figures(bench, all_subjects, seconds, 2 if quick else QUIET_RUNS)
        print("\nquiet runs: " + ", ".join(
            f"{name} ±{spread:.1%}{'' if name in quiet else ' (left out)'}" for name, spread in spreads.items()))
        if not quiet:
            raise harness.Failed("no subject whose quiet runs agree within 5 %: the machine is not quiet")
        times = 1 if quick else math.ceil(LOADS_MIN / (len(SETTINGS) * len(quiet)))
        plan = [(name, setting) for name in quiet for setting in SETTINGS for _ in range(times)]
        bench.random.shuffle(plan)
        print(f"{len(plan)} loads of {seconds} s: {len(quiet)} subjects, {len(SETTINGS)} settings, {times} times")
        done = []
        for number, (name, setting) in enumerate(plan):
            done.append({"subject": name, "setting": setting,
                         **bench.attempt(_beside, all_subjects[name], setting, seconds)})
            harness.progress(f"load {number + 1} of {len(plan)}")
        harness.progress("")
    bench.keep("validity", {"quiet": quiet, "spreads": spreads, "loads": done})
    _report(bench, quiet, done)


def _beside(bench, subject, setting, seconds):
    if setting == "nothing":
        bench.patience.wait()
    with contextlib.ExitStack() as stack:
        start_neighbour(bench, stack, setting)
        time.sleep(SETTLE_S)
        return _load(bench, *subject, seconds)


def _is_right(run, quiet):
    return all(_is_near(run[figure], quiet[run["subject"]][figure], RIGHT_MAX) for figure in ("rate", "p99"))


def _report(bench, quiet, done):
    rows, wrong_and_valid = [], 0
    for setting, goal in SETTINGS.items():
        runs = [run for run in done if run["setting"] == setting]
        right = [run for run in runs if _is_right(run, quiet)]
        wrong = [run for run in runs if not _is_right(run, quiet)]
        valid, misleading = ([run for run in some if run["verdict"] == "valid"] for some in (right, wrong))
        wrong_and_valid += len(misleading)
        counted, verdict = "0", "none right"
        if right:
            fraction = len(valid) / len(right)
            counted = f"{len(valid)} ({fraction:.0%})"
            verdict = bench.judge(f"validity, {setting}: {fraction:.0%} of the right ones are valid < {goal:.0%}",
                                  fraction >= goal)
        figures = [(run, figure) for run in runs for figure in ("rate", "p99")]
        near = [(run, figure) for run, figure in figures
                if _is_near(run[figure], quiet[run["subject"]][figure], RIGHT_MAX)]
        called = [run["conclusions"].get(figure) == "valid" for run, figure in near]
        off = sum(run["conclusions"].get(figure) == "valid" for run, figure in figures if (run, figure) not in near)
        rows.append([setting, len(runs), len(right), counted, len(wrong), len(misleading),
                     f"{sum(called)} of {len(near)}", f"{off} of {len(figures) - len(near)}", verdict])
        for run in misleading:
            ratios = {figure: run[figure] / quiet[run["subject"]][figure] for figure in ("rate", "p99")}
            print(f"off and valid: {run['subject']} beside {setting}: rate x{ratios['rate']:.2f}, "
                  f"p99 x{ratios['p99']:.2f}; {', '.join(run['reasons']) or 'no reason'}")
    verdict = bench.judge(f"validity: {wrong_and_valid} of {len(done)} are off by more than 10 % and valid > 0",
                          wrong_and_valid == 0)
    harness.table(
        f"validity: right is within {RIGHT_MAX:.0%} of the quiet figures; off and valid: {wrong_and_valid} ({verdict})",
        ["beside", "loads", "right", "of these valid", "off", "of these valid", "right figures valid",
         "off figures valid", "goal"], rows)
