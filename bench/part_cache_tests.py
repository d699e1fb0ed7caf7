"""Part `cache-tests`: the public suite of tests for HTTP caches (cache-tests.fyi) against weir, nginx and Varnish.

The suite is fetched at its pinned commit. Its tests are required, optimal (optional behaviour that saves requests) or checks
(behaviour without a right answer). Passed tests of the first two kinds are compared; a test whose dependency fails
counts as not passed, as the suite has it."""

import json
import os
import subprocess

import harness
import peers
import proxies
from harness import Failed

REPOSITORY = "https://github.com/http-tests/cache-tests"
# The client that the suite needs for tests of interim responses.
UNDICI = "undici@7.30.2"
COMMIT = "b55b8bda3dbb8c927c04e85bd8d496a8caa3e4ba"
PROGRAMS = ("weir", "nginx", "varnish")
LIMIT_S = 900

# As few settings as possible, for all three: the defaults are what is compared. Those of nginx and Varnish are the suite's own.
WEIR = """
admin = "127.0.0.1:{admin}"
[listener.web]
bind = "127.0.0.1:{port}"
[cache.main]
memory = "64m"
[[route]]
pool = "app"
cache = {{ use = "main" }}
[pool.app]
servers = ["127.0.0.1:{origin}"]
"""
NGINX = """
    access_log off;
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=main:8m max_size=1000m inactive=600m;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{origin};
            proxy_cache main;
            proxy_cache_revalidate on;
            proxy_http_version 1.1;
        }}
    }}
"""
VARNISH = """
vcl 4.0;
backend default {{
    .host = "127.0.0.1";
    .port = "{origin}";
}}
"""
# Prints one line of JSON for each test that ran.
JUDGE = """
import { readFileSync } from 'node:fs'
import groups from './tests/index.mjs'
import { determineTestResult, resultTypes } from './test-engine/lib/results.mjs'
const results = JSON.parse(readFileSync(process.argv[2]))
const names = new Map(Object.entries(resultTypes).map(([name, type]) => [type, name]))
for (const group of groups) {
  for (const test of group.tests) {
    if (results[test.id] === undefined) continue
    const result = names.get(determineTestResult(groups, test.id, results))
    const reason = results[test.id] === true ? '' : String(results[test.id][1])
    console.log(JSON.stringify({ group: group.name, id: test.id, name: test.name, kind: test.kind ?? 'required', result, reason }))
  }
}
"""


def measure(bench):
    suite = _fetch(bench)
    by_program = {}
    for program in PROGRAMS:
        harness.progress(f"cache-tests: {program}")
        with _origin(bench, suite) as origin, _start(bench, program, origin) as proxy:
            by_program[program] = _run(bench, suite, program, proxy)
    harness.progress("")
    bench.keep("cache-tests", by_program)
    _print(bench, by_program)


def _fetch(bench):
    """Fetches the suite at its commit. `BENCH_CACHE_TESTS` is the URL or path of another copy of the repository."""
    folder = os.path.join(bench.folder, "cache-tests")
    repository = os.environ.get("BENCH_CACHE_TESTS", REPOSITORY)
    for line in (["init", "-q", folder], ["-C", folder, "fetch", "-q", "--depth", "1", repository, COMMIT],
                 ["-C", folder, "checkout", "-q", "FETCH_HEAD"]):
        done = subprocess.run(["git", *line], capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise Failed(f"cannot fetch the suite: {done.stderr.strip()}")
    with open(os.path.join(folder, "judge.mjs"), "w") as file:
        file.write(JUDGE)
    # Beside the suite, where node searches, too: its other packages are not needed.
    done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", bench.folder, UNDICI],
                          capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failed(f"cannot install {UNDICI}: {(done.stdout + done.stderr).strip()}")
    return folder


def _node(suite, script, *arguments, **settings):
    """Returns the command and the environment of a script of the suite, which reads the settings of its package."""
    environment = {f"npm_package_config_{name}": str(value) for name, value in settings.items()}
    return {"args": ["node", "--no-warnings", script, *arguments], "cwd": suite, "env": os.environ | environment}


def _origin(bench, suite):
    port = harness.free_port()
    node = _node(suite, "test-engine/server/server.mjs", protocol="http", port=port,
                 pidfile=os.path.join(bench.folder, "server.pid"))
    process = harness.spawn(node.pop("args"), harness.OTHER_CPU, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, **node)
    harness.wait_for_port(port, process)
    return peers.Server("origin", process, process.pid, port)


def _start(bench, program, origin):
    port = harness.free_port()
    values = {"port": port, "origin": origin.port, "admin": harness.free_port()}
    if program == "nginx":
        text = NGINX.format(folder=peers.nginx_folder(bench, port), **values)
        return peers.start_nginx(bench, harness.SUBJECT_CPU, port, text, 1_000)
    if program == "weir":
        argv = [peers.WEIR, "proxy", "--config", proxies.write(bench, f"weir-{port}.toml", WEIR.format(**values))]
        return proxies.spawn("weir", argv, harness.SUBJECT_CPU, port)
    # Without the defaults that store what has no lifetime, and that serve stale responses.
    argv = ["varnishd", "-F", "-j", "none", "-a", f"127.0.0.1:{port}", "-n", os.path.join(bench.folder, "varnish"),
            "-f", proxies.write(bench, f"varnish-{port}.vcl", VARNISH.format(**values)),
            "-p", "default_ttl=0", "-p", "default_grace=0", "-p", "default_keep=3600", "-s", "malloc,64M"]
    return proxies.spawn("varnish", argv, harness.SUBJECT_CPU, port)


def _run(bench, suite, program, proxy):
    node = _node(suite, "test-engine/cli.mjs", base=f"http://127.0.0.1:{proxy.port}", id="")
    done = subprocess.run(node.pop("args"), capture_output=True, text=True, timeout=LIMIT_S, **node)
    # Messages of the suite come before the object.
    begin = 0 if done.stdout.startswith("{") else done.stdout.find("\n{") + 1
    results = os.path.join(bench.folder, f"{program}.json")
    with open(results, "w") as file:
        file.write(done.stdout[begin:])
    node = _node(suite, "judge.mjs", results)
    judged = subprocess.run(node.pop("args"), capture_output=True, text=True, timeout=60, **node)
    if judged.returncode:
        raise Failed(f"no results of {program}: {done.stderr.strip()} {judged.stderr.strip()}")
    return [json.loads(line) for line in judged.stdout.splitlines()]


def _print(bench, by_program):
    # Some groups have checks only.
    groups = list(dict.fromkeys(test["group"] for test in by_program["weir"] if test["kind"] != "check"))
    rows, sums = [], {program: [0, 0] for program in PROGRAMS}
    for group in groups:
        passed = {}
        for program, tests in by_program.items():
            counted = [test["result"] for test in tests if test["group"] == group and test["kind"] != "check"]
            passed[program] = counted.count("pass")
            sums[program] = [sums[program][0] + passed[program], sums[program][1] + len(counted)]
        rows.append([group, str(len(counted)), *(str(passed[program]) for program in PROGRAMS)])
        best = max(passed[program] for program in PROGRAMS)
        if passed["weir"] < best:
            bench.missed.append(f"cache-tests: {group}: {passed['weir']} passed, of another program {best}")
    rows.append(["all", str(sums["weir"][1]), *(str(sums[program][0]) for program in PROGRAMS)])
    harness.table("cache-tests: passed tests, required and optimal", ["group", "tests", *PROGRAMS], rows)
    others = {program: {test["id"]: test["result"] for test in by_program[program]} for program in PROGRAMS[1:]}
    rows = [[test["id"], test["kind"], test["result"], *(others[program].get(test["id"], "") for program in others),
             test["reason"]]
            for test in by_program["weir"] if test["kind"] != "check" and test["result"] != "pass"]
    harness.table("cache-tests: tests that weir does not pass", ["test", "kind", *PROGRAMS, "reason"], rows)
    rows = [[test["id"], test["result"], *(others[program].get(test["id"], "") for program in others)]
            for test in by_program["weir"] if test["kind"] == "check"]
    harness.table("cache-tests: checks, which have no right answer", ["check", *PROGRAMS], rows)
