"""Part `traces`: trials of one program, again and again, quiet and beside compilers.

There is no difference between any of them, so that the judgement of arms can be tested on a real machine: the test
`recorded_trials_of_one_program` of the crate stats gives them to a baseline and an arm at random."""

import contextlib
import math
import os
import time

import harness
import part_validity

SUBJECT = "asyncio 10 ms, closed"
SETTINGS = ("nothing", "compilers")
TRIALS, TRIAL_S = 300, 1


def _trial(bench, subject):
    url, flags = subject
    run, _ = part_validity.load_record(bench, url, [*flags, "--no-baseline"], TRIAL_S)
    taken = min((run["cpu"].get("foreign_cpus") or 0) / len(part_validity.ALL_CPUS), 0.99)
    return (math.log(run["rates"]["responses_per_s"]), math.log(run["latency"]["last_byte"]["response"]["p99_ns"]), taken)


def measure(bench):
    trials = 12 if bench.options.quick else TRIALS
    os.makedirs(harness.OUT, exist_ok=True)
    with contextlib.ExitStack() as stack:
        subjects = part_validity.subjects(bench, stack)
        for setting in SETTINGS:
            path = os.path.join(harness.OUT, f"trace-{setting}.txt")
            with contextlib.ExitStack() as beside, open(path, "w") as file:
                part_validity.start_neighbour(bench, beside, setting)
                time.sleep(part_validity.SETTLE_S)
                print(f"# beside {setting}: ln of responses/s, ln of p99 in ns, fraction of the CPUs taken", file=file)
                for at in range(trials):
                    print(*_trial(bench, subjects[SUBJECT]), file=file, flush=True)
                    harness.progress(f"beside {setting}: {at + 1} of {trials}")
            print(f"{path}: {trials} trials")
