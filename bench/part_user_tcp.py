"""Part `user-tcp`: CPU time per request of TCP in user space (`--xdp`) and of the kernel's sockets, between two network
namespaces. Both processes and the kernel's threads of softirqs count: whichever end sends does the work of the link and of
the receiving TCP, in softirqs within its own time."""

import contextlib
import os
import subprocess

import harness
import peers

PORT = 8000
SERVER, CLIENT = "10.79.0.1", "10.79.0.2"
# Arm -> (client, server): `kernel` and `xdp` are weir with either transport.
ARMS = {
    "kernel at both ends": ("kernel", "kernel"),
    "xdp at both ends": ("xdp", "xdp"),
    "xdp client": ("xdp", "kernel"),
    "xdp server": ("kernel", "xdp"),
    "wrk to weir": ("wrk", "kernel"),
    "wrk to nginx": ("wrk", "nginx"),
}
BASE = "kernel at both ends"
# Suffix of an arm with another build of weir (`--before`).
BEFORE = ", before"
WITHOUT_WRK = ["kernel at both ends", "xdp at both ends", "xdp client", "xdp server"]


class Case:
    """One comparison: connections, flags, queues, and the budgets of its ratios to the kernel's sockets."""

    def __init__(self, connections, budgets=None, queues=1, is_closing=False, has_tls=False, arms=tuple(ARMS)):
        self.connections, self.budgets, self.queues = connections, budgets or {}, queues
        self.is_closing, self.has_tls, self.arms = is_closing, has_tls, arms


ONE_END = {"xdp client": 0.75, "xdp server": 0.75}
CASES = {
    "c64": Case(64, {"xdp at both ends": 0.6, **ONE_END}),
    "c1000": Case(1_000, {"xdp at both ends": 0.5, **ONE_END}),
    "close": Case(64, is_closing=True),
    "tls": Case(64, has_tls=True),
    "tls-close": Case(64, has_tls=True, is_closing=True),
    "queues": Case(1_000, queues=2, arms=WITHOUT_WRK),
}
NAMES = list(CASES)


class Link:
    """Two namespaces with a veth pair, removed at the end with everything in them."""

    def __init__(self, queues):
        self.names = [f"weir-user-tcp-{os.getpid()}-{queues}{end}" for end in "sc"]
        self.queues = queues

    def __enter__(self):
        for name in self.names:
            _ip("netns", "add", name)
        queues = ["numrxqueues", str(self.queues), "numtxqueues", str(self.queues)]
        _ip("-n", self.names[0], "link", "add", "x0", *queues, "type", "veth", "peer", "x1", *queues, "netns", self.names[1])
        for name, device, address in zip(self.names, ("x0", "x1"), (SERVER, CLIENT)):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            # With a connection per request the kernel's ports would be used up by TIME-WAIT.
            subprocess.run([*self.within(name), "sysctl", "-qw", "net.ipv4.tcp_tw_reuse=1"], check=True)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    @staticmethod
    def within(name):
        return ["ip", "netns", "exec", name]

    def server(self, argv):
        return [*self.within(self.names[0]), *argv]

    def client(self, argv):
        return [*self.within(self.names[1]), *argv]


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def measure(bench):
    if os.geteuid() != 0:
        print("\nuser-tcp: left out; network namespaces need root")
        return
    cases = bench.options.user_tcp_cases
    with contextlib.ExitStack() as stack:
        links = {queues: stack.enter_context(Link(queues)) for queues in sorted({CASES[name].queues for name in cases})}
        blocks = {name: harness.Runs() for name in cases}
        for _, name in bench.blocks(blocks):
            blocks[name].add(*bench.attempt(_block, links[CASES[name].queues], CASES[name]))
    bench.keep("user-tcp", [{"case": name, "foreign_cpus": foreign, "arms": by_arm}
                            for name, runs in blocks.items() for foreign, by_arm in runs.rounds])
    _report(bench, blocks)


def _block(bench, link, case):
    """Runs each arm once, one after the other, in random order."""
    foreign, own, by_arm = harness.Foreign(), 0.0, {}
    for arm in bench.shuffled(_arms(bench, case)):
        program = bench.options.before if arm.endswith(BEFORE) else peers.WEIR
        by_arm[arm] = _run(bench, link, case, *ARMS[arm.removesuffix(BEFORE)], program)
        own += by_arm[arm]["own_s"]
    return by_arm, foreign.cpus(own)


def _arms(bench, case):
    """Returns the arms of a case, with another build of weir at the ends in user space if there is one."""
    return [*case.arms, *(arm + BEFORE for arm in case.arms if bench.options.before and "xdp" in ARMS[arm])]


def _run(bench, link, case, client, server, program=peers.WEIR):
    cpus = [{harness.SUBJECT_CPU, harness.OTHER_CPU}] * 2 if case.queues > 1 else [harness.OTHER_CPU, harness.SUBJECT_CPU]
    with contextlib.ExitStack() as stack:
        pid = stack.enter_context(_serve(bench, link, case, server, cpus[0], program))
        before = _clocks(pid)
        load = _load(bench, link, case, client, cpus[1], program)
        server_s, threads_s, softirq_s, machine_s = (end - begun for end, begun in zip(_clocks(pid), before))
    own_s = server_s + load.finished.cpu_s + threads_s
    per = 1e6 / load.responses
    return {"cpu_us": own_s * per, "client_us": load.finished.cpu_s * per, "server_us": server_s * per,
            "threads_us": threads_s * per, "softirq_us": softirq_s * per, "machine_us": machine_s * per, "responses": load.responses, "own_s": own_s,
            "rate": load.responses / bench.options.seconds}


def _clocks(pid):
    """Returns CPU seconds: of the server, of the threads of softirqs; of the machine in softirqs, and in all."""
    return harness.scheduled_s(pid)[0], harness.interrupt_threads_s(), harness.softirq_s(), harness.machine_busy_s()


@contextlib.contextmanager
def _serve(bench, link, case, server, cpu, program):
    """Starts a server; gives the process whose CPU time counts."""
    address = f"{SERVER}:{PORT}"
    if server == "nginx":
        listen = f"{address} backlog=4096"
        if case.has_tls:
            listen += f" ssl; ssl_protocols TLSv1.3; ssl_certificate {_certificate(bench)}; ssl_certificate_key {_certificate(bench)}"
        text = f"access_log off; server {{ listen {listen}; location / {{ return 200 '{'x' * peers.BODY_SMALL}'; }} }}"
        process, pid = peers.start_nginx_within(bench, link.server([]), cpu, address, text, 4_096)
    else:
        argv = [program if server == "xdp" else peers.WEIR, "serve", "-t", str(case.queues), "--listen", address]
        argv += ["--xdp", "x0"] if server == "xdp" else []
        argv += ["--tls-self-signed"] if case.has_tls else []
        process = harness.spawn(link.server(argv), cpu, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        pid = process.pid
        if not process.stdout.readline():
            raise harness.Failed(f"did not start: {process.args}")
    try:
        yield pid
    finally:
        harness.stop(process)


def _load(bench, link, case, client, cpu, program):
    scheme = "https" if case.has_tls else "http"
    url = f"{scheme}://{SERVER}:{PORT}/?s={peers.BODY_SMALL}"
    if client == "wrk":
        flags = ["-H", "Connection: close"] if case.is_closing else []
        return peers.load_wrk(bench, url, case.connections, bench.options.seconds, cpu, *flags, within=link.client([]))
    flags = ["--no-baseline", "--no-watch", *(["--xdp", "x1"] if client == "xdp" else []), *(["-r", "1"] if case.is_closing else []),
             *(["-k"] if case.has_tls else [])]
    return peers.load_weir(bench, url, case.connections, bench.options.seconds, cpu, *flags, within=link.client([]),
                           threads=case.queues, program=program if client == "xdp" else peers.WEIR)


def _certificate(bench):
    """Returns a file with a self-signed certificate and its key (ECDSA P-256, as that of weir)."""
    path = os.path.join(bench.folder, "user-tcp.pem")
    if not os.path.exists(path):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=bench", "-keyout", f"{path}.key", "-out", f"{path}.crt"],
                       check=True, capture_output=True)
        with open(path, "w") as file:
            for part in ("crt", "key"):
                with open(f"{path}.{part}") as source:
                    file.write(source.read())
    return path


def _report(bench, blocks):
    rows = []
    for name, runs in blocks.items():
        rounds = runs.used(bench.options.foreign_max)
        for arm in _arms(bench, CASES[name]):
            median = {field: harness.median_of(rounds, arm, field)
                      for field in ("cpu_us", "client_us", "server_us", "softirq_us", "machine_us", "rate")}
            to_base, verdict = "", ""
            if arm != BASE:
                middle, least, most = harness.ratio(rounds, arm, BASE)
                to_base = f"{middle:.2f} ({least:.2f}..{most:.2f})"
                budget = CASES[name].budgets.get(arm)
                if budget is not None:
                    text = f"user-tcp, {name}: {arm} {middle:.3f} of the kernel's > {budget}"
                    verdict = f"<= {budget}: {bench.judge(text, middle <= budget)}"
            rows.append([f"{name}: {arm}", f"{median['rate'] / 1e3:.1f}", f"{median['cpu_us']:.2f}",
                         f"{median['client_us']:.2f}", f"{median['server_us']:.2f}", f"{median['softirq_us']:.2f}", f"{median['machine_us']:.2f}",
                         to_base, verdict, f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table(
        f"user-tcp: CPU time per request of {peers.BODY_SMALL} B, both processes with the softirqs in their time; "
        "machine: all CPUs, which is the same on a quiet machine",
        ["case: arm", "k/s", "µs", "client", "server", "in softirqs", "machine", "of the kernel (min..max)", "budget", "rounds", "foreign"],
        rows)
