"""Part `load`: CPU time per request of the load generators, all driving one server at full speed."""

import contextlib

import harness
import peers

BUDGET = 1.0
BASE = "wrk"


def measure(bench):
    counts, tools = bench.options.connections, list(bench.options.tools)
    if bench.options.before and "weir" in tools:
        tools.append(peers.BEFORE)
    with contextlib.ExitStack() as stack:
        servers = {}
        for name in bench.options.servers:
            if name == "nginx":
                server, path = peers.nginx(bench, harness.OTHER_CPU), "/return"
            elif name == "weir":
                server, path = peers.weir_serve(harness.OTHER_CPU), f"/?s={peers.BODY_SMALL}"
            else:
                server, path = peers.responder(harness.OTHER_CPU, peers.BODY_SMALL), "/"
            servers[name] = (stack.enter_context(server), path)
        blocks = {(name, count): harness.Runs() for name in servers for count in counts}
        for _, (name, count) in bench.blocks(blocks):
            run = bench.attempt(_block, *servers[name], count, _tools_for(name, tools))
            blocks[name, count].add(*run)
    bench.keep("load", [
        {"server": name, "connections": count, "foreign_cpus": foreign, "arms": by_arm}
        for (name, count), runs in blocks.items() for foreign, by_arm in runs.rounds])
    _report(bench, blocks, tools)


def _tools_for(server, tools):
    """Returns the tools that can drive a server: all, except ab for the responder.

    ab speaks HTTP/1.0, which keeps a connection only if the response allows it. The responder's fixed
    response does not."""
    return [tool for tool in tools if (server, tool) != ("responder", "ab")]


def _block(bench, server, path, count, tools):
    """Runs each tool once, one after the other, in random order."""
    foreign, own, by_arm = harness.Foreign(), 0.0, {}
    for tool in bench.shuffled(tools):
        before = sum(harness.cpu_of(server.pid))
        drive = peers.load_before if tool == peers.BEFORE else peers.LOADS[tool]
        load = drive(bench, server.url(path), count, bench.options.seconds, harness.SUBJECT_CPU)
        server_s = sum(harness.cpu_of(server.pid)) - before
        own += server_s + load.finished.cpu_s
        by_arm[tool] = {**load.figures(), "server_busy": server_s / load.finished.wall_s}
    return by_arm, foreign.cpus(own)


def _report(bench, blocks, tools):
    rows = []
    for (name, count), runs in blocks.items():
        rounds = runs.used(bench.options.foreign_max)
        for tool in _tools_for(name, tools):
            median = {field: harness.median_of(rounds, tool, field)
                      for field in ("cpu_us", "user_us", "sleeps", "busy", "server_busy")}
            to_base, verdict = "", ""
            if BASE in tools and tool != BASE:
                middle, least, most = harness.ratio(rounds, tool, BASE)
                to_base = f"{middle:.3f} ({least:.2f}..{most:.2f})"
                if tool == "weir":
                    text = f"load, {name}, {count} connections: weir/{BASE} {middle:.3f}"
                    verdict = bench.judge(f"{text} > {BUDGET}", middle <= BUDGET)
            if tool == peers.BEFORE:
                middle, least, most = harness.ratio(rounds, "weir", tool)
                verdict = f"weir/it {middle:.3f} ({least:.2f}..{most:.2f})"
            rows.append([f"{name}, {count}: {tool}", f"{median['cpu_us']:.2f}",
                         f"{median['user_us']:.2f}", f"{median['sleeps']:.3f}",
                         f"{median['busy']:.0%}", f"{median['server_busy']:.0%}", to_base, verdict,
                         f"{len(rounds)}/{len(runs.rounds)}", f"{runs.foreign():.2f}"])
    harness.table(
        f"load: CPU time per request of the generator; budget weir/{BASE} <= {BUDGET}",
        ["server, connections: tool", "µs", "user", "sleeps", "busy", "server busy",
         f"of {BASE} (min..max)", "budget", "rounds", "foreign"], rows)
