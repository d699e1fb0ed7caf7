"""Part `reload`: reloads a proxy under load every 100 ms and replaces its process every few seconds.

No request may fail."""

import json
import os
import signal
import subprocess
import time

import harness
import peers
import proxies

EVERY_S, UPGRADE_EVERY_S = 0.1, 5
DRAIN_S = 5

CONF = """
threads = 2
admin = "127.0.0.1:{admin}"
control = "{folder}/weir.sock"
drain-timeout = "{drain}s"

[[log]]
to = "file:{folder}/access.log"

[listener.web]
bind = "127.0.0.1:{port}"
{extra}
[[route]]
name = "only-{round}"
path = "/only/{round}"
deny = true

[[route]]
name = "main"
pool = "app-{pool}"

[pool.app-{pool}]
servers = [{{ address = "127.0.0.1:{first}", weight = {weight} }}, "127.0.0.1:{second}"]
"""

EXTRA = """
[listener.extra]
bind = "127.0.0.1:{port}"
"""


class Subject:
    """Successive proxy processes and their config file."""

    def __init__(self, bench, origins):
        self.folder = os.path.join(bench.folder, "reload")
        os.makedirs(self.folder)
        self.conf = os.path.join(self.folder, "weir.toml")
        self.port, self.admin, self.extra = harness.free_port(), harness.free_port(), harness.free_low_port()
        self.origins, self.round = origins, 0
        self.leaving, self.codes, self.logs = [], [], []
        self.write()
        self.process = self.start()

    def write(self):
        """Writes a config whose pool, weight, routes and listeners differ from the previous one."""
        self.round += 1
        pool = self.round % 4
        extra = EXTRA.format(port=self.extra) if self.round % 2 else ""
        text = CONF.format(admin=self.admin, folder=self.folder, drain=DRAIN_S, port=self.port,
                           extra=extra, round=self.round, pool=pool, weight=self.round % 3 + 1,
                           first=self.origins[0].port, second=self.origins[1].port)
        harness.replace(self.conf, text)

    def start(self, *more):
        log = os.path.join(self.folder, f"process-{len(self.logs)}")
        self.logs.append(log)
        return proxies.start_weir(self.conf, log, *more)

    def reload(self):
        self.write()
        self.process.send_signal(signal.SIGHUP)

    def upgrade(self):
        new = self.start("--upgrade-from", f"{self.folder}/weir.sock")
        self.leaving.append(self.process)
        self.process = new

    def applied(self):
        return sum(proxies.text_of(log).count("config applied") for log in self.logs)

    def complaints(self):
        lines = [line for log in self.logs for line in proxies.text_of(log).splitlines()]
        usual = ("listening on", "admin on", "control on", "file access", "config applied",
                 "weir: process ")
        return sorted({line for line in lines if not line.startswith(usual)})

    def finish(self):
        """Stops the current process and returns the exit codes of all processes."""
        self.process.send_signal(signal.SIGTERM)
        codes = []
        for process in [*self.leaving, self.process]:
            try:
                codes.append(process.wait(DRAIN_S + 10))
            except subprocess.TimeoutExpired:
                codes.append("did not end")
        return codes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [*self.leaving, self.process]:
            harness.stop(process)


def measure(bench):
    rows, kept = [], {}
    for name, upgrade_every_s in (("reload", None), ("reload and upgrade", UPGRADE_EVERY_S)):
        row, kept[name] = _once(bench, name, upgrade_every_s)
        rows.append(row)
    bench.keep("reload", kept)
    harness.table(
        f"reload: a new config every {EVERY_S:.1f} s for {bench.options.seconds} s under two loads of "
        "8 connections, kept and one a request",
        ["run", "configs applied", "processes", "requests (kept)", "requests (new)", "errors",
         "statuses", "exit codes", "none failed"], rows)


def _load(bench, name, url, *more):
    record = os.path.join(bench.folder, f"reload-{name}.json")
    argv = [peers.WEIR, "load", "-t", "1", "--quiet", "-c", "8", "-d", f"{bench.options.seconds}s",
            "--json", record, *more, url]
    return record, harness.Running(argv, harness.OTHER_CPU)


def _once(bench, name, upgrade_every_s):
    seconds = bench.options.seconds
    with peers.weir_serve(harness.OTHER_CPU) as first, peers.weir_serve(harness.OTHER_CPU) as second, \
            Subject(bench, (first, second)) as subject:
        url = f"http://127.0.0.1:{subject.port}/?s={peers.BODY_SMALL}"
        kept_record, kept = _load(bench, "kept", url)
        new_record, new = _load(bench, "new", url, "-r", "1")
        with kept, new:
            begun = time.monotonic()
            next_upgrade = begun + (upgrade_every_s or 2 * seconds)
            while time.monotonic() - begun < seconds:
                if time.monotonic() >= next_upgrade:
                    subject.upgrade()
                    next_upgrade = time.monotonic() + upgrade_every_s
                subject.reload()
                time.sleep(EVERY_S)
            for running in (kept, new):
                finished = running.finish(seconds + 60)
                if finished.status not in (0, 4):
                    raise harness.Failed(f"weir load ended with {finished.status}:\n{finished.output}")
        applied, codes = subject.applied(), subject.finish()
        for line in subject.complaints():
            print(f"  said: {line}")
        os.rename(subject.folder, f"{subject.folder}-{name.replace(' ', '-')}")
    totals = []
    for record in (kept_record, new_record):
        with open(record) as file:
            totals.append(json.load(file)["totals"])
    errors = {}
    statuses = {}
    for total in totals:
        for into, counts in ((errors, total["errors"]), (statuses, total["status"])):
            for key, count in counts.items():
                into[key] = into.get(key, 0) + count
    errors = {key: count for key, count in errors.items() if count}
    good = not errors and set(statuses) == {"200"} and set(codes) == {0} and applied > 0
    verdict = bench.judge(f"{name}: errors {errors}, statuses {statuses}, exit codes {codes}", good)
    row = [name, applied, len(codes), totals[0]["responses"], totals[1]["responses"],
           errors or 0, statuses, sorted(set(map(str, codes))), verdict]
    return row, {"applied": applied, "errors": errors, "statuses": statuses, "codes": codes}
