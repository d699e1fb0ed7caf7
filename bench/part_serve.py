"""Part `serve`: CPU time per request of the origins, all driven by the same load generator."""

import contextlib

import harness
import peers

CONNECTIONS = 100
# Block -> (arms, budgets). Arms: arm -> (server, path). Budgets: base -> ratio.
BLOCKS = {
    "100 B": ({"weir": ("weir", f"/?s={peers.BODY_SMALL}"), "nginx return": ("nginx", "/return"),
               "nginx file": ("nginx", "/small"), "responder": ("responder 100", "/")},
              {"nginx return": 1.0, "nginx file": 1.0, "responder": 1.10}),
    "10 kB": ({"weir": ("weir", f"/?s={peers.BODY_LARGE}"), "nginx file": ("nginx", "/large"),
               "responder": ("responder 10k", "/")},
              {"nginx file": 1.0, "responder": 1.10}),
}


def measure(bench):
    cpu, before = harness.SUBJECT_CPU, bench.options.before
    with contextlib.ExitStack() as stack:
        servers = {
            "weir": stack.enter_context(peers.weir_serve(cpu)),
            **({peers.BEFORE: stack.enter_context(peers.weir_serve(cpu, program=before))} if before else {}),
            "nginx": stack.enter_context(peers.nginx(bench, cpu)),
            "responder 100": stack.enter_context(peers.responder(cpu, peers.BODY_SMALL)),
            "responder 10k": stack.enter_context(peers.responder(cpu, peers.BODY_LARGE)),
        }
        blocks = {name: harness.Runs() for name in BLOCKS}
        for _, name in bench.blocks(blocks):
            blocks[name].add(*bench.attempt(_block, servers, _arms(bench, name)))
    bench.keep("serve", [{"body": name, "foreign_cpus": foreign, "arms": by_arm}
                         for name, runs in blocks.items() for foreign, by_arm in runs.rounds])
    _report(bench, blocks)


def _arms(bench, name):
    """Returns the arms of a block, with another build of weir if there is one."""
    arms = BLOCKS[name][0]
    return arms | {peers.BEFORE: (peers.BEFORE, arms["weir"][1])} if bench.options.before else arms


def _block(bench, servers, arms):
    foreign, own, by_arm = harness.Foreign(), 0.0, {}
    for arm in bench.shuffled(arms):
        server, path = servers[arms[arm][0]], arms[arm][1]
        user, system = harness.cpu_of(server.pid)
        load = peers.LOADS[bench.options.driver](
            bench, server.url(path), CONNECTIONS, bench.options.seconds, harness.OTHER_CPU)
        user_end, system_end = harness.cpu_of(server.pid)
        cpu_s = user_end - user + system_end - system
        own += cpu_s + load.finished.cpu_s
        per = 1e6 / load.responses
        by_arm[arm] = {"cpu_us": cpu_s * per, "user_us": (user_end - user) * per,
                       "system_us": (system_end - system) * per, "responses": load.responses,
                       "busy": cpu_s / load.finished.wall_s,
                       "driver_busy": load.finished.cpu_s / load.finished.wall_s}
    return by_arm, foreign.cpus(own)


def _report(bench, blocks):
    rows = []
    for name, runs in blocks.items():
        rounds = runs.used(bench.options.foreign_max)
        budgets = BLOCKS[name][1]
        for arm in _arms(bench, name):
            median = {field: harness.median_of(rounds, arm, field)
                      for field in ("cpu_us", "user_us", "busy", "driver_busy")}
            of_arm, verdict = "", ""
            if arm != "weir":
                middle, least, most = harness.ratio(rounds, "weir", arm)
                of_arm = f"{middle:.3f} ({least:.2f}..{most:.2f})"
            if arm in budgets:
                text = f"serve, {name}: weir/{arm} {middle:.3f} > {budgets[arm]}"
                verdict = f"<= {budgets[arm]:.2f} {bench.judge(text, middle <= budgets[arm])}"
            rows.append([f"{name}: {arm}", f"{median['cpu_us']:.2f}", f"{median['user_us']:.2f}",
                         f"{median['busy']:.0%}", f"{median['driver_busy']:.0%}", of_arm, verdict,
                         f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table(
        f"serve: CPU time per request of the server, {CONNECTIONS} connections, "
        f"driven by {bench.options.driver}",
        ["body: server", "µs", "user", "busy", "driver busy", "weir/it (min..max)", "budget",
         "rounds", "foreign"], rows)
