"""Part `connections`: opens many connections within seconds; all have to be open at once, none lost."""

import itertools
import json
import os

import harness
import peers

CONNECTIONS, RAMP_S, LENGTH_S, RATE = 15_000, 3, 8, 3_000


def measure(bench):
    if not bench.has_descriptors("connections", CONNECTIONS):
        return
    rows = bench.repeat("connections", _once)
    harness.table(
        f"connections: {CONNECTIONS} ramped in {RAMP_S} s, weir load to weir serve, a thread each",
        ["run", "requested", "max open", "opened", "failed", "lost", "errors", "responses",
         "open after each second", "server accepted", "all opened, none lost"], rows)


def _once(bench, number):
    record = os.path.join(bench.folder, "connections.json")
    with peers.weir_serve(harness.OTHER_CPU) as server:
        argv = [peers.WEIR, "load", "-t", "1", "--quiet", "-c", str(CONNECTIONS), "-s",
                f"{RAMP_S}s", "-d", f"{LENGTH_S}s", "-R", str(RATE), "--json", record,
                server.url(f"/?s={peers.BODY_SMALL}")]
        finished = harness.run(argv, harness.SUBJECT_CPU, RAMP_S + LENGTH_S + 40)
        if finished.status not in (0, 4):
            raise harness.Failed(f"weir load ended with {finished.status}:\n{finished.output}")
        accepted = server.stats()["connections_accepted"]
    with open(record) as file:
        run = json.load(file)
    totals, opened = run["totals"], run["totals"]["connections"]
    by_second = list(itertools.accumulate(
        interval["connections_opened"] for interval in run["intervals"]))
    # Ends with the second in which the last connection was opened.
    whole = sum(count < by_second[-1] for count in by_second) + 1
    errors = sum(totals["errors"].values())
    good = (opened["max_open"] == opened["requested"] == CONNECTIONS
            and opened["failed"] == opened["lost"] == errors == 0)
    verdict = bench.judge(f"connections, run {number + 1}: {opened}, {totals['errors']}", good)
    row = [number + 1, opened["requested"], opened["max_open"], opened["opened"], opened["failed"],
           opened["lost"], errors, totals["responses"],
           " ".join(str(count) for count in by_second[:whole]), accepted, verdict]
    return row, {"totals": totals, "opened_by_second": by_second, "accepted": accepted,
                 "exit": finished.status, "validity": run["validity"]}
